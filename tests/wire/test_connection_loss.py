"""A body whose connection is closed under it fails, and nothing else changes."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import aiohttp
import pytest

from rx_sampler.testing import Answer, ScriptedServer
from rx_sampler.wire.connection_loss import told_of_loss

BROKEN = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"


async def test_broken_chunk_framing_fails_the_read() -> None:
    go_on = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(BROKEN)
        await go_on.wait()
        writer.write(b"zz\r\n")  # no chunk size
        await reader.read()  # until the client leaves
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, aiohttp.ClientSession() as session, session.get(url) as response:
        with told_of_loss(response):
            assert await response.content.readany() == b"half"
            go_on.set()
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.content.readany()


@pytest.mark.parametrize("headers", [{}, {"content-length": "5"}])
async def test_a_whole_body_is_read_to_its_end(headers: dict[str, str]) -> None:
    async with (
        ScriptedServer([Answer(headers=headers, chunks=(b"whole",))] * 2) as server,
        aiohttp.ClientSession() as session,
    ):
        for _ in range(2):
            async with session.post(server.url, data=b"") as response:
                with told_of_loss(response):
                    assert await response.read() == b"whole"
        assert server.connection_count == 1


async def test_a_reset_is_told_once() -> None:
    # B134
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    async with (
        ScriptedServer([Answer(chunks=(b"half",), end="reset")]) as server,
        aiohttp.ClientSession() as session,
        session.post(server.url, data=b"") as response,
    ):
        with told_of_loss(response), pytest.raises(aiohttp.ClientError):
            await response.read()
        await server.until_disconnected()
    gc.collect()
    assert told == []  # no "exception was never retrieved"
