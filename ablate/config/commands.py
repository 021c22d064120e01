"""The work of a command -> its exit code: the same ends for inspect, predict and interop.

Imports nothing heavy, so that `--help` answers at once; what failed is said by `failures.report`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from ablate.pretraining.interrupted import Interrupted


def exit_code(work: Callable[[], object]) -> int:
    """0, 130 where it is stopped, 141 where the reader of its output is gone, else `report`'s."""
    try:
        work()
        sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (Exception, Interrupted) as error:
        from ablate.config.failures import report

        return report(error)
