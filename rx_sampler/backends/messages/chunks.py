"""What a messages stream is made of.

Source: Anthropic's "Streaming messages" (https://docs.anthropic.com/en/docs/build-with-claude/streaming). Everything is
optional and nullable; blocks are kept as they come, since most of their types must be sent back unread.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict
from typing_extensions import TypedDict

from rx_sampler.conversation import JsonObject

__all__ = ["MessagesChunk", "MessagesDelta"]


class MessagesDelta(TypedDict, total=False):
    """What a block or the message gains; fields of unknown delta types stay, for their block must be sent back."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]  # pydantic's documented way

    type: str | None
    text: str | None
    thinking: str | None
    signature: str | None
    partial_json: str | None
    citation: JsonObject | None
    content: Any
    stop_reason: str | None
    stop_sequence: str | None
    stop_details: JsonObject | None


class MessagesChunk(TypedDict, total=False):
    """One JSON object of the stream."""

    type: str | None
    index: int | None
    delta: MessagesDelta | None
    content_block: JsonObject | None
    message: JsonObject | None
    usage: JsonObject | None
    error: Any
