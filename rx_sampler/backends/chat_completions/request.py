"""`SamplingRequest` to the body of a streamed `POST /chat/completions` (OpenAI and the servers that speak its format).

Decisions where the published API leaves a choice, or servers differ:

* The output limit goes as `max_completion_tokens` to OpenAI's and Azure's own hosts, whose reasoning models refuse
  the older `max_tokens`, and as `max_tokens` to every other host, many of which know nothing else. To force the other:
  `extra_body={"max_tokens": None, "max_completion_tokens": N}`.
* `stream_options.include_usage` is always asked for; `extra_body={"stream_options": None}` helps a server that
  refuses the key.
* Earlier reasoning returns as `reasoning_content`, and as `reasoning_details` where the provider sent such objects,
  except to OpenAI's and Azure's hosts, which refuse unknown keys of a message.
* Consecutive items of a response become one assistant message. Its `content` is null where the model said nothing
  beside tool calls or a refusal, as the API itself answers.
* A call that the server ran itself has no form on this wire: one line of the content tells about it. Opaque items
  have none either and are left out.
* `is_error` of a tool result has no form either; its content says what went wrong.
* Hosted tools are appended to `tools` as given, for the servers that have some. `prompt_cache_key` is not sent:
  compatible servers refuse it; `extra_body` reaches it where it exists. Images of a tool result follow its text as
  blocks, which OpenAI itself does not take.
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
    has_tools,
    hosted_tools,
    is_openai_host,
    object_arguments,
    present,
    reasoning_text,
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
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)

__all__ = ["PATH", "encode"]

PATH = "/chat/completions"


def encode(request: SamplingRequest, config: SamplerConfig) -> JsonObject:
    """The JSON body of a streaming request, keys in a fixed order. Pure.

    Raises `SamplingError` (`invalid_request`) for what cannot be sent: no model, no message, a broken image.
    """
    resolved = settings(request, config)
    openai = is_openai_host(config.base_url)
    limit_key = "max_completion_tokens" if openai else "max_tokens"
    body = present(
        model=resolved.model,
        messages=_messages(request.items, replay_reasoning=not openai),
        temperature=resolved.temperature,
        top_p=resolved.top_p,
        **{limit_key: resolved.max_output_tokens},
        stop=list(request.stop) or None,
        n=request.n,
        tools=[*map(_tool, function_tools(request)), *hosted_tools(request)] or None,
        tool_choice=_tool_choice(request),
        response_format=_response_format(request),
        reasoning_effort=resolved.reasoning_effort,
        metadata=request.metadata or None,
        stream=True,
        stream_options={"include_usage": True},
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

    def call(self, call: ToolCall) -> None:
        self.calls.append(_tool_call(call))
        self.answered = True

    def think(self, item: ReasoningItem) -> None:
        if text := reasoning_text(item):
            self.reasoning.append(text)
        self.details += item.details

    def messages(self, *, replay_reasoning: bool) -> list[JsonObject]:
        """The message; none where there is only reasoning, which no message would carry."""
        if not (self.content or self.refusal or self.calls):
            return []
        message: JsonObject = {"role": "assistant", "content": "".join(self.content) or None}
        if self.refusal:
            message["refusal"] = "".join(self.refusal)
        if self.calls:
            message["tool_calls"] = self.calls
        if replay_reasoning and self.reasoning:
            message["reasoning_content"] = "\n".join(self.reasoning)
        if replay_reasoning and self.details:
            message["reasoning_details"] = self.details
        return [message]


def _messages(items: Iterable[Item], *, replay_reasoning: bool) -> list[JsonObject]:
    messages: list[JsonObject] = []
    turn = _Turn()

    def close() -> None:
        nonlocal turn
        messages.extend(turn.messages(replay_reasoning=replay_reasoning))
        turn = _Turn()

    for index, item in enumerate(items):
        match item:
            case SystemItem():
                close()
                messages.append({"role": "system", "content": item.content})
            case UserItem():
                close()
                messages.append({"role": "user", "content": _user_content(item, index)})
            case ToolResultItem():
                close()
                content = _result_content(item, index)
                messages.append({"role": "tool", "tool_call_id": item.tool_call_id, "content": content})
            case AssistantItem():
                if turn.answered:
                    close()
                turn.say(item.content)
                for call in item.tool_calls:
                    turn.call(call)
                close()
            case TextItem():
                turn.say(item.text)
            case RefusalItem():
                turn.refuse(item.text)
            case ReasoningItem():
                turn.think(item)
            case ToolCall():
                turn.call(item)
            case BackendToolCallItem():
                turn.tell(summary_line(item))
            case OpaqueItem():
                pass
            case _:
                assert_never(item)
    close()
    return messages


def _user_content(item: UserItem, index: int) -> str | list[JsonObject]:
    if not any(isinstance(part, ImagePart) for part in item.content):
        return "\n".join(part.text for part in item.content if not isinstance(part, ImagePart))
    return [
        _image(part, f"items[{index}].content[{number}].url") if isinstance(part, ImagePart) else _text(part.text)
        for number, part in enumerate(item.content)
    ]


def _result_content(item: ToolResultItem, index: int) -> str | list[JsonObject]:
    if not item.images:
        return item.content
    images = [_image(part, f"items[{index}].images[{number}].url") for number, part in enumerate(item.images)]
    return [_text(item.content), *images] if item.content else images


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _image(part: ImagePart, path: str) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": checked_image_url(part, path)}}


def _tool_call(call: ToolCall) -> JsonObject:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    function = {"name": call.name, "arguments": object_arguments(call)}
    return {"id": call.id, "type": "function", "function": function}


def _tool(tool: ToolSpec) -> JsonObject:
    function = present(name=tool.name, description=tool.description, parameters=tool.parameters)
    return {"type": "function", "function": function}


def _tool_choice(request: SamplingRequest) -> str | JsonObject | None:
    if not has_tools(request):
        return None
    choice = request.tool_choice
    if isinstance(choice, FunctionChoice):
        return {"type": "function", "function": {"name": choice.name}}
    return choice


def _response_format(request: SamplingRequest) -> JsonObject | None:
    if request.json_schema is None:
        return None
    schema = {"name": STRUCTURED_OUTPUT_NAME, "schema": request.json_schema, "strict": True}
    return {"type": "json_schema", "json_schema": schema}
