"""Tool calls that are being written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from pydantic_core import from_json

from rx_sampler.conversation import JsonObject, SamplingResponse, ToolCall, json_object
from rx_sampler.events import ToolCallDelta

from .growing_json import GrowingJson

__all__ = ["NO_CALL", "CallSoFar", "OpenCall", "numbered", "whole_object"]


class CallSoFar(NamedTuple):
    """Whose call it is, and the pieces of its arguments, to which more may come."""

    request_id: str
    attempt: int
    tool_index: int
    choice: int
    id: str
    name: str
    pieces: Sequence[str]


class OpenCall:
    """A call, and where its arguments stand."""

    __slots__ = ("choice", "done", "index", "json", "request_id", "said")

    def __init__(self, event: ToolCallDelta) -> None:
        self.request_id = event.request_id
        self.choice = event.choice
        self.index = event.tool_index
        self.json = GrowingJson(may_open="{")
        self.said = CallSoFar(self.request_id, event.attempt, self.index, self.choice, "", "", self.json.pieces)
        self.done = False

    def rename(self, event: ToolCallDelta) -> None:
        """The last id and the last name count."""
        if event.id is not None:
            self.said = self.said._replace(id=event.id)
        if event.name is not None:
            self.said = self.said._replace(name=event.name)


NO_CALL: Final = OpenCall(ToolCallDelta(request_id="", attempt=0, ts=0.0, tool_index=-1))
"""Stands for the call of the last delta where there was none."""


def numbered(response: SamplingResponse, ids: Mapping[int, str]) -> Iterator[tuple[int, ToolCall]]:
    """The complete calls of a response with the indexes that their deltas had; by place where ids do not tell."""
    index_of = {call_id: index for index, call_id in ids.items()}
    calls = response.tool_calls
    named = {call.id for call in calls if call.id in index_of}
    by_id = len(named) == len(calls) and len(index_of) == len(ids)
    for place, call in enumerate(calls):
        if call.complete:
            yield index_of[call.id] if by_id else place, call


def whole_object(text: str) -> JsonObject | None:
    """What `json_object` says, sooner: that takes the escapes of lone surrogates too."""
    try:
        value: Any = from_json(text, allow_inf_nan=False)
    except ValueError:
        return json_object(text)
    return cast("JsonObject", value)
