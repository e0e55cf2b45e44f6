"""How a pure stage becomes an operator.

A stage is a small state machine that knows no Rx, no clock and no socket; `through` lifts it. That is the only place
where stages meet Rx's subscribe protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload

from reactivex import Observable, abc
from reactivex.disposable import SingleAssignmentDisposable

__all__ = ["Machine", "connect", "through"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class Machine(Generic[A, B]):
    """A stage: items of A in, items of B out, for one stream.

    `feed` and `finish` return what became known; they may raise, which fails the stream. (A generator serves too, so
    that a large item is not held in pieces; it must not raise.) A machine that has seen the logical end sets `done`:
    its stream then ends after the items it just returned, without waiting for its source; with `error` set it ends
    in that error.
    """

    done: bool = False
    error: Exception | None = None

    def feed(self, item: A) -> Iterable[B]:
        """What `item` brings."""
        raise NotImplementedError

    def finish(self) -> Iterable[B]:
        """What is left at the end of the source."""
        return ()

    def spill(self) -> Iterable[B]:
        """What was held back, when the source fails: nothing that came may be lost."""
        return ()

    def fail(self, error: Exception) -> Exception:
        """The error to pass on when the source fails: a stage may add what it knows."""
        return error


class _Receiver(Protocol):
    """What stands behind a link: another link, or the observer."""

    def on_next(self, value: Any, /) -> None: ...

    def on_error(self, error: Exception, /) -> None: ...

    def on_completed(self) -> None: ...


class _Link:
    """One machine in its place: fed by the source or the link before it, feeding what stands behind."""

    __slots__ = ("_behind", "_close_source", "_ended", "_feed", "_machine", "_push")

    def __init__(self, machine: Machine[Any, Any], behind: _Receiver, close_source: Callable[[], None]) -> None:
        self._machine = machine
        self._feed = machine.feed
        self._behind = behind
        self._push = behind.on_next
        self._close_source = close_source
        self._ended = False

    def on_next(self, item: Any) -> None:
        if self._ended:
            return
        try:
            out = self._feed(item)
        except Exception as error:
            self._fail(error)
            return
        push = self._push
        for value in out:
            push(value)
        if self._machine.done:
            self._finish()

    def on_error(self, error: Exception) -> None:
        if not self._ended:
            self._fail(error)

    def on_completed(self) -> None:
        if self._ended:
            return
        try:
            out = self._machine.finish()
        except Exception as error:
            self._fail(error)
            return
        for value in out:
            self._push(value)
        self._finish()

    def _finish(self) -> None:
        if self._machine.error is not None:
            self._fail(self._machine.error)
        else:
            self._ended = True
            self._behind.on_completed()
            self._close_source()

    def _fail(self, error: Exception) -> None:
        self._ended = True
        for value in self._machine.spill():
            self._push(value)
        self._behind.on_error(self._machine.fail(error))
        self._close_source()


def connect(
    source: Observable[Any],
    machines: Sequence[Machine[Any, Any]],
    observer: abc.ObserverBase[Any],
    scheduler: abc.SchedulerBase | None,
) -> abc.DisposableBase:
    """Subscribe to `source` through `machines`, one behind the other; dispose disposes the source."""
    upstream = SingleAssignmentDisposable()
    close_source = upstream.dispose
    link: _Receiver = observer
    for machine in reversed(machines):
        link = _Link(machine, link, close_source)
    upstream.disposable = source.subscribe(link.on_next, link.on_error, link.on_completed, scheduler=scheduler)
    return upstream


@overload
def through(first: Callable[[], Machine[A, B]], /) -> Callable[[Observable[A]], Observable[B]]: ...
@overload
def through(
    first: Callable[[], Machine[A, B]], second: Callable[[], Machine[B, C]], /
) -> Callable[[Observable[A]], Observable[C]]: ...
@overload
def through(
    first: Callable[[], Machine[A, B]],
    second: Callable[[], Machine[B, C]],
    third: Callable[[], Machine[C, D]],
    /,
) -> Callable[[Observable[A]], Observable[D]]: ...
@overload
def through(
    first: Callable[[], Machine[A, B]],
    second: Callable[[], Machine[B, C]],
    third: Callable[[], Machine[C, D]],
    fourth: Callable[[], Machine[D, E]],
    /,
) -> Callable[[Observable[A]], Observable[E]]: ...
def through(*makers: Callable[[], Machine[Any, Any]]) -> Callable[[Observable[Any]], Observable[Any]]:
    """An operator that runs fresh machines per subscription, one behind the other.

    `through(a, b)` gives what `through(a)` piped into `through(b)` gives, without Rx's own cost between the two.

    Out: what the last machine returns, in order, synchronously with the source. Cold as the source; forwards the
    scheduler. Dispose disposes the source, as does a machine that is done. Errors by `on_error`: the source's and
    what a machine raises, each through `Machine.fail` of the machines behind; what a subscriber raises is not caught.
    """

    def operator(source: Observable[Any]) -> Observable[Any]:
        def subscribe(
            observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            return connect(source, [make() for make in makers], observer, scheduler)

        return Observable(subscribe)

    return operator
