"""What the requests of one sampler share: tokens for retries, and the waits that a server asked for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from rx_sampler.config import RetryBudget

__all__ = ["Cooldowns", "RetryTokens", "SharedLimits"]

_SLACK_S: Final = 1e-3
"""A timer that fires this much early is on time; clocks round."""


class RetryTokens:
    """A bucket: each retry takes a token, success brings tokens back. Without a budget it never runs dry."""

    def __init__(self, budget: RetryBudget | None) -> None:
        self.budget = budget
        self._left = budget.capacity if budget is not None else 0.0

    def take(self) -> bool:
        """One token, if there is a whole one."""
        if self.budget is None:
            return True
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def succeed(self, taken: int) -> None:
        """A request that took this many tokens has succeeded."""
        if self.budget is not None:
            self._left = min(self.budget.capacity, self._left + max(taken, self.budget.refill_per_success))


class Cooldowns:
    """When the servers that said 429 with a wait may be asked again, by lane: a host and a credential on it."""

    def __init__(self) -> None:
        self._until: dict[Hashable, float] = {}

    def note(self, lane: Hashable, until: float) -> None:
        """Nobody starts on `lane` before `until` (seconds on the requests' clock); an earlier time changes nothing."""
        self._until[lane] = max(until, self._until.get(lane, until))

    def remaining_s(self, lane: Hashable, now: float) -> float:
        """How long to wait still; 0 if not at all."""
        if not self._until:
            return 0.0
        remaining_s = self._until.get(lane, now) - now
        if remaining_s <= _SLACK_S:
            self._until.pop(lane, None)
            return 0.0
        return remaining_s


class SharedLimits:
    """Both of them."""

    def __init__(self, budget: RetryBudget | None = None) -> None:
        self.tokens = RetryTokens(budget)
        self.cooldowns = Cooldowns()
