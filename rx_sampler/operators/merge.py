"""Several streams as one, each value with the name of where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable

__all__ = ["Tagged", "merge_tagged"]

K = TypeVar("K")
T = TypeVar("T")

_new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # of what, unsaid
"""What `Tagged(tag, value)` comes to, without the Python function around it: half the cost."""


class Tagged(NamedTuple, Generic[K, T]):
    """A value and the name of its stream."""

    tag: K
    value: T


def merge_tagged(tag: K, others: Mapping[K, Observable[T]]) -> Callable[[Observable[T]], Observable[Tagged[K, T]]]:
    """The values of the source and of `others` as they come, each with its name: `tag` for the source, or its key.

    With `merge_tagged("one", {"two": other})`, A being `Tagged("one", a)`, X `Tagged("two", x)` and so on:

        source        -a--b|
        other         --x----y-|
        merge_tagged  -AX-B--Y-|

    In: streams of anything: of the events of requests that are compared side by side, say, whose ids tell nothing. Out:
    one `Tagged` for each value, synchronously with it; completes when all have. Values that come at the same moment
    keep the order source, then `others` in theirs.

    Cold as its sources, all of which it subscribes to at once; forwards the scheduler. The first `on_error` passes and
    disposes the others: failures of requests are events. Dispose disposes all. A consumer that pauses (`flow`) makes
    all of them wait. Raises ValueError at call time where `tag` is one of the keys.
    """
    if tag in others:
        raise ValueError(f"{tag!r} names the source and one of the others; give each stream a name of its own")
    named = tuple(others.items())

    def operator(source: Observable[T]) -> Observable[Tagged[K, T]]:
        def subscribe(
            observer: abc.ObserverBase[Tagged[K, T]], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            push = observer.on_next
            running = 1 + len(named)
            subscriptions = CompositeDisposable()

            def tagging(name: K) -> Callable[[T], None]:
                new, kind = _new, Tagged
                return lambda value: push(new(kind, (name, value)))

            def on_error(error: Exception) -> None:
                subscriptions.dispose()
                observer.on_error(error)

            def on_completed() -> None:
                nonlocal running
                running -= 1
                if not running:
                    observer.on_completed()

            for name, stream in ((tag, source), *named):
                if subscriptions.is_disposed:  # one has failed while it was subscribed to
                    break
                subscriptions.add(stream.subscribe(tagging(name), on_error, on_completed, scheduler=scheduler))
            return subscriptions

        return Observable(subscribe)

    return operator
