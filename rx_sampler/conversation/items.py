"""The items that a conversation is made of."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeVar

from pydantic import AliasChoices, Field, field_validator

from .model import Frozen, JsonObject, Many, Sparse, json_object
from .structured import parsed_arguments

__all__ = [
    "AssistantItem",
    "BackendToolCallItem",
    "ImagePart",
    "Item",
    "OpaqueItem",
    "Part",
    "ReasoningEffort",
    "ReasoningItem",
    "RefusalItem",
    "ResponseItem",
    "SystemItem",
    "TextItem",
    "TextPart",
    "ToolCall",
    "ToolResultItem",
    "UserItem",
    "any_case",
]

M = TypeVar("M")
Class = type[M]
"""Items have a field of the name `type`, which hides the builtin inside of them."""

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_OLD_WORDS: Final = {"parent_agent_message": "agent_message"}
"""Reasons of synthetic items that were once called otherwise."""


def any_case(word: object) -> object:
    """A word of a closed set, in whatever case it was given."""
    return word.lower() if isinstance(word, str) else word


class TextPart(Frozen):
    """A piece of text in a user item or a tool result."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(Sparse):
    """An image by `http(s)` URL or `data:` URI; `detail` is how closely OpenAI's wires shall look at it."""

    _sparse: ClassVar = frozenset({"detail"})

    type: Literal["image"] = "image"
    url: str = Field(repr=False)
    detail: Literal["auto", "low", "high"] | None = None

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        if not url.startswith(("http://", "https://", "data:")):
            raise ValueError(f"an image url starts with https://, http:// or data:, not {url[:40]!r}")
        return url


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class SystemItem(Frozen):
    """Instructions to the model."""

    type: Literal["system"] = "system"
    content: str


class UserItem(Sparse):
    """What the user says: a str, or text and image parts in order.

    The rest are notes of the program that made it, kept with the item and sent to no server. `synthetic_reason` says
    why an item was not written by a person (`system_reminder`, `auto_continue`, ...), `prior_turn_interrupt` how the
    turn before was broken off (`mid_turn_abort`, ...); both sets of words are open. `prompt_index` counts the prompts
    of a session, `cwd_generation` its changes of directory.
    """

    _sparse: ClassVar = frozenset({"synthetic_reason", "prior_turn_interrupt", "prompt_index", "cwd_generation"})

    type: Literal["user"] = "user"
    content: Many[Part]
    synthetic_reason: str | None = None
    prior_turn_interrupt: str | None = None
    prompt_index: int | None = None
    cwd_generation: int | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _text_alone(cls, content: object) -> object:
        return ({"type": "text", "text": content},) if isinstance(content, str) else content

    @field_validator("synthetic_reason")
    @classmethod
    def _word_of_today(cls, reason: str | None) -> str | None:
        return _OLD_WORDS.get(reason, reason) if reason else reason


class TextItem(Frozen):
    """One block of text that the model wrote; `annotations` are its citations, as on the wire."""

    type: Literal["text"] = "text"
    text: str
    annotations: tuple[JsonObject, ...] = ()


class RefusalItem(Frozen):
    """The model's words where it declined to answer."""

    type: Literal["refusal"] = "refusal"
    text: str


class ReasoningItem(Frozen):
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


class ToolCall(Sparse):
    """A call of one of the client's own tools.

    `arguments` is the raw string that streamed: JSON for a function (`"{}"` when it takes none), free text for a
    custom tool. `complete` is False where the string is cut or not a JSON object: such a call must not be run.
    `extra_content` is what a server of chat completions put beside the call and wants to see again: Gemini's signature
    of the thought that led to it.
    """

    _sparse: ClassVar = frozenset({"extra_content"})

    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    arguments: str
    complete: bool = True
    custom: bool = False
    extra_content: JsonObject = Field(default={}, repr=False)

    @property
    def arguments_json(self) -> JsonObject | None:
        """The arguments as a dict; None if they are not one JSON object."""
        return json_object(self.arguments)

    def parsed(self, model: Class[M]) -> M:
        """The arguments as `model`: a pydantic model, a dataclass, a TypedDict, whatever a `TypeAdapter` takes.

        Raises `SamplingError` of kind `serialization` that names the call, the field and what would be right, and for
        a call that was cut.
        """
        return parsed_arguments(model, self.name, self.arguments, complete=self.complete or self.custom)


class BackendToolCallItem(Frozen):
    """A tool that the server ran by itself (web search, code interpreter, MCP, ...).

    `wire` is what the server sent about it, in order (the call, then its result where that is an object of its own).
    """

    type: Literal["backend_tool_call"] = "backend_tool_call"
    call_id: str
    name: str
    wire: tuple[JsonObject, ...] = Field(default=(), repr=False)


class OpaqueItem(Sparse):
    """An item of a kind that has no meaning here (an approval request, a compaction), kept to be sent back.

    It goes back on the wire format that it came from, `backend`, alone; on either that has such items where that is
    not known.
    """

    _sparse: ClassVar = frozenset({"backend"})

    type: Literal["opaque"] = "opaque"
    wire: JsonObject = Field(repr=False)
    backend: str | None = None


class AssistantItem(Sparse):
    """A whole assistant turn in one item, for histories that were not sampled by this library.

    `model_id`, `model_fingerprint` (`system_fingerprint` on the wire) and `reasoning_effort` say what made it; they are
    sent to no server.
    """

    _sparse: ClassVar = frozenset({"model_id", "model_fingerprint", "reasoning_effort"})

    type: Literal["assistant"] = "assistant"
    content: str = ""
    tool_calls: Many[ToolCall] = ()
    model_id: str | None = None
    model_fingerprint: str | None = Field(
        default=None, validation_alias=AliasChoices("model_fingerprint", "system_fingerprint")
    )
    reasoning_effort: ReasoningEffort | None = None

    @field_validator("model_fingerprint")
    @classmethod
    def _none_if_empty(cls, fingerprint: str | None) -> str | None:
        return fingerprint or None

    @field_validator("reasoning_effort", mode="before")
    @classmethod
    def _effort_in_any_case(cls, effort: object) -> object:
        return any_case(effort)


class ToolResultItem(Sparse):
    """The outcome of a tool call; `images` follow the text where the backend can carry them."""

    _sparse: ClassVar = frozenset({"images"})

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
