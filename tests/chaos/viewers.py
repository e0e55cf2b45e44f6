"""Who looks on in a storm: the subscriber of one request, that of all of a sampler's, and a sampler's observer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from reactivex import Observable, abc

from rx_sampler import Completed, Failed, Sampler, SamplingEvent
from rx_sampler.observing import RequestFacts

from .grammar import broken_rule
from .scripts import name_of

__all__ = ["Bus", "Ledger", "Record", "StormError", "Viewer"]


class StormError(Exception):
    """A subscriber's own fault."""


class Viewer:
    """A subscriber that keeps what it is told, in the order told, and does `act` after each event."""

    def __init__(
        self, act: Callable[[int], None] = lambda _count: None, at_end: Callable[[], None] = lambda: None
    ) -> None:
        self.events: list[SamplingEvent] = []
        self.late: list[str] = []
        """What came although nothing should."""
        self.completions = 0
        self.over = asyncio.Event()
        self._act = act
        self._at_end = at_end
        self._subscription: abc.DisposableBase | None = None
        self._leaving = False
        self._gone = False
        self._own_error: Exception | None = None

    def watch(self, source: Observable[SamplingEvent]) -> Viewer:
        self._subscription = source.subscribe(self._on_next, self._on_error, self._on_completed)
        if self._leaving:  # told to during the replay, when there was nothing to dispose of yet
            self.dispose()
        return self

    def dispose(self) -> None:
        """Leave, if the end has not come yet; from then on nothing may come."""
        self._leaving = True
        if self._subscription is not None and not self.completions:
            self._subscription.dispose()
            self._gone = True
            self.over.set()

    def fail(self, error: StormError) -> None:
        """Raise; from now on nothing may come but this error, to `on_error`."""
        self._own_error = error
        self._gone = True
        raise error

    @property
    def gone(self) -> bool:
        return self._gone

    def _on_next(self, event: SamplingEvent) -> None:
        if self._gone or self.completions:
            self.late.append(event.kind)
        self.events.append(event)
        self._act(len(self.events))

    def _on_error(self, error: Exception) -> None:
        if error is self._own_error:
            self._own_error = None  # it is told of its own error, once
        else:
            self.late.append(f"on_error({error!r})")
        self.over.set()

    def _on_completed(self) -> None:
        if self._gone or self.completions:
            self.late.append("completion")
        self.completions += 1
        self.over.set()
        self._at_end()

    def faults(self, name: str) -> Iterator[str]:
        """What is wrong with what it saw."""
        for what in self.late:
            yield f"{name}: {what} came, after the end or a dispose"
        if self._own_error is not None:
            yield f"{name}: not told of the error that it raised"
        if not self._gone and self.completions != 1:
            yield f"{name}: {self.completions} completions"
        if wrong := broken_rule(self.events, whole=not self._gone):
            yield f"{name}: {wrong}"


class Bus:
    """All events of a sampler's submitted requests, sorted by request."""

    def __init__(self, sampler: Sampler) -> None:
        self.by_id: dict[str, list[SamplingEvent]] = {}
        self.completions = 0
        self.errors: list[Exception] = []
        self._subscription = sampler.events.subscribe(self._on_next, self.errors.append, self._on_completed)

    def _on_next(self, event: SamplingEvent) -> None:
        self.by_id.setdefault(event.request_id, []).append(event)

    def _on_completed(self) -> None:
        self.completions += 1


class Record:
    """What a sampler's observer is told of one request."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self._attempts: list[int] = []
        self._times: list[float] = []
        self._events: list[SamplingEvent] = []
        self._dropped = 0

    def attempt_started(self, number: int, ts: float) -> None:
        self._attempts.append(number)
        self._times.append(ts)

    def on_event(self, event: SamplingEvent) -> None:
        self._events.append(event)
        self._times.append(event.ts)

    def dropped(self, ts: float) -> None:
        self._dropped += 1
        self._times.append(ts)

    def faults(self) -> Iterator[str]:
        """What is wrong with it, now that the request is over."""
        if self._attempts != list(range(1, len(self._attempts) + 1)):
            yield f"the observer was told of the attempts {self._attempts}"
        if self._times != sorted(self._times):
            yield "the observer's times go back"
        ended = bool(self._events) and isinstance(self._events[-1], Completed | Failed)
        if self._dropped + ended != 1:
            told = [event.kind for event in self._events[-3:]]
            yield f"the observer was told {self._dropped} times that it was dropped, after {told}"
        if wrong := broken_rule(self._events, whole=not self._dropped):
            yield f"the observer: {wrong}"


class Ledger:
    """A sampler's observer: a record of each request by the name that its script gives it."""

    def __init__(self) -> None:
        self.by_name: dict[str, Record] = {}
        self.twice: list[str] = []

    def request_made(self, facts: RequestFacts) -> Record:
        name = name_of(facts.request)
        if name in self.by_name:
            self.twice.append(name)
        self.by_name[name] = Record(facts.request_id)
        return self.by_name[name]
