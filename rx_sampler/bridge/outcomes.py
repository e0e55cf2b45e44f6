"""What the end of a request asks of its turn: `TurnOutcome`, and the pure function that reads it off an error.

The order of the rules is that of the sampler that this library re-imagines; its retries of a whole turn too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rx_sampler.config import RetryPolicy
from rx_sampler.conversation import SamplingResponse
from rx_sampler.errors import SamplingError, SamplingErrorInfo, SamplingErrorKind, SentCredential
from rx_sampler.events import Completed, Failed, ImagesStripped
from rx_sampler.metrics import LatencyMetrics
from rx_sampler.retry import RetryState, classify

__all__ = [
    "CompactAndResubmit",
    "Fatal",
    "FatalReason",
    "RefreshAuthAndResubmit",
    "Response",
    "RetryTransient",
    "TurnOutcome",
    "removable_image",
    "turn_outcome",
]

FatalReason = Literal["error", "no_handler", "declined", "exhausted"]
"""Nothing helps against such an error; nobody is there who could help; who could said no; it was tried often enough."""


@dataclass(frozen=True, slots=True)
class Response:
    """The answer. `images_stripped` are the images that it was given without: see `removable_image`."""

    response: SamplingResponse
    metrics: LatencyMetrics
    images_stripped: tuple[ImagesStripped, ...] = ()


@dataclass(frozen=True, slots=True)
class RefreshAuthAndResubmit:
    """The credential was refused, or there was none: get another, then submit again."""

    credential: SentCredential
    error: SamplingError


@dataclass(frozen=True, slots=True)
class CompactAndResubmit:
    """The conversation does not fit the model, whose window is `context_window` tokens (None: the server did not say).

    Shorten it, then submit again.
    """

    context_window: int | None
    error: SamplingError


@dataclass(frozen=True, slots=True)
class RetryTransient:
    """The server or the way to it was out of order for longer than a request waits: submit again later.

    `retry_after_s` is what the server asked for, if it did.
    """

    error: SamplingError
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Fatal:
    """The turn failed; `error` can be raised."""

    error: SamplingError
    reason: FatalReason = "error"


TurnOutcome = Response | RefreshAuthAndResubmit | CompactAndResubmit | RetryTransient | Fatal
"""What to do now that a request ended."""


def turn_outcome(end: Completed | Failed | SamplingError, *, estimated_input_tokens: int | None = None) -> TurnOutcome:
    """What the end of a request asks for. Pure.

    `end` is a request's last event, or what `collect` raised. `estimated_input_tokens` is the caller's guess at the
    conversation's size: above the context window that the server names, any `api` error is taken for an overflow.

    In this order: an overflow is for `CompactAndResubmit`; refused encrypted reasoning, rate limits and whatever no
    time mends are `Fatal`; 401 is for `RefreshAuthAndResubmit`, 403 never; a silent server, a broken connection and
    a retryable refusal are for `RetryTransient`. A deadline of the caller's is `Fatal`: it is over all.
    """
    if isinstance(end, Completed):
        return Response(end.response, end.metrics)
    error = end.to_error() if isinstance(end, Failed) else end
    info = error.info
    window = context_window(info)
    if info.is_context_overflow or _exceeds(window, info, estimated_input_tokens):
        return CompactAndResubmit(window, error)
    if _is_about_encrypted_reasoning(info) or info.kind is SamplingErrorKind.RATE_LIMITED:
        return Fatal(error)
    if info.status == 401 or (info.kind is SamplingErrorKind.AUTH and info.status != 403):
        return RefreshAuthAndResubmit(info.credential, error)
    return RetryTransient(error, info.retry_after_s) if _is_transient(info) else Fatal(error)


def context_window(info: SamplingErrorInfo) -> int | None:
    """The model's context window in tokens, if the refusal's headers told it."""
    window = (info.model_metadata or {}).get("context_window")
    return window if isinstance(window, int) and window > 0 else None


def _exceeds(window: int | None, info: SamplingErrorInfo, tokens: int | None) -> bool:
    return info.kind is SamplingErrorKind.API and window is not None and tokens is not None and tokens > window


def _is_about_encrypted_reasoning(info: SamplingErrorInfo) -> bool:
    # Another account's or model's: only a new conversation helps, not a new try.
    return info.status == 400 and "encrypted_content" in f"{info.code} {info.message}"


_PATIENT: Final = RetryPolicy()


def _is_transient(info: SamplingErrorInfo) -> bool:
    if info.kind is SamplingErrorKind.IDLE_TIMEOUT:
        return info.code != "deadline"
    # What the table of a fresh request would repeat for the transport's sake; errors about images are not.
    repeated = classify(info, RetryState(), _PATIENT).budget == "transport"
    return repeated and info.should_retry is not False and info.kind in (SamplingErrorKind.HTTP, SamplingErrorKind.API)


def removable_image(stripped: Sequence[ImagesStripped]) -> str | None:
    """The URL of the image that may be taken out of the history for good; None if it is not certain.

    `stripped` are all such events of an answered request. Certain is a server that named the image (`server_rejected`,
    nothing else), and one URL, however often it stood there: of several, any may be the bad one.
    """
    urls = {url for event in stripped for url in event.stripped_urls}
    if len(urls) != 1 or any(event.reason != "server_rejected" for event in stripped):
        return None
    return urls.pop()
