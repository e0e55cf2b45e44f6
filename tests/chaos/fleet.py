"""The samplers of a storm: for each wire format one of each profile, and who listens to all that they say."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from rx_sampler import DoomLoopPolicy, RetryPolicy, Sampler, SamplerConfig, SamplingEvent
from rx_sampler.config import LoopDetection, RetryBudget

from .leftovers import in_sampler
from .scripts import BACKENDS, PROFILES, Profile
from .viewers import Bus, Ledger, StormError

__all__ = ["Fleet", "unheard_address"]

_RETRY: Final = RetryPolicy(max_retries=4, initial_backoff_s=0.004, max_backoff_s=0.02, rate_limit_threshold=3)

_COMMON: Final[dict[str, Any]] = {
    "model": "any",
    "api_key": "k",
    "retry": _RETRY,
    "retry_budget": None,
    "header_timeout_s": 1.0,
    "idle_timeout_s": 0.5,
    "terminal_grace_s": 0.05,
}
_PROFILES: Final[dict[Profile, dict[str, Any]]] = {
    "open": {},
    "narrow": {"max_concurrency": 8, "retry_budget": RetryBudget(capacity=10)},
    "single": {},
    "hasty": {
        "deadline_s": 1.5,
        "retry": _RETRY.model_copy(update={"retry_only_before_output": True}),
        "detect_loops": LoopDetection(min_repeats=4, min_chars=90, max_period_chars=40),
    },
    "patient": {"header_timeout_s": 300.0, "idle_timeout_s": 300.0},
    "refused": {"retry": _RETRY.model_copy(update={"max_retries": 2}), "retry_budget": RetryBudget(capacity=40)},
}
"""`single` is not entered, so that each of its requests has a connection of its own; `patient` waits longer than any
test, so that only its callers end its requests; `refused` asks where nobody listens.
"""

_RAISES_EVERY: Final = 61
"""How many events of a sampler it takes for a listener to all of them to raise."""


class Fleet:
    """Samplers by wire format and profile; `random` draws their jitter."""

    def __init__(self, base_url: str, unheard_url: str, random: Random) -> None:
        self.samplers: dict[tuple[str, Profile], Sampler] = {}
        self.buses: dict[tuple[str, Profile], Bus] = {}
        self.ledger = Ledger()
        for backend in BACKENDS:
            for profile in PROFILES:
                fields: dict[str, Any] = {**_COMMON, **_PROFILES[profile], "backend": backend}
                if backend == "responses":
                    fields["doom_loop"] = DoomLoopPolicy(max_threshold=32)
                fields["base_url"] = unheard_url if profile == "refused" else base_url
                # A tenth of it: a doom loop's retry waits up to a quarter of a second.
                config = SamplerConfig.model_validate(fields)
                sampler = Sampler(config, observer=self.ledger, random=lambda: random.random() / 10)
                self.samplers[backend, profile] = sampler

    async def open(self, raised: list[StormError]) -> None:
        for (backend, profile), sampler in self.samplers.items():
            self.buses[backend, profile] = Bus(sampler)
            _Nuisance(sampler, raised)
            if profile != "single":
                await sampler.__aenter__()

    async def close(self) -> None:
        for sampler in self.samplers.values():
            await sampler.aclose()

    def sampler(self, backend: str, profile: Profile) -> Sampler:
        return self.samplers[backend, profile]

    def bus(self, backend: str, profile: Profile) -> Bus:
        return self.buses[backend, profile]

    def held(self, *, is_open: bool) -> list[str]:
        """What the samplers hold and should not, and what the listeners to all events heard and should not."""
        found: list[str] = []
        for (backend, profile), sampler in self.samplers.items():
            what = in_sampler(sampler, subscribers=2 if is_open else 0)  # the bus and the nuisance
            bus = self.buses[backend, profile]
            what += [f"on_error of the bus: {error!r}" for error in bus.errors]
            if bus.completions != (0 if is_open else 1):
                what.append(f"the bus completed {bus.completions} times")
            when = "open" if is_open else "closed"
            found += [f"{profile}/{backend}, {when} and idle: {one}" for one in what]
        return found


class _Nuisance:
    """Listens to all events, raises now and then, and comes back."""

    def __init__(self, sampler: Sampler, raised: list[StormError]) -> None:
        self._sampler = sampler
        self._raised = raised
        self._heard = 0
        self._subscribe()

    def _subscribe(self) -> None:
        self._sampler.events.subscribe(self._on_next)

    def _on_next(self, event: SamplingEvent) -> None:
        self._heard += 1
        if self._heard % _RAISES_EVERY == 0:
            self._subscribe()
            error = StormError(f"a listener to all events, at {event.kind} of {event.request_id}")
            self._raised.append(error)
            raise error


@contextmanager
def unheard_address() -> Generator[str]:
    """The base URL of a port that is taken and where nobody listens: connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
