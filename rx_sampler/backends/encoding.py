"""What the three request encoders share: resolved settings, tools, history helpers, and JSON as bytes.

An encoder turns a `SamplingRequest` into the dict that becomes the JSON body. It is pure and deterministic: equal
requests give equal bytes, with keys in a fixed order. The dict holds parts of the request itself (schemas, wire
items), so read it, do not change it. Whatever cannot be sent is a `SamplingError` of kind `invalid_request`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, cast
from urllib.parse import urlsplit

from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import (
    BackendToolCallItem,
    ImagePart,
    JsonObject,
    ReasoningEffort,
    ReasoningItem,
    SamplingRequest,
    ToolCall,
    ToolSpec,
)
from rx_sampler.errors import SamplingError, SamplingErrorKind

__all__ = [
    "STRUCTURED_OUTPUT_NAME",
    "DataUri",
    "Settings",
    "body_bytes",
    "checked_image_url",
    "finished",
    "function_tools",
    "has_tools",
    "hosted_tools",
    "invalid",
    "is_messages_wire",
    "is_openai_host",
    "json_object",
    "object_arguments",
    "parse_data_uri",
    "present",
    "reasoning_text",
    "refuse_several_choices",
    "settings",
    "summary_line",
]

STRUCTURED_OUTPUT_NAME = "structured_output"
"""The name that chat completions and responses want beside a JSON schema."""

_SHOWN_CHARS = 60  # of a refused value in an error message
_SUMMARY_CHARS = 100  # of a query, URL or program in a summary line

# OpenAI's own chat servers are stricter and newer than those that imitate them: reasoning models refuse `max_tokens`
# and want `max_completion_tokens`, which many compatible servers do not know; message keys outside the published
# schema, such as `reasoning_content`, are an error there and needed elsewhere. A host matches with its subdomains.
_OPENAI_HOSTS = ("api.openai.com", "openai.azure.com", "openai.azure.us", "cognitiveservices.azure.com")


def invalid(field: str, value: object, expected: str) -> SamplingError:
    """The error for a field that cannot be sent: names it, shows at most 60 characters of it, says what would do."""
    shown = repr(value)
    if len(shown) > _SHOWN_CHARS:
        shown = shown[:_SHOWN_CHARS] + "..."
    return SamplingError.of(SamplingErrorKind.INVALID_REQUEST, f"{field} is {shown}: {expected}")


def body_bytes(body: Mapping[str, object]) -> bytes:
    """The body as compact UTF-8 JSON; the same bytes for the same dict.

    A lone surrogate has no UTF-8 form and goes as U+FFFD, as it would arrive in a stream. Raises `SamplingError`
    (`invalid_request`) naming the field that is not JSON: an infinite number, a set, a dict that contains itself.
    """
    try:
        text = _dumps(body)
    except (TypeError, ValueError, RecursionError) as error:
        field = next((key for key, value in body.items() if not _is_json(value)), "body")
        message = f"request body field {field!r} is not JSON ({error}): use objects, arrays, strings, finite numbers"
        raise SamplingError.of(SamplingErrorKind.INVALID_REQUEST, message) from error
    try:
        return text.encode()
    except UnicodeEncodeError:
        # UTF-16 joins what are two halves of one character and only replaces what is really alone.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _is_json(value: object) -> bool:
    try:
        _dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The sampling parameters in force: the request's, else the configuration's; None is not sent."""

    model: str
    temperature: float | None
    top_p: float | None
    max_output_tokens: int | None
    reasoning_effort: ReasoningEffort | None


def settings(request: SamplingRequest, config: SamplerConfig) -> Settings:
    """Resolve the parameters that both a request and a configuration may hold.

    Raises `SamplingError` if no model is named anywhere; `extra_body={"model": None}` says that none is meant.
    """
    model = request.model or config.model
    if not model and "model" not in request.extra_body:
        raise invalid("model", model, "name one in SamplingRequest.model or SamplerConfig.model")
    return Settings(
        model=model,
        temperature=config.temperature if request.temperature is None else request.temperature,
        top_p=config.top_p if request.top_p is None else request.top_p,
        max_output_tokens=request.max_output_tokens or config.max_output_tokens,
        reasoning_effort=request.reasoning_effort or config.reasoning_effort,
    )


def is_openai_host(base_url: str) -> bool:
    """Whether a chat server is OpenAI's own or Azure's OpenAI service, by host name."""
    host = (urlsplit(base_url).hostname or "").lower()
    return any(host == known or host.endswith("." + known) for known in _OPENAI_HOSTS)


def present(**fields: object) -> JsonObject:
    """The fields that have a value, in the order given."""
    return {name: value for name, value in fields.items() if value is not None}


def finished(body: JsonObject, request: SamplingRequest, *, turns: str) -> JsonObject:
    """The body with `extra_body` over it: a value replaces the whole top-level key, None removes the key.

    `turns` is the key of the conversation. Raises `SamplingError` if nothing of `items` can be sent under it.
    """
    merged = {**body, **request.extra_body}
    if merged.get(turns) == []:
        kinds = tuple(dict.fromkeys(item.type for item in request.items))
        raise invalid("items", kinds, f"nothing of it can stand in {turns!r}, which needs at least one user item")
    return {key: value for key, value in merged.items() if key not in request.extra_body or value is not None}


def refuse_several_choices(request: SamplingRequest, backend: str) -> None:
    """Raise `SamplingError` for `n` > 1 on a wire format that gives one answer only."""
    if request.n is not None and request.n > 1:
        raise invalid(
            "n", request.n, f"the {backend} API gives one answer; send {request.n} requests, or leave n unset"
        )


def function_tools(request: SamplingRequest) -> tuple[ToolSpec, ...]:
    """The client's tools, without those whose name a hosted tool claims: names must be unique, and hosted wins."""
    claimed = {name for tool in request.hosted_tools for name in (tool.type, (tool.model_extra or {}).get("name"))}
    return tuple(tool for tool in request.tools if tool.name not in claimed)


def hosted_tools(request: SamplingRequest) -> list[JsonObject]:
    """The hosted tools as the wire takes them: `type` and every further key as given."""
    return [tool.model_dump() for tool in request.hosted_tools]


def has_tools(request: SamplingRequest) -> bool:
    """Whether the body will hold tools, without which a tool choice is an error on the wire."""
    return bool(request.tools or request.hosted_tools or request.extra_body.get("tools"))


def json_object(arguments: str) -> JsonObject | None:
    """The arguments of a call as a dict; None if they are not one JSON object (RFC 8259: NaN is not JSON)."""
    try:
        value: object = json.loads(arguments, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None  # JSON's keys are strings


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def object_arguments(call: ToolCall) -> str:
    """The raw arguments, byte for byte, if they are a JSON object; else `{}`, so that a cut call cannot be run."""
    return call.arguments if json_object(call.arguments) is not None else "{}"


def reasoning_text(item: ReasoningItem) -> str:
    """What the model thought, for wires that take it as plain text: as streamed, else its parts one a line."""
    return item.text or "\n".join((*item.summary, *item.content))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataUri:
    """An inline image: its media type, lower case, and its base64 text."""

    media_type: str
    data: str


def parse_data_uri(url: str, field: str) -> DataUri:
    """Take a `data:` URI (RFC 2397) apart; a missing media type is read as `image/png`.

    Raises `SamplingError` unless it is an image in base64. Whether the base64 text is a real image is left to the
    server, which knows what it can decode.
    """
    head, comma, data = url.partition(",")
    media_type, *parameters = head.removeprefix("data:").lower().split(";")
    media_type = media_type.strip() or "image/png"
    is_base64 = bool(parameters) and parameters[-1].strip() == "base64"
    if not comma or not data.strip() or not is_base64 or not media_type.startswith("image/"):
        raise invalid(field, url, "an inline image is data:image/png;base64,DATA (or another image type)")
    return DataUri(media_type=media_type, data=data)


def checked_image_url(part: ImagePart, field: str) -> str:
    """The image's URL, after the check that a `data:` URI is whole. Raises as `parse_data_uri` does."""
    if part.url.startswith("data:"):
        parse_data_uri(part.url, field)
    return part.url


def is_messages_wire(item: BackendToolCallItem) -> bool:
    """Whether a server's own call came from the messages API (`server_tool_use`, `web_search_tool_result`, ...).

    The other wire with such calls is responses. A server refuses the items of another wire, so an encoder replays
    its own and tells about foreign ones with `summary_line`.
    """
    return any(str(block.get("type", "")).endswith(("tool_use", "tool_result")) for block in item.wire)


def summary_line(item: BackendToolCallItem) -> str:
    """One line of text about a call that the server ran: `[backend web_search] search: owls`."""
    detail = _call_detail(item.wire[0]) if item.wire else ""
    return f"[backend {item.name}] {detail}".rstrip()


def _call_detail(wire: JsonObject) -> str:
    match wire:
        case {"action": {"type": "search", "query": str(query)}}:
            return f"search: {_cut(query)}"
        case {"action": {"type": "open_page" | "open", "url": str(url)}}:
            return f"open: {_cut(url)}"
        case {"action": {"type": "find_in_page" | "find", "pattern": str(pattern), "url": str(url)}}:
            return f'find "{_cut(pattern)}" in {_cut(url)}'
        case {"code": str(code)}:
            return _cut(code)
        case {"type": "custom_tool_call", "name": str(name), "input": str(given)}:
            return f"{name}({_cut(given)})"
        case {"input": {"query": str(query)}}:
            return f"search: {_cut(query)}"
        case {"input": {"code": str(code)}}:
            return _cut(code)
        case _:
            return ""


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SUMMARY_CHARS else line[:_SUMMARY_CHARS] + "..."
