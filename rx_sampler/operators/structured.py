"""Structured output while it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from reactivex import Observable

from rx_sampler.errors import printable_line
from rx_sampler.events import TEXT, ChannelToken, Completed, Retrying, SamplingEvent
from rx_sampler.stage import Machine

from .growing_json import MISSING, GrowingJson
from .per_request import each_request

__all__ = ["PartialJson", "partial_json"]

M = TypeVar("M")

MAX_ERROR_CHARS: Final = 500
_LISTED_ERRORS: Final = 8
_PROBE: Final = "\u2026?"
"""What is put behind an unfinished string, to see whether it may go on as it likes."""


class PartialJson(NamedTuple, Generic[M]):
    """A JSON answer so far: `data` as plain JSON, `value` as the model that was asked for.

    `value` is the newest one that validated, None until one does. With `complete` it is the whole answer's, or None and
    `error` says which field is wrong and what would be right.
    """

    request_id: str
    attempt: int
    data: Any
    value: M | None
    complete: bool
    error: str | None


def partial_json(model: type[M], choice: int = 0) -> Callable[[Observable[SamplingEvent]], Observable[PartialJson[M]]]:
    """What a JSON answer says so far, each time that more of it is known, and at last the validated whole.

    With `a` for `[1,`, `b` for ` 2`, `c` for `, 3]`, `x` for `[1]`, `y` for `[1, 2, 3]`, and `z` for the complete:

        source        -S-(Fa)-b-c---C-|
        partial_json  ---x------y---z-|

    In: events of one request, or of several interleaved, whose text (of `choice`) is JSON alone. Out: per request, a
    `PartialJson` whenever data or value changed and the data is not empty; with `Completed` one more with `complete`
    set, whose value passed the full validation, or whose `error` says why not. Nothing complete for a request that
    fails. After `Retrying` it starts anew.

    What was shown is only ever added to: a string may be shown before it ends, a number or a word never is. `model` is
    whatever pydantic's `TypeAdapter` takes. Before the end it validates with pydantic's partial mode, in which lists,
    dicts, sets and TypedDicts leave out a last element that does not validate yet. A BaseModel or a dataclass is not
    partial: as a whole answer it is there once its required fields are, shows the defaults of those that have not come
    (`model_fields_set` tells), and grows with its strings and lists; as the last element of a list it is left out until
    then. To see fields from the first on, give defaults or take a `TypedDict(total=False)` (before Python 3.12 pydantic
    wants that of `typing_extensions`). A string that is not yet ended counts only where any string would do: for a
    date, an enum or a Literal it must have come to its end. A union may change its mind about the member.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Errors: pydantic's at call time for a type it cannot validate; by `on_error` the source's.
    Cost: linear: up to 256 characters the text is parsed whenever it has grown, then each time by a thirty-second, and
    at the end. Memory: the text, and the last data and value.
    """
    adapter = TypeAdapter[M](model)
    return each_request(lambda: _Reader(adapter, choice))


class _Reader(Machine[SamplingEvent, PartialJson[M]], Generic[M]):
    def __init__(self, adapter: TypeAdapter[M], choice: int) -> None:
        self._adapter = adapter
        self._choice = choice
        self._json = GrowingJson()
        self._data: Any = MISSING
        self._value: M | None = None
        self._free_string = -1

    def feed(self, item: SamplingEvent) -> Iterable[PartialJson[M]]:
        if type(item) is ChannelToken:
            if item.channel != TEXT or item.choice != self._choice or not self._json.feed(item.text):
                return ()
            return self._look(item)
        if isinstance(item, Retrying):
            self._json, self._data, self._value, self._free_string = GrowingJson(), MISSING, None, -1
        elif isinstance(item, Completed):
            # What came on the text channel, unless nothing did: an answer may be replayed without its tokens.
            return (self._whole(item, self._json.text or (item.response.text if self._choice == 0 else "")),)
        return ()

    def _look(self, event: SamplingEvent) -> Iterable[PartialJson[M]]:
        data = self._json.partial()
        if data is MISSING or _is_empty(data):
            return ()
        value = self._validated()
        if value is None:
            value = self._value
        if data == self._data and value == self._value:
            return ()
        self._data, self._value = data, value
        return (PartialJson(event.request_id, event.attempt, data, value, False, None),)

    def _validated(self) -> M | None:
        text = self._json.prefix()
        if self._json.in_string and self._json.string_began != self._free_string:
            without = self._partial(text, "on")
            probed = self._partial(text + _PROBE, "trailing-strings")
            if probed is None or probed == without:
                # Refused, or left out: the string means something that another letter may change.
                return without
            self._free_string = self._json.string_began
        return self._partial(text, "trailing-strings")

    def _partial(self, text: str, mode: Any) -> M | None:
        try:
            return self._adapter.validate_json(text, experimental_allow_partial=mode)
        except ValueError:
            return None

    def _whole(self, event: Completed, text: str) -> PartialJson[M]:
        value, error = None, None
        data: Any = None if self._data is MISSING else self._data
        try:
            data = from_json(text, allow_inf_nan=False)
            value = self._adapter.validate_json(text)
        except ValidationError as refusal:
            error = _in_words(refusal)
        except ValueError as refusal:
            error = f"not JSON: {refusal}" if text.strip() else "the answer has no text"
        return PartialJson(event.request_id, event.attempt, data, value, True, error)


def _is_empty(data: object) -> bool:
    return data is None or data == "" or data == [] or data == {}


def _in_words(refusal: ValidationError) -> str:
    """Each field, and what would be right."""
    errors = refusal.errors(include_url=False, include_input=False)
    lines = [f"{'.'.join(map(str, one['loc'])) or 'the answer'}: {one['msg']}" for one in errors[:_LISTED_ERRORS]]
    if len(errors) > _LISTED_ERRORS:
        lines.append(f"and {len(errors) - _LISTED_ERRORS} more")
    return printable_line("; ".join(lines), MAX_ERROR_CHARS)
