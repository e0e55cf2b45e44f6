"""Waits, verdicts and facts out of response headers."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from rx_sampler.events import RateLimit
from rx_sampler.wire.headers import head_facts, retry_after_s, should_retry

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()

WAITS: list[tuple[dict[str, str], float | None]] = [
    # milliseconds first, if they can be read
    ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    ({"retry-after-ms": "900"}, 0.9),
    ({"retry-after-ms": "0", "retry-after": "9"}, 0.0),
    ({"retry-after-ms": "-5"}, 0.0),
    ({"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
    ({"retry-after-ms": "", "retry-after": "3"}, 3.0),
    ({"retry-after-ms": "nan", "retry-after": "3"}, 3.0),
    # seconds: RFC 9110 has whole ones, servers send fractions too
    ({"retry-after": "120"}, 120.0),
    ({"retry-after": "2.5"}, 2.5),
    ({"retry-after": " 3 "}, 3.0),
    ({"retry-after": ".5"}, 0.5),
    ({"retry-after": "0"}, 0.0),
    ({"retry-after": "-5"}, 0.0),
    ({"retry-after": "7200"}, 7200.0),  # not capped here
    # the three date formats of RFC 9110 section 5.6.7
    ({"retry-after": "Fri, 02 Jan 2026 03:04:12 GMT"}, 7.0),
    ({"retry-after": "Friday, 02-Jan-26 03:04:12 GMT"}, 7.0),
    ({"retry-after": "Fri Jan  2 03:04:12 2026"}, 7.0),
    ({"retry-after": "Fri, 02 Jan 2026 04:04:12 +0100"}, 7.0),
    ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    # nothing that makes sense
    ({}, None),
    ({"retry-after": ""}, None),
    ({"retry-after": "NaN"}, None),
    ({"retry-after": "inf"}, None),
    ({"retry-after": "1e400"}, None),
    ({"retry-after": "1_0"}, None),
    ({"retry-after": "soon"}, None),
    ({"retry-after": "Fri, 99 Jan 2026 03:04:12 GMT"}, None),
    ({"retry-after": "\u0663"}, None),
]


@pytest.mark.parametrize(("headers", "wait_s"), WAITS)
def test_every_form_of_the_wait(headers: dict[str, str], wait_s: float | None) -> None:
    # B104
    assert retry_after_s(headers, NOW) == wait_s
    upper = CIMultiDict({name.upper(): value for name, value in headers.items()})
    assert retry_after_s(upper, NOW) == wait_s


HEADER_VALUES = st.text(max_size=40) | st.from_regex(r"[+-]?[0-9.e]{1,30}[dhms]{0,2}", fullmatch=True)
DATES = st.builds(
    "{}, {:02d} {} {:04d} {:02d}:{:02d}:{:02d} {}".format,
    st.sampled_from(["Mon", "x"]),
    st.integers(0, 40),
    st.sampled_from(["Jan", "Feb", "Nope"]),
    st.integers(0, 99_999),
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 99),
    st.sampled_from(["GMT", "+9999", "-0000", "EST", "", "+2360"]),
)


@given(HEADER_VALUES | DATES, HEADER_VALUES)
def test_no_header_value_raises_or_gives_a_negative_wait(value: str, milliseconds: str) -> None:
    wait_s = retry_after_s({"retry-after": value, "retry-after-ms": milliseconds}, NOW)
    assert wait_s is None or (wait_s >= 0 and math.isfinite(wait_s))


@pytest.mark.parametrize(
    ("value", "verdict"),
    [("true", True), ("false", False), (" False ", False), ("TRUE", True), ("", None), ("1", None), ("no", None)],
)
def test_the_servers_own_verdict(value: str, verdict: bool | None) -> None:
    # B105
    assert should_retry({"x-should-retry": value}) is verdict
    assert should_retry({}) is None


def test_facts_about_the_model() -> None:
    # B106
    headers = {
        "x-grok-context-window": "131072",
        "x-grok-max-completion-tokens": " 4096 ",
        "x-models-etag": 'W/"7"',
        "content-type": "text/event-stream",
    }
    assert head_facts(headers, NOW) == {
        "context_window": 131072,
        "max_completion_tokens": 4096,
        "models_etag": 'W/"7"',
    }


@pytest.mark.parametrize("value", ["", "-1", "1.5", "many", "1" * 19, "\u0663", "1_000"])
def test_facts_that_cannot_be_read_are_left_out(value: str) -> None:
    assert head_facts({"x-grok-context-window": value, "x-grok-max-completion-tokens": value}, NOW) == {}


@pytest.mark.parametrize("name", ["x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "cf-ray"])
def test_the_providers_request_id(name: str) -> None:
    assert head_facts({name: "r-1"}, NOW) == {"provider_request_id": "r-1"}
    assert head_facts({name: "r" * 999}, NOW) == {"provider_request_id": "r" * 200}


def test_the_providers_own_request_id_beats_the_gateways() -> None:
    assert head_facts({"cf-ray": "edge", "request-id": "req_1"}, NOW) == {"provider_request_id": "req_1"}


LIMITS: list[tuple[str, dict[str, str], tuple[RateLimit, ...]]] = [
    (
        "OpenAI",  # https://platform.openai.com/docs/guides/rate-limits
        {
            "x-ratelimit-limit-requests": "60",
            "x-ratelimit-limit-tokens": "150000",
            "x-ratelimit-remaining-requests": "59",
            "x-ratelimit-remaining-tokens": "149984",
            "x-ratelimit-reset-requests": "1s",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        (
            RateLimit(name="requests", limit=60, remaining=59, reset_after_s=1.0),
            RateLimit(name="tokens", limit=150000, remaining=149984, reset_after_s=360.0),
        ),
    ),
    (
        "Groq",  # https://console.groq.com/docs/rate-limits
        {"x-ratelimit-limit-requests": "14400", "x-ratelimit-reset-requests": "2m59.56s"},
        (RateLimit(name="requests", limit=14400, reset_after_s=120 + 59.56),),
    ),
    (
        "Anthropic",  # https://docs.anthropic.com/en/api/rate-limits
        {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-requests-reset": "2026-01-02T03:05:05Z",
            "anthropic-ratelimit-input-tokens-limit": "50000",
            "anthropic-ratelimit-input-tokens-remaining": "0",
            "anthropic-ratelimit-input-tokens-reset": "2026-01-02T03:04:00Z",
        },
        (
            RateLimit(name="input-tokens", limit=50000, remaining=0, reset_after_s=0.0),
            RateLimit(name="requests", limit=50, remaining=49, reset_after_s=60.0),
        ),
    ),
    (
        "OpenRouter, Unix time in milliseconds",
        {
            "X-RateLimit-Limit": "20",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": str(int((NOW + 30) * 1000)),
        },
        (RateLimit(name="requests", limit=20, remaining=0, reset_after_s=30.0),),
    ),
    (
        "Unix time in seconds, any case",
        {"X-RATELIMIT-RESET": str(int(NOW) + 5)},
        (RateLimit(name="requests", reset_after_s=5.0),),
    ),
    (
        "Azure, plain seconds",
        {"x-ratelimit-reset-tokens": "30"},
        (RateLimit(name="tokens", reset_after_s=30.0),),
    ),
    (
        "what cannot be read stays unknown",
        {"x-ratelimit-limit-requests": "lots", "x-ratelimit-reset-requests": "soon"},
        (RateLimit(name="requests"),),
    ),
]


@pytest.mark.parametrize(("headers", "limits"), [case[1:] for case in LIMITS], ids=[case[0] for case in LIMITS])
def test_dialects_of_rate_limits(headers: dict[str, str], limits: tuple[RateLimit, ...]) -> None:
    assert head_facts(headers, NOW) == {"rate_limits": limits}


def reset_of(raw: str) -> float | None:
    facts = head_facts({"x-ratelimit-reset-tokens": raw}, NOW)
    assert "rate_limits" in facts
    (limit,) = facts["rate_limits"]
    assert limit.name == "tokens"
    return limit.reset_after_s


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        ("120ms", 0.12),
        ("1h2m3.5s", 3723.5),
        ("1d", 86_400.0),
        ("3m", 180.0),
        ("1s500ms", 1.5),
        ("0s", 0.0),
        ("0", 0.0),
        ("2026-01-02T03:04:06.5+00:00", 1.5),
        ("2026-01-02T04:04:06+01:00", 1.0),
        ("2026-01-02T03:04:06", 1.0),
        (str(int(NOW) - 5), 0.0),
        (str(int(NOW - 5) * 1000), 0.0),
        ("-3", 0.0),
        ("", None),
        ("1x", None),
        ("nan", None),
        ("2026-13-02T03:04:06Z", None),
    ],
)
def test_forms_of_a_reset(raw: str, seconds: float | None) -> None:
    assert reset_of(raw) == (None if seconds is None else pytest.approx(seconds))


@given(HEADER_VALUES)
def test_no_reset_raises_or_is_negative(value: str) -> None:
    reset_s = reset_of(value)
    assert reset_s is None or (reset_s >= 0 and math.isfinite(reset_s))


@pytest.mark.parametrize("name", ["x-ratelimit-limits", "x-ratelimit", "my-x-ratelimit-limit", "ratelimit-limit"])
def test_other_headers_are_no_rate_limits(name: str) -> None:
    assert head_facts({name: "1"}, NOW) == {}
