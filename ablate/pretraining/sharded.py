"""Weights, gradients, optimizer states spread over the ranks, for sizes that one GPU cannot hold.

torch's `fully_shard` (FSDP2) under Lightning's own ModelParallelStrategy: one group a layer and one
for the rest, so that a tied decoder stays tied. Parameters keep names and shapes, which decide
weight decay. Every pass gathers weights on all ranks together, so a rank that has fewer
micro-batches, where an epoch ends, makes empty ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pytorch_lightning.strategies import ModelParallelStrategy
from torch import Tensor, nn


class Sharded(ModelParallelStrategy):
    """Whole checkpoints, written by rank 0."""

    def __init__(self, devices: int) -> None:
        super().__init__(
            data_parallel_size=devices, tensor_parallel_size=1, save_distributed_checkpoint=False
        )

    def spread(self, model: Any) -> None:
        """Shard a masked LM that is whole."""
        from torch.distributed.fsdp import FSDPModule, fully_shard

        if isinstance(model, FSDPModule):
            return
        mesh = self.device_mesh["data_parallel"]
        for part in [*model.encoder.layers, model]:
            fully_shard(part, mesh=mesh)

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Gradients of a backward are added up on this rank alone."""
        module: Any = self.lightning_module
        module.model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            module.model.set_requires_gradient_sync(True)


def whole(value: Tensor) -> Tensor:
    """A tensor that may be spread, on every rank."""
    gather = getattr(value, "full_tensor", None)
    return value if gather is None else gather()


def gathered(model: nn.Module) -> dict[str, Any]:
    """The whole weights on the CPU of rank 0, nothing elsewhere; all ranks call it together."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    found: dict[str, Any] = get_model_state_dict(model, options=options)
    return found
