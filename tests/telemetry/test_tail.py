"""Reading a log to its end and beyond."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.telemetry.tail import LineSplitter, LogTail


def split(pieces: Sequence[bytes], max_line_bytes: int = 1000) -> list[bytes]:
    splitter = LineSplitter(max_line_bytes)
    return [line for piece in pieces for line in splitter.feed(piece)] + list(splitter.finish())


@given(st.lists(st.binary(max_size=8).map(lambda data: data.replace(b"\r", b"\n")), max_size=30))
def test_lines_do_not_depend_on_the_reads(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    expected = whole.split(b"\n")
    assert split(pieces) == (expected if expected[-1] else expected[:-1])


def test_what_has_no_line_ends_is_given_out_in_pieces() -> None:
    assert split([b"aaaa", b"aaaa", b"aaaa", b"\n", b"b\n"], max_line_bytes=6) == [b"aaaaaaaa", b"aaaa", b"b"]


class EnoughError(Exception):
    """Ends a test that follows a file."""


async def followed(path: Path, *meanwhile: Callable[[], object]) -> list[bytes]:
    """The lines seen when one thing happens at each wait; there is one more look after the last."""
    found: list[bytes] = []
    left = list(meanwhile)

    async def wait() -> None:
        if not left:
            raise EnoughError
        left.pop(0)()

    with LogTail(path) as tail, suppress(EnoughError):
        async with aclosing(tail.follow(wait)) as lines:
            async for line in lines:
                found.append(line)  # noqa: PERF401  # what was found before the end is wanted
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def appending(path: Path, data: bytes) -> Callable[[], object]:
    def append() -> None:
        with path.open("ab") as file:
            file.write(data)

    return append


def moving(path: Path, then: bytes | None) -> Callable[[], object]:
    def move() -> None:
        path.rename(path.with_suffix(".1"))
        if then is not None:
            path.write_bytes(then)

    return move


def both(*actions: Callable[[], object]) -> Callable[[], object]:
    return lambda: [action() for action in actions]


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def test_lines_of_a_file_and_the_last_one_without_its_end(path: Path) -> None:
    write(path, b"a\n\nb\nhal")
    with LogTail(path) as tail:
        assert list(tail.lines()) == [b"a", b"", b"b", b"hal"]


def test_a_missing_file(path: Path) -> None:
    with LogTail(path) as tail, pytest.raises(FileNotFoundError):
        list(tail.lines())


async def test_what_is_written_is_seen_line_by_line(path: Path) -> None:
    write(path, b"a\nb")
    assert await followed(path, appending(path, b"b\nc"), lambda: None, appending(path, b"c\n")) == [b"a", b"bb", b"cc"]


async def test_a_file_that_comes_later_is_awaited(path: Path) -> None:
    assert await followed(path, lambda: None, appending(path, b"a\n")) == [b"a"]


async def test_a_file_moved_aside_is_read_to_its_end_and_then_its_successor(path: Path) -> None:
    write(path, b"a\n")
    rotated = both(appending(path, b"b\nhal"), moving(path, b"c\n"))
    assert await followed(path, rotated, appending(path, b"d\n")) == [b"a", b"b", b"hal", b"c", b"d"]


async def test_between_the_move_and_the_successor_it_waits(path: Path) -> None:
    write(path, b"a\n")
    assert await followed(path, moving(path, None), lambda: None, appending(path, b"b\n")) == [b"a", b"b"]


async def test_a_removed_file_that_comes_again(path: Path) -> None:
    write(path, b"a\n")
    assert await followed(path, path.unlink, appending(path, b"b\n")) == [b"a", b"b"]


async def test_a_truncated_file_is_read_anew_without_the_half_line(path: Path) -> None:
    write(path, b"a\nbbb\nhal")
    assert await followed(path, lambda: path.write_bytes(b"c\n")) == [b"a", b"bbb", b"c"]


async def test_the_file_is_closed_when_the_reader_leaves(path: Path) -> None:
    write(path, b"a\nb\n")
    with LogTail(path) as tail:
        async with aclosing(tail.follow(pytest.fail)) as lines:
            assert await anext(lines) == b"a"
    # a file left open is a ResourceWarning, which is an error here
