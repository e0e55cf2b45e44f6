"""`time_to_first_token`, `time_to_first_text` and `inter_token_latency`: per attempt, end to end, and interleaved."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Sequence

import pytest
import reactivex as rx
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops
from reactivex.subject import Subject

from rx_sampler import Sampler, SamplerConfig
from rx_sampler.events import ChannelToken, Completed, SamplingEvent
from rx_sampler.operators.latency import (
    FirstTokenLatency,
    InterTokenLatency,
    inter_token_latency,
    time_to_first_text,
    time_to_first_token,
)
from rx_sampler.simulator import Fault, Simulator, Timing, Turn
from rx_sampler.testing.made import reasoning
from rx_sampler.testing.marbles import Marbles, diagram_of

from .assembling import completed, failed, first, retrying, run, started, token

# Times are multiples of an eighth of a second, so that differences are exact.


def firsts(events: Sequence[SamplingEvent], channel: str | None = None) -> list[FirstTokenLatency]:
    return run(time_to_first_token(channel), events)


def gaps(events: Sequence[SamplingEvent], channel: str | None = None) -> list[InterTokenLatency]:
    return run(inter_token_latency(channel), events)


def test_the_diagram_of_time_to_first_token() -> None:
    rows = diagram_of(time_to_first_token)
    with Marbles() as marbles:
        source = marbles.events(rows["source"])
        latencies = source.pipe(
            time_to_first_token(), ops.map(lambda one: (round(one.latency_ms, 3), round(one.end_to_end_ms, 3)))
        )
        marbles.expect(latencies).to_be(rows["time_to_first_token"], {"x": (2.0, 3.0), "y": (3.0, 14.0)})


def test_the_diagram_of_time_to_first_text() -> None:
    rows = diagram_of(time_to_first_text)
    with Marbles() as marbles:
        source = marbles.events(rows["source"], {"r": reasoning("hm")})
        latencies = source.pipe(
            time_to_first_text(), ops.map(lambda one: (round(one.latency_ms, 3), round(one.end_to_end_ms, 3)))
        )
        marbles.expect(latencies).to_be(rows["time_to_first_text"], {"x": (7.0, 8.0)})


def test_the_diagram_of_inter_token_latency() -> None:
    rows = diagram_of(inter_token_latency)
    with Marbles() as marbles:
        source = marbles.events(rows["source"])
        latencies = source.pipe(inter_token_latency(), ops.map(lambda one: round(one.latency_ms, 3)))
        marbles.expect(latencies).to_be(rows["inter_token_latency"], {"x": 5.0, "y": 3.0})


def test_the_first_token_from_the_stream_and_from_the_submit() -> None:
    events = [started(ts=10.0, submitted_at=9.5), first(ts=10.25), token("a", 1, ts=10.25), token("b", 2, ts=11.0)]
    assert firsts(events) == [FirstTokenLatency("r", 1, 10.25, "text", 250.0, 750.0)]


def test_across_a_retry_each_attempt_has_its_own_and_the_submit_is_the_same() -> None:
    events = [
        started(ts=10.0, submitted_at=9.5),
        token("a", 1, ts=10.25),
        retrying(ts=10.5),
        started(ts=12.0, attempt=2, submitted_at=9.5),
        token("a", 1, ts=12.125, attempt=2),
        completed("a", ts=13.0, attempt=2),
    ]
    assert firsts(events) == [
        FirstTokenLatency("r", 1, 10.25, "text", 250.0, 750.0),
        FirstTokenLatency("r", 2, 12.125, "text", 125.0, 2625.0),
    ]


def test_an_attempt_without_a_token_has_none() -> None:
    events = [started(ts=1.0), retrying(ts=2.0), started(ts=3.0, attempt=2), failed(ts=4.0, attempt=2)]
    assert firsts(events) == []


def test_an_empty_token_is_no_token() -> None:
    events = [started(ts=1.0), token("", 1, ts=1.25), token("a", 2, ts=1.5)]
    assert [one.latency_ms for one in firsts(events)] == [500.0]


def test_of_a_channel_and_any_choice() -> None:
    events = [
        started(ts=1.0, submitted_at=1.0),
        token("hm", 1, channel="reasoning", ts=1.5),
        token("a", 2, choice=1, ts=2.0),
        token("b", 3, ts=3.0),
    ]
    assert [(one.channel, one.latency_ms) for one in firsts(events)] == [("reasoning", 500.0)]
    assert [(one.channel, one.latency_ms) for one in firsts(events, "text")] == [("text", 1000.0)]
    assert run(time_to_first_text(), events) == firsts(events, "text")
    assert firsts(events, "refusal") == []


def test_a_recording_that_was_cut_counts_from_its_first_event() -> None:
    assert firsts([first(ts=2.0), token("a", 1, ts=2.5)]) == [FirstTokenLatency("r", 1, 2.5, "text", 500.0, 500.0)]
    assert firsts([token("a", 7, ts=2.5)]) == [FirstTokenLatency("r", 1, 2.5, "text", 0.0, 0.0)]


def test_retrying_as_the_first_event() -> None:
    events = [retrying(ts=2.0), started(ts=4.0, attempt=2), token("a", 1, ts=4.5, attempt=2)]
    assert firsts(events) == [FirstTokenLatency("r", 2, 4.5, "text", 500.0, 2500.0)]


def test_after_a_retry_without_a_start_the_attempt_begins_with_its_first_event() -> None:
    events = [started(ts=1.0), retrying(ts=2.0), first(ts=4.0, attempt=2), token("a", 1, ts=4.5, attempt=2)]
    assert firsts(events) == [FirstTokenLatency("r", 2, 4.5, "text", 500.0, 3500.0)]


def test_first_tokens_of_two_requests_and_of_one_that_comes_again() -> None:
    events = [
        started(ts=1.0, submitted_at=0.5),
        started(ts=2.0, submitted_at=2.0, of="s"),
        token("x", 1, ts=2.25, of="s"),
        token("a", 1, ts=3.0),
        completed(ts=4.0),
        token("y", 2, ts=4.5, of="s"),
        started(ts=5.0, submitted_at=5.0),
        token("b", 1, ts=5.5),
    ]
    assert firsts(events) == [
        FirstTokenLatency("s", 1, 2.25, "text", 250.0, 250.0),
        FirstTokenLatency("r", 1, 3.0, "text", 2000.0, 2500.0),
        FirstTokenLatency("r", 1, 5.5, "text", 500.0, 500.0),
    ]


def test_gaps_from_the_second_token_on() -> None:
    events = [
        started(ts=1.0),
        token("a", 1, ts=2.0),
        token("hm", 2, channel="reasoning", ts=2.5),
        token("b", 3, ts=2.5),
        token("c", 4, ts=4.5),
    ]
    assert gaps(events) == [
        InterTokenLatency("r", 1, 2.5, 2, "reasoning", 500.0),
        InterTokenLatency("r", 1, 2.5, 3, "text", 0.0),
        InterTokenLatency("r", 1, 4.5, 4, "text", 2000.0),
    ]
    assert gaps(events, "text") == [
        InterTokenLatency("r", 1, 2.5, 3, "text", 500.0),
        InterTokenLatency("r", 1, 4.5, 4, "text", 2000.0),
    ]
    assert gaps(events, "reasoning") == []


def test_the_wait_between_attempts_is_no_gap() -> None:
    events = [
        token("a", 1, ts=1.0),
        token("b", 2, ts=1.5),
        retrying(ts=2.0),
        token("a", 1, ts=9.0, attempt=2),
        token("b", 2, ts=9.25, attempt=2),
    ]
    assert gaps(events) == [
        InterTokenLatency("r", 1, 1.5, 2, "text", 500.0),
        InterTokenLatency("r", 2, 9.25, 2, "text", 250.0),
    ]


def test_gaps_of_two_requests_and_of_one_that_comes_again() -> None:
    events = [
        token("a", 1, ts=1.0),
        token("x", 1, ts=1.125, of="s"),
        token("b", 2, ts=1.5),
        completed("ab", ts=1.5),
        token("y", 2, ts=2.125, of="s"),
        token("a", 1, ts=3.0),
        failed(ts=3.0, of="s"),
    ]
    assert [(one.request_id, one.latency_ms) for one in gaps(events)] == [("r", 500.0), ("s", 1000.0)]


@given(st.lists(st.tuples(st.sampled_from("rst"), st.sampled_from("tttttRC"), st.integers(0, 3)), max_size=60))
def test_however_requests_interleave_each_has_the_gaps_it_has_alone(steps: list[tuple[str, str, int]]) -> None:
    events: list[SamplingEvent] = []
    ts = 0.0
    for place, (of, kind, eighths) in enumerate(steps):
        ts += eighths / 8
        made = {"t": token("a", place, ts=ts, of=of), "R": retrying(ts=ts, of=of), "C": completed(ts=ts, of=of)}
        events.append(made[kind])
    together = gaps(events)
    for of in "rst":
        alone: list[InterTokenLatency] = []
        before: float | None = None
        for event in (event for event in events if event.request_id == of):
            if not isinstance(event, ChannelToken):
                before = None
                continue
            if before is not None:
                gap_ms = (event.ts - before) * 1e3
                alone.append(InterTokenLatency(of, 1, event.ts, event.chunk_index, "text", gap_ms))
            before = event.ts
        assert [one for one in together if one.request_id == of] == alone


def test_a_request_is_known_by_what_its_id_says() -> None:
    # Not by the object: each event of a recording has a string of its own.
    events = [token("a", place, ts=ts, of="-".join(["r", "1"])) for place, ts in ((1, 1.0), (2, 1.5), (3, 2.5))]
    assert events[0].request_id is not events[1].request_id
    assert [one.latency_ms for one in gaps(events)] == [500.0, 1000.0]


@pytest.mark.parametrize("backend", ["chat_completions", "responses", "messages"])
def test_they_say_of_a_run_what_its_metrics_say(backend: str) -> None:
    async def asked() -> list[SamplingEvent]:
        turn = Turn(
            reasoning="Light scatters.", text="It is blue, I think.", faults=(Fault(kind="cut", after_deltas=3),)
        )
        timing = Timing(time_to_first_token_s=0.002, tokens_per_second=2000)
        async with Simulator(seed=1, timing=timing, script=[turn]) as server:
            retry = {"max_retries": 1, "initial_backoff_s": 0.0}
            config = {"backend": backend, "base_url": server.base_url, "model": "m", "retry": retry}
            sampler = Sampler(SamplerConfig.model_validate(config))
            return await sampler.stream("Why?").pipe(ops.to_list())

    events = asyncio.run(asked())
    end = events[-1]
    assert isinstance(end, Completed)
    assert (end.attempt, end.metrics.attempts) == (2, 2)
    *_, last = firsts(events)
    assert last.latency_ms == end.metrics.time_to_first_token_ms
    assert last.end_to_end_ms == end.metrics.time_to_first_token_from_submit_ms
    assert run(time_to_first_text(), events)[-1].latency_ms == end.metrics.time_to_first_text_ms
    own = [one.latency_ms for one in gaps(events) if one.attempt == 2]
    assert len(own) == end.metrics.chunk_count - 1
    assert max(own) == end.metrics.inter_token_max_ms
    assert sum(own) / len(own) == pytest.approx(end.metrics.inter_token_mean_ms)


@pytest.mark.parametrize("operator", [time_to_first_token(), inter_token_latency()], ids=["first", "gaps"])
def test_no_state_is_left_of_requests_that_have_ended(
    operator: Callable[[rx.Observable[SamplingEvent]], rx.Observable[object]],
) -> None:
    source: Subject[SamplingEvent] = Subject()
    source.pipe(operator).subscribe(lambda _one: None)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2000):
            source.on_next(token("a", 1, of=f"request {number}"))
            source.on_next(failed(of=f"request {number}"))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000  # the ids alone would take more than 100,000
