"""Tool calls out of a stream: whole ones, and their arguments while they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from reactivex import Observable

from rx_sampler.conversation import JsonObject, SamplingResponse, ToolCall, json_object
from rx_sampler.events import ChannelToken, Completed, Failed, Retrying, SamplingEvent, ToolCallDelta
from rx_sampler.stage import Machine

from .growing_json import GrowingJson
from .per_request import each_request

__all__ = ["FinishedToolCall", "PartialArguments", "partial_arguments", "tool_calls"]


class FinishedToolCall(NamedTuple):
    """A call that may be run. `tool_index` and `choice` are those of its `ToolCallDelta`s."""

    request_id: str
    attempt: int
    tool_index: int
    choice: int
    call: ToolCall


class PartialArguments(NamedTuple):
    """The arguments of a call as far as they are known; `complete` once their object is closed."""

    request_id: str
    attempt: int
    tool_index: int
    choice: int
    id: str
    name: str
    arguments: JsonObject
    complete: bool


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


def partial_arguments() -> Callable[[Observable[SamplingEvent]], Observable[PartialArguments]]:
    """The arguments of each tool call while they are written, each time that more of them is known.

    With `s` for `{"a": `, `t` for `[1, 2`, `u` for `, 3]}`, `x` for `{"a": [1]}` and `y` for `{"a": [1, 2, 3]}`:

        source             -S-s-t-u---C-|
        partial_arguments  -----x-y-----|

    In: events of one request, or of several interleaved, with calls of any choice. Out: per call, arguments that
    changed and are not empty, and last of all, once, the whole ones with `complete` set: when their object closes, or
    with `Completed` for a call without arguments. A string may be shown before it ends; a number or a word never is, so
    that what was shown is only ever added to. Whether a call may be run is for `tool_calls` to say: an object that
    closed may yet be followed by what makes it no JSON. Free text of custom tools shows nothing. After `Retrying` it
    starts anew.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Errors by `on_error`: the source's. Cost: linear: up to 256 characters arguments are parsed
    whenever they have grown, then each time by a thirty-second, and at the end. Memory: the arguments of the attempt's
    calls.
    """
    return each_request(_Partials)


class _Open:
    """A call that is being written."""

    __slots__ = ("done", "id", "json", "name", "shown")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.json = GrowingJson()
        self.shown: JsonObject = {}
        self.done = False

    def rename(self, event: ToolCallDelta) -> None:
        """The last id and the last name count."""
        if event.id is not None:
            self.id = event.id
        if event.name is not None:
            self.name = event.name

    def whole(self) -> JsonObject | None:
        """The arguments, if they are one JSON object now."""
        return json_object(self.json.text) if self.json.closed and self.json.is_object else None


def _numbered(response: SamplingResponse, ids: Mapping[int, str]) -> Iterator[tuple[int, ToolCall]]:
    """The complete calls of a response with the indexes that their deltas had; by place where ids do not tell."""
    index_of = {call_id: index for index, call_id in ids.items()}
    calls = response.tool_calls
    named = {call.id for call in calls if call.id in index_of}
    by_id = len(named) == len(calls) and len(index_of) == len(ids)
    for place, call in enumerate(calls):
        if call.complete:
            yield index_of[call.id] if by_id else place, call


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
                for index, call in _numbered(item.response, self._ids)
                if (0, index) not in self._given
            ]
        return ()

    def _void(self) -> None:
        self._ids.clear()
        self._given.clear()


class _EarlyCalls(_Calls):
    def __init__(self) -> None:
        super().__init__()
        self._open: dict[tuple[int, int], _Open] = {}

    def feed(self, item: SamplingEvent) -> Iterable[FinishedToolCall]:
        if type(item) is ChannelToken:
            return ()
        if type(item) is not ToolCallDelta:
            return super().feed(item)
        call = self._open.get((item.choice, item.tool_index))
        if call is None or item.id is not None or item.name is not None:
            return self._named(item)
        piece = item.arguments_delta
        if piece:
            call.json.add(piece)
            if "}" in piece:
                return self._closed(item, call)
        return ()

    def _named(self, event: ToolCallDelta) -> Iterable[FinishedToolCall]:
        super().feed(event)
        key = (event.choice, event.tool_index)
        if key in self._given:
            return ()
        call = self._open.setdefault(key, _Open())
        call.rename(event)
        if event.arguments_delta:
            call.json.add(event.arguments_delta)
        return self._closed(event, call)

    def _closed(self, event: ToolCallDelta, call: _Open) -> Iterable[FinishedToolCall]:
        if not (call.json.closed and call.name) or call.done:
            return ()
        if call.whole() is None:
            call.done = True  # closed, and no JSON: more text does not mend it
            return ()
        key = (event.choice, event.tool_index)
        self._given.add(key)
        del self._open[key]
        made = ToolCall(id=call.id, name=call.name, arguments=call.json.text)
        return (FinishedToolCall(event.request_id, event.attempt, event.tool_index, event.choice, made),)

    def _void(self) -> None:
        super()._void()
        self._open.clear()


class _Partials(Machine[SamplingEvent, PartialArguments]):
    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], _Open] = {}

    def feed(self, item: SamplingEvent) -> Iterable[PartialArguments]:
        if type(item) is ChannelToken:
            return ()
        if type(item) is ToolCallDelta:
            key = (item.choice, item.tool_index)
            call = self._calls.get(key)
            if call is None:
                call = self._calls[key] = _Open()
            if item.id is not None or item.name is not None:
                call.rename(item)
            piece = item.arguments_delta
            if piece and call.json.feed(piece) and not call.done:
                return self._look(item, key, call)
            return ()
        if isinstance(item, Retrying):
            self._calls.clear()
        elif isinstance(item, Completed | Failed):
            return self._end(item)
        return ()

    def _look(self, event: SamplingEvent, key: tuple[int, int], call: _Open) -> Iterable[PartialArguments]:
        if (whole := call.whole()) is not None:
            call.done = True
            return (_shown(event, key, call, whole, complete=True),)
        data: Any = call.json.partial()
        if not isinstance(data, dict) or not data or data == call.shown:
            return ()
        call.shown = cast("JsonObject", data)
        return (_shown(event, key, call, call.shown, complete=False),)

    def _end(self, event: Completed | Failed) -> Iterable[PartialArguments]:
        out: list[PartialArguments] = []
        for key, call in self._calls.items():
            if not call.done:
                out += self._look(event, key, call)
        if isinstance(event, Completed):
            ids = {index: call.id for (choice, index), call in self._calls.items() if choice == 0}
            for index, said in _numbered(event.response, ids):
                call = self._calls.get((0, index)) or _Open()
                arguments = said.arguments_json
                if not call.done and arguments is not None and not said.custom:
                    call.id, call.name = said.id, said.name
                    out.append(_shown(event, (0, index), call, arguments, complete=True))
        return out


def _shown(
    event: SamplingEvent, key: tuple[int, int], call: _Open, arguments: JsonObject, *, complete: bool
) -> PartialArguments:
    choice, index = key
    return PartialArguments(event.request_id, event.attempt, index, choice, call.id, call.name, arguments, complete)
