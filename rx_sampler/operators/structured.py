"""Structured output while it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from reactivex import Observable, abc

from rx_sampler.events import TEXT, ChannelToken, Completed, Failed, Retrying, SamplingEvent
from rx_sampler.functions import in_words

from .growing_json import MISSING, GrowingJson, in_short, partial, without_number

__all__ = ["PartialJson", "partial_json"]

M = TypeVar("M")

MAX_ERROR_CHARS: Final = 500
_TURNS: Final = frozenset({Retrying, Completed, Failed})
_PROBE: Final = "\u2026?"
"""What an unfinished string is replaced by, to see whether it may go on as it likes."""


class PartialJson(Generic[M]):
    """A JSON answer so far: `data` as plain JSON, `value` as the model that was asked for. Never changes.

    Both are parsed when they are first read, at the cost of the length of the text, and kept. `data` is None where the
    text is no JSON, `value` where it does not validate, or not yet. With `complete` they are the whole answer's, and
    where its value is None, `error` says which field is wrong and what would be right.

    A snapshot keeps the text of its answer alive. To compare, print, copy or pickle it reads it.
    """

    __slots__ = ("_answer", "_count", "_data", "_value")

    _answer: _Answer[M]
    _count: int
    _data: Any
    _value: Any

    def __init__(
        self, request_id: str, attempt: int, data: Any, value: M | None, complete: bool, error: str | None
    ) -> None:
        self._answer = _Answer(request_id, attempt, complete=complete, error=error)
        self._count = 0
        self._data = data
        self._value = value

    @property
    def request_id(self) -> str:
        return self._answer.request_id

    @property
    def attempt(self) -> int:
        return self._answer.attempt

    @property
    def data(self) -> Any:
        data = self._data
        if data is MISSING:
            said = partial(self._answer.text(self._count))
            data = self._data = None if said is MISSING else said
        return data

    @property
    def value(self) -> M | None:
        value = self._value
        if value is MISSING:
            value = self._value = self._answer.value(self._count)
        return value

    @property
    def complete(self) -> bool:
        return self._answer.complete

    @property
    def error(self) -> str | None:
        return self._answer.error

    def _fields(self) -> tuple[str, int, Any, M | None, bool, str | None]:
        return (self.request_id, self.attempt, self.data, self.value, self.complete, self.error)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartialJson):
            return NotImplemented
        return self is other or self._fields() == cast("PartialJson[Any]", other)._fields()

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> tuple[Any, ...]:
        return PartialJson, self._fields()

    def __repr__(self) -> str:
        shown = f"data={in_short(self.data)}, value={in_short(self.value)}, complete={self.complete}"
        return f"PartialJson({self.request_id!r}, attempt={self.attempt}, {shown}, error={self.error!r})"


class _Unread(PartialJson[Any]):
    """Made without a call of `__init__`, which would cost as much as all the rest."""

    __slots__ = ()
    __init__ = object.__init__  # pyright: ignore[reportAssignmentType]


_unread: Final = cast("Callable[[], PartialJson[Any]]", _Unread)


def partial_json(model: type[M], choice: int = 0) -> Callable[[Observable[SamplingEvent]], Observable[PartialJson[M]]]:
    """What a JSON answer says so far, each time that more of it may be known, and at last the validated whole.

    With `a` for `[1,`, `b` for ` 2`, `c` for `, 3]`, `x` for `[1]`, `y` for `[1, 2, 3]`, and `z` for the complete:

        source        -S-(Fa)-b-c---C-|
        partial_json  ---x------y---z-|

    In: events of one request, or of several interleaved, whose text (of `choice`) is JSON alone. Out: per request,
    snapshots (`PartialJson`) from the first item, member or character on: with each token up to 256 characters, then
    each time the text has grown by a thirty-second, and when its object or array closes. Two in a row may be equal,
    though white space and digits bring none by themselves; `ops.distinct_until_changed()` leaves equal ones out. With
    `Completed` one more with `complete` set, whose value passed the full validation, or whose `error` says why not.
    Nothing complete for a request that fails. After `Retrying` it starts anew.

    A snapshot is parsed when its `data` or `value` is read, so that a display which looks 60 times a second
    (`ops.sample`) pays for what it shows, however fast the answer comes.

    What was shown is only ever added to: a string may be shown before it ends, a number or a word never is. `model` is
    whatever pydantic's `TypeAdapter` takes. Before the end it validates with pydantic's partial mode, in which lists,
    dicts, sets and TypedDicts leave out a last element that does not validate yet. A BaseModel or a dataclass is not
    partial: as a whole answer it is there once its required fields are, shows the defaults of those that have not come
    (`model_fields_set` tells), and grows with its strings and lists; as the last element of a list it is left out until
    then, and as a field of another model it makes `value` None until then. Who wants to hold the last good one filters:
    `ops.filter(lambda one: one.value is not None)`. To see fields from the first on, give defaults or take a
    `TypedDict(total=False)` (before Python 3.12 pydantic wants that of `typing_extensions`). A string that is not yet
    ended counts only where any string would do: for a date, an enum or a Literal it must have come to its end. A union
    may change its mind about the member.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Errors: pydantic's at call time for a type it cannot validate; by `on_error` the source's.
    Cost: linear: an append per token, a parse of the whole at the end, and one of the text so far for `data` and for
    `value` of each snapshot that is read; all snapshots together hold some 33 times the text. Memory: the text, which a
    snapshot that is kept keeps.
    """
    adapter = TypeAdapter[M](model)

    def operator(source: Observable[SamplingEvent]) -> Observable[PartialJson[M]]:
        def subscribe(
            observer: abc.ObserverBase[PartialJson[M]], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            answers: dict[str, tuple[_Answer[M], GrowingJson]] = {}
            push = observer.on_next
            # The answer of the last token; mostly the next one is of the same.
            request_id: str | None = None
            answer, json = _Answer[M]("", 0), GrowingJson()

            # Not by `each_request`, and little by methods: each costs as much as all that a token needs.
            def on_next(event: SamplingEvent) -> None:
                if type(event) is not ChannelToken:
                    if type(event) in _TURNS:
                        turn(event)
                    return
                if event.channel != TEXT or event.choice != choice:
                    return
                if event.request_id != request_id:
                    change(event)
                piece = event.text
                json.pieces.append(piece)
                chars = json.chars = json.chars + len(piece)
                if (chars < json.due and json.closer not in piece) or not json.is_time(piece):
                    return
                shown = _unread()
                shown._answer = answer  # pyright: ignore[reportPrivateUsage]
                shown._count = len(json.pieces)  # pyright: ignore[reportPrivateUsage]
                shown._data = shown._value = MISSING  # pyright: ignore[reportPrivateUsage]
                push(shown)

            def change(event: ChannelToken) -> None:
                nonlocal request_id, answer, json
                request_id = event.request_id
                if request_id not in answers:
                    json = GrowingJson()
                    answers[request_id] = _Answer(request_id, event.attempt, adapter, json.pieces), json
                answer, json = answers[request_id]

            def turn(event: SamplingEvent) -> None:
                nonlocal request_id
                request_id = None
                ended = answers.pop(event.request_id, None)
                if isinstance(event, Completed):
                    # What came on the text channel, unless nothing did: an answer may be replayed without its tokens.
                    text = ended[1].text if ended is not None else ""
                    push(_whole(event, text or (event.response.text if choice == 0 else ""), adapter))

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator


class _Answer(Generic[M]):
    """What the snapshots of an attempt share."""

    __slots__ = ("_adapter", "_probed", "attempt", "complete", "error", "pieces", "request_id")

    def __init__(
        self,
        request_id: str,
        attempt: int,
        adapter: TypeAdapter[M] | None = None,
        pieces: Sequence[str] = (),
        *,
        complete: bool = False,
        error: str | None = None,
    ) -> None:
        self.request_id = request_id
        self.attempt = attempt
        self.complete = complete
        self.error = error
        self.pieces = pieces
        self._adapter: Any = adapter
        self._probed = (-1, False)
        """Where a string began, and whether it is free. Snapshots are often of the same string."""

    def text(self, count: int) -> str:
        return "".join(self.pieces[:count])

    def value(self, count: int) -> M | None:
        text, began = without_number(self.text(count))
        if began < 0 or self._is_free(text, began):
            return self._partial(text, "trailing-strings")
        return self._partial(text, "on")

    def _is_free(self, text: str, began: int) -> bool:
        """Whether the string that began there may be any: one that is refused, or left out, means something that
        another letter may change. Told by what is before it alone, so that it holds for all of the string."""
        probed, is_free = self._probed
        if probed != began:
            head = text[: began + 1]
            any_string = self._partial(head + _PROBE, "trailing-strings")
            is_free = any_string is not None and any_string != self._partial(head, "on")
            self._probed = (began, is_free)
        return is_free

    def _partial(self, text: str, mode: Any) -> M | None:
        try:
            return self._adapter.validate_json(text, experimental_allow_partial=mode)
        except ValueError:
            return None


def _whole(event: Completed, text: str, adapter: TypeAdapter[M]) -> PartialJson[M]:
    data: Any = None
    value, error = None, None
    try:
        data = from_json(text, allow_inf_nan=False)
        value = adapter.validate_json(text)
    except ValidationError as refusal:
        error = in_words(refusal, "the answer", MAX_ERROR_CHARS)
    except ValueError as refusal:
        error = f"not JSON: {refusal}" if text.strip() else "the answer has no text"
        said = partial(text)
        data = None if said is MISSING else said
    return PartialJson(event.request_id, event.attempt, data, value, True, error)
