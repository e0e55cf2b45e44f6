"""`partial_response`: the items that events show."""

from __future__ import annotations

from rx_sampler.conversation import BackendToolCallItem, ReasoningItem, RefusalItem, SamplingResponse, TextItem
from rx_sampler.events import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallStarted,
    DoomLoopSignals,
    ModelMetadata,
    ReasoningCompleted,
    ResponseStarted,
    SamplingEvent,
)
from rx_sampler.operators.partial_response import partial_response

from .assembling import call, delta, first, started, token


def _signed(signature: str) -> ReasoningCompleted:
    return ReasoningCompleted(request_id="r", attempt=1, ts=0.0, signature=signature)


def _note(url: str) -> AnnotationAdded:
    return AnnotationAdded(request_id="r", attempt=1, ts=0.0, annotation={"url": url})


def test_nothing_shows_nothing() -> None:
    assert partial_response([]) == SamplingResponse()
    assert partial_response([started(), first()]) == SamplingResponse()


def test_items_in_the_order_of_their_first_sign() -> None:
    events: list[SamplingEvent] = [
        started(),
        token("h", 1, channel="reasoning"),
        token("m", 2, channel="reasoning"),
        _signed("s1"),
        token("again", 3, channel="reasoning"),
        token("Hel", 4),
        token("other choice", 5, choice=1),
        token("lo", 6),
        delta(id="c", name="f"),
        token("!", 7),
        delta('{"a"'),
        token("no", 8, channel="refusal"),
        token("beep", 9, channel="audio"),
    ]
    assert partial_response(events).items == (
        ReasoningItem(text="hm", signature="s1"),
        ReasoningItem(text="again"),
        TextItem(text="Hello"),
        call('{"a"', complete=False),
        TextItem(text="!"),
        RefusalItem(text="no"),
    )


def test_annotations_stand_with_the_newest_text() -> None:
    (item,) = partial_response([_note("a")]).items
    assert item == TextItem(text="", annotations=({"url": "a"},))
    events = [token("x", 1), delta(id="c", name="f"), _note("a"), token("y", 2), _note("b")]
    items = partial_response(events).items
    assert items[0] == TextItem(text="x", annotations=({"url": "a"},))
    assert items[2] == TextItem(text="y", annotations=({"url": "b"},))


def test_a_signature_without_reasoning_or_after_text() -> None:
    assert partial_response([_signed("s")]).items == (ReasoningItem(text="", signature="s"),)
    events = [token("hm", 1, channel="reasoning"), token("x", 2), _signed("s"), _signed("t")]
    assert partial_response(events).items == (
        ReasoningItem(text="hm", signature="s"),
        TextItem(text="x"),
        ReasoningItem(text="", signature="t"),
    )


def test_tools_of_the_server_and_what_names_the_answer() -> None:
    events: list[SamplingEvent] = [
        ModelMetadata(request_id="r", attempt=1, ts=0.0, model="of the headers"),
        ResponseStarted(request_id="r", attempt=1, ts=0.0, message_id="m", model="of the wire"),
        BackendToolCallStarted(request_id="r", attempt=1, ts=0.0, call_id="b", name="search"),
        token("x", 1),
        BackendToolCallCompleted(request_id="r", attempt=1, ts=0.0, call_id="b", name="search", result={"hits": 2}),
        BackendToolCallCompleted(request_id="r", attempt=1, ts=0.0, call_id="d", name="code"),
        DoomLoopSignals(request_id="r", attempt=1, ts=0.0, triggers=("loop",)),
    ]
    assert partial_response(events) == SamplingResponse(
        items=(
            BackendToolCallItem(call_id="b", name="search", wire=({"hits": 2},)),
            TextItem(text="x"),
            BackendToolCallItem(call_id="d", name="code"),
        ),
        model="of the wire",
        message_id="m",
        doom_loop_triggers=("loop",),
    )
