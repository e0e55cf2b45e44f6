"""Virtual time for marbles: exact, unmoved by crowds, the clock of events; sources and the log of subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import reactivex as rx
from reactivex import Observer
from reactivex import operators as ops

from rx_sampler.scheduling import clock_of
from rx_sampler.testing.marble_report import Notice
from rx_sampler.testing.marble_time import EPOCH, MarbleScheduler, MarbleSource, Subscription, seconds_at


def at(frame: float, *values: Any) -> list[Notice]:
    return [Notice(frame, "next", value) for value in values]


def noting(scheduler: MarbleScheduler, seen: list[tuple[float, Any]]) -> Observer[Any]:
    def note(what: Any) -> None:
        seen.append((scheduler.microseconds / 1000, what))

    return Observer(note, lambda error: note(repr(error)), lambda: note("|"))


def doing(act: Callable[[], object]) -> Callable[..., None]:
    def action(_scheduler: object, _state: object = None) -> None:
        act()

    return action


# -- the scheduler


def test_a_thousand_actions_at_one_time_leave_the_time_where_it_is() -> None:
    scheduler = MarbleScheduler()
    seen: list[tuple[int, int]] = []
    for number in range(1000):
        scheduler.schedule_relative(0.003, doing(lambda number=number: seen.append((number, scheduler.microseconds))))
    scheduler.run()
    assert seen == [(number, 3000) for number in range(1000)]


def test_a_thousand_actions_one_out_of_the_other_leave_the_time_where_it_is() -> None:
    scheduler = MarbleScheduler()
    times: list[int] = []

    def again(*_: object) -> None:
        times.append(scheduler.microseconds)
        if len(times) < 1000:
            scheduler.schedule(again)

    scheduler.schedule_relative(0.001, again)
    scheduler.start()
    assert times == [1000] * 1000


def test_order_is_that_of_time_then_of_scheduling_and_firsts_go_first() -> None:
    scheduler = MarbleScheduler()
    seen: list[str] = []

    def saying(word: str) -> Any:
        return doing(lambda: seen.append(word))

    scheduler.schedule_relative(0.002, saying("third"))
    scheduler.schedule_relative(0.002, saying("fourth"))
    scheduler.schedule_relative(0.003, saying("last"))
    scheduler.schedule_first(EPOCH + timedelta(milliseconds=2), saying("first"))
    scheduler.schedule_first(EPOCH + timedelta(milliseconds=2), saying("second"))
    scheduler.run()
    assert seen == ["first", "second", "third", "fourth", "last"]


def test_what_is_late_happens_now() -> None:
    scheduler = MarbleScheduler()
    times: list[int] = []
    late = doing(lambda: times.append(scheduler.microseconds))
    scheduler.schedule_relative(0.005, doing(lambda: scheduler.schedule_relative(-1.0, late)))
    scheduler.run()
    assert times == [5000]


def test_times_are_whole_microseconds_however_they_add_up() -> None:
    scheduler = MarbleScheduler()
    times: list[int] = []
    rx.interval(0.1, scheduler=scheduler).pipe(ops.take(50)).subscribe(lambda _: times.append(scheduler.microseconds))
    scheduler.run()
    assert times == [100_000 * number for number in range(1, 51)]


@pytest.mark.parametrize("frame", [0, 1, 3, 7, 999, 1001, 86_400_000, 0.25])
def test_the_clock_tells_the_seconds_of_the_frame(frame: float) -> None:
    scheduler = MarbleScheduler()
    scheduler.advance_to(EPOCH + timedelta(milliseconds=frame))
    assert clock_of(scheduler)() == seconds_at(frame) == frame / 1000
    assert scheduler.microseconds == frame * 1000


def test_advancing_runs_what_is_due_and_stands_there() -> None:
    scheduler = MarbleScheduler()
    seen: list[int] = []
    for ms in (1, 2, 3):
        scheduler.schedule_relative(ms / 1000, doing(lambda ms=ms: seen.append(ms)))
    scheduler.advance_by(0.002)
    assert (seen, scheduler.microseconds, scheduler.pending) == ([1, 2], 2000, 1)
    with pytest.raises(ValueError, match="does not go back"):
        scheduler.advance_to(EPOCH)
    scheduler.run()
    assert (seen, scheduler.pending) == ([1, 2, 3], 0)


def test_what_is_cancelled_does_not_happen_and_moves_no_time() -> None:
    scheduler = MarbleScheduler()
    scheduler.schedule_relative(5.0, doing(lambda: pytest.fail("it was cancelled"))).dispose()
    assert scheduler.pending == 0
    scheduler.run()
    assert scheduler.microseconds == 0


def test_what_never_ends_is_an_error() -> None:
    scheduler = MarbleScheduler(max_actions=2_000)
    times: list[int] = []
    rx.interval(0.001, scheduler=scheduler).subscribe(lambda _: times.append(scheduler.microseconds))
    with pytest.raises(RuntimeError, match=r"2,000 actions and no end.*until=.*max_actions="):
        scheduler.run()
    assert times[-1] == 2_000_000
    with pytest.raises(RuntimeError, match="no end"):
        scheduler.run()
    assert times[-1] == 4_000_000, "each run may do as many, and nothing is lost between them"


def test_what_an_action_raises_comes_out_and_the_rest_can_still_run() -> None:
    scheduler = MarbleScheduler()
    seen: list[int] = []

    def breaks(*_: object) -> None:
        raise KeyError("bug")

    scheduler.schedule_relative(0.001, breaks)
    scheduler.schedule_relative(0.002, doing(lambda: seen.append(2)))
    with pytest.raises(KeyError, match="bug"):
        scheduler.run()
    scheduler.run()
    assert seen == [2]


def test_time_does_not_run_inside_itself() -> None:
    scheduler = MarbleScheduler()
    scheduler.schedule(doing(scheduler.run))
    with pytest.raises(RuntimeError, match="time runs already"):
        scheduler.run()


# -- sources


def test_a_cold_source_begins_with_each_subscription_and_logs_it() -> None:
    scheduler = MarbleScheduler()
    source = MarbleSource[str](scheduler, [*at(1, "a"), *at(3, "b"), Notice(4, "completed")], hot=False)
    seen: list[tuple[float, Any]] = []
    source.subscribe(noting(scheduler, seen), scheduler=scheduler)
    scheduler.schedule_relative(0.01, doing(lambda: source.subscribe(noting(scheduler, seen))))
    scheduler.run()
    assert seen == [(1, "a"), (3, "b"), (4, "|"), (11, "a"), (13, "b"), (14, "|")]
    assert source.subscriptions == [Subscription(0, 4), Subscription(10, 14)]
    assert source.schedulers == [scheduler, None]


def test_disposing_stops_a_cold_source_and_leaves_no_timer() -> None:
    scheduler = MarbleScheduler()
    source = MarbleSource[str](scheduler, [*at(1, "a"), *at(5, "b")], hot=False)
    seen: list[tuple[float, Any]] = []
    subscription = source.subscribe(noting(scheduler, seen))
    scheduler.advance_by(0.002)
    assert source.subscriptions == [Subscription(0)]
    subscription.dispose()
    assert (seen, scheduler.pending, source.subscriptions) == ([(1, "a")], 0, [Subscription(0, 2)])


def test_a_hot_source_tells_those_who_are_there() -> None:
    scheduler = MarbleScheduler()
    error = OSError("gone")
    source = MarbleSource[str](scheduler, [*at(-1, "x"), *at(1, "a"), *at(3, "b"), Notice(4, "error", error)], hot=True)
    early: list[tuple[float, Any]] = []
    late: list[tuple[float, Any]] = []
    source.subscribe(noting(scheduler, early))
    scheduler.schedule_relative(0.002, doing(lambda: source.subscribe(noting(scheduler, late))))
    scheduler.run()
    assert early == [(1, "a"), (3, "b"), (4, repr(error))]
    assert late == [(3, "b"), (4, repr(error))]
    assert source.subscriptions == [Subscription(0, 4), Subscription(2, 4)]


@pytest.mark.parametrize("frame", [-2, 1])
def test_who_comes_after_the_end_of_a_hot_source_is_told_of_it(frame: int) -> None:
    scheduler = MarbleScheduler()
    source = MarbleSource[str](scheduler, [Notice(frame, "completed")], hot=True)
    seen: list[tuple[float, Any]] = []
    scheduler.schedule_relative(0.005, doing(lambda: source.subscribe(noting(scheduler, seen))))
    scheduler.run()
    assert seen == [(5, "|")]
    assert source.subscriptions == [Subscription(5, 5)]


def test_who_is_disposed_of_by_another_at_that_moment_is_told_nothing() -> None:
    scheduler = MarbleScheduler()
    source = MarbleSource[str](scheduler, at(1, "a"), hot=True)
    seen: list[str] = []
    source.pipe(ops.do_action(lambda _: second.dispose())).subscribe(seen.append)
    second = source.subscribe(lambda _: pytest.fail("it was disposed of"))
    scheduler.run()
    assert seen == ["a"]


def test_what_lies_before_the_making_of_a_hot_source_is_past() -> None:
    scheduler = MarbleScheduler()
    seen: list[tuple[float, Any]] = []
    scheduler.advance_by(0.01)
    source = MarbleSource[str](scheduler, [*at(2, "a"), *at(12, "b")], hot=True)
    source.subscribe(noting(scheduler, seen))
    scheduler.run()
    assert seen == [(12, "b")]


def test_a_source_can_count_from_a_later_time() -> None:
    scheduler = MarbleScheduler()
    seen: list[tuple[float, Any]] = []
    scheduler.advance_by(0.01)
    source = MarbleSource[str](scheduler, [*at(2, "a"), Notice(3, "completed")], hot=True, zero_us=10_000)
    source.subscribe(noting(scheduler, seen))
    scheduler.run()
    assert seen == [(12, "a"), (13, "|")]
    assert source.subscriptions == [Subscription(0, 3)]
