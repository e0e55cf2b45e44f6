"""What the events of one request have to look like: a pure check that names the first event out of order."""

from __future__ import annotations

from collections.abc import Sequence

from rx_sampler import (
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    FirstToken,
    ImagesStripped,
    Retrying,
    SamplingErrorKind,
    SamplingEvent,
    StreamStarted,
)

__all__ = ["broken_rule", "last_text", "shown"]


def broken_rule(events: Sequence[SamplingEvent], *, whole: bool) -> str | None:
    """What is wrong with these events of one request, if something is; `whole` ones reach their terminal event."""
    reader = _Reader()
    for position, event in enumerate(events):
        if (wrong := reader.read(event)) is not None:
            return f"event {position} ({event.kind}): {wrong}"
    if whole and not reader.ended:
        return f"no terminal event, the last of {len(events)} is {events[-1].kind if events else 'none'}"
    return None


def last_text(events: Sequence[SamplingEvent]) -> str:
    """The text that the last attempt streamed."""
    pieces: list[str] = []
    for event in events:
        if isinstance(event, Retrying):
            pieces.clear()
        elif isinstance(event, ChannelToken) and event.channel == "text":
            pieces.append(event.text)
    return "".join(pieces)


def shown(events: Sequence[SamplingEvent]) -> str:
    """The events in a line each, with the seconds since the first."""
    return "\n".join(f"    {event.ts - events[0].ts:7.3f}  #{event.attempt} {_words(event)}" for event in events)


def _words(event: SamplingEvent) -> str:
    match event:
        case ChannelToken():
            return f"{event.kind} {event.channel} {event.chunk_index} {event.text!r}"
        case Retrying():
            count = f"{event.budget} {event.retry}/{event.max_retries}"
            return f"{event.kind} {count} in {event.backoff_s:.3f} s: {event.error_kind}, {event.reason}"
        case Failed():
            partial = None if event.partial is None else event.partial.text
            return f"{event.kind} {event.error.kind} {event.error.code}: {event.error.message}, partial {partial!r}"
        case Completed():
            return f"{event.kind} {event.response.text!r}"
        case DoomLoopSignals():
            return f"{event.kind} {event.triggers}"
        case _:
            return event.kind


class _Reader:
    """Reads events one by one and says what is wrong with the one in hand."""

    def __init__(self) -> None:
        self.ended = False
        self._request_id: str | None = None
        self._ts = 0.0
        self._spent = {"transport": 0, "rate_limit": 0, "doom_loop": 0}
        self._stripped = False
        self._begin_attempt(1)

    def _begin_attempt(self, number: int) -> None:
        self._attempt = number
        self._started = False
        self._first_token = False
        self._chunks = 0
        self._text: list[str] = []
        self._closing: str | None = None
        """What was said that only a retry or the end may follow."""

    def read(self, event: SamplingEvent) -> str | None:
        if self.ended:
            return "comes after the terminal event"
        if self._request_id not in (None, event.request_id):
            return f"is of request {event.request_id}, the others are of {self._request_id}"
        self._request_id = event.request_id
        if event.ts < self._ts:
            return f"ts {event.ts} is before {self._ts}"
        self._ts = event.ts
        if event.attempt != self._attempt:
            return f"attempt is {event.attempt}, expected {self._attempt}"
        return self._of_its_kind(event)

    def _of_its_kind(self, event: SamplingEvent) -> str | None:
        match event:
            case Completed() | Failed():
                return self._end(event)
            case Retrying():
                return self._retry(event)
            case ImagesStripped():
                if self._stripped:
                    return "is the request's second"
                self._stripped = True
                # It follows from the failure, as the signals do, and comes behind them.
                if self._closing not in (None, "doom_loop_signals"):
                    return f"follows {self._closing}"
                self._closing = event.kind
                return None
            case DoomLoopSignals():
                if self._closing is not None:
                    return f"follows {self._closing}"
                self._closing = event.kind
                return None
            case _:
                pass
        if self._closing is not None:
            return f"follows {self._closing}, after which only a retry or the end may come"
        match event:
            case StreamStarted():
                if self._started:
                    return "is the attempt's second"
                self._started = True
            case FirstToken():
                if self._first_token:
                    return "is the attempt's second"
                if self._chunks:
                    return "comes after a token"
                self._first_token = True
            case ChannelToken():
                return self._token(event)
            case _:
                pass
        return None if self._started else "comes before stream_started"

    def _token(self, event: ChannelToken) -> str | None:
        if not self._first_token:
            return "comes before first_token"
        self._chunks += 1
        if event.chunk_index != self._chunks:
            return f"chunk_index is {event.chunk_index}, expected {self._chunks}"
        if not event.text:
            return "is empty"
        if event.channel == "text":
            self._text.append(event.text)
        return None

    def _retry(self, event: Retrying) -> str | None:
        if event.next_attempt != self._attempt + 1:
            return f"next_attempt is {event.next_attempt}, expected {self._attempt + 1}"
        most = event.max_retries
        if not 1 <= event.retry <= most:
            return f"retry {event.retry} of the budget {event.budget} is not within 1..{most}"
        self._spent[event.budget] += 1
        # 429s count in a row, so a request may have more of them.
        if event.budget != "rate_limit" and self._spent[event.budget] > most:
            return f"is number {self._spent[event.budget]} of the budget {event.budget}, which has {most}"
        if event.backoff_s < 0:
            return f"backoff_s is {event.backoff_s}"
        self._begin_attempt(event.next_attempt)
        return None

    def _end(self, event: Completed | Failed) -> str | None:
        self.ended = True
        streamed = "".join(self._text)
        if isinstance(event, Completed):
            if not self._started:
                return "comes before stream_started"
            if event.response.text != streamed:
                return f"response.text is {event.response.text!r}, streamed was {streamed!r}"
            return None
        partial = event.partial.text if event.partial is not None else ""
        # Cancelled from inside on_next, a request has read what the event in hand is followed by.
        is_ahead = event.error.kind is SamplingErrorKind.CANCELLED and partial.startswith(streamed)
        return None if partial == streamed or is_ahead else f"partial text is {partial!r}, streamed was {streamed!r}"
