"""`detect_loop`: values with times, the error, disposal, state per subscription, and `Failed` behind it."""

from __future__ import annotations

from typing import Any, Final

import reactivex as rx
from reactivex import Observable, abc
from reactivex.disposable import Disposable
from reactivex.subject import Subject
from reactivex.testing import ReactiveTest, Recorded, TestScheduler

from rx_sampler import failures_as_events, operators
from rx_sampler.config import LoopDetection
from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.events import ChannelToken, DoomLoopSignals, Failed, Retrying, SamplingEvent
from rx_sampler.testing import Marbles, diagram_of, signals, text

on_completed, on_error, subscribed = ReactiveTest.on_completed, ReactiveTest.on_error, ReactiveTest.subscribe

SMALL: Final = LoopDetection(min_repeats=4, min_chars=16)


def on_next(at: int, event: SamplingEvent) -> Recorded[SamplingEvent]:
    return ReactiveTest.on_next(at, event)


def token(text: str, index: int, *, attempt: int = 1, of: str = "r") -> ChannelToken:
    return ChannelToken(request_id=of, attempt=attempt, ts=float(index), channel="text", text=text, chunk_index=index)


ANSWER: Final[list[ChannelToken]] = [token("abcd", 1), *(token("wxyz", index) for index in range(2, 8))]
SIGNALS: Final = DoomLoopSignals(request_id="r", attempt=1, ts=5.0, triggers=("client_repetition:4x4@text",))


def test_the_diagram() -> None:
    rows = diagram_of(operators.detect_loop)
    letters = {"a": text("abcd"), "b": text("wxyz"), "D": signals(*SIGNALS.triggers)}
    with Marbles() as marbles:
        watched = marbles.events(rows["source"], letters).pipe(operators.detect_loop(SMALL))
        marbles.expect(watched).to_be_events(rows["detect_loop"], letters, error=SamplingError)


def test_times_and_the_error() -> None:
    clock = TestScheduler()
    source = clock.create_cold_observable(
        *(on_next(3 * place, event) for place, event in enumerate(ANSWER, 1)), on_completed(24)
    )
    seen = clock.start(lambda: source.pipe(operators.detect_loop(SMALL)))
    assert seen.messages[:-1] == [
        *(on_next(200 + 3 * place, event) for place, event in enumerate(ANSWER[:5], 1)),
        on_next(215, SIGNALS),
    ]
    end: Any = seen.messages[-1].value
    assert (seen.messages[-1].time, end.kind) == (215, "E")
    error = end.exception
    assert isinstance(error, SamplingError)
    assert error.kind is SamplingErrorKind.DOOM_LOOP_DETECTED
    assert error.info.code == "client_repetition"
    assert error.info.doom_loop_aborted_at_chunk == 5
    assert source.subscriptions == [subscribed(200, 215)]


def test_an_answer_without_a_loop_passes_with_its_end() -> None:
    clock = TestScheduler()
    broken = OSError("broken")
    tokens = [on_next(10 * index, token(f"word {index}", index)) for index in range(1, 20)]
    for end in (on_completed(300), on_error(300, broken)):
        source = clock.create_cold_observable(*tokens, end)
        seen = clock.create_observer()
        begun = int(clock.clock)
        source.pipe(operators.detect_loop(SMALL)).subscribe(seen, scheduler=clock)
        clock.start()
        assert [message.value for message in seen.messages] == [*(one.value for one in tokens), end.value]
        assert source.subscriptions == [subscribed(begun, begun + 300)]


def test_the_error_of_the_source_is_passed_as_it_is() -> None:
    broken = SamplingError.of(SamplingErrorKind.HTTP, "broken")
    errors: list[Exception] = []
    rx.throw(broken).pipe(operators.detect_loop()).subscribe(on_error=errors.append)
    assert errors == [broken]


def test_dispose_disposes_the_source_in_midstream() -> None:
    clock = TestScheduler()
    source = clock.create_hot_observable(*(on_next(210 + 10 * index, one) for index, one in enumerate(ANSWER)))
    seen = clock.start(lambda: source.pipe(operators.detect_loop(SMALL)), disposed=225)
    assert seen.messages == [on_next(210, ANSWER[0]), on_next(220, ANSWER[1])]
    assert source.subscriptions == [subscribed(200, 225)]


def test_each_subscription_looks_for_itself() -> None:
    # One operator, two answers that would be a loop if they were one.
    source: Subject[SamplingEvent] = Subject()
    watched = source.pipe(operators.detect_loop(SMALL))
    seen: list[SamplingEvent] = []
    errors: list[Exception] = []
    for _ in range(2):
        subscription = watched.subscribe(seen.append, errors.append)
        for event in ANSWER[:4]:
            source.on_next(event)
        subscription.dispose()
    assert seen == ANSWER[:4] * 2
    assert errors == []


def test_the_scheduler_is_forwarded() -> None:
    given: list[abc.SchedulerBase | None] = []

    def subscribe(
        _observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        given.append(scheduler)
        return Disposable()

    clock = TestScheduler()
    Observable(subscribe).pipe(operators.detect_loop()).subscribe(scheduler=clock)
    assert given == [clock]


def test_what_was_streamed_before_a_retry_does_not_count() -> None:
    retrying = Retrying(
        request_id="r",
        attempt=1,
        ts=4.0,
        next_attempt=2,
        retry=1,
        max_retries=15,
        budget="transport",
        error_kind=SamplingErrorKind.HTTP,
        reason="reset",
        backoff_s=0.0,
    )
    again = [token("wxyz", index, attempt=2) for index in range(1, 4)]
    seen: list[SamplingEvent] = []
    errors: list[Exception] = []
    events = [*ANSWER[:4], retrying, *again]
    rx.from_iterable(events).pipe(operators.detect_loop(SMALL)).subscribe(seen.append, errors.append)
    assert seen == events
    assert errors == []


def test_interleaved_requests_end_with_the_first_that_loops() -> None:
    sane = [token(f"word {index} ", index, of="sane") for index in range(1, 8)]
    pairs = zip(sane, ANSWER, strict=True)
    seen: list[SamplingEvent] = []
    errors: list[Exception] = []
    events = [event for pair in pairs for event in pair]
    rx.from_iterable(events).pipe(operators.detect_loop(SMALL)).subscribe(seen.append, errors.append)
    assert seen == [*events[:10], SIGNALS]
    (error,) = errors
    assert isinstance(error, SamplingError)
    assert error.where is not None
    assert error.where.request_id == "r"


def test_failures_as_events_makes_it_failed() -> None:
    seen: list[SamplingEvent] = []
    ended: list[bool] = []
    rx.from_iterable(ANSWER).pipe(operators.detect_loop(SMALL), failures_as_events()).subscribe(
        seen.append, on_completed=lambda: ended.append(True)
    )
    failed = seen[-1]
    assert isinstance(failed, Failed)
    assert (failed.request_id, failed.attempt) == ("r", 1)
    assert failed.error.kind is SamplingErrorKind.DOOM_LOOP_DETECTED
    assert failed.error.is_retryable
    assert failed.error.doom_loop_triggers == SIGNALS.triggers
    assert seen[-2] == SIGNALS
    assert ended == [True]


def test_the_default_policy_takes_a_thousand_characters() -> None:
    def last(text: str) -> SamplingEvent:
        tokens = [token(text[at : at + 5], at // 5 + 1) for at in range(0, len(text), 5)]
        seen: list[SamplingEvent] = []
        rx.from_iterable(tokens).pipe(operators.detect_loop(), failures_as_events()).subscribe(seen.append)
        return seen[-1]

    assert isinstance(last("I will check the file again. " * 50), Failed)
    assert isinstance(last("I will check the file again. " * 30), ChannelToken)
