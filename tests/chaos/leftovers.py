"""What requests may have left behind: tasks, timers, sockets, places in a sampler, memory."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rx_sampler import Sampler
from rx_sampler.running import RunningRequest

__all__ = ["Baseline", "in_sampler", "resident_mib", "running_requests", "until"]

PATIENCE_S: Final = 10.0
"""How long something that must happen may take on a busy machine."""

_POLL_S: Final = 0.002


async def until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Wait for what tells nobody that it happened; whether it did."""
    loop = asyncio.get_running_loop()
    latest = loop.time() + patience_s
    while not condition():
        if loop.time() > latest:
            return False
        await asyncio.sleep(_POLL_S)
    return True


class Baseline:
    """Tasks, timers and sockets of this process and its running loop at one moment, and what came since."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = asyncio.all_tasks()
        self._timers = list(self._live_timers())
        self._sockets = _sockets()

    async def left(self, patience_s: float = PATIENCE_S) -> list[str]:
        """What is still there that was not, after as much patience as needed; closing takes some turns of the loop."""
        await until(lambda: not self._now(), patience_s)
        return self._now()

    def _now(self) -> list[str]:
        tasks = [repr(task) for task in asyncio.all_tasks() - self._tasks]
        # What `until` itself waits on is over when this is called.
        timers = [repr(timer) for timer in self._live_timers() if all(timer is not one for one in self._timers)]
        found = [f"task left: {task}" for task in tasks] + [f"timer left: {timer}" for timer in timers]
        if (more := len(_sockets() - self._sockets)) > 0:
            found.append(f"{more} sockets left")
        return found

    def _live_timers(self) -> Iterator[asyncio.TimerHandle]:
        # There is no public way to see a loop's timers.
        scheduled: list[asyncio.TimerHandle] = getattr(self._loop, "_scheduled", [])
        return (timer for timer in scheduled if not timer.cancelled())


def _sockets() -> set[str]:
    """The sockets of this process by name; none where the system does not tell."""
    found: set[str] = set()
    directory = Path("/proc/self/fd")
    for entry in directory.iterdir() if directory.exists() else ():
        try:
            target = str(entry.readlink())
        except OSError:  # the directory's own descriptor
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


def in_sampler(sampler: Sampler, *, subscribers: int) -> list[str]:
    """What a sampler still holds when all of its requests have ended, `subscribers` of its `events` apart."""
    actor, admission = sampler._actor, sampler._endpoint.admission  # pyright: ignore[reportPrivateUsage]  # no public way to see it
    held: dict[str, Any] = {
        "active_count": sampler.active_count(),
        "running requests": len(sampler._running),  # pyright: ignore[reportPrivateUsage]
        "places taken": admission._running,  # pyright: ignore[reportPrivateUsage]
        "places queued for": admission.queued,
        "submitted and not begun": len(actor._pending),  # pyright: ignore[reportPrivateUsage]
        "undelivered events": len(actor._backlog),  # pyright: ignore[reportPrivateUsage]
        "subscribers of events": len(actor._observers.all) - subscribers,  # pyright: ignore[reportPrivateUsage]
        "subscribers of finished requests": sum(len(feed.observers.all) for feed in actor._finished.values()),  # pyright: ignore[reportPrivateUsage]
    }
    return [f"{name}: {count}, expected 0" for name, count in held.items() if count]


def running_requests() -> int:
    """How many requests this process still has in memory."""
    gc.collect()
    return sum(type(thing) is RunningRequest for thing in gc.get_objects())


def resident_mib() -> float:
    """Resident memory after a collection; 0 where the system does not tell."""
    gc.collect()
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20 if statm.exists() else 0.0
