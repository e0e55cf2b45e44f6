"""Recordings of our own, cut in every way: the events are those noted beside them, wherever the reads end.

`tests/recordings/{backend}/{name}.sse` holds the bytes, `{name}.events` what they say, written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rx_sampler import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallItem,
    BackendToolCallStarted,
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    FirstToken,
    OpaqueItem,
    ReasoningCompleted,
    ReasoningItem,
    RefusalItem,
    ResponseStarted,
    SamplingEvent,
    SamplingResponse,
    StreamStarted,
    TextItem,
    ToolCallDelta,
)
from rx_sampler.conversation import ResponseItem
from rx_sampler.testing import every_split, random_splits

from .laws import check_laws
from .streams import run

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*/*.sse"))


def test_there_are_recordings_of_each_backend() -> None:
    counts = {
        backend: sum(path.parent.name == backend for path in RECORDINGS)
        for backend in ("chat_completions", "responses", "messages")
    }
    assert counts == {"chat_completions": 5, "responses": 5, "messages": 5}


def told(text: str | None) -> str:
    return "-" if text is None else json.dumps(text, ensure_ascii=False)


def lines(events: list[SamplingEvent]) -> Iterator[str]:
    """Events as the notes beside the recordings write them."""
    for event in events:
        match event:
            case StreamStarted():
                yield "stream_started"
            case ResponseStarted():
                yield f"response_started {event.message_id} {event.model}"
            case FirstToken():
                yield f"first_token {event.channel}"
            case ChannelToken():
                yield f"token {event.channel} {told(event.text)}"
            case ReasoningCompleted():
                yield f"signature {event.signature}"
            case ToolCallDelta():
                yield f"tool {event.tool_index} {event.id or '-'} {event.name or '-'} {told(event.arguments_delta)}"
            case BackendToolCallStarted():
                yield f"hosted_started {event.call_id} {event.name}"
            case BackendToolCallCompleted():
                yield f"hosted_completed {event.call_id} {event.name}"
            case AnnotationAdded():
                note = event.annotation
                yield f"annotation {event.offset} {note.get('url') or note['url_citation']['url']}"
            case DoomLoopSignals():
                yield f"signals {' '.join(event.triggers)}"
            case Completed():
                answer = event.response
                yield f"completed {answer.stop_reason} ({answer.raw_stop_reason}){counts(answer)}"
                yield from map(item_line, answer.items)
            case Failed():
                error = event.error
                final = "retryable" if error.is_retryable else "final"
                yield f"failed {error.kind} {error.status or '-'} {error.code} {final} {told(error.message)}"
                yield from map(item_line, event.partial.items if event.partial else ())
            case _:
                yield f"unexpected {event.kind}"


def counts(response: SamplingResponse) -> str:
    usage = response.usage
    return f" in {usage.input_tokens} out {usage.output_tokens} total {usage.total_tokens}" if usage else ""


def item_line(item: ResponseItem) -> str:
    match item:
        case TextItem() | RefusalItem():
            return f"= {item.type} {told(item.text)}"
        case ReasoningItem():
            return f"= redacted {item.redacted_data}" if item.redacted_data else f"= reasoning {told(item.text)}"
        case BackendToolCallItem():
            return f"= hosted {item.call_id} {item.name}"
        case OpaqueItem():
            return f"= opaque {item.wire['type']}"
        case _:
            return f"= call {item.id} {item.name} {told(item.arguments)} {'complete' if item.complete else 'cut'}"


def read(path: Path) -> tuple[str, bytes, list[SamplingEvent]]:
    body = path.read_bytes()
    return path.parent.name, body, run(path.parent.name, body)


by_recording = pytest.mark.parametrize("path", RECORDINGS, ids=[f"{p.parent.name}-{p.stem}" for p in RECORDINGS])


@by_recording
def test_a_recording_says_what_is_noted_beside_it(path: Path) -> None:
    _, _, events = read(path)
    assert list(lines(events)) == path.with_suffix(".events").read_text(encoding="utf-8").splitlines()
    check_laws(events)


@by_recording
def test_every_split(path: Path) -> None:
    # B130
    backend, body, whole = read(path)
    for reads in every_split(body):
        assert run(backend, reads, both_roads=False) == whole, reads[0][-40:]


@by_recording
def test_random_splits(path: Path) -> None:
    backend, body, whole = read(path)
    for reads in random_splits(body, seed=len(body), count=20):
        assert run(backend, reads, both_roads=False) == whole


@by_recording
def test_every_prefix_ends_well(path: Path) -> None:
    """A body that breaks off anywhere: one terminal event, and a success only once the end was announced."""
    backend, body, whole = read(path)
    for end in range(0, len(body), 11):
        events = run(backend, body[:end])
        check_laws(events)
        if isinstance(events[-1], Completed):
            assert isinstance(whole[-1], Completed)
            assert events[-1].response.items == whole[-1].response.items
