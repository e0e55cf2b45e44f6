"""Which share of the requests was good enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

from reactivex import Observable, abc

from rx_sampler.events import ChannelToken, Completed, Failed, SamplingEvent, StreamStarted
from rx_sampler.metrics import LatencyMetrics

__all__ = ["Goodput", "Slo", "goodput"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Service level objectives, in milliseconds: what a request may take at most. At least one is set.

    As benchmarks of serving systems define them: `time_to_first_token_ms` and `time_to_last_byte_ms` count from the
    submit, as a user does; `time_per_output_token_ms` is (last byte - first token) / (chunks - 1), which one chunk
    fulfils. Raises ValueError for what is not positive.
    """

    time_to_first_token_ms: float | None = None
    time_per_output_token_ms: float | None = None
    time_to_last_byte_ms: float | None = None

    def __post_init__(self) -> None:
        limits = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, limit in limits.items():
            if limit is not None and not 0 < limit < math.inf:
                raise ValueError(f"{name} is {limit}; it is a finite number of milliseconds above 0, or None")
        if all(limit is None for limit in limits.values()):
            raise ValueError(f"an Slo without an objective keeps nothing: set one of {', '.join(limits)}")

    def is_kept_by(self, metrics: LatencyMetrics) -> bool:
        """Whether a request that took so long is within all that is set; what was not measured is not."""
        return all(
            limit is None or (found is not None and found <= limit)
            for limit, found in (
                (self.time_to_first_token_ms, metrics.time_to_first_token_from_submit_ms),
                (self.time_per_output_token_ms, _per_output_token_ms(metrics)),
                (self.time_to_last_byte_ms, _last_byte_from_submit_ms(metrics)),
            )
        )


def _per_output_token_ms(metrics: LatencyMetrics) -> float | None:
    first, last = metrics.time_to_first_token_ms, metrics.time_to_last_byte_ms
    if first is None or last is None:
        return None
    return (last - first) / (metrics.chunk_count - 1) if metrics.chunk_count > 1 else 0.0


def _last_byte_from_submit_ms(metrics: LatencyMetrics) -> float | None:
    started, last = metrics.time_to_stream_started_ms, metrics.time_to_last_byte_ms
    return None if started is None or last is None else started + last


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """How many of the requests that have ended were good: completed, within all objectives."""

    requests: int
    good: int
    good_per_second: float | None
    """Since the first request was made; None while no time has passed."""

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.good / self.requests


def goodput(slo: Slo) -> Callable[[Observable[SamplingEvent]], Observable[Goodput]]:
    """The share of requests that kept their objectives, whenever one ends.

    With an objective that the first request keeps and the second, `x` and `Y`, does not; `1` is all, `2` half:

        source   S-x-(Fa)-C-Y-|
        goodput  ---------1-2-|

    In: events of any number of requests. Out: a `Goodput` after each terminal event, over all so far. `Completed` whose
    `metrics` are within `slo` is good; `Failed` never is.

    Rates count from the first `submitted_at` (or first event) to the terminal event, by `ts`, so that a recording gives
    what the live stream gave. Synchronous, cold as its source, and as each subscription has state of its own; forwards
    the scheduler. Dispose disposes the source. Errors by `on_error`: the source's. Memory: two numbers and a time.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[Goodput]:
        def subscribe(
            observer: abc.ObserverBase[Goodput], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            begun_at = math.inf
            requests = good = 0

            def on_next(event: SamplingEvent) -> None:
                nonlocal begun_at, requests, good
                ts = event.ts
                if ts < begun_at:
                    begun_at = ts
                if isinstance(event, ChannelToken):
                    return
                if isinstance(event, StreamStarted):
                    if event.submitted_at is not None:
                        begun_at = min(begun_at, event.submitted_at)
                elif isinstance(event, Completed | Failed):
                    requests += 1
                    good += isinstance(event, Completed) and slo.is_kept_by(event.metrics)
                    rate = good / (ts - begun_at) if ts > begun_at else None
                    observer.on_next(Goodput(requests=requests, good=good, good_per_second=rate))

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator
