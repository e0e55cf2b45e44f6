"""Anthropic messages, and compatible servers."""

from __future__ import annotations

from typing import Final, cast

from rx_sampler.backends.base import Backend
from rx_sampler.backends.lenient import as_list, as_object
from rx_sampler.conversation import JsonObject

from .chunks import MessagesChunk
from .request import HEADERS, PATH, encode
from .transform import MessagesTransform

__all__ = ["BACKEND"]

_EVENTS: Final = frozenset(
    {
        "message",
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "error",
    }
)


def _unwrap(document: JsonObject) -> list[MessagesChunk]:
    """A whole message as the stream that would have brought it."""
    blocks = [block for entry in as_list(document.get("content")) if (block := as_object(entry))]
    chunks: list[JsonObject] = [{"type": "message_start", "message": {**document, "content": []}}]
    for index, block in enumerate(blocks):
        chunks.append({"type": "content_block_start", "index": index, "content_block": block})
        chunks.append({"type": "content_block_stop", "index": index})
    stop = {name: document.get(name) for name in ("stop_reason", "stop_sequence", "stop_details")}
    chunks.append({"type": "message_delta", "delta": stop, "usage": document.get("usage")})
    if blocks or stop["stop_reason"]:
        chunks.append({"type": "message_stop"})
    return cast("list[MessagesChunk]", chunks)


BACKEND: Backend[MessagesChunk] = Backend(
    name="messages",
    path=PATH,
    chunk=MessagesChunk,
    encode=encode,
    transform=MessagesTransform,
    headers=HEADERS,
    auth_scheme="x_api_key",
    is_own_event=_EVENTS.__contains__,
    unwrap=_unwrap,
)
