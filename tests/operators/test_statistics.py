"""`latency_stats`: what counts in which distribution, across retries and many requests, and against the metrics."""

from __future__ import annotations

import asyncio
import math
import tracemalloc
from collections.abc import Sequence

import pytest
import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import Subject

from rx_sampler import Sampler, SamplerConfig
from rx_sampler.events import Completed, SamplingEvent
from rx_sampler.operators import LatencyStats, Quantiles, latency_stats, time_to_first_token
from rx_sampler.simulator import Fault, Simulator, Timing, Turn
from rx_sampler.testing.diagrams import diagram_of
from rx_sampler.testing.made import completed as ended
from rx_sampler.testing.made import text
from rx_sampler.testing.marbles import Marbles, drawn

from .assembling import completed, failed, first, retrying, run, started, token

# Times are multiples of an eighth of a second, so that differences are exact.


def stats(events: Sequence[SamplingEvent]) -> list[LatencyStats]:
    return run(latency_stats(), events)


def only(value: float) -> Quantiles:
    """Of one value."""
    return Quantiles(count=1, mean_ms=value, min_ms=value, p50_ms=value, p90_ms=value, p99_ms=value, max_ms=value)


def same(value: float, count: int) -> Quantiles:
    """Of one value, several times."""
    return Quantiles(count=count, mean_ms=value, min_ms=value, p50_ms=value, p90_ms=value, p99_ms=value, max_ms=value)


def test_the_diagram() -> None:
    rows = diagram_of(latency_stats)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], {"x": text("x", of="s"), "Y": ended(of="s")})
        counts = source.pipe(latency_stats(), ops.map(lambda one: str(one.requests)))
        marbles.expect(counts).to_be(rows["latency_stats"])


def test_one_request() -> None:
    events = [
        started(ts=10.0, submitted_at=9.5),
        first("reasoning", ts=10.25),
        token("hm", 1, channel="reasoning", ts=10.25),
        token("a", 2, ts=10.75),
        token("b", 3, ts=11.25),
        completed("ab", ts=12.0),
    ]
    assert stats(events) == [
        LatencyStats(
            requests=1,
            completed=1,
            failed=0,
            time_to_first_token=only(250.0),
            time_to_first_token_from_submit=only(750.0),
            time_to_first_text=only(750.0),
            inter_token=same(500.0, 2),
            time_to_last_byte=only(2000.0),
        )
    ]


def test_a_voided_attempt_counts_in_nothing_and_the_submit_stays() -> None:
    events = [
        started(ts=1.0, submitted_at=0.5),
        token("a", 1, ts=1.125),
        token("b", 2, ts=1.25),
        token("c", 3, ts=1.5),
        retrying(ts=2.0),
        started(ts=4.0, attempt=2, submitted_at=0.5),
        token("a", 1, ts=4.5, attempt=2),
        token("b", 2, ts=5.5, attempt=2),
        completed("ab", ts=6.0, attempt=2),
    ]
    (one,) = stats(events)
    assert one.time_to_first_token == one.time_to_first_text == only(500.0)
    assert one.time_to_first_token_from_submit == only(4000.0)
    assert one.inter_token == only(1000.0)
    assert one.time_to_last_byte == only(2000.0)


def test_a_failure_counts_with_what_it_had_but_has_no_last_byte() -> None:
    # An answer that broke off is not a short answer.
    events = [started(ts=1.0, submitted_at=1.0), token("a", 1, ts=1.5), token("b", 2, ts=2.5), failed("ab", ts=3.0)]
    assert stats(events) == [
        LatencyStats(
            requests=1,
            completed=0,
            failed=1,
            time_to_first_token=only(500.0),
            time_to_first_token_from_submit=only(500.0),
            time_to_first_text=only(500.0),
            inter_token=only(1000.0),
        )
    ]


@pytest.mark.parametrize(
    "events",
    [
        [failed(ts=1.0)],
        [retrying(ts=1.0), failed(ts=2.0, attempt=2)],
        [started(ts=1.0), retrying(ts=2.0), failed(ts=3.0, attempt=2)],
    ],
    ids=["alone", "behind a retry", "behind an attempt"],
)
def test_nothing_is_measured_where_nothing_came(events: list[SamplingEvent]) -> None:
    assert stats(events) == [LatencyStats(requests=1, completed=0, failed=1)]


def test_an_answer_without_text_has_a_first_token_and_no_first_text() -> None:
    events = [started(ts=1.0, submitted_at=1.0), token("no", 1, channel="refusal", ts=1.25), completed(ts=2.0)]
    (one,) = stats(events)
    assert (one.time_to_first_token, one.time_to_first_text, one.inter_token) == (only(250.0), None, None)


def test_an_answer_without_a_token_has_a_last_byte() -> None:
    assert stats([started(ts=1.0, submitted_at=0.0), completed(ts=2.0)]) == [
        LatencyStats(requests=1, completed=1, failed=0, time_to_last_byte=only(1000.0))
    ]


def test_a_recording_that_was_cut_counts_from_its_first_event_as_time_to_first_token_does() -> None:
    events = [first(ts=2.0), token("a", 1, ts=2.5), token("b", 2, ts=2.75), completed("ab", ts=4.0)]
    (one,) = stats(events)
    assert one.time_to_first_token == one.time_to_first_token_from_submit == only(500.0)
    assert one.time_to_last_byte == only(2000.0)
    assert one.inter_token == only(250.0)
    (latency,) = run(time_to_first_token(), events)
    assert (latency.latency_ms, latency.end_to_end_ms) == (500.0, 500.0)


def test_an_attempt_that_was_cut_down_to_its_tokens_begins_with_the_first() -> None:
    (one,) = stats([token("a", 5, ts=2.0), token("b", 6, ts=2.5), completed("ab", ts=4.0)])
    assert one.time_to_first_token == one.time_to_first_token_from_submit == only(0.0)
    assert one.time_to_last_byte == only(2000.0)


def test_no_gap_of_a_long_answer_is_lost() -> None:
    count = 1500
    tokens = [token("a", index, ts=index * (index + 1) / 16) for index in range(1, count + 1)]
    (one,) = stats([*tokens, completed("a", ts=1e6)])
    # The gap before token n is n / 8 seconds.
    assert one.inter_token is not None
    assert one.inter_token.count == count - 1
    assert (one.inter_token.min_ms, one.inter_token.max_ms) == (250.0, count * 125.0)
    assert one.inter_token.mean_ms == pytest.approx((2 + count) / 2 * 125.0)


def test_a_start_without_a_submit_counts_from_the_first_event_of_the_request() -> None:
    events = [retrying(ts=1.0), started(ts=2.0, attempt=2), token("a", 1, ts=2.5, attempt=2), completed(ts=3.0)]
    (one,) = stats(events)
    assert one.time_to_first_token == only(500.0)
    assert one.time_to_first_token_from_submit == only(1500.0)


def test_two_requests_interleaved() -> None:
    events = [
        started(ts=0.0, submitted_at=0.0),
        started(ts=1.0, submitted_at=0.0, of="s"),
        token("x", 1, ts=1.125, of="s"),
        token("a", 1, ts=1.25),
        token("y", 2, ts=1.375, of="s"),
        failed(ts=1.5, of="s"),
        token("b", 2, ts=2.25),
        completed("ab", ts=4.0),
    ]
    one, two = stats(events)
    assert (one.requests, one.completed, one.failed) == (1, 0, 1)
    assert (one.time_to_first_token, one.inter_token) == (only(125.0), only(250.0))
    assert (two.requests, two.completed, two.failed) == (2, 1, 1)
    assert two.time_to_first_token is not None
    assert (two.time_to_first_token.count, two.time_to_first_token.mean_ms) == (2, 687.5)
    assert (two.time_to_first_token.min_ms, two.time_to_first_token.max_ms) == (125.0, 1250.0)
    assert two.inter_token is not None
    assert (two.inter_token.count, two.inter_token.mean_ms) == (2, 625.0)
    assert two.time_to_last_byte == only(4000.0)


def test_a_request_of_the_same_id_begins_anew() -> None:
    again = [started(ts=5.0, submitted_at=5.0), token("a", 1, ts=5.5), completed("a", ts=6.0)]
    _, two = stats([started(ts=0.0, submitted_at=0.0), token("a", 1, ts=0.5), completed("a", ts=1.0), *again])
    assert two.time_to_first_token == two.time_to_first_token_from_submit == same(500.0, 2)
    assert two.inter_token is None
    assert two.time_to_last_byte == same(1000.0, 2)


def test_quantiles_over_a_hundred_requests() -> None:
    events: list[SamplingEvent] = []
    for number in range(1, 101):
        of = f"r-{number}"
        events += [
            started(ts=0.0, submitted_at=0.0, of=of),
            token("a", 1, ts=number / 8, of=of),
            completed("a", ts=20.0, of=of),
        ]
    last = stats(events)[-1]
    assert last.time_to_first_token is not None
    found = last.time_to_first_token
    assert (found.count, found.min_ms, found.max_ms, found.mean_ms) == (100, 125.0, 12_500.0, 6312.5)
    assert found.p50_ms == pytest.approx(51 * 125.0, rel=0.01)
    assert found.p90_ms == pytest.approx(90 * 125.0, rel=0.01)
    assert found.p99_ms == pytest.approx(99 * 125.0, rel=0.01)


def test_what_was_said_does_not_change_later() -> None:
    one, two = stats([*drawn("S(Fa)bC"), *drawn("S----(Fa)-bC")])
    assert one.time_to_first_token is not None
    assert two.time_to_first_token is not None
    assert (one.time_to_first_token.count, two.time_to_first_token.count) == (1, 2)


@pytest.mark.parametrize("backend", ["chat_completions", "responses", "messages"])
def test_of_a_run_it_says_what_the_metrics_say(backend: str) -> None:
    async def asked() -> list[SamplingEvent]:
        turn = Turn(
            reasoning="Light scatters.",
            text="It is blue, I think, and at dusk it is red.",
            faults=(Fault(kind="cut", after_deltas=3),),
        )
        timing = Timing(time_to_first_token_s=0.002, tokens_per_second=2000, jitter=0.5)
        async with Simulator(seed=1, timing=timing, script=[turn]) as server:
            retry = {"max_retries": 1, "initial_backoff_s": 0.0}
            config = {"backend": backend, "base_url": server.base_url, "model": "m", "retry": retry}
            sampler = Sampler(SamplerConfig.model_validate(config))
            return await sampler.stream("Why?").pipe(ops.to_list())

    events = asyncio.run(asked())
    end = events[-1]
    assert isinstance(end, Completed)
    assert end.metrics.attempts == 2
    metrics = end.metrics
    (one,) = stats(events)
    assert metrics.time_to_first_token_ms is not None
    assert one.time_to_first_token == only(metrics.time_to_first_token_ms)
    assert metrics.time_to_first_token_from_submit_ms is not None
    assert one.time_to_first_token_from_submit == only(metrics.time_to_first_token_from_submit_ms)
    assert metrics.time_to_first_text_ms is not None
    assert one.time_to_first_text == only(metrics.time_to_first_text_ms)
    assert metrics.time_to_last_byte_ms is not None
    assert one.time_to_last_byte == only(metrics.time_to_last_byte_ms)
    gaps = one.inter_token
    assert gaps is not None
    assert gaps.count == metrics.chunk_count - 1
    assert gaps.max_ms == metrics.inter_token_max_ms
    assert gaps.mean_ms == pytest.approx(metrics.inter_token_mean_ms)
    assert gaps.p50_ms == pytest.approx(metrics.inter_token_p50_ms, rel=0.01, abs=0.001)
    assert gaps.p90_ms == pytest.approx(metrics.inter_token_p90_ms, rel=0.01, abs=0.001)
    assert gaps.p99_ms == pytest.approx(metrics.inter_token_p99_ms, rel=0.01, abs=0.001)


def test_memory_is_bounded_in_requests_and_in_tokens() -> None:
    source: Subject[SamplingEvent] = Subject()
    source.pipe(latency_stats(), ops.last()).subscribe(lambda _one: None)

    def ask(number: int, tokens: int) -> None:
        of = f"request {number}"
        source.on_next(started(ts=0.0, of=of))
        for index in range(1, tokens):
            source.on_next(token("a", index, ts=math.log(index), of=of))
        source.on_next(failed(of=of, ts=20.0))

    ask(0, 20_000)  # fills the buckets
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        ask(1, 20_000)
        for number in range(2, 1000):
            ask(number, 2)
        grown = tracemalloc.get_traced_memory()[1] - before  # at its most
    finally:
        tracemalloc.stop()
    assert grown < 120_000, grown  # as floats, the times of one answer would take half a million


def test_it_gives_the_same_from_any_source() -> None:
    events = drawn("S(Fa)bRS--(Fc)-dC")
    seen: list[LatencyStats] = []
    with Marbles() as marbles:
        marbles.events("S(Fa)bRS--(Fc)-dC|").pipe(latency_stats()).subscribe(seen.append, scheduler=marbles.scheduler)
    assert seen == stats(events)
    assert len(seen) == 1
    assert run(latency_stats(), list(rx.from_iterable(events).pipe(ops.to_list()).run())) == seen
