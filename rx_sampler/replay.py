"""What a request has said so far, for those who come late: all of it, in bounded memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from .events import ChannelToken, SamplingEvent, ToolCallDelta

__all__ = ["History"]

VERBATIM: Final = 1024
"""How many events are kept as they came; beyond, runs of tokens become one token of the same text."""


class _Run:
    """Tokens of one channel in a row, as columns: little memory, and nothing for the garbage collector to walk."""

    __slots__ = ("first", "last_index", "stamps", "texts")

    def __init__(self, first: ChannelToken) -> None:
        self.first = first
        self.texts = [first.text]
        self.stamps = array("d", (first.ts,))
        self.last_index = first.chunk_index

    def goes_on_with(self, token: ChannelToken) -> bool:
        first = self.first
        return (
            token.chunk_index == self.last_index + 1
            and token.channel == first.channel
            and token.choice == first.choice
            and token.attempt == first.attempt
        )

    def append(self, token: ChannelToken) -> None:
        self.texts.append(token.text)
        self.stamps.append(token.ts)
        self.last_index = token.chunk_index

    def __iter__(self) -> Iterator[ChannelToken]:
        index = self.first.chunk_index
        for number, (text, ts) in enumerate(zip(self.texts, self.stamps, strict=True)):
            yield replace(self.first, text=text, ts=ts, chunk_index=index + number)


class History:
    """The events of one request in order.

    Memory is the answer's text and `VERBATIM` events at least; where joining tokens does not help, the next try waits
    until twice as many events are there, so that the cost stays linear.
    """

    def __init__(self) -> None:
        self._parts: list[SamplingEvent | _Run] = []
        self._run: _Run | None = None
        """The last part, if it is a run."""
        self._count = 0
        self._full_at = VERBATIM

    def __iter__(self) -> Iterator[SamplingEvent]:
        for part in self._parts:
            if isinstance(part, _Run):
                yield from part
            else:
                yield part

    def __len__(self) -> int:
        return self._count

    def append(self, event: SamplingEvent) -> None:
        if isinstance(event, ChannelToken):
            if self._run is not None and self._run.goes_on_with(event):
                self._run.append(event)
            else:
                self._run = _Run(event)
                self._parts.append(self._run)
        else:
            self._run = None
            self._parts.append(event)
        self._count += 1
        if self._count >= self._full_at:
            self._parts = list(_joined(self))
            self._run = None
            self._count = len(self._parts)
            self._full_at = max(VERBATIM, 2 * self._count)


def _joined(events: Iterable[SamplingEvent]) -> Iterator[SamplingEvent]:
    """The same events, each run of one channel's or one call's fragments as a single one."""
    run: list[SamplingEvent] = []
    for event in events:
        if run and _key(event) != _key(run[0]):
            yield _one(run)
            run = []
        run.append(event)
    if run:
        yield _one(run)


def _key(event: SamplingEvent) -> object:
    if isinstance(event, ChannelToken):
        return event.attempt, event.channel, event.choice
    if isinstance(event, ToolCallDelta) and event.id is None and event.name is None:
        return event.attempt, event.tool_index, event.choice
    return id(event)


def _one(run: list[SamplingEvent]) -> SamplingEvent:
    last = run[-1]
    if len(run) == 1:
        return last
    if isinstance(last, ChannelToken):
        return replace(last, text="".join(event.text for event in run if isinstance(event, ChannelToken)))
    fragments = [event.arguments_delta or "" for event in run if isinstance(event, ToolCallDelta)]
    return replace(last, arguments_delta="".join(fragments)) if isinstance(last, ToolCallDelta) else last
