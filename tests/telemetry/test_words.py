"""What people read of a record."""

from typing import Any

import pytest

from rx_sampler.telemetry.words import words_of

LATENCY = {"time_to_first_token_from_submit_ms": 312.4, "output_tokens_per_second": 37.84}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (
            {
                "record": "submit",
                "backend": "messages",
                "model": "m",
                "base_url": "https://a.test",
                "reasoning_effort": "high",
                "item_count": 1,
                "tool_count": 2,
                "image_count": 0,
            },
            "messages m, https://a.test, effort high, 1 item, 2 tools",
        ),
        ({"record": "attempt", "attempt": 1, "queued_ms": 0.3}, "1"),
        ({"record": "attempt", "attempt": 1, "queued_ms": 250.4}, "1, queued for 250 ms"),
        ({"record": "stream_started", "since_submit_ms": 12_345.0}, "after 12.3 s"),
        ({"record": "first_token", "channel": "reasoning", "since_submit_ms": 345.2}, "reasoning after 345 ms"),
        ({"record": "dropped_by_subscriber", "since_submit_ms": 8}, "after 8 ms"),
        (
            {"record": "metadata", "model": "m-1", "context_window": 8192, "provider_request_id": "req_1"},
            "m-1, provider's id req_1, context window 8192",
        ),
        ({"record": "response_started", "message_id": "msg_1", "input_tokens": 5}, "msg_1, 5 input tokens"),
        (
            {
                "record": "retrying",
                "next_attempt": 2,
                "retry": 1,
                "max_retries": 15,
                "budget": "transport",
                "error_kind": "http",
                "reason": "refused",
                "backoff_s": 2.12,
            },
            "attempt 2 in 2.1 s (transport retry 1 of 15), http: refused",
        ),
        (
            {
                "record": "tool_result_added",
                "name": "look_up",
                "is_error": False,
                "duration_ms": 12.4,
                "chars": 1,
                "image_count": 2,
                "result": "é",
            },
            'look_up ran, for 12 ms, 1 character, 2 images, said "é"',
        ),
        ({"record": "tool_result_added", "name": "f", "is_error": True, "chars": 30}, "f failed, 30 characters"),
        ({"record": "images_stripped", "count": 1, "reason": "server_rejected"}, "1 image, server_rejected"),
        ({"record": "doom_loop_signals", "triggers": ["a", "b"]}, "a, b"),
        ({"record": "retries_exhausted", "total_attempts": 3}, "after 3 attempts"),
        (
            {
                "record": "completed",
                "stop_reason": "stop",
                "usage": {"input_tokens": 5, "output_tokens": 7, "reasoning_tokens": 3},
                "metrics": LATENCY,
                "cost_usd": 0.25,
                "attempts": 2,
            },
            "stop, 5 input tokens, 7 output tokens (3 reasoning), first token after 312 ms, 37.8 tokens/s, $0.250000, "
            "2 attempts",
        ),
        (
            {"record": "completed", "stop_reason": "stop", "usage": None, "attempts": 1, "text": 'a "b"'},
            r'stop, said "a \"b\""',
        ),
        (
            {
                "record": "failed",
                "kind": "rate_limited",
                "status": 429,
                "code": "slow_down",
                "message": "Slow down",
                "retry_after_s": 3.0,
                "attempts": 2,
                "partial_chars": 7,
                "provider_request_id": "req_1",
            },
            "rate_limited 429 [slow_down]: Slow down, to be asked again in 3 s, 2 attempts, 7 characters had come, "
            "provider's id req_1",
        ),
        ({"record": "failed", "kind": "http", "message": "refused", "attempts": 1}, "http: refused"),
        ({"record": "dropped", "count": 7}, "7 records missing here"),
        (
            {"record": "event", "event": {"kind": "channel_token", "channel": "text", "text": "a"}},
            'channel_token text "a"',
        ),
        ({"record": "new_in_3_0", "request_id": "r", "x": 1, "y": [2], "z": None}, "x=1, y=[2]"),
        ({}, ""),
    ],
)
def test_words(record: dict[str, Any], words: str) -> None:
    assert words_of(record) == words


@pytest.mark.parametrize(
    "name",
    [
        "submit",
        "attempt",
        "first_token",
        "metadata",
        "retrying",
        "images_stripped",
        "tool_result_added",
        "doom_loop_signals",
        "completed",
        "retries_exhausted",
        "failed",
        "dropped",
        "event",
    ],
)
@pytest.mark.parametrize("value", [None, "x", 1, True, [], {}, [{}]])
def test_any_json_will_do(name: str, value: object) -> None:
    fields = ("attempt", "backend", "count", "event", "metrics", "usage", "triggers", "message", "backoff_s", "reason")
    assert len(words_of({"record": name, **dict.fromkeys(fields, value)})) <= 300


def test_a_long_text_is_clipped() -> None:
    words = words_of({"record": "failed", "kind": "api", "message": "x" * 1000})
    assert len(words) == 300
    assert words.endswith("xx...")
