"""Every fault, observed at the socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import pytest

from rx_sampler.simulator import Fault, FaultKind, SimulatorThread, Turn

from .raw_http import BODIES, Answer, events_of, post, posting

TEXT = "one two three four"
AFTER = 2
"""The deltas before the fault: `one` and ` two`."""

PATHS = pytest.mark.parametrize("path", list(BODIES))
STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def body_of(path: str, *, stream: bool) -> dict[str, Any]:
    return {**BODIES[path], "stream": stream}


def faulty(simulator: SimulatorThread, path: str, fault: Fault, *, stream: bool = True) -> Answer:
    simulator.script_next(Turn(text=TEXT, fault=fault))
    return post(simulator.origin, path, body_of(path, stream=stream))


def sound(simulator: SimulatorThread, path: str, *, stream: bool = True) -> Answer:
    """The same answer without a fault."""
    simulator.script_next(Turn(text=TEXT))
    return post(simulator.origin, path, body_of(path, stream=stream))


def through_delta(events: list[tuple[str | None, str]], count: int) -> list[tuple[str | None, str]]:
    """The events up to and with the count-th delta of the text; none at all for 0."""
    words = iter(["one", " two", " three", " four"][:count])
    wanted, kept = next(words, None), 0
    for index, (_, data) in enumerate(events):
        if wanted is not None and f'"{wanted}"' in data:
            wanted, kept = next(words, None), index + 1
    assert wanted is None
    return events[:kept]


def receive_events(connection: socket.socket, count: int) -> bytes:
    """What came once `count` events have come, chunk sizes and head included."""
    received = b""
    while received.count(b"\n\n") < count:
        piece = connection.recv(65536)
        assert piece, "the server ended the connection"
        received += piece
    return received


def receive_nothing(simulator: SimulatorThread, connection: socket.socket) -> None:
    """Nothing waits on the connection after another request was answered whole, and its handler is still there."""
    assert sound(simulator, "/v1/messages").is_whole
    connection.setblocking(False)
    with pytest.raises(BlockingIOError):
        connection.recv(1)
    assert simulator.active_count == 1


@PATHS
@STREAMS
def test_status(simulator: SimulatorThread, path: str, stream: bool) -> None:
    fault = Fault(kind="status", status=503, headers={"Retry-After": "3"}, body="<html>busy</html>")
    answer = faulty(simulator, path, fault, stream=stream)
    assert (answer.status, answer.body, answer.is_whole) == (503, b"<html>busy</html>", True)
    assert answer.headers["retry-after"] == "3"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


@PATHS
def test_status_with_an_object_or_text(simulator: SimulatorThread, path: str) -> None:
    answer = faulty(simulator, path, Fault(kind="status", status=422, body={"detail": "ü"}))
    assert (answer.status, answer.json) == (422, {"detail": "ü"})
    assert answer.headers["content-type"] == "application/json"
    answer = faulty(simulator, path, Fault(kind="status", status=502, body=""))
    assert (answer.status, answer.body) == (502, b"")
    answer = faulty(simulator, path, Fault(kind="status", status=200, headers={"content-type": "text/csv"}, body="a,b"))
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, "text/csv", b"a,b")


@PATHS
@STREAMS
def test_silent(simulator: SimulatorThread, path: str, stream: bool) -> None:
    simulator.script_next(Turn(fault=Fault(kind="silent")))
    with posting(simulator.origin, path, body_of(path, stream=stream)) as connection:
        simulator.wait_received(1)
        receive_nothing(simulator, connection)
    simulator.wait_idle()


@PATHS
@pytest.mark.parametrize("after", [0, AFTER])
def test_stall(simulator: SimulatorThread, path: str, after: int) -> None:
    before = through_delta(sound(simulator, path).events, after)
    simulator.script_next(Turn(text=TEXT, fault=Fault(kind="stall", after_deltas=after)))
    with posting(simulator.origin, path, body_of(path, stream=True)) as connection:
        raw = receive_events(connection, len(before)) if before else connection.recv(65536)
        assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
        assert Answer(raw, "closed").events == before
        receive_nothing(simulator, connection)
    simulator.wait_idle()


@PATHS
def test_stall_without_streaming(simulator: SimulatorThread, path: str) -> None:
    whole = sound(simulator, path, stream=False)
    half = whole.body[: len(whole.body) // 2]
    simulator.script_next(Turn(text=TEXT, fault=Fault(kind="stall")))
    with posting(simulator.origin, path, body_of(path, stream=False)) as connection:
        received = b""
        while not received.endswith(half):
            received += connection.recv(65536)
        assert int(Answer(received, "closed").headers["content-length"]) == len(whole.body)
        receive_nothing(simulator, connection)
    simulator.wait_idle()


@PATHS
@pytest.mark.parametrize("after", [0, AFTER])
def test_cut(simulator: SimulatorThread, path: str, after: int) -> None:
    events = sound(simulator, path).events
    before = through_delta(events, after)
    answer = faulty(simulator, path, Fault(kind="cut", after_deltas=after))
    assert (answer.ending, answer.is_whole, answer.events) == ("closed", False, before)
    # The last chunk says more bytes than came: half of the event that would have been next.
    size_line, _, rest = answer.raw.rpartition(b"\r\n")
    said = int(size_line.rpartition(b"\n")[2], 16)
    assert said // 2 == len(rest)
    following = list(events_of(rest + b'"\n\n'))
    assert [data[:10] for _, data in following] == [events[len(before)][1][:10]]


@PATHS
def test_cut_without_streaming(simulator: SimulatorThread, path: str) -> None:
    whole = sound(simulator, path, stream=False)
    answer = faulty(simulator, path, Fault(kind="cut"), stream=False)
    assert (answer.ending, answer.is_whole) == ("closed", False)
    assert answer.body == whole.body[: len(whole.body) // 2]


@PATHS
@pytest.mark.parametrize("after", [0, AFTER, 99])
def test_early_end(simulator: SimulatorThread, path: str, after: int) -> None:
    before = through_delta(sound(simulator, path).events, min(after, 4))
    answer = faulty(simulator, path, Fault(kind="early_end", after_deltas=after))
    assert (answer.ending, answer.is_whole, answer.events) == ("closed", True, before)


@PATHS
def test_early_end_without_streaming(simulator: SimulatorThread, path: str) -> None:
    whole = sound(simulator, path, stream=False)
    answer = faulty(simulator, path, Fault(kind="early_end"), stream=False)
    assert answer.is_whole
    assert answer.body == whole.body[: len(whole.body) // 2]


@PATHS
@STREAMS
def test_reset_before_the_headers(simulator: SimulatorThread, path: str, stream: bool) -> None:
    answer = faulty(simulator, path, Fault(kind="reset"), stream=stream)
    assert (answer.ending, answer.raw) == ("reset", b"")


@PATHS
@STREAMS
def test_reset_in_the_middle(simulator: SimulatorThread, path: str, stream: bool) -> None:
    answer = faulty(simulator, path, Fault(kind="reset", after_deltas=AFTER), stream=stream)
    assert answer.ending == "reset"
    assert not answer.raw or not answer.is_whole


@PATHS
@STREAMS
def test_close(simulator: SimulatorThread, path: str, stream: bool) -> None:
    answer = faulty(simulator, path, Fault(kind="close"), stream=stream)
    assert (answer.ending, answer.raw) == ("closed", b"")


@PATHS
def test_close_when_a_kept_connection_is_used_again(simulator: SimulatorThread, path: str) -> None:
    simulator.script_next(Turn(text=TEXT), Turn(fault=Fault(kind="close")))
    raw = json.dumps(body_of(path, stream=True)).encode()
    request = f"POST {path} HTTP/1.1\r\nhost: simulator\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw
    with posting(simulator.origin, path, raw, {"connection": "keep-alive"}) as connection:
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(65536)
        assert Answer(received, "closed").is_whole
        connection.sendall(request)
        assert connection.recv(65536) == b""


@contextmanager
def uploading(simulator: SimulatorThread, path: str, length: int, sent: int) -> Generator[socket.socket, None, None]:
    """A connection on which that many bytes of a longer body were sent."""
    head = f"POST {path} HTTP/1.1\r\nhost: simulator\r\ncontent-length: {length}\r\n\r\n".encode()
    address = urlsplit(simulator.origin)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=60) as connection:
        connection.sendall(head + b" " * sent)
        yield connection


@PATHS
def test_upload_reset(simulator: SimulatorThread, path: str) -> None:
    simulator.script_next(Turn(fault=Fault(kind="upload_reset", after_bytes=2000)))
    with uploading(simulator, path, 1_000_000, 1999) as connection:
        simulator.wait_received(1)
        receive_nothing(simulator, connection)
        connection.setblocking(True)
        connection.sendall(b" ")
        with pytest.raises(ConnectionResetError):
            connection.recv(65536)
    simulator.wait_idle()
    assert simulator.requests[0].body is None


@PATHS
def test_upload_reset_fails_the_sending_of_a_large_body(simulator: SimulatorThread, path: str) -> None:
    simulator.script_next(Turn(fault=Fault(kind="upload_reset")))
    more_than_any_buffer = bytes(1 << 28)
    with uploading(simulator, path, 1 << 28, 0) as connection, pytest.raises(ConnectionError):
        connection.sendall(more_than_any_buffer)


@PATHS
def test_upload_reset_comes_before_the_last_byte(simulator: SimulatorThread, path: str) -> None:
    simulator.script_next(Turn(fault=Fault(kind="upload_reset", after_bytes=2000)))
    with uploading(simulator, path, 1000, 999) as connection, pytest.raises(ConnectionResetError):
        connection.recv(65536)


@PATHS
@STREAMS
def test_slow_headers(simulator: SimulatorThread, path: str, stream: bool) -> None:
    simulator.script_next(Turn(text=TEXT, fault=Fault(kind="slow_headers", delay_s=3600.0)))
    with posting(simulator.origin, path, body_of(path, stream=stream)) as connection:
        simulator.wait_received(1)
        receive_nothing(simulator, connection)
    simulator.wait_idle()
    late = faulty(simulator, path, Fault(kind="slow_headers", delay_s=0.001), stream=stream)
    assert late == sound(simulator, path, stream=stream)


def bytes_sent(answer: Answer) -> bytes:
    """The body as far as it came, half a chunk included."""
    rest, body = answer.raw.partition(b"\r\n\r\n")[2], b""
    if "transfer-encoding" not in answer.headers:
        return rest
    while rest:
        size_line, _, rest = rest.partition(b"\r\n")
        size = int(size_line, 16)
        body, rest = body + rest[:size], rest[size + 2 :]
    return body


SHARES = pytest.mark.parametrize("share", [0.0, 0.3, 0.77, 1.0])


@PATHS
@STREAMS
@SHARES
@pytest.mark.parametrize("kind", ["cut", "early_end"])
def test_a_fault_at_a_byte(
    simulator: SimulatorThread, path: str, stream: bool, share: float, kind: Literal["cut", "early_end"]
) -> None:
    whole = sound(simulator, path, stream=stream).body
    place = int(len(whole) * share)
    by_share = faulty(simulator, path, Fault(kind=kind, after_share=share), stream=stream)
    by_bytes = faulty(simulator, path, Fault(kind=kind, after_bytes=place), stream=stream)
    assert by_share == by_bytes
    assert (by_bytes.ending, by_bytes.is_whole) == ("closed", kind == "early_end")
    # Without streaming the last byte is always missing: a body of the promised length would be whole.
    assert bytes_sent(by_bytes) == whole[: place if stream else min(place, len(whole) - 1)]


@PATHS
@STREAMS
@SHARES
def test_reset_at_a_byte(simulator: SimulatorThread, path: str, stream: bool, share: float) -> None:
    whole = sound(simulator, path, stream=stream).body
    answer = faulty(simulator, path, Fault(kind="reset", after_share=share), stream=stream)
    assert answer.ending == "reset"
    if answer.raw:  # a reset may overtake what went before it
        sent = bytes_sent(answer)
        assert whole.startswith(sent)
        assert len(sent) <= len(whole) * share


@PATHS
@STREAMS
def test_stall_at_a_byte(simulator: SimulatorThread, path: str, stream: bool) -> None:
    whole = sound(simulator, path, stream=stream).body
    simulator.script_next(Turn(text=TEXT, fault=Fault(kind="stall", after_bytes=77)))
    with posting(simulator.origin, path, body_of(path, stream=stream)) as connection:
        received = b""
        while not received.partition(b"\r\n\r\n")[2] or len(bytes_sent(Answer(received, "closed"))) < 77:
            received += connection.recv(65536)
        receive_nothing(simulator, connection)
        assert bytes_sent(Answer(received, "closed")) == whole[:77]
    simulator.wait_idle()


@PATHS
@pytest.mark.parametrize("kind", ["error", "truncated_json", "keepalive"])
def test_a_fault_between_frames_at_a_byte(
    simulator: SimulatorThread, path: str, kind: Literal["error", "truncated_json", "keepalive"]
) -> None:
    events = sound(simulator, path).events
    sizes = [len(f"event: {name}\n" if name else "") + len(f"data: {data}\n\n".encode()) for name, data in events]
    counted = {"count": 1, "interval_s": 0.001} if kind == "keepalive" else {}
    for before, byte in ((0, 0), (3, sum(sizes[:3])), (3, sum(sizes[:4]) - 1), (len(events) - 1, 10**9)):
        fault = Fault.model_validate({"kind": kind, "after_bytes": byte, **counted})
        answer = faulty(simulator, path, fault)
        lines = answer.body.split(b"\n\n")
        plain = sound(simulator, path).body.split(b"\n\n")
        assert lines[:before] == plain[:before]
        assert lines[before] != plain[before]


@PATHS
@pytest.mark.parametrize("after", [0, AFTER])
def test_error(simulator: SimulatorThread, path: str, after: int) -> None:
    before = through_delta(sound(simulator, path).events, after)
    fault = Fault(kind="error", after_deltas=after, type="some_error", code="some_code", message="scripted")
    answer = faulty(simulator, path, fault)
    assert (answer.status, answer.is_whole) == (200, True)
    if path != "/v1/responses":  # events are numbered there, and these were counted in the sound answer
        assert answer.events[: len(before)] == before
    name, data = answer.events[len(before)]
    error = json.loads(data)["error"]
    assert name == (None if path == "/v1/chat/completions" else "error")
    assert (error["type"], error["code"], error["message"]) == ("some_error", "some_code", "scripted")
    assert not {"[DONE]", "message_stop", "response.completed"} & {text for event in answer.events for text in event}


@PATHS
def test_error_without_streaming_is_a_status(simulator: SimulatorThread, path: str) -> None:
    answer = faulty(simulator, path, Fault(kind="error", message="scripted"), stream=False)
    assert answer.status == (529 if path == "/v1/messages" else 500)
    assert answer.json["error"]["message"] == "scripted"


@PATHS
def test_error_with_a_status_as_its_code(simulator: SimulatorThread, path: str) -> None:
    fault = Fault(kind="error", code=429, message="scripted")
    frames = faulty(simulator, path, fault).data
    assert [frame["error"]["code"] for frame in frames if "error" in frame] == [429]
    assert faulty(simulator, path, fault, stream=False).status == 429


@PATHS
@pytest.mark.parametrize("after", [0, AFTER, 99])
def test_truncated_json(simulator: SimulatorThread, path: str, after: int) -> None:
    events = sound(simulator, path).events
    broken = len(through_delta(events, min(after, 4)))
    answer = faulty(simulator, path, Fault(kind="truncated_json", after_deltas=after))
    assert answer.is_whole
    assert len(answer.events) == len(events)
    for index, (event, whole) in enumerate(zip(answer.events, events, strict=True)):
        if index == broken:
            assert event == (whole[0], whole[1][: len(whole[1]) // 2])
            with pytest.raises(json.JSONDecodeError):
                json.loads(event[1])
        else:
            assert event == whole


@PATHS
def test_truncated_json_without_streaming(simulator: SimulatorThread, path: str) -> None:
    answer = faulty(simulator, path, Fault(kind="truncated_json"), stream=False)
    assert answer.is_whole
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.body)


@PATHS
def test_keepalive_and_then_the_rest(simulator: SimulatorThread, path: str) -> None:
    fault = Fault(kind="keepalive", after_deltas=AFTER, count=3, interval_s=0.001)
    plain, answer = sound(simulator, path), faulty(simulator, path, fault)
    before = through_delta(plain.events, AFTER)
    sign: tuple[bytes, Literal[0, 3]] = {
        "/v1/chat/completions": (b": keep-alive\n\n", 0),
        "/v1/responses": (b"event: keepalive\n", 3),
        "/v1/messages": (b"event: ping\n", 3),
    }[path]  # pyright: ignore[reportAssignmentType] - literals widen in a dict
    token, events_more = sign
    assert answer.body.count(token) == plain.body.count(token) + 3
    assert len(answer.events) == len(plain.events) + events_more
    assert answer.events[: len(before)] == before
    assert [name for name, _ in answer.events[len(before) + events_more :]] == [
        name for name, _ in plain.events[len(before) :]
    ]


@PATHS
def test_keepalive_for_ever_ends_with_the_client(simulator: SimulatorThread, path: str) -> None:
    simulator.script_next(Turn(text=TEXT, fault=Fault(kind="keepalive", interval_s=0.001)))
    with posting(simulator.origin, path, body_of(path, stream=True)) as connection:
        receive_events(connection, 20)
        assert simulator.active_count == 1
    simulator.wait_idle()


def test_every_kind_is_tested() -> None:
    def words(name: str) -> Iterator[str]:
        yield from (kind for kind in get_args(FaultKind) if name.startswith(f"test_{kind}"))

    tested = {kind for name in globals() for kind in words(name)}
    assert tested == set(get_args(FaultKind)) - {"doom_loop"}  # responses only: test_responses.py
