"""For programs without an event loop: a sampler on a loop of its own, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from reactivex import Observable

from .actor import Question
from .config import SamplerConfig
from .events import SamplingEvent
from .flow import BoundedIterator, Overflow, to_async_iterator
from .sampler import Sampler, SamplingResult

__all__ = ["BlockingSampler", "blocking"]

T = TypeVar("T")


def blocking(config: SamplerConfig, **options: Any) -> BlockingSampler:
    """A sampler for scripts, Streamlit, Django, and whatever else has no event loop.

        with blocking(SamplerConfig.preset("openai", model="...")) as sampler:
            for event in sampler.iterate("Why is the sky blue?"):
                print(event)

    `options` are those of `Sampler`. Raises ValueError as `Sampler` does.
    """
    return BlockingSampler(Sampler(config, **options))


class BlockingSampler:
    """A `Sampler` that blocks: same events, same errors, same cancellation.

    To be entered with `with`, which starts the thread; at its end requests that still run are cancelled, connections
    are closed and the thread ends. Its methods may be called from any thread, several at a time, also from one whose
    event loop is running (a notebook), which they block. Outside of `with` they raise RuntimeError.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("the sampler is entered already")
        started: Future[asyncio.AbstractEventLoop] = Future()
        # A daemon: a program that forgot to leave must be able to end.
        self._thread = threading.Thread(target=_serve, args=(started,), name="rx_sampler portal", daemon=True)
        self._thread.start()
        self._loop = started.result()
        self._wait_for(self._sampler.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        try:
            self._wait_for(self._sampler.aclose())
        finally:
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def iterate(
        self, question: Question, *, capacity: int = 1024, overflow: Overflow = "pause", request_id: str | None = None
    ) -> Generator[SamplingEvent]:
        """The events of one request, as `Sampler.iterate` gives them.

        The request is sent when the iteration begins. Whoever leaves it early cancels it: `break`, `close()` of the
        iterator, an exception, Ctrl-C. Up to `capacity` events wait on the loop's side and as many on this one; then
        `overflow` decides (`pause`: the socket is not read).
        """
        events = self._sampler.iterate(question, capacity=capacity, overflow=overflow, request_id=request_id)
        return self._iterate(events)

    def collect(self, question: Question) -> SamplingResult:
        """The whole answer. Raises `SamplingError` if the request fails; Ctrl-C cancels it."""
        return self._wait_for(self._sampler.collect(question))

    def each(
        self, make: Callable[[Sampler], Observable[T]], *, capacity: int = 1024, overflow: Overflow = "pause"
    ) -> Generator[T]:
        """The values of whatever stream `make` builds on the sampler, with the rules of `iterate`.

            for event in sampler.each(lambda sampler: run_tools(sampler, "Rain?", [forecast])):
                print(event)

        `make` is called at once, on this thread; the stream runs on the sampler's loop.
        """
        return self._iterate(to_async_iterator(make(self._sampler), capacity, overflow))

    def run(self, make: Callable[[Sampler], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine returns that `make` gives, awaited on the sampler's loop; Ctrl-C cancels it.

        done = sampler.run(lambda sampler: collect_tools(sampler, "Rain?", [forecast]))
        """
        return self._wait_for(make(self._sampler))

    def _iterate(self, events: BoundedIterator[T]) -> Generator[T]:
        try:
            while batch := self._wait_for(events.take()):
                yield from batch
        finally:
            if (loop := self._loop) is not None:
                loop.call_soon_threadsafe(events.close)

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        loop = self._loop
        if loop is None:
            coroutine.close()
            raise RuntimeError("the sampler does not run: use `with blocking(...) as sampler`")
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C comes while we wait
            future.cancel()
            raise


def _serve(started: Future[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.call_soon(started.set_result, loop)
        loop.run_forever()
