"""A loopback HTTP/1.1 server that answers each request with the next answer of a script, byte for byte.

It is for what a mocked client cannot show: where reads are cut, what arrives before a connection breaks, when a
socket closes. It never checks requests, compresses, or adds headers of its own beyond the framing of the body.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Literal, Self

__all__ = ["Answer", "End", "ReceivedRequest", "ScriptedServer", "Wait"]

Wait = float | asyncio.Event | Callable[[], Awaitable[object]]
"""Seconds, an event that someone sets, or a function whose result is awaited."""

End = Literal["eof", "cut", "reset", "hang", "no_answer"]
"""How an answer ends; see `Answer.end`."""

_MAX_HEAD_BYTES: Final = 1024 * 1024
_CLOSE_WITH_RESET: Final = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)  # SO_LINGER: on, for 0 seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server does with one request.

    * `status`, `headers`: the head, headers in the order given. The body is framed in HTTP chunks, one per chunk of
      the script, unless `headers` has a `content-length`, which is sent as it is, right or wrong.
    * `raw_head`: sent instead of status line and headers; the chunks then follow bare. For what is hardly HTTP.
    * `chunks`: the body; each is written and flushed by itself. How the client's reads cut it is TCP's affair unless
      a wait stands between.
    * `head_wait`, `waits`: what happens before the head, and before each chunk; one more wait than chunks stands
      before the end. A client that leaves ends a wait.
    * `end`: `eof` (as HTTP wants it: the connection serves the next request if the body was whole), `cut` (closed in
      the middle: the last HTTP chunk does not come), `reset` (TCP RST), `hang` (nothing more, until the client
      leaves or the server closes), `no_answer` (closed without a single byte, head included).
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    raw_head: bytes | None = None
    chunks: tuple[bytes, ...] = ()
    head_wait: Wait | None = None
    waits: tuple[Wait | None, ...] = ()
    end: End = "eof"

    def __post_init__(self) -> None:
        if len(self.waits) > len(self.chunks) + 1:
            raise ValueError(f"waits has {len(self.waits)} entries; {len(self.chunks)} chunks take one more at most")
        if b"" in self.chunks and self.is_chunked:
            raise ValueError("chunks has an empty one, which would end a chunked body; leave it out")

    @property
    def is_chunked(self) -> bool:
        return self.raw_head is None and self._length is None

    @property
    def keeps_connection(self) -> bool:
        """Whether the next request can come on the same connection."""
        lower = {name.lower(): value.lower() for name, value in self.headers.items()}
        whole = self.is_chunked or self._length == str(sum(map(len, self.chunks)))
        return self.end == "eof" and self.raw_head is None and whole and lower.get("connection") != "close"

    @property
    def _length(self) -> str | None:
        return next((value for name, value in self.headers.items() if name.lower() == "content-length"), None)

    def head(self) -> bytes:
        """The bytes before the body."""
        if self.raw_head is not None:
            return self.raw_head
        headers = dict(self.headers)
        if self.is_chunked:
            headers["transfer-encoding"] = "chunked"
        lines = [f"HTTP/1.1 {self.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def framed(self, chunk: bytes) -> bytes:
        """The bytes on the wire for a chunk of the body."""
        return b"%x\r\n%b\r\n" % (len(chunk), chunk) if self.is_chunked else chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """A request as it came. Header names are in lower case; of a repeated header the last one counts."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int
    """Which connection it came on: 0 for the first that was opened."""


class ScriptedServer:
    """Serves `answers` on a free loopback port, one per request in the order of arrival.

    An async context manager; `start()` and `aclose()` are the same without it. `answers` may be endless
    (`itertools.repeat(answer)`). When it is used up, a request gets status 500 with a text that says so.

    * `requests`: what was received, whole requests only.
    * `closed_by_client`: set when a client closes or resets a connection, in the middle of an answer or after it. A
      client that shuts down only its sending side counts as gone too.

    Belongs to one event loop. What a wait of the script raises ends the connection, and `aclose()` raises it.
    """

    def __init__(self, answers: Iterable[Answer] = ()) -> None:
        self._answers = iter(answers)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._handlers: dict[asyncio.Task[None], _Connection] = {}
        self._watchers: list[asyncio.Future[None]] = []
        self._faults: list[BaseException] = []
        self.connection_count = 0
        self.requests: list[ReceivedRequest] = []
        self.closed_by_client = asyncio.Event()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, without a path: every path is answered alike."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def open_connections(self) -> int:
        """Connections that neither side has closed."""
        return len(self._handlers)

    async def start(self) -> Self:
        """Listen. Returns the server itself."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def aclose(self) -> None:
        """Stop listening and drop all connections. Raises what a wait of the script raised."""
        if self._server is not None:
            self._server.close()
        handlers = dict(self._handlers)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        for connection in handlers.values():
            await connection.closed.wait()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None
        if self._faults:
            raise self._faults.pop(0)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition()` holds; it is asked whenever a connection or a request comes or a connection goes."""
        while not condition():
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher

    async def until_received(self, count: int = 1) -> None:
        """Wait until `count` requests have come since the start."""
        await self.until(lambda: len(self.requests) >= count)

    async def until_disconnected(self) -> None:
        """Wait until no connection is open."""
        await self.until(lambda: not self._handlers)

    def _changed(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    def _protocol(self) -> _Connection:
        return _Connection(self._connected)

    def _connected(self, connection: _Connection) -> None:
        task = asyncio.get_running_loop().create_task(self._handle(connection, self.connection_count))
        self.connection_count += 1
        self._handlers[task] = connection
        task.add_done_callback(self._handled)
        self._changed()

    def _handled(self, task: asyncio.Task[None]) -> None:
        # Here and not at the task's end: a task that is cancelled before its first step runs no line of its own.
        self._handlers.pop(task).writer.transport.abort()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._faults.append(error)
        self._changed()

    async def _handle(self, connection: _Connection, number: int) -> None:
        reader, writer = connection.reader, connection.writer
        try:
            while (request := await _read_request(reader, number)) is not None:
                self.requests.append(request)
                self._changed()
                answer = next(self._answers, None) or _exhausted(len(self.requests))
                await _give(answer, reader, writer)
                if not answer.keeps_connection:
                    break
            else:
                writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed_by_client.set()
            writer.transport.abort()
        await connection.closed.wait()


class _Connection(asyncio.StreamReaderProtocol):
    """The streams of one connection, and whether its socket is closed.

    `StreamWriter.wait_closed` tells that too, but it breaks for all who wait when one of them is cancelled.
    """

    writer: asyncio.StreamWriter

    def __init__(self, connected: Callable[[_Connection], None]) -> None:
        self.reader = _Reader(limit=_MAX_HEAD_BYTES)
        self.closed = asyncio.Event()

        def start(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A plain function: streams would make a task of a coroutine, and the task would not be ours to end.
            self.writer = writer
            connected(self)

        super().__init__(self.reader, start)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.closed.set()


class _Reader(asyncio.StreamReader):
    """A reader that tells when the client is gone without taking bytes of the next request."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.gone.set()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> ReceivedRequest | None:
    """The next request; None for what is no HTTP. Raises IncompleteReadError where the client left."""
    first = await reader.readexactly(1)
    if not first.isalpha():  # a TLS handshake, say, in which no end of a head will ever come
        return None
    try:
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        return None
    request_line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, _, rest = request_line.partition(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b"".join([piece async for piece in _chunks(reader)])
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(
        method=method, path=rest.rpartition(" ")[0], headers=headers, body=body, connection=connection
    )


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers


async def _give(answer: Answer, reader: _Reader, writer: asyncio.StreamWriter) -> None:
    """Send the answer, up to and with its end. Raises ConnectionError where the client leaves before."""
    waits = iter(answer.waits)
    await _pause(answer.head_wait, reader)
    if answer.end != "no_answer":
        await _send(answer.head(), reader, writer)
        for chunk in answer.chunks:
            await _pause(next(waits, None), reader)
            await _send(answer.framed(chunk), reader, writer)
        await _pause(next(waits, None), reader)
    if answer.end == "eof" and answer.is_chunked:
        await _send(b"0\r\n\r\n", reader, writer)
    elif answer.end == "hang":
        await reader.gone.wait()
        raise ConnectionResetError("the client left")
    elif answer.end == "reset":
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE_WITH_RESET)
        writer.transport.abort()


async def _send(data: bytes, reader: _Reader, writer: asyncio.StreamWriter) -> None:
    if reader.gone.is_set():
        raise ConnectionResetError("the client left")
    writer.write(data)
    await writer.drain()
    await asyncio.sleep(0)  # also a fast answer lets the other connections, and the news of a closed one, have a turn


async def _pause(wait: Wait | None, reader: _Reader) -> None:
    """Wait as the script says. Raises ConnectionResetError as soon as the client is gone."""
    if wait is None:
        return
    waiting = asyncio.ensure_future(_waited(wait))
    gone = asyncio.ensure_future(reader.gone.wait())
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ConnectionResetError("the client left")
        waiting.result()
    finally:
        for task in (waiting, gone):
            task.cancel()
        await asyncio.gather(waiting, gone, return_exceptions=True)


async def _waited(wait: Wait) -> None:
    if isinstance(wait, asyncio.Event):
        await wait.wait()
    elif callable(wait):
        await wait()
    else:
        await asyncio.sleep(wait)


def _exhausted(count: int) -> Answer:
    text = f"the script has no answer for request {count}".encode()
    headers = {"content-type": "text/plain", "content-length": str(len(text)), "x-should-retry": "false"}
    return Answer(status=500, headers=headers, chunks=(text,))
