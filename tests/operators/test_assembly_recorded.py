"""The operators that assemble an answer, over recorded streams: they agree with each other and with the response."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import reactivex as rx

from rx_sampler import failures_as_events, sampling_events, sse_frames, typed_chunks
from rx_sampler.events import ChannelToken, Completed, Failed, FirstToken, SamplingEvent
from rx_sampler.operators.accumulate import accumulate
from rx_sampler.operators.arguments import partial_arguments
from rx_sampler.operators.lines import lines, sentences
from rx_sampler.operators.partial_response import partial_response
from rx_sampler.operators.think_tags import split_think_tags
from rx_sampler.operators.tools import tool_calls

from .assembling import check_legal, run, texts

RECORDINGS: Final = sorted((Path(__file__).parents[1] / "recordings").glob("*/*.sse"))
recorded: Final = pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}/{path.stem}")


def events_of(path: Path) -> list[SamplingEvent]:
    backend = path.parent.name
    reading = rx.of(path.read_bytes()).pipe(sse_frames(), typed_chunks(backend), sampling_events(backend))
    events: list[SamplingEvent] = []
    reading.pipe(failures_as_events()).subscribe(events.append)
    return events


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) > 10


@recorded
def test_what_had_come_is_what_the_response_says(path: Path) -> None:
    events = events_of(path)
    end = run(accumulate(), events)[-1]
    response = end.response
    if response is None:
        assert end.chunk_count == 0
        return
    before = run(accumulate(), events)[-2]
    rebuilt = partial_response(events[:-1])
    for seen in (before, rebuilt):
        assert (seen.text, seen.reasoning, seen.refusal) == (response.text, response.reasoning, response.refusal)
        calls = sorted((call.id, call.name) for call in seen.tool_calls)
        assert calls == sorted((call.id, call.name) for call in response.tool_calls)
        assert len(seen.annotations) == len(response.annotations)


@recorded
def test_calls_are_the_same_early_and_late_and_as_arguments(path: Path) -> None:
    events = events_of(path)
    if not isinstance(events[-1], Completed):
        assert run(tool_calls(), events) == []
        return
    late = sorted((one.tool_index, one.call.id, one.call.arguments) for one in run(tool_calls(), events))
    early = sorted((one.tool_index, one.call.id, one.call.arguments) for one in run(tool_calls(early=True), events))
    assert late == early
    whole = {one.tool_index: one.arguments for one in run(partial_arguments(), events) if one.complete}
    assert whole == {one.tool_index: one.call.arguments_json for one in run(tool_calls(), events)}


@recorded
@pytest.mark.parametrize("make", [lines, sentences, split_think_tags])
def test_streams_that_are_cut_anew_are_legal_and_say_the_same(path: Path, make: Callable[[], Any]) -> None:
    events = events_of(path)
    out: list[SamplingEvent] = run(make(), events)
    check_legal(events)
    check_legal(out)
    for channel in ("text", "reasoning", "refusal"):
        assert "".join(texts(out, channel)) == "".join(texts(events, channel))

    def others(stream: list[SamplingEvent]) -> list[SamplingEvent]:
        return [event for event in stream if not isinstance(event, ChannelToken | FirstToken)]

    assert others(out) == others(events)
    assert isinstance(out[-1], Completed | Failed)
