"""`hedge`: when the second stream begins, that its timer goes, and each way in which the two may end."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from reactivex.subject import Subject
from reactivex.testing import TestScheduler

from rx_sampler.demand import Demand, demanding
from rx_sampler.errors import SamplingErrorKind
from rx_sampler.events import SamplingEvent
from rx_sampler.operators.contest import RaceOutcome
from rx_sampler.operators.hedge import hedge
from rx_sampler.testing import run_virtual
from rx_sampler.testing.diagrams import diagram_of
from rx_sampler.testing.marbles import Marbles, drawn

from .contests import (
    Probe,
    Seen,
    Timers,
    cold,
    done,
    failed,
    on_completed,
    on_next,
    outline,
    raising,
    started,
    subscribed,
    token,
    watch,
)


def test_the_diagram() -> None:
    rows = diagram_of(hedge)
    with Marbles() as marbles:
        source, other = marbles.events(rows["source"], request_id="a"), marbles.events(rows["other"], request_id="b")
        said = dict(zip("SFxC", drawn(rows["other"], request_id="b"), strict=True))
        marbles.expect(source.pipe(hedge(0.004, other))).to_be(rows["hedge"], said)
        marbles.expect_subscriptions(source).to_be("^------!")
        marbles.expect_subscriptions(other).to_be("----^--------!")


def test_the_second_begins_where_the_first_is_slow() -> None:
    clock = TestScheduler()
    slow = cold(clock, (1, started("a")), (60, token("a")), (70, done("a")))
    other = cold(clock, (1, started("b")), (5, token("b")), (9, done("b")))
    outcomes: list[RaceOutcome] = []
    seen = watch(clock, slow.pipe(hedge(30, other, outcomes.append)))
    assert seen.messages == [
        on_next(235, started("b")),
        on_next(235, token("b")),
        on_next(239, done("b")),
        on_completed(240),
    ]
    assert slow.subscriptions == [subscribed(200, 235)]
    assert other.subscriptions == [subscribed(230, 240)]
    assert outcomes == [RaceOutcome(winner=1, cancelled=(0,), failed=())]


def test_without_another_the_source_is_asked_again() -> None:
    clock = TestScheduler()
    source = cold(clock, (1, started("a")), (50, token("a")), (60, done("a")))
    outcomes: list[RaceOutcome] = []
    seen = watch(clock, source.pipe(hedge(30, on_decided=outcomes.append)))
    assert seen.messages == [
        on_next(250, started("a")),
        on_next(250, token("a")),
        on_next(260, done("a")),
        on_completed(261),
    ]
    assert source.subscriptions == [subscribed(200, 261), subscribed(230, 250)]
    assert outcomes == [RaceOutcome(winner=0, cancelled=(1,), failed=())]
    assert outcomes[0].started == 2


@pytest.mark.parametrize("at", [29, 30])
def test_a_first_that_is_quick_enough_is_alone(at: int) -> None:
    # Exactly at the time is quick enough.
    clock = Timers()
    source = cold(clock, (1, started("a")), (at, token("a")), (60, done("a")))
    other = cold(clock, (1, token("b")))
    outcomes: list[RaceOutcome] = []
    seen = watch(clock, source.pipe(hedge(30, other, outcomes.append)))
    assert outline(seen) == [(200 + at, "N"), (200 + at, "N"), (260, "N"), (261, "C")]
    assert other.subscriptions == []
    assert outcomes == [RaceOutcome(winner=0, cancelled=(), failed=())]
    assert outcomes[0].started == 1


def test_the_timer_goes_with_the_decision() -> None:
    clock = Timers()
    source = Probe()
    source.pipe(hedge(30, Probe())).subscribe(scheduler=clock)
    assert clock.pending == 1
    source.say(token("a"))
    assert clock.pending == 0


def test_a_failure_before_content_begins_the_second_at_once() -> None:
    clock = Timers()
    source = cold(clock, (1, started("a")), (4, failed("a")))
    other = cold(clock, (2, started("b")), (40, token("b")), (50, done("b")))
    outcomes: list[RaceOutcome] = []
    seen = watch(clock, source.pipe(hedge(30, other, outcomes.append)))
    assert seen.messages == [
        on_next(244, started("b")),
        on_next(244, token("b")),
        on_next(254, done("b")),
        on_completed(255),
    ]
    assert source.subscriptions == [subscribed(200, 204)]
    assert other.subscriptions == [subscribed(204, 255)]
    assert outcomes == [RaceOutcome(winner=1, cancelled=(), failed=(failed("a"),))]


def test_the_timer_goes_with_the_failure() -> None:
    clock = Timers()
    source, other = Probe(), Probe()
    source.pipe(hedge(30, other)).subscribe(scheduler=clock)
    source.say(failed("a"))
    assert (clock.pending, source.active, other.active) == (0, 0, 1)


def test_a_failure_after_the_second_began_leaves_it_to_that() -> None:
    clock = TestScheduler()
    source = cold(clock, (1, started("a")), (34, failed("a")))
    other = cold(clock, (2, started("b")), (8, token("b")), (9, done("b")))
    outcomes: list[RaceOutcome] = []
    seen = watch(clock, source.pipe(hedge(30, other, outcomes.append)))
    assert outline(seen) == [(238, "N"), (238, "N"), (239, "N"), (240, "C")]
    assert source.subscriptions == [subscribed(200, 234)]
    assert outcomes == [RaceOutcome(winner=1, cancelled=(), failed=(failed("a"),))]


def test_a_second_that_fails_leaves_it_to_the_first() -> None:
    clock = TestScheduler()
    source = cold(clock, (1, started("a")), (50, token("a")), (60, done("a")))
    other = cold(clock, (2, failed("b")))
    outcomes: list[RaceOutcome] = []
    seen = watch(clock, source.pipe(hedge(30, other, outcomes.append)))
    assert outline(seen) == [(250, "N"), (250, "N"), (260, "N"), (261, "C")]
    assert outcomes == [RaceOutcome(winner=0, cancelled=(), failed=(failed("b"),))]


def test_where_both_fail_the_last_failure_passes() -> None:
    clock = TestScheduler()
    source = cold(clock, (1, started("a")), (40, failed("a")))
    other = cold(clock, (2, started("b")), (7, failed("b")))
    outcomes: list[RaceOutcome] = []
    seen = watch(clock, source.pipe(hedge(30, other, outcomes.append)))
    assert seen.messages == [on_next(240, started("a")), on_next(240, failed("a")), on_completed(241)]
    assert outcomes == [RaceOutcome(winner=None, cancelled=(), failed=(failed("b"), failed("a")))]


@pytest.mark.parametrize("kind", [SamplingErrorKind.CANCELLED, SamplingErrorKind.INVALID_REQUEST])
def test_a_failure_that_another_request_does_not_mend_passes(kind: SamplingErrorKind) -> None:
    clock = Timers()
    source, other = Probe(), Probe()
    outcomes: list[RaceOutcome] = []
    seen = Seen(source.pipe(hedge(30, other, outcomes.append)), clock)
    source.say(started("a"), failed("a", kind))
    source.observer.on_completed()
    assert (seen.events, seen.completions) == ([started("a"), failed("a", kind)], 1)
    assert (other.subscriptions, clock.pending) == (0, 0)
    assert outcomes == [RaceOutcome(winner=None, cancelled=(), failed=(failed("a", kind),))]


def test_a_function_is_asked_at_each_subscription() -> None:
    waits = iter([30.0, 10.0])
    second = Probe()
    hedged = Probe().pipe(hedge(lambda: next(waits), second))
    for times, begins in enumerate((30.0, 10.0), 1):
        clock = TestScheduler()
        hedged.subscribe(scheduler=clock)
        clock.advance_to(begins - 1)
        assert second.subscriptions == times - 1
        clock.advance_to(begins)
        assert second.subscriptions == times


@pytest.mark.parametrize("wait_s", [math.inf, lambda: math.inf])
def test_an_infinite_wait_never_ends(wait_s: Any) -> None:
    # Nor does it need a loop or a scheduler.
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(hedge(wait_s, other)))
    source.say(failed("a"))
    other.say(token("b"))
    assert seen.events == [token("b")]


@pytest.mark.parametrize("wait_s", [-0.1, math.nan])
def test_a_wait_that_is_none_is_refused(wait_s: float) -> None:
    with pytest.raises(ValueError, match=f"after_s is {wait_s}"):
        hedge(wait_s)
    source = Probe()
    seen = Seen(source.pipe(hedge(lambda: wait_s)), TestScheduler())
    assert [type(error) for error in seen.errors] == [ValueError]
    assert source.subscriptions == 0


def test_without_a_loop_nothing_is_sent() -> None:
    source = Probe()
    seen = Seen(source.pipe(hedge(1.0)))
    assert [type(error) for error in seen.errors] == [RuntimeError]
    assert source.subscriptions == 0


def test_without_a_scheduler_the_running_loop_is_the_clock() -> None:
    async def begins_at() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        at: list[float] = []
        begun = asyncio.Event()

        class Second(Probe):
            def _begin(self, observer: Any, scheduler: Any = None) -> Any:
                at.append(loop.time() - began)
                begun.set()
                return super()._begin(observer, scheduler)

        first, second = Probe(), Second()
        subscription = first.pipe(hedge(2.5, second)).subscribe()
        await begun.wait()
        assert (first.schedulers, second.schedulers) == ([None], [None])
        subscription.dispose()
        assert (first.active, second.active) == (0, 0)
        return at[0]

    assert run_virtual(begins_at()) == 2.5


# -- disposal


def test_dispose_before_the_second_begins_removes_the_timer() -> None:
    clock = Timers()
    source, other = Probe(), Probe()
    subscription = source.pipe(hedge(30, other)).subscribe(scheduler=clock)
    clock.advance_to(29)
    subscription.dispose()
    assert (source.active, clock.pending) == (0, 0)
    clock.advance_to(100)
    assert other.subscriptions == 0


def test_dispose_while_both_run_disposes_both() -> None:
    clock = TestScheduler()
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(hedge(30, other)), clock)
    clock.advance_to(30)
    assert (source.active, other.active) == (1, 1)
    seen.subscription.dispose()
    assert (source.active, other.active) == (0, 0)
    assert (seen.events, seen.completions, seen.errors) == ([], 0, [])


def test_dispose_from_inside_on_next() -> None:
    clock = Timers()
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(hedge(30, other)), clock, lambda seen, _event: seen.subscription.dispose())
    source.say(started("a"), token("a"))
    assert (seen.events, source.active, clock.pending) == ([started("a")], 0, 0)


def test_a_first_that_answers_while_it_is_subscribed_to_sets_no_timer() -> None:
    clock = Timers()
    told = [started("a"), token("a"), done("a")]
    source, other = Probe(*told, completes=True), Probe()
    seen = Seen(source.pipe(hedge(30, other)), clock)
    assert (seen.events, seen.completions, clock.made, other.subscriptions) == (told, 1, 0, 0)


def test_a_first_that_fails_while_it_is_subscribed_to_sets_no_timer() -> None:
    clock = Timers()
    source, other = Probe(failed("a"), completes=True), Probe()
    seen = Seen(source.pipe(hedge(30, other)), clock)
    assert (other.subscriptions, clock.made) == (1, 0)
    other.say(token("b"))
    assert seen.events == [token("b")]


# -- demand


def test_the_second_runs_under_the_demand_of_the_consumer() -> None:
    clock = TestScheduler()
    source, other, demand = Probe(), Probe(), Demand()
    with demanding(demand):
        source.pipe(hedge(30, other)).subscribe(scheduler=clock)
    clock.advance_to(30)
    assert (source.demands, other.demands) == ([demand], [demand])


def test_a_request_that_waits_for_its_consumer_is_not_slow() -> None:
    clock = Timers()
    source, other, demand = Probe(), Probe(), Demand()
    with demanding(demand):
        source.pipe(hedge(30, other)).subscribe(scheduler=clock)
    clock.advance_to(20)
    demand.hold()
    clock.advance_to(50)
    assert (other.subscriptions, clock.pending) == (0, 0)
    demand.release()
    clock.advance_to(60)
    demand.hold()
    demand.release()  # sets no second timer
    assert clock.pending == 1
    clock.advance_to(79)
    assert other.subscriptions == 0
    clock.advance_to(80)
    assert (other.subscriptions, clock.pending) == (1, 0)


def test_after_the_end_a_release_begins_nothing() -> None:
    clock = Timers()
    source, other, demand = Probe(), Probe(), Demand()
    with demanding(demand):
        subscription = source.pipe(hedge(30, other)).subscribe(scheduler=clock)
    demand.hold()
    clock.advance_to(40)
    subscription.dispose()
    demand.release()
    assert clock.pending == 0


# -- bugs


def test_a_second_that_cannot_be_subscribed_to_ends_the_first() -> None:
    clock = TestScheduler()
    bug = RuntimeError("no")
    source = Probe()
    seen = Seen(source.pipe(hedge(30, raising(bug))), clock)
    clock.advance_to(30)
    assert (seen.errors, seen.events, source.active) == ([bug], [], 0)


def test_an_error_of_the_first_ends_the_second() -> None:
    clock = TestScheduler()
    bug = TypeError("a bug")
    source: Subject[SamplingEvent] = Subject()
    other = Probe()
    seen = Seen(source.pipe(hedge(30, other)), clock)
    clock.advance_to(30)
    source.on_error(bug)
    assert (seen.errors, other.active) == ([bug], 0)
