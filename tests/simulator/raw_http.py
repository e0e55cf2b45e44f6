"""A client of plain sockets: what the simulator puts on the wire, byte for byte, and how the connection ends."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
RESPONSES: dict[str, Any] = {"model": "m", "input": "Why is the sky blue?"}
MESSAGES: dict[str, Any] = {**CHAT, "max_tokens": 4096}

BODIES = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
"""The smallest valid request of each wire format."""


@dataclass(frozen=True)
class Answer:
    """A whole answer: `raw` with its head, and whether the server closed the connection or reset it."""

    raw: bytes
    ending: Literal["closed", "reset"]

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        lines = self.raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    @property
    def _chunks(self) -> tuple[bytes, bool]:
        body, rest = b"", self.raw.partition(b"\r\n\r\n")[2]
        if "transfer-encoding" not in self.headers:
            return rest, len(rest) == int(self.headers.get("content-length", "-1"))
        while rest:
            size_line, _, rest = rest.partition(b"\r\n")
            size = int(size_line, 16)
            if size == 0:
                return body, rest == b"\r\n"
            body, rest = body + rest[:size], rest[size + 2 :]
        return body, False

    @property
    def body(self) -> bytes:
        return self._chunks[0]

    @property
    def is_whole(self) -> bool:
        """Whether the body ended as HTTP says it must: the last chunk, or the promised length."""
        return self._chunks[1]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str | None, str]]:
        """The events of a stream: name and data."""
        return list(events_of(self.body))

    @property
    def data(self) -> list[Any]:
        """The JSON of every event but `[DONE]`."""
        return [json.loads(data) for _, data in self.events if data != "[DONE]"]


def events_of(body: bytes) -> Iterator[tuple[str | None, str]]:
    """The events of a body in the simulator's own framing; comments are passed by, half an event at the end too."""
    *blocks, _half = body.decode().split("\n\n")
    for block in blocks:
        lines = [line.partition(": ") for line in block.split("\n")]
        fields = {name: value for name, _, value in lines}
        if "data" in fields:
            yield fields.get("event"), fields["data"]


@contextmanager
def posting(
    origin: str, path: str, body: object, headers: Mapping[str, str] | None = None, *, method: str = "POST"
) -> Generator[socket.socket, None, None]:
    """A connection on which the request was sent and nothing was read yet."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    whole = {"host": "simulator", "connection": "close", "content-length": str(len(raw)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in whole.items())
    address = urlsplit(origin)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 0), timeout=60) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + raw)
        yield connection


def post(
    origin: str, path: str, body: object, headers: Mapping[str, str] | None = None, *, method: str = "POST"
) -> Answer:
    """The whole answer, read until the server ends the connection."""
    with posting(origin, path, body, headers, method=method) as connection:
        received: list[bytes] = []
        while True:
            try:
                piece = connection.recv(65536)
            except ConnectionResetError:
                return Answer(b"".join(received), "reset")
            if not piece:
                return Answer(b"".join(received), "closed")
            received.append(piece)
