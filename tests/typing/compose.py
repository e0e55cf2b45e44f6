"""Every name of `rx_sampler.operators` and `rx_sampler.flow`, and some of `rx_sampler.testing`, as a user would use it.

Checked by mypy and pyright, and run as a script. It needs no network.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import assert_type

import reactivex as rx
from pydantic import BaseModel
from reactivex import GroupedObservable, Observable
from reactivex import operators as ops

from rx_sampler import (
    AnnotationAdded,
    ChannelToken,
    Completed,
    Failed,
    SamplingEvent,
    ToolCallDelta,
    failures_as_events,
    operators,
)
from rx_sampler.flow import (
    BoundedIterator,
    BufferOverflowError,
    Demand,
    DemandSubscription,
    Gate,
    Overflow,
    current_demand,
    demanding,
    from_async_iterable,
    subscribe_with_demand,
    to_async_iterator,
)
from rx_sampler.operators import (
    MAX_HELD,
    Channels,
    FinishedToolCall,
    FirstTokenLatency,
    Goodput,
    InterTokenLatency,
    LatencyStats,
    PartialArguments,
    PartialJson,
    Quantiles,
    RaceOutcome,
    Slo,
    Snapshot,
    Tagged,
    TokenRate,
    accumulate,
    by_request,
    channel,
    commit_on,
    detect_loop,
    fallback,
    for_request,
    goodput,
    hedge,
    in_flight,
    inter_token_latency,
    latency_stats,
    lines,
    merge_tagged,
    of_type,
    partial_arguments,
    partial_json,
    race,
    reasoning,
    sentences,
    smooth,
    split_channels,
    split_think_tags,
    text,
    time_to_first_text,
    time_to_first_token,
    token_rate,
    tool_calls,
    until_terminal,
    unwrap,
)
from rx_sampler.testing import Marbles, check_all_events, check_events, check_operator, diagram_of, drawn

EVENTS = drawn("S(Fa)bC")


class Answer(BaseModel):
    words: list[str] = []


def select(events: Observable[SamplingEvent]) -> None:
    assert_type(events.pipe(of_type(ChannelToken)), Observable[ChannelToken])
    assert_type(events.pipe(of_type(Completed, Failed)), Observable[Completed | Failed])
    assert_type(events.pipe(for_request("r"), text()), Observable[str])
    assert_type(events.pipe(until_terminal()), Observable[SamplingEvent])
    assert_type(events.pipe(reasoning(choice=1)), Observable[str])
    assert_type(events.pipe(channel("refusal")), Observable[str])
    assert_type(events.pipe(operators.annotations()), Observable[AnnotationAdded])
    assert_type(events.pipe(by_request()), Observable[GroupedObservable[str, SamplingEvent]])
    channels = events.pipe(split_channels())
    assert_type(channels, Channels)
    assert_type(channels.text, Observable[str])
    assert_type(channels.tool_calls, Observable[ToolCallDelta])
    channels.connect().dispose()
    # operators over events take streams of some of them
    assert_type(events.pipe(of_type(ChannelToken), text()), Observable[str])


def measure(events: Observable[SamplingEvent]) -> None:
    assert_type(events.pipe(time_to_first_token()), Observable[FirstTokenLatency])
    assert_type(events.pipe(time_to_first_text()), Observable[FirstTokenLatency])
    assert_type(events.pipe(inter_token_latency("text")), Observable[InterTokenLatency])
    assert_type(events.pipe(token_rate(window_s=2.0)), Observable[TokenRate])
    assert_type(events.pipe(in_flight()), Observable[int])
    assert_type(events.pipe(latency_stats()), Observable[LatencyStats])
    assert_type(events.pipe(goodput(Slo(time_to_last_byte_ms=1e3))), Observable[Goodput])


def p99(stats: LatencyStats) -> float | None:
    gaps = stats.inter_token
    assert_type(gaps, Quantiles | None)
    return gaps.p99_ms if gaps is not None else None


def assemble(events: Observable[SamplingEvent]) -> None:
    assert_type(events.pipe(accumulate()), Observable[Snapshot])
    assert_type(events.pipe(tool_calls(early=True)), Observable[FinishedToolCall])
    assert_type(events.pipe(partial_arguments()), Observable[PartialArguments])
    assert_type(events.pipe(partial_json(Answer)), Observable[PartialJson[Answer]])
    legal = events.pipe(split_think_tags(), sentences(), lines(), smooth(), commit_on("text"), detect_loop(), unwrap())
    assert_type(legal, Observable[SamplingEvent])


def combine(events: Observable[SamplingEvent], other: Observable[SamplingEvent]) -> None:
    outcomes: list[RaceOutcome] = []
    assert_type(events.pipe(race(other, on_decided=outcomes.append)), Observable[SamplingEvent])
    assert_type(events.pipe(hedge(0.5), fallback(other)), Observable[SamplingEvent])
    assert_type(events.pipe(merge_tagged("a", {"b": other})), Observable[Tagged[str, SamplingEvent]])
    assert MAX_HELD > 1000


async def numbers() -> AsyncIterator[int]:
    for number in range(3):
        yield number


async def flow(events: Observable[SamplingEvent]) -> None:
    policy: Overflow = "drop_oldest"
    iterator = to_async_iterator(events.pipe(text()), 16, policy)
    assert_type(iterator, BoundedIterator[str])
    async with iterator as pieces:
        assert_type(await anext(pieces), str)
        assert_type(await pieces.take(), list[str])
        assert (iterator.dropped, iterator.high_water) == (0, 2)
    assert_type(from_async_iterable(numbers), Observable[int])
    assert await from_async_iterable(numbers).pipe(ops.to_list()) == [0, 1, 2]
    seen: list[SamplingEvent] = []
    subscription = subscribe_with_demand(events, seen.append)
    assert_type(subscription, DemandSubscription[SamplingEvent])
    subscription.request(1)
    assert len(seen) == 1
    subscription.dispose()
    gate, demand = Gate(), Demand()
    with demanding(demand):
        gate.attach(current_demand())
    assert gate.is_watched
    assert issubclass(BufferOverflowError, RuntimeError)


def kit() -> None:
    check_events(EVENTS)
    check_all_events(EVENTS)
    check_operator(lines)
    with Marbles() as marbles:
        source = marbles.events("S(Fa)bC|")
        marbles.expect(source.pipe(text())).to_be("-a---b-|")
        marbles.expect(marbles.cold("-a|", {"a": 1})).to_be("-b|", {"b": 1})
    assert "source" in diagram_of(text)


def main() -> None:
    events = rx.from_iterable(EVENTS)
    select(events)
    measure(events)
    assemble(events)
    combine(events, events)
    stats: list[LatencyStats] = []
    events.pipe(latency_stats()).subscribe(stats.append)
    assert p99(stats[-1]) is not None
    asyncio.run(flow(events))
    kit()
    ends: list[SamplingEvent] = []
    events.pipe(failures_as_events()).subscribe(ends.append)
    assert isinstance(ends[-1], Completed)
    print("every public name was used")


if __name__ == "__main__":
    main()
