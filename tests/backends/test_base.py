"""Backends by name, and what all wire formats have in common between frames and chunks."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import reactivex as rx
from reactivex.scheduler import ImmediateScheduler
from reactivex.subject import Subject

from rx_sampler import (
    Backend,
    Completed,
    SamplerConfig,
    SamplingError,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
    SseFrame,
    StreamStarted,
    failures_as_events,
    get_backend,
    sampling_events,
    sse_frames,
    typed_chunks,
)
from rx_sampler.backends.assembly import DONE as DONE_CHUNK
from rx_sampler.backends.assembly import MalformedChunk
from rx_sampler.backends.base import ChunkDecoder
from rx_sampler.conversation import JsonObject
from rx_sampler.wire.sse import UNFRAMED

from .streams import (
    BACKENDS,
    CHAT,
    CREATED,
    DONE,
    MESSAGES,
    RESPONSES,
    STOP,
    Frame,
    chat,
    completed,
    delta,
    ended,
    failed,
    kinds,
    run,
    says,
    sse,
    started,
    stops,
    text_block,
    tokens,
)

ANSWERS: dict[str, list[Frame]] = {
    CHAT: [says("so "), says("far"), chat({}, "stop"), DONE],
    RESPONSES: [CREATED, delta("so "), delta("far"), ended()],
    MESSAGES: [started(), *text_block(0, "so ", "far"), stops("end_turn"), STOP],
}
"""The same answer in each format, and how many of its frames say all of its text."""
SAID = {CHAT: 2, RESPONSES: 3, MESSAGES: 4}


def decode(backend: str, *frames: SseFrame) -> tuple[list[Any], SamplingError | None]:
    """The chunks of `frames`, and the error that they end in."""
    chunks: list[Any] = []
    errors: list[Exception] = []
    rx.from_iterable(frames).pipe(typed_chunks(backend)).subscribe(chunks.append, errors.append)
    assert all(isinstance(error, SamplingError) for error in errors)
    return chunks, next((error for error in errors if isinstance(error, SamplingError)), None)


def frame(data: bytes | str | JsonObject, event: str = "message") -> SseFrame:
    text = data if isinstance(data, bytes) else data.encode() if isinstance(data, str) else json.dumps(data).encode()
    return SseFrame(event, text, "")


# -- DONE


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("data", [b"[DONE]", b" [DONE]", b"[DONE] ", b"\t[DONE]\r"])
def test_done(backend: str, data: bytes) -> None:
    # B131
    chunks, error = decode(backend, frame(data))
    assert error is None
    assert len(chunks) == 1
    assert chunks[0] is DONE_CHUNK


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("data", [b'{"[DONE]":true}', b'"[DONE]"', b'["DONE"]', b'{"type":"[DONE]"}'])
def test_no_json_stands_for_done(backend: str, data: bytes) -> None:
    chunks, error = decode(backend, frame(data))
    assert error is None
    assert not any(chunk is DONE_CHUNK for chunk in chunks)


@pytest.mark.parametrize("data", [b"[done]", b"[DONE", b"DONE"])
def test_what_is_not_quite_done(data: bytes) -> None:
    (chunk,), error = decode(CHAT, frame(data))
    assert error is None
    assert isinstance(chunk, MalformedChunk)


# -- nothing


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("data", [b"", b" ", b"null", b'""', b"0", b"true", b"[]", b"[1]", b"[{}]", b'"text"'])
def test_data_that_says_nothing(backend: str, data: bytes) -> None:
    assert decode(backend, frame(data)) == ([], None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["heartbeat", "ping", "response.doom_loop_check", "vendor.metrics"])
@pytest.mark.parametrize("data", ["{broken", "plain text", "", "12:30"])
def test_foreign_frames_need_not_be_json(backend: str, name: str, data: str) -> None:
    assert decode(backend, frame(data, name)) == ([], None)


OWN_NAMES = {
    CHAT: ["message"],
    RESPONSES: ["message", "response.output_text.delta"],
    MESSAGES: ["message", "message_stop"],
}


@pytest.mark.parametrize(
    ("backend", "name"), [(backend, name) for backend, names in OWN_NAMES.items() for name in names]
)
@pytest.mark.parametrize("data", ["{broken", "plain text", '{"type":', "{'a': 1}", "\x00"])
def test_own_frames_must_be_json(backend: str, name: str, data: str) -> None:
    # B005
    (chunk,), error = decode(backend, frame(data, name))
    assert error is None
    assert isinstance(chunk, MalformedChunk)
    assert chunk == {}
    assert (chunk.error.kind, chunk.error.info.code) == (SamplingErrorKind.SERIALIZATION, "malformed_json")
    assert not chunk.error.info.is_retryable


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_malformed_frame_fails_the_stream_at_its_end(backend: str, place: str) -> None:
    """What comes after it is read: nothing that streamed may be lost."""
    frames = [*ANSWERS[backend]]
    frames.insert({"first": 0, "middle": SAID[backend] - 1, "last": len(frames) - 1}[place], '{"broken": "\x1b[31m')
    events = run(backend, sse(*frames))
    assert tokens(events) == [("text", "so "), ("text", "far")]
    end = failed(events)
    assert (end.error.kind, end.error.code) == (SamplingErrorKind.SERIALIZATION, "malformed_json")
    assert end.partial is not None
    assert end.partial.text == "so far"
    assert "broken" in end.error.message
    assert "\x1b" not in end.error.message


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_of_two_malformed_frames_is_told(backend: str) -> None:
    end = failed(run(backend, sse("{first", *ANSWERS[backend][:-1], "{second", ANSWERS[backend][-1])))
    assert "first" in end.error.message
    assert "second" not in end.error.message


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_malformed_frame_outweighs_a_missing_end(backend: str) -> None:
    assert failed(run(backend, sse(*ANSWERS[backend][: SAID[backend]], "{broken"))).error.code == "malformed_json"


# -- names and types


@pytest.mark.parametrize("backend", [RESPONSES, MESSAGES])
def test_the_name_of_a_frame_is_its_type_if_the_data_has_none(backend: str) -> None:
    chunks, _ = decode(backend, frame({"index": 0}, "content_block_stop"), frame({"type": "a"}, "b"), frame({}))
    assert [chunk.get("type") for chunk in chunks] == ["content_block_stop", "a", None]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_by_name_beats_the_type(backend: str) -> None:
    """`event: error` without a type is an error; so is one whose data is of type error under any name."""
    named = frame({"message": "boom", "code": 503}, "error")
    typed = frame({"type": "error", "error": {"message": "boom", "code": 503}}, "ping")
    for one in (named, typed):
        _, error = decode(backend, one)
        assert error is not None
        assert (error.kind, error.info.status, error.info.message) == (SamplingErrorKind.API, 503, "boom")


# -- errors


DIALECTS: dict[str, SseFrame] = {
    "nested": frame({"error": {"message": "boom", "code": "server_error"}}),
    "nested, by type": frame({"error": {"message": "boom", "type": "server_error"}}),
    "nested, null code": frame({"error": {"message": "boom", "type": "server_error", "code": None, "param": None}}),
    "flat text": frame({"error": "boom", "code": "server_error"}),
    "messages": frame({"type": "error", "error": {"type": "server_error", "message": "boom"}}, "error"),
    "responses": frame({"type": "error", "code": "server_error", "message": "boom", "param": None}, "error"),
    "named, without type": frame({"code": "server_error", "message": "boom"}, "error"),
    "in a list": frame(json.dumps([{"error": {"message": "boom", "status": "x", "code": "server_error"}}])),
    "encoded twice": frame({"error": json.dumps({"message": "boom", "code": "server_error"})}),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS.keys())
def test_errors_in_all_dialects(backend: str, dialect: SseFrame) -> None:
    _, error = decode(backend, dialect)
    assert error is not None
    info = error.info
    assert (info.kind, info.status, info.code) == (SamplingErrorKind.API, 500, "server_error")
    assert (info.message, info.is_retryable) == ("boom", True)


@pytest.mark.parametrize(
    "backend",
    [
        CHAT,
        RESPONSES,
        MESSAGES,
    ],
)
def test_a_flat_error_told_by_its_type_alone(backend: str) -> None:
    """Gateways speak one dialect of errors in front of every format."""
    _, error = decode(backend, frame({"type": "error", "code": "server_error", "message": "boom"}))
    assert error is not None
    assert error.info.code == "server_error"


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_frame_in_plain_text(backend: str) -> None:
    for data, message in ((b"upstream went away", "upstream went away"), (b"<html><b>502</b></html>", None)):
        _, error = decode(backend, frame(data, "error"))
        assert error is not None
        assert error.kind is SamplingErrorKind.API
        assert error.info.is_retryable
        assert "<" not in error.info.message
        assert message is None or error.info.message == message


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("data", [b"{}", b"null", b'{"error":null}', b'{"error":{}}', b"[]"])
def test_an_error_frame_that_says_nothing_is_an_error(backend: str, data: bytes) -> None:
    _, error = decode(backend, frame(data, "error"))
    assert error is not None
    assert error.kind is SamplingErrorKind.API
    assert error.info.message


@pytest.mark.parametrize("backend", BACKENDS)
def test_minimax_puts_a_status_of_its_own_beside_the_answer(backend: str) -> None:
    fine = {"base_resp": {"status_code": 0, "status_msg": "success"}}
    poor = {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}
    if backend == CHAT:
        assert completed(run(CHAT, sse(says("x", "stop"), {"choices": [], **fine}, DONE))).text == "x"
        info = failed(run(CHAT, sse(says("x"), {"choices": [], **poor}))).error
        assert (info.kind, info.is_retryable, info.message) == (SamplingErrorKind.API, False, "insufficient balance")
    else:  # the field means nothing on the other wires
        assert decode(backend, frame(fine))[1] is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_counts_after_an_error(backend: str) -> None:
    frames = ANSWERS[backend]
    events = run(backend, sse(*frames[: SAID[backend]], {"error": {"message": "boom"}}, *frames[SAID[backend] :]))
    end = failed(events)
    assert end.error.message == "boom"
    assert end.partial is not None
    assert end.partial.text == "so far"
    assert tokens(events) == [("text", "so "), ("text", "far")]


# -- bodies without frames


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "body", [b"<html>Log in</html>", b"\n<!DOCTYPE html><p>", b"\xef\xbb\xbf<html>", b"<?xml version='1.0'?>"]
)
def test_a_page_is_no_stream(backend: str, body: bytes) -> None:
    end = failed(run(backend, body))
    assert (end.error.kind, end.error.code, end.error.is_retryable) == (SamplingErrorKind.API, "not_a_stream", False)
    assert "<" not in end.error.message


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "ctx full", "code": "context_length_exceeded"}},
        [{"error": {"message": "ctx full", "code": "context_length_exceeded"}}],
        {"type": "error", "error": {"message": "ctx full", "code": "context_length_exceeded"}},
        {"object": "error", "message": "ctx full", "code": "context_length_exceeded"},
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_error_without_framing(backend: str, body: object, indent: int | None) -> None:
    info = failed(run(backend, json.dumps(body, indent=indent).encode())).error
    assert (info.kind, info.status, info.code) == (SamplingErrorKind.API, 400, "context_length_exceeded")
    assert (info.message, info.is_context_overflow, info.is_retryable) == ("ctx full", True, False)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("body", [b'{"id":"x","cho', b"[{", b'{"id":'])
def test_half_a_json_answer_is_a_lost_connection(backend: str, body: bytes) -> None:
    info = failed(run(backend, body)).error
    assert (info.kind, info.code, info.is_retryable) == (SamplingErrorKind.HTTP, "unterminated", True)


@pytest.mark.parametrize(
    "backend",
    [
        CHAT,
        RESPONSES,
        MESSAGES,
    ],
)
@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"id":"x"}', b'{"choices":[],"output":[],"content":[]}'])
def test_a_json_answer_that_answers_nothing_is_no_success(backend: str, body: bytes) -> None:
    end = failed(run(backend, body))
    assert end.error.is_retryable
    assert end.partial is None


def as_it_is(document: JsonObject) -> list[Any]:
    return [document]


def test_a_whole_answer_in_parts_is_read_part_by_part() -> None:
    backend = replace(get_backend(CHAT), unwrap=as_it_is)
    parts = [says("a"), says("b", "stop")]
    chunks = ChunkDecoder(backend).feed(SseFrame(UNFRAMED, json.dumps(parts).encode(), ""))
    assert [chunk["choices"][0]["delta"]["content"] for chunk in chunks] == ["a", "b"]
    refusal = [{"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}]
    end = failed(run(CHAT, json.dumps(refusal).encode()))
    assert (end.error.status, end.error.code) == (429, "RESOURCE_EXHAUSTED")


def test_what_only_an_answer_has_tells_it_from_an_error() -> None:
    body = b'{"message": {"content": "a", "message": "an error, or so"}}'
    assert failed(run(CHAT, body)).error.message == "an error, or so"
    own = replace(get_backend(CHAT), unwrap=as_it_is, answer_keys=("message",))
    assert len(ChunkDecoder(own).feed(SseFrame(UNFRAMED, body, ""))) == 1


def test_unframed_data_is_told_by_its_name() -> None:
    """Only the parser gives that name: a server's own event of that name is a frame like others."""
    chunks, error = decode(CHAT, SseFrame(UNFRAMED, b'{"choices":[{"message":{"content":"x"}}]}', ""))
    assert error is None
    assert chunks == [{"choices": [{"message": {"content": "x"}}]}, DONE_CHUNK]
    body = sse(says("a"), ("unframed", says("b")), says("c", "stop"), DONE)
    assert completed(run(CHAT, body)).text == "abc"


# -- the operators


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_end_of_the_answer_ends_the_stream_before_its_source(backend: str) -> None:
    source: Subject[bytes] = Subject()
    events: list[SamplingEvent] = []
    ends: list[None] = []
    source.pipe(sse_frames(), typed_chunks(backend), sampling_events(backend)).subscribe(
        events.append, on_completed=lambda: ends.append(None)
    )
    source.on_next(sse(*ANSWERS[backend]))
    assert isinstance(events[-1], Completed)
    assert ends == [None]
    assert not source.observers  # the source was disposed


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_subscription_starts_afresh(backend: str) -> None:
    stream = rx.from_iterable([sse(*ANSWERS[backend])]).pipe(
        sse_frames(), typed_chunks(backend), sampling_events(backend, request_id="r-1"), failures_as_events()
    )
    runs: list[list[SamplingEvent]] = [[], []]
    for events in runs:
        stream.subscribe(events.append)
    assert kinds(runs[0]) == kinds(runs[1])
    assert [completed(events).text for events in runs] == ["so far", "so far"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_source_that_fails_keeps_what_came(backend: str) -> None:
    """B151 and B164: Failed, no Completed."""
    lost = SamplingError.of(SamplingErrorKind.HTTP, "connection reset", is_retryable=True)
    body = sse(*ANSWERS[backend][: SAID[backend]])
    events: list[SamplingEvent] = []
    rx.concat(rx.of(body), rx.throw(lost)).pipe(
        sse_frames(), typed_chunks(backend), sampling_events(backend), failures_as_events()
    ).subscribe(events.append)
    end = failed(events)
    assert (end.error.kind, end.error.message, end.exception) == (SamplingErrorKind.HTTP, "connection reset", lost)
    assert end.partial is not None
    assert end.partial.text == "so far"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bug_in_the_source_is_no_event(backend: str) -> None:
    events: list[SamplingEvent] = []
    errors: list[Exception] = []
    bug = RuntimeError("a bug")
    rx.throw(bug).pipe(sse_frames(), typed_chunks(backend), sampling_events(backend), failures_as_events()).subscribe(
        events.append, errors.append
    )
    assert kinds(events) == ["stream_started"]
    assert errors == [bug]


class Ticking(ImmediateScheduler):
    """A clock that is a second later each time it is read, and once a minute earlier."""

    def __init__(self) -> None:
        self.times: Iterator[float] = iter([100.0, 101.0, 102.0, 42.0, *map(float, range(103, 200))])

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(next(self.times), UTC)


@pytest.mark.parametrize("backend", BACKENDS)
def test_stamps_come_from_the_subscriptions_clock_and_never_go_back(backend: str) -> None:
    events: list[SamplingEvent] = []
    reads = [sse(one) for one in ANSWERS[backend]]
    rx.from_iterable(reads).pipe(sse_frames(), typed_chunks(backend), sampling_events(backend)).subscribe(
        events.append, scheduler=Ticking()
    )
    stamps = [event.ts for event in events]
    assert stamps == sorted(stamps)
    assert stamps[0] == 102.0 or stamps[0] == 101.0
    assert len(set(stamps)) > 2
    assert 42.0 not in stamps


def test_id_and_attempt_are_the_callers() -> None:
    events: list[SamplingEvent] = []
    rx.from_iterable([sse(*ANSWERS[CHAT])]).pipe(
        sse_frames(), typed_chunks(CHAT), sampling_events(CHAT, request_id="mine", attempt=3)
    ).subscribe(events.append)
    assert {(event.request_id, event.attempt) for event in events} == {("mine", 3)}
    end = events[-1]
    assert isinstance(end, Completed)
    assert end.metrics.attempts == 3


# -- the registry


def test_the_built_in_backends() -> None:
    found = [get_backend(name) for name in BACKENDS]
    assert [backend.name for backend in found] == list(BACKENDS)
    assert [backend.path for backend in found] == ["/chat/completions", "/responses", "/messages"]
    assert [backend.auth_scheme for backend in found] == ["bearer", "bearer", "x_api_key"]
    assert get_backend(MESSAGES).headers == {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize("make", [get_backend, typed_chunks, sampling_events])
def test_an_unknown_name_is_refused_at_call_time(make: Any) -> None:
    with pytest.raises(ValueError, match=r"'chat'.*chat_completions, responses, messages"):
        make("chat")


@pytest.fixture
def third_party(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with a backend of its own, and one whose entry point is no backend."""
    points = [
        EntryPoint("shouting", f"{__name__}:SHOUTING", "rx_sampler.backends"),
        EntryPoint("broken", f"{__name__}:ANSWERS", "rx_sampler.backends"),
    ]

    def entry_points(*, group: str) -> list[EntryPoint]:
        assert group == "rx_sampler.backends"
        return points

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    get_backend.cache_clear()
    yield
    get_backend.cache_clear()


def _encode(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    return {"shout": request.items[0].type, "model": config.model}


SHOUTING: Backend[Any] = replace(get_backend(CHAT), name="shouting", path="/shout", encode=_encode)


@pytest.mark.usefixtures("third_party")
def test_a_backend_of_a_third_party() -> None:
    assert get_backend("shouting") is SHOUTING
    response = completed(run("shouting", sse(*ANSWERS[CHAT])))
    assert (response.text, response.stop_reason) == ("so far", "stop")
    body = get_backend("shouting").encode(SamplingRequest.of("x"), SamplerConfig(base_url="http://h", model="m"))
    assert body == {"shout": "user", "model": "m"}


@pytest.mark.usefixtures("third_party")
def test_an_entry_point_that_is_no_backend() -> None:
    with pytest.raises(ValueError, match=r"'broken'.*Backend"):
        get_backend("broken")


@pytest.mark.usefixtures("third_party")
def test_an_unknown_name_names_the_third_partys_too() -> None:
    with pytest.raises(ValueError, match="chat_completions, responses, messages, broken, shouting"):
        get_backend("nope")


@pytest.mark.parametrize(
    "backend",
    [
        CHAT,
        *(backend for backend in (RESPONSES, MESSAGES)),
    ],
)
def test_a_stream_opens_even_if_its_first_chunk_ends_it(backend: str) -> None:
    assert kinds(run(backend, sse(DONE)))[0] == "stream_started"


def test_a_stream_opens_even_if_nothing_comes() -> None:
    events: list[SamplingEvent] = []
    rx.empty().pipe(sse_frames(), typed_chunks(CHAT), sampling_events(CHAT), failures_as_events()).subscribe(
        events.append
    )
    assert isinstance(events[0], StreamStarted)
    assert kinds(events) == ["stream_started", "failed"]
