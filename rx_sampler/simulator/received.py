"""What clients sent: the requests as they came, the last of them kept."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

from .json_tools import JsonObject

__all__ = ["ReceivedRequest", "RequestLog", "lower_names"]

_REQUESTS_KEPT: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """One request as it came: header names in lower case, `body` None where it is no JSON object.

    The repr shows neither headers, which may hold a key, nor the body.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: JsonObject | None = field(repr=False)


class RequestLog:
    """The last thousand requests, and a way to wait for the next."""

    def __init__(self) -> None:
        self._kept: deque[ReceivedRequest] = deque(maxlen=_REQUESTS_KEPT)
        self._count = 0
        self._arrival = asyncio.Condition()

    @property
    def requests(self) -> list[ReceivedRequest]:
        """Oldest first."""
        return list(self._kept)

    async def add(self, request: web.Request, body: JsonObject | None) -> None:
        """Keep a request whose body was read."""
        received = ReceivedRequest(
            method=request.method,
            path=request.path,
            query=dict(parse_qsl(request.query_string, keep_blank_values=True)),
            headers=lower_names(request.headers),
            body=body,
        )
        async with self._arrival:
            self._kept.append(received)
            self._count += 1
            self._arrival.notify_all()

    async def wait_for(self, count: int) -> None:
        """Return once `count` requests have come, the forgotten ones included."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: self._count >= count)


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    """The same headers with names in lower case; of a repeated one the last."""
    return {name.lower(): value for name, value in headers.items()}
