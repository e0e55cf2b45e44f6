"""What a request asks for, whatever its wire format (`Ask`), and why it may be refused (`Problem`).

The readers below name the field they refuse; each wire format words that in its provider's error shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from .json_tools import JsonObject, all_strings, as_list, as_object, as_text, dumps, objects_in
from .words import count_tokens

__all__ = [
    "Ask",
    "Problem",
    "RefusedError",
    "Tool",
    "called_tools",
    "input_tokens",
    "last_user_text",
    "positive_int",
    "refuse_missing",
    "required_list",
    "required_text",
    "status_of_code",
    "structured_output_schema",
    "text_list",
    "text_of",
]

_TOKENS_OF_A_DATA_URI: Final = 85
"""What an inline image or file counts as; its base64 is no text."""

_JSON_OBJECT_SCHEMA: Final[JsonObject] = {"type": "object", "required": ["answer"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a request gets an error: the HTTP status, what is wrong, and with which field.

    `type` and `code` are the provider's; None lets the wire format choose what fits the status.
    """

    status: int
    message: str
    type: str | None = None
    code: str | int | None = None
    param: str | None = None


class RefusedError(Exception):
    """The request is answered with an error instead of an answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A client tool that the simulated model may call: its name and the JSON Schema of its arguments."""

    name: str
    schema: JsonObject = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, read: what shapes the answer. `body` is the request itself, for what is echoed."""

    body: JsonObject = field(repr=False)
    model: str
    prompt: str = field(repr=False)
    input_tokens: int
    stream: bool
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    choices: int = 1
    called_tools: tuple[Tool, ...] = ()
    wants_reasoning: bool = False
    shows_reasoning: bool = False
    json_schema: JsonObject | None = field(default=None, repr=False)


def status_of_code(code: str | int | None) -> int | None:
    """The HTTP status of a failure whose code is one."""
    return code if isinstance(code, int) and 400 <= code <= 599 else None


def refuse_missing(name: str, wanted: str) -> RefusedError:
    """The refusal of a request that lacks `name`."""
    return RefusedError(
        Problem(status=400, message=f"missing, expected {wanted}", param=name, code="missing_required_parameter")
    )


def required_text(body: JsonObject, name: str) -> str:
    """A non-empty string that the request must have."""
    value = body.get(name)
    if value is None or value == "":
        raise refuse_missing(name, "a non-empty string")
    if not isinstance(value, str):
        raise _wrong(name, value, "a string")
    return value


def required_list(body: JsonObject, name: str) -> list[JsonObject]:
    """A non-empty array of objects that the request must have."""
    value = body.get(name)
    if value is None:
        raise refuse_missing(name, "a non-empty array of objects")
    entries = as_list(value)
    if entries is None or any(as_object(entry) is None for entry in entries):
        raise _wrong(name, value, "an array of objects")
    if not entries:
        raise RefusedError(
            Problem(status=400, message="[], expected at least one entry", param=name, code="empty_array")
        )
    return objects_in(entries)


def positive_int(body: JsonObject, name: str, *, most: int | None = None) -> int | None:
    """A whole number from 1 (to `most`); None where the request leaves it out."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, value, "a whole number")
    if value < 1:
        raise RefusedError(
            Problem(status=400, message=f"{value}, expected at least 1", param=name, code="integer_below_min_value")
        )
    if most is not None and value > most:
        raise RefusedError(
            Problem(status=400, message=f"{value}, expected at most {most}", param=name, code="integer_above_max_value")
        )
    return value


def text_list(body: JsonObject, name: str) -> tuple[str, ...]:
    """One string or an array of them; () where the request leaves it out. Empty strings are dropped."""
    value = body.get(name)
    if value is None:
        return ()
    entries = [value] if isinstance(value, str) else as_list(value)
    if entries is None or not all(isinstance(entry, str) for entry in entries):
        raise _wrong(name, value, "a string or an array of strings")
    return tuple(entry for entry in entries if entry)


def called_tools(tools: Iterable[Tool], choice: object, *, forced: bool, named: Iterable[str]) -> tuple[Tool, ...]:
    """The tools of which one is to be called: those named, else all when `forced`; () for an answer in words.

    A name that no tool has is refused, as providers do; `choice` is what the request says, for the message.
    """
    known = {tool.name: tool for tool in tools}
    wanted = list(named)
    unknown = next((name for name in wanted if name not in known), None)
    if unknown is not None:
        declared = ", ".join(known) or "no tool at all"
        raise RefusedError(
            Problem(
                status=400,
                message=f"{dumps(choice)}, but the tool {unknown!r} is not in 'tools' (declared: {declared})",
                param="tool_choice",
                code="invalid_value",
            )
        )
    if wanted:
        return tuple(known[name] for name in wanted)
    return tuple(known.values()) if forced else ()


def text_of(content: object) -> str:
    """The text of a message's content: the string, or its parts' texts joined."""
    if isinstance(content, str):
        return content
    return "\n".join(text for part in objects_in(content) if (text := as_text(part.get("text"))))


def last_user_text(messages: Iterable[JsonObject]) -> str:
    """The text of the last user message that has any."""
    text = ""
    for message in messages:
        if message.get("role") == "user":
            text = text_of(message.get("content")) or text
    return text


def input_tokens(body: JsonObject, *names: str) -> int:
    """The tokens of every string below the named fields."""
    strings = all_strings([body.get(name) for name in names])
    return sum(_TOKENS_OF_A_DATA_URI if text.startswith("data:") else count_tokens(text) for text in strings)


def structured_output_schema(output_format: object) -> JsonObject | None:
    """The schema that the answer's text has to fit, if the request wants JSON; both of OpenAI's nestings."""
    wanted = as_object(output_format) or {}
    match wanted.get("type"):
        case "json_schema":
            nested = as_object(wanted.get("json_schema")) or wanted
            return as_object(nested.get("schema")) or {}
        case "json_object":
            return _JSON_OBJECT_SCHEMA
        case _:
            return None


def _wrong(name: str, value: object, wanted: str) -> RefusedError:
    shown = dumps(value)
    shown = shown if len(shown) <= 60 else shown[:60] + "..."
    return RefusedError(Problem(status=400, message=f"{shown}, expected {wanted}", param=name, code="invalid_type"))
