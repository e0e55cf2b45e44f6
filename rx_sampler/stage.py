"""How a pure stage becomes an operator.

A stage is a small state machine that knows no Rx, no clock and no socket; `through` lifts it. That is the only place
where stages meet Rx's subscribe protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import SingleAssignmentDisposable

__all__ = ["Machine", "through"]

A = TypeVar("A")
B = TypeVar("B")


class Machine(Generic[A, B]):
    """A stage: items of A in, items of B out, for one stream.

    `feed` and `finish` return what became known; they may raise, which fails the stream. A machine that has seen
    the logical end sets `done`: its stream then ends after the items it just returned, without waiting for its
    source; with `error` set it ends in that error.
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


def through(make: Callable[[], Machine[A, B]]) -> Callable[[Observable[A]], Observable[B]]:
    """An operator that runs a fresh machine per subscription.

    Out: what the machine returns, in order, synchronously with its source. Cold as its source; forwards the
    scheduler. Dispose disposes the source. Errors by `on_error`: the source's (through `Machine.fail`) and what the
    machine raises; what a subscriber raises is not caught here.
    """

    def operator(source: Observable[A]) -> Observable[B]:
        def subscribe(
            observer: abc.ObserverBase[B], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            machine = make()
            feed = machine.feed
            push = observer.on_next
            upstream = SingleAssignmentDisposable()
            ended = False

            def end(error: Exception | None) -> None:
                nonlocal ended
                ended = True
                if error is None:
                    observer.on_completed()
                else:
                    observer.on_error(error)
                upstream.dispose()

            def fail(error: Exception) -> None:
                for value in machine.spill():
                    push(value)
                end(machine.fail(error))

            def finish() -> None:
                if machine.error is None:
                    end(None)
                else:
                    fail(machine.error)

            def on_next(item: A) -> None:
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

            upstream.disposable = source.subscribe(on_next, on_error, on_completed, scheduler=scheduler)
            return upstream

        return Observable(subscribe)

    return operator
