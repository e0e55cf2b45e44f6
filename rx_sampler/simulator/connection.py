"""Taking the steps of an answer on a connection: sending, waiting, and dropping it where the script says so."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NoReturn

from aiohttp import web

from .faults import Fault
from .pacing import Pacer
from .steps import Cut, Hold, Pause, Reset, Send, Step

__all__ = ["close", "hold", "reset", "reset_upload", "send_document", "send_stream"]

_LINGER_FORMAT = "hh" if os.name == "nt" else "ii"
_CLOSE_WITH_RESET = struct.pack(_LINGER_FORMAT, 1, 0)


async def send_stream(
    request: web.Request,
    steps: Iterable[Step],
    pacer: Pacer,
    *,
    headers: Mapping[str, str],
    on_sent: Callable[[], None],
) -> web.StreamResponse:
    """Answer with a chunked body, headers at once, each content frame when it is due; `on_sent` after the last step."""
    response = web.StreamResponse(headers=headers)
    with suppress(ConnectionError):  # the client left, so there is nobody to answer
        await response.prepare(request)
        for step in steps:
            if isinstance(step, Send):
                # Even a wait of nothing lets the other requests have their turn.
                await asyncio.sleep(pacer.before_delta_s() if step.is_delta else 0)
            await _take(step, request, response)
        on_sent()
    return response


async def send_document(
    request: web.Request,
    steps: Iterable[Step],
    pacer: Pacer,
    *,
    length: int | None,
    headers: Mapping[str, str],
    on_sent: Callable[[], None],
) -> web.StreamResponse:
    """Answer with one body, once all of it would have been generated; `on_sent` after the last step."""
    response = web.StreamResponse(headers=headers)
    response.content_length = length
    await asyncio.sleep(pacer.whole_s())
    with suppress(ConnectionError):
        await response.prepare(request)
        for step in steps:
            await _take(step, request, response)
        on_sent()
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


def close(request: web.Request) -> None:
    """Close the connection after what was written: the client reads the end of it (FIN)."""
    if request.transport is not None:
        request.transport.close()


async def reset_upload(request: web.Request, fault: Fault | None) -> None:
    """Reset the connection once the fault's number of bytes was read, at the latest one before the body's end."""
    after_bytes = (fault.after_bytes if fault is not None else None) or 0
    length = request.content_length
    wanted = after_bytes if length is None else min(after_bytes, max(length - 1, 0))
    # Of a body of unknown length the end may come first, and any client may leave.
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        await request.content.readexactly(wanted)
    reset(request)


async def _take(step: Step, request: web.Request, response: web.StreamResponse) -> None:
    match step:
        case Send(data=data):
            await response.write(data)
        case Pause(seconds=seconds):
            await asyncio.sleep(seconds)
        case Hold():
            await hold()
        case Cut(data=data, sent_bytes=sent_bytes):
            _cut(request, data, sent_bytes)
        case Reset():
            reset(request)


def _cut(request: web.Request, data: bytes, sent_bytes: int) -> None:
    """The head of a chunk and a part of it, past aiohttp, which would only write whole ones; then the end (FIN)."""
    if data and request.transport is not None:
        request.transport.write(b"%x\r\n%b" % (len(data), data[:sent_bytes]))
    close(request)
