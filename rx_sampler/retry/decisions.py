"""What to do about a failed attempt: a table, read from the top, and a pure function that reads it.

The rules and figures are those of the sampler that this library re-imagines, with the changes that
`docs/topics/decisions.md` gives reasons for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Final, Literal

import backoff

from rx_sampler.config import DoomLoopPolicy, RetryPolicy
from rx_sampler.errors import SamplingError, SamplingErrorInfo, SamplingErrorKind

__all__ = ["TABLE", "Action", "Budget", "Decision", "RetryState", "Rule", "classify"]

Budget = Literal["transport", "rate_limit", "doom_loop"]
StripReason = Literal["server_rejected", "payload_heuristic"]

DOOM_LOOP_WAIT_S: Final = 0.25
"""The longest wait before a doom loop's retry; the shortest is none."""

_MAX_DOUBLINGS: Final = 64

_IMAGE_CODES: Final = frozenset({"invalid_image", "payload_too_large", "request_too_large"})
_IMAGE_PHRASES: Final = ("could not process image", ".image.source.", "image input is not supported")
"""Of Anthropic, twice, and of llama.cpp, whose status for it is 500."""


class Action(StrEnum):
    """The six things that can be done about a failed attempt."""

    RETRY = "retry"
    """Ask again after a short or growing wait."""
    RETRY_WITH_BACKOFF = "retry_with_backoff"
    """Ask again when the server says so (429)."""
    STRIP_IMAGES = "strip_images"
    """Ask again at once, without the images."""
    REBUILD_CLIENT = "rebuild_client"
    """Ask again after the wait, from now on over fresh connections."""
    HAND_TO_SESSION = "hand_to_session"
    """Fail; whoever holds credentials and history can do something about it."""
    FATAL = "fatal"
    """Fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryState:
    """What came before, in one request. The counters are of retries already made, 0 at its first failure."""

    retries: int = 0
    """Of the transport budget; those after a 429 too."""
    rate_limits_in_row: int = 0
    doom_loop_retries: int = 0
    has_images: bool = False
    """There are images left to take out."""
    rebuilt: bool = False
    """Attempts use fresh connections already."""
    stream_started: bool = False
    """The attempt that failed had been accepted: its error came inside the stream or after it."""
    output_observed: bool = False
    """Some attempt gave a token or a part of a tool call."""

    def after(self, decision: Decision) -> RetryState:
        """The state in which the next attempt begins, now that `decision` is to ask again."""
        counted = decision.budget != "doom_loop"
        limited = decision.budget == "rate_limit"
        return RetryState(
            retries=self.retries + counted,
            rate_limits_in_row=(self.rate_limits_in_row + 1 if limited else 0) if counted else self.rate_limits_in_row,
            doom_loop_retries=self.doom_loop_retries + (not counted),
            has_images=self.has_images and decision.strip is None,
            rebuilt=self.rebuilt or decision.action is Action.REBUILD_CLIENT,
            output_observed=self.output_observed,
        )

    def progress(self, budget: Budget, policy: RetryPolicy, doom_loop: DoomLoopPolicy | None) -> tuple[int, int]:
        """How many retries a budget has given by now, and how many it may."""
        if budget == "doom_loop":
            return self.doom_loop_retries, doom_loop.max_retries if doom_loop is not None else 0
        if budget == "rate_limit":
            return self.rate_limits_in_row, min(policy.max_retries, policy.rate_limit_threshold - 1)
        # The retry without images is granted though the others are spent.
        return self.retries, max(self.retries, policy.max_retries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do; the wait is drawn evenly from `min_wait_s` to `max_wait_s`."""

    action: Action
    rule: str
    min_wait_s: float = 0.0
    max_wait_s: float = 0.0
    budget: Budget | None = None
    strip: StripReason | None = None
    """Take the images out first, if there are any."""

    @property
    def retries(self) -> bool:
        return self.action not in (Action.FATAL, Action.HAND_TO_SESSION)


@dataclass(frozen=True, slots=True)
class _Case:
    error: SamplingErrorInfo
    state: RetryState
    policy: RetryPolicy
    doom_loop: DoomLoopPolicy | None

    @property
    def is_doom_loop(self) -> bool:
        return self.error.kind is SamplingErrorKind.DOOM_LOOP_DETECTED

    @property
    def is_rate_limit(self) -> bool:
        return self.error.kind is SamplingErrorKind.RATE_LIMITED

    @property
    def output_forbids(self) -> bool:
        return self.policy.retry_only_before_output and self.state.output_observed

    @property
    def waits_too_long(self) -> bool:
        wait_s = self.error.retry_after_s
        return self.is_rate_limit and wait_s is not None and wait_s > self.policy.retry_after_cap_s

    @property
    def is_image_error(self) -> bool:
        """Whether the server minds an image, or the size that images make.

        Free text counts for refusals by status only: inside a stream a model's or a gateway's words are not evidence.
        """
        error = self.error
        code = (error.code or "").lower()
        if error.status == 413 or (code in _IMAGE_CODES and error.status in (None, 400, 413, 500)):
            return True
        message = error.message.lower()
        return (
            not self.state.stream_started
            and error.status in (400, 500)
            and any(phrase in message for phrase in _IMAGE_PHRASES)
        )

    @property
    def strip_reason(self) -> StripReason:
        # Only this one names the image as such; all others may mean the size of the whole.
        named = self.error.status == 400 and self.error.code == "invalid_image" and not self.state.stream_started
        return "server_rejected" if named else "payload_heuristic"

    @property
    def upload_broke(self) -> bool:
        return self.error.code == "upload_broken"


@dataclass(frozen=True, slots=True)
class Rule:
    """A row: whether it applies, and what it makes of the case."""

    name: str
    applies: Callable[[_Case], bool]
    action: Action
    budget: Budget | None = None
    wait: Callable[[_Case], tuple[float, float]] = lambda _case: (0.0, 0.0)


_NO_WAIT: Final = (0.0, 0.0)


@lru_cache(maxsize=64)
def _schedule(initial_s: float, cap_s: float) -> tuple[float, ...]:
    """The waits until they no longer grow. The generator has to be primed: its first value is none."""
    if initial_s >= cap_s:
        return (cap_s,)
    generator = backoff.expo(base=2, factor=initial_s, max_value=cap_s)  # pyright: ignore[reportArgumentType]  # its annotations say int, its arithmetic takes any number
    next(generator)
    waits: list[float] = []
    for wait_s in islice(generator, _MAX_DOUBLINGS):
        waits.append(float(wait_s))
        if wait_s >= cap_s:
            break
    return tuple(waits)


def _growing(case: _Case) -> tuple[float, float]:
    waits = _schedule(case.policy.initial_backoff_s, case.policy.max_backoff_s)
    wait_s = waits[min(case.state.retries, len(waits) - 1)]
    return wait_s * (1 - case.policy.jitter), wait_s * (1 + case.policy.jitter)


def _as_long_as_asked(case: _Case) -> tuple[float, float]:
    wait_s = case.error.retry_after_s
    return _growing(case) if wait_s is None else (wait_s, wait_s)


def _no_sooner_than_asked(case: _Case) -> tuple[float, float]:
    # Jitter spreads the clients of a server that told all of them the same; never to before the time it gave.
    if case.error.retry_after_s is None:
        return _growing(case)
    wait_s = min(case.error.retry_after_s, case.policy.max_backoff_s)
    return wait_s, wait_s * (1 + case.policy.jitter)


def _soon(_case: _Case) -> tuple[float, float]:
    return 0.0, DOOM_LOOP_WAIT_S


def _spent_on_doom_loops(case: _Case) -> bool:
    return case.doom_loop is None or case.state.doom_loop_retries >= case.doom_loop.max_retries


TABLE: Final[tuple[Rule, ...]] = (
    Rule("credential refused", lambda c: c.error.kind is SamplingErrorKind.AUTH, Action.HAND_TO_SESSION),
    Rule(
        "encrypted reasoning refused",
        lambda c: c.error.status == 400 and "encrypted_content" in f"{c.error.code} {c.error.message}",
        Action.HAND_TO_SESSION,
    ),
    Rule("retries are off", lambda c: c.policy.max_retries == 0, Action.FATAL),
    Rule("output was seen", lambda c: c.output_forbids, Action.FATAL),
    Rule("doom loop budget spent", lambda c: c.is_doom_loop and _spent_on_doom_loops(c), Action.FATAL),
    Rule("doom loop", lambda c: c.is_doom_loop, Action.RETRY, "doom_loop", _soon),
    Rule("image refused", lambda c: c.is_image_error and c.state.has_images, Action.STRIP_IMAGES, "transport"),
    Rule("image refused, none left", lambda c: c.is_image_error, Action.FATAL),
    Rule("not retryable", lambda c: not c.error.is_retryable, Action.FATAL),
    Rule("retries spent", lambda c: c.state.retries >= c.policy.max_retries, Action.FATAL),
    Rule(
        "rate limited again",
        lambda c: c.is_rate_limit and c.state.rate_limits_in_row + 1 >= c.policy.rate_limit_threshold,
        Action.FATAL,
    ),
    Rule("wait too long", lambda c: c.waits_too_long, Action.FATAL),
    Rule("rate limited", lambda c: c.is_rate_limit, Action.RETRY_WITH_BACKOFF, "rate_limit", _as_long_as_asked),
    Rule("first retry", lambda c: not c.state.rebuilt, Action.REBUILD_CLIENT, "transport", _no_sooner_than_asked),
    Rule("retryable", lambda _c: True, Action.RETRY, "transport", _no_sooner_than_asked),
)
"""The first row that applies decides. Images come before the verdict of the server that nothing will help: what is sent
without them is another request."""


def classify(
    error: SamplingError | SamplingErrorInfo,
    state: RetryState,
    policy: RetryPolicy,
    doom_loop: DoomLoopPolicy | None = None,
) -> Decision:
    """What to do about `error`, given what came before in the request. Pure; the same for the same arguments.

    `doom_loop` holds the budget of doom loop retries; without one such an error is final.
    """
    info = error.info if isinstance(error, SamplingError) else error
    case = _Case(info, state, policy, doom_loop)
    rule = next(rule for rule in TABLE if rule.applies(case))
    low, high = rule.wait(case)
    retried = rule.action in (Action.RETRY, Action.RETRY_WITH_BACKOFF, Action.REBUILD_CLIENT)
    strip: StripReason | None = None
    if rule.action is Action.STRIP_IMAGES:
        strip = case.strip_reason
    elif retried and case.upload_broke and state.has_images:
        strip = "payload_heuristic"
    return Decision(
        action=rule.action, rule=rule.name, min_wait_s=low, max_wait_s=high, budget=rule.budget, strip=strip
    )
