"""Some of the events, or of what they say."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

from reactivex import Observable, abc

from rx_sampler.events import REASONING, TEXT, AnnotationAdded, ChannelToken, Completed, Failed, SamplingEvent

__all__ = ["annotations", "channel", "for_request", "of_type", "reasoning", "text", "until_terminal"]

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


@overload
def of_type(kind: type[T], /) -> Callable[[Observable[object]], Observable[T]]: ...
@overload
def of_type(kind: type[T], other: type[U], /) -> Callable[[Observable[object]], Observable[T | U]]: ...
@overload
def of_type(
    kind: type[T], other: type[U], third: type[V], /
) -> Callable[[Observable[object]], Observable[T | U | V]]: ...
@overload
def of_type(*types: type[T]) -> Callable[[Observable[object]], Observable[T]]: ...
def of_type(*types: type[Any]) -> Callable[[Observable[object]], Observable[Any]]:
    """Only the values of these classes.

    With `of_type(Completed)`:

        source   -S-(Fa)-b-C-|
        of_type  ----------C-|

    In: anything. Out: what is an instance of one of `types`, typed as such. Synchronous, cold as its source; forwards
    the scheduler; dispose disposes the source. Errors by `on_error`: the source's. Raises TypeError at call time for
    what is no class.
    """
    if wrong := [kind for kind in types if not isinstance(kind, type)]:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"of_type takes classes, not {', '.join(map(repr, wrong))}")

    def operator(source: Observable[object]) -> Observable[Any]:
        def subscribe(
            observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            push = observer.on_next

            def on_next(value: object) -> None:
                if isinstance(value, types):
                    push(value)

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator


def annotations() -> Callable[[Observable[SamplingEvent]], Observable[AnnotationAdded]]:
    """Only the citations, as they come.

    With `n` for an `AnnotationAdded`:

        source       -S-(Fa)-n-C-|
        annotations  --------n---|

    As `of_type(AnnotationAdded)`. After `Retrying` they come anew; `accumulate` has those of the present attempt.
    """
    return of_type(AnnotationAdded)


def channel(name: str, choice: int = 0) -> Callable[[Observable[SamplingEvent]], Observable[str]]:
    """What is said on a channel, piece by piece.

    With `channel("refusal")`, and `r` for a token of that channel:

        source   -S-(Fr)-a-r-C-|
        channel  ---r------r---|

    In: events of one request, or of several, whose pieces then come as they are interleaved. Out: the text of each
    token of that channel and choice. After `Retrying` the answer begins anew: what was said before is void, which a
    piece cannot tell. Use `accumulate` to show the answer as it stands, or `commit_on` before, so that it does not
    happen. Synchronous, cold as its source; forwards the scheduler; dispose disposes the source. Errors by `on_error`:
    the source's.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[str]:
        def subscribe(
            observer: abc.ObserverBase[str], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            push = observer.on_next

            def on_next(event: SamplingEvent) -> None:
                if isinstance(event, ChannelToken) and event.channel == name and event.choice == choice:
                    push(event.text)

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator


def text(choice: int = 0) -> Callable[[Observable[SamplingEvent]], Observable[str]]:
    """The text of the answer, piece by piece.

    With `r` for a token of reasoning:

        source  -S-(Fr)-a-b-C-|
        text    --------a-b---|

    As `channel("text", choice)`.
    """
    return channel(TEXT, choice)


def reasoning(choice: int = 0) -> Callable[[Observable[SamplingEvent]], Observable[str]]:
    """What the model thinks, piece by piece, as far as it is told.

    With `r` for a token of reasoning:

        source     -S-(Fr)-a-b-C-|
        reasoning  ---r----------|

    As `channel("reasoning", choice)`.
    """
    return channel(REASONING, choice)


def for_request(request_id: str) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """The events of one request, to its end.

    With `x`, `y` and `Z` for events of another request, and C the end of this one:

        source       -S-x-(Fa)-Z-b-C-y-|
        for_request  -S---(Fa)---b-(C|)

    In: events of several requests. Out: those with this id; completes behind its terminal event, or with the source.
    Synchronous, cold as its source; forwards the scheduler. Dispose disposes the source, as does the terminal event.
    Errors by `on_error`: the source's.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            push = observer.on_next

            def on_next(event: SamplingEvent) -> None:
                if event.request_id == request_id:
                    push(event)
                    kind = event.__class__
                    if kind is Completed or kind is Failed:
                        observer.on_completed()  # which disposes the source too

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator


def until_terminal() -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """All events, up to the terminal one that leaves no request open.

    With `x` and `Y` for the first and the last event of another request:

        source          -S-x-(Fa)-C-Y-S--
        until_terminal  -S-x-(Fa)-C-(Y|)

    In: events of one request, or of several interleaved, such as `Sampler.events`, which goes on for ever. Out: the
    same; completes behind a terminal event once every request of which anything was seen has had its own, or with the
    source. Synchronous, cold as its source; forwards the scheduler. Dispose disposes the source, as does the end.
    Errors by `on_error`: the source's. Memory: the ids of the open requests.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            running: set[str] = set()
            see, push = running.add, observer.on_next

            def on_next(event: SamplingEvent) -> None:
                kind = event.__class__
                if kind is not Completed and kind is not Failed:
                    see(event.request_id)
                    push(event)
                    return
                running.discard(event.request_id)
                ends = not running
                push(event)
                if ends:
                    observer.on_completed()  # which disposes the source too

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator
