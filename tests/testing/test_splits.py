"""The ways to cut: complete, lossless, repeatable."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.testing import every_split, random_splits


def test_every_split_is_whole_bytewise_and_every_single_cut() -> None:
    assert list(every_split(b"abc")) == [[b"abc"], [b"a", b"b", b"c"], [b"a", b"bc"], [b"ab", b"c"]]


@pytest.mark.parametrize(("data", "splits"), [(b"", [[b""]]), (b"a", [[b"a"]])])
def test_what_cannot_be_cut_comes_once(data: bytes, splits: list[list[bytes]]) -> None:
    assert list(every_split(data)) == splits
    assert list(random_splits(data, seed=1, count=2)) == [*splits, *splits]


@given(st.binary(max_size=40))
def test_every_split_loses_nothing_and_reads_nothing_empty(data: bytes) -> None:
    for reads in every_split(data):
        assert b"".join(reads) == data
        assert all(reads) or not data


@given(st.binary(min_size=1, max_size=300), st.integers(0, 10))
def test_random_splits_lose_nothing_and_repeat(data: bytes, seed: int) -> None:
    splits = list(random_splits(data, seed, 20))
    assert len(splits) == 20
    assert all(b"".join(reads) == data and all(reads) for reads in splits)
    assert splits == list(random_splits(data, seed, 20))


def test_random_splits_differ_by_seed_and_within_a_run() -> None:
    data = bytes(range(200))
    splits = list(random_splits(data, 1, 50))
    assert splits != list(random_splits(data, 2, 50))
    assert all(a != b for a, b in pairwise(splits))
    counts = sorted(len(reads) for reads in splits)
    assert counts[0] < 10
    assert counts[-1] > 60
