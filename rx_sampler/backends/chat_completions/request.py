"""`SamplingRequest` to the body of a streamed `POST /chat/completions` (OpenAI and the servers that speak its format).

Decisions where the published API leaves a choice, or servers differ (`ChatDialect` holds what they differ in):

* The output limit goes as `max_tokens`, which most servers know, or as `max_completion_tokens`, which OpenAI's want.
* `stream_options.include_usage` is asked for; `extra_body={"stream_options": None}` helps a server that refuses the
  key.
* Earlier reasoning returns as `reasoning_content`, and as `reasoning_details` where the provider sent such objects,
  except to servers that refuse unknown keys of a message.
* Consecutive items of a response become one assistant message. Its `content` is null where the model said nothing
  beside tool calls or a refusal, as the API itself answers.
* A call that the server ran itself has no form on this wire: one line of the content tells about it. Opaque items
  have none either and are left out.
* `is_error` of a tool result has no form either; its content says what went wrong.
* Images of a tool result follow its text as blocks, or, where tool messages hold text alone, in a user message behind
  the results.
* Hosted tools are appended to `tools` as given, for the servers that have some; `WebSearch` and `XSearch` have no form
  here. `prompt_cache_key` is not sent: compatible servers refuse it; `extra_body` reaches it where it exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from rx_sampler.backends.encoding import (
    STRUCTURED_OUTPUT_NAME,
    checked_image_url,
    finished,
    function_tools,
    has_choice,
    hosted_tools,
    object_arguments,
    present,
    reasoning_text,
    settings,
    summary_line,
)
from rx_sampler.backends.history import Placed, settled_history
from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import (
    AssistantItem,
    BackendToolCallItem,
    FunctionChoice,
    ImagePart,
    JsonObject,
    OpaqueItem,
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
from rx_sampler.dialects import ChatDialect

__all__ = ["PATH", "encode"]

PATH = "/chat/completions"


def encode(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    """The JSON body of a streaming request, keys in a fixed order. Pure.

    Raises `SamplingError` (`invalid_request`) for what cannot be sent: no model, no message, a broken image.
    """
    resolved = settings(request, config)
    dialect = config.chat_quirks
    hosted = hosted_tools(request)
    tools = [*map(_tool, function_tools(request, hosted)), *hosted]
    store = config.store if request.store is None else request.store
    body = present(
        model=resolved.model,
        messages=_messages(settled_history(request.items, dialect.tool_ids), dialect),
        temperature=resolved.temperature,
        top_p=resolved.top_p,
        **{dialect.max_tokens_field: resolved.max_output_tokens},
        stop=list(request.stop) or None,
        n=request.n,
        tools=tools or None,
        tool_choice=_tool_choice(request) if has_choice(request, tools) else None,
        parallel_tool_calls=request.parallel_tool_calls if tools else None,
        response_format=_response_format(request),
        **_effort(resolved.reasoning_effort, dialect),
        metadata=request.metadata or None if dialect.takes_metadata or store else None,
        store=store or None,
        stream=True,
        stream_options={"include_usage": True} if dialect.includes_usage else None,
    )
    return finished(body, request, turns="messages")


@dataclass(slots=True)
class _Turn:
    """An assistant message while the items that belong to it come in."""

    content: list[str] = field(default_factory=list[str])
    after_summary: bool = False
    refusal: list[str] = field(default_factory=list[str])
    calls: list[JsonObject] = field(default_factory=list[JsonObject])
    reasoning: list[str] = field(default_factory=list[str])
    details: list[JsonObject] = field(default_factory=list[JsonObject])
    answered: bool = False
    """Whether it holds something the model itself said or called, so that another whole answer starts a new turn."""

    def say(self, text: str) -> None:
        if text:
            self._put(text, own_line=self.after_summary)
            self.after_summary, self.answered = False, True

    def tell(self, line: str) -> None:
        self._put(line, own_line=True)
        self.after_summary = True

    def _put(self, text: str, *, own_line: bool) -> None:
        if own_line and self.content and not self.content[-1].endswith("\n"):
            self.content.append("\n")
        self.content.append(text)

    def refuse(self, text: str) -> None:
        if text:
            self.refusal.append(text)
            self.answered = True

    def call(self, call: ToolCall, dialect: ChatDialect) -> None:
        self.calls.append(_tool_call(call, dialect))
        self.answered = True

    def think(self, item: ReasoningItem) -> None:
        if text := reasoning_text(item):
            self.reasoning.append(text)
        self.details += item.details

    def messages(self, dialect: ChatDialect) -> list[JsonObject]:
        """The message; none where there is only reasoning, which no message would carry."""
        if not (self.content or self.refusal or self.calls):
            return []
        message: JsonObject = {"role": "assistant", "content": "".join(self.content) or None}
        if self.refusal:
            message["refusal"] = "".join(self.refusal)
        if self.calls:
            message["tool_calls"] = self.calls
        if dialect.reasoning_field and self.reasoning:
            message[dialect.reasoning_field] = "\n".join(self.reasoning)
        if dialect.takes_reasoning_details and self.details:
            message["reasoning_details"] = self.details
        return [message]


def _messages(items: Iterable[Placed], dialect: ChatDialect) -> list[JsonObject]:
    messages: list[JsonObject] = []
    turn = _Turn()
    shown: list[JsonObject] = []
    """Images of the results that stand last, for servers that take them from the user alone."""

    def close() -> None:
        nonlocal turn
        messages.extend(turn.messages(dialect))
        turn = _Turn()

    def show() -> None:
        if shown:
            messages.append({"role": "user", "content": shown.copy()})
            shown.clear()

    for index, item in items:
        if not isinstance(item, ToolResultItem):
            show()
        match item:
            case SystemItem():
                close()
                messages.append({"role": "system", "content": item.content})
            case UserItem():
                close()
                messages.append({"role": "user", "content": _user_content(item, index)})
            case ToolResultItem():
                close()
                content: str | list[JsonObject] = item.content
                if item.images and dialect.tool_result_images == "inline":
                    content = [*_texts(item.content), *_result_images(item, index)]
                elif item.images:
                    shown += [_text(f"Images of the result of {item.tool_call_id}:"), *_result_images(item, index)]
                messages.append({"role": "tool", "tool_call_id": item.tool_call_id, "content": content})
            case AssistantItem():
                if turn.answered:
                    close()
                turn.say(item.content)
                for call in item.tool_calls:
                    turn.call(call, dialect)
                close()
            case TextItem():
                turn.say(item.text)
            case RefusalItem():
                turn.refuse(item.text)
            case ReasoningItem():
                turn.think(item)
            case ToolCall():
                turn.call(item, dialect)
            case BackendToolCallItem():
                turn.tell(summary_line(item))
            case OpaqueItem():
                pass
            case _:
                assert_never(item)
    close()
    show()
    return messages


def _user_content(item: UserItem, index: int) -> str | list[JsonObject]:
    if not any(isinstance(part, ImagePart) for part in item.content):
        return "\n".join(part.text for part in item.content if not isinstance(part, ImagePart))
    return [
        _image(part, f"items[{index}].content[{number}].url") if isinstance(part, ImagePart) else _text(part.text)
        for number, part in enumerate(item.content)
    ]


def _result_images(item: ToolResultItem, index: int) -> list[JsonObject]:
    return [_image(part, f"items[{index}].images[{number}].url") for number, part in enumerate(item.images)]


def _texts(text: str) -> list[JsonObject]:
    return [_text(text)] if text else []


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _image(part: ImagePart, path: str) -> JsonObject:
    return {"type": "image_url", "image_url": present(url=checked_image_url(part, path), detail=part.detail)}


def _tool_call(call: ToolCall, dialect: ChatDialect) -> JsonObject:
    extra = {"extra_content": call.extra_content} if call.extra_content and dialect.takes_extra_content else {}
    if call.custom:
        custom = {"name": call.name, "input": call.arguments}
        return {"id": call.id, "type": "custom", "custom": custom, **extra}
    function = {"name": call.name, "arguments": object_arguments(call)}
    return {"id": call.id, "type": "function", "function": function, **extra}


def _tool(tool: ToolSpec) -> JsonObject:
    function = present(name=tool.name, description=tool.description, parameters=tool.parameters)
    return {"type": "function", "function": function}


def _tool_choice(request: SamplingRequest) -> str | JsonObject | None:
    choice = request.tool_choice
    if isinstance(choice, FunctionChoice):
        return {"type": "function", "function": {"name": choice.name}}
    return choice


def _effort(effort: str | None, dialect: ChatDialect) -> JsonObject:
    match dialect.effort_field if effort else None:
        case None:
            return {}
        case "reasoning.effort":
            return {"reasoning": {"effort": effort}}
        case field:
            return {field: effort}


def _response_format(request: SamplingRequest) -> JsonObject | None:
    if request.json_schema is None:
        return None
    schema = {"name": STRUCTURED_OUTPUT_NAME, "schema": request.json_schema, "strict": True}
    return {"type": "json_schema", "json_schema": schema}
