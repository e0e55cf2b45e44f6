"""`Buffer`: each way to be full, by hand and by property."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import reactivex as rx
from hypothesis import given
from hypothesis import strategies as st
from reactivex.subject import Subject

from rx_sampler import Retrying, SamplingErrorKind
from rx_sampler.conversation import ToolResultItem
from rx_sampler.errors import SamplingErrorInfo
from rx_sampler.events import ChannelToken, Failed, ToolResultAdded
from rx_sampler.flow.buffer import Buffer, BufferOverflowError, Overflow


def filled(capacity: int, overflow: Overflow, values: Sequence[int]) -> Buffer[int]:
    """A buffer in which multiples of ten are never lost."""
    buffer = Buffer[int](capacity, overflow, lambda value: value % 10 == 0)
    for value in values:
        buffer.on_next(value)
    return buffer


@pytest.mark.parametrize(
    ("overflow", "kept", "dropped"),
    [
        ("pause", [1, 2, 3, 4, 5], 0),
        ("drop_oldest", [3, 4, 5], 2),
        ("drop_newest", [1, 2, 3], 2),
        ("latest", [5], 4),
        ("error", [1, 2, 3], 0),
    ],
)
def test_what_a_full_buffer_keeps(overflow: Overflow, kept: list[int], dropped: int) -> None:
    buffer = filled(3, overflow, [1, 2, 3, 4, 5])
    assert (buffer.pop_all(), buffer.dropped) == (kept, dropped)


@pytest.mark.parametrize(
    ("overflow", "kept", "dropped"),
    [
        ("drop_oldest", [10, 20, 30, 4], 3),
        ("drop_newest", [10, 1, 20, 30], 3),
        ("latest", [10, 20, 30, 4], 3),
    ],
)
def test_some_values_are_never_lost(overflow: Overflow, kept: list[int], dropped: int) -> None:
    buffer = filled(2 if overflow == "drop_newest" else 3, overflow, [10, 1, 2, 3, 20, 30, 4])
    assert (buffer.pop_all(), buffer.dropped) == (kept, dropped)


@given(
    st.integers(1, 4),
    st.sampled_from(["drop_oldest", "drop_newest", "latest"]),
    st.lists(st.integers(0, 99) | st.none(), max_size=40),
)
def test_order_is_kept_and_every_loss_is_counted(capacity: int, overflow: Any, steps: list[int | None]) -> None:
    # A number comes, None takes one away.
    buffer = Buffer[tuple[int, int]](capacity, overflow, lambda pair: pair[1] % 10 == 0)
    came: list[tuple[int, int]] = []
    taken: list[tuple[int, int]] = []
    for step in steps:
        if step is not None:
            came.append((len(came), step))
            buffer.on_next(came[-1])
        elif buffer:
            taken.append(buffer.pop())
    assert len(buffer) <= capacity + sum(value % 10 == 0 for _, value in came)
    taken += buffer.pop_all()
    assert taken == sorted(set(taken))
    assert len(taken) + buffer.dropped == len(came)
    assert {pair for pair in came if pair[1] % 10 == 0} <= set(taken)


def test_pause_holds_its_demand_from_full_to_half_empty() -> None:
    buffer = filled(4, "pause", [1, 2, 3])
    demand = buffer._demand  # pyright: ignore[reportPrivateUsage]
    assert demand is not None
    wanted = [demand.wants]
    buffer.on_next(4)
    wanted.append(demand.wants)
    for _ in range(2):
        buffer.pop()
        wanted.append(demand.wants)
    assert wanted == [True, False, False, True]
    assert buffer.high_water == 4


def test_the_defaults_keep_what_says_how_a_request_went() -> None:
    def event(kind: type[Any], **fields: Any) -> Any:
        return kind(request_id="r", attempt=1, ts=0.0, **fields)

    token = event(ChannelToken, channel="text", text="a", chunk_index=1)
    retrying = event(
        Retrying,
        next_attempt=2,
        retry=1,
        max_retries=1,
        budget="transport",
        error_kind=SamplingErrorKind.HTTP,
        reason="",
        backoff_s=0.0,
    )
    result = ToolResultItem(tool_call_id="c", content="1")
    ran = event(ToolResultAdded, tool_call_id="c", name="f", result=result, duration_ms=1.0)
    failed = event(Failed, error=SamplingErrorInfo(kind=SamplingErrorKind.HTTP, message=""))
    buffer = Buffer[Any](1, "latest")
    for value in (token, retrying, token, ran, failed, token, token):
        buffer.on_next(value)
    assert buffer.pop_all() == [retrying, ran, failed, token]
    assert buffer.dropped == 3


def test_error_disposes_the_source_and_says_so_behind_what_waited() -> None:
    source: Subject[int] = Subject()
    buffer = Buffer[int](2, "error")
    buffer.subscribe_to(source, None)
    for value in range(5):
        source.on_next(value)
    assert source.observers == []
    assert buffer.pop_all() == [0, 1]
    assert buffer.ended
    assert isinstance(buffer.error, BufferOverflowError)
    assert str(buffer.error) == "2 values wait and another came: the consumer is slower than its source"
    buffer.on_next(5)
    assert not buffer


def test_a_source_that_ends_inside_subscribe() -> None:
    buffer = Buffer[int](10, "pause")
    buffer.subscribe_to(rx.from_iterable(range(100)), None)
    assert buffer.ended
    assert buffer.pop_all() == list(range(100))  # a list cannot wait, and nothing is lost
    assert buffer.high_water == 100


@pytest.mark.parametrize(
    ("capacity", "overflow", "message"),
    [
        (0, "pause", "capacity is 0; a buffer holds 1 value or more"),
        (1, "block", "overflow is 'block'; it can be pause, drop_oldest, drop_newest, latest, error"),
    ],
)
def test_bad_arguments(capacity: int, overflow: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Buffer[int](capacity, overflow)


@pytest.mark.parametrize("what", ["value", "end", "error", "dispose"])
async def test_arrival_is_told_of_values_ends_and_errors(what: str) -> None:
    buffer = Buffer[int](1, "pause")
    waiting = buffer.arrival()
    await asyncio.sleep(0)
    assert not waiting.done()
    match what:
        case "value":
            buffer.on_next(1)
        case "end":
            buffer.on_completed()
        case "error":
            buffer.on_error(OSError())
        case _:
            buffer.dispose()
    await waiting


async def test_only_one_task_can_wait() -> None:
    buffer = Buffer[int](1, "pause")
    waiting = buffer.arrival()
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another task waits"):
        await buffer.arrival()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    buffer.on_next(1)
    assert buffer.pop() == 1


async def test_a_source_on_another_thread_wakes_the_loop() -> None:
    buffer = Buffer[int](1, "drop_newest")
    waiting = buffer.arrival()
    await asyncio.sleep(0)
    thread = threading.Thread(target=buffer.on_next, args=(7,))
    thread.start()
    await waiting
    thread.join()
    assert buffer.pop() == 7
