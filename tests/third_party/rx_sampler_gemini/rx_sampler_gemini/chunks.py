"""What a Gemini stream is made of.

Source: Google's `GenerateContentResponse` (https://ai.google.dev/api/generate-content). Everything is optional and
nullable; parts keep the fields that are not named here, since parts of kinds unknown here must be sent back.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict
from typing_extensions import TypedDict

__all__ = ["Candidate", "Content", "FunctionCall", "GeminiChunk", "Json", "Part", "PromptFeedback"]

Json = dict[str, Any]


class FunctionCall(TypedDict, total=False):
    """A call of the client's tool; it comes whole."""

    id: str | None
    name: str | None
    args: Json | None


class Part(TypedDict, total=False):
    """A piece of content: one of its kinds, and what holds for any of them."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]  # pydantic's documented way

    text: str | None
    thought: Any  # true: the text is a thought
    thoughtSignature: str | None
    functionCall: FunctionCall | None
    executableCode: Json | None
    codeExecutionResult: Json | None


class Content(TypedDict, total=False):
    """What a candidate gains."""

    parts: list[Part] | None


class Candidate(TypedDict, total=False):
    """One of the `candidateCount` answers."""

    index: int | None
    content: Content | None
    finishReason: str | None
    finishMessage: str | None
    groundingMetadata: Json | None
    citationMetadata: Json | None
    safetyRatings: Any


class PromptFeedback(TypedDict, total=False):
    """Why a prompt was not answered at all."""

    blockReason: str | None
    blockReasonMessage: str | None


class GeminiChunk(TypedDict, total=False):
    """One JSON object of the stream."""

    candidates: list[Candidate] | None
    promptFeedback: PromptFeedback | None
    usageMetadata: Json | None
    modelVersion: str | None
    responseId: str | None
    type: Any  # "error", where a gateway words its errors for every wire format
    error: Any
