"""The channels of an answer apart, from one subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rx_sampler.demand import Relay, current_demand, demanding
from rx_sampler.events import REASONING, REFUSAL, TEXT, SamplingEvent, ToolCallDelta
from rx_sampler.running import part_with, report

from .select import channel, of_type

__all__ = ["Channels", "split_channels"]

T = TypeVar("T")


class Channels:
    """What `split_channels` gives: the parts of one stream, each to be subscribed to before `connect`."""

    __slots__ = ("_hub", "events")

    def __init__(self, source: Observable[SamplingEvent]) -> None:
        self._hub = _Hub(source)
        self.events: Observable[SamplingEvent] = Observable(self._hub.join)
        """Everything."""

    @property
    def text(self) -> Observable[str]:
        """The text, piece by piece."""
        return self.channel(TEXT)

    @property
    def reasoning(self) -> Observable[str]:
        """The reasoning, piece by piece."""
        return self.channel(REASONING)

    @property
    def refusal(self) -> Observable[str]:
        """Words of refusal, piece by piece."""
        return self.channel(REFUSAL)

    @property
    def tool_calls(self) -> Observable[ToolCallDelta]:
        """The fragments of calls of the client's tools."""
        return self.events.pipe(of_type(ToolCallDelta))

    def channel(self, name: str, choice: int = 0) -> Observable[str]:
        """A channel by its name, piece by piece."""
        return self.events.pipe(channel(name, choice))

    def connect(self, scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        """Subscribe to the source; once, whatever the number of calls. Disposing it disposes the source."""
        return self._hub.connect(scheduler)


def split_channels() -> Callable[[Observable[SamplingEvent]], Channels]:
    """`Channels`: text, reasoning, refusal and tool calls of one stream, apart.

    With `r` for a token of reasoning:

        source     -S-(Fr)-a-C-|
        reasoning  ---r--------|
        text       --------a---|

    Not an observable, so it stands last in a `pipe`. Nothing is subscribed to before `connect()`, which subscribes to
    the source once, so that nothing is lost of a source that is synchronous, and a request is sent once. Parts that are
    subscribed to later miss what was before, but for the end. In: events of one request, or of several interleaved.

    Hot. Synchronous with the source, in the order of subscription; `connect` hands its scheduler on, and gives what
    disposes the source. A bounded consumer of a part that pauses (`flow`), subscribed to before `connect`, makes the
    source wait, and with it the others. A subscriber that raises loses its subscription, told to its `on_error` and to
    the loop's exception handler; its siblings go on. Errors by `on_error`: the source's, to all parts.
    """
    return Channels


class _Hub(abc.ObserverBase[SamplingEvent]):
    """One subscription, many observers, none of whom can harm another."""

    def __init__(self, source: Observable[SamplingEvent]) -> None:
        self._source = source
        self._observers: tuple[abc.ObserverBase[SamplingEvent], ...] = ()
        self._connection: abc.DisposableBase | None = None
        self._end: Callable[[abc.ObserverBase[Any]], None] | None = None
        self._relay = Relay()

    def join(
        self, observer: abc.ObserverBase[SamplingEvent], _scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        if self._end is not None:
            self._end(observer)
            return Disposable()
        self._observers = (*self._observers, observer)
        demand = current_demand()
        self._relay.attach(demand)

        def leave() -> None:
            self._leave(observer)
            self._relay.detach(demand)

        return Disposable(leave)

    def connect(self, scheduler: abc.SchedulerBase | None) -> abc.DisposableBase:
        if self._connection is None:
            self._connection = Disposable()  # a part may connect again from inside
            self._relay.attach(current_demand())
            with demanding(self._relay.demand if self._relay.is_watched else None):
                self._connection = self._source.subscribe(self, scheduler=scheduler)
        return self._connection

    def _leave(self, observer: abc.ObserverBase[SamplingEvent]) -> None:
        self._observers = tuple(one for one in self._observers if one is not observer)

    def on_next(self, value: SamplingEvent) -> None:
        for observer in self._observers:
            try:
                observer.on_next(value)
            except (Exception, asyncio.CancelledError) as error:
                self._leave(observer)
                part_with(observer, error)

    def on_error(self, error: Exception) -> None:
        self._finish(lambda observer: observer.on_error(error))

    def on_completed(self) -> None:
        self._finish(lambda observer: observer.on_completed())

    def _finish(self, end: Callable[[abc.ObserverBase[Any]], None]) -> None:
        self._end = end
        everyone, self._observers = self._observers, ()
        for observer in everyone:
            try:
                end(observer)
            except (Exception, asyncio.CancelledError) as error:
                report(error)
