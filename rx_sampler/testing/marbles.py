"""Marble tests: what comes when, drawn as it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from reactivex import Observable

from rx_sampler.events import SamplingEvent

from .diagrams import diagram_of
from .marble_expectation import Expectation, SubscriptionExpectation, caller, noted
from .marble_notices import Error, MarbleError, Templates, event_notices, notices_of, read_cold
from .marble_report import Notice
from .marble_syntax import Diagram, pointed, read_diagram, read_subscription
from .marble_time import MAX_ACTIONS, MarbleScheduler, MarbleSource

__all__ = ["MarbleError", "Marbles", "diagram_of", "drawn"]

T = TypeVar("T")


def drawn(diagram: str, templates: Templates | None = None, *, request_id: str = "r") -> list[SamplingEvent]:
    """The events of a diagram, without Rx: see `Marbles.events`."""
    notices = event_notices(diagram, read_diagram(diagram), templates, request_id, None)
    return [notice.value for notice in notices if notice.kind == "next"]


class Marbles:
    """Virtual time, sources drawn in it, and expectations drawn against it.

        with Marbles() as marbles:
            source = marbles.cold("-a-b-|", {"a": 1, "b": 2})
            marbles.expect(source.pipe(ops.map(str))).to_be("-a-b-|", {"a": "1", "b": "2"})
            marbles.expect_subscriptions(source).to_be("^----!")

    Expectations are checked when the block ends, or by `flush`; an exception in the block goes before. Diagrams are
    RxJS's: a character is a frame of a millisecond; `-` nothing, a letter a value (itself, if `values` does not name
    it), `(ab)` all at the time of the `(`, which takes the time of its characters, `|` completion, `#` an error
    (`MarbleError`, unless `error` is given), ` 10ms `, ` 1s ` and ` 1m ` time that passes, other spaces nothing, `^` in
    a hot diagram the time zero.

    Everything runs on `scheduler`, which what is expected is also subscribed with; `clock_of` reads it. Time zero is
    `EPOCH`, and after each `flush` or `record` the time that it came to. At one time, subscriptions and
    unsubscriptions of expectations come first. Raises ValueError for a diagram that cannot be read, with its place, and
    RuntimeError for what does not end within `max_actions`.
    """

    def __init__(self, *, max_actions: int = MAX_ACTIONS) -> None:
        self.scheduler = MarbleScheduler(max_actions=max_actions)
        self._zero_us = 0
        self._checks: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        if error is None:
            self.flush()

    # -- sources

    @overload
    def cold(self, diagram: str, values: None = None, error: Error = None) -> MarbleSource[str]: ...
    @overload
    def cold(self, diagram: str, values: Mapping[str, T], error: Error = None) -> MarbleSource[T]: ...
    def cold(self, diagram: str, values: Mapping[str, Any] | None = None, error: Error = None) -> MarbleSource[Any]:
        """Emits as drawn, from each subscription on."""
        return self._source(notices_of(diagram, read_cold(diagram), values, error), hot=False)

    @overload
    def hot(self, diagram: str, values: None = None, error: Error = None) -> MarbleSource[str]: ...
    @overload
    def hot(self, diagram: str, values: Mapping[str, T], error: Error = None) -> MarbleSource[T]: ...
    def hot(self, diagram: str, values: Mapping[str, Any] | None = None, error: Error = None) -> MarbleSource[Any]:
        """Emits as drawn from time zero, which is `^` if there is one, whoever is there; what is before it is past."""
        return self._source(notices_of(diagram, read_diagram(diagram), values, error), hot=True)

    def wire(
        self, diagram: str, reads: Mapping[str, bytes | Sequence[bytes]], error: Error = None
    ) -> MarbleSource[bytes]:
        """Bytes off the wire, cold; a letter may stand for several reads at one time. Raises ValueError for a letter
        without bytes."""
        found = read_cold(diagram)
        for mark in found.marks:
            if mark.kind == "next" and mark.letter not in reads:
                raise pointed(
                    diagram,
                    mark.place,
                    f"no bytes for {mark.letter!r}: reads has {', '.join(map(repr, reads)) or 'nothing'}",
                )
        notices: list[Notice] = []
        for notice in notices_of(diagram, found, reads, error):
            if notice.kind != "next" or isinstance(notice.value, bytes):
                notices.append(notice)
            else:
                notices += [Notice(notice.at_ms, "next", piece) for piece in notice.value]
        return self._source(notices, hot=False)

    def events(
        self, diagram: str, templates: Templates | None = None, *, request_id: str = "r", error: Error = None
    ) -> MarbleSource[SamplingEvent]:
        """Sampling events, cold: `-S-(Fa)-b-C|`.

        `S` is `StreamStarted`, `F` the `FirstToken` of the token behind it, `R` `Retrying`, `C` `Completed` and `X`
        `Failed` (with what was drawn as their response), any other letter a token of text that says that letter;
        `templates` says otherwise (`made` has them, or an event as it is). Attempts and chunks are counted for each
        request; `ts` is the frame's time, counted from time zero, also where it is subscribed to later.
        """
        found = read_cold(diagram)
        return self._source(event_notices(diagram, found, templates, request_id, error, self._zero_us), hot=False)

    def hot_events(
        self, diagram: str, templates: Templates | None = None, *, request_id: str = "r", error: Error = None
    ) -> MarbleSource[SamplingEvent]:
        """The same, hot."""
        found = read_diagram(diagram)
        return self._source(event_notices(diagram, found, templates, request_id, error, self._zero_us), hot=True)

    def _source(self, notices: list[Notice], *, hot: bool) -> MarbleSource[Any]:
        notices = [
            Notice(one.at_ms, one.kind, one.value()) if one.kind == "error" and isinstance(one.value, type) else one
            for one in notices
        ]
        return MarbleSource(self.scheduler, notices, hot=hot, zero_us=self._zero_us)

    # -- expectations

    def expect(self, observable: Observable[T], until: str | None = None) -> Expectation[T]:
        """What comes of `observable`, subscribed to at time zero, or as `until` draws it (`^--!`).

        Times count from time zero, also where the subscription begins later.
        """
        span = read_subscription(until) if until is not None else Diagram(())

        def note(other: Observable[Any]) -> list[Notice]:
            return noted(self.scheduler, self._zero_us, other, span)

        expectation: Expectation[T] = Expectation(observable, note, self._zero_us, caller())
        self._checks.append(expectation.check)
        return expectation

    def expect_subscriptions(self, source: MarbleSource[Any]) -> SubscriptionExpectation:
        """When `source` was subscribed to."""
        expectation = SubscriptionExpectation(source, caller())
        self._checks.append(expectation.check)
        return expectation

    def record(self, observable: Observable[Any], until: str | None = None) -> list[Notice]:
        """What came of `observable` by the end of time: subscribes, runs, and gives it."""
        span = read_subscription(until) if until is not None else Diagram(())
        notices = noted(self.scheduler, self._zero_us, observable, span)
        self._run()
        return notices

    def flush(self) -> None:
        """Run until nothing is to happen any more, and check what was expected since the last time.

        Raises AssertionError for the first expectation that is not met: it names the line of the expectation and the
        first difference, and shows both diagrams.
        """
        __tracebackhide__ = True
        checks, self._checks = self._checks, []
        self._run()
        for check in checks:
            check()

    def _run(self) -> None:
        self.scheduler.run()
        self._zero_us = self.scheduler.microseconds
