"""The real command in a process of its own, and a server that says exactly what a test wants."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rx_sampler

SOURCE = Path(rx_sampler.__file__).parent.parent
DONE = b"data: [DONE]\n\n"


def frame(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def delta(finish_reason: str | None = None, **fields: Any) -> bytes:
    """A chunk of chat completions (OpenAI API reference, "the chat completion chunk object")."""
    choice = {"index": 0, "delta": fields, "finish_reason": finish_reason}
    return frame({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": [choice]})


def usage(prompt: int, completion: int) -> bytes:
    tokens = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return frame({"id": "c1", "object": "chat.completion.chunk", "model": "m-1", "choices": [], "usage": tokens})


@dataclass
class Reply:
    """One answer: a body in pieces, each sent at once; then, if `hold`, nothing until the client hangs up.

    `pause_before` is an index of `pieces`; the server waits there for `ScriptedServer.go`.
    """

    pieces: Sequence[bytes] = ()
    status: str = "200 OK"
    content_type: str = "text/event-stream"
    hold: bool = False
    pause_before: int | None = None


@dataclass
class ScriptedServer:
    """Gives every request the same reply; remembers what came and whether the client went away."""

    reply: Reply
    port: int = 0
    heads: list[str] = field(default_factory=list[str])
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    client_gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def options(self) -> list[str]:
        return ["--base-url", self.base_url, "--model", "m"]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = next(int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:"))
            self.heads.append(head)
            self.bodies.append(json.loads(await reader.readexactly(length)))
            self.asked.set()
            await self._answer(writer)
            if not self.reply.hold:
                writer.write(b"0\r\n\r\n")
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.client_gone.set()
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {self.reply.status}\r\ncontent-type: {self.reply.content_type}\r\n"
        writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        for index, piece in enumerate(self.reply.pieces):
            if index == self.reply.pause_before:
                await self.go.wait()
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()


@asynccontextmanager
async def scripted(reply: Reply) -> AsyncGenerator[ScriptedServer]:
    """A `ScriptedServer` on a free loopback port."""
    scripted_server = ScriptedServer(reply)
    server = await asyncio.start_server(scripted_server.handle, "127.0.0.1", 0)
    async with server:
        scripted_server.port = server.sockets[0].getsockname()[1]
        yield scripted_server
        server.close()


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without what would steer the command."""
    foreign = ("RX_SAMPLER_", "NO_COLOR", "FORCE_COLOR", "TTY_", "HTTP_PROXY", "http_proxy")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "error", **extra}


async def start(
    *arguments: str,
    env: dict[str, str] | None = None,
    stdin: int = DEVNULL,
    stdout: int = PIPE,
    code: str | None = None,
    cwd: Path | None = None,
) -> Process:
    """Start `rx-sampler ARGUMENTS`, by `python -m`, or by Python `code` that calls `main`."""
    how = ["-c", code] if code else ["-m", "rx_sampler.cli"]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *how,
        *arguments,
        stdin=stdin,
        stdout=stdout,
        stderr=PIPE,
        env=environment(**(env or {})),
        cwd=cwd,
    )


@dataclass(frozen=True)
class Outcome:
    code: int | None
    out: str
    err: str


async def run(
    *arguments: str,
    env: dict[str, str] | None = None,
    stdin: bytes | None = None,
    code: str | None = None,
    cwd: Path | None = None,
) -> Outcome:
    """Run `rx-sampler ARGUMENTS` to its end, in `cwd`; `stdin` is piped in."""
    process = await start(*arguments, env=env, stdin=DEVNULL if stdin is None else PIPE, code=code, cwd=cwd)
    out, err = await process.communicate(stdin)
    return Outcome(process.returncode, out.decode(), err.decode())
