"""Reading a log that is being written: its lines, and those to come, over rotations and truncations."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

__all__ = ["LineSplitter", "LogTail"]

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""More than any record has, whole conversations included; what is longer is no log and is given out in pieces."""

_READ_BYTES: Final = 256 * 1024


class LineSplitter:
    """Bytes to lines, however the reads cut them. Linear; holds at most one unfinished line."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that end in `data`, without their line ends."""
        first, *more = data.split(b"\n")
        self._hold(first)
        for piece in more:
            yield self._line()
            self._hold(piece)
        if self._held > self._max:
            yield self._line()

    def finish(self) -> Iterator[bytes]:
        """What came after the last line end, if anything did."""
        if self._held:
            yield self._line()

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._held += len(piece)

    def _line(self) -> bytes:
        line = b"".join(self._pieces)
        self._pieces.clear()
        self._held = 0
        return line


class LogTail:
    """The lines of a file from its beginning; `follow` goes on with those that are still to be written.

    Raises OSError where the file cannot be opened or read. Close it, or use it as a context manager.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._lines = LineSplitter()

    def open(self) -> BinaryIO:
        """The file, opened if it is not yet, so that it is known to be there."""
        if self._file is None:
            self._file = self._path.open("rb")
        return self._file

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def lines(self) -> Iterator[bytes]:
        """The lines there are; the last one also where its line end is missing."""
        yield from self._read(self.open())
        yield from self._lines.finish()

    async def follow(self, wait: Callable[[], Awaitable[object]]) -> AsyncGenerator[bytes]:
        """The lines there are and those to come, without end; awaits `wait()` whenever there is nothing to read.

        A line comes when its end is written. A file that was moved aside is read to its end, the half line that may
        stand there included, then the one that took its place; a truncated one is read anew. A missing one is
        awaited. Of several rotations between two looks, the files in the middle are not seen.
        """
        while True:
            try:
                file = self.open()
            except FileNotFoundError:
                await wait()
                continue
            moved = self._is_elsewhere(file)  # before reading, which so includes all that was written before the move
            for line in self._read(file):
                yield line
            if not moved:
                await wait()
                continue
            for line in self._lines.finish():
                yield line
            self.close()

    def _read(self, file: BinaryIO) -> Iterator[bytes]:
        if os.fstat(file.fileno()).st_size < file.tell():  # truncated
            self._lines = LineSplitter()
            file.seek(0)
        while data := file.read(_READ_BYTES):
            yield from self._lines.feed(data)

    def _is_elsewhere(self, file: BinaryIO) -> bool:
        """Whether another file took the place of the open one. Not while there is none: it may be about to come."""
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        here = os.fstat(file.fileno())
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)
