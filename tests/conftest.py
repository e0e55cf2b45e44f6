"""Settings of the whole suite: the same examples in every run, and Ctrl-C that means something."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# No deadline: a slow machine is no failure. Hypothesis' own health checks on timing would be one too.
settings.register_profile(
    "suite", derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

# A shell that runs something in the background has it ignore Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
