"""`goodput`: which requests are good, the share of them, and how many a second."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest
from reactivex import operators as ops

from rx_sampler import Sampler, SamplerConfig
from rx_sampler.conversation import SamplingResponse
from rx_sampler.events import Completed, SamplingEvent
from rx_sampler.metrics import LatencyMetrics
from rx_sampler.operators import Goodput, Slo, goodput
from rx_sampler.simulator import Simulator, Timing, Turn
from rx_sampler.testing.diagrams import diagram_of
from rx_sampler.testing.made import completed as ended
from rx_sampler.testing.made import text
from rx_sampler.testing.marbles import Marbles

from .assembling import failed, retrying, run, started, token

# A request that was made at 0, started at 100, said its first token at 300 and its fifth and last at 700, and ended at
# 1100 milliseconds: its output tokens took (1000 - 200) / 4 = 200 each.
MEASURED = LatencyMetrics(
    time_to_stream_started_ms=100.0,
    time_to_first_token_ms=200.0,
    time_to_first_token_from_submit_ms=300.0,
    time_to_last_byte_ms=1000.0,
    chunk_count=5,
)


def end(metrics: LatencyMetrics = MEASURED, *, of: str = "r", ts: float = 2.0) -> Completed:
    return Completed(request_id=of, attempt=1, ts=ts, response=SamplingResponse(), metrics=metrics)


def measured(**changed: Any) -> LatencyMetrics:
    fields = {name: getattr(MEASURED, name) for name in LatencyMetrics.__dataclass_fields__}
    return LatencyMetrics(**{**fields, **changed})


def goodputs(slo: Slo, events: Sequence[SamplingEvent]) -> list[Goodput]:
    return run(goodput(slo), events)


def is_good(slo: Slo, metrics: LatencyMetrics) -> bool:
    (one,) = goodputs(slo, [end(metrics)])
    assert one.requests == 1
    return one.good == 1


# -- the objectives


@pytest.mark.parametrize(
    ("name", "limit"),
    [("time_to_first_token_ms", 300.0), ("time_per_output_token_ms", 200.0), ("time_to_last_byte_ms", 1100.0)],
)
def test_an_objective_is_kept_by_what_takes_as_long_and_no_longer(name: str, limit: float) -> None:
    assert is_good(Slo(**{name: limit}), MEASURED)
    assert not is_good(Slo(**{name: limit - 0.001}), MEASURED)


def test_all_objectives_that_are_set_must_be_kept() -> None:
    kept = Slo(time_to_first_token_ms=300, time_per_output_token_ms=200, time_to_last_byte_ms=1100)
    assert is_good(kept, MEASURED)
    assert not is_good(Slo(time_to_first_token_ms=300, time_per_output_token_ms=199), MEASURED)
    assert not is_good(Slo(time_to_first_token_ms=299, time_to_last_byte_ms=1100), MEASURED)


def test_one_chunk_keeps_any_time_per_output_token() -> None:
    assert is_good(Slo(time_per_output_token_ms=0.001), measured(chunk_count=1))


@pytest.mark.parametrize(
    ("slo", "missing"),
    [
        (Slo(time_to_first_token_ms=1e9), "time_to_first_token_from_submit_ms"),
        (Slo(time_per_output_token_ms=1e9), "time_to_first_token_ms"),
        (Slo(time_per_output_token_ms=1e9), "time_to_last_byte_ms"),
        (Slo(time_to_last_byte_ms=1e9), "time_to_last_byte_ms"),
        (Slo(time_to_last_byte_ms=1e9), "time_to_stream_started_ms"),
    ],
)
def test_what_was_not_measured_is_not_good(slo: Slo, missing: str) -> None:
    assert is_good(slo, MEASURED)
    assert not is_good(slo, measured(**{missing: None}))


def test_what_is_not_asked_for_may_be_missing() -> None:
    assert is_good(Slo(time_to_first_token_ms=300), LatencyMetrics(time_to_first_token_from_submit_ms=300.0))


def test_a_failure_is_not_good() -> None:
    assert goodputs(Slo(time_to_first_token_ms=1e9), [started(), token("a", 1), failed("a", ts=2.0)])[0].good == 0


@pytest.mark.parametrize("name", ["time_to_first_token_ms", "time_per_output_token_ms", "time_to_last_byte_ms"])
@pytest.mark.parametrize("value", [0, -1.5, float("nan"), float("inf")])
def test_an_objective_is_positive(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"{name}.*{re.escape(str(value))}"):
        Slo(**{name: value})


def test_an_slo_has_an_objective_and_does_not_change() -> None:
    with pytest.raises(ValueError, match="time_to_first_token_ms, time_per_output_token_ms, time_to_last_byte_ms"):
        Slo()
    slo = Slo(time_to_first_token_ms=1)
    with pytest.raises(AttributeError):
        slo.time_to_first_token_ms = 2  # pyright: ignore[reportAttributeAccessIssue]
    assert slo == Slo(time_to_first_token_ms=1)


# -- the share, and the rate

QUICK, SLOW = measured(), measured(time_to_first_token_from_submit_ms=301.0)
SLO = Slo(time_to_first_token_ms=300.0)


def test_the_diagram() -> None:
    rows = diagram_of(goodput)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], {"x": text("x", of="s"), "Y": ended(of="s")})
        # The first token of one comes 3 ms after the submit (and the stream's start), the other never starts.
        shares = source.pipe(goodput(Slo(time_to_first_token_ms=5.0)), ops.map(lambda one: one.share))
        marbles.expect(shares).to_be(rows["goodput"], {"1": 1.0, "2": 0.5})


def test_counts_and_share_after_each_terminal_event() -> None:
    events = [
        started(ts=0.0),
        started(ts=0.0, of="s"),
        token("a", 1, ts=0.5),
        end(QUICK, ts=1.0),
        token("x", 1, ts=1.5, of="s"),
        end(SLOW, ts=2.0, of="s"),
        failed(ts=3.0, of="t"),
        end(QUICK, ts=4.0, of="u"),
    ]
    found = goodputs(SLO, events)
    assert [(one.requests, one.good) for one in found] == [(1, 1), (2, 1), (3, 1), (4, 2)]
    assert [one.share for one in found] == [1.0, 0.5, pytest.approx(1 / 3), 0.5]
    assert [one.good_per_second for one in found] == [1.0, 0.5, pytest.approx(1 / 3), 0.5]


def test_the_rate_counts_from_the_first_submit() -> None:
    (one,) = goodputs(SLO, [started(ts=10.0, submitted_at=8.0), end(QUICK, ts=12.0)])
    assert one.good_per_second == 0.25


def test_the_rate_counts_from_the_earliest_submit_whoever_started_first() -> None:
    events = [
        started(ts=10.0, submitted_at=9.5),
        started(ts=10.5, submitted_at=8.0, of="s"),
        end(QUICK, ts=12.0),
        started(ts=12.0, submitted_at=11.0, of="t"),
        end(QUICK, ts=16.0, of="t"),
    ]
    assert [one.good_per_second for one in goodputs(SLO, events)] == [0.25, 0.25]


def test_without_a_submit_the_rate_counts_from_the_first_event() -> None:
    (one,) = goodputs(SLO, [retrying(ts=1.0), started(ts=2.0, attempt=2), end(QUICK, ts=3.0)])
    assert one.good_per_second == 0.5


def test_there_is_no_rate_while_no_time_has_passed() -> None:
    one, two = goodputs(SLO, [end(QUICK, ts=1.0), end(QUICK, ts=3.0, of="s")])
    assert (one.good, one.good_per_second) == (1, None)
    assert (two.good, two.good_per_second) == (2, 1.0)


def test_the_metrics_of_the_end_count_not_those_of_a_voided_attempt() -> None:
    events = [
        started(ts=0.0),
        token("a", 1, ts=50.0),
        retrying(ts=51.0),
        started(ts=52.0, attempt=2),
        end(QUICK, ts=53),
    ]
    assert [one.good for one in goodputs(SLO, events)] == [1]


def test_of_a_run() -> None:
    async def asked() -> list[SamplingEvent]:
        async with Simulator(seed=1, timing=Timing.instant(), script=[Turn(text="It is blue.")]) as server:
            return await Sampler(SamplerConfig(base_url=server.base_url, model="m")).stream("Why?").pipe(ops.to_list())

    events = asyncio.run(asked())
    last = events[-1]
    assert isinstance(last, Completed)
    figures = last.metrics
    assert figures.time_to_stream_started_ms is not None
    assert figures.time_to_last_byte_ms is not None
    whole_ms = figures.time_to_stream_started_ms + figures.time_to_last_byte_ms
    assert [one.good for one in goodputs(Slo(time_to_last_byte_ms=whole_ms), events)] == [1]
    assert [one.good for one in goodputs(Slo(time_to_last_byte_ms=whole_ms * 0.999), events)] == [0]
    (one,) = goodputs(Slo(time_to_last_byte_ms=1e6), events)
    assert one.good_per_second == pytest.approx(1e3 / whole_ms, rel=0.05)
