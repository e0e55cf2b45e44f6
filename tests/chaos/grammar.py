"""What a storm says of events: whether they are in order, what they said, and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence

from rx_sampler import ChannelToken, Completed, DoomLoopSignals, Failed, Retrying, SamplingEvent
from rx_sampler.testing.grammar import GrammarError, check_events

__all__ = ["broken_rule", "last_text", "shown"]


def broken_rule(events: Sequence[SamplingEvent], *, whole: bool) -> str | None:
    """What is wrong with these events of one request, if something is; `whole` ones reach their terminal event."""
    try:
        check_events(events, whole=whole)
    except GrammarError as error:
        return str(error)
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
