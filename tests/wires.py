"""The same small answers in all three wire formats, frame by frame, after the providers' published examples."""

from __future__ import annotations

import json
from typing import Any, Final

BACKENDS: Final = ("chat_completions", "responses", "messages")
PATHS: Final = {"chat_completions": "/chat/completions", "responses": "/responses", "messages": "/messages"}
MODEL: Final = "toy-1"
IDS: Final = {"chat_completions": "chatcmpl-1", "responses": "resp_1", "messages": "msg_1"}
INPUT_TOKENS: Final = 5
OUTPUT_TOKENS: Final = 7


def data(document: Any) -> bytes:
    """A frame without a name."""
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


def named(document: dict[str, Any]) -> bytes:
    """A frame named after the type of its data, as responses and messages send them."""
    return b"event: " + document["type"].encode() + b"\n" + data(document)


def chat(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    """A chat completion chunk with one choice."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return data(
        {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}
    )


DONE: Final = b"data: [DONE]\n\n"

CHAT_USAGE: Final = data(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [],
        "usage": {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": 12},
    }
)


def response(status: str, output: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A responses API response object."""
    return {"id": "resp_1", "object": "response", "model": MODEL, "status": status, "output": output, **fields}


def opening(backend: str) -> list[bytes]:
    """What names the answer, and opens a block of text where the wire has such blocks."""
    if backend == "chat_completions":
        return [chat({"role": "assistant", "content": ""})]
    if backend == "responses":
        item: dict[str, Any] = {
            "id": "item_1",
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
        at = {"item_id": "item_1", "output_index": 0, "content_index": 0}
        return [
            named({"type": "response.created", "response": response("in_progress", [])}),
            named({"type": "response.output_item.added", "output_index": 0, "item": item}),
            named({"type": "response.content_part.added", **at, "part": part}),
        ]
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1},
    }
    return [
        named({"type": "message_start", "message": message}),
        named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    ]


def text(backend: str, piece: str) -> bytes:
    """One piece of text."""
    if backend == "chat_completions":
        return chat({"content": piece})
    if backend == "responses":
        at = {"item_id": "item_1", "output_index": 0, "content_index": 0}
        return named({"type": "response.output_text.delta", **at, "delta": piece})
    return named({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})


def closing(backend: str, whole: str) -> list[bytes]:
    """The end of an answer whose text was `whole`; the last frame is the announced end of the protocol."""
    if backend == "chat_completions":
        return [chat({}, "stop"), CHAT_USAGE, DONE]
    if backend == "responses":
        part: dict[str, Any] = {"type": "output_text", "text": whole, "annotations": []}
        item: dict[str, Any] = {
            "id": "item_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        at = {"item_id": "item_1", "output_index": 0, "content_index": 0}
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS, "total_tokens": 12}
        return [
            named({"type": "response.output_text.done", **at, "text": whole}),
            named({"type": "response.content_part.done", **at, "part": part}),
            named({"type": "response.output_item.done", "output_index": 0, "item": item}),
            named(
                {
                    "type": "response.completed",
                    "response": response("completed", [item], usage=usage),
                }
            ),
        ]
    return [
        named({"type": "content_block_stop", "index": 0}),
        named(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": OUTPUT_TOKENS},
            }
        ),
        named({"type": "message_stop"}),
    ]


def answer(backend: str, *pieces: str) -> list[bytes]:
    """A whole answer, frame by frame."""
    return [*opening(backend), *(text(backend, piece) for piece in pieces), *closing(backend, "".join(pieces))]
