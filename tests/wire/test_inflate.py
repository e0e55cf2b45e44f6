"""Content codings, piece by piece."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.testing import every_split, random_splits
from rx_sampler.wire.inflate import Inflater, inflater_for

TEXT = b"data: a\n\ndata: " + "ä東🦀".encode() * 20 + b"\n\n"


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def flushed_gzip(*pieces: bytes) -> list[bytes]:
    """As a server sends events: a flush after each."""
    packer = zlib.compressobj(wbits=31)
    return [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces] + [packer.flush()]


CODED = {"gzip": gzip.compress(TEXT), "x-gzip": gzip.compress(TEXT), "deflate": zlib.compress(TEXT)}


def inflated(coding: str, reads: Iterable[bytes]) -> bytes:
    inflater = inflater_for(coding)
    assert inflater is not None
    return b"".join(piece for read in reads for piece in inflater.feed(read))


@pytest.mark.parametrize("coding", CODED)
def test_each_coding_at_every_split(coding: str) -> None:
    for reads in every_split(CODED[coding]):
        assert inflated(coding, reads) == TEXT, reads


def test_deflate_without_its_wrapper() -> None:
    # RFC 9110, section 8.4.1.2: "Some non-conformant implementations send the "deflate" compressed data without the
    # zlib wrapper."
    assert inflated("deflate", [raw_deflate(TEXT)]) == TEXT
    assert inflated("deflate", [raw_deflate(b"a")]) == b"a"


def test_deflate_without_its_wrapper_at_every_split() -> None:
    for reads in every_split(raw_deflate(TEXT)):
        assert inflated("deflate", reads) == TEXT, reads


def test_several_gzip_members_are_one_body() -> None:
    body = gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(b"two")
    for reads in every_split(body):
        assert inflated("gzip", reads) == b"onetwo", reads


def test_each_event_comes_as_soon_as_it_was_flushed() -> None:
    inflater = Inflater("gzip")
    first, second, end = flushed_gzip(b"data: a\n\n", b"data: b\n\n")
    assert list(inflater.feed(first)) == [b"data: a\n\n"]
    assert list(inflater.feed(second)) == [b"data: b\n\n"]
    assert list(inflater.feed(end)) == []


def test_what_follows_a_deflate_stream_is_ignored() -> None:
    assert inflated("deflate", [zlib.compress(b"a") + b"junk"]) == b"a"


def test_a_bomb_comes_in_pieces() -> None:
    size = 64 * 2**20
    pieces = Inflater("gzip").feed(gzip.compress(bytes(size)))
    assert len(next(pieces)) <= 256 * 1024
    assert all(len(piece) <= 256 * 1024 for piece in pieces)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_corrupt_data_is_a_failure_of_the_transport(coding: str) -> None:
    with pytest.raises(SamplingError) as caught:
        inflated(coding, [b"\xff" * 20])
    assert (caught.value.info.kind, caught.value.info.is_retryable) == (SamplingErrorKind.HTTP, True)
    assert "content coding is corrupt" in caught.value.info.message
    assert isinstance(caught.value.__cause__, zlib.error)


def test_data_before_the_corruption_comes_first() -> None:
    inflater = Inflater("gzip")
    first, second, _ = flushed_gzip(b"data: a\n\n", bytes(range(256)))
    assert list(inflater.feed(first)) == [b"data: a\n\n"]
    with pytest.raises(SamplingError):
        list(inflater.feed(b"\xff" * len(second)))


@given(st.binary(min_size=1, max_size=60), st.sampled_from(["gzip", "deflate"]), st.integers(0, 99))
def test_any_bytes_are_decoded_or_refused(body: bytes, coding: str, seed: int) -> None:
    for reads in [[body], *random_splits(body, seed, 3)]:
        with suppress(SamplingError):
            inflated(coding, reads)


@pytest.mark.parametrize("coding", ["", "identity", " Identity "])
def test_no_coding_needs_no_decoder(coding: str) -> None:
    assert inflater_for(coding) is None


@pytest.mark.parametrize("coding", ["GZIP", " gzip ", "X-Gzip"])
def test_names_are_read_in_any_case(coding: str) -> None:
    assert inflated(coding, [CODED["gzip"]]) == TEXT


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "x" * 100])
def test_what_cannot_be_undone_is_named(coding: str) -> None:
    with pytest.raises(SamplingError) as caught:
        inflater_for(coding)
    assert caught.value.kind is SamplingErrorKind.HTTP
    assert repr(coding[:40]) in caught.value.info.message
    assert not caught.value.info.is_retryable
