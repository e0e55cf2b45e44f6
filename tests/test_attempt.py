"""A whole request in virtual time: what comes when, every limit, every refusal, and what counts as an answer."""

from __future__ import annotations

import itertools
import json
import random
import tracemalloc
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from reactivex.testing import TestScheduler
from scripted_transport import END, SUBSCRIBED_AT, ScriptedTransport, Seen, Step, arriving, head, run
from wires import (
    BACKENDS,
    DONE,
    IDS,
    INPUT_TOKENS,
    MODEL,
    OUTPUT_TOKENS,
    PATHS,
    answer,
    chat,
    closing,
    data,
    named,
    opening,
    text,
)

from rx_sampler import (
    ChannelToken,
    Completed,
    Failed,
    LatencyMetrics,
    ModelMetadata,
    RateLimit,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingEvent,
    SamplingRequest,
    SamplingResponse,
    StreamStarted,
    event_from_json,
    event_to_json,
)
from rx_sampler.attempt import MAX_ERROR_BODY_BYTES
from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.wire.error_bodies import MAX_MESSAGE_CHARS
from rx_sampler.wire.transport import Connected

KEY: Final = "sk-live-7f3d9c2b1a"
URL: Final = "http://api.test/v1"


def ask(
    script: Sequence[Step],
    backend: str = "chat_completions",
    question: str | SamplingRequest = "hi",
    *,
    transport: ScriptedTransport | None = None,
    for_s: float = 100_000,
    **fields: Any,
) -> Seen:
    """The events of one request that the script answers."""
    once = {"retry": RetryPolicy(max_retries=0)}
    config = SamplerConfig.model_validate({"base_url": URL, "model": "m", "backend": backend, **once, **fields})
    sampler = Sampler(config, transport=transport or ScriptedTransport(script))
    return run(lambda: sampler.stream(question, request_id="r"), for_s=for_s)


def completed(seen: Seen) -> Completed:
    """The request's answer, after the check that it is the one end of it."""
    last = ended(seen)
    assert isinstance(last, Completed), last
    return last


def failed(seen: Seen) -> Failed:
    """The request's failure, after the check that it is the one end of it."""
    last = ended(seen)
    assert isinstance(last, Failed), last
    return last


def ended(seen: Seen) -> SamplingEvent:
    assert seen.error is None
    assert [isinstance(event, Completed | Failed) for event in seen.events] == [False] * (len(seen.events) - 1) + [True]
    assert seen.completed_at == seen.timed[-1][0]
    return seen.events[-1]


def refusal(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> list[Step]:
    """Headers after one second, the whole body and its end after two."""
    steps: list[Step] = [(0, Connected()), (1, head(status, headers or {}))]
    return [*steps, *([(2.0, body)] if body else []), (2, END)]


# -- the events of an answer, and when


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_answer_event_by_event(backend: str) -> None:
    frames = answer(backend, "Hel", "lo")
    transport = ScriptedTransport(arriving(frames))
    seen = ask([], backend, transport=transport)
    first = 1 + len(opening(backend)) + 1  # headers at 1, then a frame a second
    last = 1 + len(frames)
    assert [(at, event.kind) for at, event in seen.timed] == [
        (1, "stream_started"),
        (2, "response_started"),
        (first, "first_token"),
        (first, "channel_token"),
        (first + 1, "channel_token"),
        (last, "completed"),
    ]
    assert seen.completed_at == last  # with the announcement, not with the end of the body: there was none
    assert (transport.closed_at, transport.over) == ([SUBSCRIBED_AT + last], [True])
    assert all(event.ts == SUBSCRIBED_AT + at for at, event in seen.timed)
    assert {(event.request_id, event.attempt) for event in seen.events} == {("r", 1)}
    tokens = [event for event in seen.events if isinstance(event, ChannelToken)]
    assert [(token.channel, token.text, token.chunk_index, token.choice) for token in tokens] == [
        ("text", "Hel", 1, 0),
        ("text", "lo", 2, 0),
    ]
    response = completed(seen).response
    assert (response.text, response.stop_reason) == ("Hello", "stop")
    assert (response.model, response.message_id) == (MODEL, IDS[backend])
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (INPUT_TOKENS, OUTPUT_TOKENS)
    assert response.usage.total_tokens == INPUT_TOKENS + OUTPUT_TOKENS


@pytest.mark.parametrize("backend", BACKENDS)
def test_metrics_are_measured_at_the_arrival_of_bytes(backend: str) -> None:
    # headers 3 s after the subscription, tokens 2 s and 6 s after them, the end 10 s after them
    begin, (one, two), end = opening(backend), (text(backend, "a"), text(backend, "b")), closing(backend, "ab")
    script: list[Step] = [(0, Connected()), (3, head()), (4, b"".join(begin)), (5, one), (9, two), (13, b"".join(end))]
    assert completed(ask(script, backend)).metrics == LatencyMetrics(
        queued_ms=0.0,
        time_to_stream_started_ms=3000.0,
        time_to_first_token_ms=2000.0,
        time_to_first_token_from_submit_ms=5000.0,
        time_to_first_text_ms=2000.0,
        time_to_last_byte_ms=10_000.0,
        inter_token_p50_ms=4000.0,
        inter_token_p90_ms=4000.0,
        inter_token_p99_ms=4000.0,
        inter_token_max_ms=4000.0,
        inter_token_mean_ms=4000.0,
        output_tokens_per_second=OUTPUT_TOKENS / 8,
        chunk_count=2,
        attempts=1,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_request_is_sent_once_per_subscription_and_not_before(backend: str) -> None:
    transport = ScriptedTransport(arriving(answer(backend, "a")), arriving(answer(backend, "b")))
    stream = Sampler(SamplerConfig(base_url=URL, model="m", backend=backend), transport=transport).stream("hi")
    assert transport.requests == []
    first, second = run(lambda: stream), run(lambda: stream)
    assert [completed(seen).response.text for seen in (first, second)] == ["a", "b"]
    assert [request.url for request in transport.requests] == [URL + PATHS[backend]] * 2
    assert first.events[0].request_id != second.events[0].request_id


def test_a_request_without_a_given_id_gets_a_uuid_of_its_own() -> None:
    """B002."""
    transport = ScriptedTransport(*[arriving(answer("chat_completions", "a"))] * 2)
    stream = Sampler(SamplerConfig(base_url=URL, model="m"), transport=transport).stream("hi")
    first, second = (run(lambda: stream).events[0].request_id for _ in range(2))
    assert first != second
    assert [len(one) for one in (first, second)] == [36, 36]
    assert [uuid.UUID(one).version for one in (first, second)] == [4, 4]


def test_disposing_lets_the_connection_go_at_once_and_nothing_follows() -> None:
    frames = answer("chat_completions", *"abcdef")
    transport = ScriptedTransport(arriving(frames))
    seen = ask([], transport=transport, for_s=4.5)
    assert [at for at, _ in seen.timed] == [1, 2, 3, 3, 4]
    assert (seen.completed_at, seen.error) == (None, None)
    assert (transport.closed_at, transport.over) == ([SUBSCRIBED_AT + 4.5], [False])


@pytest.mark.parametrize("for_s", [0.5, 1.5, 2.5, 30])
def test_disposing_leaves_no_timer_behind(for_s: float) -> None:
    # a timer that survived would fire in virtual time and be seen
    script: list[Step] = [(1, Connected()), (2, head())]
    seen = ask(script, for_s=for_s, connect_timeout_s=50, header_timeout_s=50, idle_timeout_s=50, deadline_s=60)
    assert seen.completed_at is None
    assert seen.kinds == (["stream_started"] if for_s > 2 else [])


def test_without_a_loop_a_subscribers_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    transport = ScriptedTransport(arriving(answer("chat_completions", *"abc")))
    sampler = Sampler(SamplerConfig(base_url=URL, model="m"), transport=transport)
    clock = TestScheduler()
    seen: list[SamplingEvent] = []

    def on_next(event: SamplingEvent) -> None:
        seen.append(event)
        if isinstance(event, ChannelToken):
            raise ZeroDivisionError("mine")

    sampler.stream("hi").subscribe(on_next, scheduler=clock)
    clock.start()
    (record,) = [record for record in caplog.records if record.name == "rx_sampler"]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)
    assert seen[-1].kind == "channel_token"
    assert transport.closed_at == [3]  # at once


# -- the law of slices


def untimed(seen: Seen) -> list[SamplingEvent]:
    return [
        replace(event, ts=0.0, metrics=LatencyMetrics())
        if isinstance(event, Completed | Failed)
        else replace(event, ts=0.0)
        for event in seen.events
    ]


def at_once(pieces: Sequence[bytes], status: int = 200) -> list[Step]:
    # one virtual instant a piece: many actions on one tick would push reactivex's clock on
    return [(0, Connected()), (1, head(status)), *((1 + n / 8, piece) for n, piece in enumerate(pieces)), (99_000, END)]


TRICKY: Final = ["", "\ufeff", "é\U0001f600", "a\nb\r\n\u2028c", "data: x\n\n", '"\\', "\0", " "]


@pytest.mark.parametrize("backend", BACKENDS)
def test_events_do_not_depend_on_where_reads_were_cut(backend: str) -> None:
    body = b"".join(answer(backend, *TRICKY))

    def events(pieces: Sequence[bytes]) -> list[SamplingEvent]:
        return untimed(ask(at_once(pieces), backend, terminal_grace_s=1000))

    whole = events([body])
    assert isinstance(whole[-1], Completed)
    assert whole[-1].response.text == "".join(TRICKY)
    assert events([body[i : i + 1] for i in range(len(body))]) == whole
    for cut in range(0, len(body), 7):
        assert events([body[:cut], body[cut:]]) == whole, cut
    chance = random.Random(7)
    for _ in range(20):
        cuts = [0, *sorted(chance.sample(range(1, len(body)), 12)), len(body)]
        assert events([body[a:b] for a, b in itertools.pairwise(cuts)]) == whole, cuts


@pytest.mark.parametrize("status", [400, 429, 500])
def test_a_refusal_does_not_depend_on_where_reads_were_cut(status: int) -> None:
    body = json.dumps({"error": {"message": "höchstens 5 \U0001f600", "code": "c"}}, ensure_ascii=False).encode()
    whole = untimed(ask(at_once([body], status)))
    assert failed(ask(at_once([body], status))).error.message == "höchstens 5 \U0001f600"
    for cut in range(len(body)):
        assert untimed(ask(at_once([body[:cut], body[cut:]], status))) == whole, cut


# -- limits in time

TIMERS: Final[dict[str, Any]] = {"connect_timeout_s": 10, "header_timeout_s": 30, "idle_timeout_s": 20}


def test_no_connection_in_time() -> None:
    transport = ScriptedTransport([])
    seen = ask([], transport=transport, **TIMERS)
    event = failed(seen)
    assert seen.timed[0][0] == 10
    assert (event.error.kind, event.error.code, event.error.is_retryable) == ("http", "connect_timeout", True)
    assert (event.error.status, event.partial, event.metrics) == (None, None, LatencyMetrics(queued_ms=0.0))
    assert "10 s" in event.error.message
    assert transport.closed_at == [SUBSCRIBED_AT + 10]


def test_no_headers_in_time_counted_from_the_connection() -> None:
    transport = ScriptedTransport([(4, Connected())])
    seen = ask([], transport=transport, **TIMERS)
    event = failed(seen)
    assert [at for at, _ in seen.timed] == [34]
    assert (event.error.kind, event.error.code, event.error.is_retryable) == ("http", "header_timeout", True)
    assert transport.closed_at == [SUBSCRIBED_AT + 34]


def test_a_transport_that_never_tells_of_its_connection_is_still_limited() -> None:
    seen = ask([(9, head()), *arriving(answer("chat_completions", "a"), at=10)[2:]], **TIMERS)
    assert completed(seen).response.text == "a"


@pytest.mark.parametrize("backend", BACKENDS)
def test_silence_fails_at_its_limit_after_the_last_byte(backend: str) -> None:
    # B152, B165, B192
    transport = ScriptedTransport(
        [(0, Connected()), (1, head()), (2, b"".join(opening(backend))), (5, text(backend, "a"))]
    )
    seen = ask([], backend, transport=transport, **TIMERS)
    event = failed(seen)
    assert seen.completed_at == 25
    assert event.ts == SUBSCRIBED_AT + 25
    assert (event.error.kind, event.error.code, event.error.is_retryable) == ("idle_timeout", "idle", False)
    assert event.partial is not None
    assert (event.partial.text, event.partial.stop_reason) == ("a", None)
    assert event.metrics.chunk_count == 1
    assert transport.closed_at == [SUBSCRIBED_AT + 25]


def test_silence_right_after_the_headers_fails_too() -> None:
    seen = ask([(0, Connected()), (1, head())], **TIMERS)
    assert (seen.completed_at, failed(seen).error.code) == (21, "idle")


@pytest.mark.parametrize(
    "fields", [{}, {"idle_timeout_s": 400, "content_idle_timeout_s": 300}], ids=["bytes", "content"]
)
def test_an_idle_timeout_names_its_limit_and_is_not_retryable(fields: dict[str, Any]) -> None:
    """B011, and the default limit: 300 s."""
    seen = ask([(0, Connected()), (1, head())], **fields)
    info = failed(seen).error
    assert (info.kind, info.is_retryable, seen.completed_at) == ("idle_timeout", False, 301)
    assert "300 s" in info.message


KEEPALIVES: Final = {
    "chat_completions": [b": keep-alive\n\n", chat({"content": ""}), chat({"role": "assistant", "content": None})],
    "responses": [
        b":\n\n",
        named({"type": "keepalive", "sequence_number": 9}),
        named({"type": "response.in_progress", "response": {"id": "resp_1"}}),
    ],
    "messages": [b": x\n", named({"type": "ping"}), named({"type": "ping"})],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("which", range(3))
def test_signs_of_life_are_no_content(backend: str, which: int) -> None:
    # B133, B153
    # a sign of life each second, for ever; the last content at 3
    life: list[Step] = [(4 + n, KEEPALIVES[backend][which]) for n in range(60)]
    script: list[Step] = [
        (0, Connected()),
        (1, head()),
        (2, b"".join(opening(backend))),
        (3, text(backend, "a")),
        *life,
    ]
    seen = ask(script, backend, idle_timeout_s=5)
    event = failed(seen)
    assert (event.error.kind, event.error.code) == ("idle_timeout", "content_idle")
    assert seen.completed_at == 8  # 5 s after the content, by a timer of its own, not at the next sign of life
    assert event.partial is not None
    assert event.partial.text == "a"


def test_both_idle_limits_can_be_set_apart() -> None:
    life: list[Step] = [(2 + n, b": keep-alive\n\n") for n in range(60)]
    script: list[Step] = [(0, Connected()), (1, head()), *life]
    seen = ask(script, idle_timeout_s=5, content_idle_timeout_s=40)
    assert (seen.completed_at, failed(seen).error.code) == (41, "content_idle")
    seen = ask([(0, Connected()), (1, head())], idle_timeout_s=40, content_idle_timeout_s=5)
    assert (seen.completed_at, failed(seen).error.code) == (6, "content_idle")


@pytest.mark.parametrize("backend", BACKENDS)
def test_content_that_keeps_coming_never_idles(backend: str) -> None:
    frames = [
        b"".join([*opening(backend), text(backend, "x")]),
        *[text(backend, "x")] * 39,
        b"".join(closing(backend, "x" * 40)),
    ]
    seen = ask(arriving(frames, every=4), backend, idle_timeout_s=5)
    assert completed(seen).response.text == "x" * 40


def test_reasoning_and_arguments_are_content_but_blank_arguments_are_not() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":'}}
    more = {"index": 0, "function": {"arguments": " 1"}}
    blank = {"index": 0, "function": {"arguments": "\n   "}}
    frames = [
        *[chat({"reasoning_content": "h"})] * 4,
        chat({"tool_calls": [call]}),
        *[chat({"tool_calls": [more]})] * 4,
        *[chat({"tool_calls": [blank]})] * 20,
    ]
    seen = ask(arriving(frames, at=1, every=4), idle_timeout_s=5)
    assert failed(seen).error.code == "content_idle"
    assert seen.completed_at == 1 + 9 * 4 + 5  # after the last of the nine frames with content


def test_the_deadline_is_over_all() -> None:
    transport = ScriptedTransport(arriving(answer("chat_completions", *"abcdefgh")))
    seen = ask([], transport=transport, deadline_s=4.5)
    event = failed(seen)
    assert seen.completed_at == 4.5
    assert (event.error.kind, event.error.code, event.error.is_retryable) == ("idle_timeout", "deadline", False)
    assert "4.5 s" in event.error.message
    assert event.partial is not None
    assert event.partial.text == "ab"
    assert transport.closed_at == [SUBSCRIBED_AT + 4.5]


@pytest.mark.parametrize("script", [[], [(1, Connected())], [(1, Connected()), (2, head())]])
def test_the_deadline_holds_in_every_phase(script: list[Step]) -> None:
    seen = ask(script, deadline_s=4, header_timeout_s=100)
    assert seen.completed_at == 4
    assert failed(seen).error.code == "deadline"


def test_a_refusal_that_the_deadline_cuts_is_told_as_the_refusal_it_is() -> None:
    seen = ask([(1, Connected()), (2, head(401)), (3, b'{"error"')], deadline_s=4)
    assert seen.completed_at == 4
    assert (failed(seen).error.kind, failed(seen).error.status) == ("auth", 401)


def test_an_infinite_limit_is_none() -> None:
    infinite = float("inf")
    script = arriving(answer("chat_completions", "a"))
    seen = ask(script, connect_timeout_s=infinite, header_timeout_s=infinite, idle_timeout_s=infinite)
    assert completed(seen).response.text == "a"


def test_an_answer_in_time_is_not_touched_by_any_limit() -> None:
    seen = ask(arriving(answer("chat_completions", "a")), deadline_s=1000, **TIMERS)
    assert completed(seen).response.text == "a"
    assert len(seen.events) == 5  # and nothing after it


@pytest.mark.parametrize(
    ("backend", "settling"),
    [("chat_completions", [chat({}, "stop")]), ("messages", closing("messages", "a")[:2])],
)
def test_a_whole_answer_waits_for_its_announcement_for_the_grace_only(backend: str, settling: list[bytes]) -> None:
    transport = ScriptedTransport(arriving([*opening(backend), text(backend, "a"), *settling]))
    seen = ask([], backend, transport=transport, terminal_grace_s=3)
    at = 1 + len(opening(backend)) + 1 + len(settling)
    assert completed(seen).response.stop_reason == "stop"
    assert seen.completed_at == at + 3
    assert transport.closed_at == [SUBSCRIBED_AT + at + 3]


def test_what_comes_within_the_grace_is_part_of_the_answer() -> None:
    frames = [*opening("chat_completions"), text("chat_completions", "a"), *closing("chat_completions", "a")[:2]]
    seen = ask(arriving(frames), terminal_grace_s=3)
    usage = completed(seen).response.usage
    assert usage is not None
    assert usage.output_tokens == OUTPUT_TOKENS


def test_no_grace_ends_with_the_stop_reason() -> None:
    seen = ask(arriving([text("chat_completions", "a"), chat({}, "stop")]), terminal_grace_s=0)
    assert (seen.completed_at, completed(seen).response.text) == (3, "a")


def test_all_choices_that_were_asked_for_are_waited_for() -> None:
    def choice(index: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
        return data({"id": "c", "model": MODEL, "choices": [{"index": index, "delta": delta, "finish_reason": finish}]})

    frames = [
        choice(0, {"content": "A"}),
        choice(0, {}, "stop"),
        *[choice(1, {"content": "B"})] * 3,
        choice(1, {}, "stop"),
        DONE,
    ]
    request = SamplingRequest.of("hi").model_copy(update={"n": 2})
    seen = ask(arriving(frames, every=3), question=request, terminal_grace_s=2)
    tokens = [(e.choice, e.text) for e in seen.events if isinstance(e, ChannelToken)]
    assert tokens == [(0, "A"), (1, "B"), (1, "B"), (1, "B")]


# -- ends


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_clean_end_that_nobody_announced_is_a_failure_with_what_streamed(backend: str) -> None:
    frames = [*opening(backend), text(backend, "half")]
    script = [*arriving(frames), (50.0, END)]
    event = failed(ask(script, backend))
    assert (event.error.kind, event.error.code, event.error.is_retryable) == ("http", "unterminated", True)
    assert event.error.status is None
    assert event.partial is not None
    assert event.partial.text == "half"


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_unannounced_end_can_be_accepted(backend: str) -> None:
    script = [*arriving([*opening(backend), text(backend, "half")]), (50.0, END)]
    response = completed(ask(script, backend, accept_unterminated=True)).response
    assert response.text == "half"


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_at_all_is_never_accepted(backend: str) -> None:
    for accepted in (False, True):
        event = failed(ask([*arriving([]), (3.0, END)], backend, accept_unterminated=accepted))
        assert event.error.is_retryable
        assert event.partial is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_broken_connection_keeps_what_streamed(backend: str) -> None:
    broken = SamplingError.of(SamplingErrorKind.HTTP, "the connection broke", is_retryable=True)
    script = [*arriving([*opening(backend), text(backend, "a"), text(backend, "b")]), (50.0, broken)]
    event = failed(ask(script, backend))
    assert event.error.message == "the connection broke"
    assert event.partial is not None
    assert event.partial.text == "ab"
    assert event.exception is broken
    assert event.metrics.chunk_count == 2
    assert event.metrics.time_to_last_byte_ms == 49_000.0


def test_a_cut_tool_call_is_kept_but_not_runnable() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":'}}
    script = [*arriving([chat({"tool_calls": [call]})]), (50.0, END)]
    partial = failed(ask(script)).partial
    assert partial is not None
    assert [(c.id, c.arguments, c.complete) for c in partial.tool_calls] == [("c", '{"a":', False)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_follows_the_announced_end_is_ignored(backend: str) -> None:
    late = [text(backend, "late"), b'data: {"error": {"message": "late"}}\n\n', b"data: {\n\n"]
    body = b"".join([*answer(backend, "a"), *late])
    seen = ask([(0, Connected()), (1, head()), (2, body), (3, body)], backend)
    assert completed(seen).response.text == "a"
    assert seen.completed_at == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_unknown_things_do_not_kill_a_stream(backend: str) -> None:
    foreign = [
        data({"type": "response.of_tomorrow", "delta": 5}),
        data({"type": "content_block_delta", "index": 99, "delta": {"type": "of_tomorrow", "text": "x"}}),
        data({"choices": None, "object": "of.tomorrow"}),
        b"event: of_tomorrow\ndata: not even JSON\n\n",
        b"data: null\n\n",
        b"data:\n\n",
        b"unknown: field\n\n",
    ]
    frames = [*opening(backend), *foreign, text(backend, "a"), *foreign, *closing(backend, "a")]
    assert completed(ask(arriving(frames), backend)).response.text == "a"


def _half_a_pair(document: dict[str, Any]) -> bytes:
    """A frame whose `@@` is the first half of a surrogate pair, as servers escape it that cut strings anywhere."""
    return data(document).replace(b"@@", rb"\ud83d")


def _chat_delta(delta: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


HALF_PAIRS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "annotation": ("chat_completions", _chat_delta({"annotations": [{"type": "url_citation", "title": "@@"}]})),
    "tool name": (
        "chat_completions",
        _chat_delta({"tool_calls": [{"index": 0, "id": "@@", "function": {"name": "@@", "arguments": "{}"}}]}),
    ),
    "usage": ("chat_completions", {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "note": "@@"}}),
    "extras": ("chat_completions", {"choices": [], "service_tier": "@@"}),
    "details": (
        "chat_completions",
        _chat_delta({"reasoning_details": [{"type": "reasoning.encrypted", "data": "@@"}]}),
    ),
    "error": ("chat_completions", {"error": {"message": "m", "code": "@@"}}),
    "citation": (
        "messages",
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"t": "@@"}}},
    ),
    "server tool": (
        "messages",
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "server_tool_use", "id": "@@", "name": "@@", "input": {}},
        },
    ),
    "stop": ("messages", {"type": "message_delta", "delta": {"stop_reason": "@@", "stop_sequence": "@@"}}),
    "item": (
        "responses",
        {
            "type": "response.output_item.done",
            "output_index": 1,
            "item": {"type": "web_search_call", "id": "@@", "status": "completed", "action": {"query": "@@"}},
        },
    ),
}


@pytest.mark.parametrize(
    "name",
    HALF_PAIRS,
)
def test_whatever_a_server_sends_can_be_written_down(name: str) -> None:
    backend, document = HALF_PAIRS[name]
    frames = [*opening(backend), text(backend, "a"), _half_a_pair(document), *closing(backend, "a")]
    seen = ask(arriving(frames), backend)
    ended(seen)
    for event in seen.events:
        assert event_from_json(event_to_json(event)) == event


def test_numbers_that_json_does_not_have_do_not_change_on_the_way() -> None:
    frame = b'data: {"choices": [{"index": 0, "delta": {"annotations": [{"score": NaN, "rank": 1e999}]}}]}\n\n'
    seen = ask(arriving([text("chat_completions", "a"), frame, *closing("chat_completions", "a")]))
    completed(seen)
    for event in seen.events:
        assert event_from_json(event_to_json(event)) == event


@pytest.mark.parametrize("backend", BACKENDS)
def test_malformed_json_in_a_known_frame_fails_after_all_that_could_be_read(backend: str) -> None:
    name = {
        "chat_completions": "",
        "responses": "event: response.output_text.delta\n",
        "messages": "event: content_block_delta\n",
    }
    broken = f'{name[backend]}data: {{"type": "x", "del\n\n'.encode()
    frames = [*opening(backend), text(backend, "a"), broken, text(backend, "b"), *closing(backend, "ab")]
    event = failed(ask(arriving(frames), backend))
    assert (event.error.kind, event.error.is_retryable) == ("serialization", False)
    assert event.partial is not None
    assert event.partial.text == "ab"


def test_a_frame_beyond_the_limit_fails() -> None:
    seen = ask(arriving([text("chat_completions", "a"), b"data: " + b"x" * 2000]), max_frame_bytes=1024)
    event = failed(seen)
    assert (event.error.kind, event.error.code) == ("serialization", "frame_too_large")
    assert seen.completed_at == 3  # as soon as it is known, not at the end of the frame
    assert event.partial is not None


def test_one_long_line_in_small_reads_is_read_in_linear_time() -> None:
    # 16 MiB in 64-byte reads: joining at each read would copy two terabytes, which no timeout of a test waits for
    frame = text("chat_completions", "x" * 16 * 2**20)
    pieces = [frame[i : i + 64] for i in range(0, len(frame), 64)]
    stream = _Feed(pieces)
    assert stream.text_chars == 16 * 2**20


class _Feed:
    """The stages of an attempt without a scheduler, which would cost more than they do."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        import reactivex as rx

        from rx_sampler import sampling_events, sse_frames, typed_chunks

        self.text_chars = 0
        rx.from_iterable([*pieces, *closing("chat_completions", "")]).pipe(
            sse_frames(), typed_chunks("chat_completions"), sampling_events("chat_completions")
        ).subscribe(self._see)

    def _see(self, event: SamplingEvent) -> None:
        if isinstance(event, Completed):
            self.text_chars = len(event.response.text)


def test_many_large_deltas_are_read_in_linear_time() -> None:
    # 64 MiB in 16,384 deltas: joining at each would copy half a terabyte
    assert _Feed([text("chat_completions", "y" * 4096)] * 16_384).text_chars == 4096 * 16_384


# -- errors inside the stream


@pytest.mark.parametrize(
    ("backend", "frame", "kind", "status", "code", "retryable"),
    [
        (
            "messages",
            named({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}),
            "api",
            529,
            "overloaded_error",
            True,
        ),
        (
            "messages",
            named({"type": "error", "error": {"type": "invalid_request_error", "message": "busy"}}),
            "api",
            400,
            "invalid_request_error",
            False,
        ),
        (
            "chat_completions",
            data({"error": {"message": "busy", "type": "rate_limit_exceeded", "code": 429}}),
            "rate_limited",
            429,
            "rate_limit_exceeded",
            True,
        ),
        (
            "responses",
            named({"type": "error", "code": "server_error", "message": "busy", "param": None, "sequence_number": 3}),
            "api",
            500,
            "server_error",
            True,
        ),
    ],
)
def test_an_error_in_the_stream_is_classed_by_its_own_words(
    backend: str, frame: bytes, kind: str, status: int, code: str, retryable: bool
) -> None:
    seen = ask(arriving([*opening(backend), text(backend, "a"), frame, text(backend, "b")]), backend)
    event = failed(seen)
    assert (event.error.kind, event.error.status, event.error.code) == (kind, status, code)
    assert (event.error.is_retryable, event.error.message) == (retryable, "busy")
    assert event.partial is not None
    assert event.partial.text == "a"


# -- refusals


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [(400, "api", False), (401, "auth", False), (403, "api", False), (429, "rate_limited", True), (500, "api", True)],
)
def test_a_refusal_is_classed_by_its_status(backend: str, status: int, kind: str, retryable: bool) -> None:
    # B107, B110
    body = json.dumps({"error": {"message": "these are the words", "type": "some_error", "code": None}}).encode()
    transport = ScriptedTransport(refusal(status, body, {"content-type": "application/json"}))
    seen = ask([], backend, transport=transport)
    event = failed(seen)
    assert seen.kinds == ["failed"]  # no StreamStarted: nothing was accepted
    assert (event.error.kind, event.error.status, event.error.is_retryable) == (kind, status, retryable)
    assert (event.error.message, event.error.code, event.partial) == ("these are the words", "some_error", None)
    assert transport.closed_at == [SUBSCRIBED_AT + 2]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "15"}, 15.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:03:31 GMT"}, 10.0),  # read at virtual second 201
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "3600"}, 3600.0),  # the cap is the retry policy's matter
        ({}, None),
    ],
)
def test_the_wait_that_a_refusal_asks_for(headers: dict[str, str], expected: float | None) -> None:
    # all at second 1, so that the date is read at a known time
    script: list[Step] = [
        (0, Connected()),
        (1, head(429, headers)),
        (1, b'{"error": {"message": "slow down"}}'),
        (1, END),
    ]
    assert failed(ask(script)).error.retry_after_s == expected


@pytest.mark.parametrize(("raw", "verdict"), [("true", True), ("FALSE", False), ("maybe", None), ("", None)])
def test_the_servers_verdict_on_coming_again(raw: str, verdict: bool | None) -> None:
    info = failed(ask(refusal(500, b"", {"x-should-retry": raw}))).error
    assert info.should_retry is verdict
    assert info.is_retryable is (verdict is not False)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    headers = {"location": f"https://elsewhere.test/v1/chat/completions?key={KEY}"}
    transport = ScriptedTransport([(0, Connected()), (1, head(status, headers))])
    seen = ask([], transport=transport, api_key=KEY)
    event = failed(seen)
    assert (event.error.kind, event.error.status, event.error.is_retryable) == ("api", status, False)
    assert event.error.code == "redirect"
    assert "https://elsewhere.test/v1/chat/completions" in event.error.message
    assert "base_url" in event.error.message
    assert KEY not in event_to_json(event)
    assert len(transport.requests) == 1
    assert transport.closed_at == [SUBSCRIBED_AT + 1]  # at once: its body has nothing to say


def test_a_redirect_cannot_drive_a_terminal() -> None:
    script: list[Step] = [(1, head(302, {"location": "https://elsewhere.test/\x1b[2J\x9b31m"}))]
    assert failed(ask(script)).error.message.isprintable()


def test_a_redirect_shows_no_password() -> None:
    script: list[Step] = [(1, head(302, {"location": "https://me:hunter22@elsewhere.test/"}))]
    assert "hunter22" not in failed(ask(script)).error.message


def test_a_redirect_to_nowhere() -> None:
    assert "nowhere" in failed(ask([(0, Connected()), (1, head(302, {}))])).error.message


@pytest.mark.parametrize("status", [301, 304, 307])
def test_a_status_between_is_a_failure_too(status: int) -> None:
    assert failed(ask([(0, Connected()), (1, head(status, {})), (2, END)])).error.status == status


# -- the body of a refusal


def test_an_endless_refusal_is_cut() -> None:
    # 64 KiB are read, then it is let go: the rest is never waited for
    piece = b"x" * 16_384
    script: list[Step] = [(0, Connected()), (1, head(500)), *((2 + n / 16, piece) for n in range(1000))]
    transport = ScriptedTransport(script)
    seen = ask([], transport=transport)
    pieces = MAX_ERROR_BODY_BYTES // len(piece)
    assert MAX_ERROR_BODY_BYTES == 64 * 1024
    assert seen.completed_at == 2 + (pieces - 1) / 16
    event = failed(seen)
    assert (event.error.kind, event.error.status, event.error.is_retryable) == ("api", 500, True)
    assert len(event.error.message) <= MAX_MESSAGE_CHARS + 1
    assert len(transport.closed_at) == 1


def test_a_huge_json_refusal_is_neither_kept_nor_shown() -> None:
    body = b'{"error": {"message": "' + b"y" * (50 * 2**20) + b'"}}'
    script: list[Step] = [
        (0, Connected()),
        (1, head(400)),
        *((2 + n / 16, body[n << 16 : (n + 1) << 16]) for n in range(801)),
    ]
    tracemalloc.start()
    try:
        event = failed(ask(script))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (event.error.status, event.error.is_retryable) == (400, False)
    assert len(event.error.message) <= 600
    assert peak < 20 * 2**20  # beside the body itself, which the test made before


def test_a_slow_refusal_is_waited_for_five_seconds_only() -> None:
    script: list[Step] = [(0, Connected()), (1, head(503)), *((2 + n, b" ") for n in range(100))]
    transport = ScriptedTransport(script)
    seen = ask([], transport=transport, idle_timeout_s=2, header_timeout_s=50)
    event = failed(seen)
    assert seen.completed_at == 1 + 5
    assert (event.error.kind, event.error.status) == ("api", 503)
    assert transport.closed_at == [SUBSCRIBED_AT + 6]


def test_a_refusal_whose_body_breaks_is_a_refusal_still() -> None:
    broken = SamplingError.of(SamplingErrorKind.HTTP, "the connection broke", is_retryable=True)
    script: list[Step] = [(0, Connected()), (1, head(401)), (2, b'{"error": {"mess'), (3, broken)]
    event = failed(ask(script))
    assert (event.error.kind, event.error.status, event.error.is_retryable) == ("auth", 401, False)


@pytest.mark.parametrize("words", ["a\x1b[2Jb", "a\nb\r\nc", "a\x9bb", "\u202eabc", "a\u2028b", "\ud800 lone", "\x00"])
def test_words_of_a_server_cannot_drive_a_terminal(words: str) -> None:
    event = failed(ask(refusal(400, json.dumps({"error": {"message": words}}).encode())))
    assert event.error.message.isprintable()
    event_to_json(event)
    assert str(event.exception).isprintable()


def test_codes_of_a_server_cannot_drive_a_terminal() -> None:
    event = failed(ask(refusal(400, json.dumps({"error": {"message": "m", "code": "\x1b[2J\nx"}}).encode())))
    assert str(event.exception).isprintable()


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe\x00", b"[[[[", b"[" * 60_000, b'{"error": null}', b"null", b"0", b'""', b"{}"]
)
def test_a_refusal_without_words_gets_ours(body: bytes) -> None:
    # B111
    event = failed(ask(refusal(503, body)))
    assert (event.error.kind, event.error.status, event.error.is_retryable) == ("api", 503, True)
    assert event.error.message


def test_markup_is_never_shown() -> None:
    event = failed(ask(refusal(502, b"<html><h1>Bad gateway</h1></html>", {"content-type": "text/html"})))
    assert "<" not in event.error.message
    assert "502" in event.error.message


# -- a 2xx that is no stream


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_page_names_its_type_and_url_but_not_the_query(backend: str) -> None:
    script: list[Step] = [
        (0, Connected()),
        (1, head(200, {"content-type": "text/html; charset=utf-8"})),
        (2, b"<!DOCTYPE html><html><body>Log in</body></html>"),
        (2, END),
    ]
    event = failed(ask(script, backend, query_params={"key": KEY}))
    assert (event.error.kind, event.error.is_retryable, event.partial) == ("api", False, None)
    assert "text/html" in event.error.message
    assert URL + PATHS[backend] in event.error.message
    assert "base_url" in event.error.message
    assert KEY not in event_to_json(event)
    assert "key=" not in event.error.message


def test_a_page_shows_no_password_of_the_url() -> None:
    script: list[Step] = [(1, head(200, {"content-type": "text/html"})), (2, b"<html></html>"), (2, END)]
    event = failed(ask(script, base_url="http://me:hunter22@api.test/v1"))
    assert "hunter22" not in event_to_json(event)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("status", [200, 204])
def test_an_empty_body_is_a_retryable_failure(backend: str, status: int) -> None:
    script: list[Step] = [(0, Connected()), (1, head(status, {})), (1, END)]
    event = failed(ask(script, backend))
    assert event.error.is_retryable
    assert event.error.kind == "http"
    assert event.partial is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_under_200_is_read(backend: str) -> None:
    body = json.dumps({"error": {"message": "no such model", "type": "not_found_error"}}).encode()
    script: list[Step] = [(0, Connected()), (1, head(200, {"content-type": "application/json"})), (2, body), (2, END)]
    event = failed(ask(script, backend))
    assert (event.error.kind, event.error.status, event.error.message) == ("api", 404, "no such model")


def test_an_answer_under_201_is_an_answer() -> None:
    script = arriving(answer("chat_completions", "a"))
    script[1] = (1, head(201))
    assert completed(ask(script)).response.text == "a"


# -- credentials


@pytest.mark.parametrize(
    ("fields", "credential"),
    [
        ({"api_key": KEY}, "sent"),
        ({}, "missing"),
        ({"extra_headers": {"Authorization": f"Bearer {KEY}"}}, "sent"),
        ({"api_key": KEY, "bearer_resolver": lambda: None}, "missing"),
        ({"bearer_resolver": lambda: KEY}, "sent"),
    ],
)
def test_a_refused_credential_says_whether_there_was_one(fields: dict[str, Any], credential: str) -> None:
    # B003, B087, B098
    event = failed(ask(refusal(401, b'{"error": {"message": "no"}}'), **fields))
    assert (event.error.kind, event.error.credential) == ("auth", credential)


def test_other_failures_do_not_speak_of_the_credential() -> None:
    assert failed(ask(refusal(403), api_key=KEY)).error.credential == "unknown"


def test_a_key_that_cannot_be_sent_fails_before_anything_is() -> None:
    # B088
    transport = ScriptedTransport([])
    seen = ask([], transport=transport, api_key=KEY + "\n")
    event = failed(seen)
    assert (seen.completed_at, transport.requests) == (0, [])
    assert (event.error.kind, event.error.credential) == ("auth", "unknown")
    assert KEY not in event_to_json(event)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [({"model": ""}, "invalid_request"), ({"extra_headers": {"x a": "b"}}, "invalid_request")],
)
def test_a_request_that_cannot_be_sent_is_a_failure_at_once(fields: dict[str, Any], kind: str) -> None:
    # B004
    transport = ScriptedTransport([])
    seen = ask([], transport=transport, **fields)
    assert (failed(seen).error.kind, failed(seen).error.is_retryable, seen.completed_at) == (kind, False, 0)
    assert failed(seen).request_id == "r"
    assert transport.requests == []


ECHOES: Final[dict[str, Callable[[str], tuple[int, bytes]]]] = {
    "json": lambda secret: (401, json.dumps({"error": {"message": f"Incorrect API key provided: {secret}."}}).encode()),
    "text": lambda secret: (403, f"Bearer {secret} is not allowed".encode()),
    "nested": lambda secret: (400, json.dumps({"error": json.dumps({"error": {"message": f"x {secret}"}})}).encode()),
    "code": lambda secret: (400, json.dumps({"error": {"message": "m", "code": secret}}).encode()),
    "type": lambda secret: (400, json.dumps({"error": {"message": "m", "type": secret}}).encode()),
}


@pytest.mark.parametrize("how", ["json", "text", "nested"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_key_that_a_server_echoes_is_shown_nowhere(backend: str, how: str) -> None:
    # B096
    status, body = ECHOES[how](KEY)
    event = failed(ask(refusal(status, body), backend, api_key=KEY))
    assert "***" in event.error.message
    for shown in (event_to_json(event), repr(event), str(event.exception), repr(event.exception)):
        assert KEY not in shown


@pytest.mark.parametrize("how", ["code", "type"])
def test_a_key_that_a_server_echoes_elsewhere_is_not_shown_either(how: str) -> None:
    status, body = ECHOES[how](KEY)
    assert KEY not in event_to_json(failed(ask(refusal(status, body), api_key=KEY)))


def test_a_key_that_is_cut_by_the_limit_is_not_shown_in_part() -> None:
    words = "x" * (MAX_MESSAGE_CHARS - 12) + KEY + " is wrong"
    event = failed(ask(refusal(401, json.dumps({"error": {"message": words}}).encode()), api_key=KEY))
    assert KEY[:10] not in event.error.message


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_key_that_is_echoed_inside_the_stream_is_not_shown(backend: str) -> None:
    frame = data({"type": "error", "error": {"type": "api_error", "message": f"bad key {KEY}"}})
    event = failed(ask(arriving([*opening(backend), frame]), backend, api_key=KEY))
    assert KEY not in event_to_json(event) + repr(event.exception)
    assert "***" in event.error.message


def test_a_key_in_malformed_json_is_not_shown() -> None:
    event = failed(ask(arriving([text("chat_completions", "a"), f'data: {{"k{KEY}\n\n'.encode(), DONE]), api_key=KEY))
    assert event.error.kind == "serialization"
    assert KEY not in event_to_json(event) + repr(event.exception)


# -- headers that tell something


def test_headers_about_model_and_limits_are_an_event() -> None:
    # B154
    headers = {
        "content-type": "text/event-stream",
        "x-grok-context-window": "131072",
        "x-grok-max-completion-tokens": "4096",
        "x-models-etag": 'W/"7"',
        "x-request-id": "req_1",
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1m2.5s",
        "anthropic-ratelimit-tokens-limit": "1000",
        "anthropic-ratelimit-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-reset": "1970-01-01T00:04:21Z",  # virtual second 261; headers come at 201
    }
    script = arriving(answer("chat_completions", "a"))
    script[1] = (1, head(200, headers))
    seen = ask(script)
    assert seen.kinds[:2] == ["stream_started", "model_metadata"]
    assert seen.events[1] == ModelMetadata(
        request_id="r",
        attempt=1,
        ts=201.0,
        context_window=131_072,
        max_completion_tokens=4096,
        models_etag='W/"7"',
        provider_request_id="req_1",
        rate_limits=(
            RateLimit(name="requests", limit=60, remaining=59, reset_after_s=62.5),
            RateLimit(name="tokens", limit=1000, remaining=0, reset_after_s=60.0),
        ),
    )


def test_headers_that_tell_nothing_are_no_event() -> None:
    # B106
    seen = ask(arriving(answer("chat_completions", "a")))
    assert not any(isinstance(event, ModelMetadata) for event in seen.events)
    script = arriving(answer("chat_completions", "a"))
    script[1] = (1, head(200, {"x-grok-context-window": "lots", "x-ratelimit-foo": "1"}))
    assert not any(isinstance(event, ModelMetadata) for event in ask(script).events)


def test_a_refusal_keeps_what_its_headers_tell() -> None:
    headers = {"x-request-id": "req_9", "x-grok-context-window": "8", "x-models-etag": "e"}
    info = failed(ask(refusal(400, b'{"error": {"message": "prompt is too long"}}', headers))).error
    assert info.provider_request_id == "req_9"
    assert info.model_metadata == {"context_window": 8, "models_etag": "e"}
    assert info.is_context_overflow
    assert not info.is_retryable


def test_a_failure_in_the_stream_keeps_the_request_id() -> None:
    script = [*arriving([text("chat_completions", "a")]), (9.0, END)]
    script[1] = (1, head(200, {"request-id": "req_9"}))
    assert failed(ask(script)).error.provider_request_id == "req_9"


# -- what counts as an answer


def chat_answer(*deltas: dict[str, Any], finish: str | None = "stop") -> list[bytes]:
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 6}}
    tail = data({"id": "chatcmpl-1", "model": MODEL, "choices": [], "usage": usage})
    return [*map(chat, deltas), chat({}, finish), tail, DONE]


def test_an_empty_answer_is_a_retryable_failure_that_says_what_there_was() -> None:
    # B211
    event = failed(ask(arriving(chat_answer({"role": "assistant", "content": ""}))))
    assert (event.error.kind, event.error.code, event.error.is_retryable) == (
        "empty_response",
        "no_visible_content",
        True,
    )
    assert event.error.status is None
    context = event.error.empty_response_context
    assert context is not None
    assert (context.reason, context.had_reasoning, context.finish_reason) == ("no_visible_content", False, "stop")
    assert (context.input_tokens, context.output_tokens, context.reasoning_tokens) == (5, 7, 6)
    assert context.model == MODEL


def test_reasoning_alone_is_no_answer() -> None:
    # B211
    event = failed(ask(arriving(chat_answer({"reasoning_content": "hm"}))))
    assert (event.error.kind, event.error.code) == ("empty_response", "reasoning_only")
    assert event.error.empty_response_context is not None
    assert event.error.empty_response_context.had_reasoning
    assert event.partial is not None
    assert event.partial.reasoning == "hm"


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_backend_takes_nothing_for_an_answer(backend: str) -> None:
    frames = {
        "chat_completions": chat_answer(),
        "responses": [
            named({"type": "response.created", "response": {"id": "resp_1", "model": MODEL}}),
            named(
                {
                    "type": "response.completed",
                    "response": {"id": "resp_1", "model": MODEL, "status": "completed", "output": []},
                }
            ),
        ],
        "messages": [opening("messages")[0], *closing("messages", "")[1:]],
    }
    assert failed(ask(arriving(frames[backend]), backend)).error.kind == "empty_response"


@pytest.mark.parametrize("backend", ["responses", "messages"])
def test_a_block_of_text_without_text_is_no_answer(backend: str) -> None:
    assert failed(ask(arriving(answer(backend)), backend)).error.kind == "empty_response"


@pytest.mark.parametrize(
    "delta",
    [
        {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"refusal": "I will not."},
        {"content": "x"},
    ],
)
def test_calls_refusals_and_text_are_answers(delta: dict[str, Any]) -> None:
    # B179, B210
    completed(ask(arriving(chat_answer(delta))))


def test_a_filtered_answer_is_never_empty() -> None:
    response = completed(ask(arriving(chat_answer(finish="content_filter")))).response
    assert (response.stop_reason, response.raw_stop_reason, response.items) == ("content_filter", "content_filter", ())


def messages_answer(stop_reason: str, *, with_text: bool) -> list[bytes]:
    blocks = [*opening("messages")[1:], text("messages", "a"), closing("messages", "a")[0]] if with_text else []
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    end = [
        named({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}}),
        named({"type": "message_stop"}),
    ]
    return [opening("messages")[0], *blocks, *end]


@pytest.mark.parametrize(("stop_reason", "normalised"), [("refusal", "content_filter"), ("pause_turn", "stop")])
@pytest.mark.parametrize("with_text", [True, False])
def test_refused_and_paused_turns_are_never_empty(stop_reason: str, normalised: str, with_text: bool) -> None:
    response = completed(ask(arriving(messages_answer(stop_reason, with_text=with_text)), "messages")).response
    assert (response.stop_reason, response.raw_stop_reason) == (normalised, stop_reason)


@pytest.mark.parametrize(
    ("backend", "frames"),
    [
        ("chat_completions", chat_answer({"content": "cut he"}, finish="length")),
        ("messages", messages_answer("max_tokens", with_text=True)),
        (
            "responses",
            [
                *opening("responses"),
                text("responses", "cut he"),
                named(
                    {
                        "type": "response.incomplete",
                        "response": {
                            "id": "resp_1",
                            "model": MODEL,
                            "status": "incomplete",
                            "incomplete_details": {"reason": "max_output_tokens"},
                            "output": [],
                        },
                    }
                ),
            ],
        ),
    ],
)
def test_the_token_limit_is_an_answer_or_a_failure_as_configured(backend: str, frames: list[bytes]) -> None:
    # B189
    response = completed(ask(arriving(frames), backend)).response
    assert response.stop_reason == "length"
    event = failed(ask(arriving(frames), backend, on_length="fail"))
    assert (event.error.kind, event.error.is_retryable) == ("max_tokens_truncation", False)
    assert event.partial == response


def test_a_limit_that_left_nothing_is_no_empty_answer() -> None:
    # all tokens went into reasoning: more of the same will not help, so this is no case for a retry
    frames = chat_answer({"reasoning_content": "hm"}, finish="length")
    assert completed(ask(arriving(frames))).response.stop_reason == "length"
    assert failed(ask(arriving(frames), on_length="fail")).error.kind == "max_tokens_truncation"


def test_a_partial_answer_is_a_response_like_any_other() -> None:
    event = failed(ask([*arriving([text("chat_completions", "half")]), (9.0, END)]))
    assert event.partial is not None
    assert SamplingResponse.model_validate_json(event.partial.model_dump_json()) == event.partial
    following = SamplingRequest(items=(*SamplingRequest.of("hi").items, *event.partial.items))
    assert following.items[-1] == event.partial.items[-1]


# -- a body that is one document


def test_a_whole_answer_to_a_streamed_request_is_taken() -> None:
    message = {"role": "assistant", "content": "whole"}
    document = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    script: list[Step] = [
        (0, Connected()),
        (1, head(200, {"content-type": "application/json"})),
        (2, json.dumps(document).encode()),
        (2, END),
    ]
    seen = ask(script)
    assert completed(seen).response.text == "whole"
    assert [event.text for event in seen.events if isinstance(event, ChannelToken)] == ["whole"]
    assert isinstance(seen.events[0], StreamStarted)
