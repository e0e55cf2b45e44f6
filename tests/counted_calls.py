"""Work, counted in calls: a measure that does not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

__all__ = ["calls_during"]


def calls_during(work: Callable[[], object]) -> int:
    """How many functions, of Python or of C, are called while `work` runs."""
    count = 0

    def profiler(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
