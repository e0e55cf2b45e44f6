"""Quantiles of any number of values in bounded memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Quantiles", "Sketch"]

RELATIVE_ERROR: Final = 0.01
"""A quantile is within this share of the true one (of nearest rank), for values from `SMALLEST` to `LARGEST`."""

SMALLEST: Final = 1e-3
LARGEST: Final = 1e9
"""In milliseconds: a microsecond, below which a value counts as nothing, and eleven days."""

_GAMMA: Final = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_PER_LOG: Final = 1 / math.log(_GAMMA)
_LOWEST: Final = math.ceil(math.log(SMALLEST) * _PER_LOG)
_ZERO: Final = _LOWEST - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """A distribution in milliseconds; quantiles are of nearest rank, right to 1 %, the rest is exact."""

    count: int
    mean_ms: float
    min_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


class Sketch:
    """Counts values in buckets whose bounds grow by a constant factor, after DDSketch (Masson, Rim, Lee, VLDB 2019).

    A bucket's middle is within `RELATIVE_ERROR` of all its values. There are at most 1,384 buckets.
    """

    __slots__ = ("_buckets", "_count", "_max", "_min", "_sum")

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._count = 0
        self._sum = 0.0
        self._min = math.inf
        self._max = -math.inf

    def add(self, *values: float) -> None:
        """Count values, which must not be negative. Many at a time cost less each."""
        log, ceil, lowest, highest = math.log, math.ceil, min(values), max(values)
        within = values if highest <= LARGEST else [min(value, LARGEST) for value in values]
        self._buckets.update([ceil(log(value) * _PER_LOG) if value >= SMALLEST else _ZERO for value in within])
        self._count += len(values)
        self._sum += sum(values)
        self._min = min(self._min, lowest)
        self._max = max(self._max, highest)

    def merge(self, other: Sketch) -> None:
        """Count all that the other counted."""
        self._buckets.update(other._buckets)
        self._count += other._count
        self._sum += other._sum
        self._min = min(self._min, other._min)
        self._max = max(self._max, other._max)

    def quantiles(self) -> Quantiles | None:
        """What was counted; None if nothing was."""
        if not self._count:
            return None
        # The ranks of metrics.py: the median is the upper one of two.
        ranks = (self._count // 2, math.ceil(0.90 * self._count) - 1, math.ceil(0.99 * self._count) - 1)
        p50, p90, p99 = self._at(ranks)
        return Quantiles(
            count=self._count,
            mean_ms=self._sum / self._count,
            min_ms=self._min,
            p50_ms=p50,
            p90_ms=p90,
            p99_ms=p99,
            max_ms=self._max,
        )

    def _at(self, ranks: Sequence[int]) -> list[float]:
        """The values of these ranks, counted from 0, ascending."""
        found: list[float] = []
        passed = 0
        for index in sorted(self._buckets):
            passed += self._buckets[index]
            while len(found) < len(ranks) and ranks[len(found)] < passed:
                middle = 0.0 if index == _ZERO else 2 * _GAMMA**index / (_GAMMA + 1)
                found.append(min(max(middle, self._min), self._max))
        return found
