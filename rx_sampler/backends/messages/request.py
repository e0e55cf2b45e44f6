"""`SamplingRequest` to the body of a streamed `POST /messages` (Anthropic and compatible servers).

Decisions where the published API leaves a choice:

* `max_tokens` is demanded by the API. Where neither request nor configuration says, it is what `MessagesDialect` has:
  128,000, or less at a provider whose models refuse that.
* System items, wherever they stand, become blocks of the top-level `system`. Consecutive tool results share one user
  message, and all assistant items between two user messages share one assistant message, as the API itself would
  combine them.
* Reasoning goes back as a thinking block with its signature, word for word, or as `redacted_thinking`. Without a
  signature the API refuses it, so such reasoning is left out. An empty signature is that of a server that has none.
* An answer that was cut may end in a thought, or in a call of the server's own that came to nothing. Once something
  follows, the API refuses both: the thought is left out, a line of text tells of the call.
* Text blocks must hold more than white space: empty ones are left out, in whatever item they stand.
* An effort from low to max is sent as `output_config.effort` with adaptive, summarised thinking; `none`, `minimal`
  and no effort send neither.
* `temperature` and `top_p` are sent only where somebody set them: newer models refuse both.
* `tool_choice: none` really forbids tools. A choice without tools is not sent: the API refuses it.
* A call that a server of this wire ran itself is echoed block by block; one from another wire becomes a line of text.
  Opaque items are echoed as blocks unless they came from another wire.
* Tool ids of other providers are rewritten to the alphabet the API takes, distinct ids to distinct ids.
* `WebSearch` becomes Anthropic's tool of that name; `XSearch` has no form here.
* Unless `cache_breakpoints` is off, three blocks at most are marked as the end of what may be cached: the last of the
  system, the last of the conversation, and where the conversation ended when this turn began. The API reads caches
  at marks alone, so without the third a turn would not find what the one before wrote.
* Of `metadata` the API knows `user_id` only; the rest, and `prompt_cache_key`, have no form here and are not sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, assert_never

from rx_sampler.backends.encoding import (
    finished,
    function_tools,
    has_choice,
    hosted_tools,
    invalid,
    is_messages_wire,
    parse_data_uri,
    present,
    refuse_several_choices,
    settings,
    summary_line,
)
from rx_sampler.backends.history import settled_history
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
    WebSearch,
    json_object,
)
from rx_sampler.dialects import MessagesDialect

from .caching import mark_for_cache

__all__ = ["HEADERS", "PATH", "encode"]

PATH = "/messages"
HEADERS: Mapping[str, str] = MappingProxyType({"anthropic-version": "2023-06-01"})

_EFFORTS: frozenset[ReasoningEffort] = frozenset({"low", "medium", "high", "xhigh", "max"})
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_TOOL_CHOICES: Mapping[str, str] = {"auto": "auto", "required": "any"}


def encode(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    """The JSON body of a streaming request, keys in a fixed order. Pure.

    Raises `SamplingError` (`invalid_request`) for what cannot be sent: no model, no message, a user item without
    content, a broken image, `n` > 1.
    """
    refuse_several_choices(request, "messages")
    resolved = settings(request, config)
    dialect = config.messages_quirks
    history = _History(request, dialect)
    if config.cache_breakpoints if request.cache_breakpoints is None else request.cache_breakpoints:
        mark_for_cache(history.system, history.messages)
    effort = resolved.reasoning_effort if resolved.reasoning_effort in _EFFORTS else None
    output_config = present(effort=effort, format=_output_format(request))
    hosted = hosted_tools(request, web_search=_web_search)
    tools = [*map(_tool, function_tools(request, hosted)), *hosted]
    body = present(
        model=resolved.model,
        max_tokens=resolved.max_output_tokens or dialect.default_max_tokens,
        system=history.system or None,
        messages=history.messages,
        tools=tools or None,
        tool_choice=_tool_choice(request) if has_choice(request, tools) else None,
        temperature=resolved.temperature,
        top_p=resolved.top_p,
        stop_sequences=list(request.stop) or None,
        thinking={"type": "adaptive", "display": "summarized"} if effort else None,
        output_config=output_config or None,
        metadata={"user_id": request.metadata["user_id"]} if "user_id" in request.metadata else None,
        stream=True,
    )
    return finished(body, request, turns="messages")


class _History:
    """The items of a request as `system` blocks and `messages`."""

    def __init__(self, request: SamplingRequest, dialect: MessagesDialect) -> None:
        self.system: list[JsonObject] = []
        self.messages: list[JsonObject] = []
        self._dialect = dialect
        self._open: Literal["assistant", "tool_results"] | None = None  # what the last message still takes
        for index, item in settled_history(request.items, dialect.tool_ids):
            match item:
                case SystemItem():
                    self.system += _text(item.content)
                case UserItem():
                    self._end_answer()
                    self.messages.append({"role": "user", "content": _user_blocks(item, index)})
                    self._open = None
                case ToolResultItem():
                    self._end_answer()
                    self._add("tool_results", [_tool_result(item, index)])
                case AssistantItem():
                    calls = [_tool_use(call) for call in item.tool_calls]
                    self._add("assistant", [*_text(item.content), *calls])
                case TextItem():
                    self._add("assistant", _cited_text(item))
                case RefusalItem():
                    self._add("assistant", _text(item.text))
                case ReasoningItem():
                    self._add("assistant", _thinking(item, dialect))
                case ToolCall():
                    self._add("assistant", [_tool_use(item)])
                case BackendToolCallItem():
                    self._add("assistant", item.wire if is_messages_wire(item) else _text(summary_line(item)))
                case OpaqueItem():
                    self._add("assistant", [item.wire] if item.backend in (None, "messages") else [])
                case _:
                    assert_never(item)
        self._trim_end()

    def _trim_end(self) -> None:
        """The API refuses a conversation whose last text ends in white space."""
        if self._open == "assistant":
            blocks = self.messages[-1]["content"]
            if blocks[-1].get("type") == "text":
                blocks[-1] = {**blocks[-1], "text": blocks[-1]["text"].rstrip()}

    def _end_answer(self) -> None:
        """Something follows the answer, so it has to be whole."""
        if self._open == "assistant":
            message = self.messages[-1]
            message["content"] = _whole(message["content"], self._dialect)
            if not message["content"]:
                self.messages.pop()
            self._open = None

    def _add(self, kind: Literal["assistant", "tool_results"], blocks: Iterable[JsonObject]) -> None:
        blocks = list(blocks)
        if not blocks:
            return
        if self._open == kind:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": "assistant" if kind == "assistant" else "user", "content": blocks})
            self._open = kind


def _whole(blocks: list[JsonObject], dialect: MessagesDialect) -> list[JsonObject]:
    """The blocks of an answer that others follow, without what the API refuses there of one that was cut: a thought at
    its end, and a call of the server's own that came to nothing.
    """
    done = {block.get("tool_use_id") for block in blocks}
    whole: list[JsonObject] = []
    for block in blocks:
        if block.get("type") in _SERVER_CALLS and block.get("id") not in done:
            name = str(block.get("name") or "tool")
            whole += _text(summary_line(BackendToolCallItem(call_id="", name=name, wire=(block,))))
        else:
            whole.append(block)
    while whole and not dialect.takes_thinking_last and whole[-1].get("type") in _THOUGHTS:
        whole.pop()
    return whole


def _tool_use(call: ToolCall) -> JsonObject:
    given = {"input": call.arguments} if call.custom else json_object(call.arguments) or {}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}


def _tool_result(item: ToolResultItem, index: int) -> JsonObject:
    content: str | list[JsonObject] = item.content
    if item.images:
        images = [_image(part, f"items[{index}].images[{number}].url") for number, part in enumerate(item.images)]
        content = [*_text(item.content), *images]
    elif item.is_error and not item.content:
        content = "error"  # the API refuses an error without content
    result: JsonObject = {"type": "tool_result", "tool_use_id": item.tool_call_id, "content": content}
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


def _thinking(item: ReasoningItem, dialect: MessagesDialect) -> list[JsonObject]:
    if item.redacted_data:
        return [{"type": "redacted_thinking", "data": item.redacted_data}]
    if item.signature or (item.signature == "" and item.text and dialect.takes_unsigned_thinking):
        return [{"type": "thinking", "thinking": item.text, "signature": item.signature}]
    return []


def _tool(tool: ToolSpec) -> JsonObject:
    schema = tool.parameters if "type" in tool.parameters else {"type": "object", **tool.parameters}
    return present(name=tool.name, description=tool.description, input_schema=schema)


def _web_search(tool: WebSearch) -> JsonObject:
    return present(
        type="web_search_20250305",
        name=tool.type,
        allowed_domains=list(tool.allowed_domains) or None,
        blocked_domains=list(tool.excluded_domains) or None,
    )


def _tool_choice(request: SamplingRequest) -> JsonObject | None:
    choice = request.tool_choice
    single = (
        {} if request.parallel_tool_calls is None else {"disable_parallel_tool_use": not request.parallel_tool_calls}
    )
    if isinstance(choice, FunctionChoice):
        return {"type": "tool", "name": choice.name, **single}
    if choice == "none":
        return {"type": "none"}
    if choice is None:
        return {"type": "auto", **single} if single else None
    return {"type": _TOOL_CHOICES[choice], **single}


def _output_format(request: SamplingRequest) -> JsonObject | None:
    return None if request.json_schema is None else {"type": "json_schema", "schema": request.json_schema}
