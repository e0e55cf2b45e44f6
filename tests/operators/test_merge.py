"""`merge_tagged`: values with names and times, completion, errors, disposal."""

from __future__ import annotations

from typing import Any

import pytest
import reactivex as rx
from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import Disposable
from reactivex.subject import Subject
from reactivex.testing import ReactiveTest, TestScheduler

from rx_sampler.demand import Demand, current_demand, demanding
from rx_sampler.operators.merge import Tagged, merge_tagged
from rx_sampler.testing.diagrams import diagram_of
from rx_sampler.testing.marbles import Marbles

from .contests import Probe, outline, raising

on_next, on_completed, subscribed = ReactiveTest.on_next, ReactiveTest.on_completed, ReactiveTest.subscribe


def test_the_diagram() -> None:
    rows = diagram_of(merge_tagged)
    with Marbles() as marbles:
        source, other = marbles.cold(rows["source"]), marbles.cold(rows["other"])
        named = {"A": Tagged("one", "a"), "B": Tagged("one", "b"), "X": Tagged("two", "x"), "Y": Tagged("two", "y")}
        marbles.expect(source.pipe(merge_tagged("one", {"two": other}))).to_be(rows["merge_tagged"], named)
        marbles.expect_subscriptions(source).to_be("^----!")
        marbles.expect_subscriptions(other).to_be("^--------!")


def test_each_value_has_the_name_of_its_stream() -> None:
    clock = TestScheduler()
    source = clock.create_cold_observable(on_next(1, "a"), on_next(4, "b"), on_completed(5))
    other = clock.create_cold_observable(on_next(2, "x"), on_next(4, "z"), on_next(7, "y"), on_completed(8))
    seen = clock.start(lambda: source.pipe(merge_tagged("one", {"two": other})))
    assert seen.messages == [
        on_next(201, Tagged("one", "a")),
        on_next(202, Tagged("two", "x")),
        on_next(204, Tagged("one", "b")),
        on_next(204, Tagged("two", "z")),
        on_next(207, Tagged("two", "y")),
        on_completed(208),
    ]
    assert source.subscriptions == [subscribed(200, 205)]
    assert other.subscriptions == [subscribed(200, 208)]


def test_a_tagged_value_is_taken_apart_like_a_tuple() -> None:
    tag, value = Tagged("one", 1)
    assert (tag, value) == ("one", 1)
    assert Tagged(1, "a").value == "a"


def test_without_others_the_source_is_tagged() -> None:
    seen: list[Tagged[int, str]] = []
    others: dict[int, Observable[str]] = {}
    rx.of("a", "b").pipe(merge_tagged(7, others)).subscribe(seen.append)
    assert seen == [Tagged(7, "a"), Tagged(7, "b")]


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="'one' names the source and one of the others"):
        merge_tagged("one", {"one": rx.of(1)})


def test_the_others_are_those_of_the_call() -> None:
    others = {"two": rx.of(2)}
    merged = rx.of(1).pipe(merge_tagged("one", others))
    others["three"] = rx.of(3)
    seen: list[Tagged[str, int]] = []
    merged.subscribe(seen.append)
    assert seen == [Tagged("one", 1), Tagged("two", 2)]


@pytest.mark.parametrize("subscriptions", [1, 2])
def test_streams_that_end_while_they_are_subscribed_to(subscriptions: int) -> None:
    def at_once(*values: int) -> Observable[int]:
        def subscribe(observer: abc.ObserverBase[int], _scheduler: Any = None) -> abc.DisposableBase:
            for value in values:
                observer.on_next(value)
            observer.on_completed()
            return Disposable()

        return Observable(subscribe)

    merged = at_once(1, 2).pipe(merge_tagged("one", {"two": at_once(), "three": at_once(3)}))
    for _ in range(subscriptions):
        seen: list[Tagged[str, int] | str] = []
        merged.subscribe(seen.append, on_completed=lambda seen=seen: seen.append("end"))
        assert seen == [Tagged("one", 1), Tagged("one", 2), Tagged("three", 3), "end"]


def test_an_error_of_one_ends_all() -> None:
    clock = TestScheduler()
    bug = TypeError("a bug")
    source = clock.create_cold_observable(on_next(1, "a"), on_next(9, "b"))
    other = clock.create_cold_observable(ReactiveTest.on_error(5, bug))
    seen = clock.start(lambda: source.pipe(merge_tagged("one", {"two": other})))
    assert outline(seen) == [(201, "N"), (205, "E")]
    end: Any = seen.messages[-1].value
    assert end.exception is bug
    assert source.subscriptions == [subscribed(200, 205)]


def test_a_stream_that_cannot_be_subscribed_to_ends_all() -> None:
    bug = RuntimeError("no")
    source, third = Probe(), Probe()
    errors: list[Exception] = []
    source.pipe(merge_tagged(1, {2: raising(bug), 3: third})).subscribe(on_error=errors.append)
    assert errors == [bug]
    assert (source.active, third.subscriptions) == (0, 0)


def test_dispose_disposes_all() -> None:
    clock = TestScheduler()
    streams = [clock.create_cold_observable(on_next(at, at), on_completed(at + 5)) for at in (3, 5, 30)]
    seen = clock.start(lambda: streams[0].pipe(merge_tagged(0, {1: streams[1], 2: streams[2]})), disposed=220)
    assert seen.messages == [on_next(203, Tagged(0, 3)), on_next(205, Tagged(1, 5))]
    assert [stream.subscriptions for stream in streams] == [
        [subscribed(200, 208)],
        [subscribed(200, 210)],
        [subscribed(200, 220)],
    ]


def test_dispose_from_inside_on_next() -> None:
    source: Subject[int] = Subject()
    other: Subject[int] = Subject()
    seen: list[Tagged[str, int]] = []
    source.pipe(merge_tagged("one", {"two": other}), ops.take(1)).subscribe(seen.append)
    other.on_next(1)
    source.on_next(2)
    assert seen == [Tagged("two", 1)]
    assert (source.observers, other.observers) == ([], [])


def test_scheduler_and_demand_reach_all() -> None:
    given: list[tuple[abc.SchedulerBase | None, Demand | None]] = []

    def subscribe(_observer: abc.ObserverBase[int], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        given.append((scheduler, current_demand()))
        return Disposable()

    clock, demand = TestScheduler(), Demand()
    stream = Observable(subscribe)
    with demanding(demand):
        stream.pipe(merge_tagged("one", {"two": stream})).subscribe(scheduler=clock)
    assert given == [(clock, demand)] * 2
