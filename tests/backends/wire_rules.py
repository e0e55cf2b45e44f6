"""What the three APIs demand of a request beyond the shapes that their clients publish, as checks of a body."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from anthropic.types import WebSearchToolResultBlockParam
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from rx_sampler.backends.chat_completions import request as chat_completions
from rx_sampler.backends.messages import request as messages
from rx_sampler.backends.responses import request as responses
from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import JsonObject, SamplingRequest

from .published import as_published
from .streams import CHAT, MESSAGES, RESPONSES

__all__ = ["CONFIGS", "ENCODERS", "check_body", "check_rules", "encoded", "marks", "turns_of"]

Encode = Callable[[SamplingRequest, SamplerConfig], JsonObject]

ENCODERS: Final[dict[str, Encode]] = {
    CHAT: chat_completions.encode,
    RESPONSES: responses.encode,
    MESSAGES: messages.encode,
}
CONFIGS: Final = {
    CHAT: SamplerConfig(base_url="https://api.openai.com/v1", model="m"),
    RESPONSES: SamplerConfig(base_url="https://api.openai.com/v1", model="m", backend=RESPONSES),
    MESSAGES: SamplerConfig(base_url="https://api.anthropic.com/v1", model="m", backend=MESSAGES),
}
"""The vendors' own servers, whose types the bodies are held against."""

_PUBLISHED: Final[dict[str, Any]] = {
    CHAT: CompletionCreateParamsStreaming,
    RESPONSES: ResponseCreateParamsStreaming,
    MESSAGES: MessageCreateParamsStreaming,
}
_TURNS: Final = {CHAT: "messages", RESPONSES: "input", MESSAGES: "messages"}
_TOOL_IDS: Final = {CHAT: r"(?s).{1,40}", RESPONSES: r"(?s).{1,64}", MESSAGES: r"[A-Za-z0-9_-]{1,64}"}
_MOST_MARKS: Final = 3  # the API takes four; the fourth is left to the user's `extra_body`


def encoded(backend: str, request: SamplingRequest) -> JsonObject:
    """The body that goes to the vendor of the wire format."""
    return ENCODERS[backend](request, CONFIGS[backend])


def turns_of(backend: str, body: JsonObject) -> list[JsonObject]:
    return body[_TURNS[backend]]


def check_body(backend: str, body: JsonObject) -> None:
    """Fail unless the body is of the vendor's type, with no other key, and keeps the rules of the wire."""
    assert as_published(_PUBLISHED[backend], body) == body
    check_rules(backend, body)


def check_rules(backend: str, body: JsonObject, *, tool_ids: str | None = None) -> None:
    """Fail unless the body keeps the rules of the wire; `tool_ids` is the pattern of the ids that a server takes."""
    check = {CHAT: _check_chat, RESPONSES: _check_responses, MESSAGES: _check_messages}[backend]
    ids = check(body)
    assert len(set(ids)) == len(ids), "two calls under one id"
    assert [call_id for call_id in ids if not re.fullmatch(tool_ids or _TOOL_IDS[backend], call_id)] == []


def marks(value: Any) -> int:
    """How many blocks are marked for the cache."""
    if isinstance(value, dict):
        found: JsonObject = value  # pyright: ignore[reportUnknownVariableType]
        return sum(1 if key == "cache_control" else marks(inner) for key, inner in found.items())
    if isinstance(value, list):
        entries: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return sum(map(marks, entries))
    return 0


def _is_object(arguments: str) -> bool:
    return isinstance(json.loads(arguments), dict)


# -- chat completions


def _check_chat(body: JsonObject) -> list[str]:
    turns: list[JsonObject] = body["messages"]
    every_id: list[str] = []
    for at, message in enumerate(turns):
        assert message["role"] in ("system", "user", "assistant", "tool")
        calls: list[JsonObject] = message.get("tool_calls", [])
        if message["role"] == "assistant":
            assert message["content"] or message.get("refusal") or calls, "an assistant message that says nothing"
        ids = [call["id"] for call in calls]
        every_id += ids
        behind = turns[at + 1 : at + 1 + len(ids)]
        assert all(answer["role"] == "tool" for answer in behind), "a call waits for its result"
        assert sorted(answer["tool_call_id"] for answer in behind) == sorted(ids)
        for call in calls:
            if call["type"] == "function":
                assert _is_object(call["function"]["arguments"])
    return every_id


# -- responses


def _check_responses(body: JsonObject) -> list[str]:
    called: dict[str, str] = {}
    answered: set[str] = set()
    for item in body["input"]:
        match item["type"]:
            case "message":
                assert item["role"] in ("system", "user", "assistant")
                assert item["role"] == "assistant" or answered == called.keys(), "a call waits for its output"
            case "function_call" | "custom_tool_call":
                assert item["call_id"] not in called, "two calls under one id"
                called[item["call_id"]] = item["type"]
                assert item["type"] == "custom_tool_call" or _is_object(item["arguments"])
            case "function_call_output" | "custom_tool_call_output" if item["call_id"] in called:
                assert item["call_id"] not in answered
                assert item["type"] == called[item["call_id"]] + "_output"
                answered.add(item["call_id"])
            case _:
                pass
    assert answered == called.keys(), "a call without an output"
    return list(called)


# -- messages


def _check_messages(body: JsonObject) -> list[str]:
    assert body["max_tokens"] > 0
    for block in body.get("system", []):
        assert block["text"].strip()
    every_id: list[str] = []
    for at, message in enumerate(body["messages"]):
        blocks: list[JsonObject] = message["content"]
        assert message["role"] in ("user", "assistant")
        assert blocks
        for block in _all_blocks(blocks):
            assert block.get("type") != "text" or block["text"].strip(), "a text block without text"
        kinds = [block["type"] for block in blocks]
        if message["role"] == "user":
            assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result"), "results come first"
        else:
            assert not {"tool_result", "image"} & set(kinds)
        ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        every_id += ids
        if ids:
            behind: JsonObject = body["messages"][at + 1]
            assert behind["role"] == "user"
            results = [block["tool_use_id"] for block in behind["content"] if block["type"] == "tool_result"]
            assert set(ids) <= set(results), "a call without a result right behind it"
            assert all(results.count(call_id) == 1 for call_id in ids)
        for block in blocks:
            assert block["type"] not in ("thinking", "redacted_thinking") or "cache_control" not in block
            assert block["type"] != "tool_use" or isinstance(block["input"], dict)
            # The type of a whole body reads this block as part of an answer, which may have any keys.
            if block["type"] == "web_search_tool_result":
                assert as_published(WebSearchToolResultBlockParam, block) == block
    assert marks(body) <= _MOST_MARKS
    return every_id


def _all_blocks(blocks: Iterable[JsonObject]) -> Iterator[JsonObject]:
    for block in blocks:
        yield block
        inner = block.get("content")
        if isinstance(inner, list):
            yield from _all_blocks(inner)  # pyright: ignore[reportUnknownArgumentType]
