"""What passes between an attempt and whatever carries it: the request, and what comes back of it.

`wire/http.py` is the carrier of real life; a script under virtual time is another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from reactivex import Observable

__all__ = ["Connected", "HttpRequest", "Passage", "Prepare", "ResponseHead", "Transport", "Wire"]


class Passage(Protocol):
    """Where a transport looks before it hands on more of a body: the consumer may want it to wait."""

    @property
    def is_watched(self) -> bool:
        """Whether there is such a consumer."""
        ...

    @property
    def is_shut(self) -> bool: ...

    async def opened(self) -> None:
        """Return once the consumer wants more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A POST, ready to send."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    find_secrets: Callable[[], tuple[str, ...]] = field(default=tuple, repr=False)
    """Finds `secrets`. Only failures need them, and they take a while to find."""
    has_credential: bool = False
    own_connection: bool = False
    """To be sent over a new connection that closes with the exchange, not over one that was used before."""
    passage: Passage | None = field(default=None, repr=False, compare=False)
    """Where the body of the answer waits. A transport that cannot wait may ignore it."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be told: credentials, wherever they stand in the request."""
        return self.find_secrets()

    @property
    def host(self) -> str:
        """Host and port, for messages: the URL itself may hold a key in its query."""
        try:
            return urlsplit(self.url).netloc.rpartition("@")[2]
        except ValueError:
            return "an unreadable address"


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection stands; the request is being sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """Status and headers; names are looked up in any case."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    host: str = ""

    @property
    def accepted(self) -> bool:
        return 200 <= self.status < 300


Prepare = Callable[[], Awaitable[HttpRequest]]
"""Makes the request at the moment it is sent: credentials may have to be asked for."""

Wire = Connected | ResponseHead | bytes
"""What an exchange emits: `Connected`, `ResponseHead`, then the body's reads."""


class Transport(Protocol):
    """Where requests go: the network, or a script under virtual time."""

    def post(self, prepare: Prepare, is_over: Callable[[], bool] = ...) -> Observable[Wire]: ...

    def open(self) -> None: ...

    async def aclose(self) -> None: ...
