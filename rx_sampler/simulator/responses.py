"""OpenAI's responses: numbered, named events that open and close every item and part; no `[DONE]`.

Shapes: https://platform.openai.com/docs/api-reference/responses and its `responses-streaming` page. The doom-loop
check frames are xAI's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from . import openai_errors
from .answers import Answer
from .asks import (
    Ask,
    Problem,
    RefusedError,
    Tool,
    called_tools,
    input_tokens,
    last_user_text,
    positive_int,
    refuse_missing,
    required_list,
    required_text,
    structured_output_schema,
)
from .faults import Fault
from .frames import Comment, Frame, Padding
from .json_tools import JsonObject, as_list, as_object, as_text, objects_in
from .response_items import INCOMPLETE_REASONS, event, item_events, items_of

__all__ = ["DOOM_LOOP_EVENT", "Responses", "doom_loop_frame"]

DOOM_LOOP_EVENT = "response.doom_loop_check"

_ECHOED: JsonObject = {
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "moderation": None,
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "metadata": {},
}
"""The request's fields that a response repeats, with their defaults."""


class Responses:
    """The `WireFormat` of `/v1/responses`."""

    path = "/responses"

    def read(self, body: JsonObject) -> Ask:
        model = required_text(body, "model")
        reasoning = as_object(body.get("reasoning")) or {}
        output = as_object(body.get("text")) or {}
        return Ask(
            body=body,
            model=model,
            prompt=_prompt(body),
            input_tokens=input_tokens(body, "instructions", "input", "tools"),
            stream=body.get("stream") is True,
            max_output_tokens=positive_int(body, "max_output_tokens"),
            called_tools=_called_tools(body),
            wants_reasoning=reasoning.get("effort") not in (None, "none"),
            # OpenAI reasons in private unless a summary is asked for.
            shows_reasoning=reasoning.get("summary") is not None,
            json_schema=structured_output_schema(output.get("format")),
        )

    def frames(self, ask: Ask, answer: Answer) -> Iterator[Frame]:
        options = as_object(ask.body.get("stream_options")) or {}
        padding = Padding(answer.derivation, is_on=options.get("include_obfuscation") is not False)
        for kind in ("response.created", "response.in_progress"):
            yield event(kind, response=_response(ask, answer, status="in_progress", output=[]))
        for index, item in enumerate(items_of(ask, answer)):
            yield from item_events(item, index, padding)
        final = self.document(ask, answer)
        yield event(f"response.{final['status']}", response=final)

    def document(self, ask: Ask, answer: Answer) -> JsonObject:
        reason = INCOMPLETE_REASONS.get(answer.choices[0].stop_reason)
        output = [item.wire for item in items_of(ask, answer)]
        status = "incomplete" if reason else "completed"
        final = _response(ask, answer, status=status, output=output, usage=_usage(answer))
        final["service_tier"] = "default"
        if reason:
            final["incomplete_details"] = {"reason": reason}
        else:
            final["completed_at"] = answer.created
        if answer.doom_triggers:
            final["doom_loop_check"] = {"triggers": list(answer.doom_triggers)}
        return final

    def headers(self, answer: Answer) -> Mapping[str, str]:
        return openai_errors.answer_headers(answer)

    def error_headers(self, request_id: str) -> Mapping[str, str]:
        return openai_errors.error_headers(request_id)

    def error_body(self, problem: Problem, request_id: str) -> JsonObject:  # noqa: ARG002 - in the headers only, here
        return openai_errors.error_body(problem)

    def error_frames(self, fault: Fault, ask: Ask, answer: Answer) -> Iterator[Frame]:
        """An `error` event, and the response that failed of it, as OpenAI sends both."""
        error = openai_errors.error_of(self.problem_of(fault))
        yield event("error", error=error)
        failed = _response(ask, answer, status="failed", output=[])
        failed["error"] = {"code": error["code"] or error["type"], "message": error["message"]}
        yield event("response.failed", response=failed)

    def problem_of(self, fault: Fault) -> Problem:
        return openai_errors.problem_of(fault)

    def keepalive(self) -> Frame | Comment:
        return event("keepalive")


def doom_loop_frame(triggers: tuple[str, ...]) -> Frame:
    """xAI's check: the labels of all repetition seen so far."""
    return event(DOOM_LOOP_EVENT, doom_loop_check={"triggers": list(triggers)})


def _prompt(body: JsonObject) -> str:
    given = body.get("input")
    if isinstance(given, str):
        if not given:
            raise refuse_missing("input", "a non-empty string or array of items")
        return given
    if given is not None and as_list(given) is None:
        wanted = "expected a string or an array of items"
        raise RefusedError(Problem(status=400, message=wanted, param="input", code="invalid_type"))
    return last_user_text(required_list(body, "input"))


def _called_tools(body: JsonObject) -> tuple[Tool, ...]:
    tools = [
        Tool(name=name, schema=as_object(tool.get("parameters")) or {})
        for tool in objects_in(body.get("tools"))
        if tool.get("type") == "function" and (name := as_text(tool.get("name")))
    ]
    choice = body.get("tool_choice")
    wanted = as_object(choice) or {}
    named = [wanted] if wanted.get("type") == "function" else []
    if wanted.get("type") == "allowed_tools" and wanted.get("mode") == "required":
        named = objects_in(wanted.get("tools"))
    names = [name for entry in named if (name := as_text(entry.get("name")))]
    forced = choice == "required" or (choice in (None, "auto") and _wants_a_call(body))
    return called_tools(tools, choice, forced=forced, named=names)


def _wants_a_call(body: JsonObject) -> bool:
    """Whether the model, which is free to call a tool, does: once, before it says anything of its own."""
    items = [(item.get("type"), item.get("role")) for item in objects_in(body.get("input"))]
    own = [place for place, (kind, role) in enumerate(items) if kind == "function_call" or role == "assistant"]
    since = [kind for kind, _ in items[own[-1] if own else 0 :]]  # since it last had its say
    output = as_object(body.get("text")) or {}
    return structured_output_schema(output.get("format")) is None and "function_call_output" not in since


def _response(
    ask: Ask, answer: Answer, *, status: str, output: list[JsonObject], usage: JsonObject | None = None
) -> JsonObject:
    echoed = {name: ask.body.get(name, default) for name, default in _ECHOED.items()}
    reasoning = as_object(ask.body.get("reasoning")) or {}
    text = as_object(ask.body.get("text")) or {}
    return {
        "id": f"resp_{answer.derivation.hexadecimal('answer', 48)}",
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "model": ask.model,
        "output": output,
        "reasoning": {"context": None, "effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "service_tier": "auto",
        "text": {"format": text.get("format") or {"type": "text"}, "verbosity": text.get("verbosity") or "medium"},
        "usage": usage,
        **echoed,
    }


def _usage(answer: Answer) -> JsonObject:
    counts = answer.counts
    return {
        "input_tokens": counts.input_tokens,
        "input_tokens_details": {
            "cache_write_tokens": counts.cache_creation_input_tokens,
            "cached_tokens": counts.cached_input_tokens,
        },
        "output_tokens": counts.output_tokens,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
        "total_tokens": counts.total_tokens,
    }
