"""An asyncio loop in virtual time: hours of waiting pass in no time, and every timer comes due exactly at its time."""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple

from rx_sampler.scheduling import running_loop

__all__ = ["DeadlockError", "VirtualTimeLoop", "run_virtual"]

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_SHOWN_TASKS: Final = 10
"""How many tasks the message of a deadlock lists; the others are counted."""


class DeadlockError(RuntimeError):
    """Nothing can happen any more: no callback is ready, no timer is set, no socket and no job of a thread is awaited.

    The message says at which virtual time, and where each task stands.
    """


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose `time()` stands still while anything is ready to run, and then jumps to the next timer.

    It begins at `start_s`. `LoopTimeScheduler` follows it; `time.time()` and `time.monotonic()` do not. Where there is
    nothing to jump to, `run_until_complete` raises `DeadlockError`.

    What comes from outside takes the time it takes: as long as a socket, a pipe or a job of `run_in_executor` (so also
    `asyncio.to_thread`) is waited for, waits are real ones. `call_soon_threadsafe` works from any thread, but a thread
    that was started otherwise is not waited for: time may have jumped on, or the loop ended, before it calls.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._running_jobs = 0
        self._files: Final = _Selector(self._wait)
        super().__init__(self._files)
        self._pass_to(start_s)
        self._own_files: Final = len(self._files.get_map())  # the pipe that wakes the loop up

    def time(self) -> float:
        """Virtual seconds; they mean nothing but their differences."""
        return self._virtual_s

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts) -> asyncio.Future[_T]:
        """As any loop does it; until the future is done, waits are real."""
        job = super().run_in_executor(executor, func, *args)
        self._running_jobs += 1
        job.add_done_callback(self._job_done)
        return job

    def _job_done(self, _job: asyncio.Future[Any]) -> None:
        self._running_jobs -= 1

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:  # a timeout, from Python 3.12 on
        """As any loop does it: threads are ended in real time."""
        self._running_jobs += 1
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._running_jobs -= 1

    def _wait(self, poll: _Poll, timeout_s: float | None) -> _Ready:
        """What is ready now, or after the time until the next timer, `timeout_s` (None: there is no timer)."""
        if (ready := poll(0)) or timeout_s == 0:
            return ready
        if self._running_jobs or len(self._files.get_map()) > self._own_files:
            began_s = time.monotonic()
            ready = poll(timeout_s)
            passed_s = time.monotonic() - began_s
            # A timer comes due at its own time, however late the operating system woke us.
            if timeout_s is not None and (passed_s > timeout_s or not ready):
                passed_s = timeout_s
            self._pass_to(self._virtual_s + passed_s)
            return ready
        if timeout_s is None:
            raise DeadlockError(self._deadlock())
        self._pass_to(self._virtual_s + timeout_s)
        return []

    def _pass_to(self, time_s: float) -> None:
        self._virtual_s = time_s
        # asyncio runs a timer once it is this close, a nanosecond by default. After some weeks that is less than the
        # step from one float to the next: no timer would ever be close enough.
        self._clock_resolution = max(1e-9, 2 * math.ulp(time_s))

    def _deadlock(self) -> str:
        places = sorted(f"{task.get_name()} in {_place(task)}" for task in asyncio.all_tasks(self))
        if len(places) > _SHOWN_TASKS:
            places[_SHOWN_TASKS:] = [f"{len(places) - _SHOWN_TASKS} more"]
        return f"nothing can happen any more at {self._virtual_s:g} s; waiting: {', '.join(places) or 'no task'}"


_Ready = list[tuple[selectors.SelectorKey, int]]
_Poll = Callable[[float | None], _Ready]


class _Selector(selectors.DefaultSelector):
    """Leaves it to `wait` how the time until the next timer passes."""

    def __init__(self, wait: Callable[[_Poll, float | None], _Ready]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> _Ready:
        return self._wait(super().select, timeout)


def _place(task: asyncio.Task[Any]) -> str:
    """Where the coroutine of the task stands."""
    stack = task.get_stack()
    return f"{stack[-1].f_code.co_qualname}, line {stack[-1].f_lineno}" if stack else "its last step"


def run_virtual(coroutine: Coroutine[Any, Any, _T], *, start_s: float = 0.0) -> _T:
    """What the coroutine returns, run as `asyncio.run` does it but on a new `VirtualTimeLoop`.

        async def main() -> float:
            await asyncio.sleep(3600)
            return asyncio.get_running_loop().time()

        assert run_virtual(main()) == 3600.0

    Raises what the coroutine raises; `DeadlockError` if it waits for what cannot come; RuntimeError in a thread whose
    loop is running.
    """
    if running_loop() is not None:
        coroutine.close()
        raise RuntimeError("run_virtual needs a thread without a running event loop; here, await the coroutine")
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(start_s)) as runner:
        return runner.run(coroutine)
