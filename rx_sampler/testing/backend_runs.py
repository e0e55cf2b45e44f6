"""A backend at work without network and clock: reads or frames in, events out; and what can be done to frames."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, Final, cast

import reactivex as rx
from reactivex import Observable
from reactivex.scheduler import ImmediateScheduler

from rx_sampler.backends.assembly import Context, Transform
from rx_sampler.backends.base import Backend, ChunkDecoder, EventReader
from rx_sampler.events import SamplingEvent
from rx_sampler.outcome import failures_as_events
from rx_sampler.stage import through
from rx_sampler.wire.idle import Pulse
from rx_sampler.wire.sse import DEFAULT_MAX_FRAME_BYTES, SseFrame

__all__ = ["Runs", "spoilt_frames"]

_MOMENT: Final = 1_000.0
_ODD: Final = tuple(map(json.loads, ("null", "[]", "{}", '"x"', "7", "true", "[null]", '{"x": null}')))
_LOST: Final = object()

Operator = Callable[[Observable[Any]], Observable[SamplingEvent]]


class _StillTime(ImmediateScheduler):
    """Everything happens at one moment: events of two runs are equal by value, stamps included."""

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(_MOMENT, UTC)


class Runs:
    """Streams of one backend. Whatever its machines raise that is no `SamplingError` comes out here."""

    def __init__(self, backend: Backend[Any]) -> None:
        self._backend = backend

    def reads(self, reads: Iterable[bytes]) -> list[SamplingEvent]:
        """The events of a body that arrives so, as a request reads it."""
        backend = self._backend
        return self._run(
            reads,
            lambda transform: through(
                lambda: backend.framing(DEFAULT_MAX_FRAME_BYTES), lambda: EventReader(ChunkDecoder(backend), transform)
            ),
        )

    def frames(self, frames: Iterable[SseFrame]) -> list[SamplingEvent]:
        """The events of frames, as a request reads them."""
        return self._run(frames, self._reading)

    def stages(self, frames: Iterable[SseFrame]) -> list[SamplingEvent]:
        """The same by the long way: chunks first, and no short cut."""
        decoder = ChunkDecoder(self._backend)
        return self._run(frames, lambda transform: through(lambda: decoder, lambda: transform))

    def framed(self, body: bytes) -> list[SseFrame]:
        """The frames of a body."""
        machine = self._backend.framing(DEFAULT_MAX_FRAME_BYTES)
        return [*machine.feed(body), *machine.finish()]

    def in_turns(self, first: Sequence[SseFrame], second: Sequence[SseFrame]) -> list[list[SamplingEvent]]:
        """The events of two streams that are read at the same time, a frame of each in turn."""
        sources: list[rx.Subject[SseFrame]] = [rx.Subject(), rx.Subject()]
        runs = [self._begin(source, self._reading) for source in sources]
        for at in range(max(len(first), len(second))):
            for source, frames in zip(sources, (first, second), strict=True):
                if at < len(frames):
                    source.on_next(frames[at])
        for source in sources:
            source.on_completed()
        return [_told(*run) for run in runs]

    def ends_itself(self, frames: Iterable[SseFrame]) -> bool:
        """Whether the backend sees the end of the answer in its frames, and not in the end of the body."""
        reader = EventReader(ChunkDecoder(self._backend), self._transform())
        for frame in frames:
            reader.feed(frame)
            if reader.done:
                return True
        return False

    def _reading(self, transform: Transform[Any]) -> Operator:
        return through(lambda: EventReader(ChunkDecoder(self._backend), transform))

    def _transform(self) -> Transform[Any]:
        return self._backend.transform(Context(request_id="check", pulse=Pulse(_MOMENT)))

    def _run(self, items: Iterable[Any], make: Callable[[Transform[Any]], Operator]) -> list[SamplingEvent]:
        return _told(*self._begin(rx.from_iterable(items), make))

    def _begin(
        self, source: Observable[Any], make: Callable[[Transform[Any]], Operator]
    ) -> tuple[list[SamplingEvent], list[Exception]]:
        transform = self._transform()
        events, errors = transform.opening({}), list[Exception]()
        source.pipe(make(transform), failures_as_events(request_id="check")).subscribe(
            events.append, errors.append, scheduler=_StillTime()
        )
        return events, errors


def _told(events: list[SamplingEvent], errors: list[Exception]) -> list[SamplingEvent]:
    if errors:
        raise errors[0]
    return events


def spoilt_frames(frames: Sequence[SseFrame], seed: int, count: int) -> Iterator[tuple[str, list[SseFrame]]]:
    """The frames with one JSON value lost or of another type, and which; `count` such changes of all that there are."""
    changes = [
        (at, path, odd) for at, frame in enumerate(frames) for path in _paths(_parsed(frame)) for odd in (_LOST, *_ODD)
    ]
    if len(changes) > count:
        changes = Random(seed).sample(changes, count)  # noqa: S311 - chance for a test, no secret
    for at, path, odd in changes:
        document = _parsed(frames[at])
        parent: Any = document
        for key in path[:-1]:
            parent = parent[key]
        if odd is _LOST:
            del parent[path[-1]]
        else:
            parent[path[-1]] = copy.copy(odd)
        spoilt = frames[at]._replace(data=json.dumps(document).encode())
        change = "lost" if odd is _LOST else json.dumps(odd)
        where = ".".join(map(str, path))
        yield f"frame {at} with {where} {change}", [*frames[:at], spoilt, *frames[at + 1 :]]


def _parsed(frame: SseFrame) -> object:
    try:
        return json.loads(frame.data)
    except ValueError:
        return None


def _paths(value: object) -> Iterator[tuple[str | int, ...]]:
    """The way to each value in a JSON document."""
    inner: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        inner = cast("dict[str, object]", value).items()
    elif isinstance(value, list):
        inner = enumerate(cast("list[object]", value))
    for key, below in inner:
        yield (key,)
        for path in _paths(below):
            yield (key, *path)
