"""The pytest plugin that comes with the package: the fixture `simulator`, for suites with and without asyncio."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rx_sampler.simulator import SimulatorThread


@pytest.fixture
def simulator() -> Iterator[SimulatorThread]:
    """A simulated model server that answers without waiting, with seed 0; it runs in a thread of its own."""
    # Imported here: pytest loads the plugin in every run, and most tests ask for no server.
    from rx_sampler.simulator import SimulatorThread, Timing

    with SimulatorThread(seed=0, timing=Timing.instant()) as server:
        yield server
