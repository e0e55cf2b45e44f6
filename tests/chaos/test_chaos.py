"""The short form of the storm: everything that the long one checks, with fewer requests; no sampler fails it."""

import pytest

from .scripts import script
from .storm import storm


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_storm_ends_every_request_once_and_leaves_nothing(seed: int) -> None:
    report = await storm(seed, requests=75, at_once=50)
    assert not report.faults, "\n".join([*report.faults, f"repeat: python -m tests.chaos --seed {seed} --requests 75"])
    assert report.count == 150
    # A storm that misses what it is for would pass any sampler.
    assert {"completed", "left", "failed api", "failed http", "failed cancelled"} <= set(report.outcomes)
    assert {"retrying", "images_stripped", "doom_loop_signals", "reasoning_completed"} <= set(report.events)


def test_a_request_can_be_repeated_by_its_number() -> None:
    assert str(script(3, 41)) == str(script(3, 41)) != str(script(4, 41))
    assert script(3, 41).request == script(3, 41).request
