"""`split_think_tags`: tokens and response split alike, however the text came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from counted_calls import calls_during
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.conversation import ReasoningItem, RefusalItem, ResponseItem, SamplingResponse, TextItem
from rx_sampler.events import AnnotationAdded, Completed, Failed, SamplingEvent
from rx_sampler.metrics import LatencyMetrics
from rx_sampler.operators.think_tags import split_think_tags

from .assembling import (
    MOST,
    answer,
    call,
    check_legal,
    completed,
    delta,
    every_cut,
    failed,
    first,
    retrying,
    run,
    texts,
    token,
)
from .test_tools import cut_at

CASES: list[tuple[str, list[str], list[str]]] = [
    ("plain", ["plain"], []),
    ("<think>hm</think>yes", ["yes"], ["hm"]),
    ("a<think>b</think>c<think>d</think>", ["a", "c"], ["b", "d"]),
    ("hm</think>yes", ["hm</think>yes"], []),
    ("</think>yes", ["yes"], []),
    (" \n</think>yes", [" \n", "yes"], []),
    ("<think>open", [], ["open"]),
    ("a<thin b", ["a<thin b"], []),
    ("a <", ["a <"], []),
    ("<think><think>a</think>b", ["b"], ["<think>a"]),
    ("<think></think>", [], []),
]


@pytest.mark.parametrize(("text", "said", "thought"), CASES)
def test_tags_however_they_are_cut(text: str, said: list[str], thought: list[str]) -> None:
    for pieces in every_cut(text):
        out = run(split_think_tags(), answer(pieces))
        check_legal(out)
        assert "".join(texts(out)) == "".join(said)
        assert "".join(texts(out, "reasoning")) == "".join(thought)
        end = out[-1]
        assert isinstance(end, Completed)
        assert (end.response.text, end.response.reasoning) == ("".join(said), "".join(thought))


def test_items_in_order_and_annotations_with_the_text() -> None:
    note = {"url": "u"}
    text = TextItem(text="a<think>b</think>c", annotations=(note,))
    end = completed(ReasoningItem(text="0"), text, call("{}"), RefusalItem(text="<think>"), TextItem(text="d"))
    (out,) = run(split_think_tags(), [end])
    assert isinstance(out, Completed)
    assert out.response.items == (
        ReasoningItem(text="0"),
        TextItem(text="a"),
        ReasoningItem(text="b"),
        TextItem(text="c", annotations=(note,)),
        call("{}"),
        RefusalItem(text="<think>"),
        TextItem(text="d"),
    )


def test_annotations_are_kept_where_no_text_is_left() -> None:
    note = {"url": "u"}
    (out,) = run(split_think_tags(), [completed(TextItem(text="<think>b", annotations=(note,)))])
    assert isinstance(out, Completed)
    assert out.response.items == (ReasoningItem(text="b"), TextItem(text="", annotations=(note,)))


def test_all_else_of_the_terminal_event_stays() -> None:
    end = Completed(
        request_id="r",
        attempt=1,
        ts=9.0,
        response=SamplingResponse(items=(TextItem(text="<think>a</think>b"),), stop_reason="stop", model="m"),
        metrics=LatencyMetrics(chunk_count=7),
    )
    (out,) = run(split_think_tags(), [end])
    assert isinstance(out, Completed)
    assert (out.ts, out.metrics, out.response.model, out.response.stop_reason) == (9.0, end.metrics, "m", "stop")


def test_a_partial_response_is_split_and_none_stays_none() -> None:
    (out,) = run(split_think_tags(), [failed("a<think>b")])
    assert isinstance(out, Failed)
    assert out.partial is not None
    assert out.partial.items == (TextItem(text="a"), ReasoningItem(text="b"))
    assert run(split_think_tags(), [failed()]) == [failed()]


def test_half_a_tag_before_something_else_is_text_in_both() -> None:
    # The wire's response holds both pieces of text in one item: what looks like a tag there was none in the stream.
    events = [
        first(),
        token("a<thi", 1),
        delta("{}", id="c", name="f", ts=2.0),
        token("nk>b<think>c", 3),
        completed("a<think>b<think>c", call("{}"), ts=4.0),
    ]
    out = run(split_think_tags(), events)
    assert texts(out) == ["a", "<thi", "nk>b"]
    assert texts(out, "reasoning") == ["c"]
    end = out[-1]
    assert isinstance(end, Completed)
    assert end.response.items == (TextItem(text="a<think>b"), ReasoningItem(text="c"), call("{}"))
    check_legal(out)


def test_a_tag_over_two_items_of_text() -> None:
    (out,) = run(split_think_tags(), [completed("a<th", "ink>b</think>", "c")])
    assert isinstance(out, Completed)
    assert out.response.items == (TextItem(text="a"), ReasoningItem(text="b"), TextItem(text="c"))


def test_offsets_of_annotations_count_what_is_text_now() -> None:
    def note(offset: int | None, channel: str = "text") -> AnnotationAdded:
        return AnnotationAdded(request_id="r", attempt=1, ts=1.0, annotation={}, channel=channel, offset=offset)

    events: list[SamplingEvent] = [note(0), token("<think>hm</think>yes", 1), note(20), note(None), note(20, "refusal")]
    out = [event for event in run(split_think_tags(), events) if isinstance(event, AnnotationAdded)]
    assert [one.offset for one in out] == [0, 3, None, 20]


def test_choices_and_requests_apart() -> None:
    events = [
        token("<think>a", 1),
        token("x", 2, choice=1),
        token("<think>s", 1, of="s"),
        token("b</think>c", 3),
        token("y</think>", 4, choice=1),
        token("</think>t", 2, of="s"),
    ]
    out = run(split_think_tags(), events)
    mine = [event for event in out if event.request_id == "r"]
    assert (texts(mine), texts(mine, "reasoning")) == (["c"], ["a", "b"])
    assert texts(mine, choice=1) == ["x", "y</think>"]
    theirs = [event for event in out if event.request_id == "s"]
    assert (texts(theirs), texts(theirs, "reasoning")) == (["t"], ["s"])


def test_retrying_forgets_that_a_tag_was_open() -> None:
    events = [token("<think>a", 1), retrying(ts=2.0), token("b", 1, attempt=2, ts=3.0)]
    out = run(split_think_tags(), events)
    assert (texts(out), texts(out, "reasoning")) == (["b"], ["a"])
    check_legal(out)


PARTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<thi", "nk>", "</", "think>", "<", "a", " ", "b\n"]), max_size=10
).map("".join)


@given(PARTS, st.lists(st.integers(0, 60), max_size=10), st.sets(st.integers(0, 12)))
def test_response_and_tokens_agree_whatever_interrupts_them(text: str, places: list[int], tools: set[int]) -> None:
    events: list[SamplingEvent] = []
    pieces = cut_at(text, places) if text else []
    for index, piece in enumerate(pieces, 1):
        if index in tools:
            events.append(delta("x", ts=float(index)))
        if not events or index == 1:
            events.append(first(ts=float(index)))
        events.append(token(piece, index))
    items: list[ResponseItem | str] = [text] if text else []
    out = run(split_think_tags(), [*events, completed(*items, ts=99.0)])
    check_legal(out)
    end = out[-1]
    assert isinstance(end, Completed)
    assert end.response.text == "".join(texts(out))
    assert end.response.reasoning == "".join(texts(out, "reasoning"))


@given(st.lists(PARTS, min_size=1, max_size=4), st.lists(st.integers(0, 60), max_size=10))
def test_response_and_tokens_agree_over_several_items(parts: Sequence[str], places: list[int]) -> None:
    text = "".join(parts)
    events = answer(cut_at(text, places) if text else [])[:-1]
    out = run(split_think_tags(), [*events, completed(*parts, ts=99.0)])
    end = out[-1]
    assert isinstance(end, Completed)
    assert end.response.text == "".join(texts(out))
    assert end.response.reasoning == "".join(texts(out, "reasoning"))


@pytest.mark.parametrize("pieces", [["x"], ["<"], ["<think>a", "</think>b"]], ids=repr)
def test_calls_are_linear_in_the_tokens(pieces: list[str]) -> None:
    def work(n: int) -> Any:
        events = answer(pieces * n)
        return lambda: run(split_think_tags(), events)

    work(3)()
    few, many = (calls_during(work(n)) for n in (100, 1000))
    assert many <= MOST * few
