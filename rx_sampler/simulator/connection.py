"""Taking the steps of an answer on a connection: sending, waiting, and dropping it where the script says so."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NoReturn

from aiohttp import web

from .faults import Cut, Hold, Pause, Reset, Send, Step
from .pacing import Pacer

__all__ = ["hold", "reset", "send_document", "send_stream"]

_LINGER_FORMAT = "hh" if os.name == "nt" else "ii"
_CLOSE_WITH_RESET = struct.pack(_LINGER_FORMAT, 1, 0)


async def send_stream(
    request: web.Request, steps: Iterable[Step], pacer: Pacer, *, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Answer with a chunked body, headers at once, each content frame when it is due."""
    response = web.StreamResponse(headers=headers)
    with suppress(ConnectionError):  # the client left, so there is nobody to answer
        await response.prepare(request)
        for step in steps:
            if isinstance(step, Send):
                # Even a wait of nothing lets the other requests have their turn.
                await asyncio.sleep(pacer.before_delta_s() if step.is_delta else 0)
            await _take(step, request, response)
    return response


async def send_document(
    request: web.Request, steps: Iterable[Step], pacer: Pacer, *, length: int | None, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Answer with one body, once all of it would have been generated."""
    response = web.StreamResponse(headers=headers)
    response.content_length = length
    await asyncio.sleep(pacer.whole_s())
    with suppress(ConnectionError):
        await response.prepare(request)
        for step in steps:
            await _take(step, request, response)
    return response


async def hold() -> NoReturn:
    """Wait until the handler is cancelled: the client leaves or the simulator stops."""
    while True:
        await asyncio.Event().wait()


def reset(request: web.Request) -> None:
    """Reset the connection: the client's next read or write fails."""
    transport = request.transport
    if transport is None:
        return
    connection: socket.socket = transport.get_extra_info("socket")
    # SO_LINGER with a time of zero makes close send RST instead of FIN: socket(7).
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE_WITH_RESET)
    transport.abort()


async def _take(step: Step, request: web.Request, response: web.StreamResponse) -> None:
    match step:
        case Send(data=data):
            await response.write(data)
        case Pause(seconds=seconds):
            await asyncio.sleep(seconds)
        case Hold():
            await hold()
        case Cut(data=data):
            _cut(request, data)
        case Reset():
            reset(request)


def _cut(request: web.Request, data: bytes) -> None:
    """The head of a chunk and half of it, past aiohttp, which would only write whole ones; then the end (FIN)."""
    transport = request.transport
    if transport is None:
        return
    if data:
        transport.write(b"%x\r\n%b" % (len(data), data[: len(data) // 2]))
    transport.close()
