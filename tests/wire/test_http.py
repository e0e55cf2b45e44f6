"""The network shell on real loopback connections: what is sent, what comes out, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import itertools
import random
import socket
import threading
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any

import aiohttp
import pytest
from reactivex import Observable, abc

from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.testing import Answer, End, ScriptedServer
from rx_sampler.wire import http
from rx_sampler.wire.http import HttpTransport
from rx_sampler.wire.transport import Connected, HttpRequest, Prepare, ResponseHead, Wire

K = SamplingErrorKind
DONE = b"data: [DONE]\n\n"


@pytest.fixture(scope="module", autouse=True)
def no_socket_left() -> Iterator[None]:
    """What a test forgets to close warns when it is collected, and warnings are errors."""
    yield
    gc.collect()


class Seen:
    """A subscriber that remembers, and can be waited for."""

    def __init__(self, on_item: Callable[[Seen, Wire], None] = lambda _seen, _item: None) -> None:
        self.items: list[Wire] = []
        self.error: Exception | None = None
        self.completed = False
        self.subscription: abc.DisposableBase | None = None
        self._on_item = on_item
        self._news = asyncio.Event()

    def watch(self, source: Observable[Wire]) -> Seen:
        self.subscription = source.subscribe(self._on_next, self._on_error, self._on_completed)
        return self

    def dispose(self) -> None:
        assert self.subscription is not None
        self.subscription.dispose()

    @property
    def ended(self) -> bool:
        return self.completed or self.error is not None

    @property
    def body(self) -> bytes:
        return b"".join(item for item in self.items if isinstance(item, bytes))

    @property
    def head(self) -> ResponseHead:
        (head,) = (item for item in self.items if isinstance(item, ResponseHead))
        return head

    @property
    def failure(self) -> SamplingError:
        assert isinstance(self.error, SamplingError), (self.error, self.items)
        return self.error

    async def until(self, condition: Callable[[], bool]) -> Seen:
        while not condition():
            self._news.clear()
            await self._news.wait()
        return self

    async def end(self) -> Seen:
        return await self.until(lambda: self.ended)

    def _on_next(self, item: Wire) -> None:
        assert not self.ended
        self.items.append(item)
        self._news.set()
        self._on_item(self, item)

    def _on_error(self, error: Exception) -> None:
        assert not self.ended
        self.error = error
        self._news.set()

    def _on_completed(self) -> None:
        assert not self.ended
        self.completed = True
        self._news.set()


def to(url: str, headers: Mapping[str, str] | None = None, body: bytes = b"{}") -> Prepare:
    async def prepare() -> HttpRequest:
        return HttpRequest(url=url, headers=headers or {}, body=body)

    return prepare


async def exchanged(answer: Answer, path: str = "/v1") -> Seen:
    """One whole exchange without a pool; nothing may be left of it."""
    async with ScriptedServer([answer]) as server:
        seen = await Seen().watch(HttpTransport().post(to(server.url + path))).end()
        await nothing_left(server)
    return seen


async def exchanges_over() -> None:
    """Wait for the tasks of the transport, which are none of ours to know."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*(task for task in tasks if task.get_name() == "rx_sampler exchange"), return_exceptions=True)


async def nothing_left(server: ScriptedServer) -> None:
    await exchanges_over()
    await server.until_disconnected()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@contextlib.asynccontextmanager
async def pooling() -> AsyncGenerator[HttpTransport]:
    transport = HttpTransport()
    transport.open()
    try:
        yield transport
    finally:
        await transport.aclose()


def gates(count: int) -> tuple[asyncio.Event, ...]:
    return tuple(asyncio.Event() for _ in range(count))


# --- what is sent, what comes out


async def test_connection_head_and_body_come_in_this_order() -> None:
    first, second = gates(2)
    answer = Answer(headers={"X-Thing": "a"}, chunks=(b"one", b"two"), waits=(None, first, second))
    async with ScriptedServer([answer]) as server:
        seen = Seen().watch(HttpTransport().post(to(server.url + "/v1?key=k", {"x-key": "k"}, b"body")))
        await seen.until(lambda: seen.body == b"one")
        assert [type(item) for item in seen.items] == [Connected, ResponseHead, bytes]
        first.set()
        await seen.until(lambda: seen.body == b"onetwo")
        assert seen.items[2:] == [b"one", b"two"]
        assert not seen.ended
        second.set()
        await seen.end()
        assert seen.completed
        await nothing_left(server)
    assert (seen.head.status, seen.head.accepted, seen.head.host) == (200, True, f"127.0.0.1:{server.port}")
    assert seen.head.headers["x-THING"] == "a"
    (request,) = server.requests
    assert (request.method, request.path, request.body) == ("POST", "/v1?key=k", b"body")
    assert request.headers["x-key"] == "k"


async def test_the_connection_is_told_before_the_request_is_answered() -> None:
    (never,) = gates(1)
    async with ScriptedServer([Answer(head_wait=never)]) as server:
        seen = Seen().watch(HttpTransport().post(to(server.url)))
        await seen.until(lambda: bool(seen.items))
        assert seen.items == [Connected()]
        seen.dispose()
        await nothing_left(server)


async def test_nothing_is_prepared_or_sent_before_a_subscription_and_each_one_sends() -> None:
    prepared: list[int] = []
    async with ScriptedServer(itertools.repeat(Answer(chunks=(b"a",)))) as server:

        async def prepare() -> HttpRequest:
            prepared.append(1)
            return HttpRequest(url=server.url, headers={}, body=b"%d" % len(prepared))

        source = HttpTransport().post(prepare)
        await asyncio.sleep(0)
        assert (prepared, server.connection_count) == ([], 0)
        one, two = Seen().watch(source), Seen().watch(source)
        await one.end()
        await two.end()
        assert {request.body for request in server.requests} == {b"1", b"2"}
        await Seen().watch(source).end()
        assert [len(prepared), len(server.requests), server.connection_count] == [3, 3, 3]
        await nothing_left(server)


@pytest.mark.parametrize("status", [200, 201, 204, 300, 302, 307, 400, 401, 404, 429, 500, 529])
async def test_any_status_is_a_head(status: int) -> None:
    headers = {"location": "/elsewhere", "content-length": "0"}
    seen = await exchanged(Answer(status=status, headers=headers))
    assert seen.completed  # and no redirect was followed: the script has no second answer
    assert (seen.head.status, seen.head.accepted) == (status, status < 300)


async def test_a_redirect_is_not_followed() -> None:
    async with ScriptedServer([Answer(status=307, headers={"location": "/v2"}, chunks=(b"moved",))]) as server:
        seen = await Seen().watch(HttpTransport().post(to(server.url))).end()
        assert (seen.head.status, seen.body) == (307, b"moved")
        assert len(server.requests) == 1
        await nothing_left(server)


async def test_an_interim_response_is_passed_by() -> None:
    raw_head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n"
    seen = await exchanged(Answer(raw_head=raw_head, chunks=(b"a",)))
    assert (seen.head.status, seen.body, seen.completed) == (200, b"a", True)


async def test_a_body_without_framing_ends_with_the_connection() -> None:
    seen = await exchanged(Answer(raw_head=b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", chunks=(b"a", b"b")))
    assert (seen.body, seen.completed) == (b"ab", True)


async def test_cookies_are_not_kept() -> None:
    async with ScriptedServer(itertools.repeat(Answer(headers={"set-cookie": "a=b"}))) as server:
        async with pooling() as transport:
            for _ in range(2):
                await Seen().watch(transport.post(to(server.url))).end()
        assert "cookie" not in server.requests[1].headers
        await nothing_left(server)


@pytest.mark.parametrize("size", [8_190, 20_000, 60_000])
async def test_large_headers_are_accepted(size: int) -> None:
    seen = await exchanged(Answer(headers={"x-policy": "p" * size}, chunks=(b"a",)))
    assert len(seen.head.headers["x-policy"]) == size
    assert (seen.body, seen.completed) == (b"a", True)


async def test_a_large_body_comes_whole() -> None:
    body = bytes(range(256)) * 4096 * 4
    seen = await exchanged(Answer(chunks=tuple(body[i : i + 100_000] for i in range(0, len(body), 100_000))))
    assert seen.body == body


# --- content codings


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("Deflate", zlib.compress)])
async def test_a_coded_body_is_decoded(coding: str, pack: Callable[[bytes], bytes]) -> None:
    coded = pack(DONE * 50)
    seen = await exchanged(Answer(headers={"content-encoding": coding}, chunks=(coded[:7], coded[7:])))
    assert (seen.body, seen.completed) == (DONE * 50, True)


async def test_a_corrupt_coding_fails_after_what_could_be_decoded() -> None:
    packer = zlib.compressobj(wbits=31)
    good = packer.compress(DONE) + packer.flush(zlib.Z_SYNC_FLUSH)
    (go,) = gates(1)
    answer = Answer(headers={"content-encoding": "gzip"}, chunks=(good, b"\xff" * 50), waits=(None, go))
    async with ScriptedServer([answer]) as server:
        seen = (
            await Seen(lambda _seen, item: go.set() if item == DONE else None)
            .watch(HttpTransport().post(to(server.url)))
            .end()
        )
        await nothing_left(server)
    assert seen.body == DONE
    assert (seen.failure.kind, seen.failure.info.is_retryable) == (K.HTTP, True)


async def test_an_unknown_coding_fails() -> None:
    seen = await exchanged(Answer(headers={"content-encoding": "br"}, chunks=(b"x",)))
    assert seen.body == b""
    assert seen.failure.kind is K.HTTP
    assert "'br'" in seen.failure.info.message


async def test_decoded_data_before_a_cut_comes_first() -> None:
    packer = zlib.compressobj(wbits=31)
    good = packer.compress(DONE) + packer.flush(zlib.Z_SYNC_FLUSH)
    seen = await exchanged(Answer(headers={"content-encoding": "gzip"}, chunks=(good,), end="cut"))
    assert seen.body == DONE
    assert seen.failure.info.is_retryable


# --- what goes wrong below the status line


BREAKS: list[tuple[str, Answer, str]] = [
    ("no answer", Answer(end="no_answer"), "closed the connection without an answer"),
    ("reset before the head", Answer(raw_head=b"", end="reset"), "broke"),
    ("half a head", Answer(raw_head=b"HTTP/1.1 200 OK\r\nx: y", end="cut"), ""),
    ("no HTTP", Answer(raw_head=b"SSH-2.0-OpenSSH_9.6\r\n\r\n", end="cut"), "not HTTP"),
    ("a header of a MiB", Answer(headers={"x": "y" * 2**20}), "not HTTP"),
    ("a broken header", Answer(headers={"a b": "c"}), "not HTTP"),
]


@pytest.mark.parametrize(("answer", "words"), [case[1:] for case in BREAKS], ids=[case[0] for case in BREAKS])
async def test_an_answer_without_a_head_is_a_transport_failure(answer: Answer, words: str) -> None:
    seen = await exchanged(answer)
    assert seen.items == [Connected()]
    info = seen.failure.info
    assert (info.kind, info.status, info.is_retryable) == (K.HTTP, None, True)
    assert words in info.message
    assert "127.0.0.1" in info.message
    if words == "not HTTP":  # aiohttp's own error would show the request and its headers
        assert seen.failure.__cause__ is None
    else:
        assert seen.failure.__cause__ is not None


CUTS: list[tuple[str, End, dict[str, str]]] = [
    ("chunked and cut", "cut", {}),
    ("chunked and reset", "reset", {}),
    ("shorter than promised", "eof", {"content-length": "999"}),
    ("shorter than promised and reset", "reset", {"content-length": "999"}),
]


@pytest.mark.parametrize(("end", "headers"), [case[1:] for case in CUTS], ids=[case[0] for case in CUTS])
@pytest.mark.parametrize("gated", [True, False], ids=["read before", "read after"])
async def test_what_arrived_before_the_break_is_delivered_first(end: End, headers: dict[str, str], gated: bool) -> None:
    # B009, B134
    (read,) = gates(1)
    chunks = (b"data: a\n\n", b"data: b\n\nda")
    answer = Answer(headers=headers, chunks=chunks, end=end, waits=(None, None, read if gated else None))
    async with ScriptedServer([answer]) as server:
        seen = Seen(lambda seen, _item: read.set() if seen.body == b"".join(chunks) else None)
        await seen.watch(HttpTransport().post(to(server.url))).end()
        await nothing_left(server)
    info = seen.failure.info
    assert (info.kind, info.status, info.is_retryable) == (K.HTTP, None, True)
    if gated or end != "reset":  # what a reset overtakes is TCP's to drop
        assert seen.body == b"".join(chunks)
        assert "broke" in info.message


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else gets the port
        port = taken.getsockname()[1]
        seen = await Seen().watch(HttpTransport().post(to(f"http://127.0.0.1:{port}/v1?key=secret"))).end()
    info = seen.failure.info
    assert seen.items == []
    assert (info.kind, info.is_retryable) == (K.HTTP, True)
    assert info.message.startswith(f"cannot connect to 127.0.0.1:{port}: ")
    assert isinstance(seen.failure.__cause__, aiohttp.ClientConnectorError)


async def test_an_unknown_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_arguments: Any, **_options: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    seen = await Seen().watch(HttpTransport().post(to("http://nowhere.invalid/v1?key=secret"))).end()
    info = seen.failure.info
    assert (info.kind, info.is_retryable) == (K.HTTP, True)
    assert info.message == "the host name of nowhere.invalid cannot be resolved"


async def test_a_server_that_speaks_no_tls() -> None:
    async with ScriptedServer() as server:
        seen = await Seen().watch(HttpTransport().post(to(f"https://127.0.0.1:{server.port}/"))).end()
        await nothing_left(server)
    info = seen.failure.info
    assert seen.items == []
    assert (info.kind, info.is_retryable) == (K.HTTP, False)
    assert f"the TLS connection to 127.0.0.1:{server.port} failed" in info.message


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://", {}),
        ("http://[::1", {}),
        ("http://127.0.0.1:1/", {"x-key": "a\nb"}),
        ("http://127.0.0.1:1/", {"x-key": "a\0b"}),
    ],
)
async def test_what_cannot_be_sent_is_the_callers_fault(url: str, headers: dict[str, str]) -> None:
    async with ScriptedServer() as server:
        seen = (
            await Seen()
            .watch(HttpTransport().post(to(url.replace("127.0.0.1:1", f"127.0.0.1:{server.port}"), headers)))
            .end()
        )
        assert server.requests == []
        await nothing_left(server)
    info = seen.failure.info
    assert (info.kind, info.is_retryable) == (K.INVALID_REQUEST, False)
    assert "a\n" not in info.message


@pytest.mark.parametrize("url", ["http://a..b/", f"http://{'a' * 64}.invalid/", "http://127.0.0.1:99999/"])
async def test_a_bad_host_or_port_is_named_as_such(url: str) -> None:
    seen = await Seen().watch(HttpTransport().post(to(url))).end()
    assert seen.failure.kind is K.INVALID_REQUEST
    assert "header" not in seen.failure.info.message


async def test_what_prepare_raises_comes_out_as_it_is() -> None:
    raised = SamplingError.of(K.AUTH, "no key")

    async def prepare() -> HttpRequest:
        raise raised

    seen = await Seen().watch(HttpTransport().post(prepare)).end()
    assert (seen.items, seen.error) == ([], raised)


@pytest.mark.parametrize(
    "raised", [ValueError("mine"), OSError("mine"), LookupError("mine")], ids=lambda e: type(e).__name__
)
async def test_any_other_error_of_prepare_comes_out_as_it_is_too(raised: Exception) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))

    async def prepare() -> HttpRequest:
        raise raised

    seen = Seen().watch(HttpTransport().post(prepare))
    await exchanges_over()
    assert seen.error is raised


# --- dispose


async def test_dispose_before_anything_happened_sends_nothing() -> None:
    async with ScriptedServer() as server:
        seen = Seen().watch(HttpTransport().post(to(server.url)))
        seen.dispose()
        await nothing_left(server)
        assert (server.connection_count, seen.items, seen.ended) == (0, [], False)


async def test_dispose_while_the_request_is_prepared() -> None:
    cancelled = asyncio.Event()

    async def prepare() -> HttpRequest:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    seen = Seen().watch(HttpTransport().post(prepare))
    await asyncio.sleep(0)
    seen.dispose()
    await cancelled.wait()
    await exchanges_over()
    assert (seen.items, seen.ended) == ([], False)


async def test_dispose_while_connecting() -> None:
    accepted, closed = gates(2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        await reader.read()
        closed.set()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        seen = Seen().watch(HttpTransport().post(to(f"https://127.0.0.1:{port}/")))  # no TLS answer will come
        await accepted.wait()
        seen.dispose()
        await closed.wait()
        await exchanges_over()
    assert (seen.items, seen.ended) == ([], False)


@pytest.mark.parametrize("phase", ["headers", "first byte", "body"])
@pytest.mark.parametrize("pooled", [True, False])
async def test_dispose_closes_the_socket(phase: str, pooled: bool) -> None:
    (never,) = gates(1)
    answers = {
        "headers": Answer(head_wait=never),
        "first byte": Answer(waits=(never,)),
        "body": Answer(chunks=(b"a", b"b"), waits=(None, never)),
    }
    wanted = {"headers": 1, "first byte": 2, "body": 3}[phase]
    async with ScriptedServer([answers[phase]]) as server, pooling() as pool:
        seen = Seen().watch((pool if pooled else HttpTransport()).post(to(server.url)))
        await seen.until(lambda: len(seen.items) == wanted)
        await server.until_received()
        seen.dispose()
        seen.dispose()
        await server.closed_by_client.wait()
        await nothing_left(server)
        assert (len(seen.items), seen.ended) == (wanted, False)


@pytest.mark.parametrize("count", [1, 2, 3], ids=["connected", "head", "body"])
async def test_dispose_inside_an_item_emits_no_other(count: int) -> None:
    answer = Answer(chunks=(b"a", b"b", b"c"), end="hang")
    async with ScriptedServer([answer]) as server:
        seen = Seen(lambda seen, _item: seen.dispose() if len(seen.items) == count else None)
        seen.watch(HttpTransport().post(to(server.url)))
        await seen.until(lambda: len(seen.items) == count)
        await nothing_left(server)
        assert len(seen.items) == count
        assert not seen.ended


@pytest.mark.parametrize("count", [1, 2], ids=["connected", "head"])
async def test_what_fails_after_a_dispose_is_nobodys_business(count: int) -> None:
    answer = Answer(headers={"content-encoding": "br"}, chunks=(b"x",))
    async with ScriptedServer([answer]) as server:
        seen = Seen(lambda seen, _item: seen.dispose() if len(seen.items) == count else None)
        seen.watch(HttpTransport().post(to(server.url), lambda: True))
        await seen.until(lambda: len(seen.items) == count)
        await nothing_left(server)
        assert (len(seen.items), seen.ended) == (count, False)


async def test_dispose_inside_a_decoded_item_emits_no_other() -> None:
    answer = Answer(headers={"content-encoding": "gzip"}, chunks=(gzip.compress(bytes(2**20)),), end="hang")
    async with ScriptedServer([answer]) as server:
        seen = Seen(lambda seen, item: seen.dispose() if isinstance(item, bytes) else None)
        seen.watch(HttpTransport().post(to(server.url)))
        await seen.until(lambda: bool(seen.body))
        await nothing_left(server)
        assert len(seen.items) == 3


async def test_dispose_from_another_thread() -> None:
    async with ScriptedServer([Answer(chunks=(b"a",), end="hang")]) as server:
        seen = Seen().watch(HttpTransport().post(to(server.url)))
        await seen.until(lambda: bool(seen.body))
        thread = threading.Thread(target=seen.dispose)
        thread.start()
        await server.closed_by_client.wait()
        await nothing_left(server)
        thread.join()
        assert not seen.ended


def test_dispose_after_the_loop_is_closed_does_nothing() -> None:
    async def abandon() -> Seen:
        async with ScriptedServer([Answer(chunks=(b"a",), end="hang")]) as server:
            seen = Seen().watch(HttpTransport().post(to(server.url)))
            await seen.until(lambda: bool(seen.body))
            return seen

    asyncio.run(abandon()).dispose()


async def test_dispose_after_the_end_does_nothing() -> None:
    seen = await exchanged(Answer(chunks=(b"a",)))
    seen.dispose()
    assert (seen.completed, seen.error) == (True, None)


# --- the logical end, and the pool


class Until:
    """A reader that ends the exchange when it has read `DONE`, as a transform does."""

    def __init__(self) -> None:
        self.over = False

    def __call__(self, seen: Seen, _item: Wire) -> None:
        if DONE in seen.body:
            self.over = True
            seen.dispose()


async def read_to_done(transport: HttpTransport, url: str) -> Seen:
    reader = Until()
    seen = Seen(reader).watch(transport.post(to(url), lambda: reader.over))
    await seen.until(lambda: reader.over)
    await exchanges_over()
    assert not seen.ended
    return seen


async def test_a_connection_serves_again_when_the_body_ends_behind_the_logical_end() -> None:
    answer = Answer(chunks=(b"data: a\n\n", DONE, b": bye\n\n"))
    async with ScriptedServer([answer, answer]) as server:
        async with pooling() as transport:
            for seen in [await read_to_done(transport, server.url) for _ in range(2)]:
                assert seen.items[0] == Connected()  # told for a kept connection as well
                assert seen.body.startswith(b"data: a\n\n" + DONE)
            assert [request.connection for request in server.requests] == [0, 0]
            assert server.open_connections == 1
        await nothing_left(server)


async def test_a_connection_serves_again_when_the_body_ends_a_moment_later() -> None:
    (go,) = gates(1)
    answers = [Answer(chunks=(DONE,), waits=(None, go)), Answer(chunks=(DONE,))]
    async with ScriptedServer(answers) as server, pooling() as transport:
        reader = Until()
        seen = Seen(reader).watch(transport.post(to(server.url), lambda: reader.over))
        await seen.until(lambda: reader.over)
        go.set()
        await exchanges_over()
        await read_to_done(transport, server.url)
        assert [request.connection for request in server.requests] == [0, 0]


async def test_a_body_that_does_not_end_closes_its_connection() -> None:
    answers = [Answer(chunks=(DONE,), end="hang"), Answer(chunks=(DONE,))]
    async with ScriptedServer(answers) as server, pooling() as transport:
        await read_to_done(transport, server.url)
        await server.closed_by_client.wait()
        await read_to_done(transport, server.url)
        assert [request.connection for request in server.requests] == [0, 1]


async def test_a_body_that_goes_on_and_on_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "DRAIN_S", 0.01)
    async with ScriptedServer([Answer(chunks=(DONE, *(b"x" * 65536,) * 5000))]) as server:
        await read_to_done(HttpTransport(), server.url)
        await server.closed_by_client.wait()
        await nothing_left(server)


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_a_break_behind_the_logical_end_is_no_error(end: End) -> None:
    async with ScriptedServer([Answer(chunks=(DONE,), end=end)]) as server, pooling() as transport:
        seen = await read_to_done(transport, server.url)
        assert seen.body == DONE
        await nothing_left(server)


async def test_dispose_from_outside_closes_at_once_even_behind_the_logical_end() -> None:
    async with ScriptedServer([Answer(chunks=(DONE,), end="hang")]) as server, pooling() as transport:
        seen = Seen().watch(transport.post(to(server.url), lambda: True))
        await seen.until(lambda: seen.body == DONE)
        seen.dispose()
        await server.closed_by_client.wait()
        await exchanges_over()


async def test_a_pool_keeps_connections_and_closes_them_at_its_end() -> None:
    # B100, B101
    # B099, B102
    async with ScriptedServer(itertools.repeat(Answer(chunks=(b"a",)))) as server:
        async with pooling() as transport:
            for _ in range(3):
                await Seen().watch(transport.post(to(server.url))).end()
                await exchanges_over()
            assert (server.connection_count, server.open_connections) == (1, 1)
        await nothing_left(server)
        await Seen().watch(transport.post(to(server.url))).end()  # closed: works still, and leaves nothing
        assert server.connection_count == 2
        await nothing_left(server)


async def test_an_unfinished_body_never_goes_back_to_the_pool() -> None:
    answers = [Answer(chunks=(b"a",), end="hang"), Answer(chunks=(b"b",))]
    async with ScriptedServer(answers) as server, pooling() as transport:
        seen = Seen().watch(transport.post(to(server.url)))
        await seen.until(lambda: seen.body == b"a")
        seen.dispose()
        await exchanges_over()
        again = await Seen().watch(transport.post(to(server.url))).end()
        assert (again.body, [request.connection for request in server.requests]) == (b"b", [0, 1])


async def test_a_kept_connection_that_closes_at_the_second_request_is_a_retryable_failure() -> None:
    answers = [Answer(chunks=(b"a",)), Answer(end="no_answer"), Answer(chunks=(b"b",))]
    async with ScriptedServer(answers) as server, pooling() as transport:
        await Seen().watch(transport.post(to(server.url))).end()
        await exchanges_over()
        second = await Seen().watch(transport.post(to(server.url))).end()
        assert (second.failure.kind, second.failure.info.is_retryable) == (K.HTTP, True)
        assert [request.connection for request in server.requests] == [0, 0]  # a paid request is not sent again here
        third = await Seen().watch(transport.post(to(server.url))).end()
        assert third.body == b"b"


@pytest.mark.parametrize("phase", ["preparing", "headers", "body"])
async def test_closing_the_transport_fails_what_runs_as_cancelled(phase: str) -> None:
    (never,) = gates(1)
    answer = Answer(head_wait=never) if phase == "headers" else Answer(chunks=(b"a",), end="hang")

    async def endless() -> HttpRequest:
        await never.wait()
        raise AssertionError

    async with ScriptedServer([answer]) as server:
        async with pooling() as transport:
            seen = Seen().watch(transport.post(endless if phase == "preparing" else to(server.url)))
            if phase == "preparing":
                await asyncio.sleep(0)
            else:
                await seen.until(lambda: len(seen.items) == (1 if phase == "headers" else 3))
        assert seen.failure.kind is K.CANCELLED
        assert not seen.failure.info.is_retryable
        await nothing_left(server)


async def test_closing_waits_for_what_still_drains() -> None:
    async with ScriptedServer([Answer(chunks=(DONE,), end="hang")]) as server:
        async with pooling() as transport:
            reader = Until()
            seen = Seen(reader).watch(transport.post(to(server.url), lambda: reader.over))
            await seen.until(lambda: reader.over)
        assert not seen.ended
        await nothing_left(server)


async def test_closing_twice_or_unopened_is_fine() -> None:
    transport = HttpTransport()
    await transport.aclose()
    transport.open()
    await transport.aclose()
    await transport.aclose()


def test_one_transport_under_two_loops() -> None:
    transport = HttpTransport()

    async def use(pooled: bool) -> bytes:
        async with ScriptedServer([Answer(chunks=(b"a",))]) as server:
            if pooled:
                transport.open()
            seen = await Seen().watch(transport.post(to(server.url))).end()
            if pooled:
                await transport.aclose()
            await nothing_left(server)
            return seen.body

    assert [asyncio.run(use(pooled)) for pooled in (False, False, True, True, False)] == [b"a"] * 5


def test_a_pool_of_another_loop_is_not_touched() -> None:
    transport = HttpTransport()
    other = asyncio.new_event_loop()

    async def open_in_other() -> None:
        transport.open()

    async def use() -> bytes:
        async with ScriptedServer([Answer(chunks=(b"a",))]) as server:
            seen = await Seen().watch(transport.post(to(server.url))).end()
            await nothing_left(server)
            return seen.body

    other.run_until_complete(open_in_other())
    assert asyncio.run(use()) == b"a"
    other.run_until_complete(transport.aclose())
    other.run_until_complete(asyncio.sleep(0))
    other.close()


async def test_a_hundred_cancelled_requests_leave_a_working_transport() -> None:
    chance = random.Random(105)
    endless = Answer(chunks=(b"a", b"b", b"c"), end="hang")
    async with ScriptedServer([*(endless,) * 100, *(Answer(chunks=(b"fine",)),) * 101]) as server:
        async with pooling() as transport:
            for _ in range(100):
                seen = Seen().watch(transport.post(to(server.url)))
                for _ in range(chance.choice([0, 1, 2, 3, 5, 8, 20, 50])):
                    await asyncio.sleep(0)
                seen.dispose()
            await exchanges_over()
            await server.until_disconnected()
            while len(server.requests) < 100:  # cancelled before they were sent: let the script run out of endless ones
                seen = Seen().watch(transport.post(to(server.url)))
                await server.until_received(len(server.requests) + 1)
                seen.dispose()
                await exchanges_over()
            seen = await Seen().watch(transport.post(to(server.url))).end()
            assert seen.body == b"fine"
        await nothing_left(server)


# --- subscribers that raise


async def told_of(raised: Exception, at: type) -> tuple[list[dict[str, Any]], Seen]:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))

    def on_item(_seen: Seen, item: Wire) -> None:
        if isinstance(item, at):
            raise raised

    async with ScriptedServer([Answer(chunks=(b"a",), end="hang")]) as server:
        seen = Seen(on_item).watch(HttpTransport().post(to(server.url)))
        await exchanges_over()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await server.until_disconnected()
        assert server.open_connections == 0
    return told, seen


@pytest.mark.parametrize(
    "at",
    [
        Connected,
        ResponseHead,
        bytes,
    ],
)
async def test_what_a_subscriber_raises_is_reported_and_closes_the_socket(at: type) -> None:
    raised = LookupError("of a subscriber")
    told, seen = await told_of(raised, at)
    assert [context["exception"] for context in told] == [raised]
    assert isinstance(seen.items[-1], at)


@pytest.mark.parametrize("raised", [ValueError("mine"), OSError("mine")], ids=lambda e: type(e).__name__)
async def test_a_subscribers_value_error_is_reported_too(raised: Exception) -> None:
    told, _ = await told_of(raised, bytes)
    assert [context["exception"] for context in told] == [raised]


# --- small things


def test_a_request_tells_its_host_but_no_secret() -> None:
    request = HttpRequest(
        url="https://user:pw@api.example.org/v1?key=secret",
        headers={"x": "secret"},
        body=b"secret",
        find_secrets=lambda: ("secret",),
    )
    assert request.host == "api.example.org"
    assert "secret" not in repr(request)
    assert "pw" not in repr(request)
    assert HttpRequest(url="http://h:8080/v1", headers={}, body=b"").host == "h:8080"


def test_a_head_shows_no_headers() -> None:
    assert "secret" not in repr(ResponseHead(status=200, headers={"x": "secret"}))


def test_a_subscription_needs_a_running_loop() -> None:
    with pytest.raises(RuntimeError):
        HttpTransport().post(to("http://127.0.0.1:1/")).subscribe()
