"""The simulator in a thread of its own, for callers without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from .chaos import Chaos
from .received import ReceivedRequest
from .script import Timing, Turn
from .server import DEFAULT_NOW, Simulator

__all__ = ["SimulatorThread"]


class SimulatorThread:
    """A `Simulator` with the same parameters and attributes, entered with a plain `with`.

    Entering returns once the port is open, or raises what kept it shut; leaving returns once the thread has ended.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        timing: Timing | None = None,
        port: int = 0,
        script: Iterable[Turn] = (),
        chaos: Chaos | None = None,
        models: Iterable[str] = ("simulated-model",),
        now: int = DEFAULT_NOW,
    ) -> None:
        self._simulator = Simulator(
            seed=seed, timing=timing, port=port, script=script, chaos=chaos, models=models, now=now
        )
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port: what the anthropic client wants as its base URL."""
        return self._simulator.origin

    @property
    def base_url(self) -> str:
        """The origin with /v1: what rx_sampler and the openai client want."""
        return self._simulator.base_url

    @property
    def requests(self) -> list[ReceivedRequest]:
        """What came, oldest first; the last thousand requests."""
        return self._simulator.requests

    @property
    def active_count(self) -> int:
        """The requests that are being answered now."""
        return self._simulator.active_count

    def script_next(self, *turns: Turn) -> None:
        """Queue turns behind those that wait already."""
        self._simulator.script_next(*turns)

    def wait_received(self, count: int) -> None:
        """Return once `count` requests have come since the start."""
        self._run(self._simulator.wait_received(count))

    def wait_idle(self) -> None:
        """Return once no request is being answered."""
        self._run(self._simulator.wait_idle())

    def _run(self, waiting: Coroutine[Any, Any, None]) -> None:
        if self._loop is None:
            waiting.close()
            raise RuntimeError("the simulator does not run: use `with SimulatorThread() as simulator`")
        asyncio.run_coroutine_threadsafe(waiting, self._loop).result()

    def __enter__(self) -> SimulatorThread:
        if self._thread is not None:
            raise RuntimeError("the simulator runs already")
        ready: Future[None] = Future()
        thread = threading.Thread(
            target=asyncio.run, args=(self._serve(ready),), name="rx-sampler-simulator", daemon=True
        )
        thread.start()
        try:
            ready.result()
        except Exception:
            thread.join()
            raise
        self._thread = thread
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()

    async def _serve(self, ready: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self._simulator.__aenter__()
        except BaseException as error:
            ready.set_exception(error)
            return
        ready.set_result(None)
        try:
            await self._stop.wait()
        finally:
            await self._simulator.__aexit__(None, None, None)
            self._loop = None
