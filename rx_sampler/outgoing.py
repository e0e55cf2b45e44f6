"""The HTTP request that a sampling request becomes."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlencode, urlsplit, urlunsplit

from .backends.base import Backend
from .backends.encoding import body_bytes
from .config import SamplerConfig
from .conversation import SamplingRequest
from .errors import SamplingError, SamplingErrorKind
from .wire.doom_loop import CHECK_HEADER
from .wire.transport import HttpRequest

__all__ = ["credential_header", "endpoint_url", "http_request", "redacted"]

# RFC 9110 section 5.6.2 (token) and 5.5 (field values, without control characters)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BAD_IN_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]")

_SHORTEST_SECRET: Final = 6
"""Shorter "keys" are placeholders for servers that need none; blotting them out would blot out words."""


async def http_request(
    backend: Backend[Any], request: SamplingRequest, config: SamplerConfig, request_id: str = ""
) -> HttpRequest:
    """Encode `request` for `backend` and put URL, headers and credential to it.

    `request_id` is for `vendor_headers`. Raises `SamplingError`: `invalid_request` for what cannot be sent, `auth` for
    a key that no header can carry. Nothing was sent when it raises.
    """
    body = body_bytes(backend.encode(request, config))
    credential = await _credential(config)
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        # A compressed stream arrives in the compressor's pieces, and a cached one is not ours.
        "accept-encoding": "identity",
        "cache-control": "no-cache",
        "user-agent": _user_agent(config.application),
    }
    headers |= _lower(backend.headers)
    key_header = credential_header(backend, config)
    if credential:
        headers[key_header] = f"Bearer {credential}" if key_header == "authorization" else credential
    if config.doom_loop is not None and backend.name == "responses":
        headers[CHECK_HEADER] = str(config.doom_loop.window_tokens)
    headers |= _lower(_vendor_headers(request, config, request_id))
    from_environment = {
        name: value
        for name, variable in config.env_http_headers.items()
        if (value := os.environ.get(variable, "").strip())
    }
    for source, given in (
        ("extra_headers", config.extra_headers),
        ("env_http_headers", from_environment),
        ("extra_headers of the request", request.extra_headers),
    ):
        _check_headers(source, given)
        headers |= _lower(given)
    given = {**_lower(config.extra_headers), **_lower(from_environment), **_lower(request.extra_headers)}
    if config.header_injector is not None:
        before = dict(headers)
        try:
            config.header_injector(headers)
        except Exception as error:
            message = f"header_injector raised {type(error).__name__}"
            raise SamplingError.of(SamplingErrorKind.INVALID_REQUEST, message, code="header_injector") from error
        _check_headers("header_injector", headers)
        given |= {name.lower(): value for name, value in headers.items() if before.get(name) != value}
    names = {name.lower() for name in headers}
    if "authorization" in names and "@" in urlsplit(config.base_url).netloc:
        raise SamplingError.of(
            SamplingErrorKind.INVALID_REQUEST,
            "base_url holds a user, and the request an Authorization header, which is where both go: give one of them",
            code="two_credentials",
        )
    path = backend.path if isinstance(backend.path, str) else backend.path(request, config)
    return HttpRequest(
        url=endpoint_url(config.base_url, path, config.query_params),
        headers=headers,
        body=body,
        find_secrets=partial(_secrets, config, credential, given),
        has_credential=bool({"authorization", "x-api-key", "api-key", key_header} & names),
    )


def _secrets(config: SamplerConfig, credential: str | None, headers: Mapping[str, str]) -> tuple[str, ...]:
    """All that must not be told, in each form in which a server may quote it."""
    parts = urlsplit(config.base_url)
    found = [credential or "", *headers.values(), *config.query_params.values()]
    found += [value.split(" ", 1)[1] for value in headers.values() if " " in value]  # `Bearer KEY` is quoted as KEY
    found += [value for _, value in parse_qsl(parts.query)]
    proxy = urlsplit(config.reveal_proxy() or "")
    found += [unquote(part) for one in (parts, proxy) for part in (one.username, one.password) if part]
    found += [encode(secret) for secret in list(found) for encode in (quote, quote_plus)]
    found += [json.dumps(secret)[1:-1] for secret in list(found)]
    return tuple(dict.fromkeys(secret for secret in found if len(secret) >= _SHORTEST_SECRET))


def credential_header(backend: Backend[Any], config: SamplerConfig) -> str:
    """The header that the key goes into, in lower case."""
    scheme = config.auth_scheme or backend.auth_scheme
    return "authorization" if scheme == "bearer" else scheme.replace("_", "-")


def endpoint_url(base_url: str, path: str, query_params: Mapping[str, str]) -> str:
    """`path` behind the base URL's own path, the queries of both kept except where `query_params` override them."""
    parts = urlsplit(base_url)
    path, _, own_query = path.partition("?")
    own = [*parse_qsl(parts.query, keep_blank_values=True), *parse_qsl(own_query, keep_blank_values=True)]
    query = urlencode([*((name, value) for name, value in own if name not in query_params), *query_params.items()])
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, query, ""))


def redacted(message: str, secrets: tuple[str, ...]) -> str:
    """`message` without the credentials that servers like to quote, nor half of one where it was cut."""
    longest_first = sorted(secrets, key=len, reverse=True)
    for secret in longest_first:
        message = message.replace(secret, "***")
    if message.endswith("…"):
        cut = message[:-1]
        for secret in longest_first:
            half = next((n for n in range(len(secret) - 1, 3, -1) if cut.endswith(secret[:n])), 0)
            cut = cut[: len(cut) - half] + "***" if half else cut
        message = cut + "…"
    return message


def _vendor_headers(request: SamplingRequest, config: SamplerConfig, request_id: str) -> Mapping[str, str]:
    if config.vendor_headers is None:
        return {}
    try:
        headers = config.vendor_headers.headers_for(request, request.model or config.model, request_id)
    except Exception as error:
        message = f"vendor_headers raised {type(error).__name__}"
        raise SamplingError.of(SamplingErrorKind.INVALID_REQUEST, message, code="vendor_headers") from error
    _check_headers("vendor_headers", headers)
    return headers


@cache
def _user_agent(application: str | None) -> str:
    """This program, its version and system; before it the application that uses it, where that is another one."""
    import platform  # slow to import

    system = {"darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)
    machine = platform.machine().lower()
    own = f"rx-sampler/{_version()}"
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    agent = f"{own} ({system}; {machine})"
    return agent if application in (None, own) else f"{application} {agent}"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return version("rx-sampler")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0"


async def _credential(config: SamplerConfig) -> str | None:
    if config.bearer_resolver is None:
        credential = config.reveal_api_key()
    else:
        try:
            answer = config.bearer_resolver()
            credential = await answer if inspect.isawaitable(answer) else answer
        except SamplingError:
            raise
        except Exception as error:
            raise SamplingError.of(
                SamplingErrorKind.AUTH, f"bearer_resolver raised {type(error).__name__}", code="bearer_resolver"
            ) from error
    if credential is not None and not isinstance(credential, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's function
        message = f"bearer_resolver gives a str or None, not {type(credential).__name__}"
        raise SamplingError.of(SamplingErrorKind.AUTH, message, code="bearer_resolver")
    if credential and _BAD_IN_VALUE.search(credential):
        raise SamplingError.of(
            SamplingErrorKind.AUTH, "the API key has characters that no header can carry (a line end, perhaps)"
        )
    return credential or None


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _check_headers(source: str, headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise SamplingError.of(
                SamplingErrorKind.INVALID_REQUEST, f"{source}: {name!r} is not a header name (letters, digits and -)"
            )
        if _BAD_IN_VALUE.search(value):
            raise SamplingError.of(
                SamplingErrorKind.INVALID_REQUEST,
                f"{source}: the value of {name!r} has characters that no header can carry",
            )
