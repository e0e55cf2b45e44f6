"""The rules of the event grammar, read event by event."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from rx_sampler.errors import SamplingErrorKind
from rx_sampler.events import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallStarted,
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    FirstToken,
    ImagesStripped,
    ModelMetadata,
    ReasoningCompleted,
    ResponseStarted,
    Retrying,
    SamplingEvent,
    StreamStarted,
    ToolCallDelta,
    ToolResultAdded,
)

from .streamed import Streamed

__all__ = ["EventGrammar"]

_BUILT_IN: Final = frozenset({"chat_completions", "responses", "messages"})


class EventGrammar:
    """Reads the events of one request, one by one: `read` and `finish` say what is wrong, None if nothing is.

    After something was wrong, what is said of later events means little.
    """

    def __init__(self, *, backend: str | None = None, first_attempt: int = 1) -> None:
        self.ended = False
        """The terminal event came."""
        self._backend = backend
        self._request_id: str | None = None
        self._ts = -math.inf
        self._spent: dict[str, int] = {"transport": 0, "rate_limit": 0, "doom_loop": 0}
        self._limited_in_row = 0
        self._stripped = False
        self._last: SamplingEvent | None = None
        self._turn: int | None = None
        self._results: set[str] = set()
        self._read_kind: Mapping[type[Any], Callable[[Any], str | None]] = {
            StreamStarted: self._stream_started,
            ModelMetadata: self._model_metadata,
            ResponseStarted: self._response_started,
            FirstToken: self._first_token,
            ChannelToken: self._token,
            ReasoningCompleted: self._reasoning_completed,
            ToolCallDelta: self._tool_delta,
            ToolResultAdded: self._tool_result,
            BackendToolCallStarted: self._hosted_started,
            BackendToolCallCompleted: self._hosted_completed,
            AnnotationAdded: self._annotation,
            ImagesStripped: self._images,
            DoomLoopSignals: self._signals,
            Retrying: self._retrying,
            Completed: self._end,
            Failed: self._end,
        }
        self._begin_attempt(first_attempt)

    def read(self, event: SamplingEvent) -> str | None:
        """What is wrong with this event, behind those before it."""
        if self.ended:
            return "comes after the terminal event"
        if self._request_id not in (None, event.request_id):
            return f"is of request {event.request_id!r}, the others are of {self._request_id!r}"
        if self._request_id is not None and event.turn != self._turn:
            return f"is of turn {event.turn}, the others are of {self._turn}"
        self._request_id, self._turn = event.request_id, event.turn
        if not self._ts <= event.ts < math.inf:
            return f"ts {event.ts} is before {self._ts}"
        self._ts = event.ts
        if event.attempt != self._attempt:
            return f"attempt is {event.attempt}, expected {self._attempt}"
        if self._announced is not None and not isinstance(event, ChannelToken | Failed):
            return "comes between first_token and its token"
        wrong = self._read_kind[event.__class__](event)
        self._last = event
        return wrong

    def finish(self) -> str | None:
        """What is missing at the end."""
        if self.ended:
            return None
        return f"no terminal event, the last is {self._last.kind if self._last is not None else 'none'}"

    def _begin_attempt(self, number: int) -> None:
        self._attempt = number
        self._streamed = Streamed()
        self._announced: FirstToken | None = None
        """A first token whose token has not come."""
        self._closing: str | None = None
        """What was said that only a retry or the end may follow."""

    # -- the frame of an attempt

    def _stream_started(self, event: StreamStarted) -> str | None:
        if self._streamed.started is not None:
            return "is the attempt's second"
        if self._closing is not None:
            return f"follows {self._closing}"
        if event.submitted_at is not None and event.submitted_at > event.ts:
            return f"submitted_at {event.submitted_at} is after ts {event.ts}"
        self._streamed.started = event
        return None

    def _model_metadata(self, _event: ModelMetadata) -> str | None:
        return None if isinstance(self._last, StreamStarted) else "does not stand directly behind stream_started"

    def _response_started(self, event: ResponseStarted) -> str | None:
        if (wrong := self._misplaced()) is not None:
            return wrong
        if self._streamed.named is not None:
            return "is the attempt's second"
        # Some servers name the answer late; those that keep to their protocol begin with it.
        if self._backend == "messages" and not isinstance(self._last, StreamStarted | ModelMetadata):
            return "does not stand directly behind stream_started"
        if self._backend in _BUILT_IN and self._streamed.has_content:
            return "comes after content"
        self._streamed.named = event
        return None

    def _misplaced(self) -> str | None:
        if self._closing is not None:
            return f"follows {self._closing}, after which only a retry or the end may come"
        return None if self._streamed.started is not None else "comes before stream_started"

    # -- content

    def _first_token(self, event: FirstToken) -> str | None:
        if (wrong := self._misplaced()) is not None:
            return wrong
        if self._streamed.chunk_count:
            return "comes after a token"
        self._announced = event
        return None

    def _token(self, event: ChannelToken) -> str | None:
        if (wrong := self._misplaced()) is not None:
            return wrong
        expected = self._streamed.chunk_count + 1
        if expected == 1 and self._announced is None:
            return "comes before first_token"
        if event.chunk_index != expected:
            return f"chunk_index is {event.chunk_index}, expected {expected}"
        if not event.text:
            return "is empty"
        if not event.channel or event.choice < 0:
            return f"has the channel {event.channel!r} and the choice {event.choice}"
        if (wrong := _half_character(event.text)) is not None:
            return wrong
        if self._announced is not None and self._announced.channel != event.channel:
            return f"is of channel {event.channel!r}, first_token said {self._announced.channel!r}"
        self._announced = None
        self._streamed.token(event)
        return None

    def _reasoning_completed(self, event: ReasoningCompleted) -> str | None:
        if (wrong := self._misplaced()) is not None:
            return wrong
        if not event.signature:
            return "has no signature"
        self._streamed.signatures.append(event.signature)
        return None

    def _annotation(self, event: AnnotationAdded) -> str | None:
        if (wrong := self._misplaced()) is not None:
            return wrong
        said = self._streamed.chars(event.channel)
        if event.offset is not None and not 0 <= event.offset <= said:
            return f"offset is {event.offset}, {event.channel} has said {said} characters"
        if self._backend in _BUILT_IN and event.offset != said:
            return f"offset is {event.offset}, expected {said}: where {event.channel} stands"
        self._streamed.annotations.append(event.annotation)
        return None

    # -- tools

    def _tool_delta(self, event: ToolCallDelta) -> str | None:
        if (wrong := self._misplaced()) is not None:
            return wrong
        if not event.id and not event.name and not event.arguments_delta:
            return "brings nothing"
        if "" in (event.id, event.name, event.arguments_delta):
            return "has an empty field; what does not come is None"
        if event.tool_index < 0 or event.choice < 0:
            return f"has the tool_index {event.tool_index} and the choice {event.choice}"
        if event.arguments_delta and (wrong := _half_character(event.arguments_delta)) is not None:
            return wrong
        wrong = self._repeats(event)
        if wrong is None:
            self._streamed.tool_delta(event)
        return wrong

    def _repeats(self, event: ToolCallDelta) -> str | None:
        """What is wrong with id, name and index, given those that came."""
        call = self._streamed.calls.get((event.choice, event.tool_index))
        if call is None:
            if not event.id:
                return f"is the first of tool call {event.tool_index} and has no id"
            count = self._streamed.call_count(event.choice)
            # On the chat wire a call whose name has not come is held back, and later ones may be shown before it.
            if self._backend in ("responses", "messages") and event.tool_index != count:
                return f"tool_index is {event.tool_index}, expected {count}"
            return None
        if event.id == call.id or (event.name is not None and event.name == call.name):
            return "says an id or a name again"
        if event.name is not None and call.fragments:
            return f"changes the name to {event.name!r} after arguments came"
        if self._backend == "messages" and (event.id or event.name):
            return "changes the id or the name, which come once on this wire"
        return None

    def _tool_result(self, event: ToolResultAdded) -> str | None:
        if not isinstance(self._last, ToolResultAdded | None):
            return f"follows {self._last.kind}; results are what a request begins with"
        if event.result.tool_call_id != event.tool_call_id:
            return f"is of {event.tool_call_id!r}, its result of {event.result.tool_call_id!r}"
        if event.tool_call_id in self._results:
            return f"brings the result of {event.tool_call_id!r} again"
        if not 0 <= event.duration_ms < math.inf:
            return f"duration_ms is {event.duration_ms}"
        self._results.add(event.tool_call_id)
        return None

    def _hosted_started(self, event: BackendToolCallStarted) -> str | None:
        if (wrong := self._misplaced()) is not None:
            return wrong
        if event.call_id in self._streamed.hosted:
            return f"starts {event.call_id!r} again"
        self._streamed.hosted_started(event.call_id, event.name)
        return None

    def _hosted_completed(self, event: BackendToolCallCompleted) -> str | None:
        if (wrong := self._misplaced()) is not None:
            return wrong
        call = self._streamed.hosted.get(event.call_id)
        if call is None:
            return f"completes {event.call_id!r}, which was not started"
        if call.completed:
            return f"completes {event.call_id!r} again"
        if call.name != event.name:
            return f"calls {event.call_id!r} {event.name}, started was {call.name}"
        call.completed, call.result = True, event.result
        return None

    # -- what a failure brings

    def _signals(self, event: DoomLoopSignals) -> str | None:
        if (wrong := self._misplaced()) is not None:
            return wrong
        if not event.triggers:
            return "has no triggers"
        self._streamed.triggers = event.triggers
        self._closing = event.kind
        return None

    def _images(self, event: ImagesStripped) -> str | None:
        if self._stripped:
            return "is the request's second"
        # It follows from the failure, as the signals do, and comes behind them.
        if self._closing not in (None, "doom_loop_signals"):
            return f"follows {self._closing}"
        if not event.stripped_urls:
            return "strips nothing"
        self._stripped = True
        self._closing = event.kind
        return None

    def _retrying(self, event: Retrying) -> str | None:
        if event.next_attempt != self._attempt + 1:
            return f"next_attempt is {event.next_attempt}, expected {self._attempt + 1}"
        wrong = self._wrong_budget(event) or self._wrong_doom_loop(event)
        if wrong is None:
            self._begin_attempt(event.next_attempt)
        return wrong

    def _wrong_budget(self, event: Retrying) -> str | None:
        if not 0 <= event.backoff_s < math.inf:
            return f"backoff_s is {event.backoff_s}"
        limited = event.budget == "rate_limit"
        if event.budget != "doom_loop":  # a loop neither debits the others nor ends a row of 429s
            self._limited_in_row = self._limited_in_row + 1 if limited else 0
        self._spent[event.budget] += 1
        expected = {
            "rate_limit": self._limited_in_row,
            "transport": self._spent["transport"] + self._spent["rate_limit"],
            "doom_loop": self._spent["doom_loop"],
        }[event.budget]
        if event.retry != expected:
            return f"retry is {event.retry}, expected {expected} of the budget {event.budget}"
        if event.retry > event.max_retries:
            return f"is number {event.retry} of the budget {event.budget}, which has {event.max_retries}"
        if limited and event.error_kind is not SamplingErrorKind.RATE_LIMITED:
            return f"debits rate_limit for {event.error_kind}"
        return None

    def _wrong_doom_loop(self, event: Retrying) -> str | None:
        is_loop = event.error_kind is SamplingErrorKind.DOOM_LOOP_DETECTED
        if is_loop != (event.budget == "doom_loop"):
            return f"debits {event.budget} for {event.error_kind}"
        if is_loop and event.doom_loop_triggers != self._streamed.triggers:
            return f"doom_loop_triggers is {event.doom_loop_triggers}, signalled was {self._streamed.triggers}"
        at = event.doom_loop_aborted_at_chunk
        if at is not None and not 0 <= at <= self._streamed.chunk_count:
            return f"doom_loop_aborted_at_chunk is {at}, {self._streamed.chunk_count} chunks came"
        return None

    # -- the end

    def _end(self, event: Completed | Failed) -> str | None:
        self.ended = True
        streamed = self._streamed
        if isinstance(event, Completed):
            if streamed.started is None:
                return "comes before stream_started"
            if (wrong := self._wrong_stop(event)) is not None:
                return wrong
        ahead = isinstance(event, Failed) and _is_ahead(event)
        if self._announced is not None and not ahead:
            return "comes between first_token and its token"
        return streamed.wrong_metrics(event, self._attempt, ahead=ahead) or streamed.disagreement(
            event, self._backend, ahead=ahead
        )

    def _wrong_stop(self, event: Completed) -> str | None:
        if self._closing == "images_stripped":
            return f"follows {self._closing}"
        response = event.response
        if response.stop_reason is None:
            return "response.stop_reason is None"
        if (response.stop_reason == "tool_calls") != bool(response.tool_calls) and response.stop_reason in (
            "stop",
            "tool_calls",
        ):
            return f"response.stop_reason is {response.stop_reason!r} with {len(response.tool_calls)} tool calls"
        return None


def _is_ahead(end: Failed) -> bool:
    """Whether more may have been read than was delivered.

    Who cancels from inside `on_next`, and our own search for repetitions, break off between two events of one read.
    """
    return end.error.kind is SamplingErrorKind.CANCELLED or end.error.code == "client_repetition"


def _half_character(text: str) -> str | None:
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return None
    return "holds half of a surrogate pair"
