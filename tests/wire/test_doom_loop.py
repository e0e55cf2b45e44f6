"""Labels of the server's repetition check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.wire.doom_loop import (
    CHECK_EVENT,
    CHECK_HEADER,
    DoomLoopSignal,
    merged_triggers,
    parse_label,
    tightest,
)


@pytest.mark.parametrize(
    ("raw", "signal"),
    [
        ("tail_repetition:8@thinking", ("tail_repetition", "thinking", 8)),
        ("tail_repetition:64@response", ("tail_repetition", "response", 64)),
        ("tail_repetition:8", ("tail_repetition", "", 8)),
        ("tail_repetition:8@a@b", ("tail_repetition", "a@b", 8)),
        ("tail_repetition:4294967295@thinking", ("tail_repetition", "thinking", 2**32 - 1)),
        ("low_logprob@thinking", ("low_logprob", "thinking", None)),
        ("low_logprob@response", ("low_logprob", "response", None)),
        ("low_logprob", ("low_logprob", "", None)),
        ("exact_repetition:12x40@thinking", ("exact_repetition", "thinking", None)),
        ("exact_repetition:1x2", ("exact_repetition", "", None)),
        ("exact_repetition:12@thinking", ("unknown", "thinking", None)),
        ("exact_repetition:x40@thinking", ("unknown", "thinking", None)),
        ("exact_repetition:12x40x3@thinking", ("unknown", "thinking", None)),
        ("exact_repetition:\u0668x2@thinking", ("unknown", "thinking", None)),
        ("low_logprob:3@thinking", ("unknown", "thinking", None)),
        ("tail_repetition@thinking", ("unknown", "thinking", None)),
        ("tail_repetition:@thinking", ("unknown", "thinking", None)),
        ("tail_repetition:huge@thinking", ("unknown", "thinking", None)),
        ("tail_repetition:-8@thinking", ("unknown", "thinking", None)),
        ("tail_repetition:8.5@thinking", ("unknown", "thinking", None)),
        ("tail_repetition: 8@thinking", ("unknown", "thinking", None)),
        ("tail_repetition:\u0668@thinking", ("unknown", "thinking", None)),
        ("Tail_Repetition:8@thinking", ("unknown", "thinking", None)),
        ("novel_detector:3@thinking", ("unknown", "thinking", None)),
        ("", ("unknown", "", None)),
        ("@", ("unknown", "", None)),
    ],
)
def test_b273_b274_the_grammar_of_labels(raw: str, signal: tuple[str, str, int | None]) -> None:
    kind, channel, threshold = signal
    assert parse_label(raw) == DoomLoopSignal(raw, kind, channel, threshold)


def test_a_threshold_is_an_unsigned_number_of_32_bits() -> None:
    assert parse_label("tail_repetition:4294967296@thinking").kind == "unknown"


@given(st.text())
def test_any_label_is_read(raw: str) -> None:
    assert parse_label(raw).raw == raw


@pytest.mark.parametrize(
    ("raw", "limit", "confident"),
    [
        ("tail_repetition:2@thinking", 64, True),
        ("tail_repetition:8@thinking", 64, True),
        ("tail_repetition:32@thinking", 64, True),
        ("tail_repetition:64@thinking", 64, True),
        ("tail_repetition:65@thinking", 64, False),
        ("tail_repetition:3@thinking", 2, False),
        ("tail_repetition:2@response", 64, False),
        ("tail_repetition:8@response", 64, False),
        ("tail_repetition:8", 64, False),
        ("exact_repetition:2x9@thinking", 64, False),
        ("low_logprob@thinking", 64, False),
        ("novel:1@thinking", 64, False),
    ],
)
def test_b277_only_tight_repetition_in_the_thinking_is_confident(raw: str, limit: int, confident: bool) -> None:
    assert parse_label(raw).is_confident(limit) is confident


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ((), None),
        (("low_logprob@response",), "low_logprob@response"),
        (("novel@x", "low_logprob@response", "exact_repetition:1x9@thinking"), "novel@x"),
        (("tail_repetition:32@thinking", "tail_repetition:8@response"), "tail_repetition:8@response"),
        (("low_logprob@thinking", "tail_repetition:64@thinking"), "tail_repetition:64@thinking"),
        (("tail_repetition:8@response", "tail_repetition:8@thinking"), "tail_repetition:8@response"),
        (("tail_repetition:4294967296@thinking", "tail_repetition:9"), "tail_repetition:9"),
        (("novel@x", "tail_repetition:4294967295@thinking"), "tail_repetition:4294967295@thinking"),
    ],
)
def test_b278_the_tightest_label_is_the_lowest_repetition_of_any_channel(
    labels: tuple[str, ...], named: str | None
) -> None:
    assert tightest(labels) == named


@pytest.mark.parametrize(
    ("known", "check", "merged"),
    [
        ((), {"triggers": ["a", "b"]}, ("a", "b")),
        (("a",), {"triggers": ["b", "a", "b", "c"]}, ("a", "b", "c")),
        (("a",), {"triggers": [1, None, "b", ["c"], {"d": 1}]}, ("a", "b")),
        (("a",), {"triggers": []}, ("a",)),
        (("a",), {"triggers": None}, ("a",)),
        (("a",), {"triggers": "b"}, ("a",)),
        (("a",), {}, ("a",)),
        (("a",), None, ("a",)),
        (("a",), ["b"], ("a",)),
    ],
)
def test_b281_b282_labels_are_kept_once_in_the_order_first_seen(
    known: tuple[str, ...], check: object, merged: tuple[str, ...]
) -> None:
    assert merged_triggers(known, check) == merged


def test_labels_are_limited_in_number() -> None:
    merged = merged_triggers(("first",), {"triggers": [f"l{i}" for i in range(10_000)]})
    assert merged[:2] == ("first", "l0")
    assert len(merged) == 256


def test_the_names_on_the_wire() -> None:
    assert (CHECK_EVENT, CHECK_HEADER) == ("response.doom_loop_check", "x-grok-doom-loop-check")
