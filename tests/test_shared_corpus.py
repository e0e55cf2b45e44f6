"""Real recorded streams, where they lie beside the checkout: what they say, whole and cut, against their indexes."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import reactivex as rx
from reactivex.scheduler import ImmediateScheduler

from rx_sampler import (
    BackendToolCallCompleted,
    ChannelToken,
    Completed,
    Failed,
    SamplingEvent,
    SamplingResponse,
    ToolCallDelta,
    event_from_json,
    event_to_json,
    failures_as_events,
    sampling_events,
    sse_frames,
    typed_chunks,
)
from rx_sampler.testing import random_splits

SHARED = Path(__file__).resolve().parents[2] / "shared"
BACKENDS = {"chat": "chat_completions", "responses": "responses", "messages": "messages"}
XAI_HOSTED_PREFIX = "x_"

Record = dict[str, Any]


def records(folder: str, index: str) -> list[Record]:
    path = SHARED / folder / index
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row | {"path": SHARED / folder / row["file"]} for row in rows if (SHARED / folder / row["file"]).exists()]


REMOTE = records("corpus", "index.jsonl")
LOCAL = records("corpus-local", "expect.jsonl")
EVERY = [*REMOTE, *LOCAL]

pytestmark = pytest.mark.skipif(not EVERY, reason="no recorded corpus beside the checkout")


class StillTime(ImmediateScheduler):
    """One moment: events of two runs are equal by value."""

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(1_000, UTC)


def run(backend: str, reads: list[bytes]) -> list[SamplingEvent]:
    events: list[SamplingEvent] = []
    errors: list[Exception] = []
    rx.from_iterable(reads).pipe(
        sse_frames(), typed_chunks(backend), sampling_events(backend), failures_as_events()
    ).subscribe(events.append, errors.append, scheduler=StillTime())
    assert not errors, f"on_error: {errors[0]!r}"
    return events


def by_file(rows: list[Record]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("record", rows, ids=[row["file"] for row in rows])


def is_said(wanted: object, said: str) -> bool:
    """`wanted` is a text, or length and digest of a long one."""
    if isinstance(wanted, str):
        return said == wanted
    assert isinstance(wanted, dict)
    return (len(said), hashlib.sha256(said.encode()).hexdigest()) == (wanted["length"], wanted["sha256"])


def said(events: list[SamplingEvent], channel: str) -> str:
    return "".join(e.text for e in events if isinstance(e, ChannelToken) and e.channel == channel and e.choice == 0)


def kept(events: list[SamplingEvent]) -> SamplingResponse:
    end = events[-1]
    assert isinstance(end, Completed | Failed)
    return (end.response if isinstance(end, Completed) else end.partial) or SamplingResponse()


def squeezed(text: str) -> str:
    return "".join(text.split())


@by_file(EVERY)
def test_a_recording_ends_once_and_goes_through_json(record: Record) -> None:
    events = run(BACKENDS[record["backend"]], [record["path"].read_bytes()])
    ends = [event for event in events if isinstance(event, Completed | Failed)]
    assert ends == [events[-1]]
    indexes = [event.chunk_index for event in events if isinstance(event, ChannelToken)]
    assert indexes == list(range(1, len(indexes) + 1))
    assert [event_from_json(event_to_json(event)) for event in events] == events


@by_file(EVERY)
def test_cuts_are_invisible(record: Record) -> None:
    backend, body = BACKENDS[record["backend"]], record["path"].read_bytes()
    whole = run(backend, [body])
    for reads in cut(record, body):
        assert run(backend, reads) == whole


def cut(record: Record, body: bytes) -> Iterator[list[bytes]]:
    yield from random_splits(body, seed=len(body), count=2)
    if sizes := record.get("chunk_sizes"):  # as it arrived when it was recorded
        ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
        yield [body[end - size : end] for end, size in zip(ends, sizes, strict=True)]


@by_file(EVERY)
def test_what_streamed_is_what_the_answer_holds(record: Record) -> None:
    events = run(BACKENDS[record["backend"]], [record["path"].read_bytes()])
    response = kept(events)
    assert said(events, "text") == response.text
    assert said(events, "reasoning") == response.reasoning
    fragments: dict[int, list[str]] = defaultdict(list)
    for event in events:
        if isinstance(event, ToolCallDelta) and event.choice == 0:
            fragments[event.tool_index].append(event.arguments_delta or "")
    streamed = ["".join(fragments[index]) for index in sorted(fragments)]
    assert len(streamed) == len(response.tool_calls)
    for text, call in zip(streamed, response.tool_calls, strict=True):
        assert text == call.arguments or (not text.strip() and call.arguments == "{}")


def wanted_calls(record: Record, truth: Record) -> list[tuple[str, Any]]:
    calls = [(call[0], call[1]) for call in truth["tool_calls"]]
    if record.get("provider") == "xai":  # its searches on X come as custom calls, but the server runs them
        calls = [call for call in calls if not call[0].startswith(XAI_HOSTED_PREFIX)]
    return calls


def check_calls(record: Record, truth: Record, response: SamplingResponse) -> None:
    wanted = wanted_calls(record, truth)
    assert [call.name for call in response.tool_calls] == [name for name, _ in wanted]
    for call, (_, arguments) in zip(response.tool_calls, wanted, strict=True):
        empty = isinstance(arguments, str) and arguments.strip() in ("", "{}")
        assert call.arguments.strip() in ("", "{}") if empty else is_said(arguments, call.arguments)


CERTAIN = [row for row in REMOTE if not row.get("ambiguous") and not row["expect"].get("errors")]


@by_file(CERTAIN)
def test_a_recording_says_what_its_index_says(record: Record) -> None:
    truth = record["expect"]
    events = run(BACKENDS[record["backend"]], [record["path"].read_bytes()])
    response = kept(events)
    assert is_said(truth["text"], said(events, "text"))
    if truth.get("refusal"):
        assert truth["refusal"] in (said(events, "refusal"), said(events, "text"))
    parts = [part for part in (truth["reasoning"], truth.get("reasoning_summary", "")) if part]
    if all(isinstance(part, str) for part in parts):  # blank lines between parts are ours
        assert len(squeezed(said(events, "reasoning"))) == sum(len(squeezed(part)) for part in parts)
    if isinstance(events[-1], Completed):
        check_calls(record, truth, response)
        if record["backend"] != "responses" and truth["finish_reason"]:
            assert response.raw_stop_reason == truth["finish_reason"]
        if truth.get("model"):
            assert response.model == truth["model"]
        if truth.get("stop_sequence"):
            assert response.stop_sequence == truth["stop_sequence"]


@by_file([row for row in REMOTE if row["expect"].get("errors")])
def test_a_recording_with_an_error_fails(record: Record) -> None:
    events = run(BACKENDS[record["backend"]], [record["path"].read_bytes()])
    end = events[-1]
    assert isinstance(end, Failed)
    assert end.error.message


@by_file([row for row in REMOTE if any(item.endswith("_call") for item in row["expect"].get("hosted_items", []))])
def test_a_recording_with_hosted_tools_shows_them(record: Record) -> None:
    run_by_the_client = {"apply_patch_call", "local_shell_call", "shell_call"}
    items = [item for item in record["expect"]["hosted_items"] if item.endswith("_call")]
    events = run(BACKENDS[record["backend"]], [record["path"].read_bytes()])
    finished = [event for event in events if isinstance(event, BackendToolCallCompleted)]
    assert bool(finished) == any(item not in run_by_the_client for item in items)


@by_file([row for row in REMOTE if row["expect"].get("choices")])
def test_a_recording_with_choices_keeps_them_apart(record: Record) -> None:
    events = run(BACKENDS[record["backend"]], [record["path"].read_bytes()])
    for choice, truth in record["expect"]["choices"].items():
        texts = [
            e.text for e in events if isinstance(e, ChannelToken) and e.choice == int(choice) and e.channel == "text"
        ]
        assert is_said(truth["text"], "".join(texts))


@by_file(LOCAL)
def test_a_local_recording_ends_as_its_index_says(record: Record) -> None:
    events = run(BACKENDS[record["backend"]], [record["path"].read_bytes()])
    end = events[-1]
    assert isinstance(end, Failed if record["outcome"] == "failed" else Completed)
    assert is_said(record["text"], said(events, "text"))
    if record["reasoning"] or record["backend"] != "responses":  # the index leaves out summaries
        assert squeezed(record["reasoning"]) == squeezed(said(events, "reasoning"))
    if isinstance(end, Completed):
        check_calls(record, record, end.response)
        if record["finish_reason"] and record["backend"] != "responses":
            assert end.response.raw_stop_reason == record["finish_reason"]
