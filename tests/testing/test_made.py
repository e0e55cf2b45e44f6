"""Events that are drawn: counted by request, announced, and legal; their ends say what was drawn before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.conversation import (
    BackendToolCallItem,
    ReasoningItem,
    RefusalItem,
    TextItem,
    ToolCall,
    ToolResultItem,
    Usage,
)
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
)
from rx_sampler.testing.grammar import GrammarError, check_all_events, check_events
from rx_sampler.testing.made import (
    Drawing,
    Template,
    annotation,
    backend_tool_completed,
    backend_tool_started,
    completed,
    failed,
    first_token,
    images_stripped,
    metadata,
    reasoning,
    reasoning_completed,
    refusal,
    response_started,
    retrying,
    signals,
    started,
    text,
    token,
    tool,
    tool_result,
)
from rx_sampler.testing.marbles import drawn

RATE_LIMITED, DOOM_LOOP = SamplingErrorKind.RATE_LIMITED, SamplingErrorKind.DOOM_LOOP_DETECTED


def ends(events: list[SamplingEvent]) -> list[Completed]:
    return [event for event in events if isinstance(event, Completed)]


def tokens(events: list[SamplingEvent]) -> list[ChannelToken]:
    return [event for event in events if isinstance(event, ChannelToken)]


# -- the letters


def test_the_letters_that_mean_something() -> None:
    events = drawn("-S-(Fa)bRS(Fc)C")
    stamp: dict[str, Any] = {"request_id": "r", "attempt": 1}
    assert events[:5] == [
        StreamStarted(**stamp, ts=0.001),
        FirstToken(**stamp, ts=0.003, channel="text"),
        ChannelToken(**stamp, ts=0.003, channel="text", text="a", chunk_index=1),
        ChannelToken(**stamp, ts=0.007, channel="text", text="b", chunk_index=2),
        Retrying(
            **stamp,
            ts=0.008,
            next_attempt=2,
            retry=1,
            max_retries=15,
            budget="transport",
            error_kind=SamplingErrorKind.HTTP,
            reason="connection reset",
            backoff_s=0.0,
        ),
    ]
    stamp["attempt"] = 2
    assert events[5:8] == [
        StreamStarted(**stamp, ts=0.009),
        FirstToken(**stamp, ts=0.010, channel="text"),
        ChannelToken(**stamp, ts=0.010, channel="text", text="c", chunk_index=1),
    ]
    (end,) = ends(events)
    assert (end.ts, end.attempt, end.response.text, end.response.stop_reason) == (0.014, 2, "c", "stop")
    (failure,) = drawn("X")
    assert isinstance(failure, Failed)
    assert failure.partial is None
    check_events(events)


def test_templates_come_before_letters() -> None:
    events = drawn("SFaC", {"S": text("not started"), "a": first_token("reasoning"), "F": text("x"), "C": text("y")})
    assert [event.kind for event in events] == ["channel_token", "channel_token", "first_token", "channel_token"]


@pytest.mark.parametrize(
    ("template", "channel"),
    [(text("x"), "text"), (reasoning("x"), "reasoning"), (refusal("x"), "refusal"), (token("audio", "x"), "audio")],
)
def test_first_token_announces_the_channel_of_the_token_behind_it(template: Template, channel: str) -> None:
    events = drawn("-S-(Fx)-C", {"x": template})
    assert [event.channel for event in events if isinstance(event, FirstToken)] == [channel]
    assert [event.channel for event in tokens(events)] == [channel]
    check_events(events)


def test_first_token_announces_for_the_request_of_the_token_behind_it() -> None:
    ready = ChannelToken(request_id="z", attempt=3, ts=9.0, channel="reasoning", text="x", chunk_index=1)
    events = drawn("(Fa)(Fb)(Fz)", {"b": reasoning("b", of="q"), "z": ready})
    firsts = [event for event in events if isinstance(event, FirstToken)]
    assert [(first.request_id, first.channel) for first in firsts] == [
        ("r", "text"),
        ("q", "reasoning"),
        ("z", "reasoning"),
    ]


def test_first_token_does_not_count_the_token_that_it_looks_at() -> None:
    assert [token.chunk_index for token in tokens(drawn("SFaFb"))] == [1, 2]


@pytest.mark.parametrize(("following", "what"), [(None, "nothing"), ("F", "nothing"), ("S", "stream_started")])
def test_first_token_without_a_token(following: str | None, what: str) -> None:
    with pytest.raises(ValueError, match=f"F announces the token behind it, and {what} is there"):
        Drawing({}).event("F", 0.0, following)


# -- whose, which attempt, which chunk


def test_requests_are_counted_apart() -> None:
    of_q: dict[str, Template] = {
        "s": started(of="q"),
        "f": first_token(of="q"),
        "x": text("x", of="q"),
        "y": text("y", of="q"),
        "r": retrying(of="q"),
        "c": completed(of="q"),
    }
    events = drawn("S(Fa)s(fx)byrdsfxCc", of_q)
    mine, other = ([event for event in events if event.request_id == name] for name in ("r", "q"))
    assert [(token.text, token.chunk_index, token.attempt) for token in tokens(mine)] == [
        ("a", 1, 1),
        ("b", 2, 1),
        ("d", 3, 1),
    ]
    assert [(token.text, token.chunk_index, token.attempt) for token in tokens(other)] == [
        ("x", 1, 1),
        ("y", 2, 1),
        ("x", 1, 2),
    ]
    assert [end.response.text for end in ends(mine)] == ["abd"]
    assert [end.response.text for end in ends(other)] == ["x"]
    assert [end.metrics.attempts for end in ends(other)] == [2]
    check_all_events(events)


def test_a_request_id_may_come_again_after_its_end() -> None:
    events = drawn("S(Fa)RS(Fb)CS(Fc)C")
    assert [(token.chunk_index, token.attempt) for token in tokens(events)] == [(1, 1), (1, 2), (1, 1)]
    assert [end.response.text for end in ends(events)] == ["b", "c"]
    check_all_events(events)


def test_chunks_are_counted_over_channels_and_choices() -> None:
    letters = {"a": reasoning("a"), "b": text("b"), "c": text("c", choice=1), "d": refusal("d")}
    assert [token.chunk_index for token in tokens(drawn("abcd", letters))] == [1, 2, 3, 4]


def test_ready_events_are_as_they_are_and_count() -> None:
    ready = ChannelToken(request_id="r", attempt=1, ts=0.5, channel="text", text="ready", chunk_index=1)
    events = drawn("-S-(Fx)-b-C", {"x": ready})
    assert events[2] is ready
    assert [token.chunk_index for token in tokens(events)] == [1, 2]
    assert ends(events)[0].response.text == "readyb"


def test_after_a_ready_retry_the_next_attempt_is_drawn() -> None:
    (ready,) = [event for event in drawn("S(Fa)R") if isinstance(event, Retrying)]
    events = drawn("S(Fa)RS(Fb)C", {"R": ready})
    assert events[3] is ready
    assert [(event.attempt, event.text) for event in tokens(events)] == [(1, "a"), (2, "b")]
    check_events([event for event in events if event is not ready and event.attempt == 2], first_attempt=2)


def test_a_thousand_tokens() -> None:
    events = drawn(f"S(F{'a' * 1000})C")
    assert [token.chunk_index for token in tokens(events)] == list(range(1, 1001))
    assert ends(events)[0].response.text == "a" * 1000
    assert ends(events)[0].metrics.chunk_count == 1000
    check_events(events)


# -- ends


def test_the_end_tells_what_was_drawn() -> None:
    letters = {
        "m": response_started("msg_7", "model-x"),
        "r": reasoning("hm"),
        "q": reasoning_completed("sig"),
        "h": backend_tool_started("ws_1", "web_search"),
        "i": backend_tool_completed("ws_1", "web_search", {"type": "result"}),
        "t": text("See "),
        "u": text("here."),
        "n": annotation({"url": "x"}, offset=9),
        "v": tool(0, id="c0", name="f", arguments='{"a":'),
        "w": tool(0, arguments=" 1}"),
        "x": tool(1, id="c1", name="g", arguments='{"b'),
    }
    events = drawn("-Sm(Fr)qhitunvwxC", letters)
    check_events(events)
    (end,) = ends(events)
    assert end.response.items == (
        ReasoningItem(text="hm", signature="sig"),
        BackendToolCallItem(call_id="ws_1", name="web_search", wire=({"type": "result"},)),
        TextItem(text="See here.", annotations=({"url": "x"},)),
        ToolCall(id="c0", name="f", arguments='{"a": 1}', complete=True),
        ToolCall(id="c1", name="g", arguments='{"b', complete=False),
    )
    assert (end.response.stop_reason, end.response.message_id, end.response.model) == ("tool_calls", "msg_7", "model-x")


def test_the_figures_of_the_end() -> None:
    events = drawn("--S-(Fr)-a--bC", {"r": reasoning("r"), "C": completed(usage=Usage(output_tokens=7))})
    metrics = ends(events)[0].metrics
    assert metrics.time_to_stream_started_ms == pytest.approx(2.0)
    assert metrics.time_to_first_token_ms == pytest.approx(2.0)
    assert metrics.time_to_first_token_from_submit_ms == pytest.approx(4.0)
    assert metrics.time_to_first_text_ms == pytest.approx(7.0)
    assert metrics.inter_token_max_ms == pytest.approx(5.0)
    assert metrics.time_to_last_byte_ms == pytest.approx(11.0)
    assert metrics.output_tokens_per_second == pytest.approx(7 / 0.009)
    assert (metrics.chunk_count, metrics.attempts) == (3, 1)
    check_events(events)


def test_the_end_of_a_later_attempt_counts_from_the_beginning_of_the_request() -> None:
    metrics = ends(drawn("-S-R---S(Fa)C"))[0].metrics
    assert metrics.time_to_stream_started_ms == pytest.approx(7.0)
    assert metrics.attempts == 2


def test_the_end_can_say_something_else() -> None:
    call = ToolCall(id="c", name="f", arguments="{}", complete=True)
    one, other, third, fourth = (
        ends(drawn("S(Fa)C", {"C": template}))[0].response
        for template in (
            completed("said", stop_reason="length"),
            completed(call),
            completed(RefusalItem(text="no"), stop_reason="content_filter"),
            completed(model="m", message_id="id"),
        )
    )
    assert (one.text, one.stop_reason) == ("said", "length")
    assert (other.items, other.stop_reason) == ((call,), "tool_calls")
    assert (third.refusal, third.stop_reason) == ("no", "content_filter")
    assert (fourth.text, fourth.model, fourth.message_id) == ("a", "m", "id")


def test_an_end_with_a_field_that_no_response_has() -> None:
    with pytest.raises(TypeError, match=r"a response has no 'usag': its fields are items, stop_reason, .*usage"):
        completed(usag=None)
    with pytest.raises(TypeError, match="stattus"):
        failed(stattus=500)


def test_an_end_with_a_value_that_no_response_has() -> None:
    with pytest.raises(ValueError, match="stop_reason"):
        drawn("SC", {"C": completed(stop_reason="whatever")})


def test_failures_keep_what_was_drawn() -> None:
    events = drawn("-S-(Fa)b-X", {"X": failed(SamplingErrorKind.API, "no", status=500, is_retryable=True)})
    end = events[-1]
    assert isinstance(end, Failed)
    assert end.error == SamplingErrorInfo(kind=SamplingErrorKind.API, message="no", status=500, is_retryable=True)
    assert end.partial is not None
    assert (end.partial.text, end.partial.stop_reason) == ("ab", None)
    assert (end.metrics.chunk_count, end.metrics.time_to_first_token_ms) == (2, pytest.approx(2.0))
    check_events(events)


@pytest.mark.parametrize(
    ("diagram", "has_partial"),
    [("X", False), ("SX", False), ("SvX", True), ("SnX", True), ("RX", False), ("S(Fu)X", True)],
)
def test_a_failure_has_a_partial_answer_if_anything_streamed(diagram: str, has_partial: bool) -> None:
    letters = {"v": tool(0, id="c", name="f"), "n": annotation(), "u": token("audio", "x")}
    events = drawn(diagram, letters)
    assert isinstance(events[-1], Failed)
    assert (events[-1].partial is not None) is has_partial
    check_events(events)


# -- retries


@pytest.mark.parametrize(
    ("kinds", "retries"),
    [
        (["http", "http", "api"], [("transport", 1), ("transport", 2), ("transport", 3)]),
        (["rate_limited", "rate_limited"], [("rate_limit", 1), ("rate_limit", 2)]),
        (["rate_limited", "http", "rate_limited"], [("rate_limit", 1), ("transport", 2), ("rate_limit", 1)]),
        (["http", "doom_loop_detected", "http"], [("transport", 1), ("doom_loop", 1), ("transport", 2)]),
        (
            ["rate_limited", "doom_loop_detected", "rate_limited", "doom_loop_detected"],
            [("rate_limit", 1), ("doom_loop", 1), ("rate_limit", 2), ("doom_loop", 2)],
        ),
    ],
)
def test_retries_are_counted_in_their_budgets(kinds: list[str], retries: list[tuple[str, int]]) -> None:
    letters: dict[str, Template] = {str(at): retrying(SamplingErrorKind(kind)) for at, kind in enumerate(kinds)}
    letters["d"] = signals("loop")
    steps = "".join(f"S{'d' if kind.startswith('doom') else ''}{at}" for at, kind in enumerate(kinds))
    events = drawn(f"{steps}S(Fa)C", letters)
    assert [(one.budget, one.retry) for one in events if isinstance(one, Retrying)] == retries
    check_events(events)


def test_a_retry_tells_the_triggers_of_its_own_attempt() -> None:
    letters = {"d": signals("a", "b"), "R": retrying(DOOM_LOOP), "r": retrying()}
    events = drawn("S(Fa)dRSrS(Fb)C", letters)
    assert [one.doom_loop_triggers for one in events if isinstance(one, Retrying)] == [("a", "b"), ()]
    check_events(events)


def test_signals_on_an_attempt_that_is_accepted() -> None:
    events = drawn("S(Fa)dC", {"d": signals("loop")})
    assert ends(events)[0].response.doom_loop_triggers == ("loop",)
    check_events(events)


def test_a_retry_as_it_is_said() -> None:
    template = retrying(RATE_LIMITED, "429", backoff_s=1.5, max_retries=2)
    (retry,) = drawn("R", {"R": template})
    assert isinstance(retry, Retrying)
    assert (retry.error_kind, retry.reason, retry.backoff_s, retry.max_retries) == (RATE_LIMITED, "429", 1.5, 2)


# -- every template


STAMP: dict[str, Any] = {"request_id": "q", "attempt": 1, "ts": 0.002}
CITATION = {"type": "url_citation", "url": "https://example.org/"}


@pytest.mark.parametrize(
    ("make", "event"),
    [
        (started, StreamStarted(**STAMP, submitted_at=0.0)),
        (
            partial(metadata, model="m", context_window=9),
            ModelMetadata(**STAMP, model="m", context_window=9),
        ),
        (response_started, ResponseStarted(**STAMP, message_id="msg_1", model="model")),
        (
            partial(response_started, None, None, input_tokens=3),
            ResponseStarted(**STAMP, input_tokens=3),
        ),
        (first_token, FirstToken(**STAMP, channel="text")),
        (
            partial(token, "audio", "x", choice=2),
            ChannelToken(**STAMP, channel="audio", text="x", chunk_index=1, choice=2),
        ),
        (
            partial(text, "x", choice=1),
            ChannelToken(**STAMP, channel="text", text="x", chunk_index=1, choice=1),
        ),
        (partial(reasoning, "x"), ChannelToken(**STAMP, channel="reasoning", text="x", chunk_index=1)),
        (partial(refusal, "x"), ChannelToken(**STAMP, channel="refusal", text="x", chunk_index=1)),
        (reasoning_completed, ReasoningCompleted(**STAMP, signature="signature")),
        (
            partial(tool, 1, id="c", name="f", arguments="{", choice=2),
            ToolCallDelta(**STAMP, tool_index=1, id="c", name="f", arguments_delta="{", choice=2),
        ),
        (
            tool_result,
            ToolResultAdded(
                **STAMP,
                tool_call_id="call_1",
                name="look_up",
                result=ToolResultItem(tool_call_id="call_1", content="done"),
                duration_ms=0.0,
            ),
        ),
        (
            partial(tool_result, "c", "no", "f", is_error=True, duration_ms=2.5, turn=2),
            ToolResultAdded(
                **STAMP,
                turn=2,
                tool_call_id="c",
                name="f",
                result=ToolResultItem(tool_call_id="c", content="no", is_error=True),
                duration_ms=2.5,
            ),
        ),
        (backend_tool_started, BackendToolCallStarted(**STAMP, call_id="call_1", name="web_search")),
        (
            partial(backend_tool_completed, "c", "code", {"type": "x"}),
            BackendToolCallCompleted(**STAMP, call_id="c", name="code", result={"type": "x"}),
        ),
        (annotation, AnnotationAdded(**STAMP, annotation=CITATION)),
        (
            partial(annotation, {"a": 1}, channel="reasoning", offset=4),
            AnnotationAdded(**STAMP, annotation={"a": 1}, channel="reasoning", offset=4),
        ),
        (
            partial(images_stripped, "u", "v", reason="payload_heuristic"),
            ImagesStripped(**STAMP, stripped_urls=("u", "v"), reason="payload_heuristic"),
        ),
        (
            images_stripped,
            ImagesStripped(**STAMP, stripped_urls=("https://example.org/image.png",), reason="server_rejected"),
        ),
        (partial(signals, "a", "b"), DoomLoopSignals(**STAMP, triggers=("a", "b"))),
        (signals, DoomLoopSignals(**STAMP, triggers=("repetition",))),
    ],
)
def test_what_a_template_becomes(make: Callable[..., Template], event: SamplingEvent) -> None:
    (made,) = drawn("--x", {"x": make(of="q")})
    assert made == event
    if isinstance(event, StreamStarted):
        assert isinstance(made, StreamStarted)
        assert made.submitted_at == event.submitted_at


def test_ends_and_retries_of_another_request() -> None:
    letters = {"c": completed(of="q"), "x": failed(of="p"), "r": retrying(of="o")}
    assert [event.request_id for event in drawn("cxr", letters)] == ["q", "p", "o"]


# -- legal


LEGAL = {
    "n": annotation(offset=0),
    "h": backend_tool_started(),
    "i": backend_tool_completed(),
    "m": response_started(),
    "M": metadata(model="m"),
    "q": reasoning_completed(),
    "r": reasoning("r"),
    "u": refusal("u"),
    "v": tool(0, id="c0", name="f", arguments="{"),
    "w": tool(0, arguments="}"),
    "x": tool(1, id="c1", name="g"),
    "y": tool(0, id="d0", name="f", arguments="{}", choice=1),
    "z": text("z", choice=1),
    "I": images_stripped(),
    "P": tool_result("c0"),
    "p": tool_result("c1"),
    "D": signals("loop"),
    "L": retrying(DOOM_LOOP),
    "Q": retrying(RATE_LIMITED),
}


@pytest.mark.parametrize(
    "diagram",
    [
        "C",
        "SC",
        "X",
        "SMm(Fa)bC",
        "SM(Fr)rqaC",
        "S(Fu)uC",
        "SvwxC",
        "PpSC",
        "PRS(Fa)C",
        "S(Fa)vwxX",
        "S(Fa)zbzC",
        "S(Fz)zC",
        "S(Fa)vywxC",
        "ShiC",
        "S(Fa)hibC",
        "ShX",
        "S(Fa)nbC",
        "S(Fa)IRS(Fb)C",
        "IRS(Fb)C",
        "S(Fa)DIRS(Fb)C",
        "S(Fa)DLS(Fb)DLS(Fc)DC",
        "QRQQRS(Fa)X",
        "RX",
        "S(Fa)",
    ],
)
def test_drawn_streams_are_legal(diagram: str) -> None:
    whole = diagram[-1] in "CX"
    if diagram == "C":
        with pytest.raises(GrammarError, match="comes before stream_started"):
            check_events(drawn(diagram, LEGAL))
    else:
        check_events(drawn(diagram, LEGAL), whole=whole)


def test_illegal_streams_can_be_drawn_if_one_takes_pains() -> None:
    for diagram in ("SaC", "S(Fa)CC", "S(Fa)SC", "S(Fa)C"):
        events = drawn(diagram, {"C": completed("something else")} if diagram == "S(Fa)C" else {})
        with pytest.raises(GrammarError):
            check_events(events)


@st.composite
def requests(draw: st.DrawFn) -> str:
    """A legal diagram of one request, in the letters of `LEGAL`."""

    def attempt() -> str:
        out = ["S", draw(st.sampled_from(["", "M"])), draw(st.sampled_from(["", "m"]))]
        pieces = draw(st.lists(st.sampled_from(["a", "b", "r", "u", "z", "n", "q", "hi", "vw"]), unique=True))
        announced = False
        for piece in pieces:
            if piece in "abruz" and not announced:
                announced = True
                out.append("F")
            out.append(piece)
        return "".join(out)

    retries = draw(st.lists(st.sampled_from(["R", "Q", "DL", "R", "IR"]), max_size=4))
    stripped = retries.index("IR") if "IR" in retries else -1
    retries = ["R" if retry == "IR" and at != stripped else retry for at, retry in enumerate(retries)]
    return "".join(attempt() + retry for retry in retries) + attempt() + draw(st.sampled_from(["C", "DC", "X"]))


@given(requests())
def test_whatever_is_drawn_in_a_legal_order_is_legal(diagram: str) -> None:
    check_events(drawn(diagram, LEGAL))
