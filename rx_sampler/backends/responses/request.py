"""`SamplingRequest` to the body of a streamed `POST /responses` (OpenAI, xAI and compatible servers).

Decisions where the published API leaves a choice:

* Nothing is kept at the server unless `store` says so, and `include` asks for encrypted reasoning, so that a
  conversation lives in its items alone. A reasoning item goes back only with its `encrypted_content`; without it a
  server that stored nothing cannot know the item and refuses its id. An empty one is that of a server that has none.
* `reasoning` asks for a summary, `concise` unless a setting or the provider says otherwise. To OpenAI's servers it goes
  only with an effort or a summary that somebody set: their models without reasoning refuse the object.
* Functions are sent with `strict: false`. This API defaults to strict, which rewrites a schema so that every
  parameter is required; the other two wires take a schema as it stands, and the same request should mean the same.
* Items stay in place, one wire item each and dependent on nothing after them, so that the `input` of a turn is a
  prefix of the next turn's: what a provider's prompt cache needs. Text and refusals return as assistant messages.
* A call that a server of this wire ran itself is echoed; one from another wire becomes a line of assistant text.
  Opaque items are echoed unless they came from another wire.
* `is_error` of a tool result has no form on this wire; its content says what went wrong.
* `WebSearch` goes with its domains as `filters`, `XSearch` with its dates, as xAI has them.
* There is no `stop` and no `n` here: such a request is refused rather than sampled otherwise than asked.
"""

from __future__ import annotations

from typing import assert_never

from rx_sampler.backends.encoding import (
    STRUCTURED_OUTPUT_NAME,
    checked_image_url,
    finished,
    function_tools,
    has_choice,
    hosted_tools,
    invalid,
    is_messages_wire,
    object_arguments,
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
    WebSearch,
    XSearch,
)
from rx_sampler.dialects import ResponsesDialect

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
    hosted = hosted_tools(request, web_search=_web_search, x_search=_x_search)
    tools = [*map(_tool, function_tools(request, hosted)), *hosted]
    store = config.store if request.store is None else request.store
    body = present(
        model=resolved.model,
        input=_input(request, config.responses_quirks, store=store),
        tools=tools or None,
        tool_choice=_tool_choice(request) if has_choice(request, tools) else None,
        parallel_tool_calls=request.parallel_tool_calls if tools else None,
        text=_text_format(request),
        reasoning=_reasoning_settings(request, config),
        max_output_tokens=resolved.max_output_tokens,
        temperature=resolved.temperature,
        top_p=resolved.top_p,
        prompt_cache_key=request.prompt_cache_key or request.conversation_id,
        metadata=request.metadata or None,
        store=store,
        include=list(dict.fromkeys(("reasoning.encrypted_content", *config.response_includes))),
        stream=True,
        stream_tool_calls=True if config.stream_tool_calls else None,
    )
    return finished(body, request, turns="input")


def _reasoning_settings(request: SamplingRequest, config: SamplerConfig) -> JsonObject | None:
    effort = request.reasoning_effort or config.reasoning_effort
    asked = request.reasoning_summary or config.reasoning_summary
    dialect = config.responses_quirks
    if effort is None and asked is None and dialect.reasoning_needs_effort:
        return None
    summary = asked or dialect.reasoning_summary
    return present(effort=effort, summary=None if summary == "none" else summary) or None


def _input(request: SamplingRequest, dialect: ResponsesDialect, *, store: bool) -> list[JsonObject]:
    wire: list[JsonObject] = []
    custom_ids: set[str] = set()  # the result of a custom call has a type of its own

    def add_call(call: ToolCall) -> None:
        wire.append(_tool_call(call))
        if call.custom:
            custom_ids.add(call.id)

    for index, item in settled_history(request.items, dialect.tool_ids):
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
                wire += _reasoning(item) if store or _may_return(item, dialect) else []
            case ToolCall():
                add_call(item)
            case BackendToolCallItem():
                is_own = item.wire and not is_messages_wire(item)
                wire += item.wire if is_own else _said(summary_line(item))
            case OpaqueItem():
                wire += [item.wire] if item.backend in (None, "responses") else []
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
    return {"type": "input_image", "image_url": checked_image_url(part, path), "detail": part.detail or "auto"}


def _may_return(item: ReasoningItem, dialect: ResponsesDialect) -> bool:
    """Whether a server that stored nothing can read the item."""
    return bool(item.encrypted_content) or (item.encrypted_content == "" and dialect.takes_unencrypted_reasoning)


def _reasoning(item: ReasoningItem) -> list[JsonObject]:
    if item.encrypted_content is None and not item.id:
        return []  # no server of this wire wrote it
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


def _web_search(tool: WebSearch) -> JsonObject:
    filters = {"allowed_domains": list(tool.allowed_domains), "excluded_domains": list(tool.excluded_domains)}
    filters = {name: domains for name, domains in filters.items() if domains}
    return {"type": tool.type, "filters": filters} if filters else {"type": tool.type}


def _x_search(tool: XSearch) -> JsonObject:
    return present(type=tool.type, from_date=tool.from_date, to_date=tool.to_date)


def _tool_choice(request: SamplingRequest) -> str | JsonObject | None:
    choice = request.tool_choice
    if not isinstance(choice, FunctionChoice):
        return choice
    if any(tool.type == choice.name for tool in request.hosted_tools):
        return {"type": choice.name}
    return {"type": "function", "name": choice.name}


def _text_format(request: SamplingRequest) -> JsonObject | None:
    if request.json_schema is None:
        return None
    schema = {"name": STRUCTURED_OUTPUT_NAME, "schema": request.json_schema, "strict": True}
    return {"format": {"type": "json_schema", **schema}}
