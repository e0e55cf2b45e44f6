"""A server on a loopback socket that does, byte for byte, what a test's handler says, and knows when clients leave."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

SSE = {"content-type": "text/event-stream"}

WAIT_S = 30.0
"""How long a test waits for something that must happen before it says that it did not."""


class Exchange:
    """One request, and the means to answer it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.target = ""
        self.headers: dict[str, str] = {}
        self.header_names: list[str] = []
        self.body = b""
        self.ended = False

    async def receive(self) -> None:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request_line, *lines = head.rstrip().split("\r\n")
        self.target = request_line.split(" ")[1]
        for line in lines:
            name, _, value = line.partition(":")
            self.header_names.append(name.strip().lower())
            self.headers[name.strip().lower()] = value.strip()
        self.body = await self._reader.readexactly(int(self.headers.get("content-length", "0")))

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def start(self, status: int = 200, headers: Mapping[str, str] = SSE) -> None:
        """Status line and headers of a chunked answer."""
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{k}: {v}" for k, v in headers.items())]
        await self.write(("\r\n".join([*lines, "transfer-encoding: chunked", "", ""])).encode("latin-1"))

    async def send(self, *pieces: bytes) -> None:
        """Each piece as one chunk of the body."""
        for piece in pieces:
            await self.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    async def end(self) -> None:
        """The clean end of a chunked body; the connection can be used again."""
        await self.write(b"0\r\n\r\n")
        self.ended = True

    def reset(self) -> None:
        """Break the connection with RST."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def closed(self) -> None:
        """Return once the client has closed its side."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass


Handler = Callable[[Exchange], Awaitable[None]]


def answering(
    frames: Iterable[bytes], *, status: int = 200, headers: Mapping[str, str] = SSE, ends: bool = True
) -> Handler:
    """A handler that sends `frames` at once, then ends the body, or leaves it open until the client goes."""

    async def handle(exchange: Exchange) -> None:
        await exchange.start(status, headers)
        await exchange.send(*frames)
        if ends:
            await exchange.end()
        else:
            await exchange.closed()

    return handle


class Loopback:
    """Serves each request with the next handler, the last of them for ever."""

    def __init__(self, *handlers: Handler) -> None:
        self._handlers = handlers
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._change = asyncio.Condition()
        self.exchanges: list[Exchange] = []
        self.connections_made = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=4096)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        left = dict(self._connections)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for writer in left.values():  # a task that is cancelled before its first step closes nothing
            writer.transport.abort()
        await asyncio.sleep(0)  # transports are closed by the loop's next turn

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    async def received(self, count: int) -> None:
        """Return once `count` requests have come."""
        await self._until(lambda: len(self.exchanges) >= count)

    async def deserted(self) -> None:
        """Return once no connection is open."""
        await self._until(lambda: not self._connections)

    async def _until(self, predicate: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S), self._change:
            await self._change.wait_for(predicate)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: asyncio's would complain about being cancelled.
        self.connections_made += 1
        task = asyncio.create_task(self._serve_until_left(reader, writer), name="loopback connection")
        self._connections[task] = writer

    async def _serve_until_left(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client is gone
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self._connections.pop(task)
            async with self._change:
                self._change.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            exchange = Exchange(reader, writer)
            await exchange.receive()
            self.exchanges.append(exchange)
            async with self._change:
                self._change.notify_all()
            await self._handlers[min(len(self.exchanges), len(self._handlers)) - 1](exchange)
            if not exchange.ended:
                return
