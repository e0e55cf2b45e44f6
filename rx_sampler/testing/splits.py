"""The ways to cut a stream of bytes into reads: what a parser says must not depend on them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

__all__ = ["every_split", "random_splits"]


def every_split(data: bytes) -> Iterator[list[bytes]]:
    """`data` whole, byte by byte, and cut in two at every place. No read is empty unless `data` is.

    Gives `len(data) + 1` lists: meant for kilobytes, not megabytes.
    """
    yield [data]
    if len(data) > 1:
        yield [data[i : i + 1] for i in range(len(data))]
    for cut in range(1, len(data)):
        yield [data[:cut], data[cut:]]


def random_splits(data: bytes, seed: int, count: int) -> Iterator[list[bytes]]:
    """`count` ways to cut `data`, the same ones for the same seed, from a few long reads to many short ones."""
    chance = Random(seed)  # noqa: S311 - chance for a test, no secret
    places = range(1, len(data))
    for _ in range(count):
        # The power spreads the number of cuts over the orders of magnitude: plain chance would give short reads only.
        cuts = sorted(chance.sample(places, int(len(places) ** chance.random()))) if places else []
        yield [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
