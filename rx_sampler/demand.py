"""Demand: how a consumer that has enough makes a source wait.

Rx has no backpressure, sockets do. A bounded consumer owns a `Demand`; a source that can wait owns a `Gate` and looks
at it before it brings more. They find each other at subscribe, through a context variable, so that whatever operators
stand between them need not know. Everything here belongs to the thread of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Demand", "Gate", "Relay", "current_demand", "demanding"]


class Gate:
    """A source's: shut while any demand on it is held."""

    __slots__ = ("_demands", "_held", "_opened")

    def __init__(self) -> None:
        self._demands: dict[Demand, None] = {}
        self._held = 0
        self._opened: asyncio.Future[None] | None = None

    @property
    def is_watched(self) -> bool:
        """Whether there is anybody who may shut it."""
        return bool(self._demands)

    @property
    def is_shut(self) -> bool:
        return self._held > 0

    async def opened(self) -> None:
        """Return once no demand is held."""
        while self._held:
            if self._opened is None:
                self._opened = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._opened)

    def attach(self, demand: Demand | None) -> None:
        """Look at `demand` too from now on; None is a consumer that takes whatever comes."""
        if demand is not None and demand not in self._demands:
            self._demands[demand] = None
            demand.join(self)
            if not demand.wants:
                self.hold()

    def detach(self, demand: Demand | None) -> None:
        """Look at it no more."""
        if demand is not None and demand in self._demands:
            del self._demands[demand]
            demand.leave(self)
            if not demand.wants:
                self.release()

    def close(self) -> None:
        """The source has ended: nobody need wait for it, nor it for anybody."""
        for demand in list(self._demands):
            self.detach(demand)

    def hold(self) -> None:
        """One demand more is held."""
        self._held += 1

    def release(self) -> None:
        """One demand less is held."""
        self._held -= 1
        if not self._held and self._opened is not None:
            opened, self._opened = self._opened, None
            if not opened.done() and not opened.get_loop().is_closed():
                opened.set_result(None)


class Demand:
    """A consumer's: whether it wants more. It holds back every source that it reached."""

    __slots__ = ("_gates", "_on_release", "wants")

    def __init__(self) -> None:
        self.wants = True
        self._gates: dict[Gate, None] = {}
        self._on_release: dict[Callable[[], None], None] = {}

    def hold(self) -> None:
        """No more for now. What is on its way still comes: what one frame brings, not what one read does."""
        if self.wants:
            self.wants = False
            for gate in self._gates:
                gate.hold()

    def release(self) -> None:
        """More, please: first of what was kept back, then of the sources."""
        if self.wants:
            return
        self.wants = True
        for gate in list(self._gates):
            gate.release()
        for go_on in list(self._on_release):
            if not self.wants:
                break
            go_on()

    def close(self) -> None:
        """The consumer is gone."""
        self._on_release.clear()
        for gate in list(self._gates):
            gate.detach(self)

    def join(self, gate: Gate) -> None:
        """`gate` looks at this demand."""
        self._gates[gate] = None

    def leave(self, gate: Gate) -> None:
        """`gate` does so no more."""
        self._gates.pop(gate, None)

    def on_release(self, go_on: Callable[[], None]) -> Callable[[], None]:
        """Call `go_on` at each release, which may fill the consumer again, until what this returns is called."""
        self._on_release[go_on] = None

        def forget() -> None:
            self._on_release.pop(go_on, None)

        return forget


class Relay(Gate):
    """Many demands as one: `demand` is held while any of those attached is."""

    __slots__ = ("demand",)

    def __init__(self) -> None:
        super().__init__()
        self.demand = Demand()

    def hold(self) -> None:
        super().hold()
        self.demand.hold()

    def release(self) -> None:
        super().release()
        if not self.is_shut:
            self.demand.release()


_current: ContextVar[Demand | None] = ContextVar("rx_sampler_demand", default=None)


def current_demand() -> Demand | None:
    """The demand of whoever subscribes now; None where nobody bounds what comes."""
    return _current.get()


@contextmanager
def demanding(demand: Demand | None) -> Generator[None]:
    """Subscriptions inside are for this demand.

    An operator that subscribes later than it is subscribed to takes `current_demand()` then and brings it back with
    this. A source that starts tasks or timers starts them inside `demanding(None)`: what a subscriber subscribes to
    from inside `on_next` has nothing to do with the demand on this one.
    """
    token = _current.set(demand)
    try:
        yield
    finally:
        _current.reset(token)
