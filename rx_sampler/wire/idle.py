"""The limits in time on one attempt, all on the subscription's scheduler.

A `Pulse` is what the stages of an attempt know in common about time: when the current bytes arrived, when content
last did. `watched` compares it with the limits. It arms one timer and arms it again when it fires early, so that a
chunk costs two assignments and no timer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, SerialDisposable, SingleAssignmentDisposable

from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.scheduling import clock_of

from .transport import Connected, ResponseHead

__all__ = ["Limits", "Pulse", "watched"]

T = TypeVar("T")

ERROR_BODY_TIMEOUT_S: Final = 5.0
"""How long the body of a refusal may take: its status is known already, the rest is explanation."""

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

    __slots__ = ("content_at", "now", "on_settled", "settled", "submitted_at")

    def __init__(self, now: float) -> None:
        self.submitted_at = now
        self.now = now
        """Arrival of the bytes being handled: the stamp of the events they bring. Never goes back."""
        self.content_at = now
        """Arrival of the last content; pings, comments and empty deltas are none."""
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


def watched(pulse: Pulse, limits: Limits) -> Callable[[Observable[T]], Observable[T]]:
    """The same items, failed or ended when a limit passes.

    In: `Connected`, `ResponseHead` and bytes, as `HttpTransport.post` emits them. Out: the same, with `pulse.now` set
    to their arrival. A limit that passes disposes the source (which closes the socket) and gives
    `on_error(SamplingError)`; two of them end the stream instead (`on_completed`): the grace period after a complete
    answer, and the time for the body of a refusal. Timers run on the subscription's scheduler; dispose removes them.
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
        pulse.on_settled = self._arm

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
        if self._head_at is None or self._refused:
            self._enter_phase(item, pulse.now)
        self._observer.on_next(item)

    def _enter_phase(self, item: T, now: float) -> None:
        if isinstance(item, Connected):
            self._connected_at = now
        elif isinstance(item, ResponseHead):
            self._head_at = self._pulse.content_at = now
            self._refused = not item.accepted
        else:
            return
        self._arm()

    def _passing(self) -> Iterator[tuple[float, SamplingError | None]]:
        """When each limit of the present phase passes, and the error that this is; None for a plain end."""
        limits = self._limits
        if limits.deadline_s is not None:
            yield (
                self._pulse.submitted_at + limits.deadline_s,
                _idle(f"the deadline of {limits.deadline_s:g} s passed", "deadline"),
            )
        if self._refused and self._head_at is not None:
            yield self._head_at + ERROR_BODY_TIMEOUT_S, None
        elif self._pulse.settled and limits.grace_s is not None:
            yield self._pulse.content_at + limits.grace_s, None
        elif self._head_at is not None:
            if limits.idle_s is not None:
                yield (
                    self._pulse.now + limits.idle_s,
                    _idle(f"no bytes came for {limits.idle_s:g} s", "idle"),
                )
            if limits.content_idle_s is not None:
                yield (
                    self._pulse.content_at + limits.content_idle_s,
                    _idle(f"no content came for {limits.content_idle_s:g} s (pings do not count)", "content_idle"),
                )
        elif self._connected_at is not None:
            if limits.header_s is not None:
                yield (
                    self._connected_at + limits.header_s,
                    _transport(f"no response headers came within {limits.header_s:g} s", "header_timeout"),
                )
        elif limits.connect_s is not None:
            yield (
                self._pulse.submitted_at + limits.connect_s,
                _transport(f"no connection within {limits.connect_s:g} s", "connect_timeout"),
            )

    def _arm(self) -> None:
        if self._ended:
            return
        nearest = min((when for when, _ in self._passing()), default=None)
        if nearest is not None:
            delay = max(nearest - self._clock(), 0.0)
            self._timer.disposable = self._scheduler.schedule_relative(delay, self._check)

    def _check(self, _scheduler: abc.SchedulerBase, _state: object = None) -> None:
        now = self._clock()
        for when, error in self._passing():
            if when - now <= _TIMER_SLACK_S:
                self._pulse.advance(now)
                self._upstream.dispose()
                self._end(error)
                return
        self._arm()

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


def _idle(message: str, code: str) -> SamplingError:
    return SamplingError.of(SamplingErrorKind.IDLE_TIMEOUT, message, code=code)


def _transport(message: str, code: str) -> SamplingError:
    return SamplingError.of(SamplingErrorKind.HTTP, message, code=code, is_retryable=True)
