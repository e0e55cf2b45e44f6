"""What one attempt has brought, in an append-only log that many snapshots share."""

from __future__ import annotations

from bisect import bisect_left

from rx_sampler.conversation import JsonObject, ToolCall
from rx_sampler.events import AnnotationAdded, ChannelToken, SamplingEvent, ToolCallDelta

__all__ = ["AttemptLog"]


class AttemptLog:
    """The events of an attempt, and what they amount to up to any of them.

    Appending is all that an event costs. Questions are asked with a length, how many events count; the first one after
    new events sorts these in, each once, so that no question reads the log from its start. An answer costs its own
    length. What is appended later changes no answer for a length that was there before.
    """

    __slots__ = ("_annotations", "_calls", "_sorted_in", "_texts", "_tokens", "events")

    def __init__(self) -> None:
        self.events: list[SamplingEvent] = []
        self._sorted_in = 0
        self._tokens: list[int] = []
        self._texts: dict[tuple[str, int], _Pieces] = {}
        self._calls: dict[tuple[int, int], _Call] = {}
        self._annotations: tuple[list[int], list[JsonObject]] = ([], [])

    def text(self, channel: str, choice: int, length: int) -> str:
        """The tokens of a channel joined."""
        self._sort_in()
        pieces = self._texts.get((channel, choice))
        return pieces.up_to(length) if pieces is not None else ""

    def chunk_count(self, length: int) -> int:
        """How many tokens there are, on all channels."""
        self._sort_in()
        return bisect_left(self._tokens, length)

    def tool_calls(self, length: int) -> tuple[ToolCall, ...]:
        """The calls of choice 0 as they stand: none of them is known to be complete."""
        self._sort_in()
        calls = [(index, call) for (choice, index), call in self._calls.items() if choice == 0 and call.began < length]
        calls.sort(key=lambda pair: pair[0])
        return tuple(call.up_to(length) for _, call in calls)

    def annotations(self, length: int) -> tuple[JsonObject, ...]:
        """The citations, in order."""
        self._sort_in()
        places, annotations = self._annotations
        return tuple(annotations[: bisect_left(places, length)])

    def _sort_in(self) -> None:
        events, begin = self.events, self._sorted_in
        self._sorted_in = end = len(events)
        for place in range(begin, end):
            event = events[place]
            if isinstance(event, ChannelToken):
                self._tokens.append(place)
                key = (event.channel, event.choice)
                pieces = self._texts.get(key)
                if pieces is None:
                    pieces = self._texts[key] = _Pieces()
                pieces.add(place, event.text)
            elif isinstance(event, ToolCallDelta):
                slot = (event.choice, event.tool_index)
                call = self._calls.get(slot)
                if call is None:
                    call = self._calls[slot] = _Call(place)
                call.add(place, event)
            elif isinstance(event, AnnotationAdded):
                places, annotations = self._annotations
                places.append(place)
                annotations.append(event.annotation)


class _Pieces:
    """A text in pieces, each with its place in the log."""

    __slots__ = ("_chars", "_ends", "_fresh", "_joined", "_places")

    def __init__(self) -> None:
        self._places: list[int] = []
        self._ends: list[int] = []
        self._chars = 0
        self._joined = ""
        self._fresh: list[str] = []

    def add(self, place: int, text: str) -> None:
        self._places.append(place)
        self._chars += len(text)
        self._ends.append(self._chars)
        self._fresh.append(text)

    def up_to(self, length: int) -> str:
        count = bisect_left(self._places, length)
        if not count:
            return ""
        end = self._ends[count - 1]
        if end > len(self._joined):
            self._joined = "".join([self._joined, *self._fresh])
            self._fresh.clear()
        return self._joined[:end]


class _Call:
    """A tool call in pieces. A wire may name it anew: the last id and the last name count."""

    __slots__ = ("_arguments", "_ids", "_names", "began")

    def __init__(self, began: int) -> None:
        self.began = began
        self._ids: list[tuple[int, str]] = []
        self._names: list[tuple[int, str]] = []
        self._arguments = _Pieces()

    def add(self, place: int, event: ToolCallDelta) -> None:
        if event.id is not None:
            self._ids.append((place, event.id))
        if event.name is not None:
            self._names.append((place, event.name))
        if event.arguments_delta:
            self._arguments.add(place, event.arguments_delta)

    def up_to(self, length: int) -> ToolCall:
        return ToolCall(
            id=_last(self._ids, length),
            name=_last(self._names, length),
            arguments=self._arguments.up_to(length),
            complete=False,
        )


def _last(values: list[tuple[int, str]], length: int) -> str:
    count = bisect_left(values, (length, ""))
    return values[count - 1][1] if count else ""
