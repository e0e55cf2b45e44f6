"""Cost grows with the bytes and with the deltas, not with their square: work is counted, time is not measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from counted_calls import calls_during

from rx_sampler.backends import assembly
from rx_sampler.backends.assembly import Context, ToolSlot
from rx_sampler.backends.chat_completions.transform import ChatTransform
from rx_sampler.backends.messages.transform import MessagesTransform
from rx_sampler.backends.responses.items import Part
from rx_sampler.backends.responses.transform import ResponsesTransform
from rx_sampler.backends.think_tags import ThinkTagSplitter
from rx_sampler.conversation import JsonObject
from rx_sampler.wire.idle import Pulse

from .streams import (
    CHAT,
    CREATED,
    DONE,
    MESSAGES,
    RESPONSES,
    STOP,
    Frame,
    adds,
    calling,
    chat,
    closes,
    delta,
    ended,
    ev,
    function,
    message,
    opens,
    run,
    says,
    sse,
    started,
    stops,
)

FEW, MANY = 100, 600
MOST = 6.5
"""Six times the input may cost six times the work, and a little for the ends of lists that grow."""


def chat_stream(*frames: Frame) -> list[Frame]:
    return [*frames, chat({}, "stop"), DONE]


def messages_stream(kind: str, deltas: list[Frame], **opening: Any) -> list[Frame]:
    return [started(), opens(0, kind, **opening), *deltas, closes(0), stops("end_turn"), STOP]


def summary(text: str) -> JsonObject:
    return ev("reasoning_summary_text.delta", output_index=0, summary_index=0, delta=text)


def argues(text: str) -> JsonObject:
    return ev("function_call_arguments.delta", output_index=0, delta=text)


STREAMS: dict[str, tuple[str, Callable[[int], list[Frame]]]] = {
    "chat text": (CHAT, lambda n: chat_stream(*[says("é")] * n)),
    "chat reasoning": (CHAT, lambda n: chat_stream(*[chat({"reasoning": "é"})] * n)),
    "chat arguments": (
        CHAT,
        lambda n: chat_stream(calling('{"a":"', id="c", name="f"), *[calling("x")] * n, calling('"}')),
    ),
    "chat arguments before a name": (CHAT, lambda n: chat_stream(*[calling("x", id="c")] * n, calling("x", name="f"))),
    "chat calls": (CHAT, lambda n: chat_stream(*(calling("{}", index=i, id=f"c{i}", name="f") for i in range(n)))),
    "chat halves": (CHAT, lambda n: chat_stream(*[says("\ud83d"), says("\ude00")] * n)),
    "chat usage": (CHAT, lambda n: chat_stream(*[chat({"content": "x"}, usage={"prompt_tokens": 1})] * n)),
    "responses text": (
        RESPONSES,
        lambda n: [CREATED, *[delta("é")] * n, ev("output_text.done", output_index=0, text="é" * n), ended()],
    ),
    "responses summary": (RESPONSES, lambda n: [CREATED, *[summary("é")] * n, ended()]),
    "responses arguments": (
        RESPONSES,
        lambda n: [
            CREATED,
            ev("output_item.added", output_index=0, item=function("f", "")),
            *[argues("x")] * n,
            ended(),
        ],
    ),
    "responses arguments before a name": (
        RESPONSES,
        lambda n: [
            CREATED,
            *[argues("x")] * n,
            ev("output_item.done", output_index=0, item=function("f", "x" * n)),
            ended(),
        ],
    ),
    "responses items": (RESPONSES, lambda n: [CREATED, *(delta("x", output=i) for i in range(n)), ended()]),
    "responses final items": (
        RESPONSES,
        lambda n: [CREATED, ended(output=[message("x", id=f"m{i}") for i in range(n)])],
    ),
    "messages text": (MESSAGES, lambda n: messages_stream("text", [adds(0, "text", text="é")] * n)),
    "messages thinking": (MESSAGES, lambda n: messages_stream("thinking", [adds(0, "thinking", thinking="é")] * n)),
    "messages arguments": (
        MESSAGES,
        lambda n: messages_stream("tool_use", [adds(0, "input_json", partial_json="x")] * n, id="t", name="f"),
    ),
    "messages blocks": (MESSAGES, lambda n: [started(), *(opens(i, "text", text="x") for i in range(n)), STOP]),
}


@pytest.mark.parametrize(("backend", "make"), STREAMS.values(), ids=STREAMS.keys())
def test_calls_grow_with_the_deltas(backend: str, make: Callable[[int], list[Frame]]) -> None:
    run(backend, sse(*make(3)))  # whatever is made at first use
    few, many = (sse(*make(n)) for n in (FEW, MANY))
    assert calls_during(lambda: run(backend, many)) <= MOST * calls_during(lambda: run(backend, few))


def test_calls_grow_with_the_think_tags() -> None:
    def work(n: int) -> Callable[[], object]:
        body = sse(*[says("<think>a"), says("</think>b")] * n, DONE)
        return lambda: run(CHAT, body, split_think_tags=True)

    work(3)()
    assert calls_during(work(MANY)) <= MOST * calls_during(work(FEW))


@pytest.mark.parametrize("backend", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("size", [1, 7])
def test_calls_grow_with_the_reads_of_one_line(backend: str, size: int) -> None:
    def work(n: int) -> Callable[[], object]:
        text = "x" * (n * size)
        frames = {
            CHAT: [says(text), DONE],
            RESPONSES: [CREATED, delta(text), ended()],
            MESSAGES: [started(), adds(0, "text", text=text), STOP],
        }[backend]
        body = sse(*frames)
        reads = [body[at : at + size] for at in range(0, len(body), size)]
        return lambda: run(backend, reads)

    work(3)()
    assert calls_during(work(MANY * 3)) <= MOST * calls_during(work(FEW * 3))


# -- what calls do not show: characters copied, values compared


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that tool slots and parts put together."""
    lengths: list[int] = []

    def watch(owner: Any, name: str, buffer: str) -> None:
        original = getattr(owner, name).fget

        def put_together(self: Any) -> str:
            if len(getattr(self, buffer)) > 1:
                lengths.append(sum(map(len, getattr(self, buffer))))
            return original(self)

        monkeypatch.setattr(owner, name, property(put_together))

    watch(ToolSlot, "arguments", "fragments")
    watch(Part, "said", "wire")
    return lengths


@pytest.mark.parametrize(
    "name",
    [name for name in STREAMS if "arguments" in name or "responses" in name],
)
def test_texts_are_not_put_together_at_each_delta(name: str, joined: list[int]) -> None:
    backend, make = STREAMS[name]
    copied: list[int] = []
    for n in (FEW, MANY):
        joined.clear()
        run(backend, sse(*make(n)))
        copied.append(sum(joined))
    assert copied[1] <= MOST * copied[0]


@pytest.mark.parametrize(
    "every",
    [
        "output_text.done",
        "function_call_arguments.done",
    ],
)
def test_closing_events_after_each_delta(every: str, joined: list[int]) -> None:
    """A translator closes after every delta with what that delta said: no reason to look at all that came before."""
    is_text = every == "output_text.done"
    copied: list[int] = []
    for n in (FEW, MANY):
        joined.clear()
        opening: list[Frame] = [] if is_text else [ev("output_item.added", output_index=0, item=function("f", ""))]
        pair: list[Frame] = [delta("x"), ev(every, output_index=0, text="x")]
        if not is_text:
            pair = [argues("x"), ev(every, output_index=0, arguments="x")]
        run(RESPONSES, sse(CREATED, *opening, *pair * n, ended()))
        copied.append(sum(joined))
    assert copied[1] <= MOST * max(copied[0], n)


def test_a_name_in_every_chunk_parses_nothing_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def loads(text: str) -> object:
        parsed.append(len(text))
        return json.loads(text)

    monkeypatch.setattr(assembly, "json", SimpleNamespace(loads=loads))
    totals: list[int] = []
    for n in (FEW, MANY):
        parsed.clear()
        fragments = ['{"a":[{', "}", *[",{", "}"] * n, "]}"]
        run(CHAT, sse(*(calling(fragment, index=None, name="f") for fragment in fragments), DONE))
        totals.append(sum(parsed))
    assert totals[1] <= MOST * totals[0]


class CountingText(str):
    """A text that counts the characters that are sliced out of it."""

    copied = 0

    def __radd__(self, other: str) -> CountingText:
        return CountingText(str(other) + str(self))

    def __getitem__(self, key: Any) -> str:
        piece = CountingText(super().__getitem__(key))
        CountingText.copied += len(piece)
        return piece


def test_many_tags_in_one_delta() -> None:
    """An answer may come as one delta of megabytes."""
    totals: list[int] = []
    for n in (FEW, MANY):
        CountingText.copied = 0
        pieces = ThinkTagSplitter({}).feed(CountingText("<think>a</think>b" * n))
        assert len(pieces) == 2 * n
        totals.append(CountingText.copied)
    assert totals[1] <= MOST * totals[0]


class CountingNote(dict[str, Any]):
    """An annotation that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountingNote.compared += 1
        return super().__eq__(other)


def notes(count: int) -> list[JsonObject]:
    return [CountingNote(url=f"https://example.org/{at}") for at in range(count)]


ANNOTATED: dict[str, Callable[[int], None]] = {
    CHAT: lambda n: _feed(ChatTransform, [chat({"annotations": [note]}) for note in notes(n)]),
    RESPONSES: lambda n: _feed(
        ResponsesTransform,
        [ev("output_text.annotation.added", output_index=0, content_index=0, annotation=note) for note in notes(n)],
    ),
    MESSAGES: lambda n: _feed(MessagesTransform, [adds(0, "citations", citation=note) for note in notes(n)]),
}


def _feed(transform: Callable[[Context], Any], chunks: list[JsonObject]) -> None:
    machine = transform(Context(request_id="r-1", pulse=Pulse(0.0)))
    for chunk in chunks:
        machine.feed(chunk)


@pytest.mark.parametrize(
    "backend",
    ANNOTATED,
)
def test_annotations_are_not_all_compared(backend: str) -> None:
    totals: list[int] = []
    for n in (FEW, MANY):
        CountingNote.compared = 0
        ANNOTATED[backend](n)
        totals.append(CountingNote.compared)
    assert totals[1] <= MOST * max(totals[0], FEW)
