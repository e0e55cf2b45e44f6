"""What selects events, or what they say: values with times, ends, and requests side by side."""

from __future__ import annotations

from typing import Any, assert_type

import pytest
import reactivex as rx
from reactivex import Observable
from reactivex.subject import Subject

from rx_sampler.events import (
    AnnotationAdded,
    ChannelToken,
    Completed,
    Failed,
    FirstToken,
    Retrying,
    SamplingEvent,
    StreamStarted,
)
from rx_sampler.operators import annotations, channel, for_request, of_type, reasoning, text, until_terminal
from rx_sampler.testing.diagrams import diagram_of
from rx_sampler.testing.made import (
    Template,
    annotation,
    completed,
    failed,
    first_token,
    refusal,
    retrying,
    started,
    token,
)
from rx_sampler.testing.made import reasoning as thought
from rx_sampler.testing.made import text as said
from rx_sampler.testing.marbles import MarbleError, Marbles, drawn

OTHER: dict[str, Template] = {"x": said("x", of="s"), "y": said("y", of="s"), "Y": completed(of="s")}


def seen_of(events: list[Any], operator: Any) -> list[Any]:
    seen: list[Any] = []
    rx.from_iterable(events).pipe(operator).subscribe(seen.append)
    return seen


# -- of_type, annotations


def test_the_diagram_of_of_type() -> None:
    rows = diagram_of(of_type)
    end = drawn(rows["source"])[-1]
    assert isinstance(end, Completed)
    with Marbles() as marbles:
        source = marbles.events(rows["source"])
        marbles.expect(source.pipe(of_type(Completed))).to_be(rows["of_type"], {"C": end})


def test_of_type_takes_several_classes_and_their_subclasses() -> None:
    class SpecialError(ValueError):
        pass

    special, wrong, nothing = SpecialError(), TypeError(), object()
    assert seen_of([1, special, nothing, wrong, True], of_type(int, ValueError)) == [1, special, True]


def test_of_type_narrows() -> None:
    source: Observable[SamplingEvent] = rx.empty()
    assert_type(source.pipe(of_type(Completed)), Observable[Completed])
    assert_type(source.pipe(of_type(Completed, Failed)), Observable[Completed | Failed])


def test_of_type_without_a_class_gives_nothing_and_takes_nothing_else() -> None:
    assert seen_of([1, None], of_type()) == []
    with pytest.raises(TypeError, match="'int'"):
        of_type("int")  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_of_type_of_two_requests() -> None:
    events = drawn("S(Fa)xCY", OTHER)
    tokens = seen_of(events, of_type(ChannelToken))
    assert [(one.request_id, one.text) for one in tokens] == [("r", "a"), ("s", "x")]


def test_the_diagram_of_annotations() -> None:
    rows = diagram_of(annotations)
    templates = {"n": annotation({"url": "u"}, offset=1)}
    (cited,) = [event for event in drawn(rows["source"], templates) if isinstance(event, AnnotationAdded)]
    assert (cited.annotation, cited.offset) == ({"url": "u"}, 1)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], templates)
        marbles.expect(source.pipe(annotations())).to_be(rows["annotations"], {"n": cited})


def test_annotations_of_two_requests() -> None:
    events = drawn("S(Fa)mnC", {"m": annotation({"url": "u"}), "n": annotation({"url": "v"}, of="s")})
    found = [(one.request_id, one.annotation["url"]) for one in seen_of(events, annotations())]
    assert found == [("r", "u"), ("s", "v")]


# -- channels


def test_the_diagram_of_text() -> None:
    rows = diagram_of(text)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], {"r": thought("hm")})
        marbles.expect(source.pipe(text())).to_be(rows["text"])


def test_the_diagram_of_reasoning() -> None:
    rows = diagram_of(reasoning)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], {"r": thought("hm")})
        marbles.expect(source.pipe(reasoning())).to_be(rows["reasoning"], {"r": "hm"})


def test_the_diagram_of_channel() -> None:
    rows = diagram_of(channel)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], {"r": refusal("no")})
        marbles.expect(source.pipe(channel("refusal"))).to_be(rows["channel"], {"r": "no"})


def test_one_choice_of_a_channel_of_any_name() -> None:
    templates = {
        "a": said("a"),
        "b": said("b", choice=1),
        "c": token("audio", "c"),
        "d": token("audio", "d", choice=1),
        "e": thought("e", choice=1),
    }
    events = drawn("S(Fa)bcdeC", templates)
    assert seen_of(events, text()) == ["a"]
    assert seen_of(events, text(choice=1)) == ["b"]
    assert seen_of(events, channel("audio")) == ["c"]
    assert seen_of(events, channel("audio", choice=1)) == ["d"]
    assert seen_of(events, reasoning(choice=1)) == ["e"]
    assert seen_of(events, reasoning()) == []


def test_a_channel_comes_anew_after_retrying() -> None:
    assert seen_of(drawn("S(Fa)bRS(Fa)bcC"), text()) == ["a", "b", "a", "b", "c"]


def test_a_channel_of_two_requests_comes_as_they_are_interleaved() -> None:
    with Marbles() as marbles:
        source = marbles.events("S(Fa)xbyC-Y|", OTHER)
        marbles.expect(source.pipe(text())).to_be("-a---xby---|")


# -- for_request


def test_the_diagram_of_for_request() -> None:
    rows = diagram_of(for_request)
    templates = {**OTHER, "Z": completed(of="s")}
    with Marbles() as marbles:
        source = marbles.events(rows["source"], templates)
        marbles.expect(source.pipe(for_request("r"))).to_be_events(rows["for_request"])
        marbles.expect_subscriptions(source).to_be("^-------------!")


def test_for_request_ends_with_a_failure_and_leaves_a_hot_source_then() -> None:
    with Marbles() as marbles:
        source = marbles.hot_events("-S-x-R-a-X-b--", OTHER)
        marbles.expect(source.pipe(for_request("r"))).to_be_events("-S---R-a-(X|)", {"X": failed()})
        marbles.expect_subscriptions(source).to_be("^--------!")


def test_for_request_ends_with_its_source_too() -> None:
    with Marbles() as marbles:
        marbles.expect(marbles.events("-S-x-|", OTHER).pipe(for_request("r"))).to_be_events("-S---|")
        marbles.expect(marbles.events("-S-x-#", OTHER).pipe(for_request("r"))).to_be_events("-S---#", error=MarbleError)
        marbles.expect(marbles.events("-S-x-|", OTHER).pipe(for_request("none"))).to_be("-----|")


def test_for_request_takes_what_comes_first_of_a_later_request_of_that_id_for_its_end() -> None:
    # What a synchronous source says behind the end does not come.
    events = drawn("S(Fa)CS(Fb)C")
    assert seen_of(events, for_request("r")) == events[:4]


# -- until_terminal


def test_the_diagram_of_until_terminal() -> None:
    rows = diagram_of(until_terminal)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], OTHER)
        marbles.expect(source.pipe(until_terminal())).to_be_events(rows["until_terminal"], OTHER)
        marbles.expect_subscriptions(source).to_be("^-----------!")


def test_until_terminal_of_one_request() -> None:
    with Marbles() as marbles:
        source = marbles.hot_events("-S-R-X-S---")
        marbles.expect(source.pipe(until_terminal())).to_be_events("-S-R-(X|)")
        marbles.expect_subscriptions(source).to_be("^----!")


def test_a_terminal_event_alone_is_an_end() -> None:
    events = drawn("XS(Fa)C")
    assert seen_of(events, until_terminal()) == events[:1]


def test_until_terminal_waits_for_a_request_of_which_only_a_retry_was_seen() -> None:
    with Marbles() as marbles:
        templates = {"r": retrying(of="s"), "Y": failed(of="s")}
        source = marbles.events("-S-r-C-Y-S-", templates)
        marbles.expect(source.pipe(until_terminal())).to_be_events("-S-r-C-(Y|)", templates)


def test_until_terminal_ends_with_its_source_too() -> None:
    with Marbles() as marbles:
        marbles.expect(marbles.events("-S-x-C-|", OTHER).pipe(until_terminal())).to_be_events("-S-x-C-|", OTHER)


def test_nothing_comes_twice_where_a_subscriber_brings_the_next_event() -> None:
    # The subscriber answers a token with the request's end.
    subject: Subject[SamplingEvent] = Subject()
    stream = drawn("S(Fa)C")
    seen: list[SamplingEvent] = []
    ends: list[bool] = []

    def take(event: SamplingEvent) -> None:
        seen.append(event)
        if isinstance(event, ChannelToken):
            subject.on_next(stream[-1])

    subject.pipe(until_terminal()).subscribe(take, on_completed=lambda: ends.append(True))
    for event in stream[:-1]:
        subject.on_next(event)
    assert seen == stream
    assert ends == [True]
    assert not subject.observers


def test_the_classes_of_the_sample_are_what_the_tests_take_them_for() -> None:
    kinds = [type(event) for event in drawn("S(Fa)RX")]
    assert kinds == [StreamStarted, FirstToken, ChannelToken, Retrying, Failed]
    assert [type(event) for event in drawn("sf", {"s": started(), "f": first_token()})] == [StreamStarted, FirstToken]
