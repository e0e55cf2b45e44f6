"""Messages streams as servers really send them, and the events and response that each must give."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rx_sampler import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallItem,
    BackendToolCallStarted,
    OpaqueItem,
    ReasoningCompleted,
    ReasoningItem,
    ResponseStarted,
    SamplingErrorKind,
    SamplingResponse,
    TextItem,
    Usage,
)
from rx_sampler.backends.assembly import Context
from rx_sampler.backends.messages.transform import MessagesTransform
from rx_sampler.conversation import JsonObject
from rx_sampler.wire.idle import Pulse

from .streams import (
    DONE,
    MESSAGES,
    PING,
    STOP,
    Frame,
    adds,
    calls,
    closes,
    completed,
    failed,
    kinds,
    opens,
    run,
    sse,
    started,
    stops,
    text_block,
    tokens,
    tool_deltas,
)


def counts(usage: Usage | None) -> tuple[int, int, int] | None:
    return (usage.input_tokens, usage.output_tokens, usage.total_tokens) if usage else None


def tool(index: int, *fragments: str, id: str = "toolu_1", name: str = "f", **fields: Any) -> list[Frame]:  # noqa: A002
    return [
        opens(index, "tool_use", id=id, name=name, **{"input": {}, **fields}),
        *(adds(index, "input_json", partial_json=fragment) for fragment in fragments),
        closes(index),
    ]


def end(reason: str = "end_turn") -> list[Frame]:
    return [stops(reason), STOP]


# -- what a stream amounts to


def test_an_empty_body_is_no_answer() -> None:
    """B180 completes it; here a clean end that nothing announced is a failure on every backend (DESIGN, section 6)."""
    events = run(MESSAGES, b"")
    assert kinds(events) == ["stream_started", "failed"]
    assert (failed(events).error.kind, failed(events).error.is_retryable) == (SamplingErrorKind.HTTP, True)


def test_a_block_of_text() -> None:
    """B181."""
    events = run(MESSAGES, sse(started({"input_tokens": 10, "output_tokens": 1}), *text_block(0, "Hel", "lo"), *end()))
    assert kinds(events) == [
        "stream_started",
        "response_started",
        "first_token",
        "channel_token",
        "channel_token",
        "completed",
    ]
    response = completed(events)
    assert (response.text, response.model, response.message_id) == ("Hello", "toy-1", "msg-1")
    assert (response.stop_reason, response.raw_stop_reason) == ("stop", "end_turn")
    assert counts(response.usage) == (10, 7, 17)


def test_the_start_names_the_answer_before_any_token() -> None:
    """B182."""
    usage = {"input_tokens": 9, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2, "output_tokens": 1}
    events = run(MESSAGES, sse(started(usage), *text_block(0, "x"), *end()))
    first = events[1]
    assert isinstance(first, ResponseStarted)
    assert (first.message_id, first.model) == ("msg-1", "toy-1")
    assert (first.input_tokens, first.cache_read_input_tokens, first.cache_creation_input_tokens) == (9, 4, 2)


def thinking(index: int, text: str, signature: str | None) -> list[Frame]:
    signed: list[Frame] = [adds(index, "signature", signature=signature)] if signature else []
    return [
        opens(index, "thinking", thinking="", signature=""),
        adds(index, "thinking", thinking=text),
        *signed,
        closes(index),
    ]


def test_a_thinking_block_keeps_its_signature() -> None:
    """B183, with the signature in its own field."""
    events = run(MESSAGES, sse(started(), *thinking(0, "Let me see.", "abc123"), *text_block(1, "So."), *end()))
    assert tokens(events) == [("reasoning", "Let me see."), ("text", "So.")]
    assert kinds(events)[3:6] == ["channel_token", "reasoning_completed", "channel_token"]
    assert completed(events).items == (ReasoningItem(text="Let me see.", signature="abc123"), TextItem(text="So."))


def test_an_empty_signature_is_kept_apart_from_none() -> None:
    """A server that signs nothing says so, and takes its thoughts back; a block that was cut says nothing."""
    unsigned: list[Frame] = [adds(0, "signature", signature="")]
    for frames, signature in ((unsigned, ""), ([], None)):
        opening = (opens(0, "thinking", thinking="", signature=""), adds(0, "thinking", thinking="hm"))
        events = run(MESSAGES, sse(started(), *opening, *frames, closes(0), *text_block(1, "So."), *end()))
        assert completed(events).items[0] == ReasoningItem(text="hm", signature=signature)
        assert not [event for event in events if isinstance(event, ReasoningCompleted)]


def test_thinking_blocks_keep_their_order_and_signatures() -> None:
    """B184 for the events; where it keeps only the second block, all survive here (DESIGN, section 6)."""
    body = sse(started(), *thinking(0, "one", "sig-1"), *text_block(1, "so"), *thinking(2, "two", "sig-2"), *end())
    events = run(MESSAGES, body)
    assert [event.signature for event in events if isinstance(event, ReasoningCompleted)] == ["sig-1", "sig-2"]
    assert completed(events).items == (
        ReasoningItem(text="one", signature="sig-1"),
        TextItem(text="so"),
        ReasoningItem(text="two", signature="sig-2"),
    )


def test_a_tool_call() -> None:
    """B185: id and name first, then the fragments; unknown keys of the block are tolerated."""
    body = sse(started(), *tool(0, '{"x":', "1}", cache_control={"type": "ephemeral"}), *end("tool_use"))
    events = run(MESSAGES, body)
    assert tool_deltas(events) == [(0, "toolu_1", "f", None), (0, None, None, '{"x":'), (0, None, None, "1}")]
    assert calls(completed(events)) == [("toolu_1", "f", '{"x":1}', True)]
    assert (completed(events).stop_reason, completed(events).raw_stop_reason) == ("tool_calls", "tool_use")


def test_a_refusal_completes_with_its_text() -> None:
    """B186 and B187."""
    stop = stops("refusal", stop_details={"type": "refusal", "category": "toy", "explanation": "Not this one."})
    response = completed(run(MESSAGES, sse(started(), *text_block(0, "I will not."), stop, STOP)))
    assert (response.text, response.stop_reason, response.raw_stop_reason) == (
        "I will not.",
        "content_filter",
        "refusal",
    )
    assert response.stop_message == "Not this one."


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),  # B188
        ("novel_reason", "stop"),  # B188
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),  # B189 fails it; DESIGN, section 6: a length stop completes
        ("refusal", "content_filter"),
    ],
)
def test_stop_reasons(reason: str, stop: str) -> None:
    response = completed(run(MESSAGES, sse(started(), *text_block(0, "x"), *end(reason))))
    assert (response.stop_reason, response.raw_stop_reason) == (stop, reason)


def test_an_unknown_stop_reason_is_written_down_as_it_came() -> None:
    """B141."""
    response = completed(run(MESSAGES, sse(started(), *text_block(0, "x"), *end("novel_reason"))))
    again = SamplingResponse.model_validate_json(response.model_dump_json())
    assert (again.raw_stop_reason, again) == ("novel_reason", response)


def test_what_a_stop_says_of_itself_is_kept() -> None:
    """B142: all of it, keys of tomorrow too."""
    details = {"type": "refusal", "category": "cyber", "explanation": "Not this one.", "novelty": {"a": 1}}
    stop = stops("refusal", stop_details=details)
    response = completed(run(MESSAGES, sse(started(), *text_block(0, "No."), stop, STOP)))
    assert response.stop_message == "Not this one."
    assert response.extras == {"stop_details": details}


def test_a_refusal_after_a_call_is_a_refusal() -> None:
    """B190 gives tool_calls; here refusals complete with content_filter whatever came before (DESIGN, section 6)."""
    response = completed(run(MESSAGES, sse(started(), *tool(0, "{}"), *end("refusal"))))
    assert response.stop_reason == "content_filter"
    assert len(response.tool_calls) == 1


def test_a_call_at_the_token_limit_is_length() -> None:
    """B201 fails it; DESIGN, section 6: a length stop completes, and the call says that it is cut."""
    response = completed(run(MESSAGES, sse(started(), *tool(0, '{"x":'), *end("max_tokens"))))
    assert (response.stop_reason, response.raw_stop_reason) == ("length", "max_tokens")
    assert calls(response) == [("toolu_1", "f", '{"x":', False)]


@pytest.mark.parametrize("fragments", [(), ("",)])
def test_the_token_limit_before_the_first_argument(fragments: tuple[str, ...]) -> None:
    """DESIGN, section 6: a call that the limit cut is never replaced by `{}`."""
    response = completed(run(MESSAGES, sse(started(), *tool(0, *fragments), *end("max_tokens"))))
    assert calls(response) == [("toolu_1", "f", "", False)]


def test_a_call_before_the_text_that_the_limit_cut_is_whole() -> None:
    body = sse(started(), *tool(0), *text_block(1, "and the"), *end("max_tokens"))
    assert calls(completed(run(MESSAGES, body))) == [("toolu_1", "f", "{}", True)]


@pytest.mark.parametrize(
    ("kind", "status", "error_kind", "retryable"),
    [
        (
            "overloaded_error",
            529,
            SamplingErrorKind.API,
            True,
        ),  # B191 says 500; DESIGN, section 6: its own type decides
        ("rate_limit_error", 429, SamplingErrorKind.RATE_LIMITED, True),
        ("api_error", 500, SamplingErrorKind.API, True),
        ("timeout_error", 504, SamplingErrorKind.API, True),
        ("invalid_request_error", 400, SamplingErrorKind.API, False),
        ("authentication_error", 401, SamplingErrorKind.AUTH, False),
        ("billing_error", 402, SamplingErrorKind.API, False),
        ("permission_error", 403, SamplingErrorKind.API, False),
        ("not_found_error", 404, SamplingErrorKind.API, False),
        ("request_too_large", 413, SamplingErrorKind.API, False),
        ("novel_error", None, SamplingErrorKind.API, True),
    ],
)
@pytest.mark.parametrize("before", [[], [started(), opens(0, "text", text=""), adds(0, "text", text="so far")]])
def test_an_error_is_classed_by_its_type(
    kind: str, status: int | None, error_kind: SamplingErrorKind, retryable: bool, before: list[Frame]
) -> None:
    """B191 in place; first in the stream, or in its middle."""
    # B127
    error = {"type": "error", "error": {"type": kind, "message": "Something happened"}, "request_id": "req_1"}
    last = failed(run(MESSAGES, sse(*before, ("error", error), *end())))
    info = last.error
    assert (info.kind, info.status, info.code, info.is_retryable) == (error_kind, status, kind, retryable)
    assert info.message == "Something happened"
    assert (last.partial.text if last.partial else None) == ("so far" if before else None)


def test_usage_is_cumulative() -> None:
    body = sse(
        started({"input_tokens": 100, "cache_read_input_tokens": 5000, "cache_creation_input_tokens": 200}),
        *text_block(0, "x"),
        stops(None, {"output_tokens": 3}),
        stops("end_turn", {"output_tokens": 7}),
        STOP,
    )
    """B194: the input is the sum of the three buckets."""
    usage = completed(run(MESSAGES, body)).usage
    assert usage is not None
    assert counts(usage) == (5300, 7, 5307)
    assert (usage.cached_input_tokens, usage.cache_creation_input_tokens) == (5000, 200)


def test_real_counts_may_come_last() -> None:
    """B195."""
    late = {"input_tokens": 10, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 50, "output_tokens": 4}
    body = sse(started({"input_tokens": 0, "output_tokens": 0}), *text_block(0, "x"), stops("end_turn", late), STOP)
    usage = completed(run(MESSAGES, body)).usage
    assert usage is not None
    assert counts(usage) == (960, 4, 964)
    assert (usage.cached_input_tokens, usage.cache_creation_input_tokens) == (900, 50)


def test_a_prompt_from_the_cache_alone() -> None:
    """B196."""
    body = sse(
        started({"input_tokens": 0, "cache_read_input_tokens": 2500, "output_tokens": 1}),
        *text_block(0, "x"),
        stops("end_turn", {"output_tokens": 1}),
        STOP,
    )
    assert counts(completed(run(MESSAGES, body)).usage) == (2500, 1, 2501)


def test_all_zeros_are_no_usage() -> None:
    """B197."""
    zeros = {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    assert (
        completed(run(MESSAGES, sse(started(zeros), *text_block(0, "x"), stops("end_turn", zeros), STOP))).usage is None
    )


@pytest.mark.parametrize("usage", [{"usage": None}, {}])
def test_a_stop_without_usage_keeps_what_is_known(usage: JsonObject) -> None:
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, **usage}
    assert counts(completed(run(MESSAGES, sse(started(), *text_block(0, "x"), stop, STOP))).usage) == (9, 1, 10)


@pytest.mark.parametrize("name", ["input_tokens", "cache_read_input_tokens"])
@pytest.mark.parametrize("late", [0, None])
def test_a_late_zero_or_null_erases_no_count(name: str, late: int | None) -> None:
    first = {"input_tokens": 20, "cache_read_input_tokens": 6, "output_tokens": 1}
    body = sse(started(first), *text_block(0, "x"), stops("end_turn", {name: late, "output_tokens": 3}), STOP)
    assert counts(completed(run(MESSAGES, body)).usage) == (26, 3, 29)


def test_texts_are_joined_as_they_streamed() -> None:
    """B198 puts a line end between blocks; here `text` equals the tokens joined, and blocks are items."""
    events = run(MESSAGES, sse(started(), *text_block(0, "one"), *text_block(1, "two"), *end()))
    assert completed(events).text == "onetwo"
    assert completed(events).items == (TextItem(text="one"), TextItem(text="two"))


def test_the_matched_stop_sequence_is_kept() -> None:
    """B199."""
    stop = stops("stop_sequence", stop_sequence="###")
    response = completed(run(MESSAGES, sse(started(), *text_block(0, "x"), stop, STOP)))
    assert (response.stop_reason, response.raw_stop_reason, response.stop_sequence) == ("stop", "stop_sequence", "###")


def test_a_block_never_stopped_is_not_lost() -> None:
    """B200 loses it; rule 2 of the wire: nothing that streamed may be lost."""
    body = sse(started(), opens(0, "text", text=""), adds(0, "text", text="kept"), *end())
    assert completed(run(MESSAGES, body)).text == "kept"


# -- quirks


def test_pings_say_nothing_and_are_no_progress() -> None:
    # B193
    blocks = text_block(0, "a", "b")
    quiet = run(MESSAGES, sse(started(), *blocks, *end()))
    noisy: list[Frame] = [PING, started(), PING]
    for block in blocks:
        noisy += [block, PING]
    assert run(MESSAGES, sse(*noisy, *end(), PING)) == quiet
    pulse = Pulse(0.0)
    transform = MessagesTransform(Context(request_id="r-1", pulse=pulse))
    transform.feed(_chunk(started()))
    pulse.now = 5.0
    transform.feed(_chunk(PING))
    assert pulse.content_at == 0.0


def _chunk(document: JsonObject) -> Any:
    return document


UNKNOWN: dict[str, list[Frame]] = {
    "event": [{"type": "novel_event", "payload": {"a": 1}}],
    "delta": [adds(0, "novel", novelty="?")],
    "event without a type": [{"hello": 1}],
    "named event that is no JSON": [("novel_event", "not json")],
}


@pytest.mark.parametrize("frames", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_the_unknown_says_nothing(frames: list[Frame]) -> None:
    block: list[Frame] = [
        opens(0, "text", text=""),
        adds(0, "text", text="a"),
        *frames,
        adds(0, "text", text="b"),
        closes(0),
    ]
    events = run(MESSAGES, sse(started(), *block, *end()))
    assert tokens(events) == [("text", "a"), ("text", "b")]
    assert completed(events).items == (TextItem(text="ab"),)


@pytest.mark.parametrize(
    "field",
    [
        "content",
        "novelty",
    ],
)
def test_an_unknown_block_is_kept_as_it_came(field: str) -> None:
    """What its deltas brought is kept with it: the next turn must send it back."""
    block: list[Frame] = [
        opens(0, "novel", weight=3),
        adds(0, "novel", **{field: "de"}),
        adds(0, "novel", **{field: "ep"}),
        closes(0),
    ]
    events = run(MESSAGES, sse(started(), *block, *text_block(1, "x"), *end()))
    assert tokens(events) == [("text", "x")]
    assert completed(events).items == (
        OpaqueItem(wire={"type": "novel", "weight": 3, field: "deep"}, backend="messages"),
        TextItem(text="x"),
    )


def test_text_in_the_opening_object() -> None:
    events = run(MESSAGES, sse(started(), opens(0, "text", text="Hi"), adds(0, "text", text="!"), closes(0), *end()))
    assert tokens(events) == [("text", "Hi"), ("text", "!")]


def test_thought_and_signature_in_the_opening_object() -> None:
    body = sse(started(), opens(0, "thinking", thinking="hm", signature="s"), closes(0), *text_block(1, "x"), *end())
    assert completed(run(MESSAGES, body)).items[0] == ReasoningItem(text="hm", signature="s")


def test_no_text_in_the_opening_object() -> None:
    body = sse(started(), opens(0, "text"), adds(0, "text", text="x"), closes(0), *end())
    assert tokens(run(MESSAGES, body)) == [("text", "x")]


def test_a_signature_on_a_thinking_delta() -> None:
    block: list[Frame] = [
        opens(0, "thinking", thinking=""),
        adds(0, "thinking", thinking="hm"),
        adds(0, "thinking", thinking="", signature="sig"),
        closes(0),
    ]
    events = run(MESSAGES, sse(started(), *block, *text_block(1, "x"), *end()))
    assert [event.signature for event in events if isinstance(event, ReasoningCompleted)] == ["sig"]
    assert completed(events).items[0] == ReasoningItem(text="hm", signature="sig")


def test_thinking_without_a_signature() -> None:
    events = run(MESSAGES, sse(started(), *thinking(0, "hm", None), *text_block(1, "x"), *end()))
    assert "reasoning_completed" not in kinds(events)
    assert completed(events).items[0] == ReasoningItem(text="hm", signature=None)


def test_redacted_thinking_is_kept_in_its_place() -> None:
    """B143, and more: a next turn must send it back."""
    sealed: list[Frame] = [opens(1, "redacted_thinking", data="c2VhbGVk"), closes(1)]
    events = run(MESSAGES, sse(started(), *thinking(0, "hm", "s"), *sealed, *tool(2, "{}"), *end("tool_use")))
    assert tokens(events) == [("reasoning", "hm")]
    kinds_of_items = [item.type for item in completed(events).items]
    assert kinds_of_items == ["reasoning", "reasoning", "tool_call"]
    assert completed(events).items[1] == ReasoningItem(redacted_data="c2VhbGVk")


def test_an_empty_first_fragment_is_no_delta() -> None:
    events = run(MESSAGES, sse(started(), *tool(0, "", '{"a":1}'), *end("tool_use")))
    assert tool_deltas(events) == [(0, "toolu_1", "f", None), (0, None, None, '{"a":1}')]


@pytest.mark.parametrize("fragments", [(), ("",), ("  ",)])
def test_a_tool_without_parameters(fragments: tuple[str, ...]) -> None:
    assert calls(completed(run(MESSAGES, sse(started(), *tool(0, *fragments), *end("tool_use"))))) == [
        ("toolu_1", "f", "{}", True)
    ]


def test_the_whole_input_in_the_opening_object() -> None:
    events = run(MESSAGES, sse(started(), *tool(0, input={"a": 1}), *end("tool_use")))
    (call,) = completed(events).tool_calls
    assert (call.arguments_json, call.complete) == ({"a": 1}, True)
    assert "".join(part or "" for *_, part in tool_deltas(events)) == call.arguments


def test_deltas_beat_the_input_of_the_opening_object() -> None:
    events = run(MESSAGES, sse(started(), *tool(0, '{"b":2}', input={"a": 1}), *end("tool_use")))
    assert calls(completed(events)) == [("toolu_1", "f", '{"b":2}', True)]


@pytest.mark.parametrize("fragments", [('{"a":',), ("{'a': 1}",), ("[1]",), ('{"a":1}{"a":2}',)])
def test_input_that_is_no_object_stays_raw(fragments: tuple[str, ...]) -> None:
    events = run(MESSAGES, sse(started(), *tool(0, *fragments), *end("tool_use")))
    assert calls(completed(events)) == [("toolu_1", "f", "".join(fragments), False)]


def test_a_lost_stream_leaves_its_call_unfinished() -> None:
    body = sse(
        started(), opens(0, "tool_use", id="toolu_1", name="f", input={}), adds(0, "input_json", partial_json='{"a"')
    )
    assert calls(failed(run(MESSAGES, body)).partial) == [("toolu_1", "f", '{"a"', False)]


def test_a_call_of_which_only_the_name_came_is_unfinished() -> None:
    body = sse(started(), opens(0, "tool_use", id="toolu_1", name="f", input={}))
    assert calls(failed(run(MESSAGES, body)).partial) == [("toolu_1", "f", "", False)]


HOSTED: dict[str, tuple[str, str, str]] = {
    "web search": ("server_tool_use", "web_search", "web_search_tool_result"),
    "code execution": ("server_tool_use", "code_execution", "code_execution_tool_result"),
    "bash": ("server_tool_use", "bash_code_execution", "bash_code_execution_tool_result"),
    "mcp": ("mcp_tool_use", "roll_dice", "mcp_tool_result"),
}


@pytest.mark.parametrize(("use", "name", "result"), HOSTED.values(), ids=HOSTED.keys())
@pytest.mark.parametrize(
    "content",
    [[{"type": "novel_result", "url": "https://example.org"}], {"type": "tool_error", "error_code": "unavailable"}],
)
def test_the_servers_own_tools(use: str, name: str, result: str, content: object) -> None:
    """Also when the result is an error object."""
    blocks: list[Frame] = [
        opens(0, use, id="srv_1", name=name, input={}),
        adds(0, "input_json", partial_json='{"query":'),
        adds(0, "input_json", partial_json='"tea"}'),
        closes(0),
        opens(1, result, tool_use_id="srv_1", content=content),
        closes(1),
        *text_block(2, "Tea."),
    ]
    events = run(MESSAGES, sse(started(), *blocks, *end()))
    hosted = [
        (e.kind, e.call_id, e.name) for e in events if isinstance(e, BackendToolCallStarted | BackendToolCallCompleted)
    ]
    assert hosted == [("backend_tool_call_started", "srv_1", name), ("backend_tool_call_completed", "srv_1", name)]
    (done,) = (e for e in events if isinstance(e, BackendToolCallCompleted))
    assert done.result == {"type": result, "tool_use_id": "srv_1", "content": content}
    assert tool_deltas(events) == []
    response = completed(events)
    assert (response.tool_calls, response.stop_reason) == ((), "stop")
    call, answer, text = response.items
    assert isinstance(call, BackendToolCallItem)
    assert call.wire == ({"type": use, "id": "srv_1", "name": name, "input": {"query": "tea"}},)
    assert answer == OpaqueItem(wire={"type": result, "tool_use_id": "srv_1", "content": content}, backend="messages")
    assert text == TextItem(text="Tea.")


def test_a_result_without_its_call() -> None:
    """A turn that goes on after `pause_turn` begins so: the call stands in the turn before."""
    blocks: list[Frame] = [opens(0, "web_search_tool_result", tool_use_id="srv_0", content=[]), closes(0)]
    events = run(MESSAGES, sse(started(), *blocks, *text_block(1, "x"), *end()))
    hosted = [(e.kind, e.call_id) for e in events if isinstance(e, BackendToolCallStarted | BackendToolCallCompleted)]
    assert hosted == [("backend_tool_call_started", "srv_0"), ("backend_tool_call_completed", "srv_0")]


def test_citations_are_kept_with_their_block() -> None:
    cited = {"type": "char_location", "cited_text": "tea", "document_index": 0}
    block: list[Frame] = [
        opens(0, "text", text="", citations=[]),
        adds(0, "text", text="Tea it is."),
        adds(0, "citations", citation=cited),
        closes(0),
    ]
    events = run(MESSAGES, sse(started(), *block, *text_block(1, "Bye."), *end()))
    assert [(e.annotation, e.offset) for e in events if isinstance(e, AnnotationAdded)] == [(cited, 10)]
    assert completed(events).items == (TextItem(text="Tea it is.", annotations=(cited,)), TextItem(text="Bye."))


def test_text_sent_to_a_tool_block() -> None:
    """SGLang: the delta's type decides, and neither is lost."""
    blocks: list[Frame] = [
        opens(0, "tool_use", id="t1", name="a", input={}),
        adds(0, "input_json", partial_json='{"x":'),
        adds(0, "text", text="hm"),
        adds(0, "input_json", partial_json="1}"),
        closes(0),
    ]
    events = run(MESSAGES, sse(started(), *blocks, *end("tool_use")))
    assert calls(completed(events)) == [("t1", "a", '{"x":1}', True)]
    assert tokens(events) == [("text", "hm")]
    assert completed(events).text == "hm"


@pytest.mark.parametrize("name", ["thinking", "input_json"])
def test_other_deltas_sent_to_a_text_block(name: str) -> None:
    odd = adds(0, "thinking", thinking="hm") if name == "thinking" else adds(0, "input_json", partial_json='{"x":1}')
    body = sse(started(), opens(0, "text", text=""), adds(0, "text", text="a"), odd, adds(0, "text", text="b"), *end())
    events = run(MESSAGES, body)
    response = completed(events)
    assert response.text == "ab"
    assert response.reasoning == ("hm" if name == "thinking" else "")
    assert [call.arguments for call in response.tool_calls] == ([] if name == "thinking" else ['{"x":1}'])


def test_a_stop_may_be_missing_between_blocks() -> None:
    blocks: list[Frame] = [
        opens(0, "thinking", thinking=""),
        adds(0, "thinking", thinking="hm"),
        adds(0, "signature", signature="s"),
        opens(1, "text", text=""),
        adds(1, "text", text="On it."),
        opens(2, "tool_use", id="t1", name="f", input={"u": "x"}),
    ]
    events = run(MESSAGES, sse(started(), *blocks, *end("tool_use")))
    assert kinds(events)[3:6] == ["channel_token", "reasoning_completed", "channel_token"]
    response = completed(events)
    assert [item.type for item in response.items] == ["reasoning", "text", "tool_call"]
    assert [(call.name, call.arguments_json, call.complete) for call in response.tool_calls] == [
        ("f", {"u": "x"}, True)
    ]


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (adds(0, "text", text="x"), "text"),
        (adds(0, "thinking", thinking="x"), "reasoning"),
        (adds(0, "input_json", partial_json='{"a":1}'), "tool_call"),
    ],
)
def test_a_delta_opens_its_block(frame: JsonObject, kind: str) -> None:
    response = completed(run(MESSAGES, sse(started(), frame, *end())))
    assert [item.type for item in response.items] == [kind]
    if kind == "tool_call":
        assert response.tool_calls[0].arguments == '{"a":1}'
        assert response.tool_calls[0].id


STARTS: dict[str, list[Frame]] = {
    "missing": [],
    "twice": [started(), started()],
    "without content": [{"type": "message_start", "message": {"id": "msg-1", "model": "toy-1"}}],
    "null": [{"type": "message_start", "message": None}],
    "nulls": [started({"input_tokens": None, "output_tokens": None}, content=None, role=None, stop_reason=None)],
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
def test_any_start_will_do(start: list[Frame]) -> None:
    events = run(MESSAGES, sse(*start, *text_block(0, "x"), *end()))
    assert kinds(events).count("response_started") == (1 if start else 0)
    assert completed(events).text == "x"


@pytest.mark.parametrize(("named", "typed"), [(True, True), (True, False), (False, True)])
def test_the_type_is_in_the_data_or_in_the_name(named: bool, typed: bool) -> None:
    frames: list[Frame] = []
    for document in [started(), *text_block(0, "plain"), stops("end_turn"), STOP]:
        data = document if typed else {name: value for name, value in document.items() if name != "type"}
        frames.append((str(document["type"]), data) if named else data)
    events = run(MESSAGES, sse(*frames))
    assert (completed(events).text, completed(events).raw_stop_reason) == ("plain", "end_turn")


def test_the_type_in_the_data_beats_the_name() -> None:
    frames: list[Frame] = [("message", document) for document in [started(), *text_block(0, "x"), stops("end_turn")]]
    assert completed(run(MESSAGES, sse(*frames, ("ping", STOP)))).text == "x"


def test_a_later_null_reason_takes_nothing_back() -> None:
    body = sse(started(), *text_block(0, "x"), stops("max_tokens", stop_sequence="#"), stops(None), STOP)
    response = completed(run(MESSAGES, body))
    assert (response.stop_reason, response.raw_stop_reason, response.stop_sequence) == ("length", "max_tokens", "#")


@pytest.mark.parametrize("tail", [[], [PING, PING], [DONE]])
def test_a_stop_reason_is_enough(tail: list[Frame]) -> None:
    response = completed(run(MESSAGES, sse(started(), *text_block(0, "All done."), stops("end_turn"), *tail)))
    assert (response.text, response.raw_stop_reason) == ("All done.", "end_turn")


def test_a_message_stop_is_enough() -> None:
    response = completed(run(MESSAGES, sse(started(), *text_block(0, "x"), STOP)))
    assert (response.stop_reason, response.raw_stop_reason) == ("stop", None)


@pytest.mark.parametrize("tail", [[], [PING], [DONE], [stops(None)]])
def test_neither_is_a_lost_connection(tail: list[Frame]) -> None:
    last = failed(run(MESSAGES, sse(started(), *text_block(0, "Nearly"), *tail)))
    assert (last.error.kind, last.error.code, last.error.is_retryable) == (SamplingErrorKind.HTTP, "unterminated", True)
    assert last.partial is not None
    assert (last.partial.text, last.partial.stop_reason) == ("Nearly", None)


def test_nothing_counts_after_the_message_stop() -> None:
    events = run(MESSAGES, sse(started(), *text_block(0, "x"), *end(), *text_block(1, "late")))
    assert completed(events).text == "x"


def test_a_json_answer_gives_the_same_events_as_a_stream() -> None:
    whole = {
        "id": "msg-1",
        "type": "message",
        "model": "toy-1",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "Yes."},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 7},
    }
    streamed: list[Frame] = [*thinking(0, "Hm.", "s"), *text_block(1, "Yes."), *tool(2, '{"a": 1}'), *end("tool_use")]
    first = run(MESSAGES, sse(started({"input_tokens": 9, "output_tokens": 7}), *streamed))
    assert run(MESSAGES, json.dumps(whole, indent=1).encode()) == first


def test_half_characters_join_across_deltas() -> None:
    events = run(MESSAGES, sse(started(), *text_block(0, "hi \ud83d", "\ude00!"), *end()))
    assert tokens(events) == [("text", "hi "), ("text", "😀!")]


def test_think_tags_across_blocks() -> None:
    """Held back at the end of its block, half a tag belongs to that block."""
    body = sse(started(), *text_block(0, "one"), *text_block(1, "two <thi"), *end())
    events = run(MESSAGES, body, split_think_tags=True)
    assert "".join(text for _, text in tokens(events)) == "onetwo <thi"
    assert completed(events).items == (TextItem(text="one"), TextItem(text="two <thi"))


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "content_block_start", "index": None, "content_block": None},
        {"type": "content_block_delta", "index": 7},
        {"type": "content_block_delta", "index": 7, "delta": None},
        {"type": "content_block_delta", "index": 7, "delta": {}},
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": None}},
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": []}},
        {"type": "content_block_stop", "index": 99},
        {"type": "content_block_stop"},
        {"type": "message_delta"},
        {"type": "message_delta", "delta": None, "usage": None},
        {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": "many"}},
        {"type": 5},
        {"type": None},
        {},
        [],
        5,
    ],
    ids=json.dumps,
)
def test_odd_chunks_pass_by(odd: object) -> None:
    body = sse(started(), *text_block(0, "be"), json.dumps(odd), *text_block(1, "fore"), *end())
    assert completed(run(MESSAGES, body)).text == "before"
