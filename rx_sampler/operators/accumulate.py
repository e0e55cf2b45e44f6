"""What an answer amounts to, after each of its events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reactivex import Observable, abc

from rx_sampler.conversation import JsonObject, SamplingResponse, ToolCall
from rx_sampler.events import REASONING, REFUSAL, TEXT, Completed, Failed, Retrying, SamplingEvent

from .attempt_log import AttemptLog

__all__ = ["Snapshot", "accumulate"]

_TURNS: Final = frozenset({Retrying, Completed, Failed})
_SHOWN_CHARS: Final = 80
"""How much of a text its repr shows."""


class Snapshot:
    """A request as it stood after `event`: what its present attempt had brought by then. Never changes.

    Texts and calls are put together when they are asked for, at the cost of their length, from a log that the
    snapshots of one attempt share; a snapshot keeps that log alive. With the last event of a request they are those of
    its response. Two snapshots are equal if all events of the attempt are, up to and with `event`.
    """

    __slots__ = ("_length", "_log")

    _log: AttemptLog  # set by who makes it: a call of `__init__` per event would cost as much as all the rest
    _length: int

    @property
    def event(self) -> SamplingEvent:
        return self._log.events[self._length - 1]

    @property
    def request_id(self) -> str:
        return self.event.request_id

    @property
    def attempt(self) -> int:
        return self.event.attempt

    @property
    def is_over(self) -> bool:
        """Whether `event` is the request's last."""
        return isinstance(self.event, Completed | Failed)

    @property
    def chunk_count(self) -> int:
        """How many tokens have come in this attempt, over all channels and choices."""
        return self._log.chunk_count(self._length)

    @property
    def response(self) -> SamplingResponse | None:
        """The response of `Completed` or the partial one of `Failed`; None before, and where nothing had come."""
        event = self.event
        if isinstance(event, Completed):
            return event.response
        return event.partial if isinstance(event, Failed) else None

    @property
    def text(self) -> str:
        return self.channel(TEXT)

    @property
    def reasoning(self) -> str:
        return self.channel(REASONING)

    @property
    def refusal(self) -> str:
        return self.channel(REFUSAL)

    def channel(self, name: str, choice: int = 0) -> str:
        """The tokens of a channel and choice, joined; empty for a channel that said nothing."""
        response = self.response
        if response is not None and choice == 0:
            if name == TEXT:
                return response.text
            if name == REASONING:
                return response.reasoning
            if name == REFUSAL:
                return response.refusal
        return self._log.text(name, choice, self._length)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of choice 0 as they stand; `complete` only where the response says so."""
        response = self.response
        return response.tool_calls if response is not None else self._log.tool_calls(self._length)

    @property
    def annotations(self) -> tuple[JsonObject, ...]:
        """The citations, in the order they came."""
        response = self.response
        return response.annotations if response is not None else self._log.annotations(self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        if self._length != other._length:
            return False
        return self._log is other._log or (self._log.events[: self._length] == other._log.events[: other._length])

    def __hash__(self) -> int:
        return hash((self.request_id, self.attempt, self._length))

    def __repr__(self) -> str:
        text = self.text
        shown = repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}... ({len(text)} characters)"
        return (
            f"Snapshot({self.request_id!r}, attempt={self.attempt}, after {self.event.kind}, "
            f"chunk_count={self.chunk_count}, text={shown})"
        )


def accumulate() -> Callable[[Observable[SamplingEvent]], Observable[Snapshot]]:
    """A `Snapshot` after each event: what the request amounts to by then.

    The texts of the snapshots, with `e` for none, `x` for "a", `y` for "ab" and `z` for "c":

        source      -S-(Fa)-b---R--c---C-|
        accumulate  -e-(ex)-y---e--z---z-|

    In: events of one request, or of several interleaved. Out: one snapshot per event, of that event's request. After
    `Retrying` it starts anew; snapshots from before stay as they are.

    Synchronous, cold as its source, and as each subscription has state of its own; forwards the scheduler. Dispose
    disposes the source. Errors by `on_error`: the source's. Cost: an append per event, whatever the length of the
    answer; memory: the events of the running attempt of each request, and of older ones whose snapshots are held.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[Snapshot]:
        def subscribe(
            observer: abc.ObserverBase[Snapshot], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            logs: dict[str, AttemptLog] = {}
            push = observer.on_next

            def on_next(event: SamplingEvent) -> None:
                log = logs.get(event.request_id)
                if log is None or event.__class__ in _TURNS:
                    log = log_of(log, event)
                events = log.events
                events.append(event)
                snapshot = Snapshot()
                snapshot._log = log  # pyright: ignore[reportPrivateUsage]
                snapshot._length = len(events)  # pyright: ignore[reportPrivateUsage]
                push(snapshot)

            def log_of(log: AttemptLog | None, event: SamplingEvent) -> AttemptLog:
                if log is None or isinstance(event, Retrying):
                    log = logs[event.request_id] = AttemptLog()
                if isinstance(event, Completed | Failed):
                    del logs[event.request_id]
                return log

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator
