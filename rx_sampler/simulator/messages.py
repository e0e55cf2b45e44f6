"""Anthropic's messages: named events that open and close each content block; `message_stop` at the end.

Shapes: https://platform.claude.com/docs/en/api/messages and its `streaming`, `errors` and `rate-limits` pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from .answers import Answer, Choice
from .asks import (
    Ask,
    Problem,
    Tool,
    called_tools,
    input_tokens,
    last_user_text,
    positive_int,
    refuse_missing,
    required_list,
    required_text,
    status_of_code,
    structured_output_schema,
    text_list,
)
from .faults import Fault
from .frames import Comment, Frame
from .json_tools import JsonObject, as_object, as_text, objects_in, read_object

__all__ = ["Messages"]

_TYPE_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STATUS_OF_TYPE = {kind: status for status, kind in _TYPE_OF_STATUS.items()}

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}

_REQUESTS_PER_MINUTE, _INPUT_TOKENS_PER_MINUTE, _OUTPUT_TOKENS_PER_MINUTE = 4_000, 2_000_000, 400_000


class Messages:
    """The `WireFormat` of `/v1/messages`."""

    path = "/messages"

    def read(self, body: JsonObject) -> Ask:
        model = required_text(body, "model")
        max_tokens = positive_int(body, "max_tokens")
        if max_tokens is None:
            raise refuse_missing("max_tokens", "a whole number from 1")
        messages = required_list(body, "messages")
        thinking = (as_object(body.get("thinking")) or {}).get("type") in ("enabled", "adaptive")
        output = as_object(body.get("output_config")) or {}
        return Ask(
            body=body,
            model=model,
            prompt=last_user_text(messages),
            input_tokens=input_tokens(body, "system", "messages", "tools"),
            stream=body.get("stream") is True,
            max_output_tokens=max_tokens,
            stop=text_list(body, "stop_sequences"),
            called_tools=_called_tools(body),
            wants_reasoning=thinking,
            shows_reasoning=thinking,
            json_schema=structured_output_schema(output.get("format")),
        )

    def frames(self, ask: Ask, answer: Answer) -> Iterator[Frame]:
        message = self.document(ask, answer)
        opening: JsonObject = {
            **message,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
        }
        yield _event("message_start", message={**opening, "usage": _usage(answer, output_tokens=1)})
        blocks = _blocks(answer)
        if not blocks:
            yield _event("ping")
        for index, block in enumerate(blocks):
            yield _event("content_block_start", index=index, content_block=block.opening)
            if index == 0:
                yield _event("ping")
            for delta, is_content in block.deltas:
                yield _event("content_block_delta", is_delta=is_content, index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        stop = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
        counts = _usage(answer, output_tokens=answer.counts.output_tokens)
        cumulative = {name: value for name, value in counts.items() if name.endswith(("_tokens", "_details"))}
        yield _event("message_delta", delta=stop, usage=cumulative)
        yield _event("message_stop")

    def document(self, ask: Ask, answer: Answer) -> JsonObject:
        choice = answer.choices[0]
        stop_reason = _STOP_REASONS[choice.stop_reason]
        if choice.refusal and choice.stop_reason == "stop":
            stop_reason = "refusal"
        if choice.stop_sequence is not None and choice.stop_reason == "stop":
            stop_reason = "stop_sequence"
        # A refusal's words are no content here: they explain the stop.
        details = {"type": "refusal", "category": None, "explanation": choice.whole_refusal or None}
        return {
            "model": ask.model,
            "id": f"msg_01{answer.derivation.identifier('answer', 22)}",
            "type": "message",
            "role": "assistant",
            "content": [block.whole for block in _blocks(answer)],
            "stop_reason": stop_reason,
            "stop_sequence": choice.stop_sequence if stop_reason == "stop_sequence" else None,
            "stop_details": details if stop_reason == "refusal" else None,
            "usage": _usage(answer, output_tokens=answer.counts.output_tokens),
        }

    def headers(self, answer: Answer) -> Mapping[str, str]:
        counts = answer.counts
        reset = datetime.fromtimestamp(answer.created + 1, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        used = {
            "requests": (_REQUESTS_PER_MINUTE, 1),
            "input-tokens": (_INPUT_TOKENS_PER_MINUTE, counts.input_tokens),
            "output-tokens": (_OUTPUT_TOKENS_PER_MINUTE, counts.output_tokens),
            "tokens": (_INPUT_TOKENS_PER_MINUTE + _OUTPUT_TOKENS_PER_MINUTE, counts.total_tokens),
        }
        headers = dict(self.error_headers(f"req_{answer.derivation.identifier('request id', 24)}"))
        for name, (limit, spent) in used.items():
            headers[f"anthropic-ratelimit-{name}-limit"] = str(limit)
            headers[f"anthropic-ratelimit-{name}-remaining"] = str(max(limit - spent, 0))
            headers[f"anthropic-ratelimit-{name}-reset"] = reset
        return headers

    def error_headers(self, request_id: str) -> Mapping[str, str]:
        return {"request-id": request_id, "anthropic-organization-id": "00000000-0000-4000-8000-000000000000"}

    def error_body(self, problem: Problem, request_id: str) -> JsonObject:
        usual = "api_error" if problem.status >= 500 else "invalid_request_error"
        message = f"{problem.param}: {problem.message}" if problem.param else problem.message
        kind = problem.type or _TYPE_OF_STATUS.get(problem.status, usual)
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}

    def error_frames(self, fault: Fault, ask: Ask, answer: Answer) -> Iterator[Frame]:  # noqa: ARG002 - says it all
        """An `error` event; no `message_stop` comes after it."""
        request_id = f"req_{answer.derivation.identifier('request id', 24)}"
        problem = self.problem_of(fault)
        error = self.error_body(problem, request_id)
        if fault.code is not None:
            # Anthropic sends no code; servers that speak its format do.
            error["error"]["code"] = fault.code
        yield Frame(data=error, event="error")

    def problem_of(self, fault: Fault) -> Problem:
        said = status_of_code(fault.code)
        kind = fault.type or _TYPE_OF_STATUS.get(said or 529, "api_error")
        message = fault.message or "Overloaded (simulated)"
        status = said or _STATUS_OF_TYPE.get(kind, 500)
        return Problem(status=status, message=message, type=kind, code=fault.code)

    def keepalive(self) -> Frame | Comment:
        return _event("ping")


@dataclass(frozen=True, slots=True)
class _Block:
    """A content block: as it opens, as it stands at the end, and its deltas (content, or what comes with it)."""

    opening: JsonObject
    whole: JsonObject
    deltas: tuple[tuple[JsonObject, bool], ...]


def _blocks(answer: Answer) -> list[_Block]:
    choice = answer.choices[0]
    blocks: list[_Block] = []
    if choice.reasoning:
        blocks.append(_thinking_block(choice, answer))
    if choice.text:
        blocks.append(_text_block(choice))
    blocks.extend(_tool_use_block(answer, slot) for slot in range(len(choice.calls)))
    return blocks


def _thinking_block(choice: Choice, answer: Answer) -> _Block:
    signature = f"EqQB{answer.derivation.identifier('signature', 163)}="
    deltas: list[tuple[JsonObject, bool]] = [
        ({"type": "thinking_delta", "thinking": text}, True) for text in choice.reasoning
    ]
    deltas.append(({"type": "signature_delta", "signature": signature}, False))
    return _Block(
        opening={"type": "thinking", "thinking": "", "signature": ""},
        whole={"type": "thinking", "thinking": choice.whole_reasoning, "signature": signature},
        deltas=tuple(deltas),
    )


def _text_block(choice: Choice) -> _Block:
    deltas: list[tuple[JsonObject, bool]] = [({"type": "text_delta", "text": text}, True) for text in choice.text]
    deltas.extend(({"type": "citations_delta", "citation": citation}, False) for citation in choice.annotations)
    whole: JsonObject = {"type": "text", "text": choice.whole_text}
    if choice.annotations:
        whole["citations"] = list(choice.annotations)
    return _Block(opening={"type": "text", "text": ""}, whole=whole, deltas=tuple(deltas))


def _tool_use_block(answer: Answer, slot: int) -> _Block:
    call = answer.choices[0].calls[slot]
    identifier = call.id or f"toolu_01{answer.derivation.identifier(f'call 0 {slot}', 22)}"
    opening: JsonObject = {"type": "tool_use", "id": identifier, "name": call.name, "input": {}}
    pieces = ("", *call.deltas)  # the first fragment is empty on this wire
    deltas = tuple(({"type": "input_json_delta", "partial_json": piece}, bool(piece)) for piece in pieces)
    # Whole, `input` is an object, so arguments that the token limit cut short have no form here.
    whole = {**opening, "input": read_object(call.arguments.encode("utf-8", "replace")) or {}}
    return _Block(opening=opening, whole=whole, deltas=deltas)


def _called_tools(body: JsonObject) -> tuple[Tool, ...]:
    tools = [
        Tool(name=name, schema=as_object(tool.get("input_schema")) or {})
        for tool in objects_in(body.get("tools"))
        if tool.get("type") in (None, "custom") and (name := as_text(tool.get("name")))
    ]
    choice = as_object(body.get("tool_choice")) or {}
    name = as_text(choice.get("name")) if choice.get("type") == "tool" else None
    forced = choice.get("type") == "any" or (choice.get("type") in (None, "auto") and _wants_a_call(body))
    return called_tools(tools, choice, forced=forced, named=[name] if name else [])


def _wants_a_call(body: JsonObject) -> bool:
    """Whether the model, which is free to call a tool, does: once, before it says anything of its own."""
    messages = objects_in(body.get("messages"))
    last = objects_in(messages[-1].get("content")) if messages else ()
    output = as_object(body.get("output_config")) or {}
    free = structured_output_schema(output.get("format")) is None
    return free and not any(block.get("type") == "tool_result" for block in last)


def _usage(answer: Answer, *, output_tokens: int) -> JsonObject:
    counts = answer.counts
    usage: JsonObject = {
        "input_tokens": counts.uncached_input_tokens,
        "cache_creation_input_tokens": counts.cache_creation_input_tokens,
        "cache_read_input_tokens": counts.cached_input_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": counts.cache_creation_input_tokens,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
        "inference_geo": "not_available",
    }
    if counts.reasoning_tokens and output_tokens > 1:
        usage["output_tokens_details"] = {"thinking_tokens": counts.reasoning_tokens}
    return usage


def _event(kind: str, *, is_delta: bool = False, **fields: object) -> Frame:
    return Frame(data={"type": kind, **fields}, event=kind, is_delta=is_delta)
