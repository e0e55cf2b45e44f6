"""The event grammar: which events may follow which, and what a terminal event has to say after them.

It holds for every stream of this library, of whatever wire format, whole or broken, and for the streams of a backend
that is yours. `check_events` is for tests, `EventGrammar` reads event by event, `checked_events` watches a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reactivex import Observable

from rx_sampler.events import Completed, Failed, SamplingEvent
from rx_sampler.stage import Machine, through

from .event_grammar import EventGrammar

__all__ = ["EventGrammar", "GrammarError", "check_all_events", "check_events", "checked_events"]


class GrammarError(AssertionError):
    """An event that may not stand where it does. `event` is None where one is missing at the end."""

    def __init__(self, rule: str, position: int, event: SamplingEvent | None) -> None:
        super().__init__(f"event {position} ({event.kind if event is not None else 'the end'}): {rule}")
        self.rule = rule
        """What is wrong, in words."""
        self.position = position
        """The event's place, counted from 0; how many events there were, where one is missing."""
        self.event = event


def check_events(
    events: Iterable[SamplingEvent], *, backend: str | None = None, whole: bool = True, first_attempt: int = 1
) -> None:
    """Raise `GrammarError` at the first event of one request that is out of order.

    `backend` names the wire format, for what is true of that one only: give it for streams that keep to their
    protocol. `whole=False` is for the beginning of a stream, which need not reach its terminal event.
    """
    grammar = EventGrammar(backend=backend, first_attempt=first_attempt)
    count = 0
    for count, event in enumerate(events, 1):
        if (rule := grammar.read(event)) is not None:
            raise GrammarError(rule, count - 1, event)
    if whole and (rule := grammar.finish()) is not None:
        raise GrammarError(rule, count, None)


def check_all_events(events: Iterable[SamplingEvent], *, backend: str | None = None, whole: bool = True) -> None:
    """The same for the events of any number of requests, interleaved; `position` counts all of them.

    A request id may come again once its request has ended: that is another request.
    """
    grammars: dict[str, EventGrammar] = {}
    count = 0
    for count, event in enumerate(events, 1):
        grammar = grammars.setdefault(event.request_id, EventGrammar(backend=backend))
        if (rule := grammar.read(event)) is not None:
            if grammar.ended and event.attempt == 1 and not isinstance(event, Completed | Failed):
                grammar = grammars[event.request_id] = EventGrammar(backend=backend)
                rule = grammar.read(event)
            if rule is not None:
                raise GrammarError(f"of request {event.request_id!r}: {rule}", count - 1, event)
    for request_id, grammar in grammars.items():
        if whole and (rule := grammar.finish()) is not None:
            raise GrammarError(f"of request {request_id!r}: {rule}", count, None)


def checked_events(*, backend: str | None = None) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The same events of one request, up to the first that is out of order: that one is an error instead.

        source          -S-(Ft)-S-C|
        checked_events  -S-(Ft)-#

    In: the events of one request. Out: the same. Errors by `on_error`: the source's, and `GrammarError` for an event
    that may not stand where it does, or a completion before the terminal event; the source is then disposed of.
    Synchronous, cold as its source, forwards the scheduler. Memory: what the attempt streamed.
    """
    return through(lambda: _Checked(backend))


class _Checked(Machine[SamplingEvent, SamplingEvent]):
    def __init__(self, backend: str | None) -> None:
        self._grammar = EventGrammar(backend=backend)
        self._count = 0

    def feed(self, item: SamplingEvent) -> tuple[SamplingEvent, ...]:
        if (rule := self._grammar.read(item)) is not None:
            raise GrammarError(rule, self._count, item)
        self._count += 1
        return (item,)

    def finish(self) -> tuple[SamplingEvent, ...]:
        if (rule := self._grammar.finish()) is not None:
            raise GrammarError(rule, self._count, None)
        return ()
