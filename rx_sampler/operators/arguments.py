"""The arguments of tool calls while they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from reactivex import Observable, abc

from rx_sampler.conversation import JsonObject
from rx_sampler.events import Completed, Failed, Retrying, SamplingEvent, ToolCallDelta

from .growing_json import EAGER_CHARS, GROWTH, SHOWING_NOTHING, in_short, partial
from .open_calls import NO_CALL, CallSoFar, OpenCall, numbered, whole_object

__all__ = ["PartialArguments", "partial_arguments"]

Calls = dict[tuple[int, int], OpenCall]
"""Those of an attempt, by choice and index."""

_TURNS: Final = frozenset({Retrying, Completed, Failed})


class PartialArguments:
    """The arguments of a call as far as they are known; `complete` once their object is closed. Never changes.

    `arguments` are parsed when they are first read, at the cost of their length, and kept; they are empty where the
    text is no JSON object. A snapshot keeps the text of its call alive. To compare, print, copy or pickle it reads it.
    """

    __slots__ = ("_arguments", "_call", "_count")

    _arguments: JsonObject | None
    _call: CallSoFar
    _count: int

    def __init__(
        self,
        request_id: str,
        attempt: int,
        tool_index: int,
        choice: int,
        id: str,  # noqa: A002  # the event's own word
        name: str,
        arguments: JsonObject,
        complete: bool,
    ) -> None:
        self._call = CallSoFar(request_id, attempt, tool_index, choice, id, name, ())
        self._arguments = arguments
        self._count = -1 if complete else 0

    @property
    def request_id(self) -> str:
        return self._call.request_id

    @property
    def attempt(self) -> int:
        return self._call.attempt

    @property
    def tool_index(self) -> int:
        return self._call.tool_index

    @property
    def choice(self) -> int:
        return self._call.choice

    @property
    def id(self) -> str:
        return self._call.id

    @property
    def name(self) -> str:
        return self._call.name

    @property
    def complete(self) -> bool:
        return self._count < 0

    @property
    def arguments(self) -> JsonObject:
        arguments = self._arguments
        if arguments is None:
            said: Any = partial("".join(self._call.pieces[: self._count]))
            arguments = self._arguments = cast("JsonObject", said) if isinstance(said, dict) else {}
        return arguments

    def _fields(self) -> tuple[str, int, int, int, str, str, JsonObject, bool]:
        place = (self.request_id, self.attempt, self.tool_index, self.choice)
        return (*place, self.id, self.name, self.arguments, self.complete)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartialArguments):
            return NotImplemented
        return self is other or self._fields() == other._fields()

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> tuple[Any, ...]:
        return PartialArguments, self._fields()

    def __repr__(self) -> str:
        place = f"{self.request_id!r}, attempt={self.attempt}, tool_index={self.tool_index}, choice={self.choice}"
        said = f"id={self.id!r}, name={self.name!r}, arguments={in_short(self.arguments)}, complete={self.complete}"
        return f"PartialArguments({place}, {said})"


class _Unread(PartialArguments):
    """Made without a call of `__init__`, which would cost as much as all the rest."""

    __slots__ = ()
    __init__ = object.__init__  # pyright: ignore[reportAssignmentType]


_unread: Final = cast("Callable[[], PartialArguments]", _Unread)


def partial_arguments() -> Callable[[Observable[SamplingEvent]], Observable[PartialArguments]]:
    """The arguments of each tool call while they are written, each time that more of them may be known.

    With `s` for `{"a": `, `t` for `[1, 2`, `u` for `, 3]}`, `x` for `{"a": [1]}` and `y` for `{"a": [1, 2, 3]}`:

        source             -S-s-t-u---C-|
        partial_arguments  -----x-y-----|

    In: events of one request, or of several interleaved, with calls of any choice. Out: per call, snapshots
    (`PartialArguments`) from the first member on: with each fragment up to 256 characters, then each time the arguments
    have grown by a thirty-second, and with `Completed` or `Failed` what is left; last of all, once, the whole ones with
    `complete` set: when their object closes, or with `Completed` for a call without arguments. Two in a row may be
    equal, though white space and digits bring none by themselves; `ops.distinct_until_changed()` leaves equal ones out.

    A snapshot is parsed when its `arguments` are read, so that a display which looks 60 times a second (`ops.sample`)
    pays for what it shows, however fast they come.

    A string may be shown before it ends; a number or a word never is, so that what was shown is only ever added to.
    Whether a call may be run is for `tool_calls` to say: an object that closed may yet be followed by what makes it no
    JSON. Free text of custom tools shows nothing. After `Retrying` it starts anew.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Errors by `on_error`: the source's. Cost: linear: an append per fragment, a parse of the whole
    per call, and one of the arguments so far per snapshot that is read; all snapshots together hold some 33 times the
    text. Memory: the arguments of the attempt's calls, which a snapshot that is kept keeps.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[PartialArguments]:
        def subscribe(
            observer: abc.ObserverBase[PartialArguments], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            written: dict[str, Calls] = {}
            push = observer.on_next
            # The call of the last delta; mostly the next one is of the same.
            call = NO_CALL
            request_id, choice, index, json = "", -1, -1, NO_CALL.json

            # Not by `each_request`, nor by `GrowingJson.is_time`, which says in words what happens here: a call costs
            # as much as what it does.
            def on_next(event: SamplingEvent) -> None:
                if type(event) is not ToolCallDelta:
                    if type(event) in _TURNS:
                        turn(event)
                    return
                if event.tool_index != index or event.request_id != request_id or event.choice != choice:
                    change(event)
                if event.id is not None or event.name is not None:
                    call.rename(event)
                piece = event.arguments_delta
                if not piece:
                    return
                json.pieces.append(piece)
                chars = json.chars = json.chars + len(piece)
                if json.closer in piece and json.ends_with(piece):
                    close()
                    return
                if chars < json.due:
                    return
                if chars >= EAGER_CHARS:
                    json.due = chars + chars // GROWTH
                elif not piece.strip(SHOWING_NOTHING):
                    return
                if not json.says and not json.says_something():
                    return
                json.looked = chars
                shown = _unread()
                shown._call = call.said  # pyright: ignore[reportPrivateUsage]
                shown._count = len(json.pieces)  # pyright: ignore[reportPrivateUsage]
                shown._arguments = None  # pyright: ignore[reportPrivateUsage]
                push(shown)

            def change(event: ToolCallDelta) -> None:
                nonlocal call, request_id, choice, index, json
                request_id, choice, index = event.request_id, event.choice, event.tool_index
                calls = written.setdefault(request_id, {})
                if (choice, index) not in calls:
                    calls[choice, index] = OpenCall(event)
                call = calls[choice, index]
                json = call.json

            def close() -> None:
                arguments = whole_object(json.text)
                if arguments is not None:
                    call.done = True
                    push(PartialArguments(*call.said[:-1], arguments, complete=True))

            def turn(event: SamplingEvent) -> None:
                nonlocal index
                index = -1
                for shown in _left(event, written.pop(event.request_id, {})):
                    push(shown)

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator


def _so_far(call: OpenCall) -> PartialArguments:
    shown = _unread()
    shown._call = call.said  # pyright: ignore[reportPrivateUsage]
    shown._count = len(call.json.pieces)  # pyright: ignore[reportPrivateUsage]
    shown._arguments = None  # pyright: ignore[reportPrivateUsage]
    return shown


def _left(event: SamplingEvent, calls: Calls) -> Iterable[PartialArguments]:
    """What is left of the calls of an attempt when it ends."""
    if isinstance(event, Retrying):
        return
    for call in calls.values():
        if call.json.is_unseen:
            yield _so_far(call)
    if isinstance(event, Completed):
        ids = {call.index: call.said.id for call in calls.values() if call.choice == 0}
        for index, said in numbered(event.response, ids):
            call = calls.get((0, index))
            if said.custom or (call is not None and call.done):
                continue
            arguments = said.arguments_json
            if arguments is not None:
                whose = (event.request_id, event.attempt, index, 0, said.id, said.name)
                yield PartialArguments(*whose, arguments, complete=True)
