"""How a pure stage becomes an operator.

A stage is a small state machine that knows no Rx, no clock and no socket; `through` lifts it. That is the only place
where stages meet Rx's subscribe protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import SingleAssignmentDisposable

__all__ = ["Chain", "Machine", "through"]

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


class Chain(Machine[Any, Any]):
    """Stages one after another as one machine: the same items as one `through` per stage, at one hop of Rx.

    What a stage raises or ends in passes through the stages behind it only, as an error of a source would.
    """

    def __init__(self, *stages: Machine[Any, Any]) -> None:
        self._stages = stages
        self._failed_at = 0

    def feed(self, item: Any) -> Iterable[Any]:
        return self._run(0, (item,))

    def finish(self) -> Iterable[Any]:
        return self._finish_from(0)

    def spill(self) -> Iterable[Any]:
        out: list[Any] = []
        for at in range(self._failed_at, len(self._stages)):
            out += self._run(at + 1, self._stages[at].spill())
        return out

    def fail(self, error: Exception) -> Exception:
        for stage in self._stages[self._failed_at :]:
            error = stage.fail(error)
        return error

    def _run(self, at: int, items: Iterable[Any]) -> Iterable[Any]:
        """What the stages from `at` on make of `items`."""
        for stage in self._stages[at:]:
            feed = stage.feed
            out: list[Any] = []
            for item in items:
                try:
                    out += feed(item)
                except Exception as error:
                    stage.done, stage.error = True, error
                if stage.done:
                    return self._close(self._stages.index(stage), out)
            if not out:
                return out
            items = out
        return items

    def _close(self, at: int, last: list[Any]) -> list[Any]:
        """The stage at `at` has ended: the ones behind it take its last items, then its end or its error."""
        out = list(self._run(at + 1, last))
        error = self._stages[at].error
        if not self.done and error is None:
            out += self._finish_from(at + 1)
        self._end(at, error)
        return out

    def _finish_from(self, at: int) -> list[Any]:
        out: list[Any] = []
        for at_stage in range(at, len(self._stages)):
            stage = self._stages[at_stage]
            try:
                last = stage.finish()
            except Exception as error:
                stage.error = error
                last = ()
            out += self._run(at_stage + 1, last)
            if self.done:
                break
            if stage.error is not None:
                self._end(at_stage, stage.error)
                break
        return out

    def _end(self, at: int, error: Exception | None) -> None:
        if not self.done:
            self.done, self.error, self._failed_at = True, error, at


def through(make: Callable[[], Machine[A, B]]) -> Callable[[Observable[A]], Observable[B]]:
    """An operator that runs a fresh machine per subscription.

    Out: what the machine returns, in order, synchronously with its source. Cold as its source; forwards the
    scheduler. Dispose disposes the source. Errors by `on_error`: the source's (through `Machine.fail`) and what the
    machine raises; what a subscriber raises is not caught here.
    """

    def operator(source: Observable[A]) -> Observable[B]:
        def subscribe(observer: abc.ObserverBase[B], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
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
