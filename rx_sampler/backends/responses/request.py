"""`SamplingRequest` to the body of a streamed `POST /responses` (OpenAI, xAI and compatible servers).

Decisions where the published API leaves a choice:

* Nothing is kept at the server: `store` is false and `include` asks for encrypted reasoning, so that a conversation
  lives in its items alone. A reasoning item goes back only with its `encrypted_content`; without it a server that
  stored nothing cannot know the item and refuses its id.
* `reasoning` is sent only if an effort is set, then with `summary: "auto"`: models without reasoning, and many
  compatible servers, refuse the object. `extra_body={"reasoning": {...}}` sets anything else.
* Functions are sent with `strict: false`. This API defaults to strict, which rewrites a schema so that every
  parameter is required; the other two wires take a schema as it stands, and the same request should mean the same.
* Items stay in place, one wire item each and dependent on nothing after them, so that the `input` of a turn is a
  prefix of the next turn's: what a provider's prompt cache needs. Text and refusals return as assistant messages.
* A call that a server of this wire ran itself is echoed; one from another wire becomes a line of assistant text.
  Opaque items are echoed: nothing here tells where they came from.
* `is_error` of a tool result has no form on this wire; its content says what went wrong.
* There is no `stop` and no `n` here: such a request is refused rather than sampled otherwise than asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from rx_sampler.backends.encoding import (
    STRUCTURED_OUTPUT_NAME,
    checked_image_url,
    finished,
    function_tools,
    has_tools,
    hosted_tools,
    invalid,
    is_messages_wire,
    object_arguments,
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
    Item,
    JsonObject,
    OpaqueItem,
    ReasoningItem,
    RefusalItem,
    SamplingRequest,
    SystemItem,
    TextItem,
    TextPart,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)

__all__ = ["PATH", "encode"]

PATH = "/responses"


def encode(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    """The JSON body of a streaming request, keys in a fixed order. Pure.

    Raises `SamplingError` (`invalid_request`) for what cannot be sent: no model, no input, a broken image, `stop`,
    `n` > 1.
    """
    if request.stop:
        raise invalid("stop", request.stop, "the responses API has no stop sequences; leave it empty")
    refuse_several_choices(request, "responses")
    resolved = settings(request, config)
    effort = resolved.reasoning_effort
    body = present(
        model=resolved.model,
        input=_input(request.items),
        tools=[*map(_tool, function_tools(request)), *hosted_tools(request)] or None,
        tool_choice=_tool_choice(request),
        text=_text_format(request),
        reasoning=None if effort is None else {"effort": effort, "summary": "auto"},
        max_output_tokens=resolved.max_output_tokens,
        temperature=resolved.temperature,
        top_p=resolved.top_p,
        prompt_cache_key=request.prompt_cache_key,
        metadata=request.metadata or None,
        store=False,
        include=["reasoning.encrypted_content"],
        stream=True,
    )
    return finished(body, request, turns="input")


def _input(items: Iterable[Item]) -> list[JsonObject]:
    wire: list[JsonObject] = []
    custom_ids: set[str] = set()  # the result of a custom call has a type of its own

    def add_call(call: ToolCall) -> None:
        wire.append(_tool_call(call))
        if call.custom:
            custom_ids.add(call.id)

    for index, item in enumerate(items):
        match item:
            case SystemItem():
                wire.append(_message("system", item.content))
            case UserItem():
                wire.append(_message("user", _user_content(item, index)))
            case AssistantItem():
                wire += _said(item.content)
                for call in item.tool_calls:
                    add_call(call)
            case TextItem() | RefusalItem():
                wire += _said(item.text)
            case ReasoningItem():
                wire += _reasoning(item)
            case ToolCall():
                add_call(item)
            case BackendToolCallItem():
                is_own = item.wire and not is_messages_wire(item)
                wire += item.wire if is_own else _said(summary_line(item))
            case OpaqueItem():
                wire.append(item.wire)
            case ToolResultItem():
                kind = "custom_tool_call_output" if item.tool_call_id in custom_ids else "function_call_output"
                wire.append({"type": kind, "call_id": item.tool_call_id, "output": _output(item, index)})
            case _:
                assert_never(item)
    return wire


def _message(role: str, content: str | list[JsonObject]) -> JsonObject:
    return {"type": "message", "role": role, "content": content}


def _said(text: str) -> list[JsonObject]:
    return [_message("assistant", text)] if text else []


def _user_content(item: UserItem, index: int) -> str | list[JsonObject]:
    match item.content:
        case ():
            return ""
        case (TextPart(text=text),):
            return text
        case parts:
            return [
                _image(part, f"items[{index}].content[{number}].url")
                if isinstance(part, ImagePart)
                else _input_text(part.text)
                for number, part in enumerate(parts)
            ]


def _output(item: ToolResultItem, index: int) -> str | list[JsonObject]:
    if not item.images:
        return item.content
    images = [_image(part, f"items[{index}].images[{number}].url") for number, part in enumerate(item.images)]
    return [_input_text(item.content), *images] if item.content else images


def _input_text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _image(part: ImagePart, path: str) -> JsonObject:
    return {"type": "input_image", "image_url": checked_image_url(part, path), "detail": "auto"}


def _reasoning(item: ReasoningItem) -> list[JsonObject]:
    if not item.encrypted_content:
        return []
    content = [{"type": "reasoning_text", "text": text} for text in item.content]
    return [
        present(
            type="reasoning",
            id=item.id,
            summary=[{"type": "summary_text", "text": text} for text in item.summary],
            content=content or None,
            encrypted_content=item.encrypted_content,
        )
    ]


def _tool_call(call: ToolCall) -> JsonObject:
    if call.custom:
        return {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": call.arguments}
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": object_arguments(call)}


def _tool(tool: ToolSpec) -> JsonObject:
    fields = present(name=tool.name, description=tool.description, parameters=tool.parameters)
    return {"type": "function", **fields, "strict": False}


def _tool_choice(request: SamplingRequest) -> str | JsonObject | None:
    if not has_tools(request):
        return None
    choice = request.tool_choice
    return {"type": "function", "name": choice.name} if isinstance(choice, FunctionChoice) else choice


def _text_format(request: SamplingRequest) -> JsonObject | None:
    if request.json_schema is None:
        return None
    schema = {"name": STRUCTURED_OUTPUT_NAME, "schema": request.json_schema, "strict": True}
    return {"format": {"type": "json_schema", **schema}}
