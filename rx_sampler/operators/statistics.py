"""Latency over many requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from operator import sub
from typing import Final

from reactivex import Observable, abc

from rx_sampler.events import TEXT, ChannelToken, Completed, Failed, Retrying, SamplingEvent

from .quantiles import Quantiles, Sketch
from .request_times import RequestTimes

__all__ = ["LatencyStats", "latency_stats"]

_AT_A_TIME: Final = 256
"""How many gaps are counted at a time: cheaper than one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyStats:
    """What the requests that have ended took; None where there was nothing to measure.

    The names are those of `LatencyMetrics`. Of a request counts the attempt that it ended with. `inter_token` are the
    gaps between all tokens of all requests.
    """

    requests: int
    completed: int
    failed: int
    time_to_first_token: Quantiles | None = None
    time_to_first_token_from_submit: Quantiles | None = None
    time_to_first_text: Quantiles | None = None
    inter_token: Quantiles | None = None
    time_to_last_byte: Quantiles | None = None


def latency_stats() -> Callable[[Observable[SamplingEvent]], Observable[LatencyStats]]:
    """Quantiles over all requests so far, whenever one ends.

    With `1` and `2` for the statistics of one and two requests, of which the second says `x` and `Y`:

        source         S-x-(Fa)-C-Y-|
        latency_stats  ---------1-2-|

    In: events of any number of requests. Out: `LatencyStats` after each terminal event. Failed requests count with the
    tokens they had, but not in `time_to_last_byte`: what broke off is no short answer. An attempt that `Retrying` voids
    counts in nothing. In a recording that was cut, times count from where those of `time_to_first_token` do.

    Measured by `ts`, so that a recording gives what the live stream gave. Synchronous, cold as its source, and as each
    subscription has state of its own; forwards the scheduler. Dispose disposes the source. Errors by `on_error`: the
    source's. Cost: constant per token; memory: at most 1,384 buckets for each distribution, and for the gaps of each
    open request.
    """

    def operator(source: Observable[SamplingEvent]) -> Observable[LatencyStats]:
        def subscribe(
            observer: abc.ObserverBase[LatencyStats], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            statistics = _Statistics()
            attempts: dict[str, _Attempt] = {}

            def on_next(event: SamplingEvent) -> None:
                attempt = attempts.get(event.request_id)
                if attempt is None:
                    attempt = attempts[event.request_id] = _Attempt(RequestTimes(event))
                if isinstance(event, ChannelToken):
                    if attempt.first_text_at is None:
                        attempt.began(event)
                    stamps = attempt.stamps
                    stamps.append(event.ts)
                    if len(stamps) > _AT_A_TIME:
                        attempt.count_gaps()
                elif isinstance(event, Completed | Failed):
                    del attempts[event.request_id]
                    observer.on_next(statistics.after(event, attempt))
                else:
                    attempt.times.note(event)
                    if isinstance(event, Retrying):
                        attempts[event.request_id] = _Attempt(attempt.times)

            return source.subscribe(on_next, observer.on_error, observer.on_completed, scheduler=scheduler)

        return Observable(subscribe)

    return operator


class _Attempt:
    """What came of a request in its present attempt."""

    __slots__ = ("first_at", "first_text_at", "gaps", "stamps", "times")

    def __init__(self, times: RequestTimes) -> None:
        self.times = times
        self.first_at: float | None = None
        self.first_text_at: float | None = None
        self.gaps = Sketch()
        self.stamps: list[float] = []
        """Of the tokens whose gaps are not counted yet, and of the one before them."""

    def began(self, token: ChannelToken) -> None:
        """A token came, and no text before it."""
        if self.first_at is None:
            self.times.note(token)
            self.first_at = token.ts
        if token.channel == TEXT and token.choice == 0:
            self.first_text_at = token.ts

    def count_gaps(self) -> None:
        """Those of the tokens so far."""
        stamps = self.stamps
        if len(stamps) > 1:
            self.gaps.add(*[gap * 1e3 for gap in map(sub, islice(stamps, 1, None), stamps)])
            del stamps[:-1]


class _Statistics:
    """Of the requests that have ended."""

    def __init__(self) -> None:
        self._completed = 0
        self._failed = 0
        self._first = Sketch()
        self._first_from_submit = Sketch()
        self._first_text = Sketch()
        self._gaps = Sketch()
        self._last_byte = Sketch()

    def after(self, event: Completed | Failed, attempt: _Attempt) -> LatencyStats:
        """With one more."""
        if isinstance(event, Completed):
            self._completed += 1
        else:
            self._failed += 1
        times = attempt.times
        _note(self._first, times.started_at, attempt.first_at)
        _note(self._first_from_submit, times.submitted_at, attempt.first_at)
        _note(self._first_text, times.started_at, attempt.first_text_at)
        _note(self._last_byte, times.started_at, event.ts if isinstance(event, Completed) else None)
        attempt.count_gaps()
        self._gaps.merge(attempt.gaps)
        return LatencyStats(
            requests=self._completed + self._failed,
            completed=self._completed,
            failed=self._failed,
            time_to_first_token=self._first.quantiles(),
            time_to_first_token_from_submit=self._first_from_submit.quantiles(),
            time_to_first_text=self._first_text.quantiles(),
            inter_token=self._gaps.quantiles(),
            time_to_last_byte=self._last_byte.quantiles(),
        )


def _note(sketch: Sketch, begun_at: float | None, ended_at: float | None) -> None:
    if begun_at is not None and ended_at is not None:
        sketch.add(max(ended_at - begun_at, 0.0) * 1e3)
