"""A file of JSON lines that is moved aside when it is full, and found again when somebody else moved it."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from math import isfinite
from pathlib import Path
from typing import Final, cast

__all__ = ["LineFile", "json_line"]

_BUFFER_BYTES: Final = 64 * 1024
"""A line up to this size reaches the file in one write, so that lines of several processes do not mix."""


class LineFile(RotatingFileHandler):
    """The file at a path: opened when there is something to write, and again when it was moved or removed."""

    def __init__(self, path: Path, max_bytes: int, backup_count: int) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=backup_count, encoding="utf-8", delay=True)
        self._error: Exception | None = None

    def write(self, line: str) -> Exception | None:
        """Append a line and flush it; the error if that failed."""
        self._error = None
        self.handle(logging.LogRecord("rx_sampler", logging.INFO, "", 0, line, None, None))
        return self._error

    def format(self, record: logging.LogRecord) -> str:
        return record.msg

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802  # the name is logging's
        if self.stream is not None and self._is_elsewhere(self.stream):
            self._abandon()
        if self.stream is None:
            self.stream = self._open()
        size = os.fstat(self.stream.fileno()).st_size
        # An empty file is not moved: a single line may be larger than any file should be.
        return size > 0 and 0 < self.maxBytes < size + len(record.msg) + 1

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  # called within an except clause
        self._error = cast("Exception", sys.exc_info()[1])  # logging's emit catches nothing else
        self._abandon()

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        torn = _ends_within_a_line(path)
        stream = open(path, "a", buffering=_BUFFER_BYTES, encoding="utf-8", opener=_for_the_owner)  # noqa: SIM115  # it outlives this
        if torn:
            stream.write("\n")
        return stream

    def _is_elsewhere(self, stream: TextIOWrapper) -> bool:
        """Whether the path no longer leads to the open file: removed, or moved by another process."""
        try:
            there = Path(self.baseFilename).stat()
        except OSError:
            return True
        here = os.fstat(stream.fileno())
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)

    def _abandon(self) -> None:
        stream, self.stream = self.stream, None  # pyright: ignore[reportAttributeAccessIssue]  # as delay=True leaves it
        if stream is not None:
            with suppress(OSError, ValueError):  # it may try once more to write what failed
                stream.close()


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _ends_within_a_line(path: Path) -> bool:
    """Whether a crash or a full disk left half a line, which the next one must not be glued to."""
    try:
        if not stat.S_ISREG(path.stat().st_mode) or not path.stat().st_size:
            return False
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False


def json_line(record: Mapping[str, object]) -> str:
    """A record on one line of ASCII: what a terminal could obey is escaped."""
    try:
        return json.dumps(record, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(record), allow_nan=False, separators=(",", ":"))


def _finite(value: object) -> object:
    """JSON without the numbers that JSON has not: null in place of infinity."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in cast("dict[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in cast("list[object]", value)]
    return value
