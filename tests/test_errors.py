"""Errors: two forms of one fact, what may be retried, and how they read."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from rx_sampler.config import RetryPolicy
from rx_sampler.conversation import StopReason
from rx_sampler.errors import (
    EmptyResponseContext,
    SamplingError,
    SamplingErrorInfo,
    SamplingErrorKind,
    SentCredential,
    is_retryable_status,
)
from rx_sampler.retry import Action, RetryState, classify
from rx_sampler.wire.error_bodies import ErrorBody, read_error, refusal

INFO = TypeAdapter(SamplingErrorInfo)


def refused(status: int, body: object = None, **headers: Any) -> SamplingErrorInfo:
    """What a server's refusal with that status amounts to."""
    return refusal(read_error(body), status=status, **headers).info


def test_the_kinds_are_those_of_the_contract() -> None:
    assert {kind.value for kind in SamplingErrorKind} == {
        "auth",
        "http",
        "api",
        "serialization",
        "idle_timeout",
        "rate_limited",
        "empty_response",
        "max_tokens_truncation",
        "doom_loop_detected",
        "cancelled",
        "invalid_request",
    }
    assert all(str(kind) == kind.value for kind in SamplingErrorKind)


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "api", False),
        (401, "auth", False),
        (402, "api", False),
        (403, "api", False),  # the key is known, the act forbidden
        (404, "api", False),
        (408, "api", True),  # as the official SDKs do
        (409, "api", True),
        (413, "api", False),
        (422, "api", False),
        (429, "rate_limited", True),
        (500, "api", True),
        (501, "api", False),
        (502, "api", True),
        (503, "api", True),
        (504, "api", True),
        (505, "api", False),
        (507, "api", True),
        (520, "api", True),
        (521, "api", True),
        (522, "api", True),
        (523, "api", True),
        (524, "api", True),
        (525, "api", False),
        (526, "api", False),
        (529, "api", True),
        (530, "api", True),
    ],
)
def test_a_status_decides_kind_and_whether_to_come_again(status: int, kind: str, retryable: bool) -> None:
    # B003, B006, B008, B018, B019, B022
    info = refused(status)
    assert (info.kind, info.status, info.is_retryable) == (kind, status, retryable)
    assert is_retryable_status(status) is retryable
    assert str(status) in info.message  # a refusal without words still says which


def test_a_rate_limit_keeps_the_wait_that_the_server_asks_for() -> None:
    # B007, B020
    info = refused(429, retry_after_s=15.0)
    assert (info.kind, info.retry_after_s, info.is_retryable) == ("rate_limited", 15.0, True)
    assert refused(503, retry_after_s=42.0).retry_after_s == 42.0
    assert refused(503).retry_after_s is None


def test_the_servers_verdict_is_kept_and_a_no_is_final() -> None:
    # B012
    no = refused(500, should_retry=False)
    assert (no.should_retry, no.is_retryable) == (False, False)
    assert refused(500, should_retry=True).should_retry is True
    assert refused(500).should_retry is None


def test_codes_are_kept_as_plain_strings() -> None:
    # B013
    info = refused(400, {"error": {"message": "bad image", "code": "invalid_image"}})
    assert info.code == "invalid_image"
    assert json.loads(INFO.dump_json(info))["code"] == "invalid_image"


def test_a_word_about_encrypted_reasoning_is_told_apart_by_its_status() -> None:
    """B021: only a 400 says that the history is to blame."""
    words = {"error": {"message": "The encrypted_content of item rs_1 could not be verified."}}

    def action(status: int, body: object) -> Action:
        return classify(refused(status, body), RetryState(), RetryPolicy()).action

    assert not refused(400, words).is_retryable
    assert action(400, words) is Action.HAND_TO_SESSION
    assert action(500, words) is Action.REBUILD_CLIENT
    assert action(400, {"error": {"message": "unknown field"}}) is Action.FATAL


def test_an_error_without_words_or_status_may_be_retried() -> None:
    # B010
    info = refusal(ErrorBody()).info
    assert (info.kind, info.status, info.is_retryable) == ("api", None, True)
    assert info.message


def test_a_plain_transport_error_has_no_status() -> None:
    # B009, B020
    info = SamplingError.of(SamplingErrorKind.HTTP, "the connection broke", is_retryable=True).info
    assert (info.status, info.is_retryable, info.retry_after_s, info.should_retry) == (None, True, None, None)


# -- the plain form


def test_info_is_frozen_and_slotted() -> None:
    info = refused(500)
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.status = 200  # type: ignore[misc]  # what is tested
    assert not hasattr(info, "__dict__")


FULL = SamplingErrorInfo(
    kind=SamplingErrorKind.EMPTY_RESPONSE,
    message="nothing",
    status=500,
    code="c",
    is_retryable=True,
    is_context_overflow=True,
    retry_after_s=0.5,
    should_retry=True,
    model_metadata={"context_window": 8},
    empty_response_context=EmptyResponseContext(
        reason="no_visible_content",
        had_reasoning=False,
        finish_reason="stop",
        output_tokens=1,
        reasoning_tokens=2,
        input_tokens=3,
        model="m",
    ),
    doom_loop_triggers=("a", "b"),
    doom_loop_aborted_at_chunk=3,
    credential="sent",
    provider_request_id="r",
)


def test_info_comes_back_from_json() -> None:
    assert INFO.validate_json(INFO.dump_json(FULL)) == FULL


def test_info_leads_to_an_error_and_back() -> None:
    error = FULL.to_error()
    assert isinstance(error, SamplingError)
    assert error.info == FULL
    assert error.info.to_error().info == FULL
    assert error.kind is SamplingErrorKind.EMPTY_RESPONSE
    assert (error.partial, error.metrics, error.where, error.__cause__) == (None, None, None, None)


def test_a_round_trip_adds_nothing_to_the_words() -> None:
    # B017
    error = SamplingError.of(SamplingErrorKind.SERIALIZATION, "not valid JSON", code="malformed_json")
    again = INFO.validate_json(INFO.dump_json(error.info)).to_error()
    assert str(again) == str(error)
    assert str(again.info.to_error()) == str(error)


def test_credential_is_unknown_unless_said() -> None:
    # B014, B015
    assert INFO.validate_json('{"kind": "auth", "message": "m"}').credential == "unknown"
    assert set(get_args(SentCredential)) == {"sent", "missing", "unknown"}
    for value in ("sent", "missing", "unknown"):
        info = INFO.validate_json(json.dumps({"kind": "auth", "message": "m", "credential": value}))
        assert info.credential == value
        assert json.loads(INFO.dump_json(info))["credential"] == value


def test_a_credential_word_of_a_later_version_reads_as_unknown() -> None:
    """B015."""
    info = INFO.validate_json('{"kind": "auth", "message": "m", "credential": "some-future-variant"}')
    assert info.credential == "unknown"


# -- the rich form


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SamplingError.of(SamplingErrorKind.HTTP, "the connection broke"), "http: the connection broke"),
        (SamplingError.of(SamplingErrorKind.API, "no", status=400), "api 400: no"),
        (SamplingError.of(SamplingErrorKind.API, "no", status=400, code="bad"), "api 400 [bad]: no"),
        # a code that the words hold already is not said twice
        (SamplingError.of(SamplingErrorKind.API, "bad: no", status=400, code="bad"), "api 400: bad: no"),
    ],
)
def test_str_is_one_line_with_kind_status_code_and_words(error: SamplingError, text: str) -> None:
    # B122
    assert str(error) == text
    assert repr(error) == f"SamplingError({text!r})"


def test_amend_replaces_fields_in_place() -> None:
    error = SamplingError.of(SamplingErrorKind.API, "no", status=400)
    cause = OSError("x")
    error.__cause__ = cause
    assert error.amend(message="yes", credential="sent") is error
    assert error.info == SamplingErrorInfo(kind=SamplingErrorKind.API, message="yes", status=400, credential="sent")
    assert error.__cause__ is cause
    assert str(error) == "api 400: yes"


def test_amend_knows_its_fields() -> None:
    error = SamplingError.of(SamplingErrorKind.API, "no")
    with pytest.raises(TypeError, match="mesage"):
        error.amend(mesage="yes")
    assert error.info.message == "no"


def test_a_message_that_was_amended_away_is_nowhere_in_the_error() -> None:
    # redaction works by amending: what was taken out of the message may not survive in args, where loggers look
    error = SamplingError.of(SamplingErrorKind.API, "your key sk-secret-1 is wrong")
    error.amend(message="your key *** is wrong")
    assert "sk-secret-1" not in str(error)
    assert "sk-secret-1" not in repr(error)
    assert "sk-secret-1" not in repr(error.args)
    assert "sk-secret-1" not in repr(error.__reduce__())


def test_an_error_survives_copying_and_pickling_with_all_it_knows() -> None:
    # processes hand errors to each other (concurrent.futures, multiprocessing, Ray)
    error = SamplingError.of(SamplingErrorKind.API, "no", status=400)
    error.amend(credential="sent")
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301  # of our own making
        assert twin.info == error.info
        assert str(twin) == str(error)


def test_stop_reasons_read_as_they_are_written() -> None:
    # B023
    assert get_args(StopReason) == ("stop", "length", "tool_calls", "content_filter")
