"""`smooth`: when each event comes out, in virtual time; a unit of the test scheduler is a second."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, Final

import pytest
from counted_calls import calls_during
from hypothesis import given
from hypothesis import strategies as st
from reactivex import abc
from reactivex.subject import Subject
from reactivex.testing import ReactiveTest, TestScheduler

from rx_sampler.demand import Demand, current_demand, demanding
from rx_sampler.events import DoomLoopSignals, SamplingEvent
from rx_sampler.operators.pacing import smooth
from rx_sampler.testing import run_virtual

from .assembling import MOST, completed, delta, failed, first, retrying, started, token

on_next, on_completed, on_error = ReactiveTest.on_next, ReactiveTest.on_completed, ReactiveTest.on_error

# In whole seconds, so that every time is exact: a tick each 10 s, nothing later than 30 s.
EVEN: Final = smooth(10.0, 30.0)


class Counting(TestScheduler):
    """Counts the timers that are set, and those that fire."""

    timers = 0
    fired = 0

    def schedule_relative(self, duetime: Any, action: Any, state: Any = None) -> abc.DisposableBase:
        def counted(scheduler: abc.SchedulerBase, state: Any = None) -> Any:
            self.fired += 1
            return action(scheduler, state)

        self.timers += 1
        return super().schedule_relative(duetime, counted, state)


def run(*messages: Any, operator: Any = EVEN, until: float = 10_000.0) -> tuple[list[tuple[float, Any]], Counting]:
    """What comes out and when, counted from the subscription; and the clock."""
    clock = Counting()
    source: Any = clock.create_cold_observable(*messages)
    seen = clock.start(lambda: source.pipe(operator), disposed=200 + until)
    clock.timers -= len(messages)  # the source's own
    return [(message.time - 200, _content(message.value)) for message in seen.messages], clock


def _content(notification: Any) -> Any:
    return {"N": lambda: notification.value, "E": lambda: notification.exception, "C": lambda: "|"}[notification.kind]()


def tokens(*texts: str) -> list[SamplingEvent]:
    return [token(text, index) for index, text in enumerate(texts, 1)]


def test_a_slow_source_is_not_delayed_and_sets_no_timer() -> None:
    a, b, c = tokens("a", "b", "c")
    seen, clock = run(
        on_next(5, started()),
        on_next(6, first()),
        on_next(6, a),
        on_next(16, b),
        on_next(40, c),
        on_next(40, completed("abc")),
        on_completed(41),
    )
    assert seen == [(5, started()), (6, first()), (6, a), (16, b), (40, c), (40, completed("abc")), (41, "|")]
    assert clock.timers == 0


def test_a_burst_comes_out_evenly_and_in_time() -> None:
    burst = tokens(*"abcdefgh")
    seen, clock = run(*(on_next(5, one) for one in burst), on_next(6, completed("abcdefgh")), on_completed(7))
    a, b, c, d, e, f, g, h = burst
    # Seven wait; ticks at 15, 25 and 35 are in time: three, three and the last with what follows it.
    assert seen == [
        (5, a),
        (15, b),
        (15, c),
        (15, d),
        (25, e),
        (25, f),
        (25, g),
        (35, h),
        (35, completed("abcdefgh")),
        (35, "|"),
    ]
    assert clock.timers == 3


def test_few_tokens_come_one_by_one() -> None:
    a, b, c = tokens("a", "b", "c")
    seen, _ = run(on_next(5, a), on_next(6, b), on_next(7, c))
    assert seen == [(5, a), (15, b), (25, c)]


def test_after_a_tick_the_next_token_keeps_the_interval() -> None:
    a, b, c, d = tokens(*"abcd")
    seen, _ = run(on_next(5, a), on_next(6, b), on_next(16, c), on_next(35, d))
    # c comes a second after b was let out at 15; d, ten seconds after c, passes at once.
    assert seen == [(5, a), (15, b), (25, c), (35, d)]


def test_other_events_keep_their_place() -> None:
    a, b, c = tokens("a", "b", "c")
    hm = token("hm", 4, channel="reasoning")
    call = delta("{}", id="c", name="f")
    seen, _ = run(
        on_next(4, call),
        on_next(5, a),
        on_next(5, hm),  # nothing waits
        on_next(6, b),
        on_next(7, hm),
        on_next(8, call),
        on_next(9, c),
        on_next(10, failed("abc")),
    )
    assert seen == [(4, call), (5, a), (5, hm), (15, b), (15, hm), (15, call), (25, c), (25, failed("abc"))]


def test_another_channel_is_paced() -> None:
    a, b = (token(text, index, channel="reasoning") for index, text in ((1, "a"), (2, "b")))
    x, y = (token(text, index) for index, text in ((3, "x"), (4, "y")))
    seen, _ = run(on_next(5, a), on_next(5, x), on_next(6, b), on_next(7, y), operator=smooth(10.0, 30.0, "reasoning"))
    assert seen == [(5, a), (5, x), (15, b), (15, y)]


def test_requests_are_paced_apart() -> None:
    a, b = tokens("a", "b")
    x, y = (token(text, index, of="s") for index, text in ((1, "x"), (2, "y")))
    seen, _ = run(
        on_next(5, a),
        on_next(6, b),
        on_next(7, x),
        on_next(8, completed("ab")),
        on_next(9, y),
        on_next(10, completed("xy", of="s")),
        on_completed(11),
    )
    assert seen == [
        (5, a),
        (7, x),
        (15, b),
        (15, completed("ab")),
        (17, y),
        (17, completed("xy", of="s")),
        (17, "|"),
    ]


def test_retrying_drops_what_waits_and_passes_at_once() -> None:
    a, b = tokens("a", "b")
    signals = DoomLoopSignals(request_id="r", attempt=1, ts=0.0, triggers=("loop",))
    again = token("c", 1, attempt=2)
    seen, _ = run(
        on_next(5, a),
        on_next(6, b),
        on_next(6, delta("{}")),
        on_next(7, signals),
        on_next(8, retrying()),
        on_next(9, started(attempt=2)),
        on_next(10, first(attempt=2)),
        on_next(10, again),
    )
    # What tells of the attempt is no part of what is void. The interval holds over attempts.
    assert seen == [(5, a), (8, signals), (8, retrying()), (9, started(attempt=2)), (10, first(attempt=2)), (15, again)]


def test_an_error_lets_everything_out_at_once() -> None:
    a, b = tokens("a", "b")
    x, y = (token(text, index, of="s") for index, text in ((1, "x"), (2, "y")))
    broken = OSError("broken")
    seen, _ = run(on_next(5, a), on_next(5, x), on_next(6, b), on_next(6, y), on_error(7, broken))
    assert [(at, one) for at, one in seen[:-1]] == [(5, a), (5, x), (7, b), (7, y)]
    assert seen[-1] == (7, broken)


def test_completion_waits_for_the_queue_without_a_terminal_event_too() -> None:
    a, b = tokens("a", "b")
    seen, _ = run(on_next(5, a), on_next(6, b), on_completed(6))
    assert seen == [(5, a), (15, b), (15, "|")]


def test_dispose_cancels_timers_and_the_source() -> None:
    clock = Counting()
    source: Any = clock.create_hot_observable(on_next(210, tokens("a", "b")[0]), on_next(211, tokens("a", "b")[1]))
    seen = clock.start(lambda: source.pipe(EVEN), disposed=215)
    assert [message.time for message in seen.messages] == [210]
    assert source.subscriptions == [ReactiveTest.subscribe(200, 215)]
    assert (clock.timers, clock.fired) == (1, 0)


def test_each_subscription_has_queues_of_its_own() -> None:
    a, b = tokens("a", "b")
    clock = TestScheduler()
    source: Any = clock.create_cold_observable(on_next(5, a), on_next(6, b), on_completed(7))
    paced = source.pipe(EVEN)
    observers = [clock.create_observer() for _ in range(2)]
    for observer in observers:
        paced.subscribe(observer, scheduler=clock)
    clock.start()
    assert [[message.time for message in one.messages] for one in observers] == [[5, 15, 15]] * 2


def test_a_growing_burst_hastens() -> None:
    first_burst = [token("x", index) for index in range(1, 5)]
    second = [token("y", index) for index in range(5, 23)]
    seen, _ = run(*(on_next(0, one) for one in first_burst), *(on_next(9, one) for one in second))
    times = [at for at, _ in seen]
    # 3 + 18 wait at 9; three ticks (10, 20, 30) are in time for the newest: seven each.
    assert times == [0] + [10] * 7 + [20] * 7 + [30] * 7


def test_who_comes_late_does_not_slow_down_those_before() -> None:
    burst = [token("x", index) for index in range(1, 9)]
    seen, _ = run(*(on_next(5, one) for one in burst), on_next(16, token("y", 9)))
    assert [at for at, _ in seen] == [5, 15, 15, 15, 25, 25, 25, 35, 35]


def test_an_empty_queue_ends_the_hurry() -> None:
    bursts = [(5, index) for index in range(1, 9)] + [(100, index) for index in range(9, 12)]
    seen, _ = run(*(on_next(at, token("x", index)) for at, index in bursts))
    assert [at for at, _ in seen] == [5, 15, 15, 15, 25, 25, 25, 35, 100, 110, 120]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=12))
def test_nothing_waits_longer_than_it_may_and_order_is_kept(bursts: list[tuple[int, int]]) -> None:
    arrivals: list[tuple[int, SamplingEvent]] = []
    at = 1
    for gap, count in bursts:
        at += gap
        for _ in range(count):
            arrivals.append((at, token("x", len(arrivals) + 1)))
    seen, clock = run(*(on_next(time, one) for time, one in arrivals), on_completed(at + 1))
    assert [one for _, one in seen[:-1]] == [one for _, one in arrivals]
    for (came, _), (went, _) in zip(arrivals, seen, strict=False):
        assert 0 <= went - came <= 30
    ticks = {went for went, _ in seen[:-1]}
    assert clock.timers <= len(ticks) + 1
    distinct = sorted(ticks)
    assert all(later - earlier >= 10 for earlier, later in pairwise(distinct))


class Late(TestScheduler):
    """Its timers come late by so much, one after the other; the last for all that follow."""

    def __init__(self, *late: float) -> None:
        super().__init__()
        self._late = list(late)

    def schedule_relative(self, duetime: Any, action: Any, state: Any = None) -> abc.DisposableBase:
        late = self._late.pop(0) if len(self._late) > 1 else self._late[0]
        return super().schedule_relative(duetime + late, action, state)


@pytest.mark.parametrize(
    ("late", "times"),
    [
        ((0.0,), [0, 10, 20, 30]),
        ((7.0,), [0, 17, 27, 37]),  # what comes late does not make the next later still
        ((25.0, 0.0), [0, 35, 35, 35]),  # a loop that was blocked: the next tick would be too late for all
        ((15.0, 0.0), [0, 25, 25, 25]),  # the next, at 35, too
        ((9.0, 0.0), [0, 19, 20, 30]),
    ],
)
def test_a_late_loop(late: tuple[float, ...], times: list[float]) -> None:
    clock = Late(*late)
    source: Subject[SamplingEvent] = Subject()
    seen: list[float] = []
    source.pipe(EVEN).subscribe(lambda _: seen.append(float(clock.clock)), scheduler=clock)
    for one in tokens(*"abcd"):
        source.on_next(one)
    clock.start()
    assert seen == times


def test_a_long_queue_costs_as_much_per_token_as_a_short_one() -> None:
    def work(n: int) -> Any:
        def burst() -> None:
            clock = TestScheduler()
            source: Subject[SamplingEvent] = Subject()
            source.pipe(EVEN).subscribe(scheduler=clock)
            for one in events:
                source.on_next(one)
            clock.start()

        events = [token("x", index) for index in range(1, n + 1)]
        return burst

    work(3)()
    few, many = (calls_during(work(n)) for n in (200, 2000))
    assert many <= MOST * few


def test_a_subscriber_that_feeds_the_source_while_it_is_served() -> None:
    a, b, c, d = tokens(*"abcd")
    clock = TestScheduler()
    source: Subject[SamplingEvent] = Subject()
    seen: list[tuple[float, SamplingEvent]] = []

    def take(event: SamplingEvent) -> None:
        seen.append((float(clock.clock), event))
        if event is b:
            source.on_next(c)
        if event is c:
            source.on_next(retrying())
            source.on_next(d)

    source.pipe(EVEN).subscribe(take, scheduler=clock)
    source.on_next(a)
    source.on_next(b)
    clock.start()
    assert seen == [(0, a), (10, b), (20, c), (20, retrying()), (30, d)]


def test_what_is_fed_back_is_no_reason_to_hurry_if_it_takes_the_place_of_what_leaves() -> None:
    burst, more = [token("x", index) for index in range(1, 9)], [token("y", index) for index in range(9, 13)]
    clock = TestScheduler()
    source: Subject[SamplingEvent] = Subject()
    times: list[float] = []

    def take(event: SamplingEvent) -> None:
        times.append(float(clock.clock))
        if event is burst[1]:
            for one in more:
                source.on_next(one)

    source.pipe(EVEN).subscribe(take, scheduler=clock)
    for one in burst:
        source.on_next(one)
    clock.start()
    # Seven wait from the start, three for each tick; the four that come with the first of these have three ticks more.
    # After it, eight wait: three for each tick still.
    assert times == [0, 10, 10, 10, 20, 20, 20, 30, 30, 30, 40, 40]


def test_a_subscriber_that_leaves_while_it_is_served() -> None:
    clock = Counting()
    source: Subject[SamplingEvent] = Subject()
    seen: list[SamplingEvent] = []

    def take(event: SamplingEvent) -> None:
        seen.append(event)
        if len(seen) == 2:
            subscription.dispose()

    subscription = source.pipe(EVEN).subscribe(take, scheduler=clock)
    burst = tokens(*"abcdefgh")
    for one in burst:
        source.on_next(one)
    clock.start()
    assert seen == burst[:2]
    assert (clock.timers, clock.fired) == (1, 1)
    assert not source.observers


def test_timers_do_not_carry_the_demand_of_whoever_subscribed() -> None:
    demands: list[Demand | None] = []
    a, b = tokens("a", "b")

    async def main() -> None:
        source: Subject[SamplingEvent] = Subject()
        with demanding(Demand()):
            source.pipe(smooth()).subscribe(lambda _: demands.append(current_demand()))
            source.on_next(a)
            source.on_next(b)
        await asyncio.sleep(1.0)

    run_virtual(main())
    assert [demand is None for demand in demands] == [False, True]


def test_no_later_tick_has_a_demand_either() -> None:
    demands: list[Demand | None] = []

    async def main() -> None:
        source: Subject[SamplingEvent] = Subject()
        source.pipe(smooth()).subscribe(lambda _: demands.append(current_demand()))
        with demanding(Demand()):
            for one in tokens(*"abcd"):
                source.on_next(one)
        await asyncio.sleep(1.0)

    run_virtual(main())
    assert [demand is None for demand in demands] == [False, True, True, True]


def test_dispose_cancels_the_timer_on_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[list[asyncio.TimerHandle], int]:
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []
        call_later: Any = loop.call_later

        def counted(*args: Any, **kwargs: Any) -> asyncio.TimerHandle:
            timers.append(call_later(*args, **kwargs))
            return timers[-1]

        monkeypatch.setattr(loop, "call_later", counted)
        source: Subject[SamplingEvent] = Subject()
        seen: list[SamplingEvent] = []
        subscription = source.pipe(smooth()).subscribe(seen.append)
        for one in tokens("a", "b"):
            source.on_next(one)
        subscription.dispose()
        return timers, len(seen)

    timers, count = run_virtual(main())
    assert count == 1
    assert [timer.cancelled() for timer in timers] == [True]


def test_without_a_scheduler_it_runs_on_the_running_loop() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        source: Subject[SamplingEvent] = Subject()
        times: list[float] = []
        source.pipe(smooth(0.02, 0.25)).subscribe(lambda _: times.append(round(loop.time(), 6)))
        for one in tokens("a", "b", "c"):
            source.on_next(one)
        await asyncio.sleep(1.0)
        return times

    assert run_virtual(main()) == [0.0, 0.02, 0.04]


def test_without_a_scheduler_and_a_loop_subscribing_fails() -> None:
    errors: list[Exception] = []
    source: Subject[SamplingEvent] = Subject()
    source.pipe(smooth()).subscribe(on_error=errors.append)
    assert [type(error) for error in errors] == [RuntimeError]


@pytest.mark.parametrize(
    ("interval_s", "max_delay_s"),
    [(0.0, 0.25), (-1.0, 0.25), (0.3, 0.25), (float("nan"), 0.25), (0.02, float("nan")), (0.02, float("inf"))],
)
def test_bad_arguments_are_refused(interval_s: float, max_delay_s: float) -> None:
    with pytest.raises(ValueError, match="0 < interval_s <= max_delay_s"):
        smooth(interval_s, max_delay_s)
