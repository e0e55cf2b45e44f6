"""The attempts of one request, joined: what follows the decision table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypedDict

from reactivex import Observable, abc
from reactivex.disposable import Disposable, SerialDisposable, SingleAssignmentDisposable

from rx_sampler.config import DoomLoopPolicy, RetryPolicy
from rx_sampler.course import Course
from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.events import (
    BackendToolCallStarted,
    ChannelToken,
    Completed,
    Failed,
    ImagesStripped,
    Retrying,
    SamplingEvent,
    StreamStarted,
    ToolCallDelta,
)
from rx_sampler.scheduling import clock_of, request_scheduler
from rx_sampler.wire.idle import deadline_passed

from .decisions import Action, Decision, RetryState, classify
from .limits import SharedLimits

__all__ = ["Attempts"]

_OUTPUT = (ChannelToken, ToolCallDelta, BackendToolCallStarted)


class _Stamp(TypedDict):
    request_id: str
    attempt: int
    ts: float


class Attempts:
    """The attempts of one request, one after the other, told to one observer: see `joined_attempts`."""

    def __init__(
        self,
        source: Observable[SamplingEvent],
        course: Course,
        policy: RetryPolicy,
        observer: abc.ObserverBase[SamplingEvent],
        scheduler: abc.SchedulerBase | None,
        doom_loop: DoomLoopPolicy | None,
        limits: SharedLimits,
        random: Callable[[], float],
        images: Sequence[str],
    ) -> None:
        self._source = source
        self._course = course
        self._policy = policy
        self._observer = observer
        self._push = observer.on_next
        self._scheduler = scheduler
        self._clock = clock_of(scheduler)
        self._waits = policy.max_retries > 0
        """Who switches retries off has ways of his own with a busy server; no start is delayed for him."""
        self._doom_loop = doom_loop
        self._limits = limits
        self._random = random
        self._images = images
        self._state = RetryState(has_images=bool(images))
        self._number = course.number
        self._tokens_taken = 0
        self._last_ts = 0.0
        self._current = SerialDisposable()
        self._raised: BaseException | None = None
        self._due = False
        self._opening = False
        self._over = False

    def start(self) -> abc.DisposableBase:
        self._arm()
        self._open()
        return Disposable(self._dispose)

    def _dispose(self) -> None:
        self._over = True
        self._course.on_abort = None
        self._current.dispose()

    # -- attempts

    def _open(self) -> None:
        """Begin the next attempt; a source that fails meanwhile is opened again from here, not from within."""
        self._due = True
        if self._opening:
            return
        self._opening = True
        try:
            while self._due and not self._over:
                self._due = False
                cooldown_s = self._cooldown_s(self._clock())
                if cooldown_s > 0:
                    self._wait(cooldown_s)
                else:
                    self._subscribe()
        finally:
            self._opening = False

    def _subscribe(self) -> None:
        course = self._course
        course.on_abort = self._fail  # until the attempt itself knows better
        course.begin_attempt(self._clock())
        self._number = course.number
        attempt = SingleAssignmentDisposable()
        self._current.disposable = attempt
        attempt.disposable = self._source.subscribe(
            self._on_next, self._on_error, self._on_completed, scheduler=self._scheduler
        )

    def _on_next(self, event: SamplingEvent) -> None:
        if event.attempt != self._number:
            event = self._numbered(event)
        if event.__class__ is not ChannelToken or not self._state.output_observed:
            self._note(event)
        try:
            self._push(event)
        except BaseException as error:
            # Rx hands an error that was raised inside subscribe to on_error: it must not look like the attempt's.
            self._raised = error
            raise

    def _numbered(self, event: SamplingEvent) -> SamplingEvent:
        """An event of a source that knows nothing of attempts, as a recording does."""
        event = replace(event, attempt=self._number)
        if isinstance(event, Completed | Failed):
            event = replace(event, metrics=replace(event.metrics, attempts=self._number))
        return event

    def _note(self, event: SamplingEvent) -> None:
        self._last_ts = event.ts
        if isinstance(event, StreamStarted):
            self._state = replace(self._state, stream_started=True)
        elif isinstance(event, _OUTPUT):
            self._state = replace(self._state, output_observed=True)

    def _on_completed(self) -> None:
        if not self._over:
            self._over = True
            self._limits.tokens.succeed(self._tokens_taken)
            self._observer.on_completed()

    # -- failures

    def _on_error(self, error: Exception) -> None:
        if self._over:
            return
        if not isinstance(error, SamplingError) or error is self._raised:
            self._over = True
            self._observer.on_error(error)
            return
        now = self._clock()
        cooldown_s = self._cooldown_s(now)
        self._heed(error, now)
        decision = classify(error, self._state, self._policy, self._doom_loop)
        if not decision.retries:
            self._fail(error)
            return
        wait_s = decision.min_wait_s + (decision.max_wait_s - decision.min_wait_s) * self._random()
        wait_s = max(wait_s, cooldown_s)
        if self._is_too_late(now + wait_s):
            self._fail(error)
        elif decision.budget != "doom_loop" and decision.action is not Action.STRIP_IMAGES and not self._pay():
            note = "not retried, the sampler's retry budget is spent"
            self._fail(error.amend(message=f"{error.info.message} ({note})"))
        else:
            self._retry(error, decision, wait_s, now)

    def _pay(self) -> bool:
        if not self._limits.tokens.take():
            return False
        self._tokens_taken += 1
        return True

    def _cooldown_s(self, now: float) -> float:
        return self._limits.cooldowns.remaining_s(self._course.lane, now) if self._waits else 0.0

    def _heed(self, error: SamplingError, now: float) -> None:
        """Let the sampler's other requests know that the server wants to be left alone."""
        wait_s = error.info.retry_after_s
        limited = error.info.kind is SamplingErrorKind.RATE_LIMITED and error.info.is_retryable
        if self._waits and limited and wait_s and wait_s <= self._policy.retry_after_cap_s:
            self._limits.cooldowns.note(self._course.lane, now + wait_s)

    def _is_too_late(self, begins_at: float) -> bool:
        limits = [limit for limit in (self._policy.max_elapsed_s, self._course.deadline_s) if limit is not None]
        return bool(limits) and begins_at - self._course.submitted_at >= min(limits)

    def _retry(self, error: SamplingError, decision: Decision, wait_s: float, now: float) -> None:
        course, info = self._course, error.info
        where = course.stamped(error, now).where
        assert where is not None  # noqa: S101  # stamped() sees to it
        self._last_ts = ts = max(now, where.ts, self._last_ts)
        stamp: _Stamp = {"request_id": where.request_id, "attempt": course.number, "ts": ts}
        if decision.strip is not None:
            course.strip_images = True
            self._push(ImagesStripped(**stamp, stripped_urls=tuple(self._images), reason=decision.strip))
            if self._over:
                return
        budget = decision.budget or "transport"
        self._state = self._state.after(decision)
        retry, max_retries = self._state.progress(budget, self._policy, self._doom_loop)
        course.fresh_connections = self._state.rebuilt
        course.number += 1
        self._arm()
        course.on_abort = self._fail  # a subscriber may cancel when it hears of the retry
        self._push(
            Retrying(
                **stamp,
                next_attempt=course.number,
                retry=retry,
                max_retries=max_retries,
                budget=budget,
                error_kind=info.kind,
                reason=info.message,
                backoff_s=wait_s,
                doom_loop_triggers=info.doom_loop_triggers,
                doom_loop_aborted_at_chunk=info.doom_loop_aborted_at_chunk,
            )
        )
        self._wait(wait_s)

    def _arm(self) -> None:
        """Whether a doom loop may fail the next attempt: the one that spends the budget is taken as it comes."""
        policy, spent = self._doom_loop, self._state.doom_loop_retries
        allowed = policy is not None and self._policy.max_retries > 0 and spent < policy.max_retries
        self._course.armed = allowed

    def _fail(self, error: SamplingError) -> None:
        if self._over:
            return
        self._over = True
        self._current.dispose()
        self._observer.on_error(self._course.stamped(error, max(self._clock(), self._last_ts)))

    # -- waits

    def _wait(self, wait_s: float) -> None:
        """Open the next attempt after `wait_s`, or fail at the deadline if that comes first."""
        if self._over:
            return
        self._course.on_abort = self._fail
        if wait_s <= 0:
            self._open()
            return
        deadline_s = self._course.deadline_s
        if deadline_s is not None:
            left_s = self._course.submitted_at + deadline_s - self._clock()
            if left_s < wait_s:
                self._after(left_s, lambda: self._fail(deadline_passed(deadline_s)))
                return
        self._after(wait_s, self._open)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        try:
            scheduler = self._scheduler or request_scheduler(None)
        except RuntimeError as error:  # a wait needs a clock that goes on
            self._over = True
            self._observer.on_error(error)
            return
        timer = SingleAssignmentDisposable()
        self._current.disposable = timer

        def fire(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
            act()

        timer.disposable = scheduler.schedule_relative(max(seconds, 0.0), fire)
