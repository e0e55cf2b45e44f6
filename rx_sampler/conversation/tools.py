"""The tools that a model may call: the client's, and those that a server runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from rx_sampler.functions import PythonFunction

from .model import Frozen, JsonObject, Many

__all__ = ["AnyHostedTool", "FunctionChoice", "HostedTool", "ToolSpec", "WebSearch", "XSearch"]

_MOST_DOMAINS: Final = 5
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


class ToolSpec(Frozen):
    """A tool of the client's: `parameters` is the JSON Schema of its arguments."""

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: JsonObject = Field(default_factory=lambda: {"type": "object", "properties": {}})

    @classmethod
    def of(cls, tool: ToolSpec | PythonFunction | Callable[..., Any]) -> ToolSpec:
        """The tool that a Python function is, by its name, docstring and type hints; a `ToolSpec` as it is.

        `PythonFunction(function, name=...)` is one by another name. Raises as `PythonFunction` does for a function that
        no schema can tell (positional-only parameters, unknown types).
        """
        if isinstance(tool, ToolSpec):
            return tool
        function = tool if isinstance(tool, PythonFunction) else PythonFunction(tool)
        return cls(name=function.name, description=function.description, parameters=function.parameters)


class HostedTool(BaseModel):
    """A tool that the server runs, such as `web_search`; further keys go to the wire as they are."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)
    type: str = Field(min_length=1)


class WebSearch(Frozen):
    """A search of the web that the server runs, on whatever wire has one, in that wire's own words.

    Either `allowed_domains` or `excluded_domains`, at most five; empty ones set no bound.
    """

    type: Literal["web_search"] = "web_search"
    allowed_domains: Many[str] = Field(default=(), max_length=_MOST_DOMAINS)
    excluded_domains: Many[str] = Field(default=(), max_length=_MOST_DOMAINS)

    @model_validator(mode="after")
    def _one_list(self) -> Self:
        if self.allowed_domains and self.excluded_domains:
            raise ValueError("give allowed_domains or excluded_domains, not both")
        return self


class XSearch(Frozen):
    """A search on X that xAI's servers run; dates are `YYYY-MM-DD`, the first included, the second not."""

    type: Literal["x_search"] = "x_search"
    from_date: str | None = None
    to_date: str | None = None

    @field_validator("from_date", "to_date")
    @classmethod
    def _a_date(cls, given: str | None) -> str | None:
        if given is not None:
            if not _DATE.fullmatch(given):
                raise ValueError(f"a date is YYYY-MM-DD, such as 2026-03-05, not {given[:40]!r}")
            date.fromisoformat(given)
        return given

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.from_date and self.to_date and self.from_date > self.to_date:
            raise ValueError(f"from_date {self.from_date} comes after to_date {self.to_date}")
        return self


_OWN_KEYS: Final = {
    "web_search": WebSearch.model_fields.keys() - {"type"},
    "x_search": XSearch.model_fields.keys() - {"type"},
}


def _hosted_kind(tool: object) -> str:
    """Which model a hosted tool is read as: a known one if it has that one's keys, and no others, beside the type."""
    if isinstance(tool, WebSearch | XSearch):
        return tool.type
    if isinstance(tool, Mapping):
        keys = cast("Mapping[str, object]", tool)
        kind = keys.get("type")
        if isinstance(kind, str) and _OWN_KEYS.get(kind, frozenset[str]()) & keys.keys():
            return kind
    return "other"


AnyHostedTool = Annotated[
    Annotated[WebSearch, Tag("web_search")] | Annotated[XSearch, Tag("x_search")] | Annotated[HostedTool, Tag("other")],
    Discriminator(_hosted_kind),
]
"""A hosted tool; in JSON, `web_search` and `x_search` with keys of `WebSearch` and `XSearch` are those."""


class FunctionChoice(Frozen):
    """A tool choice that forces one function."""

    name: str = Field(min_length=1)
