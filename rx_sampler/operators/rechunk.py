"""Streams of events with the tokens of a channel cut differently, and legal like the ones they are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from rx_sampler.events import (
    AnnotationAdded,
    ChannelToken,
    Completed,
    Failed,
    FirstToken,
    ImagesStripped,
    ModelMetadata,
    ResponseStarted,
    Retrying,
    SamplingEvent,
    StreamStarted,
    TokenDraft,
    ToolCallDelta,
)

__all__ = ["Cutter", "Rechunker"]


class Cutter(Protocol):
    """Cuts the text of one channel and choice anew; pieces come with the channel that they are for, none empty."""

    held: list[str] | None
    """Where plain text goes, which does no more than make a piece longer; None while each text has to be looked at."""

    def feed(self, text: str, /) -> Sequence[tuple[str, str]]:
        """What `text` completes."""
        ...

    def finish(self) -> Sequence[tuple[str, str]]:
        """What is held back: something else comes now, or nothing more."""
        ...


C = TypeVar("C", bound=Cutter)

_NO_CONTENT: Final = frozenset({StreamStarted, ResponseStarted, ModelMetadata, ImagesStripped})


class Rechunker(Generic[C]):
    """One request's events with the tokens of `channel` cut by a cutter per choice.

    All other events pass in their place, behind what was held back of the same choice (of any, where an event does not
    say which). Tokens of all channels are numbered anew, the first is announced anew, and each has the time of the
    event that completed it. `Retrying` drops what is held back. `is_plain` tells the texts that a cutter with a place
    for them need not see.
    """

    def __init__(
        self, channel: str, make: Callable[[], C], is_plain: Callable[[str], bool] = lambda _text: False
    ) -> None:
        self._channel = channel
        self._make = make
        self._is_plain = is_plain
        self._cutters: dict[int, C] = {}
        self._next = -1
        """The number of the next token that comes out; -1 before the first."""
        self._last: SamplingEvent | None = None

    def feed(self, item: SamplingEvent) -> Iterable[SamplingEvent] | SamplingEvent:
        self._last = item
        if type(item) is not ChannelToken:
            return self._no_token(item)
        cutter = self._cutters.get(item.choice)
        if item.channel == self._channel:
            if cutter is None:
                cutter = self._cutters[item.choice] = self._make()
            text, held, is_plain = item.text, cutter.held, self._is_plain
            if held is not None and is_plain(text):
                held.append(text)
                return ()
            pieces = cutter.feed(text)
            return self._tokens(item, item.choice, pieces) if pieces else ()
        if cutter is not None and (pieces := cutter.finish()):
            return [*self._tokens(item, item.choice, pieces), *self._whole(item)]
        if item.chunk_index == self._next:
            self._next += 1
            return item
        return self._whole(item)

    def _no_token(self, item: SamplingEvent) -> Iterable[SamplingEvent] | SamplingEvent:
        kind = item.__class__
        if kind is FirstToken:
            return ()
        if kind in _NO_CONTENT:
            return item
        if kind is Retrying:
            self._cutters = {}
            self._next = -1
            return item
        if isinstance(item, ToolCallDelta):
            return [*self._flushed(item, item.choice), item]
        out = self._all_flushed(item)
        if isinstance(item, Completed | Failed):
            item = self.ended(item)
        elif isinstance(item, AnnotationAdded):
            item = self.annotated(item)
        return [*out, item]

    def finish(self) -> Iterable[SamplingEvent]:
        return self._all_flushed(self._last) if self._last is not None else ()

    def spill(self) -> Iterable[SamplingEvent]:
        return self.finish()

    def ended(self, event: Completed | Failed) -> SamplingEvent:
        """The terminal event as it passes."""
        return event

    def annotated(self, event: AnnotationAdded) -> SamplingEvent:
        """An annotation as it passes."""
        return event

    def _all_flushed(self, cause: SamplingEvent) -> list[SamplingEvent]:
        return [event for choice in self._cutters for event in self._flushed(cause, choice)]

    def _flushed(self, cause: SamplingEvent, choice: int) -> list[SamplingEvent]:
        cutter = self._cutters.get(choice)
        pieces = cutter.finish() if cutter is not None else ()
        return self._tokens(cause, choice, pieces) if pieces else []

    def _tokens(self, cause: SamplingEvent, choice: int, pieces: Sequence[tuple[str, str]]) -> list[SamplingEvent]:
        out: list[SamplingEvent] = []
        request_id, attempt, ts, turn = cause.request_id, cause.attempt, cause.ts, cause.turn
        index = self._next
        if index < 0:
            out.append(FirstToken(request_id=request_id, attempt=attempt, ts=ts, turn=turn, channel=pieces[0][0]))
            index = 1
        for channel, text in pieces:
            draft: Any = TokenDraft(request_id, attempt, ts, channel, text, index, choice)
            draft.turn = turn
            draft.__class__ = ChannelToken
            out.append(draft)
            index += 1
        self._next = index
        return out

    def _whole(self, token: ChannelToken) -> list[SamplingEvent]:
        """A token as it is, with its new number."""
        return self._tokens(token, token.choice, ((token.channel, token.text),))
