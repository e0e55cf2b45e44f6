"""Even pacing: bursts let out bit by bit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import ceil, inf, isfinite
from typing import Final

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable, SingleAssignmentDisposable

from rx_sampler.demand import demanding
from rx_sampler.events import (
    TEXT,
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    ImagesStripped,
    ModelMetadata,
    ResponseStarted,
    Retrying,
    SamplingEvent,
    StreamStarted,
)
from rx_sampler.scheduling import Clock, LoopTimeScheduler, clock_of, request_scheduler

__all__ = ["smooth"]

_SLACK_S: Final = 1e-6
"""What clocks round by."""

_OUTLIVE_RETRYING: Final = frozenset({StreamStarted, ModelMetadata, ResponseStarted, ImagesStripped, DoomLoopSignals})
"""What tells of an attempt, and is no content of it."""


def smooth(
    interval_s: float = 0.02, max_delay_s: float = 0.25, channel: str = TEXT
) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The same events, the tokens of a channel evenly paced: a burst comes out bit by bit, at most `max_delay_s` late.

    With `smooth(0.005, 0.01)`, a frame being a millisecond:

        source  -S-(Fabcde)---------C--|
        smooth  -S-(Fa)-(bc)-(de)---C--|

    In and out: events of one request, or of several interleaved, each paced by itself. A token that comes when none
    waits, `interval_s` or more after the last, passes at once, without a timer: a source slower than the interval is
    not delayed at all. Others wait, and each `interval_s` (seconds) as many come out as it takes that none waits longer
    than `max_delay_s` (seconds). Whatever else comes of a request while tokens wait comes out behind them, the terminal
    event too. `Retrying` passes at once: the tokens that wait, and other content behind them, are void and dropped;
    what tells of the attempt (`DoomLoopSignals`, say) comes out before it. `ts` stays as measured.

    Cold as its source, and as each subscription has state of its own. Forwards the scheduler; the timers are on it (on
    the running asyncio loop's where none is given), one per interval and request, and only while tokens wait. Dispose
    cancels them and disposes the source. Completion waits until everything is out; an error lets everything out at
    once and follows. ValueError at call time unless `0 < interval_s <= max_delay_s`, both finite; RuntimeError at
    subscribe where there is neither a scheduler nor a running loop. Cost: constant per event, however many wait;
    memory: what comes in `max_delay_s`.
    """
    if not (0 < interval_s <= max_delay_s and isfinite(max_delay_s)):
        raise ValueError(f"smooth needs 0 < interval_s <= max_delay_s, not {interval_s!r} and {max_delay_s!r}")

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            pacer = _Pacer(interval_s, max_delay_s, channel, observer, request_scheduler(scheduler))
            upstream = SingleAssignmentDisposable()
            upstream.disposable = source.subscribe(
                pacer.on_next, pacer.on_error, pacer.on_completed, scheduler=scheduler
            )
            return CompositeDisposable(upstream, Disposable(pacer.close))

        return Observable(subscribe)

    return operator


_Timers = Callable[[float, Callable[[], None]], Callable[[], object]]
"""Does something after so many seconds, unless what it returns is called before."""


def _time_of(scheduler: abc.SchedulerBase) -> tuple[Clock, _Timers]:
    """Clock and timers; of an asyncio loop its own, which cost a quarter of the scheduler's."""
    if isinstance(scheduler, LoopTimeScheduler):
        loop = scheduler.loop
        return loop.time, lambda wait_s, act: loop.call_later(wait_s, act).cancel

    def after(wait_s: float, act: Callable[[], None]) -> Callable[[], object]:
        def fire(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
            act()

        return scheduler.schedule_relative(wait_s, fire).dispose

    return clock_of(scheduler), after


class _Pacer:
    """The queues of all requests."""

    def __init__(
        self,
        interval_s: float,
        max_delay_s: float,
        channel: str,
        observer: abc.ObserverBase[SamplingEvent],
        scheduler: abc.SchedulerBase,
    ) -> None:
        self.interval_s = interval_s
        self.max_delay_s = max_delay_s
        self.channel = channel
        self.observer = observer
        self.push = observer.on_next
        self.clock, self.set_timer = _time_of(scheduler)
        self._queues: dict[str, _Queue] = {}
        self._source_ended = False
        self.closed = False

    def on_next(self, event: SamplingEvent) -> None:
        queue = self._queues.get(event.request_id)
        if queue is None:
            queue = self._queues[event.request_id] = _Queue(self)
        if type(event) is not ChannelToken or event.channel != self.channel:
            queue.take(event)
            return
        clock = self.clock  # an attribute that is called in place is looked up as a method first
        now = clock()
        if not queue.waiting and now + _SLACK_S >= queue.next_at:
            queue.next_at = now + self.interval_s
            self.push(event)
        else:
            queue.waiting.append((now, event))
            queue.tokens += 1
            if now >= queue.until:
                queue.plan(now)

    def on_error(self, error: Exception) -> None:
        for queue in list(self._queues.values()):
            queue.let_all_out()
        self.closed = True
        self.observer.on_error(error)

    def on_completed(self) -> None:
        self._source_ended = True
        self.settle()

    def drop(self, request_id: str) -> None:
        """The request is over and out."""
        self._queues.pop(request_id, None)

    def settle(self) -> None:
        """Complete, if the source has and nothing waits."""
        if self._source_ended and not self.closed and not any(queue.waiting for queue in self._queues.values()):
            self.closed = True
            self.observer.on_completed()

    def close(self) -> None:
        self.closed = True
        for queue in self._queues.values():
            queue.drop()
        self._queues.clear()


class _Queue:
    """The events of one request that wait: the tokens, each with its time of arrival, and what stands between them."""

    __slots__ = ("_cancel", "_due", "_pacer", "_per_tick", "_ticks", "next_at", "tokens", "until", "waiting")

    def __init__(self, pacer: _Pacer) -> None:
        self._pacer = pacer
        self.waiting: deque[tuple[float | None, SamplingEvent]] = deque()
        self.tokens = 0
        """How many of those that wait are paced."""
        self.until = -inf
        """When to `plan` anew; all that come before have as many ticks as the last."""
        self._ticks = inf
        """How many ticks the last has until it must be out; no matter how many if it came before the last tick."""
        self._per_tick = 1
        self.next_at = -inf
        """From when on a token may pass at once."""
        self._due = 0.0
        """When the timer fires."""
        self._cancel: Callable[[], object] | None = None
        """Cancels the timer, if there is one."""

    def take(self, event: SamplingEvent) -> None:
        """What is not paced: it passes, unless something waits."""
        if event.__class__ is Retrying:
            self._void()
        if self.waiting:
            self.waiting.append((None, event))
        else:
            self._pass(event)

    def plan(self, now: float) -> None:
        """A token came that may have other ticks than those before it: see to these, and count its own."""
        self._hasten(self.tokens - 1)
        pacer = self._pacer
        if self._cancel is None:
            # What is let out, then and at the ticks that follow, has nothing to do with whoever subscribes just now.
            with demanding(None):
                self._start(max(self.next_at, now), now)
        latest = self._due - pacer.max_delay_s - _SLACK_S  # of those that have to be out at the next tick
        self._ticks = max(int((now - latest) / pacer.interval_s) + 1, 1)
        self.until = latest + self._ticks * pacer.interval_s

    def _hasten(self, tokens: int) -> None:
        """See to it that the first so many are out in time: within as many ticks as the last of them has."""
        self._per_tick = max(self._per_tick, ceil(tokens / self._ticks))

    def _start(self, due: float, now: float) -> None:
        self._due = due
        self._cancel = self._pacer.set_timer(max(round(due - now, 6), 0.0), self._tick)

    def _tick(self) -> None:
        pacer = self._pacer
        now = pacer.clock()
        self._cancel = None
        self._hasten(self.tokens)
        self._ticks, self.until = inf, -inf
        self.next_at = now + pacer.interval_s
        due = self._due + pacer.interval_s
        if due <= now:  # a late loop
            due = now + pacer.interval_s
        urgent = due - pacer.max_delay_s - _SLACK_S  # came so early that the next tick is too late
        left, push = self._per_tick, pacer.push
        while waiting := self.waiting:  # asked anew each time: a subscriber may bring the next event, or end it all
            came, event = waiting.popleft()
            if came is None:
                self._pass(event)
            elif left > 0 or came < urgent:
                left -= 1
                self.tokens -= 1
                push(event)
            else:
                waiting.appendleft((came, event))
                break
        if not self.waiting:
            self.stop()
            pacer.settle()
        elif self._cancel is None:
            self._start(due, now)

    def _pass(self, event: SamplingEvent) -> None:
        if event.__class__ is Completed or event.__class__ is Failed:
            self._pacer.drop(event.request_id)
        self._pacer.push(event)

    def let_all_out(self) -> None:
        while self.waiting:
            self._pass(self.waiting.popleft()[1])
        self.stop()

    def _void(self) -> None:
        """Drop what a retry makes void; let the rest out."""
        waiting = self.waiting
        self.drop()
        for _, event in waiting:
            if event.__class__ in _OUTLIVE_RETRYING:
                self._pacer.push(event)

    def drop(self) -> None:
        """Forget what waits."""
        self.waiting = deque()
        self.tokens = 0
        self.stop()

    def stop(self) -> None:
        """No timer, and no hurry, is needed any more."""
        self._per_tick, self._ticks, self.until = 1, inf, -inf
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
