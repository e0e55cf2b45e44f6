"""What a failure says of itself to people and programs: overload, one line of words, and the same after any trip."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Final

import pytest
from pydantic import TypeAdapter

from rx_sampler import (
    DoomLoopPolicy,
    RetryPolicy,
    RetryState,
    SamplingError,
    SamplingErrorInfo,
    SamplingErrorKind,
    classify,
)
from rx_sampler.errors import MAX_DESCRIPTION_CHARS, EmptyResponseContext
from rx_sampler.wire.error_bodies import read_error, refusal

INFO: Final = TypeAdapter(SamplingErrorInfo)
Kind = SamplingErrorKind


def status(code: int, message: str = "no", label: str | None = None, **hints: Any) -> SamplingErrorInfo:
    return refusal(read_error({"error": {"message": message, "code": label}}), status=code, **hints).info


def in_stream(type_: str, message: str = "no") -> SamplingErrorInfo:
    return refusal(read_error({"type": "error", "error": {"type": type_, "message": message}})).info


def failure(kind: SamplingErrorKind, message: str = "it failed", **fields: Any) -> SamplingErrorInfo:
    return SamplingErrorInfo(kind=kind, message=message, **fields)


# -- overload


@pytest.mark.parametrize(
    ("info", "overloaded"),
    [
        (status(529), True),
        (status(500, "The engine is currently Overloaded"), True),
        (status(503, "try later", "service_unavailable_error"), True),
        (status(500, "upstream said service_unavailable_error"), True),
        (status(500), False),
        (status(503), False),  # unavailable for whatever reason
        (status(400, "the word overloaded"), False),
        (status(400, "no", "overloaded_error"), False),
        (status(429, "overloaded"), False),
        (in_stream("overloaded_error"), True),
        (in_stream("service_unavailable_error"), True),
        (in_stream("invalid_request_error", "overloaded"), False),
        (in_stream("of_tomorrow", "overloaded"), False),
        (failure(Kind.API, "overloaded"), False),
        (failure(Kind.API, code="Overloaded_Error"), True),
        (failure(Kind.HTTP, "overloaded"), False),
    ],
    ids=lambda value: str(value.to_error())[:40] if isinstance(value, SamplingErrorInfo) else "",
)
def test_b253_what_counts_as_overload(info: SamplingErrorInfo, overloaded: bool) -> None:
    assert info.is_overloaded is overloaded
    assert INFO.validate_json(INFO.dump_json(info)).is_overloaded is overloaded


# -- words for people


EMPTY: Final = EmptyResponseContext(
    reason="no_visible_content", had_reasoning=True, finish_reason="stop", output_tokens=12, model="toy-1"
)


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (failure(Kind.AUTH, "wrong key"), "Authentication failed: wrong key"),
        (
            failure(Kind.AUTH, "no", credential="missing"),
            "Authentication failed (no credential was sent): no",
        ),
        (failure(Kind.INVALID_REQUEST, "no model"), "Invalid request: no model"),
        (failure(Kind.HTTP, "cannot connect to h.test"), "Connection failed: cannot connect to h.test"),
        (failure(Kind.SERIALIZATION, "line 1 column 4"), "Unreadable response: line 1 column 4"),
        (failure(Kind.IDLE_TIMEOUT, "no bytes for 240 s"), "Timed out: no bytes for 240 s"),
        (failure(Kind.MAX_TOKENS_TRUNCATION, "token limit"), "Response cut short: token limit"),
        (failure(Kind.CANCELLED, "by the caller"), "Cancelled: by the caller"),
        (status(400, "odd"), "API error (HTTP 400; bad request): odd"),
        (status(403, "odd"), "API error (HTTP 403; not allowed with this credential): odd"),
        (status(404, "odd"), "API error (HTTP 404; no such model or address): odd"),
        (status(500, "odd"), "API error (HTTP 500; server error): odd"),
        (status(502, "odd"), "API error (HTTP 502; temporary): odd"),
        (status(501, "odd"), "API error (HTTP 501): odd"),
        (status(529, "odd"), "API error (HTTP 529; overloaded): odd"),
        (
            status(429, "odd", retry_after_s=2.5),
            "API error (HTTP 429; rate limited; the server asks to wait 2.5 s): odd",
        ),
        (
            status(400, "odd", "context_length_exceeded"),
            "API error (HTTP 400; the conversation is too long for the model): odd",
        ),
        (in_stream("of_tomorrow", "odd"), "API error (of_tomorrow): odd"),
        (failure(Kind.API, "odd"), "API error: odd"),
        (
            failure(Kind.EMPTY_RESPONSE, empty_response_context=EMPTY),
            "Empty response (no visible content; model toy-1; had reasoning; finish reason stop; 12 output tokens)",
        ),
        (
            failure(
                Kind.EMPTY_RESPONSE,
                empty_response_context=EmptyResponseContext(reason="reasoning_only", had_reasoning=True),
            ),
            "Empty response (reasoning only)",
        ),
        (failure(Kind.EMPTY_RESPONSE, "nothing"), "Empty response: nothing"),
        (
            failure(Kind.DOOM_LOOP_DETECTED, doom_loop_triggers=("a", "b"), doom_loop_aborted_at_chunk=7),
            "Doom loop detected at chunk 7: a, b",
        ),
        (failure(Kind.DOOM_LOOP_DETECTED, doom_loop_triggers=("a",)), "Doom loop detected: a"),
        (failure(Kind.DOOM_LOOP_DETECTED, "again"), "Doom loop detected: again"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_b255_a_failure_in_words(info: SamplingErrorInfo, words: str) -> None:
    assert info.describe() == words
    assert info.describe(3) == f"Request failed after 3 retries. {words}"


def test_b255_too_large_is_said_with_what_to_do() -> None:
    words = status(413).describe()
    assert "HTTP 413" in words
    assert "request too large" in words


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_words_of_its_own(kind: SamplingErrorKind) -> None:
    lead = failure(kind, "odd").describe().partition(":")[0]
    others = {failure(other, "odd").describe().partition(":")[0] for other in Kind if other is not kind}
    assert (lead in others) is (kind in (Kind.API, Kind.RATE_LIMITED))  # the status tells these two apart


def test_a_number_of_retries_is_told_if_there_were_any() -> None:
    info = failure(Kind.HTTP)
    assert info.describe(1) == f"Request failed after 1 retry. {info.describe()}"
    assert info.describe(0) == info.describe()


@pytest.mark.parametrize(
    "hostile",
    [
        failure(Kind.DOOM_LOOP_DETECTED, doom_loop_triggers=("\x1b[2J\n", "b" * 2000, "\u202e")),
        failure(
            Kind.EMPTY_RESPONSE,
            empty_response_context=EmptyResponseContext(
                reason="reasoning_only", had_reasoning=True, model="\x1b]0;x\x07", finish_reason="a\r\nb" * 500
            ),
        ),
        failure(Kind.API, "x\ny" * 1000, code="\x9b31m"),
    ],
    ids=["labels", "names", "code"],
)
def test_words_are_one_printable_line_of_limited_length(hostile: SamplingErrorInfo) -> None:
    words = hostile.describe(3)
    assert words.isprintable()
    assert len(words) <= MAX_DESCRIPTION_CHARS
    assert words.endswith("…")


# -- the same error after a trip


TRAVELLERS: Final = {
    "idle": failure(Kind.IDLE_TIMEOUT, "no bytes for 300 s", code="idle"),
    "500": status(500),
    "429": status(429, retry_after_s=7.0),
    "malformed": failure(Kind.SERIALIZATION, "line 1 column 4", code="malformed_json"),
    "with a code": status(400, "no", "invalid_image"),
    "in the stream": in_stream("invalid_image"),
    "broken": failure(Kind.HTTP, is_retryable=True, code="upload_broken"),
    "doomed": failure(Kind.DOOM_LOOP_DETECTED, is_retryable=True, doom_loop_triggers=("a",)),
}


@pytest.mark.parametrize("info", TRAVELLERS.values(), ids=TRAVELLERS.keys())
def test_b229_a_failure_that_became_data_is_classed_like_the_original(info: SamplingErrorInfo) -> None:
    rebuilt = INFO.validate_json(INFO.dump_json(info)).to_error()
    assert rebuilt.info == info
    for state in (RetryState(), RetryState(has_images=True), RetryState(retries=3, stream_started=True)):
        assert classify(rebuilt, state, RetryPolicy(), DoomLoopPolicy()) == classify(
            info, state, RetryPolicy(), DoomLoopPolicy()
        )


@pytest.mark.parametrize("info", TRAVELLERS.values(), ids=TRAVELLERS.keys())
def test_b252_a_copy_is_still_what_the_original_was(info: SamplingErrorInfo) -> None:
    error = info.to_error()
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301  # of our own making
        assert isinstance(twin, SamplingError)
        assert (twin.kind, twin.info.code, twin.info.message) == (error.kind, error.info.code, error.info.message)
        assert classify(twin, RetryState(has_images=True), RetryPolicy()) == classify(
            error, RetryState(has_images=True), RetryPolicy()
        )
