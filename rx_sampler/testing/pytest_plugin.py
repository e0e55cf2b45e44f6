"""The pytest plugin that comes with the package: the fixtures `simulator` and `marbles`, with and without asyncio."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rx_sampler.simulator import SimulatorThread

    from .marbles import Marbles

_MARBLES: pytest.StashKey[Marbles] = pytest.StashKey()

# What the fixtures need is imported in them: pytest loads the plugin in every run, and most tests ask for neither.


@pytest.fixture
def simulator() -> Iterator[SimulatorThread]:
    """A simulated model server that answers without waiting, with seed 0; it runs in a thread of its own."""
    from rx_sampler.simulator import SimulatorThread, Timing

    with SimulatorThread(seed=0, timing=Timing.instant()) as server:
        yield server


@pytest.fixture
def marbles(request: pytest.FixtureRequest) -> Marbles:
    """Virtual time, and diagrams drawn in it; what the test expects is checked at its end, unless it failed before."""
    from .marbles import Marbles

    made = request.node.stash[_MARBLES] = Marbles()
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    # Not in the fixture: there an expectation that is not met would be an error beside a test that passed.
    __tracebackhide__ = True
    yield
    if (made := item.stash.get(_MARBLES, None)) is not None:
        made.flush()
