"""A loopback server behind TLS, with a certificate of an authority that nobody trusts unless told to."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trustme

_FILES: Final = TemporaryDirectory(prefix="rx-sampler-tls-")
atexit.register(_FILES.cleanup)

_CA: Final = trustme.CA()
_CERTIFICATE: Final = _CA.issue_cert("127.0.0.1", "localhost")
AUTHORITY: Final = Path(_FILES.name) / "ca.pem"
_CA.cert_pem.write_to_path(str(AUTHORITY))
SERVER_KEY: Final = _CERTIFICATE.private_key_pem.bytes()


@contextlib.asynccontextmanager
async def tls_server(body: bytes) -> AsyncGenerator[tuple[str, list[bytes]]]:
    """Its URL, and the heads of the requests that it answers, all with the same body."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with _CERTIFICATE.private_key_and_cert_chain_pem.tempfile() as chain:
        context.load_cert_chain(chain)
    heads: list[bytes] = []
    busy: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            heads.append(head)
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(length)
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
            )
            writer.write(body)
            await writer.drain()
        finally:
            busy.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()
        await asyncio.gather(*busy, return_exceptions=True)
        await server.wait_closed()
