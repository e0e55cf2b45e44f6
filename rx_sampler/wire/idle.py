"""The limits in time on one attempt, all on the subscription's scheduler.

A `Pulse` is what the stages of an attempt know in common about time: when the current bytes arrived, when content
last did. `watched` compares it with the limits. It arms one timer and arms it again when it fires early, so that a
chunk costs two assignments and no timer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, SerialDisposable, SingleAssignmentDisposable

from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.scheduling import clock_of

from .transport import Connected, ResponseHead

__all__ = ["Limits", "Pulse", "deadline_passed", "watched"]

T = TypeVar("T")

ERROR_BODY_TIMEOUT_S: Final = 5.0
"""How long the body of a refusal may take: its status is known already, the rest is explanation."""

_NOTABLE_S: Final = 0.01
"""A consumer that takes less than this for what one read brings is not worth the arithmetic."""

_TIMER_SLACK_S: Final = 1e-3
"""A timer that fires this much early counts as on time; loops round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds; None switches a limit off."""

    connect_s: float | None = None
    header_s: float | None = None
    idle_s: float | None = None
    content_idle_s: float | None = None
    grace_s: float | None = None
    deadline_s: float | None = None


class Pulse:
    """Times of one attempt, in Unix seconds on the attempt's clock."""

    __slots__ = (
        "abort",
        "begun_at",
        "content_at",
        "heard_at",
        "now",
        "on_resumed",
        "on_settled",
        "paused_at",
        "queued_s",
        "settled",
        "submitted_at",
    )

    def __init__(self, now: float, *, submitted_at: float | None = None, queued_s: float | None = None) -> None:
        self.submitted_at = now if submitted_at is None else submitted_at
        """When the request was made; earlier attempts lie between."""
        self.queued_s = queued_s
        self.begun_at = now
        self.abort: Callable[[SamplingError], None] | None = None
        """Ends the attempt in an error, which takes along what came until then. Set by `watched`."""
        self.now = now
        """Arrival of the bytes being handled: the stamp of the events they bring. Never goes back."""
        self.heard_at = now
        """From when silence counts: the arrival of the last bytes, and time that the consumer took does not count."""
        self.content_at = now
        """The same for content; pings, comments and empty deltas are none."""
        self.paused_at: float | None = None
        self.on_resumed: Callable[[], None] | None = None
        self.settled = False
        """The answer is complete; only the announcement of its end is missing."""
        self.on_settled: Callable[[], None] | None = None

    def settle(self, settled: bool) -> None:
        """Begin the grace period after a complete answer, or call it off because more came."""
        if settled == self.settled:
            return
        self.settled = settled
        if settled:
            self.content_at = self.now
            if self.on_settled is not None:
                self.on_settled()

    def advance(self, now: float) -> None:
        self.now = max(self.now, now)

    def excuse(self, seconds: float) -> None:
        """Do not count so much time as silence: the consumer took it, and nobody could listen."""
        self.heard_at += seconds
        self.content_at += seconds

    def pause(self, now: float) -> None:
        """The consumer wants no more for now, and nobody reads: no limit passes until `resume`."""
        if self.paused_at is None:
            self.paused_at = now

    def resume(self, now: float) -> None:
        """Read on. Silence counts on from where it was; a deadline that passed meanwhile passes now."""
        if self.paused_at is not None:
            self.excuse(max(now - self.paused_at, 0.0))
            self.paused_at = None
            if self.on_resumed is not None:
                self.on_resumed()


def watched(pulse: Pulse, limits: Limits) -> Callable[[Observable[T]], Observable[T]]:
    """The same items, failed or ended when a limit passes.

    In: `Connected`, `ResponseHead` and bytes, as `HttpTransport.post` emits them. Out: the same, with `pulse.now` set
    to their arrival. A limit that passes disposes the source (which closes the socket) and gives
    `on_error(SamplingError)`; two of them end the stream instead (`on_completed`): the grace period after a complete
    answer, and the time for the body of a refusal. Timers run on the subscription's scheduler; dispose removes them.
    Time that the consumer takes, inside `on_next` or between `pulse.pause` and `pulse.resume`, is no silence.
    """

    def operator(source: Observable[T]) -> Observable[T]:
        def subscribe(observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            if scheduler is None:
                raise RuntimeError("watched() needs the scheduler of the request")
            return _Watch(pulse, limits, observer, scheduler).start(source)

        return Observable(subscribe)

    return operator


class _Watch(Generic[T]):
    def __init__(
        self, pulse: Pulse, limits: Limits, observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase
    ) -> None:
        self._pulse = pulse
        self._limits = limits
        self._observer = observer
        self._scheduler = scheduler
        self._clock = clock_of(scheduler)
        self._timer = SerialDisposable()
        self._upstream = SingleAssignmentDisposable()
        self._connected_at: float | None = None
        self._head_at: float | None = None
        self._refused = False
        self._ended = False
        self._armed_for = math.inf
        """When the timer fires: that is early enough for any limit that passes later."""
        pulse.on_settled = pulse.on_resumed = self._arm
        pulse.abort = self._abort

    def start(self, source: Observable[T]) -> abc.DisposableBase:
        self._arm()
        self._upstream.disposable = source.subscribe(
            self._on_next, self._on_error, self._on_completed, scheduler=self._scheduler
        )
        return CompositeDisposable(self._timer, self._upstream)

    def _on_next(self, item: T) -> None:
        pulse = self._pulse
        now = self._clock()
        if now > pulse.now:
            pulse.now = now
        pulse.heard_at = pulse.now
        if self._head_at is None or self._refused:
            self._enter_phase(item, pulse.now)
        self._observer.on_next(item)
        took_s = self._clock() - now
        if took_s > _NOTABLE_S:
            pulse.excuse(took_s)

    def _enter_phase(self, item: T, now: float) -> None:
        if isinstance(item, Connected):
            self._connected_at = now
        elif isinstance(item, ResponseHead):
            self._head_at = self._pulse.content_at = now
            self._refused = not item.accepted
        else:
            return
        self._arm()

    def _passing(self) -> Iterator[tuple[float, _Failure | None]]:
        """When each limit of the present phase passes, and what makes the error that this is; None for a plain end."""
        limits, pulse = self._limits, self._pulse
        if limits.deadline_s is not None:
            yield pulse.submitted_at + limits.deadline_s, lambda: deadline_passed(limits.deadline_s)
        if self._refused and self._head_at is not None:
            yield self._head_at + ERROR_BODY_TIMEOUT_S, None
        elif pulse.settled and limits.grace_s is not None:
            yield pulse.content_at + limits.grace_s, None
        elif self._head_at is not None:
            if limits.idle_s is not None:
                yield pulse.heard_at + limits.idle_s, lambda: _idle("no bytes came for", limits.idle_s, "idle")
            if limits.content_idle_s is not None:
                yield (
                    pulse.content_at + limits.content_idle_s,
                    lambda: _idle(
                        "no content came for", limits.content_idle_s, "content_idle", " (pings do not count)"
                    ),
                )
        elif self._connected_at is not None:
            if limits.header_s is not None:
                yield (
                    self._connected_at + limits.header_s,
                    lambda: _transport("no response headers came within", limits.header_s, "header_timeout"),
                )
        elif limits.connect_s is not None:
            yield (
                pulse.begun_at + limits.connect_s,
                lambda: _transport("no connection within", limits.connect_s, "connect_timeout"),
            )

    def _arm(self) -> None:
        if self._ended or self._pulse.paused_at is not None:
            return
        nearest = min((when for when, _ in self._passing()), default=None)
        if nearest is not None and nearest < self._armed_for:
            self._armed_for = nearest
            delay = max(nearest - self._clock(), 0.0)
            self._timer.disposable = self._scheduler.schedule_relative(delay, self._check)

    def _check(self, _scheduler: abc.SchedulerBase, _state: object = None) -> None:
        self._armed_for = math.inf
        if self._pulse.paused_at is not None:
            return  # armed again when the consumer wants more
        now = self._clock()
        for when, failure in self._passing():
            if when - now <= _TIMER_SLACK_S:
                self._pulse.advance(now)
                self._upstream.dispose()
                self._end(failure() if failure is not None else None)
                return
        self._arm()

    def _abort(self, error: SamplingError) -> None:
        self._pulse.advance(self._clock())
        self._upstream.dispose()
        self._end(error)

    def _on_error(self, error: Exception) -> None:
        self._pulse.advance(self._clock())
        self._end(error)

    def _on_completed(self) -> None:
        self._pulse.advance(self._clock())
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._timer.dispose()
        if error is None:
            self._observer.on_completed()
        else:
            self._observer.on_error(error)


_Failure = Callable[[], SamplingError]


def deadline_passed(deadline_s: float | None) -> SamplingError:
    """The error of a request that took longer than it may, all attempts and waits together."""
    message = f"the deadline of {deadline_s:g} s passed"
    return SamplingError.of(SamplingErrorKind.IDLE_TIMEOUT, message, code="deadline")


def _idle(what: str, limit_s: float | None, code: str, more: str = "") -> SamplingError:
    return SamplingError.of(SamplingErrorKind.IDLE_TIMEOUT, f"{what} {limit_s:g} s{more}", code=code)


def _transport(what: str, limit_s: float | None, code: str) -> SamplingError:
    return SamplingError.of(SamplingErrorKind.HTTP, f"{what} {limit_s:g} s", code=code, is_retryable=True)
