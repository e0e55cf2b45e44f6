"""Settings of the whole suite: property tests draw the same examples in every run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No deadline: a slow machine is no failure. Hypothesis' own health checks on timing would be one too.
settings.register_profile(
    "suite", derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")
