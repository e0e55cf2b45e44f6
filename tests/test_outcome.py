"""The rim: failures become one `Failed` event, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
import reactivex as rx
from reactivex import Observable, abc
from reactivex.subject import Subject
from reactivex.testing import ReactiveTest, Recorded, TestScheduler

from rx_sampler.conversation import SamplingResponse, TextItem
from rx_sampler.errors import ErrorStamp, SamplingError, SamplingErrorKind
from rx_sampler.events import ChannelToken, Completed, Failed, SamplingEvent, StreamStarted
from rx_sampler.metrics import LatencyMetrics
from rx_sampler.outcome import failures_as_events

on_completed, on_error, subscribed = ReactiveTest.on_completed, ReactiveTest.on_error, ReactiveTest.subscribe


def on_next(at: int, event: SamplingEvent) -> Recorded[SamplingEvent]:
    return ReactiveTest.on_next(at, event)


STARTED = StreamStarted(request_id="r", attempt=1, ts=1.0)
TOKEN = ChannelToken(request_id="r", attempt=1, ts=2.0, channel="text", text="a", chunk_index=1)
COMPLETED = Completed(request_id="r", attempt=1, ts=3.0, response=SamplingResponse(), metrics=LatencyMetrics())


def failure() -> SamplingError:
    error = SamplingError.of(SamplingErrorKind.HTTP, "broke", is_retryable=True)
    error.partial = SamplingResponse(items=(TextItem(text="a"),))
    error.metrics = LatencyMetrics(chunk_count=1)
    return error


def test_an_answer_passes_as_it_is() -> None:
    clock = TestScheduler()
    source = clock.create_cold_observable(on_next(10, STARTED), on_next(20, COMPLETED), on_completed(20))
    seen = clock.start(lambda: source.pipe(failures_as_events()))
    assert seen.messages == [on_next(210, STARTED), on_next(220, COMPLETED), on_completed(220)]
    assert source.subscriptions == [subscribed(200, 220)]


def test_a_failure_is_the_last_event_and_then_the_stream_completes() -> None:
    error = failure()
    error.where = ErrorStamp(request_id="inner", attempt=3, ts=205.5)
    clock = TestScheduler()
    source = clock.create_cold_observable(on_next(5, TOKEN), on_error(10, error))
    seen = clock.start(lambda: source.pipe(failures_as_events(request_id="outer")))
    failed = Failed(
        request_id="inner",
        attempt=3,
        ts=210.0,
        error=error.info,
        partial=error.partial,
        metrics=LatencyMetrics(chunk_count=1),
    )
    assert seen.messages == [on_next(205, TOKEN), on_next(210, failed), on_completed(210)]
    assert source.subscriptions == [subscribed(200, 210)]
    event: Any = seen.messages[1].value
    assert event.value.exception is error


def test_a_failure_before_any_attempt_gets_the_id_and_time_of_the_request() -> None:
    error = SamplingError.of(SamplingErrorKind.INVALID_REQUEST, "no model")
    clock = TestScheduler()
    source = clock.create_cold_observable(on_error(77, error))
    seen = clock.start(lambda: source.pipe(failures_as_events(request_id="outer")))
    expected = Failed(request_id="outer", attempt=1, ts=277.0, error=error.info)
    assert seen.messages == [on_next(277, expected), on_completed(277)]


def test_time_does_not_go_back_for_a_failure() -> None:
    error = failure()
    error.where = ErrorStamp(request_id="r", attempt=1, ts=500.0)
    clock = TestScheduler()
    source = clock.create_cold_observable(on_error(10, error))
    seen = clock.start(lambda: source.pipe(failures_as_events()))
    first: Any = seen.messages[0].value
    assert first.value.ts == 500.0


def test_a_bug_stays_an_error() -> None:
    bug = ZeroDivisionError("a bug")
    clock = TestScheduler()
    source = clock.create_cold_observable(on_next(5, TOKEN), on_error(10, bug))
    seen = clock.start(lambda: source.pipe(failures_as_events()))
    last: Any = seen.messages[1].value
    assert seen.messages[:1] == [on_next(205, TOKEN)]
    assert (len(seen.messages), last.kind, last.exception) == (2, "E", bug)


def test_dispose_reaches_the_source() -> None:
    clock = TestScheduler()
    source = clock.create_cold_observable(on_next(10, STARTED), on_next(50, TOKEN))
    seen = clock.start(lambda: source.pipe(failures_as_events()), disposed=230)
    assert seen.messages == [on_next(210, STARTED)]
    assert source.subscriptions == [subscribed(200, 230)]


def test_the_scheduler_is_handed_on() -> None:
    given: list[object] = []

    def subscribe(_: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        given.append(scheduler)
        return rx.empty().subscribe()

    clock = TestScheduler()
    Observable(subscribe).pipe(failures_as_events()).subscribe(scheduler=clock)
    assert given == [clock]


def test_each_subscription_is_its_own() -> None:
    source: Subject[SamplingEvent] = Subject()
    one: list[SamplingEvent] = []
    two: list[SamplingEvent] = []
    events = source.pipe(failures_as_events())
    first = events.subscribe(one.append)
    events.subscribe(two.append)
    source.on_next(STARTED)
    first.dispose()
    source.on_error(failure())
    assert [event.kind for event in one] == ["stream_started"]
    assert [event.kind for event in two] == ["stream_started", "failed"]


@pytest.mark.parametrize("kind", list(SamplingErrorKind))
def test_every_kind_of_failure_becomes_an_event(kind: SamplingErrorKind) -> None:
    seen: list[SamplingEvent] = []
    rx.throw(SamplingError.of(kind, "m")).pipe(failures_as_events()).subscribe(seen.append)
    assert [(event.kind, event.error.kind) for event in seen if isinstance(event, Failed)] == [("failed", kind)]
