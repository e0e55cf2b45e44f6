"""What is asked and what is answered: requests, responses and the items that both are made of.

Everything here is a frozen pydantic model: validated at construction (from keyword arguments, dicts or JSON),
compared by value, written with `model_dump_json()` and read back with `model_validate_json()`. The same items stand
in a response and in the next request, so that a turn can be sent back exactly as it came:
`SamplingRequest(items=[*request.items, *response.items, next_user_item])`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, field_validator

__all__ = [
    "AssistantItem",
    "BackendToolCallItem",
    "FunctionChoice",
    "HostedTool",
    "ImagePart",
    "Item",
    "JsonObject",
    "OpaqueItem",
    "ReasoningEffort",
    "ReasoningItem",
    "RefusalItem",
    "ResponseItem",
    "SamplingRequest",
    "SamplingResponse",
    "StopReason",
    "SystemItem",
    "TextItem",
    "TextPart",
    "ToolCall",
    "ToolResultItem",
    "ToolSpec",
    "Usage",
    "UserItem",
]

JsonObject = dict[str, Any]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
StopReason = Literal["stop", "length", "tool_calls", "content_filter"]


class _Frozen(BaseModel):
    # Built at first use: the schemas of all models cost as much as the import of a library.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def json_object(text: str) -> JsonObject | None:
    """The JSON object that `text` is, by RFC 8259 (no NaN, no Infinity); None if it is none."""
    try:
        value: object = json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _no_json(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


class TextPart(_Frozen):
    """A piece of text in a user item or a tool result."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(_Frozen):
    """An image by `http(s)` URL or `data:` URI."""

    type: Literal["image"] = "image"
    url: str = Field(repr=False)

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        if not url.startswith(("http://", "https://", "data:")):
            raise ValueError(f"an image url starts with https://, http:// or data:, not {url[:40]!r}")
        return url


T = TypeVar("T")
Many = Annotated[Sequence[T], AfterValidator(tuple)]
"""A field that is given as any sequence and held as a tuple."""

Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class SystemItem(_Frozen):
    """Instructions to the model."""

    type: Literal["system"] = "system"
    content: str


class UserItem(_Frozen):
    """What the user says: a str, or text and image parts in order."""

    type: Literal["user"] = "user"
    content: Many[Part]

    @field_validator("content", mode="before")
    @classmethod
    def _text_alone(cls, content: object) -> object:
        return ({"type": "text", "text": content},) if isinstance(content, str) else content


class TextItem(_Frozen):
    """One block of text that the model wrote; `annotations` are its citations, as on the wire."""

    type: Literal["text"] = "text"
    text: str
    annotations: tuple[JsonObject, ...] = ()


class RefusalItem(_Frozen):
    """The model's words where it declined to answer."""

    type: Literal["refusal"] = "refusal"
    text: str


class ReasoningItem(_Frozen):
    """One block of reasoning and what the provider needs to see again.

    `text` is what streamed on the reasoning channel. `signature` (messages), `encrypted_content` (responses) and
    `redacted_data` (messages, a block without text) are opaque and go back unchanged; `summary` and `content` keep
    the parts of a responses item apart, `details` the `reasoning_details` objects of OpenRouter.
    """

    type: Literal["reasoning"] = "reasoning"
    text: str = ""
    id: str | None = None
    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    signature: str | None = Field(default=None, repr=False)
    encrypted_content: str | None = Field(default=None, repr=False)
    redacted_data: str | None = Field(default=None, repr=False)
    details: tuple[JsonObject, ...] = ()


class ToolCall(_Frozen):
    """A call of one of the client's own tools.

    `arguments` is the raw string that streamed: JSON for a function (`"{}"` when it takes none), free text for a
    custom tool. `complete` is False where the string is cut or not a JSON object: such a call must not be run.
    """

    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    arguments: str
    complete: bool = True
    custom: bool = False

    @property
    def arguments_json(self) -> JsonObject | None:
        """The arguments as a dict; None if they are not one JSON object."""
        return json_object(self.arguments)


class BackendToolCallItem(_Frozen):
    """A tool that the server ran by itself (web search, code interpreter, MCP, ...).

    `wire` is what the server sent about it, in order (the call, then its result where that is an object of its own).
    """

    type: Literal["backend_tool_call"] = "backend_tool_call"
    call_id: str
    name: str
    wire: tuple[JsonObject, ...] = Field(default=(), repr=False)


class OpaqueItem(_Frozen):
    """An item of a kind that has no meaning here (an approval request, a compaction), kept to be sent back."""

    type: Literal["opaque"] = "opaque"
    wire: JsonObject = Field(repr=False)


class AssistantItem(_Frozen):
    """A whole assistant turn in one item, for histories that were not sampled by this library."""

    type: Literal["assistant"] = "assistant"
    content: str = ""
    tool_calls: Many[ToolCall] = ()


class ToolResultItem(_Frozen):
    """The outcome of a tool call; `images` follow the text where the backend can carry them."""

    type: Literal["tool_result"] = "tool_result"
    tool_call_id: str
    content: str
    images: Many[ImagePart] = ()
    is_error: bool = False


ResponseItem = Annotated[
    TextItem | RefusalItem | ReasoningItem | ToolCall | BackendToolCallItem | OpaqueItem, Field(discriminator="type")
]
Item = Annotated[
    SystemItem
    | UserItem
    | AssistantItem
    | ToolResultItem
    | TextItem
    | RefusalItem
    | ReasoningItem
    | ToolCall
    | BackendToolCallItem
    | OpaqueItem,
    Field(discriminator="type"),
]


class ToolSpec(_Frozen):
    """A tool of the client's: `parameters` is the JSON Schema of its arguments."""

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: JsonObject = Field(default_factory=lambda: {"type": "object", "properties": {}})


class HostedTool(BaseModel):
    """A tool that the server runs, such as `web_search`; further keys go to the wire as they are."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)
    type: str = Field(min_length=1)


class FunctionChoice(_Frozen):
    """A tool choice that forces one function."""

    name: str = Field(min_length=1)


class SamplingRequest(_Frozen):
    """One question to a model, independent of the backend that will carry it.

    A field left at None is not sent, except where the backend demands a value. `extra_body` and `extra_headers` win
    over everything else, so that no provider feature is out of reach.
    """

    items: Many[Item] = Field(min_length=1)
    tools: Many[ToolSpec] = ()
    hosted_tools: Many[HostedTool] = ()
    tool_choice: Literal["auto", "none", "required"] | FunctionChoice | None = None
    model: str | None = None
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_output_tokens: int | None = Field(default=None, ge=1)
    reasoning_effort: ReasoningEffort | None = None
    json_schema: JsonObject | None = None
    prompt_cache_key: str | None = None
    stop: Many[str] = ()
    n: int | None = Field(default=None, ge=1)
    metadata: dict[str, str] = {}
    extra_body: dict[str, JsonValue] = {}
    extra_headers: dict[str, str] = Field(default={}, repr=False)

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop(cls, stop: object) -> object:
        return (stop,) if isinstance(stop, str) else stop

    @classmethod
    def of(cls, question: str | Sequence[Item] | SamplingRequest) -> SamplingRequest:
        """A request from a str (one user message), from items, or from a request (returned as it is)."""
        if isinstance(question, SamplingRequest):
            return question
        if isinstance(question, str):
            return cls(items=(UserItem(content=(TextPart(text=question),)),))
        listed: Any = question  # whatever it is, pydantic says what is wrong with it
        if isinstance(question, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without types
            listed = tuple(question)
        return cls(items=listed)


class Usage(_Frozen):
    """Token counts, normalised over the providers; None where the provider does not say."""

    input_tokens: int = 0
    """The whole prompt, cached parts included."""
    output_tokens: int = 0
    """Everything generated, reasoning included."""
    total_tokens: int = 0
    cached_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    wire: JsonObject = Field(default={}, repr=False)
    """The usage object as the provider sent it, so that a bill can be redone."""


class SamplingResponse(_Frozen):
    """What the model answered: ordered items, and views on them.

    `text` and `reasoning` equal the `ChannelToken`s of choice 0 joined, per channel.
    """

    items: tuple[ResponseItem, ...] = ()
    stop_reason: StopReason | None = None
    """Why the answer ended; None for a partial response, which did not come to its end."""
    raw_stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_message: str | None = None
    """The provider's explanation of the stop, where it gives one."""
    usage: Usage | None = None
    cost_usd: float | None = None
    model: str | None = None
    message_id: str | None = None
    doom_loop_triggers: tuple[str, ...] = ()
    extras: JsonObject = Field(default={}, repr=False)
    """What the provider sent beside the answer (`citations`, `service_tier`, ...), last value of each."""

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, TextItem))

    @property
    def reasoning(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, ReasoningItem))

    @property
    def refusal(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, RefusalItem))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(item for item in self.items if isinstance(item, ToolCall))

    @property
    def backend_tool_calls(self) -> tuple[BackendToolCallItem, ...]:
        return tuple(item for item in self.items if isinstance(item, BackendToolCallItem))

    @property
    def annotations(self) -> tuple[JsonObject, ...]:
        return tuple(a for item in self.items if isinstance(item, TextItem) for a in item.annotations)

    def __repr__(self) -> str:
        calls = "".join(f", {call.name}(...)" for call in self.tool_calls[:8])
        return f"SamplingResponse({_start(self.text)!r}{calls}, stop_reason={self.stop_reason!r}, usage={self.usage!r})"

    __str__ = __repr__


def _start(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}... ({len(text)} characters)"
