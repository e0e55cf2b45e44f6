"""What a wire format is: the `Backend` record, the registry, and the two operators that it makes possible.

A new wire format is one folder with `chunks.py`, `request.py` and `transform.py` and one line in `_BUILT_IN`, or an
entry point of group `rx_sampler.backends` in a package of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from reactivex import Observable, abc

from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import JsonObject, SamplingRequest
from rx_sampler.errors import SamplingError, SamplingErrorKind
from rx_sampler.events import SamplingEvent
from rx_sampler.scheduling import clock_of
from rx_sampler.stage import Machine, through
from rx_sampler.wire.error_bodies import clean_message, is_markup, read_error, refusal
from rx_sampler.wire.idle import Pulse
from rx_sampler.wire.sse import UNFRAMED, SseFrame, SseParser

from .assembly import DONE, Context, MalformedChunk, Transform
from .lenient import MISSING, as_list, as_object, fitter, parse

__all__ = ["Backend", "ChunkDecoder", "EventReader", "get_backend", "sampling_events", "typed_chunks"]

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend(Generic[C]):
    """One wire format, from request to events.

    `path` stands behind the base URL, its query included; a function makes it of the request where it names the model.
    `auth_scheme` is `bearer`, or the header that takes the bare key, with `_` for `-`. `chunk` is the `TypedDict` of a
    stream's JSON objects, `encode` makes a streaming request's body, `transform` the machine that reads chunks.
    `is_own_event` tells by the name of a frame whether its data must be JSON. `unwrap` turns a whole JSON answer (from
    a server that ignored `stream: true`), or each part of one that is a list, into chunks; `answer_keys` are what only
    an answer has, and no error. `framing` cuts bytes into frames.
    """

    name: str
    path: str | Callable[[SamplingRequest, SamplerConfig], str]
    chunk: type[C]
    encode: Callable[[SamplingRequest, SamplerConfig], JsonObject]
    transform: Callable[[Context], Transform[C]]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    auth_scheme: str = "bearer"
    is_own_event: Callable[[str], bool] = lambda name: name == "message"
    answer_keys: tuple[str, ...] = ("choices", "output", "content")
    unwrap: Callable[[JsonObject], list[C]] = lambda document: [cast(Any, document)]
    framing: Callable[[int], Machine[bytes, SseFrame]] = SseParser


_BUILT_IN: Final = ("chat_completions", "responses", "messages")


@cache
def get_backend(name: str) -> Backend[Any]:
    """The backend of that name: built in, or found by entry point. Raises ValueError, naming those there are."""
    if name in _BUILT_IN:
        return cast("Backend[Any]", import_module(f"rx_sampler.backends.{name}").BACKEND)
    from importlib.metadata import entry_points  # slow to import, and needed for third parties' backends only

    found = {point.name: point for point in entry_points(group="rx_sampler.backends")}
    if name not in found:
        raise ValueError(f"backend {name!r} is not known; known are {', '.join([*_BUILT_IN, *sorted(found)])}")
    loaded: Any = found[name].load()
    if not isinstance(loaded, Backend):
        raise ValueError(f"entry point {name!r} of group rx_sampler.backends is no Backend but {loaded!r}")
    return loaded  # pyright: ignore[reportUnknownVariableType]  # narrowed to Backend of anything, which is what it is


@cache
def _roads(chunk: type[Any]) -> tuple[Callable[[object], Any], Callable[[object], object]]:
    return TypeAdapter(chunk).validator.validate_python, fitter(chunk)


class ChunkDecoder(Machine[SseFrame, C], Generic[C]):
    """Frames to chunks: `[DONE]`, errors inside the stream and malformed JSON are dealt with here, for all backends."""

    def __init__(self, backend: Backend[C]) -> None:
        self._backend = backend
        self._validate, self._fit = _roads(cast(Any, backend.chunk))

    def feed(self, item: SseFrame) -> tuple[C, ...] | list[C]:
        event, data, _ = item
        if data[:1] != b"{" or event is UNFRAMED:
            data = data.strip()
            if event is UNFRAMED:
                return self._unframed(data)
            if data == b"[DONE]":
                return (DONE,)
            if not data:
                return ()
        try:
            document = from_json(data, allow_inf_nan=False, cache_strings="keys")
        except ValueError:
            return self._second_road(event, data)
        return self.read(event, data, document)

    def read(self, event: str, data: bytes, document: object) -> tuple[C, ...]:
        """The chunk of a frame whose data is parsed already."""
        chunk = self._typed(event, document)
        if chunk is None:
            return ()
        kind = chunk.get("type")
        if kind is None and event != "message":
            chunk["type"] = event  # only then: what the data says of itself wins
        if chunk.get("error") or kind == "error" or event == "error" or chunk.get("base_resp"):
            self._look_for_error(chunk, event, data)
        return (chunk,)

    def _second_road(self, event: str, data: bytes) -> tuple[C, ...]:
        """Data that the fast parser refuses: not quite UTF-8, half surrogate pairs, or no JSON at all."""
        try:
            return self.read(event, data, parse(data))
        except ValueError as error:
            if event == "error":
                raise refusal(read_error(data)) from None
            if not self._backend.is_own_event(event):
                return ()
            return (cast(C, MalformedChunk(_malformed(data, error))),)

    def _typed(self, event: str, document: object) -> Any | None:
        """The document as a chunk: every field of its declared type. None if it is no JSON object."""
        try:
            return self._validate(document)
        except ValidationError:
            pass
        for entry in as_list(document):
            if (as_object(entry) or {}).get("error"):  # Gemini's endpoint wraps its errors so
                raise refusal(read_error(entry))
        if event == "error" and as_object(document) is None:
            raise refusal(read_error(document))
        chunk = self._fit(document)
        return None if chunk is MISSING else chunk

    def _look_for_error(self, chunk: Any, event: str, data: bytes) -> None:
        named = event == "error" or chunk.get("type") == "error"
        found = read_error(parse(data))
        if found is not None or named:
            # The chunk itself still goes through: text and usage may ride on it.
            self.done, self.error = True, refusal(found)

    def _unframed(self, data: bytes) -> list[C]:
        try:
            document = parse(data)
        except ValueError:
            text = data[:4000].decode("utf-8", "replace")
            if is_markup(text):
                raise SamplingError.of(
                    SamplingErrorKind.API, "the server answered with a page, not an event stream", code="not_a_stream"
                ) from None
            raise SamplingError.of(
                SamplingErrorKind.HTTP, "the body ended inside a JSON answer", code="unterminated", is_retryable=True
            ) from None
        # An answer that was not streamed, or all that would have been, in a list.
        whole = cast("list[object]", document) if isinstance(document, list) else [document]
        parts = [as_object(part) or {} for part in whole]
        for part, raw in zip(parts, whole, strict=True):
            if (part.get("error") or not part or not self._answers(part)) and (found := read_error(raw)):
                raise refusal(found)
        chunks = [chunk for part in parts for chunk in self._backend.unwrap(part)]
        return [chunk if chunk is DONE else cast(C, self._fit(chunk)) for chunk in chunks]

    def _answers(self, document: JsonObject) -> bool:
        return any(document.get(name) for name in self._backend.answer_keys)


def _malformed(data: bytes, error: Exception) -> SamplingError:
    start = data[:60].decode("utf-8", "replace")
    return SamplingError.of(
        SamplingErrorKind.SERIALIZATION,
        clean_message(f"an event of the stream is not valid JSON ({error}): {start}"),
        code="malformed_json",
    )


def _full_way(_document: object) -> list[SamplingEvent] | None:
    return None


class EventReader(Machine[SseFrame, SamplingEvent]):
    """Decoder and transform in one, as a request uses them: what nearly all frames bring takes a short cut.

    Frames that `Transform.quick` knows go from JSON to events without being typed; all others take both stages.
    """

    def __init__(self, decoder: ChunkDecoder[Any], transform: Transform[Any]) -> None:
        self._decoder = decoder
        self._transform = transform
        self._quick = _full_way if transform.context.split_think_tags else transform.quick

    def feed(self, item: SseFrame) -> list[SamplingEvent]:
        event, data, _ = item
        try:
            document = from_json(data, allow_inf_nan=False, cache_strings="keys")
        except ValueError:
            return self._read(self._decoder.feed(item))
        if event != "error" and (events := self._quick(document)) is not None:
            return events
        if event is UNFRAMED:
            return self._read(self._decoder.feed(item))
        return self._read(self._decoder.read(event, data, document))

    def spill(self) -> Iterable[SamplingEvent]:
        return self._transform.spill()

    def fail(self, error: Exception) -> Exception:
        return self._transform.fail(error)

    def finish(self) -> list[SamplingEvent]:
        events = self._transform.finish()
        self.error = self._transform.error
        return events

    def _read(self, chunks: Iterable[Any]) -> list[SamplingEvent]:
        events: list[SamplingEvent] = []
        transform, decoder = self._transform, self._decoder
        for chunk in chunks:
            events += transform.feed(chunk)
            if transform.done:
                self.done, self.error = True, transform.error
                return events
        self.done, self.error = decoder.done, decoder.error
        return events


def typed_chunks(backend: str) -> Callable[[Observable[SseFrame]], Observable[Any]]:
    """The JSON objects of a stream, as the `TypedDict` of the backend's `chunks.py`; `DONE` for `[DONE]`.

    In: frames. Out: one chunk per frame that holds a JSON object; nothing for empty data, null, or foreign frames
    that are no JSON; an empty `MalformedChunk` where a frame of the backend's own is none, which makes the stream fail
    at its end (`serialization`), after all that could be read. Synchronous, cold as its source; dispose disposes it.
    Errors: the source's; `SamplingError` by its own type, code or status for an error inside the stream. Raises
    ValueError at call time for an unknown backend.
    """
    wire_format = get_backend(backend)
    return through(lambda: ChunkDecoder(wire_format))


class _Offline(Machine[Any, SamplingEvent]):
    """A transform outside of a request: it opens by itself, and its time is the subscriber's clock."""

    def __init__(self, transform: Transform[Any], clock: Callable[[], float]) -> None:
        self._transform = transform
        self._clock = clock
        self._opened = False
        transform.pulse.content_at = transform.pulse.now

    def feed(self, item: Any) -> list[SamplingEvent]:
        events = self._open()
        try:
            events += self._transform.feed(item)
            self.done, self.error = self._transform.done, self._transform.error
        except SamplingError as error:  # the opening events are not lost
            self.done, self.error = True, error
        return events

    def finish(self) -> list[SamplingEvent]:
        events = self._open()
        try:
            events += self._transform.finish()
            self.error = self._transform.error
        except SamplingError as error:  # the opening events are not lost
            self.error = error
        return events

    def spill(self) -> list[SamplingEvent]:
        return [*self._open(), *self._transform.spill()]

    def fail(self, error: Exception) -> Exception:
        return self._transform.fail(error)

    def _open(self) -> list[SamplingEvent]:
        self._transform.pulse.advance(self._clock())
        if self._opened:
            return []
        self._opened = True
        return self._transform.opening({})


def sampling_events(
    backend: str, *, request_id: str = "offline", attempt: int = 1, split_think_tags: bool = False
) -> Callable[[Observable[Any]], Observable[SamplingEvent]]:
    """The events of one attempt out of its chunks, as a request would give them.

    In: what `typed_chunks` gives. Out: `StreamStarted`, content, and `Completed` where the wire announces the end
    (emptiness is not judged here). Synchronous, cold as its source; dispose disposes it; stamps come from the
    subscription's scheduler, or the wall clock. Errors: `SamplingError` with `.partial` and `.metrics`, which
    `failures_as_events` makes a `Failed`. Raises ValueError at call time for an unknown backend.
    """
    wire_format = get_backend(backend)

    def operator(source: Observable[Any]) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            clock = clock_of(scheduler)

            def make() -> _Offline:
                context = Context(
                    request_id=request_id, attempt=attempt, pulse=Pulse(clock()), split_think_tags=split_think_tags
                )
                return _Offline(wire_format.transform(context), clock)

            return through(make)(source).subscribe(observer, scheduler=scheduler)

        return Observable(subscribe)

    return operator
