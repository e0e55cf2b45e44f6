"""The short cut that a request takes for plain text reads a stream as the single stages do.

`streams.run` compares the two for every stream of this folder; here are those that only look like plain text.
"""

from __future__ import annotations

import pytest

from rx_sampler.conversation import JsonObject

from .streams import (
    CHAT,
    CREATED,
    DONE,
    MESSAGES,
    RESPONSES,
    STOP,
    Frame,
    adds,
    chat,
    delta,
    ended,
    ev,
    failed,
    function,
    message,
    opens,
    run,
    says,
    sse,
    started,
    stops,
)

BOOM = {"message": "boom", "code": 503}


def choice(**fields: object) -> JsonObject:
    return {"id": "cmpl-1", "model": "toy-1", "choices": [{"index": 0, "delta": {"content": "x"}, **fields}]}


CHAT_ODD: dict[str, Frame] = {
    "named error": ("error", says("x")),
    "error beside": {**says("x"), "error": BOOM},
    "status of its own": {**says("x"), "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
    "vendor usage": {**says("x"), "x_groq": {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}},
    "citations": {**says("x"), "citations": ["https://example.org"]},
    "usage": {**says("x"), "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    "odd index": choice(index=False),
    "index as text": choice(index="0"),
    "other index": choice(index=1),
    "no index": {"choices": [{"delta": {"content": "x"}}]},
    "odd reason": choice(finish_reason=5),
    "reason": choice(finish_reason="length"),
    "message": choice(message={"content": "ax"}),
    "more in the delta": choice(delta={"content": "x", "reasoning": "hm"}),
    "unknown in the delta": choice(delta={"content": "x", "novel": 1}),
    "two choices": {"choices": [{"index": at, "delta": {"content": "x"}} for at in (0, 1)]},
    "half a character": says("\ud83d"),
    "named": ("novel", says("x")),
}
RESPONSES_ODD: dict[str, Frame] = {
    "named error": ("error", delta("x", sequence_number=3)),
    "error beside": {**delta("x", sequence_number=3), "error": BOOM},
    "odd index": delta("x", sequence_number=3) | {"output_index": False},
    "index as text": delta("x", sequence_number=3) | {"output_index": "0"},
    "no index": delta("x", output=None, content=None, sequence_number=3),
    "other part": delta("x", content=1, sequence_number=3),
    "sent twice": delta("b", sequence_number=2),
    "number as text": delta("b", sequence_number="2"),
    "no number": delta("x"),
    "refusal at the same place": ev("refusal.delta", output_index=0, content_index=0, delta="No."),
    "reasoning at the same place": ev("reasoning_text.delta", output_index=0, content_index=0, delta="Hm."),
    "a call at the same place": ev("output_item.added", output_index=0, item=function("f", "")),
    "a message at the same place": ev("output_item.added", output_index=0, item=message("", id="other")),
    "closed": ev("output_item.done", output_index=0, item=message("ab")),
    "half a character": delta("\ud83d", sequence_number=3),
}
MESSAGES_ODD: dict[str, Frame] = {
    "named error": ("error", adds(0, "text", text="x")),
    "error beside": {**adds(0, "text", text="x"), "error": BOOM},
    "odd index": adds(0, "text", text="x") | {"index": False},
    "index as text": adds(0, "text", text="x") | {"index": "0"},
    "no index": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}},
    "more in the delta": adds(0, "text", text="x", signature="s"),
    "another block at the same place": opens(0, "tool_use", id="t", name="f", input={}),
    "another text at the same place": opens(0, "text", text="x"),
    "half a character": adds(0, "text", text="\ud83d"),
    "named": ("ping", adds(0, "text", text="x")),
}


def around(backend: str, odd: Frame) -> bytes:
    """A legal stream with plain text before and after the odd frame."""
    if backend == CHAT:
        return sse(says("a"), says("b"), odd, says("c"), chat({}, "stop"), DONE)
    if backend == MESSAGES:
        text = [adds(0, "text", text=text) for text in "abc"]
        return sse(started(), opens(0, "text", text=""), *text[:2], odd, text[2], stops("end_turn"), STOP)
    before = [delta(text, sequence_number=at) for at, text in enumerate("ab", start=1)]
    after = [delta(text, sequence_number=at) for at, text in enumerate("cd", start=8)]
    return sse(CREATED, *before, odd, *after, ended())


ROWS = [
    pytest.param(backend, odd, id=name)
    for backend, word, odds in (
        (CHAT, "chat", CHAT_ODD),
        (RESPONSES, "responses", RESPONSES_ODD),
        (MESSAGES, "messages", MESSAGES_ODD),
    )
    for name, odd in ((f"{word}, {name}", odd) for name, odd in odds.items())
]


@pytest.mark.parametrize(("backend", "odd"), ROWS)
@pytest.mark.parametrize("think", [False, True])
def test_what_looks_like_plain_text(backend: str, odd: Frame, think: bool) -> None:
    run(backend, around(backend, odd), split_think_tags=think)


@pytest.mark.parametrize("text", ["", "x"])
def test_an_error_in_a_choice_with_text(text: str) -> None:
    """An error object in the choice fails the stream, whatever the reason says; here it says nothing."""
    odd: JsonObject = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None, "error": BOOM}]}
    assert failed(run(CHAT, sse(says("a"), odd, says("b", "stop"), DONE))).error.message == "boom"
