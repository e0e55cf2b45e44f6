"""What one attempt streamed, and whether its terminal event says the same: the sums behind the event grammar."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rx_sampler.conversation import (
    JsonObject,
    OpaqueItem,
    ReasoningItem,
    RefusalItem,
    SamplingResponse,
    TextItem,
    ToolCall,
)
from rx_sampler.events import (
    REASONING,
    REFUSAL,
    TEXT,
    ChannelToken,
    Completed,
    Failed,
    ResponseStarted,
    StreamStarted,
    ToolCallDelta,
)
from rx_sampler.metrics import LatencyMetrics

__all__ = ["Streamed", "StreamedCall", "is_woven"]

_ITEM_OF: Final = {TEXT: TextItem, REASONING: ReasoningItem, REFUSAL: RefusalItem}
_IN_ORDER: Final = frozenset({"chat_completions", "messages"})
"""Formats whose calls stand in the answer in the order in which they appeared; responses has its own output order."""

_SIGNED_ONCE: Final = frozenset({"chat_completions", "messages"})
_NAMED_ONCE: Final = _SIGNED_ONCE
"""On the responses wire reasoning is encrypted anew in every event that repeats it, proxies rotate the ids of the
answer, and a stream that is resumed in its middle has no beginning that would tell one."""

_MOST_STATES: Final = 512
_SLACK_MS: Final = 1e-3
"""Stamps are Unix seconds in a float, good to a quarter of a microsecond."""


@dataclass(slots=True)
class StreamedCall:
    """A call of the client's own tool, as its deltas told it."""

    id: str
    name: str | None
    fragments: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Hosted:
    name: str
    completed: bool = False
    result: JsonObject | None = None


class Streamed:
    """One attempt as its events tell it."""

    def __init__(self) -> None:
        self.started: StreamStarted | None = None
        self.named: ResponseStarted | None = None
        self.chunk_count = 0
        self.calls: dict[tuple[int, int], StreamedCall] = {}
        """By choice and index."""
        self.hosted: dict[str, _Hosted] = {}
        self.signatures: list[str] = []
        self.annotations: list[JsonObject] = []
        self.triggers: tuple[str, ...] | None = None
        self._pieces: dict[str, list[str]] = defaultdict(list)
        self._chars: Counter[str] = Counter()
        self._first_at: float | None = None
        self._first_text_at: float | None = None

    # -- while it streams

    def token(self, event: ChannelToken) -> None:
        self.chunk_count += 1
        if self._first_at is None:
            self._first_at = event.ts
        if event.choice:  # the answer holds choice 0
            return
        self._pieces[event.channel].append(event.text)
        self._chars[event.channel] += len(event.text)
        if event.channel == TEXT and self._first_text_at is None:
            self._first_text_at = event.ts

    def tool_delta(self, event: ToolCallDelta) -> None:
        call = self.calls.get((event.choice, event.tool_index))
        if call is None:
            call = self.calls[event.choice, event.tool_index] = StreamedCall(event.id or "", None)
        call.id = event.id or call.id
        call.name = event.name or call.name
        if event.arguments_delta:
            call.fragments.append(event.arguments_delta)

    def hosted_started(self, call_id: str, name: str) -> None:
        self.hosted[call_id] = _Hosted(name)

    def chars(self, channel: str) -> int:
        """How much of the channel choice 0 has said."""
        return self._chars[channel]

    @property
    def has_content(self) -> bool:
        """Whether any event told of content."""
        return bool(self.chunk_count or self.calls or self.hosted or self.signatures or self.annotations)

    def call_count(self, choice: int) -> int:
        return sum(of == choice for of, _ in self.calls)

    # -- at its end

    def disagreement(self, end: Completed | Failed, backend: str | None, *, ahead: bool = False) -> str | None:
        """What `end` says otherwise than the events did; `ahead` if it may tell of more than was delivered."""
        response = end.response if isinstance(end, Completed) else end.partial
        if response is None:
            return "partial is None, though something streamed" if self.chunk_count or self.calls else None
        for wrong in self._disagreements(end, response, backend, ahead):
            return wrong
        return None

    def _disagreements(
        self, end: Completed | Failed, response: SamplingResponse, backend: str | None, ahead: bool
    ) -> Iterator[str]:
        what = "response" if isinstance(end, Completed) else "partial"
        for channel, kind in _ITEM_OF.items():
            texts = [item.text for item in response.items if isinstance(item, kind)]
            if not is_woven(self._pieces[channel], texts, ahead=ahead):
                yield f"{what}.{channel} is {_start(''.join(texts))}, streamed was {self._said(channel)}"
        if not ahead:
            yield from self._of_calls(what, response, backend)
            yield from self._of_hosted(what, response, backend)
            if _sorted_json(response.annotations) != _sorted_json(self.annotations):
                yield f"{what} has {len(response.annotations)} annotations, not the {len(self.annotations)} streamed"
        yield from self._of_signatures(what, response, backend, whole=isinstance(end, Completed))
        yield from self._of_names(what, response, backend)
        if isinstance(end, Completed) and response.doom_loop_triggers != (self.triggers or ()):
            yield f"response.doom_loop_triggers is {response.doom_loop_triggers}, signalled was {self.triggers or ()}"

    def _of_calls(self, what: str, response: SamplingResponse, backend: str | None) -> Iterator[str]:
        for choice in {of for of, _ in self.calls}:
            indexes = sorted(index for of, index in self.calls if of == choice)
            if indexes != list(range(len(indexes))):
                yield f"ends with the tool calls {indexes} of choice {choice}, which are not numbered from 0"
        said = [
            (call.id, call.name or "", _arguments("".join(call.fragments)))
            for (of, _), call in sorted(self.calls.items())
            if of == 0
        ]
        kept = [(call.id, call.name, _arguments(call.arguments)) for call in response.tool_calls]
        if said != kept and (backend in _IN_ORDER or sorted(said) != sorted(kept)):
            yield f"{what}.tool_calls are {_listed(response.tool_calls)}, streamed was {said}"

    def _of_hosted(self, what: str, response: SamplingResponse, backend: str | None) -> Iterator[str]:
        kept = {item.call_id: item.name for item in response.backend_tool_calls}
        opaque = [item.wire for item in response.items if isinstance(item, OpaqueItem)]
        for call_id, name in kept.items():
            if call_id not in self.hosted:
                yield f"{what} has the backend tool call {call_id!r}, which was never started"
            elif self.hosted[call_id].name != name:
                yield f"{what} calls {call_id!r} {name}, started was {self.hosted[call_id].name}"
        for call_id, call in self.hosted.items():
            # The result of a call of an earlier turn stands in the answer without the call.
            if call_id not in kept and call.result not in opaque:
                yield f"{what} has no backend tool call {call_id!r}, which was started"
        if backend == "messages":
            results = [call.result for call in self.hosted.values()]
            for wire in opaque:
                if str(wire.get("type", "")).endswith("_tool_result") and wire not in results:
                    yield f"{what} has a result of {wire.get('tool_use_id')!r}, whose completion was never told"

    def _of_signatures(
        self, what: str, response: SamplingResponse, backend: str | None, *, whole: bool
    ) -> Iterator[str]:
        reasoning = [item for item in response.items if isinstance(item, ReasoningItem)]
        kept = Counter(mark for item in reasoning if (mark := item.signature or item.encrypted_content))
        said = Counter(self.signatures)
        # What broke off may hold the signature of a block that did not close.
        if said.total() > kept.total() or (whole and said.total() != kept.total()):
            yield f"{what} has {kept.total()} signed reasonings, completed were {said.total()}"
        elif backend in _SIGNED_ONCE and said - kept:
            yield f"{what} has other signatures than those of the completed reasonings"

    def _of_names(self, what: str, response: SamplingResponse, backend: str | None) -> Iterator[str]:
        announced = self.named.message_id if self.named is not None else None
        if backend in _NAMED_ONCE and response.message_id is not None and announced != response.message_id:
            yield f"{what}.message_id is {response.message_id!r}, response_started said {announced!r}"

    def wrong_metrics(self, end: Completed | Failed, attempt: int, *, ahead: bool = False) -> str | None:
        """Which figure of `end.metrics` is not that of the events."""
        metrics = end.metrics
        if self.started is None:
            unbegun = metrics.attempts in (attempt, attempt - 1) and metrics.time_to_stream_started_ms is None
            return None if unbegun and not metrics.chunk_count else "metrics tell of an attempt that did not start"
        if metrics.attempts != attempt:
            return f"metrics.attempts is {metrics.attempts}, expected {attempt}"
        if metrics.chunk_count < self.chunk_count or (metrics.chunk_count > self.chunk_count and not ahead):
            return f"metrics.chunk_count is {metrics.chunk_count}, streamed were {self.chunk_count}"
        return None if ahead else self._wrong_times(end, metrics, self.started)

    def _wrong_times(self, end: Completed | Failed, metrics: LatencyMetrics, started: StreamStarted) -> str | None:
        expected: dict[str, float | None] = {
            "time_to_first_token_ms": _ms(started.ts, self._first_at),
            "time_to_first_text_ms": _ms(started.ts, self._first_text_at),
        }
        if started.submitted_at is not None:
            expected["time_to_stream_started_ms"] = _ms(started.submitted_at, started.ts)
            expected["time_to_first_token_from_submit_ms"] = _ms(started.submitted_at, self._first_at)
        if isinstance(end, Completed):
            expected["time_to_last_byte_ms"] = _ms(started.ts, end.ts)
        for name, wanted in expected.items():
            measured: float | None = getattr(metrics, name)
            if (measured is None) != (wanted is None) or abs((measured or 0.0) - (wanted or 0.0)) > _SLACK_MS:
                return f"metrics.{name} is {measured}, by the events it is {wanted}"
        return None

    def _said(self, channel: str) -> str:
        return _start("".join(self._pieces[channel]))


def is_woven(pieces: Sequence[str], texts: Sequence[str], *, ahead: bool = False) -> bool:
    """Whether the texts, each in its order, are what the pieces say: items may stream at the same time.

    `ahead`: whether the pieces are where the texts begin. Where too many ways of weaving have to be kept in mind, the
    characters alone are compared.
    """
    said, whole = "".join(pieces), "".join(texts)
    if said == whole or (ahead and whole.startswith(said)):
        return True
    if len(texts) < 2 or (len(said) != len(whole) and not ahead):
        return False
    states = {(0,) * len(texts)}
    for piece in pieces:
        states = {
            (*state[:n], at + len(piece), *state[n + 1 :])
            for state in states
            for n, at in enumerate(state)
            if texts[n].startswith(piece, at)
        }
        if len(states) > _MOST_STATES:
            return Counter(said) <= Counter(whole)
    return bool(states)


def _arguments(text: str) -> str:
    return text if text.strip() else "{}"  # what a call without arguments has in the answer


def _sorted_json(values: Sequence[JsonObject]) -> list[str]:
    return sorted(json.dumps(value, sort_keys=True, default=str) for value in values)


def _listed(calls: Sequence[ToolCall]) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in calls]


def _ms(start: float, end: float | None) -> float | None:
    return None if end is None else (end - start) * 1e3


def _start(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}... ({len(text)} characters)"
