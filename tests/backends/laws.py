"""What must hold for the events of any stream whatever, legal or not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from rx_sampler import (
    ChannelToken,
    Completed,
    Failed,
    FirstToken,
    SamplingEvent,
    SamplingResponse,
    StreamStarted,
    ToolCallDelta,
    event_from_json,
    event_to_json,
)


def check_frame(events: Sequence[SamplingEvent]) -> None:
    """One terminal event, at the end; one stream start, at the beginning; stamps that never go back."""
    assert isinstance(events[0], StreamStarted)
    assert [isinstance(event, StreamStarted) for event in events].count(True) == 1
    assert [isinstance(event, Completed | Failed) for event in events].count(True) == 1
    assert isinstance(events[-1], Completed | Failed)
    assert len({(event.request_id, event.attempt) for event in events}) == 1
    assert all(earlier.ts <= later.ts for earlier, later in pairwise(events))


def check_numbering(events: Sequence[SamplingEvent]) -> None:
    """Chunks count from 1; the first token is announced directly before it, once; tool indexes are dense."""
    chunks = [event for event in events if isinstance(event, ChannelToken)]
    assert [chunk.chunk_index for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert all(chunk.text for chunk in chunks)
    firsts = [at for at, event in enumerate(events) if isinstance(event, FirstToken)]
    assert len(firsts) == (1 if chunks else 0)
    for at in firsts:
        first, chunk = events[at], events[at + 1]
        assert isinstance(first, FirstToken)
        assert chunk is chunks[0]
        assert first.channel == chunks[0].channel
    for choice in {event.choice for event in events if isinstance(event, ToolCallDelta)}:
        indexes = [e.tool_index for e in events if isinstance(e, ToolCallDelta) and e.choice == choice]
        assert sorted(set(indexes)) == list(range(len(set(indexes))))  # a call without a name yet is shown later


def check_json(events: Sequence[SamplingEvent]) -> None:
    """Every event goes through JSON and back unchanged."""
    for event in events:
        assert event_from_json(event_to_json(event)) == event


def answer(events: Sequence[SamplingEvent]) -> SamplingResponse:
    """What the last event kept: the response, or what there was of it."""
    end = events[-1]
    assert isinstance(end, Completed | Failed)
    kept = end.response if isinstance(end, Completed) else end.partial
    return kept or SamplingResponse()


def check_sums(events: Sequence[SamplingEvent], *, in_order: bool = True) -> None:
    """What streamed is what the answer holds: texts by channel, arguments by call (of choice 0).

    `in_order=False` for streams whose items overlap: the answer has them item by item.
    """
    response = answer(events)
    streamed: dict[str, list[str]] = defaultdict(list)
    fragments: dict[int, list[str]] = defaultdict(list)
    for event in events:
        if isinstance(event, ChannelToken) and event.choice == 0:
            streamed[event.channel].append(event.text)
        elif isinstance(event, ToolCallDelta) and event.choice == 0:
            fragments[event.tool_index].append(event.arguments_delta or "")
    for channel, kept in (("text", response.text), ("reasoning", response.reasoning), ("refusal", response.refusal)):
        said = "".join(streamed[channel])
        assert said == kept if in_order else sorted(said) == sorted(kept), channel
    arguments = ["".join(pieces) for pieces in fragments.values()]
    assert sorted(map(_plain, arguments)) == sorted(_plain(call.arguments) for call in response.tool_calls)


def _plain(arguments: str) -> str:
    return "{}" if not arguments.strip() else arguments  # a call without arguments has an empty object in the answer


def check_laws(events: Sequence[SamplingEvent], *, in_order: bool = True) -> None:
    check_frame(events)
    check_numbering(events)
    check_json(events)
    check_sums(events, in_order=in_order)
