"""A storm: many requests at once, over all wire formats and ways to ask, each with faults of its own on a real socket.

`storm` plays a round to warm up and a second of the same size; `Report.faults` tells all that was wrong.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from .fleet import Fleet, unheard_address
from .grammar import shown
from .leftovers import Baseline, resident_mib, running_requests, until
from .plays import CollectPlay, Play, play_of
from .scripts import Script, script
from .server import ServerProcess
from .viewers import StormError

__all__ = ["Report", "storm"]

SHARE_UNDER_WAY_AT_CLOSE: Final = 0.05
MEMORY_SHARE: Final = 0.05
MEMORY_MIB: Final = 4.0
"""How much more memory may be resident after a round than after the one before, whichever is more."""


@dataclass
class Report:
    """What happened, and what was wrong: in each fault the script and the events of the request."""

    seed: int
    faults: list[str] = field(default_factory=list[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    events: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0
    resident_mib: float = 0.0
    grown_mib: float = 0.0

    @property
    def count(self) -> int:
        return self.outcomes.total()

    def __str__(self) -> str:
        def listed(counts: Mapping[str, int]) -> str:
            return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))

        return (
            f"storm, seed {self.seed}: {self.count} requests in {self.seconds:.1f} s, {len(self.faults)} faults, "
            f"{self.grown_mib:+.1f} MiB over {self.resident_mib:.0f}\n"
            f"  ends: {listed(self.outcomes)}\n  seen: {listed(self.events)}"
        )


async def storm(seed: int, requests: int, at_once: int, only: Iterable[int] | None = None) -> Report:
    """Play `requests` of them twice, at most `at_once` at a time; `only` these numbers, once, to look closer."""
    report = Report(seed)
    loop = asyncio.get_running_loop()
    begun = time.monotonic()
    told: list[dict[str, Any]] = []
    requests_before = running_requests()
    handler_before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _loop, context: told.append(context))

    def unraisable(caught: sys.UnraisableHookArgs) -> None:
        report.faults.append(f"raised where nobody could be told, by {caught.object!r}: {caught.exc_value!r}")

    hook_before, sys.unraisablehook = sys.unraisablehook, unraisable
    try:
        with ExitStack() as stack:
            server = stack.enter_context(ServerProcess())
            unheard = stack.enter_context(unheard_address())
            rounds = [range(requests), range(requests, 2 * requests)] if only is None else [list(only)]
            for number, indices in enumerate(rounds):
                await _Round(seed, list(indices), at_once, server, unheard, told, report).play()
                if (kept := running_requests() - requests_before) > 0:
                    report.faults.append(f"round {number}: {kept} requests are in memory still")
                resident_before, report.resident_mib = report.resident_mib, resident_mib()
                report.grown_mib = report.resident_mib - resident_before if number else 0.0
                if report.faults:
                    break
            if report.grown_mib > max(MEMORY_MIB, MEMORY_SHARE * report.resident_mib):
                report.faults.append(f"{report.grown_mib:.1f} MiB more than after the first round")
    finally:
        loop.set_exception_handler(handler_before)
        sys.unraisablehook = hook_before
    report.seconds = time.monotonic() - begun
    return report


class _Round:
    """One fleet of samplers from opening to closing, the last requests still under way then."""

    def __init__(
        self,
        seed: int,
        indices: list[int],
        at_once: int,
        server: ServerProcess,
        unheard: str,
        told: list[dict[str, Any]],
        report: Report,
    ) -> None:
        last = len(indices) - int(len(indices) * SHARE_UNDER_WAY_AT_CLOSE) if len(indices) > 1 else 1
        self._scripts = [script(seed, index) for index in indices[:last]]
        self._closing = [script(seed, index, closing=True) for index in indices[last:]]
        self._random = Random(f"{seed}|{indices}")
        self._at_once = at_once
        self._server = server
        self._unheard = unheard
        self._told = told
        self._report = report
        self._raised: list[StormError] = []
        self._plays: list[Play] = []

    async def play(self) -> None:
        before = Baseline()
        self._fleet = Fleet(self._server.base_url, self._unheard, self._random)
        await self._fleet.open(self._raised)
        waiting = iter(self._scripts)
        await asyncio.gather(*(self._worker(waiting) for _ in range(self._at_once)))
        await self._all_quiet()
        await self._close()
        self._report.faults += [f"after aclose: {what}" for what in await before.left()]
        self._judge()

    async def _worker(self, waiting: Iterator[Script]) -> None:
        for following in waiting:
            play = self._begin(following)
            await play.run()
            if play.outcome == "hung":  # one will do: others would hang as long
                return

    def _begin(self, script: Script) -> Play:
        sampler = self._fleet.sampler(script.backend, script.profile)
        play = play_of(script, sampler, self._fleet.ledger, self._raised)
        self._plays.append(play)
        return play

    async def _all_quiet(self) -> None:
        """With all requests ended and the samplers open: nothing runs here, and the server answers nobody."""
        if not await until(lambda: not _exchanges()):
            self._report.faults.append(f"{len(_exchanges())} exchanges run although every request has ended")
        if not await until(lambda: self._server.active_count() == 0):
            self._report.faults.append(f"the server answers {self._server.active_count()} requests that have ended")
        self._report.faults += self._fleet.held(is_open=True)

    async def _close(self) -> None:
        """Close the samplers under the last requests."""
        plays = [self._begin(script) for script in self._closing]
        tasks = [asyncio.create_task(play.run()) for play in plays]
        for play in plays:
            await play.begun.wait()
        await asyncio.sleep(self._random.uniform(0, 0.05))  # some moment of theirs; any will do
        await self._fleet.close()
        await asyncio.gather(*tasks)
        self._report.faults += self._fleet.held(is_open=False)

    def _judge(self) -> None:
        report = self._report
        for play in self._plays:
            report.outcomes[play.outcome] += 1
            found = list(play.faults(self._fleet.bus(play.script.backend, play.script.profile).by_id))
            for events in play.seen:
                report.events.update(event.kind for event in events)
            if found:
                views = "\n".join(f"  seen:\n{shown(events)}" for events in play.seen)
                report.faults.append("\n".join([str(play.script), *(f"  FAULT {what}" for what in found), views]))
        report.faults += self._on_no_account()
        report.faults += self._mistold()
        self._told.clear()  # tracebacks hold the requests that they went through

    def _on_no_account(self) -> Iterator[str]:
        """Who is on a bus or was made and was never asked for, or was made twice."""
        names = {script.name for play in self._plays for script in (play.script, play.script.again) if script}
        known = names | {play.request_id for play in self._plays if isinstance(play, CollectPlay)}
        for (backend, profile), bus in self._fleet.buses.items():
            yield from (f"{profile}/{backend}: {name} is on the bus" for name in bus.by_id if name not in known)
        yield from (f"request {name} was made" for name in self._fleet.ledger.by_name if name not in names)
        yield from (f"request {name} was made twice" for name in self._fleet.ledger.twice)

    def _mistold(self) -> Iterator[str]:
        """What the loop's exception handler was told but for each error of a subscriber, once."""
        told = Counter(id(context.get("exception")) for context in self._told)
        for error in self._raised:
            if (times := told.pop(id(error), 0)) != 1:
                yield f"{error!r} was reported {times} times"
        for context in self._told:
            if id(context.get("exception")) in told:
                yield f"the loop's exception handler was told: {context}"


def _exchanges() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "rx_sampler exchange"]
