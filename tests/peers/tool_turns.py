"""What the tests of conversations with tools share: the tools, and what llama.cpp makes of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import aiohttp

from rx_sampler import RetryPolicy, SamplerConfig, SamplingRequest, ToolSpec
from rx_sampler.conversation import ImagePart, ToolCall, ToolResultItem
from rx_sampler.local import LocalServer

from .streams import ONCE

WEATHER: Final = ToolSpec(
    name="weather",
    description="The weather of a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"enum": ["Paris"]}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
)
FORECAST: Final = ToolSpec(
    name="forecast", parameters={"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
)
CLOCK: Final = ToolSpec(name="clock", description="The time of day.")
PNG: Final = (  # one transparent pixel
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def asking(*said: str | ImagePart, tools: Sequence[ToolSpec] = (FORECAST, CLOCK), **fields: Any) -> SamplingRequest:
    """A request that is answered the same each time."""
    asked = SamplingRequest.user(*said, system="Be brief.").with_tools(*tools)
    return asked.replaced(temperature=0.0, **fields)


def result(call: ToolCall, content: str, **fields: Any) -> ToolResultItem:
    return ToolResultItem(tool_call_id=call.id, content=content, **fields)


def llama_config(server: LocalServer, backend: str, *, retry: RetryPolicy = ONCE) -> SamplerConfig:
    return SamplerConfig(backend=backend, base_url=server.base_url, model=server.model, retry=retry)


async def prompt_of(server: LocalServer) -> str:
    """What the model was given last, from the system's words on, as llama.cpp put it together.

    Text of tokens: behind one of a kind that is more than text it reads a space, which is taken out here.
    """
    async with aiohttp.ClientSession() as http, http.get(server.base_url.removesuffix("/v1") + "/slots") as response:
        (slot,) = await response.json()
    prompt: str = slot["prompt"].replace("> ", ">")
    return prompt[prompt.index("[system]") :]


def called(name: str, arguments: str) -> str:
    """A call as `TURNS_TEMPLATE` writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
