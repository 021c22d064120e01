"""The door to optuna, an optional extra: one message where it is not installed."""

from __future__ import annotations

from typing import Any


def optuna(what: str) -> Any:
    """The package, quiet.

    Raises:
        ValueError: it is not installed; `what` is what needs it.
    """
    try:
        import optuna as found
    except ImportError:
        raise ValueError(
            f"{what} needs optuna; type pip install 'ablate[sweep]', or use wandb sweep and wandb "
            "agent"
        ) from None
    found.logging.set_verbosity(found.logging.ERROR)
    return found
