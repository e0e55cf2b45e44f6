"""The blocking portal: same events, same errors, same cancellation, for programs without an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from typing import Any

import pytest
from pydantic import ValidationError

from rx_sampler import (
    ChannelToken,
    Completed,
    Failed,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingError,
    SamplingErrorKind,
    SamplingEvent,
    ToolResultAdded,
    blocking,
    collect_tools,
    event_from_json,
    run_tools,
)
from rx_sampler.simulator import Fault, SimulatorThread, Timing, ToolCall, Turn

WAIT_S = 30.0


@pytest.fixture
def server() -> Generator[SimulatorThread]:
    with SimulatorThread(seed=3, timing=Timing.instant()) as simulator:
        yield simulator


def config(server: SimulatorThread, **fields: Any) -> SamplerConfig:
    return SamplerConfig.model_validate(
        {"base_url": server.base_url, "model": "m", "retry": RetryPolicy(max_retries=0), **fields}
    )


def test_it_gives_the_events_that_a_sampler_gives(server: SimulatorThread) -> None:
    async def on_a_loop() -> list[SamplingEvent]:
        async with Sampler(config(server)) as sampler:
            return [event async for event in sampler.iterate("Why?")]

    with blocking(config(server)) as sampler:
        events = list(sampler.iterate("Why?"))
        result = sampler.collect("Why?")
    others = asyncio.run(on_a_loop())
    assert [event.kind for event in events] == [event.kind for event in others]
    end, other_end = events[-1], others[-1]
    assert isinstance(end, Completed)
    assert isinstance(other_end, Completed)
    assert end.response.text == other_end.response.text == result.response.text
    assert [thread.name for thread in threading.enumerate() if "portal" in thread.name] == []


def test_tools_run_on_the_samplers_loop(server: SimulatorThread) -> None:
    threads: list[str] = []

    async def forecast(city: str) -> str:
        threads.append(threading.current_thread().name)
        return f"rain in {city}"

    called = Turn(tool_calls=(ToolCall(name="forecast", arguments={"city": "Bergen"}),))
    server.script_next(called, Turn(text="Wet."), called, Turn(text="Wet again."))
    with blocking(config(server)) as sampler:
        events = list(sampler.each(lambda loop: run_tools(loop, "Rain?", [forecast])))
        done = sampler.run(lambda loop: collect_tools(loop, "And now?", [forecast]))
    assert [(event.kind, event.turn) for event in events if not isinstance(event, ChannelToken)][-1] == ("completed", 2)
    assert [event.result.content for event in events if isinstance(event, ToolResultAdded)] == ["rain in Bergen"]
    assert done.response.text == "Wet again."
    assert threads == ["rx_sampler portal"] * 2


def test_what_cannot_run_is_said_at_call_time(server: SimulatorThread) -> None:
    with blocking(config(server)) as sampler, pytest.raises(ValueError, match="max_turns"):
        sampler.each(lambda loop: run_tools(loop, "Rain?", max_turns=0))
    with pytest.raises(RuntimeError, match="with blocking"):
        sampler.run(lambda loop: collect_tools(loop, "Rain?"))


def test_failures_are_events_or_raised(server: SimulatorThread) -> None:
    server.script_next(*[Turn(fault=Fault(kind="status", status=500))] * 2)
    with blocking(config(server)) as sampler:
        end = list(sampler.iterate("Why?"))[-1]
        assert isinstance(end, Failed)
        with pytest.raises(SamplingError) as raised:
            sampler.collect("Why?")
        assert end.error.status == raised.value.info.status == 500


def test_a_question_that_is_none_is_refused_at_call_time(server: SimulatorThread) -> None:
    with blocking(config(server)) as sampler, pytest.raises(ValidationError):
        sampler.iterate(7)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="capacity"), blocking(config(server)) as sampler:
        sampler.iterate("Why?", capacity=0)


@pytest.mark.parametrize("how", ["break", "close", "raise", "end of with"])
def test_who_leaves_early_cancels_the_request(server: SimulatorThread, how: str) -> None:
    server.script_next(Turn(text="word " * 1000, fault=Fault(kind="stall", after_deltas=20)))
    with blocking(config(server)) as sampler:
        events = sampler.iterate("Why?")
        assert any(event.kind == "channel_token" for event in events)
        assert server.active_count == 1
        match how:
            case "close":
                events.close()
            case "raise":
                with pytest.raises(KeyError):
                    events.throw(KeyError("bug"))
            case "break":
                del events
            case _:
                pass
        if how != "end of with":
            server.wait_idle()
    server.wait_idle()


def test_an_iteration_goes_on_only_inside_with(server: SimulatorThread) -> None:
    with blocking(config(server)) as sampler:
        events = sampler.iterate("Why?", capacity=1)
        next(events)
    with pytest.raises(RuntimeError, match="does not run"):
        list(events)


def test_nothing_is_sent_before_the_iteration_begins(server: SimulatorThread) -> None:
    with blocking(config(server)) as sampler:
        events = sampler.iterate("Why?")
        assert server.requests == []
        next(events)
        assert len(server.requests) == 1


def test_several_threads_at_once(server: SimulatorThread) -> None:
    ends: list[SamplingEvent] = []

    with blocking(config(server)) as sampler:

        def ask() -> None:
            ends.append(list(sampler.iterate("Why?"))[-1])

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    assert [end.kind for end in ends] == ["completed"] * 8
    assert len({end.request_id for end in ends}) == 8


async def test_under_a_running_loop(server: SimulatorThread) -> None:
    with blocking(config(server)) as sampler:  # as a notebook's cell would
        assert list(sampler.iterate("Why?"))[-1].kind == "completed"


def test_it_runs_only_inside_with(server: SimulatorThread) -> None:
    sampler = blocking(config(server))
    with pytest.raises(RuntimeError, match="use `with blocking"):
        sampler.collect("Why?")
    with sampler:
        assert sampler.collect("Why?").response.text
        with pytest.raises(RuntimeError, match="entered already"), sampler:
            pass
        assert sampler.collect("Why?").response.text
    with pytest.raises(RuntimeError, match="use `with blocking"):
        next(iter(sampler.iterate("Why?")))
    with sampler:  # again
        assert sampler.collect("Why?").response.text


def test_the_options_of_a_sampler(server: SimulatorThread) -> None:
    server.script_next(Turn(fault=Fault(kind="status", status=503)))
    with blocking(
        config(server, retry=RetryPolicy(max_retries=1, initial_backoff_s=0.001)), random=lambda: 0.5
    ) as asker:
        assert [event.kind for event in asker.iterate("Why?")].count("retrying") == 1


PROGRAM = """
import sys
from rx_sampler import SamplerConfig, blocking, event_to_json

with blocking(SamplerConfig(base_url=sys.argv[1], model="m")) as sampler:
    try:
        if sys.argv[2] == "iterate":
            for event in sampler.iterate("Why?"):
                print(event_to_json(event), flush=True)
        else:
            print("collecting", flush=True)
            sampler.collect("Why?")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize("how", ["iterate", "collect"])
def test_ctrl_c_ends_the_request_and_the_program(server: SimulatorThread, how: str) -> None:
    server.script_next(Turn(text="word " * 1000, fault=Fault(kind="stall", after_deltas=20)))
    command = [sys.executable, "-c", PROGRAM, server.base_url, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        if how == "iterate":
            tokens = 0
            while tokens < 20:  # until it waits for more
                tokens += event_from_json(program.stdout.readline()).kind == "channel_token"
        else:
            server.wait_received(1)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=WAIT_S)
    assert out.splitlines()[-1] == "interrupted"
    assert err == ""
    assert program.returncode == 0
    server.wait_idle()


def test_kind_of_an_aborted_collect(server: SimulatorThread) -> None:
    server.script_next(Turn(text="word " * 1000, fault=Fault(kind="stall", after_deltas=20)))
    errors: list[SamplingError] = []
    sampler = blocking(config(server))

    def ask() -> None:
        try:
            sampler.collect("Why?")
        except SamplingError as error:
            errors.append(error)

    with sampler:
        thread = threading.Thread(target=ask)
        thread.start()
        server.wait_received(1)
    thread.join(WAIT_S)
    assert [error.kind for error in errors] == [SamplingErrorKind.CANCELLED]
