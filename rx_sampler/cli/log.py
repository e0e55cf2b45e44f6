"""`rx-sampler log`: a sampling log for people, one line per record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from datetime import date, datetime, tzinfo
from pathlib import Path
from typing import Any, Final, cast

from rx_sampler.telemetry.paths import default_log_path, log_path_from_env
from rx_sampler.telemetry.tail import LogTail
from rx_sampler.telemetry.words import clipped, words_of

from .options import UnusableError
from .output import Output
from .render import Piece, StyleName
from .sanitize import visible_json, visible_line

__all__ = ["LogLines", "chosen_path", "show_log"]

POLL_S: Final = 0.2
"""Soon enough to look immediate, rarely enough to cost nothing."""

_ID_CHARS: Final = 8
_NAME_CHARS: Final = 17
_MAX_NAME_CHARS: Final = 40
_BROKEN_CHARS: Final = 100
_LINES_PER_TURN: Final = 256

_STYLES: Final[Mapping[str, StyleName]] = {
    "completed": "tool",
    "failed": "error",
    "retries_exhausted": "error",
    "retrying": "warning",
    "images_stripped": "warning",
    "doom_loop_signals": "warning",
    "dropped": "warning",
    "dropped_by_subscriber": "warning",
}


def chosen_path(given: Path | None, environ: Mapping[str, str]) -> Path:
    """The log to show: the given one, else the one that the environment names, else the default one."""
    try:
        return given or log_path_from_env(environ) or default_log_path(environ)
    except RuntimeError:
        raise UnusableError("there is no home folder to look for a log in: give the path of one") from None


async def show_log(
    path: Path,
    lines: LogLines,
    output: Output,
    *,
    follow: bool = False,
    wait: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(POLL_S),
) -> int:
    """Write the log to `output`; with `follow` also what is still to come, awaiting `wait()` between two looks.

    Returns the exit code: 1 where records of one request were asked for and there are none. Raises `UnusableError`
    for a file that cannot be read; a missing one is awaited if it is followed.
    """
    try:
        with LogTail(path) as tail:
            try:
                tail.open()
            except FileNotFoundError:
                if not follow:
                    raise
                output.note(f"{_missing(path)}; waiting for it")
            async with aclosing(tail.follow(wait) if follow else _each(tail.lines())) as source:
                await _write(source, lines, output)
    except FileNotFoundError:
        raise UnusableError(_missing(path)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnusableError(f"log {path}: {error.strerror}") from None
    if lines.request is not None and not lines.shown:
        output.note(f"no record of a request {visible_line(lines.request)} in {visible_line(str(path))}", "warning")
        return 1
    return 0


async def _each(lines: Iterator[bytes]) -> AsyncGenerator[bytes]:
    for line in lines:
        yield line


async def _write(source: AsyncGenerator[bytes], lines: LogLines, output: Output) -> None:
    count = 0
    async for line in source:
        output.write(lines.feed(line))
        count += 1
        if count % _LINES_PER_TURN == 0:
            await asyncio.sleep(0)  # so that Ctrl-C ends a long file too


def _missing(path: Path) -> str:
    how = "it is switched on with RX_SAMPLER_LOG=1, or =PATH, where requests are made"
    return f"there is no log {visible_line(str(path))}: {how}"


class LogLines:
    """Lines of a log to pieces of output. Pure but for the time zone, which is the machine's unless one is given.

    `request` is the start of a request's id: then only its records are shown, and none that are broken. `as_json`
    gives the records as they are, for programs. State: the day of the last record.
    """

    def __init__(self, *, request: str | None = None, as_json: bool = False, zone: tzinfo | None = None) -> None:
        self.request = request
        self.shown = 0
        """How many records were shown."""
        self._as_json = as_json
        self._zone = zone
        self._day: date | None = None

    def feed(self, line: bytes) -> Iterator[Piece]:
        """What to show of a line, which comes without its line end; nothing of an empty one."""
        text = line.decode("utf-8", "backslashreplace").strip()
        if not text:
            return
        record = _record(text)
        if record is None:
            if self.request is None:
                start = visible_line(clipped(text, _BROKEN_CHARS))
                yield Piece("note" if self._as_json else "answer", "warning", f"not a whole record: {start}\n")
        elif self.request is None or _string(record, "request_id").startswith(self.request):
            self.shown += 1
            if self._as_json:
                yield Piece("answer", "text", f"{visible_json(text)}\n")
            else:
                yield from self._told(record)

    def _told(self, record: Mapping[str, Any]) -> Iterator[Piece]:
        at = _time(_string(record, "time"), self._zone)
        if at is not None and at.date() != self._day:
            self._day = at.date()
            yield Piece("answer", "label", f"{at:%Y-%m-%d}, times in {at:%Z}\n")
        clock = at.time().isoformat("milliseconds") if at is not None else "??:??:??.???"
        who = visible_line(_string(record, "request_id"))[:_ID_CHARS]
        yield Piece("answer", "summary", f"{clock}  {who:<{_ID_CHARS}}  ")
        name = _string(record, "record") or "?"
        words = visible_line(words_of(record))
        what = visible_line(clipped(name, _MAX_NAME_CHARS))
        yield Piece("answer", _STYLES.get(name, "text"), f"{what:<{_NAME_CHARS}}" if words else what)
        yield Piece("answer", "text", f"  {words}\n" if words else "\n")


def _record(text: str) -> Mapping[str, Any] | None:
    """The JSON object that a line is; None if it is none."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None  # JSON objects have str keys


def _string(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""


def _time(text: str, zone: tzinfo | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(zone)
    except (ValueError, OverflowError):
        return None
