"""Gemini streams, written after the published format: one JSON object an event, lines that end in CRLF."""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = [
    "BLOCKED",
    "BROKEN",
    "CALLS",
    "CODE",
    "CUT",
    "GROUNDED",
    "PAINTED",
    "SAFETY",
    "THOUGHTS",
    "TWO",
    "chunk",
    "sse",
]

Json = dict[str, Any]


def sse(*documents: Json) -> bytes:
    return b"".join(
        b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\r\n\r\n" for document in documents
    )


def chunk(*parts: Json, finish: str | None = None, output: int = 0, thoughts: int = 0, **candidate: Any) -> Json:
    """What a stream brings at a time; counts are those of the whole answer so far."""
    usage: Json = {"promptTokenCount": 9, "totalTokenCount": 9 + output + thoughts}
    if output:
        usage["candidatesTokenCount"] = output
    if thoughts:
        usage["thoughtsTokenCount"] = thoughts
    answer: Json = {"content": {"parts": list(parts), "role": "model"}, "index": 0, **candidate}
    if finish is not None:
        answer["finishReason"] = finish
    return {"candidates": [answer], "usageMetadata": usage, "modelVersion": "gemini-3-toy", "responseId": "resp-1"}


THOUGHTS: Final = sse(
    chunk({"text": "**Weighing", "thought": True}, thoughts=5),
    chunk({"text": " birds**", "thought": True}, thoughts=12),
    chunk({"text": "An owl—"}, output=3, thoughts=12),
    chunk({"text": "a bird 🦉"}, output=7, thoughts=12),
    chunk({"text": "", "thoughtSignature": "c2lnLTE="}, finish="STOP", output=7, thoughts=12),
)

CALLS: Final = sse(
    chunk({"text": "Let me look."}, output=4),
    chunk(
        {
            "functionCall": {"id": "fc-1", "name": "look_up", "args": {"name": "Eule"}},
            "thoughtSignature": "c2lnLTI=",
        },
        {"functionCall": {"name": "now"}},
        output=20,
    ),
    chunk({"text": ""}, finish="STOP", output=20),
)

GROUNDED: Final = sse(
    chunk({"text": "Owls hunt at night. "}, output=5),
    chunk(
        {"text": "They hear well."},
        finish="STOP",
        output=9,
        groundingMetadata={
            "webSearchQueries": ["owls"],
            "groundingChunks": [
                {"web": {"uri": "https://example.org/owl", "title": "Owls"}},
                {"web": {"uri": "https://example.org/ear", "title": "Ears"}},
            ],
            "groundingSupports": [
                {"segment": {"endIndex": 19, "text": "Owls hunt at night."}, "groundingChunkIndices": [0]},
                {
                    "segment": {"startIndex": 20, "endIndex": 35, "text": "They hear well."},
                    "groundingChunkIndices": [0, 1],
                },
            ],
        },
        citationMetadata={"citationSources": [{"startIndex": 0, "endIndex": 19, "uri": "https://example.org/book"}]},
    ),
)

CODE: Final = sse(
    chunk({"executableCode": {"language": "PYTHON", "code": "print(6 * 7)"}}, output=8),
    chunk({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "42\n"}}, output=12),
    chunk({"text": "It is 42."}, finish="STOP", output=16),
)

PAINTED: Final = sse(
    chunk({"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}, "thoughtSignature": "c2lnLTM="}, output=9),
    chunk({"text": "An owl."}, finish="STOP", output=12),
)

TWO: Final = sse(
    chunk({"text": "Uhu"}, output=1),
    chunk({"text": "Kauz"}, output=2, index=1),
    chunk({"text": "!"}, finish="STOP", output=3),
    chunk({"text": "?"}, finish="MAX_TOKENS", output=4, index=1),
)

CUT: Final = sse(chunk({"text": "An owl is"}, output=3), chunk({"text": " a"}, finish="MAX_TOKENS", output=4))

SAFETY: Final = sse(
    chunk({"text": "First, take"}, output=3),
    {
        "candidates": [
            {
                "finishReason": "SAFETY",
                "index": 0,
                "safetyRatings": [
                    {"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": True}
                ],
            }
        ],
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9},
        "modelVersion": "gemini-3-toy",
        "responseId": "resp-1",
    },
)

BLOCKED: Final = sse(
    {
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "Not this."},
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9},
        "modelVersion": "gemini-3-toy",
        "responseId": "resp-1",
    }
)

BROKEN: Final = sse(
    chunk({"text": "An ow"}, output=2),
    {"error": {"code": 503, "message": "The model is overloaded. Please try again later.", "status": "UNAVAILABLE"}},
)
