"""What the tests of `race`, `hedge` and `fallback` share: events of several requests, and sources that tell on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactivex import Observable, Observer, abc
from reactivex.disposable import Disposable
from reactivex.testing import ReactiveTest, Recorded, TestScheduler
from reactivex.testing.coldobservable import ColdObservable
from reactivex.testing.mockobserver import MockObserver

from rx_sampler.conversation import SamplingResponse
from rx_sampler.demand import Demand, current_demand, demanding
from rx_sampler.errors import SamplingErrorInfo, SamplingErrorKind
from rx_sampler.events import (
    ChannelToken,
    Completed,
    Failed,
    FirstToken,
    Retrying,
    SamplingEvent,
    StreamStarted,
    ToolCallDelta,
)
from rx_sampler.metrics import LatencyMetrics

on_completed, on_error, subscribed = ReactiveTest.on_completed, ReactiveTest.on_error, ReactiveTest.subscribe

Operator = Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]


def on_next(at: int, event: SamplingEvent) -> Recorded[SamplingEvent]:
    return ReactiveTest.on_next(at, event)


def started(of: str) -> StreamStarted:
    return StreamStarted(request_id=of, attempt=1, ts=0.0)


def first(of: str, channel: str = "text") -> FirstToken:
    return FirstToken(request_id=of, attempt=1, ts=0.0, channel=channel)


def token(of: str, text: str = "a", channel: str = "text", index: int = 1) -> ChannelToken:
    return ChannelToken(request_id=of, attempt=1, ts=0.0, channel=channel, text=text, chunk_index=index)


def tool(of: str) -> ToolCallDelta:
    return ToolCallDelta(request_id=of, attempt=1, ts=0.0, tool_index=0, id="call_1", name="weather")


def retrying(of: str) -> Retrying:
    return Retrying(
        request_id=of,
        attempt=1,
        ts=0.0,
        next_attempt=2,
        retry=1,
        max_retries=15,
        budget="transport",
        error_kind=SamplingErrorKind.HTTP,
        reason="reset",
        backoff_s=0.0,
    )


def done(of: str) -> Completed:
    return Completed(request_id=of, attempt=1, ts=0.0, response=SamplingResponse(), metrics=LatencyMetrics())


def failed(of: str, kind: SamplingErrorKind = SamplingErrorKind.HTTP) -> Failed:
    return Failed(request_id=of, attempt=1, ts=0.0, error=SamplingErrorInfo(kind=kind, message="broken"))


def cold(clock: TestScheduler, *said: tuple[int, SamplingEvent]) -> ColdObservable[SamplingEvent]:
    """A stream of one request that says this at these times after it is subscribed to, and completes with a terminal
    event, a tick behind it."""
    ends = [on_completed(at + 1) for at, event in said if isinstance(event, Completed | Failed)]
    return clock.create_cold_observable(*(on_next(at, event) for at, event in said), *ends)


def watch(
    clock: TestScheduler, stream: Observable[SamplingEvent], disposed: float = 1000.0, demand: Demand | None = None
) -> MockObserver[SamplingEvent]:
    """What an observer saw that subscribed at 200 with that demand."""
    seen = clock.create_observer()
    subscription: list[abc.DisposableBase] = []

    def subscribe(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
        with demanding(demand):
            subscription.append(stream.subscribe(seen, scheduler=clock))

    clock.schedule_absolute(200.0, subscribe)
    clock.schedule_absolute(disposed, lambda _scheduler, _state=None: subscription[0].dispose())
    clock.start()
    return seen


class Probe(Observable[SamplingEvent]):
    """A stream that a test speaks through, which notes how it was subscribed to. One subscription at a time."""

    def __init__(self, *at_once: SamplingEvent, completes: bool = False) -> None:
        super().__init__(self._begin)
        self.subscriptions = 0
        self.active = 0
        self.schedulers: list[abc.SchedulerBase | None] = []
        self.demands: list[Demand | None] = []
        self.observer: abc.ObserverBase[SamplingEvent] = Observer()  # nobody yet
        self._at_once = at_once
        self._completes = completes

    def _begin(
        self, observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        self.subscriptions += 1
        self.active += 1
        self.observer = observer
        self.schedulers.append(scheduler)
        self.demands.append(current_demand())
        for event in self._at_once:
            observer.on_next(event)
        if self._completes:
            observer.on_completed()
        return Disposable(self._end)

    def _end(self) -> None:
        self.active -= 1

    def say(self, *events: SamplingEvent) -> None:
        for event in events:
            self.observer.on_next(event)


def raising(error: Exception) -> Observable[SamplingEvent]:
    """A stream that cannot be subscribed to."""

    def subscribe(
        _observer: abc.ObserverBase[SamplingEvent], _scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        raise error

    return Observable(subscribe)


class Seen:
    """What came of a stream, subscribed to now."""

    def __init__(
        self,
        stream: Observable[SamplingEvent],
        scheduler: abc.SchedulerBase | None = None,
        act: Callable[[Seen, SamplingEvent], object] = lambda _seen, _event: None,
    ) -> None:
        self.events: list[SamplingEvent] = []
        self.errors: list[Exception] = []
        self.completions = 0

        def on_next(event: SamplingEvent) -> None:
            self.events.append(event)
            act(self, event)

        self.subscription = stream.subscribe(on_next, self.errors.append, self._complete, scheduler=scheduler)

    def _complete(self) -> None:
        self.completions += 1


def outline(seen: MockObserver[Any]) -> list[tuple[float, str]]:
    """When there was a value (N), an error (E) or the completion (C)."""
    values: list[Any] = list(seen.messages)
    return [(message.time, message.value.kind) for message in values]


class Timers(TestScheduler):
    """Virtual time that counts its timers: all of them, and those that are neither due nor disposed."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0
        self.pending = 0

    def schedule_relative(
        self, duetime: Any, action: abc.ScheduledAction[Any], state: Any = None
    ) -> abc.DisposableBase:
        self.made += 1
        self.pending += 1
        open_ones = [1]

        def close() -> None:
            self.pending -= len(open_ones)
            open_ones.clear()

        def act(scheduler: abc.SchedulerBase, its_state: Any = None) -> abc.DisposableBase | None:
            close()
            return action(scheduler, its_state)

        timer = super().schedule_relative(duetime, act, state)

        def stop() -> None:
            close()
            timer.dispose()

        return Disposable(stop)
