"""Running a coroutine that Ctrl-C and SIGTERM end in good order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any

__all__ = ["run_until_signal"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_until_signal(main: Coroutine[Any, Any, int], *, signal_is_success: bool = False) -> int:
    """Run `main` to its exit code; the first SIGINT or SIGTERM cancels it and makes that 128 + the signal's number.

    `signal_is_success` makes it 0 instead, for commands that have no other end. A second signal ends the process at
    once, also where `main` is stuck in a write that nobody reads.
    """
    return asyncio.run(_supervise(main, signal_is_success))


async def _supervise(main: Coroutine[Any, Any, int], signal_is_success: bool) -> int:
    loop = asyncio.get_running_loop()
    task = loop.create_task(main)
    received: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return 0 if signal_is_success else 128 + received[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
