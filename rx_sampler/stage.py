"""How a pure stage becomes an operator.

A stage is a small state machine that knows no Rx, no clock and no socket; `through` lifts it. That is the only place
where stages meet Rx's subscribe protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, overload

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


class _Receiver(NamedTuple):
    on_next: Callable[[Any], None]
    on_error: Callable[[Exception], None]
    on_completed: Callable[[], None]


def _link(machine: Machine[Any, Any], behind: _Receiver, close_source: Callable[[], None]) -> _Receiver:
    """One machine in its place: fed by the source or link before it, feeding what stands behind."""
    feed = machine.feed
    push = behind.on_next
    ended = False

    def on_next(item: Any) -> None:
        if ended:
            return
        try:
            out = feed(item)
        except Exception as error:
            fail(error)
            return
        for value in out:
            push(value)
        if machine.done:
            finish()

    def on_error(error: Exception) -> None:
        if not ended:
            fail(error)

    def on_completed() -> None:
        if ended:
            return
        try:
            out = machine.finish()
        except Exception as error:
            fail(error)
            return
        for value in out:
            push(value)
        finish()

    def finish() -> None:
        nonlocal ended
        if machine.error is not None:
            fail(machine.error)
        else:
            ended = True
            behind.on_completed()
            close_source()

    def fail(error: Exception) -> None:
        nonlocal ended
        ended = True
        for value in machine.spill():
            push(value)
        behind.on_error(machine.fail(error))
        close_source()

    return _Receiver(on_next, on_error, on_completed)


def connect(
    source: Observable[Any],
    machines: Sequence[Machine[Any, Any]],
    observer: abc.ObserverBase[Any],
    scheduler: abc.SchedulerBase | None,
) -> abc.DisposableBase:
    """Subscribe to `source` through `machines`, one behind the other; dispose disposes the source."""
    upstream = SingleAssignmentDisposable()
    link = _Receiver(observer.on_next, observer.on_error, observer.on_completed)
    for machine in reversed(machines):
        link = _link(machine, link, upstream.dispose)
    upstream.disposable = source.subscribe(*link, scheduler=scheduler)
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
