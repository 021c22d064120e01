"""Single values -> accepted or refused in one sentence: given, allowed, what to type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def one_of(name: str, given: str, allowed: Iterable[str]) -> None:
    allowed = list(allowed)
    if given not in allowed:
        raise ValueError(
            f"{name}={given} is not possible; allowed: {', '.join(allowed)}. "
            f"For example {name}={allowed[0]}"
        )


def in_range(name: str, given: float, low: float, high: float, example: float) -> None:
    if not low <= given <= high:
        limits = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
        raise ValueError(f"{name}={given} must be {limits}. For example {name}={example}")


def refuse_ignored(
    group: str,
    kind: str,
    settings: object,
    defaults: object,
    unused: Mapping[str, tuple[str, ...]],
    kinds: Iterable[str],
    switch: str | None = None,
) -> None:
    """A value that this kind of corpus, format, masking ... would not read is a mistake.

    Args:
        kind: the group's kind in these settings, one of `kinds`.
        unused: kind -> names of `settings` that it does not read.
        switch: what selects the kind on the command line; the group itself if None.
    """
    for name in unused.get(kind, ()):
        given = getattr(settings, name)
        if given != getattr(defaults, name):
            switch = switch or group
            readers = [k for k in kinds if name not in unused.get(k, ())]
            raise ValueError(
                f"{group}.{name}={given} has no effect on {switch}={kind}; leave it out, or type "
                f"{switch}={' or '.join(readers)}"
            )
