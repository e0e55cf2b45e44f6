"""What to do about a failed request, in a few words. Pure."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator

from rx_sampler.errors import SamplingErrorInfo, SamplingErrorKind

__all__ = ["hint_for"]


def hint_for(error: SamplingErrorInfo, cause: BaseException | None, key_variable: str | None) -> str | None:
    """Advice for the failures that a wrong option or a server that is not there explains; None for any other.

    `cause` is the rich error, whose chain of causes tells refused from unknown host; `key_variable` names where the
    key is looked for.
    """
    if error.kind is SamplingErrorKind.AUTH or error.status == 401:
        if error.credential == "missing":
            named = f"set {key_variable}, or name a variable" if key_variable else "name its environment variable"
            return f"no API key was sent: {named} with --api-key-env"
        return f"check the API key{f' in {key_variable}' if key_variable else ''}"
    if error.is_context_overflow:
        return "the prompt and the answer do not fit into the model's context"
    if error.status == 404:
        return "check the model's name and the base URL; most end in /v1"
    if error.status == 407 or (error.message.startswith("the proxy") and " answered 407:" in error.message):
        return "the proxy wants a user and a password: RX_SAMPLER_PROXY=http://USER:PASSWORD@HOST:PORT"
    if "html" in error.message.lower():
        return "that is a web page; most base URLs end in /v1"
    if error.kind is not SamplingErrorKind.HTTP or error.status is not None:
        return None
    causes = list(_chain(cause))
    if error.message.startswith("cannot connect to the proxy"):
        return "check the proxy: RX_SAMPLER_PROXY, or HTTPS_PROXY with RX_SAMPLER_TRUST_ENV"
    if any(_refused(one) for one in causes):
        return "nothing listens there: is the server running, and is the port right?"
    if any(isinstance(one, socket.gaierror) or "DNS" in type(one).__name__ for one in causes):
        return "check the base URL"
    if any(isinstance(one, ssl.SSLCertVerificationError) or "Certificate" in type(one).__name__ for one in causes):
        return "its certificate is not trusted: for an authority of your own, RX_SAMPLER_CA_BUNDLE=FILE.pem"
    if any(isinstance(one, ssl.SSLError) or "SSL" in type(one).__name__ for one in causes):
        return "TLS failed: check https:// or http:// in the base URL"
    return None


def _refused(error: BaseException) -> bool:
    if isinstance(error, ConnectionRefusedError) or (isinstance(error, OSError) and error.errno == errno.ECONNREFUSED):
        return True
    # A host with several addresses fails with all their errors in one message, and no errno.
    return f"[Errno {errno.ECONNREFUSED}]" in str(error)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what led to it, each once."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = getattr(one, "os_error", None)  # aiohttp's connector errors keep the real one there
        waiting += [one.__cause__, one.__context__, inner if isinstance(inner, BaseException) else None]
