"""How a request goes through a proxy."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["Proxied", "Proxy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxied:
    """What one request needs: the proxy's address, and headers for the request itself and for a `CONNECT` before it."""

    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    connect_headers: Mapping[str, str] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy by its address, and its credentials apart from it: an address gets into the errors of aiohttp."""

    url: str
    credentials: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, url: str) -> Self:
        """The proxy of a URL that may hold a user and a password, percent-encoded where they must be."""
        parts = urlsplit(url)
        user, _, where = parts.netloc.rpartition("@")
        name, _, password = user.partition(":")
        basic = b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
        return cls(
            url=urlunsplit((parts.scheme, where, parts.path, "", "")),
            credentials={"Proxy-Authorization": f"Basic {basic}"} if user else {},
        )

    def carrying(self, url: str) -> Proxied:
        """How `url` is asked through it: over TLS in a tunnel, to whose end the proxy's credentials must not get."""
        if urlsplit(url).scheme == "https":
            return Proxied(url=self.url, connect_headers=dict(self.credentials))
        return Proxied(url=self.url, headers=self.credentials)
