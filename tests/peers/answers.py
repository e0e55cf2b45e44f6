"""What a server says without streaming, read plainly: the yardstick for what streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from rx_sampler import SamplerConfig, SamplingRequest, SamplingResponse
from rx_sampler.backends.base import get_backend
from rx_sampler.outgoing import endpoint_url

JsonObject = dict[str, Any]
BACKENDS = ("chat_completions", "responses", "messages")


@dataclass(frozen=True)
class Answer:
    """The parts that all three formats have, in their common names."""

    text: str
    reasoning: str
    calls: tuple[tuple[str, JsonObject | None], ...]
    stop_reason: str | None
    stop_sequence: str | None
    input_tokens: int
    output_tokens: int

    @classmethod
    def of(cls, response: SamplingResponse) -> Answer:
        assert response.usage is not None
        return cls(
            text=response.text,
            reasoning=response.reasoning,
            calls=tuple((call.name, call.arguments_json) for call in response.tool_calls),
            stop_reason=response.stop_reason,
            stop_sequence=response.stop_sequence,
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
        )


def _chat_completion(document: JsonObject) -> Answer:
    choice: JsonObject = document["choices"][0]
    message: JsonObject = choice["message"]
    calls: list[JsonObject] = message.get("tool_calls") or []
    return Answer(
        text=message["content"] or "",
        reasoning=message.get("reasoning_content") or "",
        calls=tuple((call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls),
        stop_reason=choice["finish_reason"],
        stop_sequence=None,
        input_tokens=document["usage"]["prompt_tokens"],
        output_tokens=document["usage"]["completion_tokens"],
    )


def _response(document: JsonObject) -> Answer:
    def parts(of_type: str) -> str:
        items: list[JsonObject] = [item for item in document["output"] if item["type"] == of_type]
        return "".join(part["text"] for item in items for part in item["content"])

    calls = [item for item in document["output"] if item["type"] == "function_call"]
    assert document["status"] == "completed"
    return Answer(
        text=parts("message"),
        reasoning=parts("reasoning"),
        calls=tuple((call["name"], json.loads(call["arguments"])) for call in calls),
        stop_reason="tool_calls" if calls else "stop",
        stop_sequence=None,
        input_tokens=document["usage"]["input_tokens"],
        output_tokens=document["usage"]["output_tokens"],
    )


def _message(document: JsonObject) -> Answer:
    blocks: list[JsonObject] = document["content"]
    usage: JsonObject = document["usage"]
    reasons = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
    return Answer(
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        reasoning="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        calls=tuple((block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"),
        stop_reason=reasons[document["stop_reason"]],
        stop_sequence=document["stop_sequence"] or None,
        input_tokens=usage["input_tokens"] + usage.get("cache_read_input_tokens", 0),
        output_tokens=usage["output_tokens"],
    )


_READERS: dict[str, Callable[[JsonObject], Answer]] = {
    "chat_completions": _chat_completion,
    "responses": _response,
    "messages": _message,
}


async def unstreamed(request: SamplingRequest, config: SamplerConfig) -> Answer:
    """The answer to the body that a stream of `request` would send, but for `stream`."""
    backend = get_backend(config.backend)
    body = backend.encode(request, config)
    body["stream"] = False
    body.pop("stream_options", None)
    url = endpoint_url(config.base_url, str(backend.path), {})
    async with aiohttp.ClientSession() as http, http.post(url, json=body) as response:
        assert response.status == 200, await response.text()
        return _READERS[config.backend](await response.json())
