"""The conversation in a request's body, read plainly: the yardstick for what the three formats carry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

__all__ = ["Said", "conversation_of"]

JsonObject = dict[str, Any]
Said = tuple[Any, ...]
"""Who, then what: texts and URLs of images in order, for a call id, name and arguments, for a result the id first."""


def conversation_of(backend: str, body: JsonObject) -> list[Said]:
    """What is said in a body, in order; a call and a text are one entry each, whatever message they stand in."""
    match backend:
        case "chat_completions":
            return list(_chat(body["messages"]))
        case "responses":
            return list(_responses(body["input"]))
        case _:
            return [("system", *_parts(body["system"])), *_messages(body["messages"])]


def _chat(messages: list[JsonObject]) -> Iterator[Said]:
    for message in messages:
        parts = _parts(message["content"])
        match message["role"]:
            case "tool":
                yield "result", message["tool_call_id"], *parts
            case "assistant":
                if parts:
                    yield "assistant", *parts
                for call in message.get("tool_calls", []):
                    yield "call", call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])
            case role:
                yield role, *parts


def _responses(items: list[JsonObject]) -> Iterator[Said]:
    for item in items:
        match item["type"]:
            case "function_call_output":
                yield "result", item["call_id"], *_parts(item["output"])
            case "function_call":
                yield "call", item["call_id"], item["name"], json.loads(item["arguments"])
            case _:
                yield item["role"], *_parts(item["content"])


def _messages(messages: list[JsonObject]) -> Iterator[Said]:
    for message in messages:
        others: list[JsonObject] = []
        for block in message["content"]:
            match block["type"]:
                case "tool_result":
                    yield "result", block["tool_use_id"], *_parts(block["content"])
                case "tool_use":
                    yield "call", block["id"], block["name"], block["input"]
                case _ if message["role"] == "assistant":
                    yield "assistant", *_parts([block])
                case _:
                    others.append(block)
        if others:
            yield message["role"], *_parts(others)


def _parts(content: str | list[JsonObject] | None) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [_part(part) for part in content or []]


def _part(part: JsonObject) -> str:
    match part:
        case {"text": str(text)}:
            return text
        case {"image_url": {"url": str(url)}} | {"image_url": str(url)}:
            return url
        case {"source": {"media_type": media_type, "data": data}}:
            return f"data:{media_type};base64,{data}"
        case _:
            raise AssertionError(f"neither text nor an image: {part}")
