"""Advice for the failures that a wrong option explains."""

import errno
import socket
import ssl

import pytest

from rx_sampler.cli.hints import hint_for
from rx_sampler.errors import SamplingErrorInfo, SamplingErrorKind


def info(
    kind: SamplingErrorKind = SamplingErrorKind.HTTP, status: int | None = None, message: str = "no"
) -> SamplingErrorInfo:
    return SamplingErrorInfo(kind=kind, status=status, message=message)


def caused_by(error: BaseException) -> Exception:
    outer = RuntimeError("rich error")
    outer.__cause__ = error
    return outer


def test_a_missing_key_names_its_variable() -> None:
    error = SamplingErrorInfo(kind=SamplingErrorKind.AUTH, status=401, message="no", credential="missing")
    assert hint_for(error, None, "OPENAI_API_KEY") == (
        "no API key was sent: set OPENAI_API_KEY, or name a variable with --api-key-env"
    )
    assert hint_for(error, None, None) == "no API key was sent: name its environment variable with --api-key-env"


def test_a_refused_key_says_where_it_came_from() -> None:
    error = SamplingErrorInfo(kind=SamplingErrorKind.AUTH, status=401, message="no", credential="sent")
    assert hint_for(error, None, "XAI_API_KEY") == "check the API key in XAI_API_KEY"


@pytest.mark.parametrize(
    ("error", "cause", "word"),
    [
        (info(SamplingErrorKind.API, 404), None, "model's name"),
        (info(SamplingErrorKind.API, None, "got text/html from http://x"), None, "web page"),
        (info(), caused_by(ConnectionRefusedError(errno.ECONNREFUSED, "refused")), "nothing listens"),
        (info(), caused_by(OSError(f"Multiple exceptions: [Errno {errno.ECONNREFUSED}] ::1")), "nothing listens"),
        (info(), caused_by(socket.gaierror(socket.EAI_NONAME, "unknown")), "base URL"),
        (info(), caused_by(ssl.SSLError(1, "wrong version number")), "TLS"),
        (info(), caused_by(ssl.SSLCertVerificationError(1, "certificate verify failed")), "RX_SAMPLER_CA_BUNDLE"),
        (info(SamplingErrorKind.API, 407), None, "RX_SAMPLER_PROXY=http://USER:PASSWORD@HOST:PORT"),
        (info(message="the proxy on the way to h answered 407: Denied"), None, "USER:PASSWORD@HOST"),
        (
            info(message="cannot connect to the proxy on the way to h: refused"),
            caused_by(ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
            "check the proxy",
        ),
    ],
)
def test_the_hint_fits_the_failure(error: SamplingErrorInfo, cause: BaseException | None, word: str) -> None:
    assert word in (hint_for(error, cause, None) or "")


def test_a_context_overflow_is_named() -> None:
    error = SamplingErrorInfo(kind=SamplingErrorKind.API, status=400, message="no", is_context_overflow=True)
    assert "context" in (hint_for(error, None, None) or "")


@pytest.mark.parametrize(
    "error",
    [
        info(),
        info(SamplingErrorKind.API, 500),
        info(SamplingErrorKind.RATE_LIMITED, 429),
        info(SamplingErrorKind.IDLE_TIMEOUT),
    ],
)
def test_no_advice_where_there_is_none(error: SamplingErrorInfo) -> None:
    assert hint_for(error, caused_by(ConnectionResetError(errno.ECONNRESET, "reset")), None) is None


def test_a_circle_of_causes_ends() -> None:
    one, two = RuntimeError("a"), RuntimeError("b")
    one.__cause__, two.__cause__ = two, one
    assert hint_for(info(), one, None) is None
