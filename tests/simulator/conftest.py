"""The package's own fixture, for a checkout that is not installed and so has no entry points."""

from rx_sampler.testing.pytest_plugin import simulator as simulator
