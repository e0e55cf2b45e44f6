"""`fallback`: which failures lead to the next stream, what commits to one, and each way in which it may end."""

from __future__ import annotations

from collections.abc import Collection

import pytest
import reactivex as rx
from reactivex.testing import TestScheduler

from rx_sampler.demand import Demand, demanding
from rx_sampler.errors import SamplingErrorKind
from rx_sampler.events import Failed, SamplingEvent
from rx_sampler.operators.contest import MAX_HELD
from rx_sampler.operators.fallback import fallback
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
    on_next,
    raising,
    retrying,
    started,
    subscribed,
    token,
    tool,
    watch,
)

VISIBLE = ("text", "tool_call")


def test_the_diagram() -> None:
    rows = diagram_of(fallback)
    with Marbles() as marbles:
        source, other = marbles.events(rows["source"], request_id="a"), marbles.events(rows["other"], request_id="b")
        said = dict(zip("SFxC", drawn(rows["other"], request_id="b"), strict=True))
        marbles.expect(source.pipe(fallback(other))).to_be(rows["fallback"], said)
        marbles.expect_subscriptions(source).to_be("^---!")
        marbles.expect_subscriptions(other).to_be("----^--------!")


def test_a_failure_before_content_leads_to_the_next() -> None:
    clock = TestScheduler()
    source = cold(clock, (1, started("a")), (4, failed("a")))
    other = cold(clock, (1, started("b")), (3, first("b")), (3, token("b")), (8, done("b")))
    seen = watch(clock, source.pipe(fallback(other)))
    assert seen.messages == [
        on_next(207, started("b")),
        on_next(207, first("b")),
        on_next(207, token("b")),
        on_next(212, done("b")),
        on_completed(213),
    ]
    assert source.subscriptions == [subscribed(200, 204)]
    assert other.subscriptions == [subscribed(204, 213)]


def test_a_source_that_answers_is_all_there_is() -> None:
    clock = TestScheduler()
    source = cold(clock, (1, started("a")), (4, token("a")), (8, done("a")))
    other = cold(clock, (1, token("b")))
    seen = watch(clock, source.pipe(fallback(other)))
    assert seen.messages == [
        on_next(204, started("a")),
        on_next(204, token("a")),
        on_next(208, done("a")),
        on_completed(209),
    ]
    assert other.subscriptions == []


@pytest.mark.parametrize("content", [first("a"), token("a"), token("a", channel="reasoning"), tool("a")])
def test_a_failure_after_content_passes(content: SamplingEvent) -> None:
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(fallback(other)))
    source.say(started("a"), content, failed("a"))
    source.observer.on_completed()
    assert (seen.events, seen.completions) == ([started("a"), content, failed("a")], 1)
    assert other.subscriptions == 0


def test_an_answer_without_content_is_one() -> None:
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(fallback(other, commit_on=())))
    source.say(started("a"), token("a"))
    assert seen.events == []
    source.say(done("a"))
    assert (seen.events, other.subscriptions) == ([started("a"), token("a"), done("a")], 0)


def test_the_failure_of_the_last_one_passes_with_what_it_had_said() -> None:
    clock = TestScheduler()
    streams = [cold(clock, (1, started(of)), (5, retrying(of)), (6, failed(of))) for of in "abc"]
    seen = watch(clock, streams[0].pipe(fallback(*streams[1:])))
    assert seen.messages == [
        on_next(218, started("c")),
        on_next(218, retrying("c")),
        on_next(218, failed("c")),
        on_completed(219),
    ]
    assert [stream.subscriptions for stream in streams] == [
        [subscribed(200, 206)],
        [subscribed(206, 212)],
        [subscribed(212, 219)],
    ]


def test_without_others_it_only_holds_back() -> None:
    source = Probe()
    seen = Seen(source.pipe(fallback()))
    source.say(started("a"))
    assert seen.events == []
    source.say(failed("a"))
    assert seen.events == [started("a"), failed("a")]


@pytest.mark.parametrize("kind", SamplingErrorKind)
def test_which_failures_fall_back(kind: SamplingErrorKind) -> None:
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(fallback(other)))
    source.say(started("a"), failed("a", kind))
    if kind in ("cancelled", "invalid_request"):
        assert (seen.events, other.subscriptions) == ([started("a"), failed("a", kind)], 0)
    else:
        assert (seen.events, other.subscriptions) == ([], 1)


def test_when_decides() -> None:
    asked: list[Failed] = []

    def when(failed: Failed) -> bool:
        asked.append(failed)
        return failed.error.kind is SamplingErrorKind.CANCELLED

    source, second, third = Probe(), Probe(), Probe()
    seen = Seen(source.pipe(fallback(second, third, when=when)))
    source.say(failed("a", SamplingErrorKind.CANCELLED))
    assert (source.active, second.active) == (0, 1)
    second.say(failed("b", SamplingErrorKind.HTTP))
    assert (seen.events, third.subscriptions) == ([failed("b", SamplingErrorKind.HTTP)], 0)
    assert asked == [failed("a", SamplingErrorKind.CANCELLED), failed("b", SamplingErrorKind.HTTP)]


def test_what_when_raises_comes_by_on_error() -> None:
    bug = TypeError("a bug")

    def when(_failed: Failed) -> bool:
        raise bug

    source, other = Probe(), Probe()
    seen = Seen(source.pipe(fallback(other, when=when)))
    source.say(started("a"), failed("a"))
    assert (seen.events, seen.errors, source.active, other.subscriptions) == ([], [bug], 0, 0)


@pytest.mark.parametrize(
    ("commit_on", "content", "commits"),
    [
        (VISIBLE, first("a", "reasoning"), False),
        (VISIBLE, token("a", channel="reasoning"), False),
        (VISIBLE, token("a", channel="refusal"), False),
        (VISIBLE, first("a", "text"), True),
        (VISIBLE, token("a"), True),
        (VISIBLE, tool("a"), True),
        (["reasoning"], token("a", channel="reasoning"), True),
        (["reasoning"], tool("a"), False),
        ({"refusal"}, token("a", channel="refusal"), True),
        ({"text"}, token("a", channel="channel of the future"), False),
        ((), token("a"), False),
        ((), retrying("a"), False),
    ],
)
def test_commit_on_names_what_commits(commit_on: Collection[str], content: SamplingEvent, commits: bool) -> None:
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(fallback(other, commit_on=commit_on)))
    source.say(started("a"), content)
    assert seen.events == ([started("a"), content] if commits else [])
    source.say(failed("a"))
    assert other.subscriptions == (0 if commits else 1)


@pytest.mark.parametrize("commit_on", [{"tool_calls"}, "text"])
def test_commit_on_refuses_what_it_does_not_know(commit_on: Collection[str]) -> None:
    with pytest.raises(ValueError, match="commit_on knows text, reasoning, refusal, tool_call, not 't"):
        fallback(commit_on=commit_on)


def test_what_an_answer_thought_before_it_committed_comes_in_order() -> None:
    thoughts = [token("a", f"{index} ", "reasoning", index) for index in range(1, 100)]
    source = Probe()
    seen = Seen(source.pipe(fallback(Probe(), commit_on=VISIBLE)))
    source.say(*thoughts)
    assert seen.events == []
    source.say(token("a", "so", index=100))
    assert seen.events == [*thoughts, token("a", "so", index=100)]


def test_who_has_said_too_much_to_be_held_is_followed() -> None:
    thought = token("a", channel="reasoning")
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(fallback(other, commit_on=VISIBLE)))
    source.say(*[thought] * (MAX_HELD - 1))
    assert seen.events == []
    source.say(thought)
    assert len(seen.events) == MAX_HELD
    source.say(failed("a"))
    assert (seen.events[-1], other.subscriptions) == (failed("a"), 0)


def test_a_stream_that_ends_without_a_terminal_event_leads_to_the_next() -> None:
    seen = Seen(rx.from_iterable([started("a")]).pipe(fallback(rx.from_iterable([started("b")]))))
    assert (seen.events, seen.completions) == ([started("b")], 1)


# -- disposal


@pytest.mark.parametrize("at", [202, 206, 209])
def test_dispose_disposes_whichever_runs(at: int) -> None:
    clock = TestScheduler()
    source = cold(clock, (1, started("a")), (4, failed("a")))
    other = cold(clock, (1, started("b")), (4, token("b")), (8, done("b")))
    seen = watch(clock, source.pipe(fallback(other)), disposed=at)
    assert seen.messages == ([on_next(208, started("b")), on_next(208, token("b"))] if at > 208 else [])
    assert source.subscriptions == [subscribed(200, min(at, 204))]
    assert other.subscriptions == ([subscribed(204, at)] if at > 204 else [])


def test_dispose_from_inside_on_next() -> None:
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(fallback(other)), act=lambda seen, _event: seen.subscription.dispose())
    source.say(failed("a"))
    other.say(started("b"), token("b"))
    assert (seen.events, source.active, other.active) == ([started("b")], 0, 0)


def test_one_is_gone_before_the_next_begins() -> None:
    # Two streams of one sampler with room for one request: the next would queue behind the one that it replaces.
    source = Probe()
    left: list[int] = []

    class Next(Probe):
        def _begin(self, observer: rx.abc.ObserverBase[SamplingEvent], scheduler: rx.abc.SchedulerBase | None = None):
            left.append(source.active)
            return super()._begin(observer, scheduler)

    source.pipe(fallback(Next())).subscribe()
    source.say(failed("a"))
    assert left == [0]


# -- streams that end while they are subscribed to


def test_thousands_that_fail_at_once_do_not_deepen_the_stack() -> None:
    failing = [Probe(started("a"), failed("a"), completes=True) for _ in range(3000)]
    last = Probe(started("b"), token("b"), done("b"), completes=True)
    seen = Seen(failing[0].pipe(fallback(*failing[1:], last)))
    assert (seen.events, seen.completions) == ([started("b"), token("b"), done("b")], 1)
    assert {probe.active for probe in failing} == {0}


def test_lists_fall_back_too() -> None:
    lists = [[started("a"), failed("a")], [failed("b")], [started("c"), token("c"), done("c")]]
    streams = [rx.from_iterable(events) for events in lists]
    seen = Seen(streams[0].pipe(fallback(*streams[1:])))
    assert (seen.events, seen.completions, seen.errors) == (lists[2], 1, [])


def test_each_subscription_begins_with_the_source() -> None:
    source, other = Probe(failed("a"), completes=True), Probe(token("b"), done("b"), completes=True)
    stream = source.pipe(fallback(other))
    assert [Seen(stream).events for _ in range(2)] == [[token("b"), done("b")]] * 2
    assert (source.subscriptions, other.subscriptions) == (2, 2)


def test_the_next_has_the_scheduler_and_the_demand_of_the_subscription() -> None:
    clock, demand = TestScheduler(), Demand()
    source, other = Probe(), Probe()
    with demanding(demand):
        source.pipe(fallback(other)).subscribe(scheduler=clock)
    source.say(failed("a"))
    assert (source.schedulers, other.schedulers) == ([clock], [clock])
    assert (source.demands, other.demands) == ([demand], [demand])


# -- bugs


def test_a_next_that_cannot_be_subscribed_to_is_a_bug() -> None:
    bug = RuntimeError("no loop")
    source, third = Probe(), Probe()
    seen = Seen(source.pipe(fallback(raising(bug), third)))
    source.say(failed("a"))
    assert (seen.events, seen.errors, third.subscriptions) == ([], [bug], 0)


def test_an_error_is_no_failure_that_falls_back() -> None:
    bug = TypeError("a bug")
    source, other = Probe(), Probe()
    seen = Seen(source.pipe(fallback(other)))
    source.say(started("a"))
    source.observer.on_error(bug)
    assert (seen.events, seen.errors, other.subscriptions) == ([], [bug], 0)


def test_what_a_subscriber_raises_does_not_fall_back() -> None:
    bug = TypeError("a bug")
    other = Probe()

    def act(_seen: Seen, _event: SamplingEvent) -> None:
        raise bug

    seen = Seen(rx.from_iterable([started("a"), token("a"), done("a")]).pipe(fallback(other)), act=act)
    assert (seen.events, seen.errors, other.subscriptions) == ([started("a")], [bug], 0)
