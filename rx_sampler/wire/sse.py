"""Bytes to event-stream frames, by the WHATWG text.

Source: HTML standard, section 9.2.6 "Interpreting an event stream"
(https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation). Three departures, each
for servers that exist:

* At a clean end of the stream an event without its closing blank line is dispatched if its data is complete JSON or
  `[DONE]`; the standard discards it.
* A field `error` whose value is a JSON object, in an event without data, is dispatched as an event of that name; the
  standard ignores unknown fields.
* A body that is no event stream at all (a JSON answer or error, an HTML page) is dispatched whole at its end as one
  frame named `UNFRAMED`, so that a later stage can say what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from pydantic_core import from_json
from reactivex import Observable

from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.stage import Machine, through

__all__ = ["DEFAULT_MAX_FRAME_BYTES", "UNFRAMED", "SseFrame", "SseParser", "sse_frames"]

DEFAULT_MAX_FRAME_BYTES: Final = 64 * 2**20
"""Images and reasoning traces come as single events of several MiB; what is larger is an attack or a fault."""

UNFRAMED: Final = "unframed"

_BOM: Final = b"\xef\xbb\xbf"
_DONE: Final = b"[DONE]"


class SseFrame(NamedTuple):
    """One dispatched event: `data` is its data lines joined with LF, undecoded."""

    event: str
    data: bytes
    id: str


_new_frame: Final[Callable[[tuple[str, bytes, str]], SseFrame]] = partial(
    tuple.__new__,  # pyright: ignore[reportUnknownMemberType]
    SseFrame,
)
"""`SseFrame(*fields)` at a third of its cost: NamedTuple's own constructor is a Python function."""


# A dot is any byte but LF; possessive repeats, since there is nothing to go back for.
_PLAIN: Final = re.compile(rb"(?:(?:event: .*+\n)?+data: .*+\n\n){1,64}+")
_PLAIN_EVENT: Final = re.compile(rb"(?:event: (.*+)\n)?+data: (.*+)\n\n")


class _Names(dict[bytes, str]):
    """Event names met so far: a wire format has a few dozen; what a hostile server invents beyond is not kept."""

    def __missing__(self, value: bytes) -> str:
        name = value.decode("utf-8", "replace") or "message"
        if len(self) < 256 and len(value) <= 64:
            self[value] = name
        return name


_name_of: Final = _Names().__getitem__


class SseParser(Machine[bytes, SseFrame]):
    """The parser as a machine. Linear in bytes however they are cut.

    No line, no event's data and no unframed body may exceed `max_frame_bytes`; that is also what it holds at most of
    each.
    """

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max = max_frame_bytes
        self._line: list[bytes] = []  # pieces of the line that has no end yet: joined once, or it would be quadratic
        self._data: list[bytes] = []  # data lines of the open event
        self._line_bytes = self._data_bytes = 0
        self._open = False  # inside an event: some line came since the last blank one
        self._event = "message"
        self._id = ""
        self._error_value = b""
        self._after_cr = False  # the last byte was CR, which ended a line: a LF that follows belongs to it
        self._head: bytes | None = b""  # the first bytes, while a byte order mark may still be incomplete
        self._sniffing = True  # no byte but white space came yet
        self._unframed: list[bytes] | None = None  # a body that does not look like an event stream, kept whole
        self._unframed_bytes = 0

    def feed(self, item: bytes) -> Iterator[SseFrame]:
        try:
            data = self._from_open_line(item)
            start = 0
            while True:
                while not self._open and (plain := _PLAIN.match(data, start)):
                    if plain.end() - start > self._max:
                        break  # perhaps too large: line by line, then
                    # The road of nearly all bytes: whole events of one data line, perhaps with a name before it.
                    if self._unframed is not None:
                        self._be_framed(len(data) - plain.end())
                    names, values = zip(*_PLAIN_EVENT.findall(data, start, plain.end()), strict=True)
                    yield from map(_new_frame, zip(map(_name_of, names), values, repeat(self._id), strict=False))
                    start = plain.end()
                end = data.find(b"\n", start)
                if end < 0:
                    break
                if (frame := self._take_line(data[start:end])) is not None:
                    if self._unframed is not None:
                        self._be_framed(len(data) - end)
                    yield frame
                start = end + 1
            if start < len(data):
                self._hold(data[start:])
            if self._unframed is not None:
                self._check(self._unframed_bytes)
        except SamplingError as error:  # too large: what was whole before it still counts
            self.done, self.error = True, error

    def _from_open_line(self, data: bytes) -> bytes:
        """The bytes from the start of the open line on, with LF for all line ends; empty while no line has ended."""
        if self._sniffing:
            data = self._start(data)
        if self._unframed is not None:
            self._unframed.append(data)
        if data and self._after_cr:
            self._after_cr = False
            if data[0] == 10:
                data = data[1:]
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._unframed_bytes += len(data) if self._unframed is not None else 0
        if self._line:
            if b"\n" not in data:
                self._hold(data)
                return b""
            self._line.append(data)
            data = b"".join(self._line)
            self._line.clear()
            self._line_bytes = 0
        return data

    def finish(self) -> list[SseFrame]:
        if self._head:  # fewer bytes than a byte order mark has: no line can be in them
            self._line.append(self._head)
        try:
            if self._line:
                self._take_line(b"".join(self._line))
        except SamplingError as error:
            self.error = error
            return []
        if self._data and not _is_whole(b"\n".join(self._data)):
            self._data.clear()
        frame = self._dispatch()
        if frame is None and self._unframed:
            frame = SseFrame(UNFRAMED, b"".join(self._unframed), "")
        return [] if frame is None else [frame]

    def _start(self, data: bytes) -> bytes:
        # "The UTF-8 decode algorithm strips one leading UTF-8 Byte Order Mark", which a read may cut.
        if self._head is not None:
            data = self._head + data
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._head = data
                return b""
            self._head = None
            data = data.removeprefix(_BOM)
        if text := data.lstrip():
            self._sniffing = False
            if text[0] in b"{[<":
                self._unframed = []
                return text
        return data

    def _be_framed(self, bytes_after: int) -> None:
        """There is an event after all; what came before it had to fit, too, however it was cut."""
        self._check(self._unframed_bytes - bytes_after)
        self._unframed = None

    def _hold(self, piece: bytes) -> None:
        self._line.append(piece)
        self._line_bytes += len(piece)
        self._check(self._line_bytes)

    def _check(self, size: int) -> None:
        if size > self._max:
            raise SamplingError.of(
                SamplingErrorKind.SERIALIZATION,
                f"an event of the stream is larger than max_frame_bytes={self._max}",
                code="frame_too_large",
            )

    def _take_line(self, line: bytes) -> SseFrame | None:
        if not line:
            return self._dispatch()
        self._check(len(line))
        self._open = True
        name, colon, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
            self._check(self._data_bytes - 1)
        elif name == b"event":
            self._event = _name_of(value)
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name == b"error" and colon and value.lstrip()[:1] == b"{":
            self._error_value = value
        # Comments, `retry` (our own backoff rules) and unknown fields: nothing.
        return None

    def _dispatch(self) -> SseFrame | None:
        frame = None
        if self._data:
            frame = SseFrame(self._event, self._data[0] if len(self._data) == 1 else b"\n".join(self._data), self._id)
            self._data.clear()
        elif self._error_value:
            frame = SseFrame("error", self._error_value, self._id)
        self._data_bytes = 0
        self._open = False
        self._event = "message"
        self._error_value = b""
        return frame


def _is_whole(data: bytes) -> bool:
    """Whether the data of an event that was never closed is complete."""
    if data.strip() == _DONE:
        return True
    try:
        from_json(data)
    except ValueError:
        return False
    return True


def sse_frames(
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
) -> Callable[[Observable[bytes]], Observable[SseFrame]]:
    """Event-stream frames out of reads of any size.

    In: bytes as they arrive. Out: one `SseFrame` per event that has data; none for comments. Frames do not depend on
    where the reads were cut. Synchronous with the source, cold as it is; dispose disposes it. Errors: the source's;
    `SamplingError(serialization)` for an event larger than `max_frame_bytes`. Memory: one event.

        -"data: a\\n"--"\\ndata: b\\n\\nda"--"ta: c\\n\\n"-|
        --------------(ab)-------------------c-----------|
    """
    return through(lambda: SseParser(max_frame_bytes))
