"""A signal as an exception; imports nothing, since it is raised from signal handlers."""

from __future__ import annotations

import signal


class Interrupted(Exception):  # noqa: N818  (no error: a state of the run)
    """A signal stopped the run; what was finished is on disk. `exit_code` is 128 + its number."""

    def __init__(self, signum: int, where: str) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} {where}")
        self.exit_code = 128 + signum
