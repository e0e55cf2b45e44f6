"""A reader is told when its connection is gone.

aiohttp closes the transport where the framing of a chunked body is broken, and says nothing to whoever reads the body:
the read would hang until a timer ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final
from weakref import WeakSet

import aiohttp

__all__ = ["told_of_loss"]

_retrieved: Final[WeakSet[asyncio.Future[None]]] = WeakSet()


@contextmanager
def told_of_loss(response: aiohttp.ClientResponse) -> Generator[None]:
    """Within, a body that has not ended fails with `ClientPayloadError` once its connection is closed."""
    connection = response.connection
    protocol = connection.protocol if connection is not None else None
    closed = protocol.closed if protocol is not None else None
    if closed is None:  # the body came with the head, and its connection is back in the pool
        yield
        return
    content = response.content

    def fail(_closed: asyncio.Future[None]) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection was closed inside the body"))

    if closed not in _retrieved:  # once per connection: somebody has to look at what the future ends in
        _retrieved.add(closed)
        closed.add_done_callback(_retrieve)
    closed.add_done_callback(fail)
    try:
        yield
    finally:
        closed.remove_done_callback(fail)


def _retrieve(closed: asyncio.Future[None]) -> None:
    if not closed.cancelled():
        closed.exception()
