"""What clients sent: the requests as they came, the last of them kept."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

from .faults import Fault
from .json_tools import JsonObject
from .turn_queue import Attempt

__all__ = ["ReceivedRequest", "RequestLog", "lower_names"]

_REQUESTS_KEPT: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """One request as it came: header names in lower case, `body` None where it is no JSON object or was not read.

    `turn` is the index, in the order of queueing since the start, of the scripted turn that the request took (None:
    its own, or none), `attempt` the number of this attempt from 1, `key` what tells the attempts of one request from
    another's (None where no body told it), and `fault` what the attempt met.

    The repr shows neither headers, which may hold a key, nor the body.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: JsonObject | None = field(repr=False)
    turn: int | None = None
    attempt: int = 1
    key: str | None = field(default=None, repr=False)
    fault: Fault | None = None


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

    async def add(self, request: web.Request, body: JsonObject | None, attempt: Attempt | None) -> None:
        """Keep a request; `attempt` is None where it took no turn."""
        received = ReceivedRequest(
            method=request.method,
            path=request.path,
            query=dict(parse_qsl(request.query_string, keep_blank_values=True)),
            headers=lower_names(request.headers),
            body=body,
            turn=attempt.index if attempt else None,
            attempt=attempt.number if attempt else 1,
            key=attempt.key if attempt else None,
            fault=attempt.turn.fault if attempt else None,
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
