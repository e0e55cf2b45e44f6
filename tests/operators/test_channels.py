"""`split_channels`: one subscription, parts that cannot harm one another, and consumers that make it wait."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import reactivex as rx
from reactivex import Observable, abc
from reactivex.disposable import Disposable
from reactivex.subject import Subject

from rx_sampler.demand import Demand, current_demand, demanding
from rx_sampler.events import SamplingEvent, ToolCallDelta
from rx_sampler.operators import Channels, split_channels
from rx_sampler.testing.diagrams import diagram_of
from rx_sampler.testing.made import reasoning, refusal, text, token, tool
from rx_sampler.testing.marbles import MarbleError, Marbles, drawn

TEMPLATES = {
    "r": reasoning("r"),
    "n": refusal("n"),
    "t": tool(0, id="call_1", name="f"),
    "x": text("x", of="s"),
    "z": text("z", choice=1),
    "u": token("audio", "u"),
}
STREAM = drawn("S(Fr)antuzC", TEMPLATES)


def noted(channels: Channels) -> dict[str, list[Any]]:
    """What each part says, subscribed to now; "|" is its completion."""
    parts: dict[str, Observable[Any]] = {
        "text": channels.text,
        "reasoning": channels.reasoning,
        "refusal": channels.refusal,
        "tool_calls": channels.tool_calls,
        "audio": channels.channel("audio"),
        "second": channels.channel("text", choice=1),
        "events": channels.events,
    }
    seen: dict[str, list[Any]] = {name: [] for name in parts}
    for name, part in parts.items():
        part.subscribe(seen[name].append, seen[name].append, lambda name=name: seen[name].append("|"))
    return seen


class Counted(Observable[SamplingEvent]):
    """A synchronous source that counts its subscriptions."""

    def __init__(self, events: list[SamplingEvent]) -> None:
        super().__init__(self._begin)
        self.events = events
        self.begun = 0
        self.disposed = 0
        self.schedulers: list[abc.SchedulerBase | None] = []
        self.demands: list[Demand | None] = []

    def _begin(
        self, observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        self.begun += 1
        self.schedulers.append(scheduler)
        self.demands.append(current_demand())
        for event in self.events:
            observer.on_next(event)

        def end() -> None:
            self.disposed += 1

        return Disposable(end)


# -- values


def test_the_diagram() -> None:
    rows = diagram_of(split_channels)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], TEMPLATES)
        channels = source.pipe(split_channels())
        marbles.expect(channels.reasoning).to_be(rows["reasoning"])
        marbles.expect(channels.text).to_be(rows["text"])
        marbles.expect_subscriptions(source).to_be(f"^{'-' * (len(rows['source']) - 2)}!")
        marbles.scheduler.schedule_relative(0.0, lambda _scheduler, _state=None: channels.connect(marbles.scheduler))


def test_each_part_of_a_synchronous_source_is_whole() -> None:
    channels = rx.from_iterable(STREAM).pipe(split_channels())
    seen = noted(channels)
    assert not any(seen.values())
    channels.connect()
    (call,) = [event for event in STREAM if isinstance(event, ToolCallDelta)]
    assert seen == {
        "text": ["a", "|"],
        "reasoning": ["r", "|"],
        "refusal": ["n", "|"],
        "tool_calls": [call, "|"],
        "audio": ["u", "|"],
        "second": ["z", "|"],
        "events": [*STREAM, "|"],
    }


def test_two_requests_and_a_retry() -> None:
    channels = rx.from_iterable(drawn("S(Fa)xbRS(Fc)C", TEMPLATES)).pipe(split_channels())
    seen = noted(channels)
    channels.connect()
    assert seen["text"] == ["a", "x", "b", "c", "|"]


def test_a_part_may_have_several_subscribers() -> None:
    channels = rx.from_iterable(STREAM).pipe(split_channels())
    first, second = noted(channels), noted(channels)
    channels.connect()
    assert first == second
    assert first["text"] == ["a", "|"]


# -- one subscription


def test_nothing_is_subscribed_to_before_connect_and_then_once() -> None:
    source = Counted(STREAM)
    channels = source.pipe(split_channels())
    seen = noted(channels)
    assert source.begun == 0
    connection = channels.connect()
    assert channels.connect() is connection
    assert source.begun == 1
    assert seen["text"] == ["a"]
    assert source.disposed == 0
    connection.dispose()
    assert source.disposed == 1
    channels.connect()
    assert source.begun == 1


def test_each_pipe_has_a_subscription_of_its_own() -> None:
    source = Counted(STREAM)
    split = split_channels()
    for number in (1, 2):
        channels = source.pipe(split)
        seen = noted(channels)
        channels.connect()
        assert seen["reasoning"] == ["r"]
        assert source.begun == number


def test_a_subscriber_that_connects_from_inside_connects_nothing_more() -> None:
    source = Counted(STREAM)
    channels = source.pipe(split_channels())
    channels.text.subscribe(lambda _piece: channels.connect().dispose())
    seen = noted(channels)
    channels.connect()
    assert source.begun == 1
    assert seen["refusal"] == ["n"]


def test_the_scheduler_is_that_of_connect() -> None:
    source = Counted([])
    with Marbles() as marbles:
        channels = source.pipe(split_channels())
        channels.text.subscribe(scheduler=marbles.scheduler)
        channels.connect(marbles.scheduler)
    assert source.schedulers == [marbles.scheduler]


def test_disposing_the_connection_ends_all_parts_in_silence() -> None:
    subject: Subject[SamplingEvent] = Subject()
    channels = subject.pipe(split_channels())
    seen = noted(channels)
    connection = channels.connect()
    for event in STREAM[:4]:
        subject.on_next(event)
    connection.dispose()
    assert not subject.observers
    subject.on_next(STREAM[4])
    subject.on_completed()
    assert (seen["text"], seen["events"]) == (["a"], STREAM[:4])


def test_disposing_a_part_leaves_the_source_and_the_others() -> None:
    subject: Subject[SamplingEvent] = Subject()
    channels = subject.pipe(split_channels())
    left: list[str] = []
    leaving = channels.reasoning.subscribe(left.append)
    seen = noted(channels)
    channels.connect()
    leaving.dispose()
    for event in STREAM:
        subject.on_next(event)
    assert left == []
    assert (seen["reasoning"], seen["text"]) == (["r"], ["a"])


# -- ends


def test_a_late_part_gets_what_still_comes_and_the_end() -> None:
    subject: Subject[SamplingEvent] = Subject()
    channels = subject.pipe(split_channels())
    channels.connect()
    for event in STREAM[:4]:
        subject.on_next(event)
    late = noted(channels)
    for event in STREAM[4:]:
        subject.on_next(event)
    subject.on_completed()
    assert (late["text"], late["refusal"], late["events"]) == (["|"], ["n", "|"], [*STREAM[4:], "|"])
    assert set(map(tuple, noted(channels).values())) == {("|",)}


def test_an_error_goes_to_all_parts_and_to_late_ones() -> None:
    broken = OSError("broken")
    subject: Subject[SamplingEvent] = Subject()
    channels = subject.pipe(split_channels())
    seen = noted(channels)
    channels.connect()
    subject.on_next(STREAM[0])
    subject.on_error(broken)
    assert seen["events"] == [STREAM[0], broken]
    assert all(part[-1] is broken for part in seen.values())
    assert all(part == [broken] for part in noted(channels).values())


def test_an_error_in_time() -> None:
    with Marbles() as marbles:
        channels = marbles.events("-S-(Fr)-a-#", TEMPLATES).pipe(split_channels())
        marbles.expect(channels.text).to_be("--------a-#", error=MarbleError)
        marbles.scheduler.schedule_relative(0.0, lambda _scheduler, _state=None: channels.connect(marbles.scheduler))


# -- subscribers that raise


def test_a_subscriber_that_raises_harms_neither_siblings_nor_producer(caplog: pytest.LogCaptureFixture) -> None:
    bug = KeyError("bug")
    told: list[Exception] = []
    calls: list[str] = []

    def buggy(piece: str) -> None:
        calls.append(piece)
        raise bug

    channels = rx.from_iterable(drawn("S(Fa)bcC")).pipe(split_channels())
    before = noted(channels)
    channels.text.subscribe(buggy, told.append)
    after = noted(channels)
    with caplog.at_level(logging.ERROR):
        channels.connect()
    assert before == after
    assert after["text"] == ["a", "b", "c", "|"]
    assert (calls, told) == (["a"], [bug])
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [bug]


def test_a_subscriber_that_raises_at_the_end_harms_no_sibling(caplog: pytest.LogCaptureFixture) -> None:
    def buggy() -> None:
        raise KeyError("bug")

    channels = rx.from_iterable(STREAM).pipe(split_channels())
    channels.text.subscribe(on_completed=buggy)
    after = noted(channels)
    channels.connect()
    assert after["text"] == ["a", "|"]
    assert "bug" in caplog.text


def test_parts_without_on_error_harm_no_sibling_either(caplog: pytest.LogCaptureFixture) -> None:
    broken = OSError("broken")
    channels = rx.throw(broken).pipe(split_channels())
    channels.text.subscribe()
    after = noted(channels)
    channels.connect()
    assert after["text"] == [broken]
    assert "broken" in caplog.text


# -- demand


def test_any_part_makes_the_source_wait_and_a_disposed_one_does_not() -> None:
    source = Counted([])
    channels = source.pipe(split_channels())
    slow, slower = Demand(), Demand()
    parts: list[abc.DisposableBase] = []
    for demand, part in ((slow, channels.text), (slower, channels.events)):
        with demanding(demand):
            parts.append(part.subscribe())
    channels.reasoning.subscribe()
    channels.connect()
    (told,) = source.demands
    assert told is not None
    assert told.wants
    slow.hold()
    slower.hold()
    slow.release()
    assert not told.wants
    slower.release()
    assert told.wants
    slow.hold()
    parts[0].dispose()
    assert told.wants


def test_a_source_is_not_told_of_demands_where_there_are_none() -> None:
    source = Counted([])
    channels = source.pipe(split_channels())
    channels.text.subscribe()
    channels.connect()
    assert source.demands == [None]


def test_a_demand_around_connect_reaches_the_source_beside_those_of_the_parts() -> None:
    source, outer, slow = Counted([]), Demand(), Demand()
    channels = source.pipe(split_channels())
    with demanding(slow):
        channels.text.subscribe()
    with demanding(outer):
        channels.connect()
    (told,) = source.demands
    assert told is not None
    outer.hold()
    assert not told.wants
    slow.hold()
    outer.release()
    assert not told.wants
    slow.release()
    assert told.wants
