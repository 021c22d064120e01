"""`python -m ablate.inspect masking=...`: see masked rows, and count what the policy does.

Composes and checks the same overrides as `python -m ablate` and stops before anything is trained.
Bad input ends in one message and exit code 2.
"""

from __future__ import annotations

import copy
import io
import json
import sys
from collections.abc import Sequence
from typing import Any

from ablate.config.commands import exit_code
from ablate.inspect.options import Options, parse


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return exit_code(lambda: show(parse(sys.argv[1:] if argv is None else argv)))


def prepare(options: Options) -> Any:
    """The arm of the overrides, with a budget that asks for no step.

    Raises:
        ValueError: settings that cannot be, or a progress where no schedule reads it.
    """
    from ablate.config.compose import compose_settings

    settings = copy.deepcopy(compose_settings(options.all_overrides()))
    if options.progress is not None and settings.masking.mask_rate_schedule == "constant":
        raise ValueError(
            f"--progress {options.progress:g} has no effect on "
            "masking.mask_rate_schedule=constant; leave it out, or type for example "
            "masking=ankner_linear"
        )
    if settings.objective.name != "mlm":
        raise ValueError(
            f"objective={settings.objective.name} masks nothing that could be shown; leave it and "
            "encoder.causal out: the rows are the same"
        )
    settings.budget.amount = 0  # the plan of an epoch does not depend on it
    from ablate.run import arm

    return arm.prepare(settings, options.all_overrides())


def show(options: Options) -> None:
    """Print what was asked for, and write the page."""
    from ablate.inspect.findings import find

    findings = find(prepare(options), options)
    if options.html is not None:
        from ablate.inspect.page import page

        try:
            options.html.write_text(page(findings), encoding="utf-8")
        except OSError as error:
            raise ValueError(
                f"--html {options.html} cannot be written ({error.strerror}); type --html FILE"
            ) from None
        print(f"written: {options.html}", file=sys.stderr)
    if options.json:
        print(json.dumps(findings.to_dict(), indent=1))
    else:
        from ablate.inspect import terminal

        if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that lacks a sign shows another
            sys.stdout.reconfigure(errors="replace")
        terminal.show(findings, terminal.console(sys.stdout, options.color))


if __name__ == "__main__":
    sys.exit(main())
