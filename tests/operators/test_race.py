"""`race`: who wins and when, what is let out, what becomes of the others, and each way in which it may end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import reactivex as rx
from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import Disposable
from reactivex.scheduler import ImmediateScheduler
from reactivex.subject import Subject
from reactivex.testing import TestScheduler

from rx_sampler import RetryPolicy, Sampler, SamplerConfig
from rx_sampler.demand import Demand, demanding
from rx_sampler.events import (
    BackendToolCallStarted,
    ChannelToken,
    Completed,
    Failed,
    ModelMetadata,
    ReasoningCompleted,
    ResponseStarted,
    SamplingEvent,
)
from rx_sampler.flow import from_async_iterable, subscribe_with_demand
from rx_sampler.operators.contest import MAX_HELD, RaceOutcome
from rx_sampler.operators.race import race
from rx_sampler.simulator import Simulator, Timing, Turn
from rx_sampler.testing import run_virtual
from rx_sampler.testing.diagrams import diagram_of
from rx_sampler.testing.marbles import Marbles, drawn

from .contests import (
    Probe,
    Seen,
    cold,
    done,
    failed,
    first,
    on_completed,
    on_error,
    on_next,
    outline,
    raising,
    retrying,
    started,
    subscribed,
    token,
    tool,
    watch,
)


def test_the_diagram() -> None:
    rows = diagram_of(race)
    with Marbles() as marbles:
        source, other = marbles.events(rows["source"], request_id="a"), marbles.events(rows["other"], request_id="b")
        said = dict(zip("SFxyC", drawn(rows["other"], request_id="b"), strict=True))
        marbles.expect(source.pipe(race(other))).to_be(rows["race"], said)
        marbles.expect_subscriptions(source).to_be("^----!")
        marbles.expect_subscriptions(other).to_be("^------------!")


def test_the_first_with_content_is_followed_and_the_other_disposed() -> None:
    clock = TestScheduler()
    slow = cold(clock, (1, started("a")), (8, first("a")), (8, token("a")), (13, done("a")))
    quick = cold(clock, (1, started("b")), (5, first("b")), (5, token("b")), (9, token("b", "b")), (11, done("b")))
    outcomes: list[RaceOutcome] = []
    seen = watch(clock, slow.pipe(race(quick, on_decided=outcomes.append)))
    assert seen.messages == [
        on_next(205, started("b")),
        on_next(205, first("b")),
        on_next(205, token("b")),
        on_next(209, token("b", "b")),
        on_next(211, done("b")),
        on_completed(212),
    ]
    assert slow.subscriptions == [subscribed(200, 205)]
    assert quick.subscriptions == [subscribed(200, 212)]
    assert outcomes == [RaceOutcome(winner=1, cancelled=(0,), failed=())]
    assert outcomes[0].started == 2


@pytest.mark.parametrize("content", [first("a"), token("a"), token("a", channel="reasoning"), tool("a"), done("a")])
def test_each_kind_of_content_decides(content: SamplingEvent) -> None:
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(race(other)))
    source.say(started("a"))
    assert (seen.events, other.active) == ([], 1)
    source.say(content)
    assert seen.events == [started("a"), content]
    assert (source.active, other.active) == (1, 0)


def test_what_is_no_content_decides_nothing() -> None:
    stamp: Any = {"request_id": "a", "attempt": 1, "ts": 0.0}
    said = [
        started("a"),
        ModelMetadata(**stamp, model="m"),
        ResponseStarted(**stamp),
        ReasoningCompleted(**stamp, signature="s"),
        BackendToolCallStarted(**stamp, call_id="1", name="search"),
        retrying("a"),
    ]
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(race(other)))
    source.say(*said)
    assert (seen.events, source.active, other.active) == ([], 1, 1)
    source.say(token("a"))
    assert seen.events == [*said, token("a")]


def test_who_fails_before_content_is_out() -> None:
    clock = TestScheduler()
    source = cold(clock, (1, started("a")), (3, failed("a")))
    other = cold(clock, (1, started("b")), (7, token("b")), (9, done("b")))
    outcomes: list[RaceOutcome] = []
    seen = watch(clock, source.pipe(race(other, on_decided=outcomes.append)))
    assert seen.messages == [
        on_next(207, started("b")),
        on_next(207, token("b")),
        on_next(209, done("b")),
        on_completed(210),
    ]
    assert source.subscriptions == [subscribed(200, 203)]
    assert outcomes == [RaceOutcome(winner=1, cancelled=(), failed=(failed("a"),))]


def test_where_all_fail_the_last_failure_comes_with_what_its_stream_had_said() -> None:
    clock = TestScheduler()
    streams = [
        cold(clock, (1, started("a")), (5, failed("a"))),
        cold(clock, (2, started("b")), (9, failed("b"))),
        cold(clock, (1, started("c")), (7, failed("c"))),
    ]
    outcomes: list[RaceOutcome] = []
    seen = watch(clock, streams[0].pipe(race(*streams[1:], on_decided=outcomes.append)))
    assert seen.messages == [on_next(209, started("b")), on_next(209, failed("b")), on_completed(210)]
    assert outcomes == [RaceOutcome(winner=None, cancelled=(), failed=(failed("a"), failed("c"), failed("b")))]
    assert outcomes[0].started == 3


def test_a_winner_that_fails_later_stays_the_winner() -> None:
    clock = TestScheduler()
    source = cold(clock, (3, token("a")), (6, failed("a")))
    other = cold(clock, (4, token("b")), (9, done("b")))
    seen = watch(clock, source.pipe(race(other)))
    assert seen.messages == [on_next(203, token("a")), on_next(206, failed("a")), on_completed(207)]
    assert other.subscriptions == [subscribed(200, 203)]


def test_who_has_said_too_much_to_be_held_wins() -> None:
    source, other = Probe(), Probe()
    outcomes: list[RaceOutcome] = []
    seen = Seen(source.pipe(race(other, on_decided=outcomes.append)))
    other.say(*[retrying("b")] * (MAX_HELD - 1))
    assert (seen.events, source.active) == ([], 1)
    other.say(retrying("b"))
    assert seen.events == [retrying("b")] * MAX_HELD
    assert (source.active, other.active) == (0, 1)
    assert outcomes == [RaceOutcome(winner=1, cancelled=(0,), failed=())]


def test_a_stream_that_ends_without_a_terminal_event_is_out() -> None:
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(race(other)))
    source.say(started("a"))
    source.observer.on_completed()
    assert (seen.completions, other.active) == (0, 1)
    other.say(started("b"))
    other.observer.on_completed()
    assert (seen.events, seen.completions, seen.errors) == ([started("b")], 1, [])


def test_a_race_of_one_holds_back_and_lets_out() -> None:
    clock = TestScheduler()
    seen = watch(clock, cold(clock, (1, started("a")), (4, token("a")), (6, done("a"))).pipe(race()))
    assert seen.messages == [
        on_next(204, started("a")),
        on_next(204, token("a")),
        on_next(206, done("a")),
        on_completed(207),
    ]


# -- disposal


@pytest.mark.parametrize("at", [203, 206])
def test_dispose_disposes_whatever_runs(at: int) -> None:
    clock = TestScheduler()
    source = cold(clock, (1, started("a")), (5, token("a")), (9, done("a")))
    other = cold(clock, (1, started("b")), (8, token("b")))
    seen = watch(clock, source.pipe(race(other)), disposed=at)
    assert seen.messages == ([on_next(205, started("a")), on_next(205, token("a"))] if at > 205 else [])
    assert source.subscriptions == [subscribed(200, at)]
    assert other.subscriptions == [subscribed(200, min(at, 205))]


def test_dispose_from_inside_on_next_lets_nothing_more_out() -> None:
    source, other = Probe(), Probe()
    outcomes: list[RaceOutcome] = []
    seen = Seen(source.pipe(race(other, on_decided=outcomes.append)), act=lambda seen, _: seen.subscription.dispose())
    source.say(started("a"), first("a"), token("a"))
    assert seen.events == [started("a")]
    assert (source.active, other.active) == (0, 0)
    assert (seen.completions, seen.errors) == (0, [])


def test_dispose_from_inside_on_decided_lets_nothing_out() -> None:
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(race(other, on_decided=lambda _outcome: seen.subscription.dispose())))
    source.say(started("a"), token("a"))
    assert (seen.events, source.active, other.active) == ([], 0, 0)


def test_a_consumer_that_has_enough_disposes_the_winner() -> None:
    clock = TestScheduler()
    source = cold(clock, (1, started("a")), (5, token("a")), (9, done("a")))
    seen = watch(clock, source.pipe(race(cold(clock, (1, started("b")))), ops.take(1)))
    assert seen.messages == [on_next(205, started("a")), on_completed(205)]
    assert source.subscriptions == [subscribed(200, 205)]


# -- what comes while something else happens


def test_what_the_winner_says_while_it_is_let_out_stands_behind() -> None:
    source = Probe()

    def act(seen: Seen, event: SamplingEvent) -> None:
        if event == started("a"):
            source.say(token("a", "b"), done("a"))
            source.observer.on_completed()
            assert seen.completions == 0

    seen = Seen(source.pipe(race()), act=act)
    source.say(started("a"), token("a"))
    assert seen.events == [started("a"), token("a"), token("a", "b"), done("a")]
    assert (seen.completions, seen.errors, source.active) == (1, [], 0)


def test_what_the_winner_says_while_the_outcome_is_told_stands_behind() -> None:
    source = Probe()
    outcomes: list[RaceOutcome] = []

    def on_decided(outcome: RaceOutcome) -> None:
        outcomes.append(outcome)
        source.say(token("a", "b"))

    seen = Seen(source.pipe(race(on_decided=on_decided)))
    source.say(started("a"), token("a"))
    assert seen.events == [started("a"), token("a"), token("a", "b")]
    assert len(outcomes) == 1


def test_a_stream_that_answers_while_it_is_subscribed_to_keeps_the_others_from_starting() -> None:
    source, other = Probe(started("a"), token("a"), done("a"), completes=True), Probe()
    outcomes: list[RaceOutcome] = []
    seen = Seen(source.pipe(race(other, on_decided=outcomes.append)))
    assert (seen.events, seen.completions) == ([started("a"), token("a"), done("a")], 1)
    assert (source.active, other.subscriptions) == (0, 0)
    assert outcomes == [RaceOutcome(winner=0, cancelled=(), failed=())]
    assert outcomes[0].started == 1


def test_a_stream_that_fails_while_it_is_subscribed_to_leaves_it_to_the_others() -> None:
    source, other = Probe(started("a"), failed("a"), completes=True), Probe(started("b"))
    seen = Seen(source.pipe(race(other)))
    assert (seen.events, source.active, other.active) == ([], 0, 1)
    other.say(token("b"))
    assert seen.events == [started("b"), token("b")]


def test_a_loser_that_cannot_be_stopped_is_not_heard() -> None:
    # It wins for the other while it is subscribed to, and goes on: its subscription cannot be disposed yet.
    source = Probe()

    def subscribe(
        observer: abc.ObserverBase[SamplingEvent], _scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        observer.on_next(started("b"))
        source.say(started("a"), token("a"))
        observer.on_next(token("b"))
        observer.on_next(done("b"))
        observer.on_completed()
        return Disposable()

    seen = Seen(source.pipe(race(Observable(subscribe))))
    assert (seen.events, seen.completions) == ([started("a"), token("a")], 0)
    assert source.active == 1


@pytest.mark.parametrize("scheduler", [None, ImmediateScheduler()])
def test_lists_race_too(scheduler: Any) -> None:
    told = [started("a"), token("a"), done("a")]
    other = rx.from_iterable([started("b"), token("b"), done("b")])
    seen = Seen(rx.from_iterable(told).pipe(race(other)), scheduler)
    assert (seen.events, seen.completions, seen.errors) == (told, 1, [])


def test_each_subscription_is_a_race_of_its_own() -> None:
    source, other = Probe(), Probe()
    raced = source.pipe(race(other))
    for winner, of in ((source, "a"), (other, "b")):
        seen = Seen(raced)
        winner.say(started(of), token(of), done(of))
        winner.observer.on_completed()
        assert (seen.events, seen.completions) == ([started(of), token(of), done(of)], 1)
        assert (source.active, other.active) == (0, 0)
    assert (source.subscriptions, other.subscriptions) == (2, 2)


def test_the_scheduler_is_forwarded_to_all() -> None:
    clock = TestScheduler()
    source, other = Probe(), Probe()
    source.pipe(race(other)).subscribe(scheduler=clock)
    assert (source.schedulers, other.schedulers) == ([clock], [clock])


def test_all_run_under_the_demand_of_the_consumer() -> None:
    source, other, demand = Probe(), Probe(), Demand()
    with demanding(demand):
        source.pipe(race(other)).subscribe()
    assert (source.demands, other.demands) == ([demand], [demand])


def test_while_the_consumer_wants_nothing_all_of_them_wait() -> None:
    asked: list[str] = []

    async def telling(of: str) -> AsyncIterator[SamplingEvent]:
        for event in (started(of), token(of), token(of, "b"), done(of)):
            asked.append(of)
            yield event

    async def main() -> None:
        got: list[SamplingEvent] = []
        streams = [from_async_iterable(partial(telling, of)) for of in "ab"]
        subscription = subscribe_with_demand(streams[0].pipe(race(streams[1])), got.append)
        await asyncio.sleep(1)
        assert asked == []
        subscription.request(1)
        await asyncio.sleep(1)
        assert (asked, got) == (["a", "a"], [started("a")])  # its token waits for the next request
        subscription.request(math.inf)
        await asyncio.sleep(1)
        assert (asked, got) == (["a"] * 4, [started("a"), token("a"), token("a", "b"), done("a")])

    run_virtual(main())


# -- bugs


def test_a_stream_that_cannot_be_subscribed_to_ends_the_race() -> None:
    bug = RuntimeError("no loop")
    source, third = Probe(), Probe()
    seen = Seen(source.pipe(race(raising(bug), third)))
    assert (seen.events, seen.errors, seen.completions) == ([], [bug], 0)
    assert (source.active, third.subscriptions) == (0, 0)


def test_an_error_before_the_decision_ends_the_race() -> None:
    clock = TestScheduler()
    bug = TypeError("a bug")
    source = cold(clock, (1, started("a")), (8, token("a")))
    other = clock.create_cold_observable(on_next(2, started("b")), on_error(5, bug))
    seen = watch(clock, source.pipe(race(other)))
    assert outline(seen) == [(205, "E")]
    end: Any = seen.messages[0].value
    assert end.exception is bug
    assert source.subscriptions == [subscribed(200, 205)]


def test_an_error_of_the_winner_passes() -> None:
    source = Probe()
    seen = Seen(source.pipe(race(Probe())))
    bug = TypeError("a bug")
    source.say(token("a"))
    source.observer.on_error(bug)
    assert (seen.events, seen.errors, seen.completions) == ([token("a")], [bug], 0)


def test_what_a_subscriber_raises_goes_to_the_source() -> None:
    source, other = Probe(), Probe()
    bug = TypeError("a bug")

    def act(_seen: Seen, event: SamplingEvent) -> None:
        if event == started("a"):
            raise bug

    seen = Seen(source.pipe(race(other)), act=act)
    with pytest.raises(TypeError) as raised:
        source.say(started("a"), token("a"))
    assert raised.value is bug
    assert (source.active, other.active) == (1, 0)
    source.observer.on_error(bug)
    assert (seen.errors, source.active) == ([bug], 0)


def test_what_on_decided_raises_is_as_raised_by_the_subscriber() -> None:
    bug = TypeError("a bug")
    other = Probe()

    def on_decided(_outcome: RaceOutcome) -> None:
        raise bug

    seen = Seen(rx.from_iterable([started("a"), token("a"), done("a")]).pipe(race(other, on_decided=on_decided)))
    assert (seen.errors, seen.completions, other.active) == ([bug], 0, 0)


# -- over sockets


async def test_the_losers_connections_are_closed() -> None:
    slow, quick = Timing(time_to_first_token_s=3600.0, jitter=0.0), Timing.instant()

    def sampler_of(simulator: Simulator) -> Sampler:
        config = {"base_url": simulator.base_url, "backend": "chat_completions", "model": "m"}
        return Sampler(SamplerConfig.model_validate({**config, "retry": RetryPolicy(max_retries=0)}))

    outcomes: list[RaceOutcome] = []
    async with (
        asyncio.timeout(20),
        Simulator(timing=slow) as sloth,
        Simulator(timing=quick, script=[Turn(text="here I am")]) as hare,
        sampler_of(sloth) as slow_one,
        sampler_of(hare) as quick_one,
    ):
        go: Subject[None] = Subject()
        late = go.pipe(ops.flat_map(lambda _: quick_one.stream("and you")), ops.take_while(is_open, inclusive=True))
        raced = slow_one.stream("tell me").pipe(race(slow_one.stream("tell me too"), late, on_decided=outcomes.append))
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        seen = Seen(raced, act=lambda _, event: None if is_open(event) else ended.set_result(None))
        await sloth.wait_received(2)
        assert sloth.active_count == 2
        go.on_next(None)
        await ended
        assert isinstance(seen.events[-1], Completed)
        assert "".join(event.text for event in seen.events if isinstance(event, ChannelToken)) == "here I am"
        assert outcomes == [RaceOutcome(winner=2, cancelled=(0, 1), failed=())]
        await sloth.wait_idle()  # its handlers end in an hour, or when their clients are gone
        assert (sloth.active_count, len(sloth.requests)) == (0, 2)


def is_open(event: SamplingEvent) -> bool:
    return not isinstance(event, Completed | Failed)
