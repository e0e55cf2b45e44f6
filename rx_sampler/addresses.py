"""URLs in a configuration: which ones will do, and what of them may be shown."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

__all__ = ["checked_base_url", "checked_proxy", "shown_url"]


def shown_url(url: str) -> str:
    """The address in a URL: scheme, host and path. User, password, query and fragment may be secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an unreadable address"
    more = "?..." if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{more}" if parts.netloc else parts.path


def checked_base_url(url: str) -> str:
    """The URL, if it is one of http with a host; else a ValueError that does not show it."""
    if _http_parts(url) is None:
        raise ValueError("base_url is an http(s) URL with a host, such as https://api.openai.com/v1")
    return url


def checked_proxy(url: str) -> str:
    """The URL, if a proxy can be asked by it; else a ValueError that does not show it."""
    if url.lower().startswith("socks"):
        raise ValueError("proxy is a SOCKS proxy, and these are not supported; give an http:// or https:// one")
    parts = _http_parts(url)
    if parts is None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("proxy is http(s)://HOST:PORT, with USER:PASSWORD@ before the host where it wants them")
    return url


def _http_parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        sound = sound and bool((parts.hostname or "").rstrip(".").encode("idna"))
    except ValueError:  # a port that is none, a label that is empty or too long
        return None
    return parts if sound else None
