"""OpenAI's chat completions: chunks without event names, `[DONE]` at the end.

Shapes: https://platform.openai.com/docs/api-reference/chat and its `chat-streaming` page; `reasoning_content` is
DeepSeek's field (https://api-docs.deepseek.com/guides/reasoning_model), which most compatible servers took over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from . import openai_errors
from .answers import Answer, Call
from .asks import (
    Ask,
    Problem,
    Tool,
    called_tools,
    input_tokens,
    last_user_text,
    positive_int,
    required_list,
    required_text,
    structured_output_schema,
    text_list,
)
from .faults import Fault
from .frames import Comment, Frame, Padding
from .json_tools import JsonObject, as_object, as_text, objects_in

__all__ = ["ChatCompletions"]

_MOST_CHOICES = 128


class ChatCompletions:
    """The `WireFormat` of `/v1/chat/completions`."""

    path = "/chat/completions"

    def read(self, body: JsonObject) -> Ask:
        model = required_text(body, "model")
        messages = required_list(body, "messages")
        effort = as_text(body.get("reasoning_effort"))
        reasons = effort is not None and effort != "none"
        return Ask(
            body=body,
            model=model,
            prompt=last_user_text(messages),
            input_tokens=input_tokens(body, "messages", "tools"),
            stream=body.get("stream") is True,
            max_output_tokens=positive_int(body, "max_completion_tokens") or positive_int(body, "max_tokens"),
            stop=text_list(body, "stop"),
            choices=positive_int(body, "n", most=_MOST_CHOICES) or 1,
            called_tools=_called_tools(body),
            wants_reasoning=reasons,
            shows_reasoning=reasons,
            json_schema=structured_output_schema(body.get("response_format")),
        )

    def frames(self, ask: Ask, answer: Answer) -> Iterator[Frame]:
        options = as_object(ask.body.get("stream_options")) or {}
        counts_usage = options.get("include_usage") is True
        padding = Padding(answer.derivation, is_on=options.get("include_obfuscation") is not False)
        envelope = _envelope("chat.completion.chunk", ask, answer)

        def chunk(choices: list[JsonObject], usage: JsonObject | None, text: str, *, is_delta: bool) -> Frame:
            ending = {"usage": usage} if counts_usage else {}
            return Frame(data={**envelope, "choices": choices, **ending, **padding.of(text)}, is_delta=is_delta)

        # The choices of n > 1 come interleaved, a chunk of each in turn.
        pending = deque((index, _deltas(answer, index)) for index in range(len(answer.choices)))
        while pending:
            index, deltas = pending.popleft()
            if (step := next(deltas, None)) is None:
                continue
            delta, finish_reason, text = step
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
            yield chunk([choice], None, text, is_delta=bool(text))
            pending.append((index, deltas))
        if counts_usage:
            yield chunk([], _usage(answer), "", is_delta=False)
        yield Frame(data="[DONE]")

    def document(self, ask: Ask, answer: Answer) -> JsonObject:
        choices = [
            {"index": index, "message": _message(answer, index), "logprobs": None, "finish_reason": choice.stop_reason}
            for index, choice in enumerate(answer.choices)
        ]
        return {**_envelope("chat.completion", ask, answer), "choices": choices, "usage": _usage(answer)}

    def headers(self, answer: Answer) -> Mapping[str, str]:
        return openai_errors.answer_headers(answer)

    def error_headers(self, request_id: str) -> Mapping[str, str]:
        return openai_errors.error_headers(request_id)

    def error_body(self, problem: Problem, request_id: str) -> JsonObject:  # noqa: ARG002 - in the headers only, here
        return openai_errors.error_body(problem)

    def error_frames(self, fault: Fault, ask: Ask, answer: Answer) -> Iterator[Frame]:  # noqa: ARG002 - says it all
        """An error envelope where a chunk would be; neither a finish reason nor `[DONE]` comes after it."""
        yield Frame(data=openai_errors.error_body(self.problem_of(fault)))

    def problem_of(self, fault: Fault) -> Problem:
        return openai_errors.problem_of(fault)

    def keepalive(self) -> Frame | Comment:
        return Comment("keep-alive")


def _called_tools(body: JsonObject) -> tuple[Tool, ...]:
    functions = [as_object(tool.get("function")) or {} for tool in objects_in(body.get("tools"))]
    tools = [
        Tool(name=name, schema=as_object(function.get("parameters")) or {})
        for function in functions
        if (name := as_text(function.get("name")))
    ]
    choice = body.get("tool_choice")
    wanted = as_object(choice) or {}
    allowed = as_object(wanted.get("allowed_tools")) or {}
    named = [wanted] if "function" in wanted else []
    if allowed.get("mode") == "required":
        named = objects_in(allowed.get("tools"))
    names = [name for entry in named if (name := as_text((as_object(entry.get("function")) or {}).get("name")))]
    forced = choice == "required" or (choice in (None, "auto") and _wants_a_call(body))
    return called_tools(tools, choice, forced=forced, named=names)


def _wants_a_call(body: JsonObject) -> bool:
    """Whether the model, which is free to call a tool, does: once, before it says anything of its own."""
    roles = [message.get("role") for message in objects_in(body.get("messages"))]
    since = roles[len(roles) - [*reversed(roles), "assistant"].index("assistant") :]  # since it last had its say
    return structured_output_schema(body.get("response_format")) is None and "tool" not in since


def _envelope(kind: str, ask: Ask, answer: Answer) -> JsonObject:
    return {
        "id": f"chatcmpl-{answer.derivation.identifier('answer', 29)}",
        "object": kind,
        "created": answer.created,
        "model": ask.model,
        "service_tier": "default",
        "system_fingerprint": f"fp_{answer.derivation.hexadecimal('fingerprint', 10)}",
    }


def _deltas(answer: Answer, index: int) -> Iterator[tuple[JsonObject, str | None, str]]:
    """A choice's chunks: delta, finish reason, and the piece of content in it ("" in the first and the last)."""
    choice = answer.choices[index]
    opening: Any = None if choice.calls and not choice.text else ""
    yield {"role": "assistant", "content": opening, "refusal": None}, None, ""
    for text in choice.reasoning if choice.shows_reasoning else ():
        yield {"reasoning_content": text}, None, text
    for text in choice.text:
        yield {"content": text}, None, text
    if choice.annotations:
        yield {"annotations": list(choice.annotations)}, None, ""
    for text in choice.refusal:
        yield {"refusal": text}, None, text
    for slot, call in enumerate(choice.calls):
        head = {"index": slot, **_call(answer, index, slot, call, arguments="")}
        yield {"tool_calls": [head]}, None, ""
        for text in call.deltas:
            yield {"tool_calls": [{"index": slot, "function": {"arguments": text}}]}, None, text
    yield {}, choice.stop_reason, ""


def _message(answer: Answer, index: int) -> JsonObject:
    choice = answer.choices[index]
    has_content = bool(choice.text) or not (choice.calls or choice.refusal)
    message: JsonObject = {
        "role": "assistant",
        "content": choice.whole_text if has_content else None,
        "refusal": choice.whole_refusal or None,
        "annotations": list(choice.annotations),
    }
    if choice.shows_reasoning and choice.reasoning:
        message["reasoning_content"] = choice.whole_reasoning
    if choice.calls:
        message["tool_calls"] = [
            _call(answer, index, slot, call, arguments=call.arguments) for slot, call in enumerate(choice.calls)
        ]
    return message


def _call(answer: Answer, index: int, slot: int, call: Call, *, arguments: str) -> JsonObject:
    identifier = call.id or f"call_{answer.derivation.identifier(f'call {index} {slot}', 24)}"
    return {"id": identifier, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(answer: Answer) -> JsonObject:
    counts = answer.counts
    return {
        "prompt_tokens": counts.input_tokens,
        "completion_tokens": counts.output_tokens,
        "total_tokens": counts.total_tokens,
        "prompt_tokens_details": {"cached_tokens": counts.cached_input_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": counts.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
