"""`retrying()` over sources of events: order, waits in virtual time, errors that are not its own, and deep chains."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Final

import pytest
import reactivex
from reactivex import Observable, abc, operators
from reactivex.disposable import Disposable
from reactivex.testing import TestScheduler
from scripted_transport import SUBSCRIBED_AT, run, seconds
from wires import DONE, chat, closing, opening, text

from rx_sampler import (
    ChannelToken,
    Completed,
    DoomLoopPolicy,
    Failed,
    LatencyMetrics,
    RetryBudget,
    Retrying,
    RetryPolicy,
    SamplingError,
    SamplingErrorKind,
    SamplingEvent,
    SamplingResponse,
    SharedLimits,
    StreamStarted,
    failures_as_events,
    retrying,
    sampling_events,
    sse_frames,
    typed_chunks,
)
from rx_sampler.testing import check_events

CHAT: Final = "chat_completions"
PLAIN = RetryPolicy(jitter=0)
BROKEN = SamplingErrorKind.HTTP


def token(text: str = "t", attempt: int = 1) -> ChannelToken:
    return ChannelToken(request_id="r", attempt=attempt, ts=1.0, channel="text", text=text, chunk_index=1)


def completed(attempt: int = 1) -> Completed:
    return Completed(request_id="r", attempt=attempt, ts=1.0, response=SamplingResponse(), metrics=LatencyMetrics())


def failure(kind: SamplingErrorKind = BROKEN, *, retryable: bool = True) -> SamplingError:
    return SamplingError.of(kind, "it broke", is_retryable=retryable)


class Source:
    """A cold source that plays the next attempt, synchronously, each time it is subscribed to."""

    def __init__(self, *attempts: Sequence[SamplingEvent | Exception]) -> None:
        self._attempts = attempts
        self.subscribed = 0
        self.open = 0

    def observable(self) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], _scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            steps = self._attempts[min(self.subscribed, len(self._attempts) - 1)]
            self.subscribed += 1
            self.open += 1
            for step in steps:
                if isinstance(step, Exception):
                    observer.on_error(step)
                    break
                observer.on_next(step)
            else:
                observer.on_completed()

            def close() -> None:
                self.open -= 1

            return Disposable(close)

        return Observable(subscribe)


def joined(source: Source, policy: RetryPolicy = PLAIN, **given: Any) -> Callable[[], Observable[SamplingEvent]]:
    return lambda: source.observable().pipe(retrying(policy, **given))


def test_the_marble_of_its_docstring() -> None:
    source = Source([StreamStarted(request_id="r", attempt=1, ts=0), token(), failure()], [token("u"), completed()])
    seen = run(joined(source))
    assert [(at, event.kind, event.attempt) for at, event in seen.timed] == [
        (0, "stream_started", 1),
        (0, "channel_token", 1),
        (0, "retrying", 1),
        (2, "channel_token", 2),
        (2, "completed", 2),
    ]
    assert (seen.completed_at, seen.error, source.subscribed, source.open) == (2, None, 2, 0)


def test_a_recording_that_counts_no_attempts_is_counted_here() -> None:
    frames = [chat({"content": "t"}), chat({}, "stop"), DONE]
    readings = iter([frames[:1], frames[:1], frames])

    def replayed() -> Observable[SamplingEvent]:
        reads = reactivex.defer(lambda _scheduler: reactivex.from_iterable(next(readings)))
        stages = sse_frames(), typed_chunks("chat_completions"), sampling_events("chat_completions")
        return reads.pipe(*stages, retrying(RetryPolicy(max_retries=2)), failures_as_events())

    events = run(replayed).events
    check_events(events)
    assert isinstance(events[-1], Completed)
    assert (events[-1].attempt, events[-1].metrics.attempts) == (3, 3)
    readings = iter([frames[:1]] * 3)
    events = run(replayed).events
    check_events(events)
    assert isinstance(events[-1], Failed)
    assert (events[-1].attempt, events[-1].metrics.attempts) == (3, 3)


def test_what_retrying_says() -> None:
    source = Source([failure()], [completed()])
    event = run(joined(source, request_id="mine")).events[0]
    assert event == Retrying(
        request_id="mine",
        attempt=1,
        ts=SUBSCRIBED_AT,
        next_attempt=2,
        retry=1,
        max_retries=15,
        budget="transport",
        error_kind=BROKEN,
        reason="it broke",
        backoff_s=2.0,
    )


def test_fifteen_retries_take_the_documented_waits() -> None:
    source = Source([failure()])
    seen = run(joined(source))
    # 2, 4, 8, 16 s and then eleven times 30 s
    expected = [0, 2, 6, 14, 30, *(60 + 30 * n for n in range(10))]
    assert [at for at, _ in seen.timed] == expected
    assert [event.backoff_s for event in seen.events if isinstance(event, Retrying)] == [2, 4, 8, 16, *[30] * 11]
    assert source.subscribed == 16
    assert isinstance(seen.error, SamplingError)


@pytest.mark.parametrize(("drawn", "waits"), [(0.0, [1.6, 3.2]), (0.5, [2.0, 4.0]), (0.75, [2.2, 4.4])])
def test_the_jitter_is_drawn_from_the_given_source(drawn: float, waits: list[float]) -> None:
    policy = RetryPolicy(max_retries=2)
    seen = run(joined(Source([failure()]), policy, random=lambda: drawn))
    assert [event.backoff_s for event in seen.events if isinstance(event, Retrying)] == pytest.approx(waits)
    assert [at for at, _ in seen.timed] == pytest.approx([0, waits[0]], abs=1e-6)


def test_what_cannot_be_mended_is_passed_on_at_once() -> None:
    error = failure(SamplingErrorKind.SERIALIZATION, retryable=False)
    source = Source([token(), error])
    seen = run(joined(source))
    assert (seen.error, source.subscribed, [event.kind for event in seen.events]) == (error, 1, ["channel_token"])


def test_an_error_of_another_kind_is_a_bug_and_not_retried() -> None:
    bug = ZeroDivisionError()
    source = Source([bug])
    assert (run(joined(source)).error, source.subscribed) == (bug, 1)


@pytest.mark.parametrize("error", [RuntimeError("mine"), failure()], ids=["any error", "one that looks like ours"])
def test_what_a_subscriber_raises_is_not_taken_for_the_sources(error: Exception) -> None:
    source = Source([token(), completed()])
    told: list[Exception] = []

    def on_next(_event: SamplingEvent) -> None:
        raise error

    joined(source)().subscribe(on_next, told.append, scheduler=TestScheduler())
    assert (told, source.subscribed) == ([error], 1)


def test_the_last_failure_is_the_requests() -> None:
    first, last = failure(), failure(retryable=False)
    seen = run(lambda: joined(Source([first], [token(attempt=7), last]))().pipe(failures_as_events()))
    end = seen.events[-1]
    assert end.kind == "failed"
    assert end.exception is last
    assert end.attempt == 2
    assert [event.attempt for event in seen.events] == [1, 2, 2]  # numbered here, whatever the source says


def test_dispose_during_the_wait_leaves_nothing() -> None:
    source, scheduler = Source([failure()], [completed()]), TestScheduler()
    events: list[SamplingEvent] = []
    subscription = joined(source)().subscribe(events.append, scheduler=scheduler)
    scheduler.advance_to(1)
    subscription.dispose()
    scheduler.advance_to(1000)
    assert ([event.kind for event in events], source.subscribed, source.open) == (["retrying"], 1, 0)


def test_who_leaves_at_retrying_is_not_asked_again() -> None:
    source = Source([failure()], [completed()])
    seen = run(lambda: joined(source)().pipe(operators.take(1)))
    assert (seen.kinds, source.subscribed) == (["retrying"], 1)


def test_each_subscription_has_counters_of_its_own() -> None:
    observable = joined(Source([failure()]), RetryPolicy(max_retries=1))()
    for _ in range(3):
        assert run(lambda: observable).kinds == ["retrying"]


def test_max_elapsed_is_no_ones_patience() -> None:
    # attempts that take no time, waits of 2, 4, 8 s: the third retry would begin at 14 s
    seen = run(joined(Source([failure()]), RetryPolicy(jitter=0, max_elapsed_s=14)))
    assert [at for at, _ in seen.timed] == [0, 2]
    assert isinstance(seen.error, SamplingError)


def test_doom_loops_and_failures_do_not_debit_each_other() -> None:
    doomed = failure(SamplingErrorKind.DOOM_LOOP_DETECTED)
    source = Source([doomed], [failure()], [doomed], [failure()], [completed()])
    seen = run(joined(source, RetryPolicy(jitter=0, max_retries=2), doom_loop=DoomLoopPolicy(), random=lambda: 0.4))
    told = [event for event in seen.events if isinstance(event, Retrying)]
    assert [(event.budget, event.retry, event.max_retries) for event in told] == [
        ("doom_loop", 1, 2),
        ("transport", 1, 2),
        ("doom_loop", 2, 2),
        ("transport", 2, 2),
    ]
    assert [event.backoff_s for event in told] == pytest.approx([0.1, 2.0, 0.1, 4.0])
    assert seen.kinds[-1] == "completed"


def test_rate_limits_are_counted_in_a_row() -> None:
    limited = failure(SamplingErrorKind.RATE_LIMITED)
    source = Source([limited], [failure()], [limited], [limited])
    seen = run(joined(source))
    told = [event for event in seen.events if isinstance(event, Retrying)]
    assert [(event.budget, event.retry, event.max_retries) for event in told] == [
        ("rate_limit", 1, 1),
        ("transport", 2, 15),
        ("rate_limit", 1, 1),
    ]
    assert seen.error is limited


@contextmanager
def shallow_stack(frames: int) -> Generator[None]:
    depth, limit = 0, sys.getrecursionlimit()
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("wait_s", [0.0, 0.001], ids=["no wait", "timers"])
def test_ten_thousand_retries_do_not_deepen_the_stack(wait_s: float) -> None:
    source = Source([failure()])
    policy = RetryPolicy(max_retries=10_000, initial_backoff_s=wait_s, max_backoff_s=wait_s, jitter=0)
    events, errors = 0, list[Exception]()
    scheduler = TestScheduler()

    def count(_event: SamplingEvent) -> None:
        nonlocal events
        events += 1

    with shallow_stack(200):
        joined(source, policy)().subscribe(count, errors.append, scheduler=scheduler)
        scheduler.start()
    assert (source.subscribed, events, len(errors)) == (10_001, 10_000, 1)


def test_a_long_synchronous_attempt_does_not_deepen_the_stack() -> None:
    source = Source([*[token()] * 100_000, failure()], [*[token()] * 100_000, completed()])
    with shallow_stack(200):
        seen = run(joined(source))
    assert (len(seen.events), seen.kinds[-1]) == (200_002, "completed")


@pytest.mark.parametrize("taken", [None, 50_000], ids=["to the end", "left half way"])
def test_a_long_stream_through_all_stages_does_not_deepen_the_stack(taken: int | None) -> None:
    tokens, read = 100_000, 0

    def reads() -> Iterator[bytes]:
        nonlocal read
        for frame in (*opening(CHAT), *repeat(text(CHAT, "t"), tokens), *closing(CHAT, "")):
            read += 1
            yield frame

    stages = reactivex.from_iterable(reads()).pipe(
        sse_frames(), typed_chunks(CHAT), sampling_events(CHAT), retrying(PLAIN)
    )
    kinds: Counter[str] = Counter()
    ends: list[None] = []
    with shallow_stack(200):
        stages.pipe(operators.take(taken or 2 * tokens)).subscribe(
            lambda event: kinds.update((event.kind,)), on_completed=lambda: ends.append(None)
        )
    assert len(ends) == 1
    if taken is None:
        assert (kinds["channel_token"], kinds["completed"]) == (tokens, 1)
    else:
        assert (kinds.total(), kinds["completed"]) == (taken, 0)
        assert read < taken + 10  # the source is left too


def test_leaving_amid_ten_thousand_retries_ends_them() -> None:
    source, scheduler = Source([failure()]), TestScheduler()
    policy = RetryPolicy(max_retries=10_000, initial_backoff_s=0.001, max_backoff_s=0.001, jitter=0)
    events: list[SamplingEvent] = []
    with shallow_stack(200):
        joined(source, policy)().pipe(operators.take(5000)).subscribe(events.append, scheduler=scheduler)
        scheduler.start()
    assert (len(events), source.subscribed, source.open) == (5000, 5000, 0)


def test_without_a_clock_a_wait_is_an_error_and_no_wait_is_none() -> None:
    errors: list[Exception] = []
    events: list[SamplingEvent] = []
    joined(Source([failure()], [completed()]))().subscribe(events.append, errors.append)
    assert [type(error) for error in errors] == [RuntimeError]
    joined(Source([failure()], [completed()]), RetryPolicy(initial_backoff_s=0))().subscribe(events.append)
    assert events[-1].kind == "completed"


async def test_waits_run_on_the_loop_and_start_no_thread() -> None:
    source = Source([failure()], [completed()])
    threads, loop = threading.active_count(), asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    policy = RetryPolicy(initial_backoff_s=0.001, max_backoff_s=0.001)
    events: list[SamplingEvent] = []

    def on_next(event: SamplingEvent) -> None:
        assert threading.active_count() == threads
        events.append(event)

    joined(source, policy)().subscribe(on_next, done.set_exception, lambda: done.set_result(None))
    await done
    assert [event.kind for event in events] == ["retrying", "completed"]


# -- what requests share


def test_a_dead_server_is_hardly_asked_again_once_the_budget_is_spent() -> None:
    source, limits = Source([failure()]), SharedLimits(RetryBudget(capacity=100))
    policy = RetryPolicy(max_retries=4)
    scheduler = TestScheduler()
    errors: list[Exception] = []
    for _ in range(1000):
        joined(source, policy, limits=limits)().subscribe(lambda _event: None, errors.append, scheduler=scheduler)
    scheduler.start()
    assert len(errors) == 1000
    assert source.subscribed == 1000 + 100
    assert source.subscribed <= 1.1 * 1000
    refused = [str(error) for error in errors if "retry budget is spent" in str(error)]
    assert len(refused) == 1000 - sum("spent" not in str(error) for error in errors)
    assert len(refused) > 900


def test_a_success_fills_it_again() -> None:
    limits = SharedLimits(RetryBudget(capacity=2))
    dead = Source([failure()])
    run(joined(dead, limits=limits))
    assert dead.subscribed == 3  # its two tokens
    run(joined(dead, limits=limits))
    assert dead.subscribed == 4  # nothing is left
    run(joined(Source([completed()]), limits=limits))
    run(joined(dead, limits=limits))
    assert dead.subscribed == 6


def test_retries_that_led_to_success_cost_nothing_in_the_end() -> None:
    limits = SharedLimits(RetryBudget(capacity=2))
    for _ in range(5):
        flaky = Source([failure()], [failure()], [completed()])
        assert run(joined(flaky, limits=limits)).kinds[-1] == "completed"


def test_doom_loops_take_no_tokens() -> None:
    limits = SharedLimits(RetryBudget(capacity=1))
    doomed = Source([failure(SamplingErrorKind.DOOM_LOOP_DETECTED)], [failure()], [completed()])
    assert run(joined(doomed, limits=limits, doom_loop=DoomLoopPolicy())).kinds[-1] == "completed"


def test_a_rate_limit_delays_the_others() -> None:
    limits, scheduler = SharedLimits(), TestScheduler()
    limited = failure(SamplingErrorKind.RATE_LIMITED).amend(retry_after_s=7.0)
    began: list[tuple[str, float]] = []

    def noted(name: str, source: Source) -> Observable[SamplingEvent]:
        def begin(_scheduler: abc.SchedulerBase) -> Observable[SamplingEvent]:
            began.append((name, seconds(scheduler)))
            return source.observable()

        return reactivex.defer(begin).pipe(retrying(PLAIN, limits=limits))

    noted("first", Source([limited], [completed()])).subscribe(scheduler=scheduler)
    scheduler.advance_to(3)
    noted("second", Source([completed()])).subscribe(scheduler=scheduler)
    noted("third", Source([completed()])).subscribe(scheduler=scheduler)
    scheduler.advance_to(100)
    noted("fourth", Source([completed()])).subscribe(scheduler=scheduler)
    scheduler.start()
    assert began[0] == ("first", 0)
    assert sorted(began[1:4]) == [("first", 7), ("second", 7), ("third", 7)]
    assert began[4:] == [("fourth", 100)]


def test_a_wait_beyond_the_cap_delays_nobody() -> None:
    limits = SharedLimits()
    limited = failure(SamplingErrorKind.RATE_LIMITED).amend(retry_after_s=121.0)
    assert run(joined(Source([limited]), limits=limits)).error is limited
    assert run(joined(Source([completed()]), limits=limits)).timed[0][0] == 0


def test_who_switches_retries_off_waits_for_nobody() -> None:
    limits, limited = SharedLimits(), failure(SamplingErrorKind.RATE_LIMITED).amend(retry_after_s=7.0)
    never = RetryPolicy(max_retries=0)
    assert run(joined(Source([limited]), never, limits=limits)).error is limited
    assert run(joined(Source([completed()]), limits=limits)).timed[0][0] == 0
    run(joined(Source([limited], [completed()]), limits=limits))
    assert run(joined(Source([completed()]), never, limits=limits)).timed[0][0] == 0
