"""What a chat completion stream is made of.

Source: OpenAI's "chat.completion.chunk" object (https://platform.openai.com/docs/api-reference/chat-streaming), and
the fields that compatible servers put beside it. Everything is optional and nullable.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from rx_sampler.conversation import JsonObject

__all__ = ["ChatChunk", "Choice", "Delta", "FunctionDelta", "ToolCallChunk"]


class FunctionDelta(TypedDict, total=False):
    """Name and arguments of a call, or a piece of them."""

    name: str | None
    arguments: Any  # a string; a JSON object from some servers


class ToolCallChunk(TypedDict, total=False):
    """A piece of a tool call; which call it belongs to is `tool_slots.py`'s matter."""

    index: int | None
    id: str | None
    function: FunctionDelta | None
    extra_content: Any  # Gemini: the signature of the thought behind the call


class Delta(TypedDict, total=False):
    """What a choice's message gains."""

    content: str | list[Any] | None  # a list of typed blocks from Mistral
    reasoning_content: str | None  # DeepSeek, vLLM, Qwen, llama.cpp
    reasoning: str | None  # OpenRouter, newer vLLM
    reasoning_details: list[Any] | None  # OpenRouter
    refusal: str | None
    tool_calls: list[ToolCallChunk] | None
    function_call: FunctionDelta | None  # before tool calls
    annotations: list[Any] | None
    images: list[Any] | None


class Choice(TypedDict, total=False):
    """One of the `n` answers."""

    index: int | None
    delta: Delta | None
    message: Delta | None  # a whole message beside or instead of the delta
    finish_reason: str | None
    error: Any


class ChatChunk(TypedDict, total=False):
    """One JSON object of the stream."""

    type: Any  # "error" from gateways that speak one dialect of errors in front of every format
    id: str | None
    model: str | None
    choices: list[Choice] | None
    usage: JsonObject | None
    error: Any
    base_resp: Any  # MiniMax's envelope
    x_groq: JsonObject | None
    citations: Any
    search_results: Any
    service_tier: Any
    system_fingerprint: Any
    provider: Any
    timings: Any
