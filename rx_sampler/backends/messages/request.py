"""`SamplingRequest` to the body of a streamed `POST /messages` (Anthropic and compatible servers).

Decisions where the published API leaves a choice:

* `max_tokens` is demanded by the API. Where neither request nor configuration says, it is 8192: every current model
  takes it, while a larger value is refused by some (the API checks it against the model's own limit).
* System items, wherever they stand, become blocks of the top-level `system`. Consecutive tool results share one user
  message, and all assistant items between two user messages share one assistant message, as the API itself would
  combine them.
* Reasoning goes back as a thinking block with its signature, word for word, or as `redacted_thinking`. Without a
  signature the API refuses it, so such reasoning is left out.
* Text blocks must hold more than white space: empty ones are left out, in whatever item they stand.
* An effort from low to max is sent as `output_config.effort` with adaptive, summarised thinking; `none`, `minimal`
  and no effort send neither.
* `temperature` and `top_p` are sent only where somebody set them: newer models refuse both.
* `tool_choice: none` really forbids tools. A choice without tools is not sent: the API refuses it.
* A call that a server of this wire ran itself is echoed block by block; one from another wire becomes a line of text.
  Opaque items are echoed as blocks: nothing here tells where they came from.
* Tool ids of other providers are rewritten to the alphabet the API takes, distinct ids to distinct ids.
* Of `metadata` the API knows `user_id` only; the rest, and `prompt_cache_key`, have no form here and are not sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, assert_never

from rx_sampler.backends.encoding import (
    finished,
    function_tools,
    has_tools,
    hosted_tools,
    invalid,
    is_messages_wire,
    json_object,
    parse_data_uri,
    present,
    refuse_several_choices,
    settings,
    summary_line,
)
from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import (
    AssistantItem,
    BackendToolCallItem,
    FunctionChoice,
    ImagePart,
    JsonObject,
    OpaqueItem,
    ReasoningEffort,
    ReasoningItem,
    RefusalItem,
    SamplingRequest,
    SystemItem,
    TextItem,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)

__all__ = ["DEFAULT_MAX_TOKENS", "HEADERS", "PATH", "encode"]

PATH = "/messages"
HEADERS: Mapping[str, str] = MappingProxyType({"anthropic-version": "2023-06-01"})
DEFAULT_MAX_TOKENS = 8192

_FOREIGN_ID_CHARS = re.compile(r"[^A-Za-z0-9_-]")
_EFFORTS: frozenset[ReasoningEffort] = frozenset({"low", "medium", "high", "xhigh", "max"})
_TOOL_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "required": "any"}


def encode(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    """The JSON body of a streaming request, keys in a fixed order. Pure.

    Raises `SamplingError` (`invalid_request`) for what cannot be sent: no model, no message, a user item without
    content, a broken image, `n` > 1.
    """
    refuse_several_choices(request, "messages")
    resolved = settings(request, config)
    history = _History(request)
    effort = resolved.reasoning_effort if resolved.reasoning_effort in _EFFORTS else None
    output_config = present(effort=effort, format=_output_format(request))
    body = present(
        model=resolved.model,
        max_tokens=resolved.max_output_tokens or DEFAULT_MAX_TOKENS,
        system=history.system or None,
        messages=history.messages,
        tools=[*map(_tool, function_tools(request)), *hosted_tools(request)] or None,
        tool_choice=_tool_choice(request),
        temperature=resolved.temperature,
        top_p=resolved.top_p,
        stop_sequences=list(request.stop) or None,
        thinking={"type": "adaptive", "display": "summarized"} if effort else None,
        output_config=output_config or None,
        metadata={"user_id": request.metadata["user_id"]} if "user_id" in request.metadata else None,
        stream=True,
    )
    return finished(body, request, turns="messages")


class _ToolIds:
    """Ids as the API takes them (`[A-Za-z0-9_-]+`): other characters become `_`, and no two ids become one."""

    def __init__(self) -> None:
        self._wire_ids: dict[str, str] = {}
        self._taken: set[str] = set()

    def __getitem__(self, call_id: str) -> str:
        if call_id not in self._wire_ids:
            plain = wire_id = _FOREIGN_ID_CHARS.sub("_", call_id) or "_"
            number = len(self._taken)
            while wire_id in self._taken:
                wire_id = f"{plain}_{number}"
                number += 1
            self._wire_ids[call_id] = wire_id
            self._taken.add(wire_id)
        return self._wire_ids[call_id]


class _History:
    """The items of a request as `system` blocks and `messages`."""

    def __init__(self, request: SamplingRequest) -> None:
        self.system: list[JsonObject] = []
        self.messages: list[JsonObject] = []
        self._open: Literal["assistant", "tool_results"] | None = None  # what the last message still takes
        self._ids = _ToolIds()
        for index, item in enumerate(request.items):
            match item:
                case SystemItem():
                    self.system += _text(item.content)
                case UserItem():
                    self.messages.append({"role": "user", "content": _user_blocks(item, index)})
                    self._open = None
                case ToolResultItem():
                    self._add("tool_results", [self._tool_result(item, index)])
                case AssistantItem():
                    calls = [self._tool_use(call) for call in item.tool_calls]
                    self._add("assistant", [*_text(item.content), *calls])
                case TextItem():
                    self._add("assistant", _cited_text(item))
                case RefusalItem():
                    self._add("assistant", _text(item.text))
                case ReasoningItem():
                    self._add("assistant", _thinking(item))
                case ToolCall():
                    self._add("assistant", [self._tool_use(item)])
                case BackendToolCallItem():
                    self._add("assistant", item.wire if is_messages_wire(item) else _text(summary_line(item)))
                case OpaqueItem():
                    self._add("assistant", [item.wire])
                case _:
                    assert_never(item)

    def _add(self, kind: Literal["assistant", "tool_results"], blocks: Iterable[JsonObject]) -> None:
        blocks = list(blocks)
        if not blocks:
            return
        if self._open == kind:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": "assistant" if kind == "assistant" else "user", "content": blocks})
            self._open = kind

    def _tool_use(self, call: ToolCall) -> JsonObject:
        given = {"input": call.arguments} if call.custom else json_object(call.arguments) or {}
        return {"type": "tool_use", "id": self._ids[call.id], "name": call.name, "input": given}

    def _tool_result(self, item: ToolResultItem, index: int) -> JsonObject:
        content: str | list[JsonObject] = item.content
        if item.images:
            images = [_image(part, f"items[{index}].images[{number}].url") for number, part in enumerate(item.images)]
            content = [*_text(item.content), *images]
        elif item.is_error and not item.content:
            content = "error"  # the API refuses an error without content
        result: JsonObject = {"type": "tool_result", "tool_use_id": self._ids[item.tool_call_id], "content": content}
        return {**result, "is_error": True} if item.is_error else result


def _text(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _cited_text(item: TextItem) -> list[JsonObject]:
    # Citations of this API are typed by where they point (web_search_result_location, ...) and belong to the text in
    # the next turn too; annotations of other wires mean nothing here.
    citations = [mark for mark in item.annotations if str(mark.get("type", "")).endswith("_location")]
    return [{**block, "citations": citations} if citations else block for block in _text(item.text)]


def _user_blocks(item: UserItem, index: int) -> list[JsonObject]:
    blocks: list[JsonObject] = []
    for number, part in enumerate(item.content):
        if isinstance(part, ImagePart):
            blocks.append(_image(part, f"items[{index}].content[{number}].url"))
        else:
            blocks += _text(part.text)
    if not blocks:
        raise invalid(f"items[{index}].content", item.content, "the messages API wants some text or an image in it")
    return blocks


def _image(part: ImagePart, path: str) -> JsonObject:
    if not part.url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    uri = parse_data_uri(part.url, path)
    return {"type": "image", "source": {"type": "base64", "media_type": uri.media_type, "data": uri.data}}


def _thinking(item: ReasoningItem) -> list[JsonObject]:
    if item.redacted_data:
        return [{"type": "redacted_thinking", "data": item.redacted_data}]
    if item.signature:
        return [{"type": "thinking", "thinking": item.text, "signature": item.signature}]
    return []


def _tool(tool: ToolSpec) -> JsonObject:
    schema = tool.parameters if "type" in tool.parameters else {"type": "object", **tool.parameters}
    return present(name=tool.name, description=tool.description, input_schema=schema)


def _tool_choice(request: SamplingRequest) -> JsonObject | None:
    choice = request.tool_choice
    if choice is None or not has_tools(request):
        return None
    if isinstance(choice, FunctionChoice):
        return {"type": "tool", "name": choice.name}
    return {"type": _TOOL_CHOICES[choice]}


def _output_format(request: SamplingRequest) -> JsonObject | None:
    return None if request.json_schema is None else {"type": "json_schema", "schema": request.json_schema}
