"""What the network did, on a tape, and the same again without a network: at once, or at the times of the tape."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from multidict import CIMultiDict
from pydantic import TypeAdapter
from reactivex import Observable, abc
from reactivex.disposable import BooleanDisposable

from rx_sampler import LoopTimeScheduler, SamplingError, SamplingErrorInfo
from rx_sampler.scheduling import clock_of
from rx_sampler.wire.transport import Connected, Prepare, ResponseHead, Transport, Wire

__all__ = ["HeldClock", "Player", "Recorder"]

INFO: Final = TypeAdapter(SamplingErrorInfo)


class HeldClock(LoopTimeScheduler):
    """A loop's time that can be held still, so that all that follows from a read has the very time of the tape."""

    _held: float | None = None

    def seconds(self) -> float:
        return super().seconds() if self._held is None else self._held

    @contextmanager
    def held(self, at: float) -> Generator[None]:
        self._held = at
        try:
            yield
        finally:
            self._held = None

    def until(self, at: float) -> asyncio.Future[None]:
        """Done when the loop's time comes to `at`."""
        loop = self.loop
        due = loop.create_future()
        loop.call_later(max(at - super().seconds(), 0.0), due.set_result, None)
        return due


@contextmanager
def _held(scheduler: abc.SchedulerBase | None, at: float) -> Generator[None]:
    if isinstance(scheduler, HeldClock):
        with scheduler.held(at):
            yield
    else:
        yield


class Recorder:
    """Notes all that a transport emits, one line of JSON each, with its time; exchanges begin with `sent`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.tape: list[str] = []

    def post(self, prepare: Prepare, is_over: Callable[[], bool] = lambda: False) -> Observable[Wire]:
        source = self._transport.post(prepare, is_over)

        def subscribe(
            observer: abc.ObserverBase[Wire], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            clock = clock_of(scheduler)
            self._note(clock(), "sent", None)

            def on_next(item: Wire) -> None:
                now = clock()
                match item:
                    case Connected():
                        self._note(now, "connected", None)
                    case ResponseHead():
                        head = {"status": item.status, "headers": dict(item.headers), "host": item.host}
                        self._note(now, "head", head)
                    case bytes():
                        self._note(now, "read", base64.b64encode(item).decode())
                with _held(scheduler, now):
                    observer.on_next(item)

            def on_error(error: Exception) -> None:
                now = clock()
                assert isinstance(error, SamplingError)
                self._note(now, "error", INFO.dump_python(error.info, mode="json"))
                with _held(scheduler, now):
                    observer.on_error(error)

            def on_completed() -> None:
                now = clock()
                self._note(now, "end", None)
                with _held(scheduler, now):
                    observer.on_completed()

            return source.subscribe(on_next, on_error, on_completed, scheduler=scheduler)

        return Observable(subscribe)

    def _note(self, at: float, what: str, content: object) -> None:
        self.tape.append(json.dumps([at, what, content]))

    def open(self) -> None:
        self._transport.open()

    async def aclose(self) -> None:
        await self._transport.aclose()


class Player:
    """A transport that plays a tape, exchange by exchange, and knows no network.

    At once, on whatever scheduler; or, on a `HeldClock`, each thing at its time.
    """

    def __init__(self, tape: list[str]) -> None:
        self._exchanges: list[list[tuple[float, str, Any]]] = []
        for line in tape:
            at, what, content = json.loads(line)
            if what == "sent":
                self._exchanges.append([])
            else:
                self._exchanges[-1].append((at, what, content))

    def post(
        self,
        prepare: Prepare,
        is_over: Callable[[], bool] = lambda: False,  # noqa: ARG002  # of the protocol
    ) -> Observable[Wire]:
        def subscribe(
            observer: abc.ObserverBase[Wire], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            assert scheduler is not None
            left = BooleanDisposable()

            def play(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
                with pytest.raises(StopIteration):  # it waits for nothing
                    prepare().__await__().__next__()
                for _, what, content in self._exchanges.pop(0):
                    if left.is_disposed:
                        return
                    _play(observer, what, content)

            async def play_in_time(clock: HeldClock) -> None:
                await prepare()
                for at, what, content in self._exchanges.pop(0):
                    await clock.until(at)
                    if left.is_disposed:
                        return
                    with clock.held(at):
                        _play(observer, what, content)

            if isinstance(scheduler, HeldClock):
                task = scheduler.loop.create_task(play_in_time(scheduler))
                task.add_done_callback(lambda done: done.result())
            else:
                scheduler.schedule(play)
            return left

        return Observable(subscribe)

    def open(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def _play(observer: abc.ObserverBase[Wire], what: str, content: Any) -> None:
    match what:
        case "connected":
            observer.on_next(Connected())
        case "head":
            headers: CIMultiDict[str] = CIMultiDict(content["headers"])
            observer.on_next(ResponseHead(status=content["status"], headers=headers, host=content["host"]))
        case "read":
            observer.on_next(base64.b64decode(content))
        case "error":
            observer.on_error(INFO.validate_python(content).to_error())
        case _:
            observer.on_completed()
