"""What the three request encoders share: resolved settings, tools, history helpers, and JSON as bytes.

An encoder turns a `SamplingRequest` into the dict that becomes the JSON body. It is pure and deterministic: equal
requests give equal bytes, with keys in a fixed order. The dict holds parts of the request itself (schemas, wire
items), so read it, do not change it. Whatever cannot be sent is a `SamplingError` of kind `invalid_request`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, cast

from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import (
    BackendToolCallItem,
    HostedTool,
    ImagePart,
    JsonObject,
    ReasoningEffort,
    ReasoningItem,
    SamplingRequest,
    ToolCall,
    ToolSpec,
    WebSearch,
    XSearch,
    json_object,
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
    "has_choice",
    "hosted_tools",
    "invalid",
    "is_messages_wire",
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
_LARGE_BODY_CHARS: Final = 1024 * 1024
_LARGE_PIECE_CHARS: Final = 64 * 1024


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

    Memory: the result, and for a while the longest string in it twice over. Written in one go, a conversation with
    images would be there three times.
    """
    chars = _rough_chars(body)
    out = BytesIO()
    if is_large := chars >= _LARGE_BODY_CHARS:
        # Growing by and by takes an eighth more than it needs.
        out.seek(chars)
        out.write(b" ")
        out.seek(0)
    for number, (key, value) in enumerate(body.items()):
        out.write(b"," if number else b"{")
        try:
            out.write(_utf8(_dumps(key)) + b":")
            for piece in _pieces(value) if is_large else (_dumps(value),):
                out.write(_utf8(piece))
        except (TypeError, ValueError, RecursionError) as error:
            message = f"request body field {key!r} is not JSON ({error}): use objects, arrays, strings, finite numbers"
            raise SamplingError.of(SamplingErrorKind.INVALID_REQUEST, message) from error
    out.write(b"}" if body else b"{}")
    out.truncate()
    return out.getvalue()


_dumps: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _pieces(value: object) -> Iterator[str]:
    """The JSON of a value, cut wherever it is long between two of its parts."""
    if isinstance(value, str) or _rough_chars(value) < _LARGE_PIECE_CHARS:
        yield _dumps(value)
    elif isinstance(value, list):
        for number, element in enumerate(cast("list[object]", value)):
            yield "," if number else "["
            yield from _pieces(element)
        yield "]"
    else:
        for number, (key, inner) in enumerate(cast("dict[object, object]", value).items()):
            yield _dumps({key: None})[:-5].replace("{", "," if number else "{", 1)
            yield from _pieces(inner)
        yield "}"


def _rough_chars(value: Any, depth: int = 8) -> int:
    """About how long the JSON of a value is, as far as `depth` levels tell: it may hold itself."""
    kind = value.__class__
    if kind is str:
        return len(value) + 3
    if depth and kind is dict:
        return sum([_rough_chars(inner, depth - 1) for inner in value.values()]) + 15 * len(value)
    return sum([_rough_chars(one, depth - 1) for one in value]) if depth and kind is list else 8


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # UTF-16 joins what are two halves of one character and only replaces what is really alone.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


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


def hosted_tools(
    request: SamplingRequest,
    *,
    web_search: Callable[[WebSearch], JsonObject] | None = None,
    x_search: Callable[[XSearch], JsonObject] | None = None,
) -> list[JsonObject]:
    """The hosted tools as the wire takes them: `type` and every further key as given.

    `web_search` and `x_search` say how the wire writes those; where it has none they are left out.
    """
    wire: list[JsonObject] = []
    for tool in request.hosted_tools:
        match tool:
            case HostedTool():
                wire.append(tool.model_dump())
            case WebSearch():
                wire += [web_search(tool)] if web_search else []
            case XSearch():
                wire += [x_search(tool)] if x_search else []
    return wire


def function_tools(request: SamplingRequest, hosted: Iterable[Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    """The client's tools, without those whose name a hosted tool claims: names must be unique, and hosted wins."""
    claimed = {name for tool in hosted for name in (tool.get("type"), tool.get("name"))}
    return tuple(tool for tool in request.tools if tool.name not in claimed)


def has_choice(request: SamplingRequest, tools: Sequence[JsonObject]) -> bool:
    """Whether the body will hold tools, without which a tool choice is an error on the wire."""
    return bool(tools or request.extra_body.get("tools"))


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
    if media_type == "image/jpg":  # what many write, and no registry knows
        media_type = "image/jpeg"
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
