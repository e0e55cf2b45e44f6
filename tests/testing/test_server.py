"""The scripted server, seen by clients of plain sockets."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from rx_sampler.testing import Answer, End, ScriptedServer

POST = b"POST /v1/chat?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nX-Key: a: b\r\n\r\n{}"


class Client:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: bytes = POST) -> None:
        self.writer.write(request)
        await self.writer.drain()

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def everything(self) -> bytes:
        return await self.reader.read()


@asynccontextmanager
async def connected(server: ScriptedServer) -> AsyncGenerator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def asked(answer: Answer, request: bytes = POST) -> bytes:
    """All bytes of one answer, until the server ends the connection."""
    async with ScriptedServer([answer]) as server, connected(server) as client:
        await client.ask(request)
        return await client.everything()


async def test_a_chunked_answer_byte_for_byte() -> None:
    answer = Answer(status=429, headers={"Retry-After": "2", "Connection": "close"}, chunks=(b"data: a\n", b"\n" * 17))
    assert await asked(answer) == (
        b"HTTP/1.1 429 Scripted\r\nRetry-After: 2\r\nConnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        b"8\r\ndata: a\n\r\n11\r\n" + b"\n" * 17 + b"\r\n0\r\n\r\n"
    )


async def test_a_content_length_is_sent_as_it_is_and_a_short_body_closes() -> None:
    answer = Answer(headers={"Content-Length": "9"}, chunks=(b"ab", b"cd"))
    assert await asked(answer) == b"HTTP/1.1 200 Scripted\r\nContent-Length: 9\r\n\r\nabcd"


async def test_a_raw_head_replaces_the_head_and_the_chunks_follow_bare() -> None:
    assert await asked(Answer(raw_head=b"SSH-2.0-x\r\n", chunks=(b"a", b"b"))) == b"SSH-2.0-x\r\nab"


@pytest.mark.parametrize(
    ("end", "left"),
    [("cut", b"HTTP/1.1 200 Scripted\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"), ("no_answer", b"")],
)
async def test_ends_that_close(end: End, left: bytes) -> None:
    assert await asked(Answer(chunks=(b"a",), end=end)) == left


async def test_a_reset_is_seen_as_one() -> None:
    seen = asyncio.Event()
    async with ScriptedServer([Answer(chunks=(b"a",), waits=(None, seen), end="reset")]) as server:
        async with connected(server) as client:
            await client.ask()
            assert (await client.head()).startswith(b"HTTP/1.1 200")
            assert await client.reader.readexactly(6) == b"1\r\na\r\n"
            seen.set()
            with pytest.raises(ConnectionResetError):
                await client.everything()
        await server.until_disconnected()
        assert not server.closed_by_client.is_set()


async def test_a_hang_lasts_until_the_client_leaves() -> None:
    async with ScriptedServer([Answer(end="hang")]) as server:
        async with connected(server) as client:
            await client.ask()
            await client.head()
            assert server.open_connections == 1
            assert not server.closed_by_client.is_set()
        await server.closed_by_client.wait()
        await server.until_disconnected()
        assert server.open_connections == 0


async def test_a_hang_ends_with_the_server() -> None:
    async with ScriptedServer([Answer(end="hang")]) as server, connected(server) as client:
        await client.ask()
        await client.head()
        await server.aclose()
        assert await client.everything() == b""  # closed without the last chunk of the body


async def test_answers_come_in_order_on_one_connection_and_requests_are_recorded() -> None:
    answers = [Answer(headers={"content-length": "3"}, chunks=(b"one",)), Answer(chunks=(b"two",))]
    async with ScriptedServer(answers) as server:
        async with connected(server) as client:
            await client.ask()
            assert (await client.head()).endswith(b"content-length: 3\r\n\r\n")
            assert await client.reader.readexactly(3) == b"one"
            await client.ask(b"GET / HTTP/1.1\r\n\r\n")
            await client.head()
            assert await client.reader.readexactly(13) == b"3\r\ntwo\r\n0\r\n\r\n"
            assert server.open_connections == 1
        await server.closed_by_client.wait()
    first, second = server.requests
    assert (first.method, first.path, first.body) == ("POST", "/v1/chat?x=1", b"{}")
    assert first.headers == {"host": "h", "content-length": "2", "x-key": "a: b"}
    assert (second.method, second.path, second.headers, second.body) == ("GET", "/", {}, b"")
    assert (first.connection, second.connection, server.connection_count) == (0, 0, 1)


async def test_a_chunked_request_is_put_together() -> None:
    request = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n"
    async with ScriptedServer([Answer(end="cut")]) as server, connected(server) as client:
        await client.ask(request)
        await client.everything()
        assert server.requests[0].body == b"abcde"


async def test_connections_are_numbered_and_counted() -> None:
    async with ScriptedServer(itertools.repeat(Answer(end="hang"))) as server:
        async with connected(server) as a, connected(server) as b:
            await a.ask()
            await server.until_received()
            await b.ask()
            await server.until_received(2)
            assert [request.connection for request in server.requests] == [0, 1]
            assert (server.open_connections, server.connection_count) == (2, 2)
        await server.until_disconnected()


async def test_a_used_up_script_says_so() -> None:
    async with ScriptedServer() as server, connected(server) as client:
        await client.ask()
        head = await client.head()
        assert head.startswith(b"HTTP/1.1 500 ")
        assert b"x-should-retry: false" in head
        text = b"the script has no answer for request 1"
        assert await client.reader.readexactly(len(text)) == text


async def test_waits_stand_before_the_head_each_chunk_and_the_end() -> None:
    before_head, before_end = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    async def before_second() -> None:
        calls.append("second")

    answer = Answer(
        chunks=(b"a", b"b"), head_wait=before_head, waits=(0.0, before_second, before_end), headers={"x": "y"}
    )
    async with ScriptedServer([answer]) as server, connected(server) as client:
        await client.ask()
        await server.until_received()
        reading = asyncio.ensure_future(client.head())
        await asyncio.sleep(0)
        assert not reading.done()
        before_head.set()
        await reading
        assert await client.reader.readexactly(12) == b"1\r\na\r\n1\r\nb\r\n"
        assert calls == ["second"]
        before_end.set()
        assert await client.reader.readexactly(5) == b"0\r\n\r\n"


async def test_each_chunk_is_a_read_of_its_own_if_a_wait_stands_between() -> None:
    read = asyncio.Event()
    answer = Answer(headers={"content-length": "2"}, chunks=(b"a", b"b"), waits=(None, read))
    async with ScriptedServer([answer]) as server, connected(server) as client:
        await client.ask()
        await client.head()
        assert await client.reader.read(100) == b"a"
        read.set()
        assert await client.reader.read(100) == b"b"


@pytest.mark.parametrize("phase", ["head", "chunk", "end"])
async def test_a_client_that_leaves_ends_a_wait(phase: str) -> None:
    never = asyncio.Event()
    answer = Answer(
        chunks=(b"a",),
        head_wait=never if phase == "head" else None,
        waits=(never if phase == "chunk" else None, never if phase == "end" else None),
    )
    async with ScriptedServer([answer]) as server:
        async with connected(server) as client:
            await client.ask()
            await server.until_received()
        await server.closed_by_client.wait()
        await server.until_disconnected()
        assert len(asyncio.all_tasks()) == 1


async def test_a_client_that_leaves_ends_an_endless_body() -> None:
    answer = Answer(chunks=(bytes(65536),) * 1000)
    async with ScriptedServer([answer]) as server:
        async with connected(server) as client:
            await client.ask()
            await client.head()
        await server.closed_by_client.wait()
        await server.until_disconnected()


async def test_what_a_wait_raises_closes_the_connection_and_is_told_at_the_end() -> None:
    async def broken() -> None:
        raise LookupError("a fault of the test")

    server = await ScriptedServer([Answer(head_wait=broken)]).start()
    async with connected(server) as client:
        await client.ask()
        assert await client.everything() == b""
    with pytest.raises(LookupError, match="a fault of the test"):
        await server.aclose()
    await server.aclose()


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\x00", b"A" * (2**20 + 100) + b"\r\n\r\n"], ids=["tls", "endless"])
async def test_what_is_no_http_is_refused(junk: bytes) -> None:
    async with ScriptedServer([Answer()]) as server, connected(server) as client:
        await client.ask(junk)
        assert (await client.reader.read(12)) == b"HTTP/1.1 400"
        assert server.requests == []


async def test_half_a_request_is_no_request() -> None:
    async with ScriptedServer([Answer()]) as server:
        async with connected(server) as client:
            await client.ask(POST[:-1])
            await server.until(lambda: server.open_connections == 1)
        await server.closed_by_client.wait()
        assert server.requests == []


async def test_closing_leaves_no_task_and_no_port() -> None:
    server = ScriptedServer(itertools.repeat(Answer(end="hang")))
    await server.aclose()  # before the start: nothing to close
    await server.start()
    async with connected(server) as asking, connected(server):
        await asking.ask()
        await server.until_received()
        await server.aclose()
        assert server.open_connections == 0
        assert len(asyncio.all_tasks()) == 1
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
    assert server.url == f"http://127.0.0.1:{server.port}"


async def test_a_cancelled_wait_for_a_condition_harms_nobody() -> None:
    async with ScriptedServer([Answer(end="hang")]) as server:
        waiting = asyncio.ensure_future(server.until_received())
        await asyncio.sleep(0)
        waiting.cancel()
        async with connected(server) as client:
            await client.ask()
            await server.until_received()
        assert waiting.cancelled()


@pytest.mark.parametrize(
    ("answer", "keeps"),
    [
        (Answer(), True),
        (Answer(headers={"content-length": "1"}, chunks=(b"a",)), True),
        (Answer(headers={"Content-Length": "2"}, chunks=(b"a",)), False),
        (Answer(headers={"Connection": "Close"}), False),
        (Answer(raw_head=b""), False),
        (Answer(end="cut"), False),
    ],
)
def test_what_keeps_a_connection(answer: Answer, keeps: bool) -> None:
    assert answer.keeps_connection is keeps


def test_scripts_that_cannot_be_played_are_refused() -> None:
    with pytest.raises(ValueError, match="waits has 3 entries; 1 chunks take one more at most"):
        Answer(chunks=(b"a",), waits=(0, 0, 0))
    with pytest.raises(ValueError, match="empty one, which would end a chunked body"):
        Answer(chunks=(b"",))
    assert Answer(chunks=(b"",), headers={"content-length": "0"}).keeps_connection


def test_the_package_needs_no_pytest() -> None:
    code = "import sys, rx_sampler.testing as t; assert t.ScriptedServer and 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_a_client_that_ends_its_sending_side_counts_as_gone() -> None:
    async with ScriptedServer([Answer(chunks=(b"a",) * 10_000)]) as server, connected(server) as client:
        await client.ask()
        client.writer.write_eof()
        await server.closed_by_client.wait()
        assert b"\r\n0\r\n\r\n" not in await client.everything()
