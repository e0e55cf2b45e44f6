"""A backend of somebody else's: what Gemini streams mean."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

import pytest
import reactivex as rx

from rx_sampler import (
    AnnotationAdded,
    Backend,
    BackendToolCallItem,
    ChannelToken,
    Completed,
    Failed,
    OpaqueItem,
    ReasoningItem,
    ResponseStarted,
    SamplingErrorKind,
    SamplingEvent,
    SamplingResponse,
    SseFrame,
    TextItem,
    ToolCall,
    failures_as_events,
    sampling_events,
    sse_frames,
    typed_chunks,
)
from rx_sampler.testing.backend_check import check_backend

from .transcripts import (
    BLOCKED,
    BROKEN,
    CALLS,
    CODE,
    CUT,
    GROUNDED,
    PAINTED,
    SAFETY,
    THOUGHTS,
    TWO,
    chunk,
    sse,
)


def read(body: bytes) -> list[SamplingEvent]:
    events: list[SamplingEvent] = []
    rx.of(body).pipe(sse_frames(), typed_chunks("gemini"), sampling_events("gemini"), failures_as_events()).subscribe(
        events.append
    )
    return events


def answer(body: bytes) -> SamplingResponse:
    end = read(body)[-1]
    assert isinstance(end, Completed), end
    return end.response


def kinds(events: Sequence[SamplingEvent]) -> list[str]:
    return [event.kind for event in events]


pytestmark = pytest.mark.usefixtures("installed")


def test_it_is_found_by_its_entry_point(gemini: Backend[Any]) -> None:
    (point,) = entry_points(group="rx_sampler.backends", name="gemini")
    assert point.value == "rx_sampler_gemini:BACKEND"
    assert gemini is point.load()
    assert gemini.name == "gemini"


def is_finish(frame: SseFrame) -> bool:
    return b'"finishReason"' in frame.data or b'"blockReason"' in frame.data


def test_it_keeps_the_laws(gemini: Backend[Any]) -> None:
    answers = [THOUGHTS, CALLS, GROUNDED, CODE, PAINTED, TWO, CUT, SAFETY, BLOCKED]
    check_backend(gemini, answers, failures=[BROKEN], announces_end=is_finish)


def test_thoughts_and_text() -> None:
    events = read(THOUGHTS)
    assert [(e.channel, e.text) for e in events if isinstance(e, ChannelToken)] == [
        ("reasoning", "**Weighing"),
        ("reasoning", " birds**"),
        ("text", "An owl—"),
        ("text", "a bird 🦉"),
    ]
    assert kinds(events)[:3] == ["stream_started", "response_started", "first_token"]
    assert kinds(events)[-2:] == ["reasoning_completed", "completed"]
    named = events[1]
    assert isinstance(named, ResponseStarted)
    assert (named.message_id, named.model) == ("resp-1", "gemini-3-toy")
    response = answer(THOUGHTS)
    assert response.items == (
        ReasoningItem(text="**Weighing birds**"),
        TextItem(text="An owl—a bird 🦉"),
        ReasoningItem(signature="c2lnLTE="),
    )
    assert (response.stop_reason, response.raw_stop_reason) == ("stop", "STOP")
    usage = response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens, usage.total_tokens) == (9, 19, 12, 28)


def test_calls_come_whole() -> None:
    response = answer(CALLS)
    assert response.items == (
        TextItem(text="Let me look."),
        ReasoningItem(signature="c2lnLTI="),
        ToolCall(id="fc-1", name="look_up", arguments='{"name": "Eule"}'),
        ToolCall(id="call_resp-1_0_1", name="now", arguments="{}"),
    )
    assert (response.stop_reason, response.raw_stop_reason) == ("tool_calls", "STOP")


def test_a_text_with_a_signature_stands_by_itself() -> None:
    body = sse(
        chunk({"text": "a"}),
        chunk({"text": "b", "thoughtSignature": "s"}),
        chunk({"text": "c"}),
        chunk({"text": "d"}, finish="STOP"),
    )
    assert answer(body).items == (
        TextItem(text="a"),
        ReasoningItem(signature="s"),
        TextItem(text="b"),
        TextItem(text="cd"),
    )


def test_a_thought_has_the_signature_that_comes_with_its_last_part() -> None:
    body = sse(
        chunk({"text": "hm", "thought": True}),
        chunk({"text": ", well", "thought": True, "thoughtSignature": "s"}),
        chunk({"text": "b"}, finish="STOP"),
    )
    assert answer(body).items == (ReasoningItem(text="hm, well", signature="s"), TextItem(text="b"))


def test_grounding_becomes_citations() -> None:
    events = read(GROUNDED)
    notes = [event for event in events if isinstance(event, AnnotationAdded)]
    assert [note.offset for note in notes] == [35, 35, 35]
    first, second, book = (note.annotation for note in notes)
    assert first["segment"]["text"] == "Owls hunt at night."
    assert [source["web"]["title"] for source in first["groundingChunks"]] == ["Owls"]
    assert [source["web"]["title"] for source in second["groundingChunks"]] == ["Owls", "Ears"]
    assert book["uri"] == "https://example.org/book"
    assert answer(GROUNDED).annotations == (first, second, book)


def test_sources_without_a_place_in_the_text() -> None:
    source = {"web": {"uri": "https://example.org/owl"}}
    body = sse(chunk({"text": "Uhu."}, finish="STOP", groundingMetadata={"groundingChunks": [source, None]}))
    assert answer(body).annotations == (source,)


def test_code_that_the_server_ran() -> None:
    events = read(CODE)
    assert kinds(events)[2:4] == ["backend_tool_call_started", "backend_tool_call_completed"]
    item = answer(CODE).items[0]
    assert isinstance(item, BackendToolCallItem)
    assert item.name == "code_execution"
    assert [next(iter(part)) for part in item.wire] == ["executableCode", "codeExecutionResult"]


def test_parts_of_unknown_kinds_are_kept() -> None:
    painted, text = answer(PAINTED).items
    assert painted == OpaqueItem(
        wire={"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}, "thoughtSignature": "c2lnLTM="}
    )
    assert text == TextItem(text="An owl.")


def test_candidates_are_kept_apart() -> None:
    events = read(TWO)
    texts: dict[int, str] = {}
    for event in events:
        if isinstance(event, ChannelToken):
            texts[event.choice] = texts.get(event.choice, "") + event.text
    assert texts == {0: "Uhu!", 1: "Kauz?"}
    assert answer(TWO).text == "Uhu!"


@pytest.mark.parametrize(
    ("body", "stop", "raw", "text", "words"),
    [
        (CUT, "length", "MAX_TOKENS", "An owl is a", None),
        (SAFETY, "content_filter", "SAFETY", "First, take", None),
        (BLOCKED, "content_filter", "PROHIBITED_CONTENT", "", "Not this."),
        (
            sse(chunk(finish="MALFORMED_FUNCTION_CALL", finishMessage="Malformed: look_up(")),
            "stop",
            "MALFORMED_FUNCTION_CALL",
            "",
            "Malformed: look_up(",
        ),
    ],
    ids=["cut", "safety", "blocked", "malformed"],
)
def test_ends(body: bytes, stop: str, raw: str, text: str, words: str | None) -> None:
    response = answer(body)
    assert (response.stop_reason, response.raw_stop_reason) == (stop, raw)
    assert (response.text, response.stop_message) == (text, words)


def test_a_stream_without_a_finish_reason_is_no_answer() -> None:
    end = read(sse(chunk({"text": "An ow"})))[-1]
    assert isinstance(end, Failed)
    assert (end.error.kind, end.error.code, end.error.is_retryable) == (SamplingErrorKind.HTTP, "unterminated", True)
    assert end.partial is not None
    assert end.partial.text == "An ow"


def test_an_error_inside_the_stream() -> None:
    end = read(BROKEN)[-1]
    assert isinstance(end, Failed)
    assert (end.error.kind, end.error.status, end.error.is_retryable) == (SamplingErrorKind.API, 503, True)
    assert end.error.message == "The model is overloaded. Please try again later."
    assert end.partial is not None
    assert end.partial.text == "An ow"
