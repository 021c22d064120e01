"""`StepItem` -> one optimizer step: the LightningModule, thin on purpose.

Manual optimization: one loader item is one step. Each loss is summed over the micro-batches and
divided once, by the count over all of them and all ranks, so accumulation and devices do not
change the gradient. Dropout is seeded at each micro-batch from (seed, step, micro-batch, rank),
which is all the random state there is: a resumed run needs no other.
"""

from __future__ import annotations

import contextlib
import math
from contextlib import AbstractContextManager
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from ablate import rng
from ablate.encoder.heads import MaskedLanguageModel
from ablate.inputs.batches import Batch
from ablate.inputs.mask_counts import MaskCounts
from ablate.inputs.pairs import LOSSES, NO_PAIR, loss_classes
from ablate.inputs.steps import StepItem
from ablate.objectives.mlm import SumCount, masked_lm_loss
from ablate.objectives.sentence_pair import pair_targets, sentence_pair_loss
from ablate.pretraining.distributed import summed_counts
from ablate.pretraining.optimizers import adamw
from ablate.pretraining.schedules import learning_rate_factor
from ablate.pretraining.sharded import Sharded, whole


class PretrainingModule(pl.LightningModule):
    """Masked-LM (and sentence-pair) or next-token pretraining of a `MaskedLanguageModel`.

    `objective` names the loss on tokens, `mlm` or `clm`; what is predicted is in the batches.
    The loss on pairs named `pair_loss` (`pairs.LOSSES`) is added where the model has a pair head;
    `pairing` says what the labels of the rows mean. Metrics go to the trainer's loggers every
    `log_every` steps as means over the steps since the last line, with `tokens` as a field beside
    them.
    """

    def __init__(
        self,
        model: MaskedLanguageModel,
        *,
        learning_rate: float,
        weight_decay: float,
        betas: tuple[float, float],
        eps: float,
        gradient_clip: float,
        schedule: str,
        warmup_fraction: float,
        final_fraction: float,
        seed: int,
        log_every: int,
        validation_names: tuple[str, ...],
        bytes_per_token: float,
        pair_loss: str | None = "nsp",
        pairing: str = "next_or_random",
        objective: str = "mlm",
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.optimizer_settings = {
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "betas": betas,
            "eps": eps,
        }
        self.gradient_clip, self.seed, self.log_every = gradient_clip, seed, log_every
        self.learning_rate = learning_rate
        self.schedule_settings = {
            "schedule": schedule,
            "warmup_fraction": warmup_fraction,
            "final_fraction": final_fraction,
        }
        self.validation_names, self.bytes_per_token = validation_names, bytes_per_token
        self.objective = objective
        self.pair_loss = None if model.pair_head is None else pair_loss
        self.pair_classes = loss_classes(pairing, self.pair_loss)
        self.counts = MaskCounts()
        self.tokens = self.step = 0  # spent and taken so far, in whatever process
        self.lines = 0  # of metrics, likewise; without the validation that ends the run
        self.ended = False  # with the last step of the budget
        self.window: dict[str, float] = {}
        self.latest: dict[str, float] = {}
        self.validation_metrics: dict[str, float] = {}
        self.validated_at: int | None = None  # optimizer steps at the last validation
        self._validation: list[dict[str, float]] = []
        self._trained: Batch | None = None  # the newest micro-batch

    def configure_model(self) -> None:
        """Spread the weights where the strategy says so."""
        strategy = self.trainer.strategy
        if isinstance(strategy, Sharded):
            strategy.spread(self.model)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return adamw(self.model, **self.optimizer_settings)  # type: ignore[arg-type]

    def transfer_batch_to_device(self, batch: Any, device: torch.device, index: int) -> Any:
        if isinstance(batch, StepItem):
            batch.micro_batches = [micro.to(device) for micro in batch.micro_batches]
            return batch
        return None if batch is None else batch.to(device)

    def losses(self, batch: Batch) -> dict[str, SumCount]:
        """Summed losses of one micro-batch by name."""
        output = self.model(batch)
        found = {self.objective: masked_lm_loss(output.mlm_logits, batch.labels)}
        if self.pair_loss is not None and batch.pair_labels is not None:
            targets = pair_targets(batch.pair_labels, self.pair_classes)
            found[self.pair_loss] = sentence_pair_loss(output.pair_logits, targets)
        return found

    def global_counts(self, item: StepItem) -> dict[str, int]:
        """Terms of each loss over the step's micro-batches and all ranks."""
        counts = {self.objective: sum(micro.num_predictions for micro in item.micro_batches)}
        if self.pair_loss is not None:
            labels = [m.pair_labels for m in item.micro_batches if m.pair_labels is not None]
            targets = [pair_targets(each, self.pair_classes) for each in labels]
            counts[self.pair_loss] = sum(int((each != NO_PAIR).sum()) for each in targets)
        if self.trainer.world_size > 1:
            total = self.summed([float(count) for count in counts.values()])
            counts = dict(zip(counts, map(int, total), strict=True))
        return counts

    def summed(self, values: list[float]) -> list[float]:
        """Each value added up over all ranks, in float64; as they are where there is one rank."""
        if self.trainer.world_size == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        return self.trainer.strategy.reduce(total, reduce_op="sum").tolist()

    def training_step(self, item: StepItem, index: int) -> None:
        optimizer: Any = self.optimizers()
        counts = self.global_counts(item)
        factor = learning_rate_factor(item.progress, **self.schedule_settings)  # type: ignore[arg-type]
        for group in optimizer.param_groups:  # nothing to predict moves no weight
            group["lr"] = self.learning_rate * factor if any(counts.values()) else 0.0
        found: list[tuple[str, float]] = []
        passes = self._passes(item)
        for number, (micro, is_real) in enumerate(passes):
            torch.manual_seed(
                rng.torch_seed(self.seed, "dropout", item.step, number, self.global_rank)
            )
            losses, self._trained = self.losses(micro), micro
            weight = self.trainer.world_size * is_real
            terms = [part.loss_sum / max(counts[name], 1) for name, part in losses.items()]
            with self._gradients_stay(number < len(passes) - 1):
                self.manual_backward(torch.stack(terms).sum() * weight)
            for name, part in losses.items() if is_real else ():
                found.append((f"{name}_loss", float(part.loss_sum.detach())))
                found.append((f"{name}_correct", float(part.correct)))
                found.append((f"{name}_count", float(part.count)))
        norm = whole(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.gradient_clip))
        if not math.isfinite(float(norm)):
            raise FloatingPointError(
                f"the gradient is not finite at step {item.step + 1} (norm {float(norm)}): type a "
                "lower optimizer.learning_rate, or trainer.precision=fp32 where that is not used"
            )
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for name, value in self._over_ranks(found):
            self._add(name, value)
        self.counts += summed_counts(item.counts, self.summed)
        self.tokens, self.step = item.tokens, item.step + 1
        self.ended = item.progress >= 1.0
        self._add("grad_norm", norm)
        self._add("steps", 1)
        if (item.step + 1) % self.log_every == 0 or self.ended:
            self._log_window(item.step + 1, self.learning_rate * factor)

    def _passes(self, item: StepItem) -> list[tuple[Batch, bool]]:
        """(micro-batch, whether it counts). Ranks may have different numbers of them, and gradients
        are summed over the ranks once; spread weights want equally many passes on all."""
        found = [(micro, True) for micro in item.micro_batches]
        strategy: Any = self.trainer.strategy
        if isinstance(strategy, Sharded):
            own = torch.tensor(len(found), device=self.device)
            most = int(strategy.reduce(own, reduce_op="max"))
            again = item.micro_batches[-1] if item.micro_batches else self._trained
            assert again is not None, "a rank without a row in the first step"
            found += [(again, False)] * (most - len(found))
        return found

    def _gradients_stay(self, stay: bool) -> AbstractContextManager[Any]:
        """Leaves the gradients of a backward on this rank."""
        strategy: Any = self.trainer.strategy
        several = stay and self.trainer.world_size > 1
        return strategy.block_backward_sync() if several else contextlib.nullcontext()

    def _over_ranks(self, found: list[tuple[str, float]]) -> list[tuple[str, float]]:
        """Sums by name over micro-batches and ranks; as they are where there is one rank."""
        if self.trainer.world_size == 1:
            return found
        sums: dict[str, float] = {}
        for name, value in found:
            sums[name] = sums.get(name, 0.0) + value
        return list(zip(sums, self.summed(list(sums.values())), strict=True))

    def _add(self, name: str, value: Tensor | float) -> None:
        self.window[name] = self.window.get(name, 0.0) + float(value)

    def _log_window(self, step: int, rate: float) -> None:
        window, self.window = self.window, {}
        metrics = {"tokens": float(self.tokens), "train/learning_rate": rate}
        metrics["train/grad_norm"] = window["grad_norm"] / window["steps"]
        total = 0.0
        for name in (self.objective, *LOSSES):
            if window.get(f"{name}_count"):
                count = window[f"{name}_count"]
                metrics[f"train/{name}_loss"] = window[f"{name}_loss"] / count
                metrics[f"train/{name}_accuracy"] = window[f"{name}_correct"] / count
                total += metrics[f"train/{name}_loss"]
        metrics["train/loss"] = total
        self.latest = metrics
        self.lines += 1
        self._write(metrics, step)

    def _write(self, metrics: dict[str, float], step: int) -> None:
        for logger in self.loggers if self.global_rank == 0 else []:
            logger.log_metrics(metrics, step)

    def on_validation_epoch_start(self) -> None:
        self._validation = [
            {"loss": 0.0, "count": 0.0, "correct": 0.0} for _ in self.validation_names
        ]

    def validation_step(self, batch: Batch | None, index: int, dataloader_idx: int = 0) -> None:
        if batch is None:  # other ranks have one: spread weights are gathered by all of them
            if isinstance(self.trainer.strategy, Sharded):
                self.model(self._trained)
            return
        part = masked_lm_loss(self.model(batch).mlm_logits, batch.labels)
        sums = self._validation[dataloader_idx]
        sums["loss"] += float(part.loss_sum)
        sums["count"] += part.count
        sums["correct"] += float(part.correct)

    def on_validation_epoch_end(self) -> None:
        """Means over all predicted tokens; bits per byte = bits a token / mean bytes a token."""
        metrics = {"tokens": float(self.tokens)}
        for name, own in zip(self.validation_names, self._validation, strict=True):
            sums = dict(zip(own, self.summed(list(own.values())), strict=True))
            if sums["count"]:
                loss = sums["loss"] / sums["count"]
                metrics[f"val/{name}/loss"] = loss
                metrics[f"val/{name}/accuracy"] = sums["correct"] / sums["count"]
                bits = loss / math.log(2) / self.bytes_per_token
                metrics[f"val/{name}/bits_per_byte"] = bits
        self.validation_metrics, self.validated_at = metrics, self.step
        self.lines += not self.ended
        self._write(metrics, self.step)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["ablate"] = self._state()

    def _state(self) -> dict[str, Any]:
        """The same on every rank."""
        return {
            "window": dict(self.window),
            "counts": dict(vars(self.counts)),
            "tokens": self.tokens,
            "latest": dict(self.latest),
            "lines": self.lines,
        }

    def knowledge(self) -> dict[str, Any]:
        """What a fit in another process has found, for `learn`; its weights aside."""
        validation = {"metrics": self.validation_metrics, "at": self.validated_at}
        return {"ablate": self._state(), "global_step": self.step, "validation": validation}

    def learn(self, known: dict[str, Any]) -> None:
        """Take over the `knowledge` of a fit in another process."""
        self.on_load_checkpoint(known)
        self.validation_metrics = known["validation"]["metrics"]
        self.validated_at = known["validation"]["at"]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        kept = checkpoint["ablate"]
        self.window, self.tokens = dict(kept["window"]), kept["tokens"]
        self.step = checkpoint["global_step"]
        self.latest = dict(kept["latest"])
        self.lines = kept.get("lines", self.lines)
        self.counts = MaskCounts(**kept["counts"])
