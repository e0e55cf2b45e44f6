"""What a responses stream is made of.

Source: OpenAI's "Streaming events" (https://platform.openai.com/docs/api-reference/responses-streaming). One flat
shape holds the fields of all event types; everything is optional and nullable, items are kept as they come.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from rx_sampler.conversation import JsonObject

__all__ = ["ResponsesChunk"]


class ResponsesChunk(TypedDict, total=False):
    """One JSON object of the stream."""

    type: str | None
    sequence_number: int | None
    output_index: int | None
    content_index: int | None
    summary_index: int | None
    item_id: str | None
    call_id: str | None
    delta: Any  # a string in every event that is read
    text: str | None
    refusal: str | None
    arguments: Any
    input: str | None
    name: str | None
    part: JsonObject | None
    item: JsonObject | None
    annotation: JsonObject | None
    response: JsonObject | None
    doom_loop_check: Any
    error: Any
