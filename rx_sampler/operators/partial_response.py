"""The response that events amount to, where no wire said what it is."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rx_sampler.conversation import (
    BackendToolCallItem,
    JsonObject,
    ReasoningItem,
    RefusalItem,
    ResponseItem,
    SamplingResponse,
    TextItem,
    ToolCall,
)
from rx_sampler.events import (
    REASONING,
    REFUSAL,
    TEXT,
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallStarted,
    ChannelToken,
    DoomLoopSignals,
    ModelMetadata,
    ReasoningCompleted,
    ResponseStarted,
    SamplingEvent,
    ToolCallDelta,
)
from rx_sampler.metrics import LatencyMetrics, measure

__all__ = ["measured", "partial_response"]


def partial_response(events: Iterable[SamplingEvent]) -> SamplingResponse:
    """What the events of one attempt show of its answer: choice 0, in the order of appearance, cut where they end.

    No call counts as complete, and what events do not carry is missing: usage, stop reason, ids of items. The
    signature of reasoning stands in `signature`, whatever its wire calls it.
    """
    draft = _Draft()
    for event in events:
        draft.add(event)
    return draft.response()


def measured(
    events: Sequence[SamplingEvent],
    *,
    submitted_at: float,
    started_at: float | None,
    ended_at: float,
    attempts: int,
    output_tokens: int | None = None,
) -> LatencyMetrics:
    """How long it took, by the tokens among the events of one attempt; times in seconds."""
    tokens = [event for event in events if isinstance(event, ChannelToken)]
    texts = (token.ts for token in tokens if token.channel == TEXT and token.choice == 0)
    return measure(
        submitted_at=submitted_at,
        started_at=started_at,
        ended_at=ended_at,
        stamps=array("d", [token.ts for token in tokens]),
        first_text_at=next(texts, None),
        output_tokens=output_tokens,
        attempts=attempts,
    )


@dataclass(slots=True)
class _Words:
    """A block of a channel."""

    channel: str
    pieces: list[str] = field(default_factory=list[str])
    annotations: list[JsonObject] = field(default_factory=list[JsonObject])
    signature: str | None = None

    def item(self) -> ResponseItem | None:
        text = "".join(self.pieces)
        if self.channel == TEXT:
            return TextItem(text=text, annotations=tuple(self.annotations))
        if self.channel == REASONING:
            return ReasoningItem(text=text, signature=self.signature)
        return RefusalItem(text=text) if self.channel == REFUSAL else None


@dataclass(slots=True)
class _Call:
    """A call of a client tool."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])

    def item(self) -> ResponseItem:
        return ToolCall(id=self.id, name=self.name, arguments="".join(self.pieces), complete=False)


@dataclass(slots=True)
class _BackendCall:
    """A call of a tool of the server's."""

    call_id: str
    name: str
    wire: tuple[JsonObject, ...] = ()

    def item(self) -> ResponseItem:
        return BackendToolCallItem(call_id=self.call_id, name=self.name, wire=self.wire)


class _Draft:
    def __init__(self) -> None:
        self._blocks: list[_Words | _Call | _BackendCall] = []
        self._newest: dict[str, _Words] = {}
        self._calls: dict[int, _Call] = {}
        self._backend_calls: dict[str, _BackendCall] = {}
        self._model: str | None = None
        self._message_id: str | None = None
        self._triggers: tuple[str, ...] = ()

    def add(self, event: SamplingEvent) -> None:
        match event:
            case ChannelToken(choice=0):
                self._words(event.channel).pieces.append(event.text)
            case ToolCallDelta(choice=0):
                self._call(event)
            case AnnotationAdded():
                (self._newest.get(TEXT) or self._words(TEXT)).annotations.append(event.annotation)
            case ReasoningCompleted():
                block = self._newest.get(REASONING)
                if block is None or block.signature is not None:
                    block = self._words(REASONING)
                block.signature = event.signature
            case BackendToolCallStarted():
                self._backend_call(event.call_id, event.name)
            case BackendToolCallCompleted():
                call = self._backend_call(event.call_id, event.name)
                if event.result is not None:
                    call.wire = (*call.wire, event.result)
            case ResponseStarted() | ModelMetadata():
                self._model = event.model or self._model
                if isinstance(event, ResponseStarted):
                    self._message_id = event.message_id
            case DoomLoopSignals():
                self._triggers = event.triggers
            case _:
                pass

    def response(self) -> SamplingResponse:
        items = (block.item() for block in self._blocks)
        return SamplingResponse(
            items=tuple(item for item in items if item is not None),
            model=self._model,
            message_id=self._message_id,
            doom_loop_triggers=self._triggers,
        )

    def _words(self, channel: str) -> _Words:
        """The block of the channel that is open; a signature closes one, as does anything else that comes."""
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, _Words) and last.channel == channel and last.signature is None:
            return last
        block = self._newest[channel] = _Words(channel)
        self._blocks.append(block)
        return block

    def _call(self, event: ToolCallDelta) -> None:
        call = self._calls.get(event.tool_index)
        if call is None:
            call = self._calls[event.tool_index] = _Call()
            self._blocks.append(call)
        if event.id is not None:
            call.id = event.id
        if event.name is not None:
            call.name = event.name
        if event.arguments_delta:
            call.pieces.append(event.arguments_delta)

    def _backend_call(self, call_id: str, name: str) -> _BackendCall:
        call = self._backend_calls.get(call_id)
        if call is None:
            call = self._backend_calls[call_id] = _BackendCall(call_id, name)
            self._blocks.append(call)
        return call
