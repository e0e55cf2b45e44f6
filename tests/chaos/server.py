"""The storm's server, a process of its own: the simulator on a free port, and what it is busy with, for who asks.

Prints its base URL, then for each line on its input the number of requests that it is answering; ends with its input.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from rx_sampler.simulator import Simulator, Timing


class ServerProcess:
    """The server as its client sees it."""

    base_url: str

    def __enter__(self) -> Self:
        # From the project's root, where the package is, be it installed or not.
        command, root = [sys.executable, "-m", "tests.chaos.server"], Path(__file__).parents[2]
        self._process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.base_url = self._line()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:  # closes its input, which ends it, and waits
            pass

    def active_count(self) -> int:
        """How many requests are being answered; the server replies at once."""
        assert self._process.stdin is not None
        self._process.stdin.write("?\n")
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


async def serve() -> None:
    async with Simulator(timing=Timing.instant()) as simulator:
        print(simulator.base_url, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(simulator.active_count, flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
