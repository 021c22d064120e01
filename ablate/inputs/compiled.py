"""A plain loop -> the same loop compiled by numba: the package's only door to it.

Loops are written as plain Python over arrays, so that a test can run them both ways. numba is
imported on first use because that costs a second; what it compiles is cached beside the source.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


@functools.cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """`loop` compiled on its first call."""
    import numba

    return numba.njit(cache=True)(loop)
