"""Events made into output, as a person or a program reads it."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.cli.render import EventLines, Piece, TextRenderer
from rx_sampler.conversation import ImagePart, SamplingResponse, TextItem, ToolCall, ToolResultItem, Usage
from rx_sampler.errors import SamplingErrorInfo, SamplingErrorKind
from rx_sampler.events import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallStarted,
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    FirstToken,
    ImagesStripped,
    ModelMetadata,
    ReasoningCompleted,
    ResponseStarted,
    Retrying,
    SamplingEvent,
    StreamStarted,
    ToolCallDelta,
    ToolResultAdded,
    event_from_json,
)
from rx_sampler.metrics import LatencyMetrics


def token(text: str, channel: str = "text", choice: int = 0, ts: float = 100.0) -> ChannelToken:
    return ChannelToken(request_id="r", attempt=1, ts=ts, channel=channel, text=text, chunk_index=1, choice=choice)


def tool(
    index: int, arguments: str | None = None, name: str | None = None, call_id: str | None = None
) -> ToolCallDelta:
    return ToolCallDelta(
        request_id="r", attempt=1, ts=100.0, tool_index=index, name=name, id=call_id, arguments_delta=arguments
    )


def completed(response: SamplingResponse | None = None, metrics: LatencyMetrics | None = None) -> Completed:
    return Completed(
        request_id="r",
        attempt=1,
        ts=101.0,
        response=response or SamplingResponse(stop_reason="stop"),
        metrics=metrics or LatencyMetrics(),
    )


def retrying() -> Retrying:
    return Retrying(
        request_id="r",
        attempt=1,
        ts=100.5,
        next_attempt=2,
        retry=1,
        max_retries=3,
        budget="transport",
        error_kind=SamplingErrorKind.HTTP,
        reason="connection \x1b[2Jreset",
        backoff_s=2.0,
    )


def sorted_out(pieces: Iterable[Piece], *, terminal: bool) -> tuple[str, str]:
    """What stands on stdout and on stderr."""
    out: list[str] = []
    err: list[str] = []
    for piece in pieces:
        (out if piece.sink == "answer" or (piece.sink == "aside" and terminal) else err).append(piece.text)
    return "".join(out), "".join(err)


def shown(*events: SamplingEvent, terminal: bool = False) -> tuple[str, str]:
    renderer = TextRenderer(interleaved=terminal)
    return sorted_out((piece for event in events for piece in renderer.feed(event)), terminal=terminal)


class TestAnswer:
    def test_a_file_gets_the_text_and_a_last_newline(self) -> None:
        out, _ = shown(token("The sky"), token(" is blue."), completed())
        assert out == "The sky is blue.\n"

    def test_a_newline_at_the_end_is_not_doubled(self) -> None:
        assert shown(token("done\n"), completed())[0] == "done\n"

    def test_no_text_leaves_a_file_empty(self) -> None:
        assert shown(tool(0, "{}", "f"), completed())[0] == ""

    def test_what_interrupts_the_text_does_not_reach_the_file(self) -> None:
        out, err = shown(
            token("think", "reasoning"), token("one "), tool(0, "{}", "f", "c1"), token("two"), completed()
        )
        assert out == "one two\n"
        assert err.startswith("reasoning: think\ntool call f (c1): {}\n")

    def test_a_terminal_shows_sections_apart(self) -> None:
        out, _ = shown(
            token("hm", "reasoning"),
            token("ok", "reasoning"),
            token("Yes"),
            tool(0, "{}", "f"),
            completed(),
            terminal=True,
        )
        assert out == "reasoning: hmok\n\nYes\n\ntool call f: {}\n"

    def test_a_terminal_shows_text_again_after_a_tool_on_a_line_of_its_own(self) -> None:
        out, _ = shown(token("a"), tool(0, "{}", "f"), token("b"), completed(), terminal=True)
        assert out == "a\n\ntool call f: {}\n\nb\n"

    def test_blank_lines_before_the_answer_reach_a_file_but_no_terminal(self) -> None:
        events = [token("hm\n", "reasoning"), token("\n"), token("\n\nYes\n\nNo"), completed()]
        assert shown(*events)[0] == "\n\n\nYes\n\nNo\n"
        assert shown(*events, terminal=True)[0] == "reasoning: hm\n\nYes\n\nNo\n"

    @given(st.text(st.characters()), st.booleans(), st.data())
    def test_tokens_show_the_same_however_they_were_cut(self, text: str, terminal: bool, data: st.DataObject) -> None:
        cut = data.draw(st.integers(0, len(text)))
        parts = [token(part) for part in (text[:cut], text[cut:]) if part]
        whole = [token(text)] if text else []
        assert shown(*parts, completed(), terminal=terminal) == shown(*whole, completed(), terminal=terminal)


class TestAsides:
    def test_a_refusal_is_marked_and_no_answer(self) -> None:
        out, err = shown(token("I cannot.", "refusal"), completed())
        assert out == ""
        assert err.startswith("refusal: I cannot.\n")

    def test_an_unknown_channel_is_named(self) -> None:
        assert shown(token("la", "audio_transcript"))[1] == "audio_transcript: la"

    def test_a_second_choice_is_no_part_of_the_answer(self) -> None:
        out, err = shown(token("A"), token("B", choice=1), token("a"), completed())
        assert out == "Aa\n"
        assert err.startswith("choice 1, text: B\n")

    def test_arguments_stream_behind_the_name_of_their_call(self) -> None:
        err = shown(
            tool(0, name="get_weather", call_id="call_1"), tool(0, '{"city":'), tool(0, '"Paris"}'), completed()
        )[1]
        assert err.startswith('tool call get_weather (call_1): {"city":"Paris"}\n')

    def test_calls_that_alternate_are_told_apart(self) -> None:
        err = shown(
            tool(0, '{"a"', "f", "c0"), tool(1, '{"b"', "g", "c1"), tool(0, ":1}"), tool(1, ":2}"), completed()
        )[1]
        assert err.splitlines()[:4] == [
            'tool call f (c0): {"a"',
            'tool call g (c1): {"b"',
            "tool call f (c0), continued: :1}",
            "tool call g (c1), continued: :2}",
        ]

    def test_server_tools_tell_what_they_did(self) -> None:
        err = shown(
            BackendToolCallStarted(request_id="r", attempt=1, ts=100.0, call_id="ws", name="web_search"),
            BackendToolCallCompleted(
                request_id="r",
                attempt=1,
                ts=100.0,
                call_id="ws",
                name="web_search",
                result={"type": "web_search_call", "action": {"type": "search", "query": "sky"}},
            ),
        )[1]
        assert err == (
            'server tool web_search started\nserver tool web_search finished: {"type":"search","query":"sky"}\n'
        )

    def test_sources_are_listed_once_each_at_the_end(self) -> None:
        def cited(annotation: dict[str, object]) -> AnnotationAdded:
            return AnnotationAdded(request_id="r", attempt=1, ts=100.0, annotation=annotation)

        flat = cited({"type": "url_citation", "url": "https://a.example", "title": "A"})
        wrapped = cited({"type": "url_citation", "url_citation": {"url": "https://b.example", "title": "B"}})
        response = SamplingResponse(extras={"citations": ["https://b.example", "https://c.example"]})
        out, err = shown(token("x"), flat, flat, wrapped, completed(response))
        assert out == "x\n"
        assert err.splitlines()[:4] == [
            "sources:",
            "  [1] A <https://a.example>",
            "  [2] B <https://b.example>",
            "  [3] https://c.example",
        ]


class TestEnd:
    def test_the_summary_has_speed_usage_and_stop_reason(self) -> None:
        response = SamplingResponse(
            items=(TextItem(text="x"),),
            stop_reason="length",
            raw_stop_reason="model_context_window_exceeded",
            model="m-1",
            usage=Usage(input_tokens=12, output_tokens=48, total_tokens=60, cached_input_tokens=5, reasoning_tokens=30),
            cost_usd=0.0125,
        )
        metrics = LatencyMetrics(
            time_to_first_token_ms=35.4, time_to_first_token_from_submit_ms=412.0, output_tokens_per_second=72.14
        )
        assert shown(completed(response, metrics))[1] == (
            "m-1 | time to first token 35 ms (412 ms from submit) | 72.1 tokens/s"
            " | 12 input tokens (5 cached), 48 output tokens (30 reasoning) | $0.012500"
            " | stop: length (model_context_window_exceeded)\n"
        )

    def test_a_cut_tool_call_is_called_out(self) -> None:
        cut = SamplingResponse(
            items=(ToolCall(id="c", name="f", arguments='{"a', complete=False),), stop_reason="length"
        )
        assert "the call of f is cut off: do not run it\n" in shown(tool(0, '{"a', "f"), completed(cut))[1]

    def test_a_failure_is_one_line_after_what_came(self) -> None:
        error = SamplingErrorInfo(kind=SamplingErrorKind.HTTP, message="connection\nlost \x1b[1m")
        failed = Failed(request_id="r", attempt=1, ts=101.0, error=error)
        renderer = TextRenderer(interleaved=False, hint=lambda _: "look here")
        pieces = [piece for event in (token("half"), failed) for piece in renderer.feed(event)]
        assert sorted_out(pieces, terminal=False) == ("half\n", "error: connection\\nlost \\x1b[1m (look here)\n")

    def test_cancelling_keeps_what_came_and_says_so(self) -> None:
        renderer = TextRenderer(interleaved=False)
        events: list[SamplingEvent] = [
            StreamStarted(request_id="r", attempt=1, ts=100.0),
            ResponseStarted(request_id="r", attempt=1, ts=100.0, model="m-1"),
            FirstToken(request_id="r", attempt=1, ts=100.25, channel="text"),
            token("so f"),
            token("ar"),
        ]
        pieces = [piece for event in events for piece in renderer.feed(event)]
        pieces += renderer.cancelled()
        assert sorted_out(pieces, terminal=False) == (
            "so far\n",
            "m-1 | time to first token 250 ms | 2 chunks | cancelled\n",
        )

    def test_a_retry_voids_what_came(self) -> None:
        renderer = TextRenderer(interleaved=False)
        pieces = [piece for event in (token("half"), retrying(), token("whole")) for piece in renderer.feed(event)]
        assert sorted_out(pieces, terminal=False) == (
            "half\nwhole",
            "trying again in 2.0 s (retry 1 of 3): connection \\x1b[2Jreset; what came so far is void\n",
        )
        assert "1 chunks" in sorted_out(renderer.cancelled(), terminal=False)[1]


EVIL = "\x1b]0;owned\x07\x9b2J\u202e[red]"
EVIL_EVENTS: list[SamplingEvent] = [
    StreamStarted(request_id=EVIL, attempt=1, ts=100.0),
    ModelMetadata(request_id="r", attempt=1, ts=100.0, model=EVIL),
    ResponseStarted(request_id="r", attempt=1, ts=100.0, model=EVIL, message_id=EVIL),
    FirstToken(request_id="r", attempt=1, ts=100.0, channel=EVIL),
    token(EVIL),
    token(EVIL, "reasoning"),
    token(EVIL, "refusal"),
    token(EVIL, EVIL),
    token(EVIL, EVIL, choice=1),
    ReasoningCompleted(request_id="r", attempt=1, ts=100.0, signature=EVIL),
    tool(0, EVIL, EVIL, EVIL),
    tool(1, EVIL),
    BackendToolCallStarted(request_id="r", attempt=1, ts=100.0, call_id=EVIL, name=EVIL),
    BackendToolCallCompleted(request_id="r", attempt=1, ts=100.0, call_id="c", name=EVIL, result={"input": EVIL}),
    BackendToolCallCompleted(request_id="r", attempt=1, ts=100.0, call_id="c", name=EVIL, result={"error": [EVIL]}),
    AnnotationAdded(request_id="r", attempt=1, ts=100.0, annotation={"url": EVIL, "title": EVIL}),
    AnnotationAdded(request_id="r", attempt=1, ts=100.0, annotation={EVIL: EVIL}),
    ToolResultAdded(
        request_id="r",
        attempt=1,
        ts=100.0,
        tool_call_id=EVIL,
        name=EVIL,
        result=ToolResultItem(tool_call_id=EVIL, content=EVIL),
        duration_ms=1.0,
    ),
    ImagesStripped(request_id="r", attempt=1, ts=100.0, stripped_urls=(EVIL,), reason="server_rejected"),
    DoomLoopSignals(request_id="r", attempt=1, ts=100.0, triggers=(EVIL,)),
    retrying(),
    Failed(request_id="r", attempt=1, ts=101.0, error=SamplingErrorInfo(kind=SamplingErrorKind.API, message=EVIL)),
    completed(
        SamplingResponse(
            items=(ToolCall(id="c", name=EVIL, arguments="", complete=False),),
            raw_stop_reason=EVIL,
            stop_message=EVIL,
            model=EVIL,
            extras={"citations": [EVIL, {EVIL: 1}]},
        )
    ),
]


def result(content: str, *, is_error: bool = False, images: int = 0) -> ToolResultAdded:
    item = ToolResultItem(
        tool_call_id="c", content=content, is_error=is_error, images=[ImagePart(url="https://img.test/")] * images
    )
    return ToolResultAdded(
        request_id="r:2", attempt=1, ts=102.0, turn=2, tool_call_id="c", name="look", result=item, duration_ms=12.4
    )


class TestToolResults:
    def test_a_turn_after_another_is_shown_behind_it(self) -> None:
        out, err = shown(
            token("Let me see."), tool(0, "{}", "look", "c"), completed(), result("rain"), token("Rain."), completed()
        )
        assert out == "Let me see.\nRain.\n"
        assert err.splitlines()[::2] == ["tool call look (c): {}", "tool look finished in 12 ms: rain"]

    def test_a_long_result_is_cut_and_stays_on_one_line(self) -> None:
        _, err = shown(result("a\nb" + "x" * 1000, images=2))
        (line,) = err.splitlines()
        assert line.startswith("tool look finished in 12 ms: a\\nbxxx")
        assert line.endswith("x... and 2 image(s)")
        assert len(line) < 300

    def test_an_error_is_told(self) -> None:
        assert shown(result("no place", is_error=True))[1] == "tool look failed in 12 ms: no place\n"


class TestUntrustedText:
    def test_nothing_that_a_server_says_drives_the_terminal(self) -> None:
        renderer = TextRenderer(interleaved=True)
        pieces = [piece for event in EVIL_EVENTS for piece in renderer.feed(event)] + list(renderer.cancelled())
        text = "".join(piece.text for piece in pieces)
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
        assert text.count("\\x1b]0;owned\\x07\\x9b2J\\u202e[red]") >= 20

    def test_event_lines_say_the_same_without_raw_control_characters(self) -> None:
        renderer = EventLines()
        out, err = sorted_out((piece for event in EVIL_EVENTS for piece in renderer.feed(event)), terminal=True)
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out + err)
        assert [event_from_json(line) for line in out.splitlines()] == EVIL_EVENTS


class TestEventLines:
    def test_stdout_has_one_line_an_event_and_stderr_the_notes(self) -> None:
        events: list[SamplingEvent] = [token("a", "reasoning"), token("b\n"), retrying(), completed()]
        renderer = EventLines()
        out, err = sorted_out((piece for event in events for piece in renderer.feed(event)), terminal=False)
        assert [event_from_json(line) for line in out.splitlines()] == events
        assert err.startswith("trying again in 2.0 s")
        assert err.endswith("stop: stop\n")
        assert "reasoning" not in err
