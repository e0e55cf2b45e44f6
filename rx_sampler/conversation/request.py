"""What is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, field_validator

from rx_sampler.functions import PythonFunction

from .items import (
    AssistantItem,
    ImagePart,
    Item,
    ReasoningEffort,
    SystemItem,
    TextPart,
    ToolCall,
    ToolResultItem,
    UserItem,
    any_case,
)
from .model import Frozen, JsonObject, Many
from .response import SamplingResponse
from .structured import output_schema
from .tools import AnyHostedTool, FunctionChoice, HostedTool, ToolSpec, WebSearch, XSearch

__all__ = ["ReasoningSummary", "SamplingRequest"]

ReasoningSummary = Literal["auto", "concise", "detailed", "none"]

KEEP: Any = object()
"""Stands for "as it was", which None, no tool, cannot."""


class SamplingRequest(Frozen):
    """One question to a model, independent of the backend that will carry it.

    A field left at None is not sent, except where the backend demands a value. `extra_body` and `extra_headers` win
    over everything else, so that no provider feature is out of reach.

    * `conversation_id`: names the conversation over its turns; the cache key where `prompt_cache_key` is None.
    * `parallel_tool_calls`: False for one call at a time, on servers that obey.
    * `store`, `reasoning_summary`, `cache_breakpoints`: as in `SamplerConfig`, for this request.
    """

    items: Many[Item] = Field(min_length=1)
    tools: Many[ToolSpec] = ()
    hosted_tools: Many[AnyHostedTool] = ()
    tool_choice: Literal["auto", "none", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    model: str | None = None
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_output_tokens: int | None = Field(default=None, ge=1)
    reasoning_effort: ReasoningEffort | None = None
    reasoning_summary: ReasoningSummary | None = None
    json_schema: JsonObject | None = None
    conversation_id: str | None = None
    prompt_cache_key: str | None = None
    cache_breakpoints: bool | None = None
    store: bool | None = None
    stop: Many[str] = ()
    n: int | None = Field(default=None, ge=1)
    metadata: dict[str, str] = Field(default={})
    extra_body: dict[str, JsonValue] = Field(default={})
    extra_headers: dict[str, str] = Field(default={}, repr=False)

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop(cls, stop: object) -> object:
        return (stop,) if isinstance(stop, str) else stop

    @field_validator("reasoning_effort", "reasoning_summary", mode="before")
    @classmethod
    def _in_any_case(cls, word: object) -> object:
        return any_case(word)

    # -- making one

    @classmethod
    def of(cls, question: str | Sequence[Item] | SamplingRequest) -> SamplingRequest:
        """A request from a str (one user message), from items, or from a request (returned as it is)."""
        if isinstance(question, SamplingRequest):
            return question
        if isinstance(question, str):
            return cls.user(question)
        listed: Any = question  # whatever it is, pydantic says what is wrong with it
        if isinstance(question, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without types
            listed = tuple(question)
        return cls(items=listed)

    @classmethod
    def user(cls, *parts: str | TextPart | ImagePart, system: str | None = None) -> Self:
        """A request of one user message: `SamplingRequest.user("What is this?", ImagePart(url=...))`.

        `system` puts instructions before it.
        """
        said = UserItem(content=[TextPart(text=part) if isinstance(part, str) else part for part in parts])
        return cls(items=(said,) if system is None else (SystemItem(content=system), said))

    # -- one from another

    def replaced(self, **fields: Any) -> Self:
        """The request with other values in some fields, validated as at construction."""
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set} | fields)

    def with_tools(self, *tools: ToolSpec | PythonFunction | Callable[..., Any]) -> Self:
        """The request with more tools of the client's; a Python function is one by its hints and docstring.

        A tool takes the place of an earlier one of its name. Raises ValueError for a function without a schema.
        """
        named = {tool.name: tool for tool in self.tools}
        named |= {tool.name: tool for tool in map(ToolSpec.of, tools)}
        return self.model_copy(update={"tools": tuple(named.values())})

    def with_hosted_tools(
        self, *tools: HostedTool, web_search: WebSearch | None = KEEP, x_search: XSearch | None = KEEP
    ) -> Self:
        """The request with more tools that the server runs, and with the searches as given: None takes one away.

        A search that is not given stays as it was, and a tool that is there already is not added again.
        """
        searches = {"web_search": web_search, "x_search": x_search}
        changed = {kind: given for kind, given in searches.items() if given is not KEEP}
        kept = [changed.pop(tool.type, tool) for tool in self.hosted_tools]
        added = [tool for tool in (*tools, *changed.values()) if tool not in kept]
        return self.replaced(hosted_tools=tuple(tool for tool in (*kept, *added) if tool is not None))

    def with_output(self, model: Any) -> Self:
        """The request for an answer that is JSON of this type, to be read with `response.parsed(model)`.

        `model` is whatever pydantic's `TypeAdapter` takes, as long as its JSON is an object. Sets `json_schema` to its
        schema in the strict form that servers want: see `output_schema`. Raises ValueError for another type.
        """
        return self.model_copy(update={"json_schema": output_schema(model)})

    def with_items(self, *more: Item | str) -> Self:
        """The conversation with more behind it; a str is what the user says.

        Raises ValueError for a result of a call that nobody made.
        """
        come = (UserItem(content=(TextPart(text=item),)) if isinstance(item, str) else item for item in more)
        items = (*self.items, *come)
        results = [item.tool_call_id for item in more if isinstance(item, ToolResultItem)]
        if results:
            made = {call.id for item in items for call in _calls(item)}
            for call_id in results:
                if call_id not in made:
                    raise ValueError(f"tool_call_id {call_id!r} is the id of no call: made were {sorted(made)[:8]}")
        return self.model_copy(update={"items": items})

    def then(self, response: SamplingResponse, *more: Item | str) -> Self:
        """The next turn: this conversation, what was answered, and what comes now.

        `more` are the results of the answer's tool calls, what the user says next (a str is a user message), or any
        items. What the provider needs to see again goes along, for it is in the items of the response. A call without
        a result is told to the model as one that was not run.

        Raises ValueError for a result of a call that nobody made.
        """
        return self.with_items(*response.items, *more)


def _calls(item: Item) -> Sequence[ToolCall]:
    if isinstance(item, ToolCall):
        return (item,)
    return item.tool_calls if isinstance(item, AssistantItem) else ()
