"""What is asked and what is answered: requests, responses and the items that both are made of.

Everything here is a frozen pydantic model: validated at construction (from keyword arguments, dicts or JSON),
compared by value, written with `model_dump_json()` and read back with `model_validate_json()`. The same items stand
in a response and in the next request, so that a turn can be sent back exactly as it came:
`request.then(response, next_user_message)`.
"""

from __future__ import annotations

from .items import (
    AssistantItem,
    BackendToolCallItem,
    ImagePart,
    Item,
    OpaqueItem,
    ReasoningEffort,
    ReasoningItem,
    RefusalItem,
    ResponseItem,
    SystemItem,
    TextItem,
    TextPart,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from .model import JsonObject, json_object
from .request import ReasoningSummary, SamplingRequest
from .response import SamplingResponse, StopReason, Usage
from .structured import output_schema
from .tools import AnyHostedTool, FunctionChoice, HostedTool, ToolSpec, WebSearch, XSearch

__all__ = [
    "AnyHostedTool",
    "AssistantItem",
    "BackendToolCallItem",
    "FunctionChoice",
    "HostedTool",
    "ImagePart",
    "Item",
    "JsonObject",
    "OpaqueItem",
    "ReasoningEffort",
    "ReasoningItem",
    "ReasoningSummary",
    "RefusalItem",
    "ResponseItem",
    "SamplingRequest",
    "SamplingResponse",
    "StopReason",
    "SystemItem",
    "TextItem",
    "TextPart",
    "ToolCall",
    "ToolResultItem",
    "ToolSpec",
    "Usage",
    "UserItem",
    "WebSearch",
    "XSearch",
    "json_object",
    "output_schema",
]
