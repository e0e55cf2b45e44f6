"""Tool calls out of a stream, those that may be run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from reactivex import Observable

from rx_sampler.conversation import ToolCall
from rx_sampler.events import ChannelToken, Completed, Retrying, SamplingEvent, ToolCallDelta
from rx_sampler.stage import Machine

from .growing_json import GrowingJson
from .open_calls import NO_CALL, OpenCall, numbered, whole_object
from .per_request import each_request

__all__ = ["FinishedToolCall", "tool_calls"]


class FinishedToolCall(NamedTuple):
    """A call that may be run. `tool_index` and `choice` are those of its `ToolCallDelta`s."""

    request_id: str
    attempt: int
    tool_index: int
    choice: int
    call: ToolCall


def tool_calls(early: bool = False) -> Callable[[Observable[SamplingEvent]], Observable[FinishedToolCall]]:
    """The calls of the client's tools that may be run: those that the answer holds whole, when it is whole.

    With `t` for a fragment of arguments, `(tu)` for a call that two of them make, and `x` for that call:

        source      -S-t-u---C-|
        tool_calls  ---------x-|
        early       -----x-----|

    In: events of one request, or of several interleaved. Out: the complete calls of each `Completed`, in the order of
    its response; none of a request that fails, or of an attempt that `Retrying` voids.

    `early=True` gives a call as soon as its arguments close as one JSON object, with nothing but white space behind
    it so far, and its name is known; each call once. Those without arguments and those of custom tools come with
    `Completed`. It is a bet: `Retrying` may still void the attempt, the request may fail, a server may go on behind the
    object, and free text of a custom tool that happens to be a JSON object looks like any call (`custom` is False).
    Run early only what does no harm when it is run in vain. Of further choices (`n > 1`) the response holds nothing, so
    that their calls come early or not at all.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Errors by `on_error`: the source's. Cost: linear in the arguments, each character is looked at
    once; memory: the ids of the calls, and with `early` the arguments of those that are open.
    """
    return each_request(_EarlyCalls if early else _Calls)


class _Calls(Machine[SamplingEvent, FinishedToolCall]):
    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._given: set[tuple[int, int]] = set()

    def feed(self, item: SamplingEvent) -> Iterable[FinishedToolCall]:
        if type(item) is ChannelToken:
            return ()
        if type(item) is ToolCallDelta:
            if item.id is not None and item.choice == 0:
                self._ids[item.tool_index] = item.id
        elif isinstance(item, Retrying):
            self._void()
        elif isinstance(item, Completed):
            return [
                FinishedToolCall(item.request_id, item.attempt, index, 0, call)
                for index, call in numbered(item.response, self._ids)
                if (0, index) not in self._given
            ]
        return ()

    def _void(self) -> None:
        self._ids.clear()
        self._given.clear()


class _EarlyCalls(_Calls):
    def __init__(self) -> None:
        super().__init__()
        self._open: dict[tuple[int, int], OpenCall] = {}
        self._newest = NO_CALL

    def feed(self, item: SamplingEvent) -> Iterable[FinishedToolCall]:
        if type(item) is not ToolCallDelta:
            return () if type(item) is ChannelToken else super().feed(item)
        call = self._newest
        if item.tool_index != call.index or item.choice != call.choice:
            call = self._newest = self._found(item)
        piece = item.arguments_delta
        if piece and not call.done:
            call.json.pieces.append(piece)
        if item.id is not None or item.name is not None:
            super().feed(item)
            call.rename(item)
            return self._finished(call) if call.json.closed else ()
        if piece and "}" in piece and call.json.ends_with(piece):
            return self._finished(call)
        return ()

    def _found(self, event: ToolCallDelta) -> OpenCall:
        key = (event.choice, event.tool_index)
        if key not in self._open:
            self._open[key] = OpenCall(event)
        return self._open[key]

    def _finished(self, call: OpenCall) -> Iterable[FinishedToolCall]:
        said = call.said
        if call.done or not said.name:
            return ()
        text = call.json.text
        call.done, call.json, call.said = True, GrowingJson(), said._replace(pieces=())
        if whole_object(text) is None:
            return ()  # closed, and no JSON: more text does not mend it
        self._given.add((call.choice, call.index))
        made = ToolCall(id=said.id, name=said.name, arguments=text)
        return (FinishedToolCall(said.request_id, said.attempt, said.tool_index, said.choice, made),)

    def _void(self) -> None:
        super()._void()
        self._open.clear()
        self._newest = NO_CALL
