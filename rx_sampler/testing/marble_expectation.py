"""What is expected of observables and of subscriptions, and how it is checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from reactivex import Observable, abc

from .marble_notices import Error, Templates, event_notices, notices_of
from .marble_report import Notice, difference
from .marble_syntax import Diagram, drawn_subscription, pointed, read_diagram, read_subscription
from .marble_time import EPOCH, MarbleScheduler, MarbleSource, Subscription

__all__ = ["Expectation", "SubscriptionExpectation", "caller", "noted"]

T = TypeVar("T")

_KIT: Final = Path(__file__).parent


class Expectation(Generic[T]):
    """What is expected of one observable: say it by one of the three methods."""

    def __init__(
        self, observable: Observable[T], note: Callable[[Observable[Any]], list[Notice]], zero_us: int, where: str
    ) -> None:
        self._note = note
        self._zero_us = zero_us
        self._where = where
        self._seen = note(observable)
        self._expected: list[Notice] | None = None
        self._letters: Mapping[str, Any] = {}

    def to_be(self, diagram: str, values: Mapping[str, object] | None = None, error: Error = None) -> None:
        """Exactly what the diagram shows, at those times; values by `==`, errors by type and content (by type alone
        where `error` is a class)."""
        self._say(notices_of(diagram, read_diagram(diagram), values, error))
        self._letters = values or {}

    def to_be_events(
        self, diagram: str, templates: Templates | None = None, *, request_id: str = "r", error: Error = None
    ) -> None:
        """Exactly the events that the diagram draws, as `Marbles.events` does."""
        self._say(event_notices(diagram, read_diagram(diagram), templates, request_id, error, self._zero_us))

    def to_equal(self, other: Observable[T]) -> None:
        """Exactly what comes of `other`, subscribed to at the same times."""
        self._say(self._note(other))

    def _say(self, expected: list[Notice]) -> None:
        if self._expected is not None:
            raise ValueError(f"{self._where}: it is said already what is expected; another expect(...) says more")
        self._expected = expected

    def check(self) -> None:
        __tracebackhide__ = True
        if self._expected is None:
            raise AssertionError(f"{self._where}: expect(...) says nothing: call to_be, to_be_events or to_equal on it")
        found = difference(self._expected, self._seen, self._letters)
        if found is not None:
            raise AssertionError(f"{self._where}: {found}")


class SubscriptionExpectation:
    """What is expected of the subscriptions to one source."""

    def __init__(self, source: MarbleSource[Any], where: str) -> None:
        self._source = source
        self._where = where
        self._expected: list[Subscription] | None = None

    def to_be(self, *diagrams: str) -> None:
        """One `^--!` for each subscription, in their order; without `!` it lasts, without `^` there is none."""
        if self._expected is not None:
            raise ValueError(f"{self._where}: it is said already what is expected; another one says more")
        self._expected = list(_spans(diagrams))

    def check(self) -> None:
        __tracebackhide__ = True
        if self._expected is None:
            raise AssertionError(f"{self._where}: expect_subscriptions(...) says nothing: call to_be on it")
        found = self._source.subscriptions
        if found != self._expected:
            raise AssertionError(f"{self._where}: {_subscription_difference(self._expected, found)}")


def _spans(diagrams: Sequence[str]) -> Iterator[Subscription]:
    for diagram in diagrams:
        span = read_subscription(diagram)
        if span.subscribed is not None:
            yield Subscription(span.subscribed, span.unsubscribed)
        elif span.unsubscribed is not None:
            raise pointed(diagram, diagram.index("!"), "nothing was subscribed to before; draw ^ where it was")


def _subscription_difference(expected: Sequence[Subscription], found: Sequence[Subscription]) -> str:
    place = next((at for at, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), None)
    if place is None:
        place = min(len(expected), len(found))
    wanted, came = (_in_words(spans[place]) if place < len(spans) else "none" for spans in (expected, found))
    rows = [
        f"{title:9s} {_drawn_span(one)}" for title, spans in (("expected", expected), ("found", found)) for one in spans
    ]
    return "\n".join([f"subscription {place + 1}: expected {wanted}; found {came}", *rows])


def _in_words(span: Subscription) -> str:
    end = "on" if span.unsubscribed_ms is None else f"to {span.unsubscribed_ms:g} ms"
    return f"from {span.subscribed_ms:g} ms {end}"


def _drawn_span(span: Subscription) -> str:
    times = [time for time in (span.subscribed_ms, span.unsubscribed_ms) if time is not None]
    if any(time != int(time) or time < 0 for time in times):
        return _in_words(span)
    return drawn_subscription(*map(int, times))


def noted(scheduler: MarbleScheduler, zero_us: int, observable: Observable[Any], span: Diagram) -> list[Notice]:
    """What an observer will be told that subscribes and leaves as `span` says."""
    notices: list[Notice] = []
    subscription: list[abc.DisposableBase] = []

    def note(kind: Any, value: object = None) -> None:
        notices.append(Notice((scheduler.microseconds - zero_us) / 1000, kind, value))

    def subscribe(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
        subscription.append(
            observable.subscribe(
                lambda value: note("next", value),
                lambda error: note("error", error),
                lambda: note("completed"),
                scheduler=scheduler,
            )
        )

    def dispose(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
        for one in subscription:
            one.dispose()

    zero = EPOCH + timedelta(microseconds=zero_us)
    scheduler.schedule_first(zero + timedelta(milliseconds=span.subscribed or 0), subscribe)
    if span.unsubscribed is not None:
        scheduler.schedule_first(zero + timedelta(milliseconds=span.unsubscribed), dispose)
    return notices


def caller() -> str:
    """The line that called into the kit: the traceback of a check ends where the block does."""
    frame = inspect.currentframe()
    while frame is not None and Path(frame.f_code.co_filename).parent == _KIT:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else "somewhere"
