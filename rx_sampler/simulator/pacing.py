"""When the next piece of an answer is due."""

from __future__ import annotations

from random import Random

from .script import Timing

__all__ = ["Pacer"]


class Pacer:
    """Seconds to wait before each delta of one answer, which has `token_count` tokens in `delta_count` deltas."""

    def __init__(self, timing: Timing, random: Random, *, token_count: int, delta_count: int) -> None:
        self._first_s = timing.time_to_first_token_s
        rate = timing.tokens_per_second
        self._total_s = token_count / rate if rate is not None else 0.0
        self._each_s = self._total_s / max(delta_count, 1)
        self._jitter = timing.jitter
        self._random = random
        self._has_begun = False

    def before_delta_s(self) -> float:
        """The wait before the next delta."""
        wait_s = self._each_s if self._has_begun else self._first_s
        self._has_begun = True
        return self._jittered(wait_s)

    def whole_s(self) -> float:
        """The wait before an answer that comes in one piece."""
        return self._jittered(self._first_s + self._total_s)

    def _jittered(self, wait_s: float) -> float:
        return wait_s * self._random.uniform(1 - self._jitter, 1 + self._jitter) if wait_s else 0.0
