"""Latency, computed by hand."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable
from typing import Any

import pytest

from rx_sampler.metrics import LatencyMetrics, measure

SUBMITTED, STARTED = 1_767_225_600.0, 1_767_225_600.5
"""Unix seconds: a double still holds a quarter of a microsecond there."""


def measured(at_ms: Iterable[float], *, ended_ms: float, **fields: Any) -> LatencyMetrics:
    """Metrics of chunks at these milliseconds after the stream's start."""
    arguments: dict[str, Any] = {
        "submitted_at": SUBMITTED,
        "started_at": STARTED,
        "ended_at": STARTED + ended_ms / 1e3,
        "stamps": array("d", (STARTED + ms / 1e3 for ms in at_ms)),
        "first_text_at": None,
        "output_tokens": None,
        "attempts": 1,
        **fields,
    }
    return measure(**arguments)


def ms(value: float) -> Any:
    return pytest.approx(value, abs=1e-3)


def test_without_a_stream_there_is_nothing_but_the_count_of_attempts() -> None:
    assert measured([], ended_ms=100, started_at=None, attempts=3) == LatencyMetrics(attempts=3)


def test_without_chunks_only_start_and_end_are_known() -> None:
    # B204
    it = measured([], ended_ms=100, output_tokens=5)
    assert it == LatencyMetrics(time_to_stream_started_ms=ms(500), time_to_last_byte_ms=ms(100))


def test_one_chunk_has_no_gaps() -> None:
    # B205
    it = measured([30], ended_ms=100)
    assert (it.time_to_first_token_ms, it.time_to_first_token_from_submit_ms) == (ms(30), ms(530))
    assert it.chunk_count == 1
    gaps = (it.inter_token_p50_ms, it.inter_token_p90_ms, it.inter_token_p99_ms)
    assert (*gaps, it.inter_token_max_ms, it.inter_token_mean_ms) == (None,) * 5


def test_percentiles_are_nearest_rank_over_all_gaps() -> None:
    # B206
    # gaps of 10, 20, ... 100 ms, largest first, so that the order they came in is not the sorted one
    at = [0.0]
    for gap in range(100, 0, -10):
        at.append(at[-1] + gap)
    it = measured(at, ended_ms=600)
    assert it.chunk_count == 11
    assert it.inter_token_p50_ms == ms(60)  # sorted[10 // 2]
    assert it.inter_token_p90_ms == ms(90)  # sorted[ceil(9) - 1]
    assert it.inter_token_p99_ms == ms(100)  # sorted[ceil(9.9) - 1]
    assert it.inter_token_max_ms == ms(100)
    assert it.inter_token_mean_ms == ms(55)


@pytest.mark.parametrize(
    ("gaps", "p50", "p90", "p99"),
    [([7], 7, 7, 7), ([1, 9], 9, 9, 9), ([1, 2, 3], 2, 3, 3), ([1, 2, 3, 4], 3, 4, 4)],
)
def test_few_gaps_are_enough(gaps: list[float], p50: float, p90: float, p99: float) -> None:
    # B207
    at = [0.0]
    for gap in gaps:
        at.append(at[-1] + gap)
    it = measured(at, ended_ms=at[-1])
    assert (it.inter_token_p50_ms, it.inter_token_p90_ms, it.inter_token_p99_ms) == (ms(p50), ms(p90), ms(p99))


def test_a_hundred_gaps_tell_the_ninety_ninth() -> None:
    at = [0.0]
    for gap in range(1, 101):
        at.append(at[-1] + gap)
    it = measured(at, ended_ms=at[-1])
    assert (it.inter_token_p50_ms, it.inter_token_p90_ms, it.inter_token_p99_ms) == (ms(51), ms(90), ms(99))


def test_the_end_of_the_stream_counts_not_the_last_chunk() -> None:
    # B208
    assert measured([10, 20], ended_ms=250).time_to_last_byte_ms == ms(250)


def test_reasoning_is_a_first_token_but_no_first_text() -> None:
    # B209
    it = measured([40, 90], ended_ms=100, first_text_at=STARTED + 0.090)
    assert (it.time_to_first_token_ms, it.time_to_first_text_ms) == (ms(40), ms(90))


def test_tokens_per_second_are_the_providers_count_over_the_time_of_decoding() -> None:
    # 20 tokens between the first chunk at 100 ms and the last byte at 500 ms
    assert measured([100, 200], ended_ms=500, output_tokens=20).output_tokens_per_second == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("at", "ended", "tokens"), [([100], 100, 20), ([], 100, 20), ([100], 500, None), ([100], 500, 0)]
)
def test_no_rate_without_a_count_or_an_interval(at: list[float], ended: float, tokens: int | None) -> None:
    assert measured(at, ended_ms=ended, output_tokens=tokens).output_tokens_per_second is None


def test_chunks_of_one_read_have_no_time_between_them() -> None:
    it = measured([10, 10, 10], ended_ms=10)
    assert (it.inter_token_max_ms, it.inter_token_mean_ms, it.chunk_count) == (0.0, 0.0, 3)


def test_metrics_are_frozen_and_start_out_unknown() -> None:
    it = LatencyMetrics()
    with pytest.raises(dataclasses.FrozenInstanceError):
        it.attempts = 2  # type: ignore[misc]  # what is tested
    known = {f.name: getattr(it, f.name) for f in dataclasses.fields(it) if getattr(it, f.name) is not None}
    assert known == {"chunk_count": 0, "attempts": 1}
