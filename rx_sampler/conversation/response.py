"""What is answered."""

from __future__ import annotations

from typing import Literal, TypeVar

from pydantic import Field

from rx_sampler.errors import SamplingError

from .items import BackendToolCallItem, ReasoningItem, RefusalItem, ResponseItem, TextItem, ToolCall
from .model import Frozen, JsonObject
from .structured import parsed_text

__all__ = ["SamplingResponse", "StopReason", "Usage"]

M = TypeVar("M")

StopReason = Literal["stop", "length", "tool_calls", "content_filter"]


class Usage(Frozen):
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


class SamplingResponse(Frozen):
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

    def parsed(self, model: type[M]) -> M:
        """The text as `model`: a pydantic model, a dataclass, a TypedDict, whatever a `TypeAdapter` takes.

        A text that is one fenced block of Markdown counts as what the fence holds. Raises `SamplingError` of kind
        `serialization` (`code` is `invalid_output`, `partial` this response) that names each field and what would be
        right; or says what came instead: a refusal, tool calls, an answer cut at the token limit.
        """
        try:
            return parsed_text(model, self.text, instead=self._instead_of_text())
        except SamplingError as error:
            error.partial = self
            raise

    def _instead_of_text(self) -> str | None:
        if self.refusal and not self.text:
            return f"the model refused: {self.refusal}"
        if self.stop_reason == "content_filter":
            return "a content filter ended the answer"
        if self.stop_reason == "length":
            return "the answer was cut at the token limit"
        if not self.text:
            names = ", ".join(call.name for call in self.tool_calls)
            return f"the answer has no text, it calls {names}" if names else "the answer has no text"
        return None

    def __repr__(self) -> str:
        calls = "".join(f", {call.name}(...)" for call in self.tool_calls[:8])
        return f"SamplingResponse({_start(self.text)!r}{calls}, stop_reason={self.stop_reason!r}, usage={self.usage!r})"

    __str__ = __repr__


def _start(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}... ({len(text)} characters)"
