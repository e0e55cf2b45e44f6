"""What servers say when they refuse: every shape of envelope, and the error that it amounts to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.errors import SamplingErrorKind
from rx_sampler.wire.error_bodies import (
    MAX_MESSAGE_CHARS,
    ErrorBody,
    clean_message,
    is_markup,
    read_error,
    refusal,
    status_text,
)

K = SamplingErrorKind
Body = ErrorBody


def error(**fields: Any) -> dict[str, Any]:
    return {"error": fields}


# Envelopes as the vendors document or send them.
ENVELOPES: list[tuple[str, object, Body]] = [
    ("OpenAI", error(message="m", type="t", param=None, code="c"), Body(message="m", type="t", code="c")),
    ("OpenAI without a code", error(message="m", type="t", code=None), Body(message="m", type="t")),
    ("only a type", error(type="t"), Body(type="t")),
    ("flat", {"error": "m"}, Body(message="m")),
    ("flat with a code", {"error": "m", "code": "invalid_image"}, Body(message="m", code="invalid_image")),
    ("flat with a number", {"error": "m", "code": 429}, Body(message="m", code="429", status=429)),
    (
        "Anthropic",
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "r"},
        Body(message="Overloaded", type="overloaded_error"),
    ),
    (
        "responses, flat",
        {"type": "error", "code": "server_error", "message": "m", "param": None, "sequence_number": 3},
        Body(message="m", code="server_error"),
    ),
    (
        "responses, nested",
        {"type": "error", "error": {"code": "rate_limit_exceeded", "message": "m"}},
        Body(message="m", code="rate_limit_exceeded"),
    ),
    (
        "top level, as DashScope",
        {"message": "m", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"},
        Body(message="m", type="invalid_request_error", code="context_length_exceeded"),
    ),
    (
        "Google, in a list",
        [error(code=429, message="m", status="RESOURCE_EXHAUSTED")],
        Body(message="m", type="RESOURCE_EXHAUSTED", code="429", status=429),
    ),
    (
        "Google, with a wait",
        error(
            code=503,
            message="m",
            status="UNAVAILABLE",
            details=[
                "?",
                {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "r"},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"},
            ],
        ),
        Body(message="m", type="UNAVAILABLE", code="503", status=503, retry_after_s=34.5),
    ),
    ("a status that is a sentence", {"message": "m", "status": "Not good"}, Body(message="m")),
    ("a wait that is none", error(message="m", details=[{"retryDelay": "soon"}]), Body(message="m")),
    (
        "Groq",
        error(message="m", type="invalid_request_error", code="tool_use_failed", status_code=400),
        Body(message="m", type="invalid_request_error", code="tool_use_failed", status=400),
    ),
    ("LM Studio", {"error": {"message": "m"}, "message": "n"}, Body(message="m")),
    ("llama.cpp", error(code=503, message="m", type="t"), Body(message="m", type="t", code="503", status=503)),
    (
        "vLLM, old",
        {"object": "error", "message": "m", "type": "BadRequestError", "code": 400},
        Body(message="m", type="BadRequestError", code="400", status=400),
    ),
    ("FastAPI", {"detail": "Not authenticated"}, Body(message="Not authenticated")),
    (
        "FastAPI, validation",
        {"detail": [{"type": "missing", "loc": ["body", "model"], "msg": "Field required"}]},
        Body(message="Field required", type="missing"),
    ),
    ("a message alone", {"message": "m"}, Body(message="m")),
    ("msg", {"msg": "m", "error_code": 1234}, Body(message="m", code="1234")),
    ("description", {"error": {"description": "m"}}, Body(message="m")),
    ("OAuth", {"error": "invalid_token", "error_description": "m"}, Body(message="invalid_token")),
    ("a list of errors", {"errors": [{"message": "m"}, {"message": "n"}]}, Body(message="m")),
    ("a list of which the first says nothing", [{"x": 1}, 3, None, {"error": "m"}], Body(message="m")),
    ("status beside the error", {"error": {"message": "m"}, "status": 503}, Body(message="m", status=503)),
    ("status as a string", {"message": "m", "status_code": "529"}, Body(message="m", status=529)),
    (
        "the inner status wins",
        {"error": {"message": "m", "code": 400}, "status": 500},
        Body(message="m", code="400", status=400),
    ),
    (
        "MiniMax",
        {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
        Body(message="insufficient balance", code="1008", status=402),
    ),
    (
        "OpenRouter quotes its upstream",
        error(message="Provider returned error", code=429, metadata={"raw": '{"error":{"message":"slow down"}}'}),
        Body(message="Provider returned error: slow down", code="429", status=429),
    ),
    (
        "OpenRouter, upstream in plain text",
        error(message="Provider returned error", code=502, metadata={"raw": "bad gateway", "provider_name": "P"}),
        Body(message="Provider returned error: bad gateway", code="502", status=502),
    ),
    ("OpenRouter, said twice", error(message="slow down", metadata={"raw": "slow down"}), Body(message="slow down")),
    ("OpenRouter, upstream page", error(message="m", metadata={"raw": "<html></html>"}), Body(message="m")),
    ("OpenRouter, no raw", error(message="m", metadata={"raw": None}), Body(message="m")),
    (
        "double-encoded: the inner fields win",
        error(message='{"error":{"message":"inner","type":"invalid_request_error"}}', type="outer"),
        Body(message="inner", type="invalid_request_error"),
    ),
    (
        "double-encoded twice",
        error(message=json.dumps(json.dumps({"message": "inner", "code": "c"}))),
        Body(message="inner", code="c"),
    ),
    ("xAI marker", error(message="m [WKE=a:b].", type="t"), Body(message="m", type="t", code="a:b")),
    ("the marker beats a number", {"error": "m [WKE=a:b]", "code": 429}, Body(message="m", code="a:b", status=429)),
    ("only a marker", {"error": "[WKE=a:b]"}, Body(message="a:b", code="a:b")),
    ("an unterminated marker", {"error": "m [WKE=a:b"}, Body(message="m [WKE=a:b")),
    ("a marker inside", {"error": "m [WKE=a] n"}, Body(message="m n", code="a")),
    ("markup as message, but a code", error(message="<b>m</b>", code="c"), Body(code="c")),
    ("a vendor's number is no status", {"message": "m", "code": 40303}, Body(message="m", code="40303")),
    ("nor is a status below 400", {"message": "m", "status": 200, "code": 0}, Body(message="m", code="0")),
    ("a boolean is no code", {"message": "m", "code": True, "status": True}, Body(message="m")),
]  # fmt: skip


@pytest.mark.parametrize(("body", "found"), [case[1:] for case in ENVELOPES], ids=[case[0] for case in ENVELOPES])
def test_envelopes(body: object, found: Body) -> None:
    # B118, B120, B124
    assert read_error(body) == found
    assert read_error(json.dumps(body)) == found
    assert read_error(b" " + json.dumps(body, indent=1).encode() + b"\n") == found


# xAI's flat form puts a sentence where a code should be: it stays what it is, beside the message.
SENTENCE = "The caller does not have permission to execute the specified operation"


def test_a_sentence_for_a_code_is_kept_word_for_word() -> None:
    """B113 makes it the type and a prefix of the message; here it is the code."""
    info = refusal(read_error({"code": SENTENCE, "error": "Your team has no access."})).info
    assert (info.message, info.code, info.status) == ("Your team has no access.", SENTENCE, None)
    assert info.is_retryable


@pytest.mark.parametrize(
    "tag", ["rate_limit_error", "unknown", "server_error", "error", "api_error", "internal", "invalid_request_error"]
)
def test_a_message_is_the_servers_own_without_a_prefix(tag: str) -> None:
    """B112 and B121: where some tags stood before the message, here none does; the tag is the code."""
    info = refusal(read_error(error(type=tag, message="try later")), status=500).info
    assert (info.message, info.code) == ("try later", None if tag == "error" else tag)  # "error" names none


def test_a_number_for_a_code_stays_out_of_the_message() -> None:
    """B114 and B115: nested and flat; a number that is an HTTP status is one, and a marker is the better code."""
    nested = refusal(read_error(error(message="worker gone", code=503))).info
    assert (nested.message, nested.status, nested.is_retryable) == ("worker gone", 503, True)
    vendors = refusal(read_error(error(message="worker gone", code=40303))).info
    assert (vendors.message, vendors.status, vendors.is_retryable) == ("worker gone", None, True)
    flat = refusal(read_error({"error": "slow down [WKE=team:rate]", "code": 429})).info
    assert (flat.message, flat.code, flat.status) == ("slow down", "team:rate", 429)


@pytest.mark.parametrize("code", ["invalid_image", "invalid-argument", "server_error", "INVALID"])
def test_every_code_is_kept_word_for_word(code: str) -> None:
    """B116, which keeps only `invalid_image` of the flat form."""
    for body in ({"error": "m", "code": code}, error(message="m", code=code)):
        info = refusal(read_error(body), status=400).info
        assert (info.message, info.code) == ("m", code)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"upstream connect error", "upstream connect error"),
        (b'"a JSON string"', "a JSON string"),
        ('"', '"'),
        ("{not json", "{not json"),
        (b"caf\xe9 \xff", "caf\ufffd \ufffd"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_text_is_a_message_of_its_own(body: object, message: str) -> None:
    # B118
    assert read_error(body) == Body(message=message)


NOTHING: list[object] = [
    *(b"", b"  \n", "<!DOCTYPE html><p>x", b"\xef\xbb\xbf<html>", b" <Error><Code>X</Code>"),
    *(None, 3, 1.5, True, {"error": None}, {"error": {}}, {"type": "error"}, {"Message": "m"}, {"error": "<p>m</p>"}),
    *({"error": []}, {"message": ""}, {"base_resp": {"status_code": 0, "status_msg": "success"}}, {"base_resp": None}),
    {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "error"}}]},
]  # fmt: skip


@pytest.mark.parametrize("body", NOTHING, ids=repr)
def test_what_says_nothing_readable_gives_none(body: object) -> None:
    # B117, B119
    assert read_error(body) is None


@pytest.mark.parametrize(
    "body", [b"null", b"{}", b"[]", b'""', b'{"Message":"m"}', b'{"error":null}', b'{"error":"<?xml version=1?><E/>"}']
)
def test_json_that_says_nothing_readable_gives_none(body: bytes) -> None:
    # B119
    assert read_error(body) is None


def test_depth_has_an_end() -> None:
    nested: dict[str, Any] = {}
    for _ in range(5_000):
        nested = {"error": nested}
    assert read_error(nested) is None


@pytest.mark.parametrize(
    ("found", "label"),
    [
        (Body(type="t", code="c"), "c"),
        (Body(type="t"), "t"),
        (Body(type="t", code="429"), "t"),
        (Body(code="1008"), "1008"),
        (Body(), None),
    ],
)
def test_the_label_is_the_code_then_the_type_then_the_number(found: Body, label: str | None) -> None:
    assert found.label == label
    assert refusal(found).info.code == label


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 507, 520, 521, 522, 523, 524, 529, 530])
def test_statuses_that_are_worth_a_retry(status: int) -> None:
    # B022, B108
    info = refusal(None, status=status).info
    assert info.is_retryable
    assert info.kind is (K.RATE_LIMITED if status == 429 else K.API)
    assert info.status == status


@pytest.mark.parametrize("status", [300, 400, 401, 402, 403, 404, 413, 422, 501, 505, 525, 526])
def test_statuses_that_are_final(status: int) -> None:
    info = refusal(None, status=status).info
    assert not info.is_retryable
    assert info.kind is (K.AUTH if status == 401 else K.API)  # 403 is no credential problem
    assert info.status == status


IN_STREAM: list[tuple[Body, int | None, SamplingErrorKind, bool]] = [
    # Anthropic's table of types, https://docs.anthropic.com/en/api/errors
    (Body(type="invalid_request_error"), 400, K.API, False),
    (Body(type="authentication_error"), 401, K.AUTH, False),
    (Body(type="billing_error"), 402, K.API, False),
    (Body(type="permission_error"), 403, K.API, False),
    (Body(type="not_found_error"), 404, K.API, False),
    (Body(type="request_too_large"), 413, K.API, False),
    (Body(type="rate_limit_error"), 429, K.RATE_LIMITED, True),
    (Body(type="api_error"), 500, K.API, True),
    (Body(type="timeout_error"), 504, K.API, True),
    (Body(type="overloaded_error"), 529, K.API, True),
    # OpenAI's codes; a code beats the type
    (Body(code="server_error"), 500, K.API, True),
    (Body(code="rate_limit_exceeded", type="server_error"), 429, K.RATE_LIMITED, True),
    (Body(code="invalid_prompt"), 400, K.API, False),
    (Body(code="context_length_exceeded"), 400, K.API, False),
    (Body(code="unheard_of", type="invalid_request_error"), 400, K.API, False),
    (Body(code="insufficient_quota"), 429, K.RATE_LIMITED, False),
    # a status of its own beats both
    (Body(code="tool_use_failed", type="server_error", status=400), 400, K.API, False),
    (Body(message="Upstream worker limit reached", code="502", status=502), 502, K.API, True),
    # nothing that says it is final
    (Body(message="m"), None, K.API, True),
    (Body(code="unheard_of", type="error_of_ours"), None, K.API, True),
]


@pytest.mark.parametrize(("found", "status", "kind", "retryable"), IN_STREAM)
def test_an_error_inside_a_stream_is_classed_by_itself(
    found: Body, status: int | None, kind: SamplingErrorKind, retryable: bool
) -> None:
    info = refusal(found).info
    assert (info.status, info.kind, info.is_retryable) == (status, kind, retryable)


@pytest.mark.parametrize("body", [b"", b" \n", b"<html><h1>Bad gateway</h1></html>", b"null", b"{}"])
def test_an_error_without_anything_is_retryable_and_has_words(body: bytes) -> None:
    """B125, but plain text is a message of its own."""
    info = refusal(read_error(body)).info
    assert (info.kind, info.status, info.code, info.is_retryable) == (K.API, None, None, True)
    assert info.message == status_text(None)


def test_the_status_of_the_response_beats_what_the_body_says() -> None:
    info = refusal(Body(message="m", type="invalid_request_error", status=400), status=503).info
    assert (info.status, info.is_retryable) == (503, True)


@pytest.mark.parametrize(
    "code", ["insufficient_quota", "credit_balance_exhausted", "usage_limit_reached", "billing_hard_limit_reached"]
)
@pytest.mark.parametrize("status", [None, 429, 503])
def test_no_credit_is_final_on_any_status(code: str, status: int | None) -> None:
    assert not refusal(Body(message="m", code=code), status=status).info.is_retryable
    assert not refusal(Body(message="m", type=code), status=status).info.is_retryable
    assert not refusal(Body(message="m", code=code.upper(), type="t"), status=status).info.is_retryable


def test_the_word_quota_decides_nothing() -> None:
    message = "You exceeded your current quota, insufficient_quota even; check your billing details"
    info = refusal(Body(message=message, code="rate_limit_exceeded"), status=429).info
    assert (info.kind, info.is_retryable) == (K.RATE_LIMITED, True)


def test_a_vendors_no_credit_envelope_is_final() -> None:
    info = refusal(read_error({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}})).info
    assert (info.kind, info.status, info.code, info.is_retryable) == (K.API, 402, "1008", False)


# https://www.minimax.io/platform/document/error_code: 1002 rate limit, 1004 not authorised, 2013 invalid parameters
@pytest.mark.parametrize(("code", "status"), [(1002, 429), (1004, 401), (1013, 500), (2013, 400)])
def test_minimax_codes_are_no_statuses(code: int, status: int) -> None:
    assert read_error({"base_resp": {"status_code": code}}) == Body(code=str(code), status=status)


@pytest.mark.parametrize("code", ["context_length_exceeded", "exceed_context_size_error", "CONTEXT_LENGTH_EXCEEDED"])
@pytest.mark.parametrize("status", [None, 400, 500])
def test_a_context_overflow_by_code(code: str, status: int | None) -> None:
    info = refusal(Body(message="m", code=code), status=status).info
    assert (info.kind, info.is_context_overflow, info.is_retryable) == (K.API, True, False)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum prompt length is 131072 but the request contains 200068 tokens.",
        "prompt is too long: 300000 tokens > 200000 maximum",
        "Current message (600000) exceeds budget (500000)",
        "api: Current Message (600000) EXCEEDS BUDGET (500000)",
        "This model's maximum context length is 8192 tokens.",
        "The input is too long for this model",
        "error context_length_exceeded",
    ],
)
@pytest.mark.parametrize("status", [None, 400, 500, 529])
def test_a_context_overflow_by_phrase(message: str, status: int | None) -> None:
    info = refusal(Body(message=message), status=status).info
    assert (info.is_context_overflow, info.is_retryable) == (True, False)


@pytest.mark.parametrize(
    "message",
    [
        "rate limited",
        "connection reset",
        "Attached file content (5000) causes message to exceed budget",
        "compact index estimate 2.0 GB exceeds budget 1.0 GB",
    ],
)
def test_what_is_no_context_overflow(message: str) -> None:
    assert not refusal(Body(message=message), status=400).info.is_context_overflow


def test_should_retry_can_forbid_but_not_allow() -> None:
    assert not refusal(None, status=500, should_retry=False).info.is_retryable
    assert not refusal(None, status=400, should_retry=True).info.is_retryable
    assert refusal(None, status=500, should_retry=True).info.should_retry is True


@pytest.mark.parametrize(
    ("message", "wait_s"),
    [
        ("Rate limit reached. Please try again in 2s.", 2.0),
        ("Please try again in 898ms. Visit https://example.org/limits", 0.898),
        ("Limit 30000, Used 29000. Please try again in 1.32s.", 1.32),
        ("please try again in 6m0s", 360.0),
        ("Please try again in 5m24.864s.", 324.864),
        ("Please retry after 20 seconds.", 20.0),
        ("You must wait 1 second", 1.0),
        ("Try again in 500 milliseconds", 0.5),
        ("Please try again in 2 requests", None),
        ("limit 20 s, used 19", None),
        ("slow down", None),
    ],
)
def test_a_wait_told_in_prose(message: str, wait_s: float | None) -> None:
    assert refusal(Body(message=message), status=429).info.retry_after_s == (
        None if wait_s is None else pytest.approx(wait_s)
    )
    assert refusal(Body(message=message, code="rate_limit_exceeded")).info.retry_after_s == (
        None if wait_s is None else pytest.approx(wait_s)
    )


@pytest.mark.parametrize(
    ("message", "wait_s"),
    [("Please try again in 1h2m3s.", 3723.0), ("Please try again in 20m.", 1200.0), ("Wait 5 minutes", 300.0)],
)
def test_a_long_wait_told_in_prose(message: str, wait_s: float) -> None:
    assert refusal(Body(message=message), status=429).info.retry_after_s == wait_s


def test_the_header_beats_prose_and_prose_counts_for_rate_limits_only() -> None:
    found = Body(message="try again in 2s")
    assert refusal(found, status=429, retry_after_s=0.0).info.retry_after_s == 0.0
    assert refusal(found, status=503).info.retry_after_s is None
    assert refusal(found, status=503, retry_after_s=7.0).info.retry_after_s == 7.0


@pytest.mark.parametrize(
    ("status", "words"),
    [
        *((status, "temporarily unavailable") for status in (502, 503, 504)),
        (529, "temporarily overloaded"),
        *((status, "timed out or was interrupted") for status in (520, 521, 522, 523, 524, 530)),
        *((status, "secure connection") for status in (525, 526)),
        *((status, "something went wrong on the server") for status in (500, 501, 507, 599)),
        (400, "the request failed"),
        (418, "the request failed"),
        (429, "too many requests"),
        (401, "credential was refused"),
        (404, "no such address or model"),
        (413, "too large"),
    ],
)
def test_words_for_a_status_that_brought_none(status: int, words: str) -> None:
    # B108, B109, B111
    for body in (b"", b"<html><body>502</body></html>", None):
        message = refusal(read_error(body), status=status).info.message
        assert words in message
        assert message.endswith(f"({status})")


PAGES = [
    "<html><head><title>502 Bad Gateway</title></head></html>",
    "<!DOCTYPE html>\n<p>x",
    "\ufeff  <?xml version='1.0'?><Error/>",
    "502 Bad Gateway <!doctype html>",
    "Error:\n<HTML lang=en>",
    "see <a href='x'>this</a>",
]


@pytest.mark.parametrize("page", PAGES)
def test_markup_never_surfaces(page: str) -> None:
    # B126
    assert is_markup(page)
    for body in (page, {"error": page}, error(message=page), error(message="m", metadata={"raw": page}), [page]):
        assert "<" not in refusal(read_error(body), status=502).info.message
    assert "<" not in refusal(read_error(page.encode()), status=502).info.message


@pytest.mark.parametrize("text", ["a < b", "5 <= x > 3", "use <tool> here", "", "{}"])
def test_comparisons_are_no_markup(text: str) -> None:
    assert not is_markup(text)


def test_markup_behind_a_long_message_is_cut_off() -> None:
    assert "<" not in refusal(read_error("x" * 3000 + "<html></html>"), status=502).info.message


def test_markup_behind_much_white_space_does_not_surface() -> None:
    assert "<" not in refusal(read_error("x" + " " * 2500 + "<html></html>"), status=502).info.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  a\n\tb\r\n\r\n c  ", "a b c"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\0b\x07", "a\\x00b\\x07"),
        ("a\u202eb\u200b", "a\\u202eb\\u200b"),
        ("a\x9b31mb", "a\\x9b31mb"),
        ("half \ud83d pair", "half \\ud83d pair"),
        ("日本語 é 🦀", "日本語 é 🦀"),
        ("x" * MAX_MESSAGE_CHARS, "x" * MAX_MESSAGE_CHARS),
        ("é" * (MAX_MESSAGE_CHARS + 50), "é" * MAX_MESSAGE_CHARS + "…"),
        ("x" * (MAX_MESSAGE_CHARS - 1) + " yz", "x" * (MAX_MESSAGE_CHARS - 1) + "…"),
        ("", ""),
    ],
)
def test_a_message_is_one_printable_line_of_limited_length(text: str, message: str) -> None:
    # B123
    assert clean_message(text) == message
    if text:
        assert refusal(Body(message=text), status=500).info.message == message


def test_a_code_cannot_drive_a_terminal() -> None:
    assert str(refusal(read_error(error(message="m", code="a\x1b[2Jb")), status=500)).isprintable()


def test_a_code_is_limited_in_length() -> None:
    assert len(refusal(read_error(error(message="m", code="c" * 1000))).info.code or "") == 200


# No measurement, a guard: read in linear time these take a millisecond, in quadratic time a quarter of a minute.
@pytest.mark.timeout(2)
@pytest.mark.parametrize("text", ["a" + " " * 64_000 + "b", "[WKE=" * 13_000], ids=["spaces", "markers"])
def test_hostile_text_costs_linear_time(text: str) -> None:
    assert read_error(text) == Body(message=text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "detail", "type", "code", "status", "status_code", "errors", "metadata", "raw"]
            )
            | st.sampled_from(["base_resp", "status_msg", "error_code", "msg", "description", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


def check_total(body: object) -> None:
    found = read_error(body)
    assert found is None or isinstance(found, Body)
    for status in (None, 429, 500):
        message = refusal(found, status=status).info.message
        assert message.isprintable()
        assert 0 < len(message) <= MAX_MESSAGE_CHARS + 1


@given(JSON)
def test_any_json_value_is_read_or_passed_by(value: Any) -> None:
    check_total(value)
    check_total(json.dumps(value))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_passed_by(body: bytes) -> None:
    check_total(body)
