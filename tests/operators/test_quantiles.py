"""The sketch behind `latency_stats`: its bound against sorted lists, merging, and how large it can grow."""

from __future__ import annotations

import math
import sys
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.operators.quantiles import Quantiles, Sketch

SHARES: Final = {"p50_ms": 0.50, "p90_ms": 0.90, "p99_ms": 0.99}

VALUES: Final = st.lists(
    st.one_of(
        st.floats(1e-3, 1e9),
        st.floats(0.1, 1000.0),
        st.integers(0, 50).map(float),
        st.sampled_from([0.0, 1e-3, 1.0, 1e9]),
    ),
    min_size=1,
    max_size=120,
)


def sketch_of(values: list[float]) -> Sketch:
    sketch = Sketch()
    for begin in range(0, len(values), 7):
        sketch.add(*values[begin : begin + 7])
    return sketch


def quantiles_of(values: list[float]) -> Quantiles:
    found = sketch_of(values).quantiles()
    assert found is not None
    return found


def nearest_rank(values: list[float], share: float) -> float:
    """By the definition in metrics.py."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if share == 0.5 else ordered[math.ceil(share * len(ordered)) - 1]


def test_nothing_was_counted() -> None:
    assert Sketch().quantiles() is None


@pytest.mark.parametrize("value", [0.0, 0.001, 1.0, 7.3, 12345.678, 1e9])
def test_one_value_is_exact(value: float) -> None:
    assert quantiles_of([value]) == Quantiles(
        count=1, mean_ms=value, min_ms=value, p50_ms=value, p90_ms=value, p99_ms=value, max_ms=value
    )


def test_ranks_of_a_hundred_values() -> None:
    # Of 1, 2, ..., 100: sorted[50], sorted[89], sorted[98].
    found = quantiles_of([float(value) for value in range(100, 0, -1)])
    assert (found.count, found.mean_ms, found.min_ms, found.max_ms) == (100, 50.5, 1.0, 100.0)
    assert found.p50_ms == pytest.approx(51.0, rel=0.01)
    assert found.p90_ms == pytest.approx(90.0, rel=0.01)
    assert found.p99_ms == pytest.approx(99.0, rel=0.01)


def test_the_median_of_two_is_the_upper_one() -> None:
    found = quantiles_of([1.0, 100.0])
    assert (found.p50_ms, found.p90_ms) == pytest.approx((100.0, 100.0), rel=0.01)


@given(VALUES)
def test_quantiles_are_within_one_percent_of_nearest_rank(values: list[float]) -> None:
    found = quantiles_of(values)
    for name, share in SHARES.items():
        assert getattr(found, name) == pytest.approx(nearest_rank(values, share), rel=0.01 + 1e-9, abs=0.0), name
    assert found.count == len(values)
    assert (found.min_ms, found.max_ms) == (min(values), max(values))
    assert found.mean_ms == pytest.approx(math.fsum(values) / len(values), rel=1e-9)
    assert found.min_ms <= found.p50_ms <= found.p90_ms <= found.p99_ms <= found.max_ms


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_merging_counts_as_if_all_had_been_counted_by_one(parts: list[list[float]]) -> None:
    merged = Sketch()
    merged.merge(Sketch())
    for part in parts:
        merged.merge(sketch_of(part))
    found, whole = merged.quantiles(), quantiles_of([value for part in parts for value in part])
    assert found is not None
    assert found.mean_ms == pytest.approx(whole.mean_ms, rel=1e-9)
    for name in ("count", "min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms"):
        assert getattr(found, name) == getattr(whole, name), name


def test_merging_leaves_the_other_as_it_was() -> None:
    one, other = sketch_of([1.0]), sketch_of([2.0])
    one.merge(other)
    one.add(3.0)
    assert other.quantiles() == quantiles_of([2.0])


def test_values_out_of_its_range_count_and_keep_within_what_was_seen() -> None:
    found = quantiles_of([1e-9, 1e-6, 1e12, 1e15])
    assert (found.count, found.min_ms, found.max_ms) == (4, 1e-9, 1e15)
    assert 1e9 * 0.99 <= found.p50_ms <= 1e15
    assert quantiles_of([1e-6, 1e-5, 1e-4]).p50_ms < 1e-3


def test_it_does_not_grow_beyond_its_buckets() -> None:
    many = [10 ** (exponent / 4000) for exponent in range(-40_000, 60_000)]
    few = sketch_of(many)
    buckets = few._buckets  # pyright: ignore[reportPrivateUsage]
    assert len(buckets) <= 1384
    assert len(buckets) > 1300  # the range was covered
    assert sys.getsizeof(buckets) < 100_000
