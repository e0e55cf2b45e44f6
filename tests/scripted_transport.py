"""A server that lives in virtual time: whole requests, limits and all, on reactivex's TestScheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable
from reactivex.notification import OnCompleted, OnError, OnNext
from reactivex.testing import ReactiveTest, TestScheduler

from rx_sampler import SamplingEvent
from rx_sampler.wire.transport import Connected, HttpRequest, Prepare, ResponseHead, Wire

SUBSCRIBED_AT: Final = ReactiveTest.subscribed
"""When `run` subscribes: virtual second 200, as everywhere in reactivex's tests."""

END: Final = object()
"""The body ends here, cleanly."""

Step = tuple[float, "Wire | Exception | object"]
"""Seconds after the request was sent, and what happens then: something arrives, the connection fails, or it `END`s."""


def head(status: int = 200, headers: Mapping[str, str] | None = None) -> ResponseHead:
    return ResponseHead(
        status=status, headers={"content-type": "text/event-stream"} if headers is None else headers, host="api.test"
    )


def arriving(frames: Sequence[bytes], *, at: float = 1, every: float = 1) -> list[Step]:
    """A connection at 0, headers at `at`, then one frame each `every` seconds, the first of them after one step."""
    steps: list[Step] = [(0, Connected()), (at, head())]
    return [*steps, *((at + every * number, frame) for number, frame in enumerate(frames, 1))]


class ScriptedTransport:
    """Plays the next script at each request.

    `requests` is what was sent, `closed_at` the second in which each was let go, `over` whether its answer had then
    come to its logical end, so that the connection would have been given back rather than closed.
    """

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self._scripts = list(scripts)
        self.requests: list[HttpRequest] = []
        self.closed_at: list[float] = []
        self.over: list[bool] = []

    def post(self, prepare: Prepare, is_over: Callable[[], bool] = lambda: False) -> Observable[Wire]:
        def subscribe(
            observer: abc.ObserverBase[Wire], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            assert isinstance(scheduler, TestScheduler), "an attempt hands its scheduler on"
            disposables = CompositeDisposable()

            def close() -> None:
                self.closed_at.append(seconds(scheduler))
                self.over.append(is_over())

            def send(*_: object) -> None:
                try:
                    self.requests.append(_run(prepare))
                except Exception as error:  # as the real one: what prepare raises is the exchange's failure
                    observer.on_error(error)
                    return
                for delay, what in self._scripts[len(self.requests) - 1]:
                    disposables.add(scheduler.schedule_relative(delay, _step(observer, what)))

            disposables.add(scheduler.schedule_relative(0, send))
            disposables.add(Disposable(close))
            return disposables

        return Observable(subscribe)

    def open(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def _run(prepare: Prepare) -> HttpRequest:
    step = prepare().__await__()
    try:
        next(step)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("virtual time cannot wait for a resolver that waits")


def _step(observer: abc.ObserverBase[Wire], what: Any) -> Callable[..., None]:
    def act(*_: object) -> None:
        if what is END:
            observer.on_completed()
        elif isinstance(what, Exception):
            observer.on_error(what)
        else:
            observer.on_next(what)

    return act


def seconds(scheduler: TestScheduler) -> float:
    return scheduler.to_seconds(scheduler.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a subscriber saw: events with the second each was delivered, counted from the subscription."""

    timed: list[tuple[float, SamplingEvent]]
    completed_at: float | None
    error: Exception | None

    @property
    def events(self) -> list[SamplingEvent]:
        return [event for _, event in self.timed]

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def run(make: Callable[[], Observable[SamplingEvent]], *, for_s: float = 100_000) -> Seen:
    """Subscribe in virtual time, run until nothing is left to happen or `for_s` passed, and tell what came when."""
    scheduler = TestScheduler()
    messages = scheduler.start(make, disposed=SUBSCRIBED_AT + for_s).messages
    timed: list[tuple[float, SamplingEvent]] = []
    completed_at: float | None = None
    error: Exception | None = None
    for message in messages:
        at = float(message.time) - SUBSCRIBED_AT
        if isinstance(message.value, OnNext):
            timed.append((at, message.value.value))
        elif isinstance(message.value, OnError):
            error = message.value.exception
        else:
            assert isinstance(message.value, OnCompleted)
            completed_at = at
    return Seen(timed=timed, completed_at=completed_at, error=error)
