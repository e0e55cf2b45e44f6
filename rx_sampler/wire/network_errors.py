"""What aiohttp and the socket raise, as errors of ours. The words are ours too: theirs may quote the URL."""

from __future__ import annotations

import errno
import ssl
from typing import Final

import aiohttp

from rx_sampler.errors import SamplingError, SamplingErrorKind

__all__ = ["NETWORK_ERRORS", "is_reset", "translated"]

NETWORK_ERRORS: Final = (aiohttp.ClientError, OSError, ValueError)
"""All that a request and the reading of its response raise; ValueError comes of a URL (yarl, idna)."""


def is_reset(error: Exception) -> bool:
    """Whether the peer broke the connection off (ECONNRESET, EPIPE), rather than closed it."""
    return isinstance(error, OSError) and error.errno in (errno.ECONNRESET, errno.EPIPE)


def translated(error: Exception, host: str) -> SamplingError:
    """The `SamplingError` for one of `NETWORK_ERRORS`; `host` (and port) is all that it tells of the URL.

    The cause hangs on it where it holds no secret.
    """
    retryable = True
    # ValueError: aiohttp.InvalidURL is one, and so is ssl.SSLCertVerificationError, which says nothing of the URL
    if isinstance(error, ValueError) and not isinstance(error, ssl.SSLError | aiohttp.ClientSSLError):
        return SamplingError.of(SamplingErrorKind.INVALID_REQUEST, f"the URL of the request is not valid: {host}")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        message = f"cannot connect to the proxy on the way to {host}: {_reason(error)}"
    elif isinstance(error, aiohttp.ClientHttpProxyError):
        # The words are the proxy's; the answer of one that refuses us will not change.
        message = f"the proxy on the way to {host} answered {error.status}: {' '.join(error.message.split())[:200]}"
        retryable = error.status >= 500
    elif isinstance(error, ssl.SSLError | aiohttp.ClientSSLError):
        message, retryable = f"the TLS connection to {host} failed: {_reason(error)}", False
    elif isinstance(error, aiohttp.ClientConnectorDNSError):
        message = f"the host name of {host} cannot be resolved"
    elif isinstance(error, aiohttp.ClientConnectorError):
        message = f"cannot connect to {host}: {_reason(error)}"
    elif isinstance(error, aiohttp.ServerDisconnectedError):
        message = f"{host} closed the connection without an answer"
    elif isinstance(error, aiohttp.ClientPayloadError):
        message = f"the connection to {host} broke before the body ended"
    elif isinstance(error, aiohttp.ClientResponseError):
        message = f"{host} answered something that is not HTTP: {' '.join(error.message.split())[:200]}"
    else:
        message = f"the connection to {host} broke: {_reason(error)}"
    failure = SamplingError.of(SamplingErrorKind.HTTP, message, is_retryable=retryable)
    if not isinstance(error, aiohttp.ClientResponseError):  # that one holds the request, its headers and URL
        key = error.args[0] if error.args else None  # of a connection: holds the credentials of the environment's proxy
        failure.__cause__ = _inner(error) if getattr(key, "proxy_auth", None) else error
    return failure


def _inner(error: BaseException) -> BaseException:
    """What the socket or the TLS layer said, inside of what aiohttp makes of it."""
    return getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error


def _reason(error: BaseException) -> str:
    inner = _inner(error)
    text = getattr(inner, "verify_message", None) or getattr(inner, "strerror", None) or getattr(inner, "reason", None)
    text = text or type(inner).__name__
    return str(text)[:200]
