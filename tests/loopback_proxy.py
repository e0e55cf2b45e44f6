"""A proxy on a loopback socket: forwards what is asked in absolute form, tunnels what is asked with CONNECT."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

_UPSTREAM_ONLY: Final = ("proxy-authorization", "proxy-connection")


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """The head of a request as the proxy got it; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict[str, str])


class LoopbackProxy:
    """Remembers the head of each request. With a `refusal`, that status answers everything, and nothing goes on."""

    def __init__(self, refusal: str | None = None) -> None:
        self._refusal = refusal
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.requests: list[ProxyRequest] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request_line, *lines = head.strip().split("\r\n")
        method, target, _ = request_line.split(" ")
        named = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        self.requests.append(ProxyRequest(method, target, dict(named)))
        if self._refusal is not None:
            await reader.readexactly(int(dict(named).get("content-length", "0")))
            writer.write(f"HTTP/1.1 {self._refusal}\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()
            return
        where = urlsplit(target if "://" in target else f"//{target}")
        upstream_reader, upstream_writer = await asyncio.open_connection(where.hostname, where.port)
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                kept = [f"{name}: {value}" for name, value in named if name not in _UPSTREAM_ONLY]
                path = where.path + (f"?{where.query}" if where.query else "")
                upstream_writer.write("\r\n".join([f"{method} {path} HTTP/1.1", *kept, "", ""]).encode("latin-1"))
            pipes = [
                asyncio.ensure_future(_pipe(reader, upstream_writer)),
                asyncio.ensure_future(_pipe(upstream_reader, writer)),
            ]
            try:
                await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pipe in pipes:
                    pipe.cancel()
                await asyncio.gather(*pipes, return_exceptions=True)
        finally:
            upstream_writer.close()
            with contextlib.suppress(OSError):
                await upstream_writer.wait_closed()


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
