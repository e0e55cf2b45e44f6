"""How patient a turn is: `TurnPolicy`, and a pure machine that counts along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from rx_sampler.errors import SentCredential

__all__ = ["TurnPolicy", "TurnSchedule"]

SUSPEND_DRIFT_S: Final = 30.0
"""So much more on the wall clock than on the monotonic one, which rests with the machine: it was asleep meanwhile."""

MAX_SUSPENDS: Final = 8

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TurnPolicy(BaseModel):
    """How often and after how long a turn is submitted again. All times in seconds.

    * `auth_waits_s`: before each resubmission after a refused credential; after the last, the turn has failed.
    * `max_uncharged_auth`, `uncharged_auth_wait_s`: the same where no credential was sent at all, as before somebody
      logged in: so often, after this wait each. These do not use up `auth_waits_s`.
    * `transient_waits_s`, `transient_jitter`: before each resubmission after a transient failure, drawn evenly from
      plus or minus the jitter's share; a server that asks for more gets it. A compacted request starts anew.
    * `max_transient`: so many of them in the turn at most, and none later than `transient_window_s` after the first
      transient failure.
    * `max_compactions`: how often the conversation may be shortened.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    auth_waits_s: tuple[_Seconds, ...] = (1.0, 2.0, 4.0)
    max_uncharged_auth: int = Field(default=50, ge=0)
    uncharged_auth_wait_s: _Seconds = 1.0
    transient_waits_s: tuple[_Seconds, ...] = (2.0, 10.0, 30.0)
    transient_jitter: float = Field(default=0.2, ge=0, le=1)
    max_transient: int = Field(default=10, ge=0)
    transient_window_s: _Seconds = 600.0
    max_compactions: int = Field(default=2, ge=0)


class TurnSchedule:
    """The counters of one turn: asked after each failure, it says how long to wait (seconds), or None for no more.

    `random` gives numbers from 0 up to 1. Knows no clock: times are arguments.
    """

    def __init__(self, policy: TurnPolicy, random: Callable[[], float]) -> None:
        self._policy = policy
        self._random = random
        self._charged = 0
        self._uncharged = 0
        self._suspends = 0
        self._drift_seen_s = 0.0
        self._transient = 0
        self._transient_of_request = 0
        self._first_transient_s: float | None = None
        self._compactions = 0

    def auth_wait_s(self, credential: SentCredential, drift_s: float) -> float | None:
        """The wait before the credential is renewed.

        `drift_s` is how much further the wall clock went than the monotonic one since the turn began. A machine that
        was suspended comes back with old credentials, which is no sign that they are refused for good: the count of
        refusals begins anew, at most `MAX_SUSPENDS` times.
        """
        policy = self._policy
        if credential == "missing":
            self._uncharged += 1
            return None if self._uncharged > policy.max_uncharged_auth else policy.uncharged_auth_wait_s
        if drift_s - self._drift_seen_s >= SUSPEND_DRIFT_S and self._suspends < MAX_SUSPENDS:
            self._suspends += 1
            self._drift_seen_s = drift_s
            self._charged = 0
        self._charged += 1
        return None if self._charged > len(policy.auth_waits_s) else policy.auth_waits_s[self._charged - 1]

    def transient_wait_s(self, retry_after_s: float | None, now_s: float) -> float | None:
        """The wait before the same request is submitted again; `now_s` is the time of the failure on any clock."""
        policy = self._policy
        if self._first_transient_s is None:
            self._first_transient_s = now_s
        nth = self._transient_of_request
        if nth >= len(policy.transient_waits_s) or self._transient >= policy.max_transient:
            return None
        wait_s = policy.transient_waits_s[nth] * (1 + policy.transient_jitter * (2 * self._random() - 1))
        wait_s = max(wait_s, retry_after_s or 0.0)
        if now_s + wait_s - self._first_transient_s > policy.transient_window_s:
            return None
        self._transient_of_request += 1
        self._transient += 1
        return wait_s

    def may_compact(self) -> bool:
        """Whether the conversation may be shortened once more; counted, and what follows is another request."""
        if self._compactions >= self._policy.max_compactions:
            return False
        self._compactions += 1
        self._transient_of_request = 0
        return True
