"""What the transforms of all backends share: numbering, stamps, first tokens, tool slots and terminal events."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypedDict, TypeVar

from rx_sampler.conversation import JsonObject, SamplingResponse, StopReason, ToolCall, json_object
from rx_sampler.errors import ErrorStamp, SamplingError, SamplingErrorInfo, SamplingErrorKind
from rx_sampler.events import (
    TEXT,
    ChannelToken,
    Completed,
    DoomLoopSignals,
    FirstToken,
    ModelMetadata,
    ResponseStarted,
    SamplingEvent,
    StreamStarted,
    TokenDraft,
    ToolCallDelta,
)
from rx_sampler.metrics import LatencyMetrics, measure
from rx_sampler.stage import Machine
from rx_sampler.wire.doom_loop import merged_triggers, parse_label
from rx_sampler.wire.error_bodies import clean_message
from rx_sampler.wire.headers import HeadFacts
from rx_sampler.wire.idle import Pulse

from .think_tags import ThinkTagSplitter

__all__ = ["DONE", "Context", "MalformedChunk", "ToolSlot", "Transform", "mended", "stop_with_calls"]

C = TypeVar("C")

DONE: Final[Any] = {"[DONE]": True}
"""The chunk that stands for `[DONE]`; compared by identity, so that no JSON can forge it."""


class MalformedChunk(dict[str, Any]):
    """Stands, empty, where a frame was no JSON: its delta is lost, those after it need not be.

    The stream is read on, so that nothing else gets lost, and ends in `error` instead of `Completed`.
    """

    def __init__(self, error: SamplingError) -> None:
        super().__init__()
        self.error = error


_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class _Stamp(TypedDict):
    request_id: str
    attempt: int
    ts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a transform is told about its request.

    `judge` looks at a whole response and may turn it into a failure (an empty answer); without one every answer that
    the protocol calls complete is `Completed`. `declared_tools` are the names of the client's own tools.
    """

    request_id: str
    attempt: int = 1
    pulse: Pulse
    judge: Callable[[SamplingResponse], SamplingError | None] | None = None
    declared_tools: frozenset[str] = frozenset()
    split_think_tags: bool = False
    accept_unterminated: bool = False
    choices: int = 1
    """How many the request asked for (`n`)."""
    default_model: str | None = None
    notes_doom_loops: bool = True
    """Whether labels of the server's repetition check are recorded at all."""
    doom_loop_threshold: int | None = None
    """The loosest repetition that fails the attempt; None reports labels only."""


@dataclass(slots=True)
class ToolSlot:
    """One call of a client tool while it streams."""

    index: int
    choice: int = 0
    id: str | None = None
    name: str | None = None
    custom: bool = False
    closed: bool = False
    """The wire said that no more arguments follow."""
    fragments: list[str] = field(default_factory=list[str])
    chars: int = 0
    carry: str = ""
    """The first half of a surrogate pair, until the second comes."""
    extra_content: JsonObject = field(default_factory=dict[str, object])

    @property
    def arguments(self) -> str:
        if len(self.fragments) > 1:
            self.fragments[:] = ["".join(self.fragments)]
        return self.fragments[0] if self.fragments else ""

    def call(self, *, cut: bool) -> ToolCall:
        """The call as it stands; `cut` says that the answer stopped before its natural end."""
        arguments = self.arguments
        unfinished = cut and not self.closed
        if not self.custom and not arguments.strip() and not unfinished:
            arguments = "{}"  # a tool without parameters: servers send "", null or nothing
        complete = bool(self.name) and (not unfinished if self.custom else json_object(arguments) is not None)
        return ToolCall(
            id=self.id or "",
            name=self.name or "",
            arguments=arguments,
            complete=complete,
            custom=self.custom,
            extra_content=self.extra_content,
        )


class Transform(Machine[C, SamplingEvent], Generic[C]):
    """Typed chunks in, events out; a backend's subclass reads its chunks and knows its items.

    A subclass implements `feed` and `response`, calls `token`, `open_tool`, `tool_delta` while reading, and ends by
    returning `complete()` once the wire announced the end. A source that ends without that is judged by `settled`.
    """

    ended_early = "the stream ended before the answer was complete"

    def __init__(self, context: Context) -> None:
        self.context = context
        self.pulse = context.pulse
        self.explain: Callable[[SamplingError], SamplingError] = lambda error: error
        """What the owner has to say to an error that ends the attempt."""
        self.settled = False
        """The answer is whole although its end was not announced."""
        self._request_id = context.request_id
        self._attempt = context.attempt
        self._started_at: float | None = None
        self._stamps = array("d")
        self._first_text_at: float | None = None
        self.text_chars = 0
        """Characters on the text channel so far: where an annotation that comes now stands."""
        self._named = False
        self._carried: dict[tuple[str, int], tuple[list[str], str]] = {}
        self._splitters: dict[int, ThinkTagSplitter] | None = {} if context.split_think_tags else None
        self._splitting: dict[int, ThinkTagSplitter] = {}  # by choice, the one that was fed last
        self._annotations: set[str] = set()
        self._slots: dict[int, list[ToolSlot]] = {}
        self.doom_loop_triggers: tuple[str, ...] = ()
        self._damage: SamplingError | None = None

    # -- to implement

    def quick(self, _document: Any) -> list[SamplingEvent] | None:
        """Events of parsed JSON that is a plain piece of text in a known place; None for anything else.

        The short cut of nearly all frames: it looks at the few fields that it needs and trusts none of them. Not asked
        where think tags part the text.
        """
        return None

    def response(self, *, cut: bool) -> SamplingResponse:
        """What the answer amounts to now; `cut` if it stopped before its natural end."""
        raise NotImplementedError

    def has_content(self) -> bool:
        """Whether anything of an answer came, for `Failed.partial`."""
        return bool(self._stamps) or bool(self._slots)

    def settle_content(self) -> list[SamplingEvent]:
        """Events that only the end brings: called once, before the response is built."""
        return []

    # -- the attempt's frame

    def opening(self, facts: HeadFacts) -> list[SamplingEvent]:
        """The first events of an attempt, once its headers are accepted."""
        self._started_at = self.pulse.now
        events: list[SamplingEvent] = [StreamStarted(**self.stamp(), submitted_at=self.pulse.submitted_at)]
        if facts:
            events.append(ModelMetadata(**self.stamp(), **facts))
        return events

    def stamp(self) -> _Stamp:
        return {"request_id": self._request_id, "attempt": self._attempt, "ts": self.pulse.now}

    def note_damage(self, chunk: object) -> None:
        """Remember the first frame that could not be read; to be called with chunks that seem to say nothing."""
        if isinstance(chunk, MalformedChunk) and self._damage is None:
            self._damage = chunk.error

    def finish(self) -> list[SamplingEvent]:
        if self._damage is not None:
            raise self._damage
        if self.settled or (self.context.accept_unterminated and self.has_content()):
            return self.complete()
        raise SamplingError.of(SamplingErrorKind.HTTP, self.ended_early, code="unterminated", is_retryable=True)

    def note_doom_loop(self, out: list[SamplingEvent], check: object) -> None:
        """Labels in the midst of the answer: a confident one ends the attempt at once, before anything else of it."""
        if self.context.notes_doom_loops:
            self.doom_loop_triggers = merged_triggers(self.doom_loop_triggers, check)
            if self._doom_loop() is not None:
                out += self.flush()  # nothing of the attempt comes behind the signals
                error = self._doom_loop(aborted_at_chunk=len(self._stamps))
                out.append(DoomLoopSignals(**self.stamp(), triggers=self.doom_loop_triggers))
                self.done, self.error = True, error

    def _doom_loop(self, aborted_at_chunk: int | None = None) -> SamplingError | None:
        limit, triggers = self.context.doom_loop_threshold, self.doom_loop_triggers
        if limit is None or not any(parse_label(trigger).is_confident(limit) for trigger in triggers):
            return None
        return SamplingError(
            SamplingErrorInfo(
                kind=SamplingErrorKind.DOOM_LOOP_DETECTED,
                message=clean_message(f"doom loop detected: {', '.join(triggers)}"),
                is_retryable=True,
                doom_loop_triggers=triggers,
                doom_loop_aborted_at_chunk=aborted_at_chunk,
            )
        )

    def complete(self) -> list[SamplingEvent]:
        """The last events of the answer. Sets `done`, and `error` where the judge says so."""
        self.done = True
        events = self.flush()
        response = self.response(cut=False)
        if self.doom_loop_triggers:
            events.append(DoomLoopSignals(**self.stamp(), triggers=self.doom_loop_triggers))
        verdict = self._doom_loop() or self._damage
        if verdict is None and self.context.judge is not None:
            verdict = self.context.judge(response)
        if verdict is not None:
            self.error = self._explained(verdict, response if self.has_content() else None)
        else:
            events.append(Completed(**self.stamp(), response=response, metrics=self.metrics(response)))
        return events

    def fail(self, error: Exception) -> Exception:
        if not isinstance(error, SamplingError):
            return error
        if error.where is None:
            self._explained(error, self.response(cut=True) if self.has_content() else None)
        return self.explain(error)

    def _explained(self, error: SamplingError, partial: SamplingResponse | None) -> SamplingError:
        error.partial = partial
        error.metrics = self.metrics(partial)
        error.where = ErrorStamp(**self.stamp())
        return error

    def metrics(self, response: SamplingResponse | None) -> LatencyMetrics:
        return measure(
            submitted_at=self.pulse.submitted_at,
            queued_s=self.pulse.queued_s,
            started_at=self._started_at,
            ended_at=self.pulse.now,
            stamps=self._stamps,
            first_text_at=self._first_text_at,
            output_tokens=response.usage.output_tokens if response is not None and response.usage else None,
            attempts=self._attempt,
        )

    def flush(self) -> list[SamplingEvent]:
        """Whatever was held back: half surrogate pairs, half think tags, and what the backend kept."""
        events = self.settle_content()
        for choice, splitter in self._splitting.items():
            self._spill_tag(events, splitter, choice)
        carried, self._carried = self._carried, {}
        for (channel, choice), (sink, _) in carried.items():
            self.token(events, sink, channel, "\ufffd", choice)
        for slots in self._slots.values():
            for slot in slots:
                if slot.carry:
                    slot.carry = ""
                    self.tool_delta(events, slot, "\ufffd")
        return events

    def spill(self) -> list[SamplingEvent]:
        return self.flush()

    def announce(self, out: list[SamplingEvent], **fields: Any) -> None:
        """`ResponseStarted`, the first time the wire names the answer."""
        if not self._named:
            self._named = True
            out.append(ResponseStarted(**self.stamp(), **fields))

    # -- content

    def progress(self) -> None:
        """Something of the answer came, even if no event tells of it."""
        self.pulse.content_at = self.pulse.now

    def settle(self, settled: bool) -> None:
        """Note that only the announcement of the end is missing now, or that more came after all."""
        if settled != self.settled:
            self.settled = settled
            self.pulse.settle(settled)

    def text(self, out: list[SamplingEvent], sinks: dict[str, list[str]], text: str, choice: int = 0) -> None:
        """Text of the answer, parted at think tags where that is configured."""
        if self._splitters is None:
            self.token(out, sinks[TEXT], TEXT, text, choice)
            return
        splitter = self._splitters.get(id(sinks))
        if splitter is None:
            splitter = self._splitters[id(sinks)] = ThinkTagSplitter(sinks)
        last = self._splitting.get(choice)
        if last is not None and last is not splitter:
            self._spill_tag(out, last, choice)  # what a block holds back at its end is that block's
        self._splitting[choice] = splitter
        for channel, piece in splitter.feed(text):
            self.token(out, sinks[channel], channel, piece, choice)
        self.progress()

    def end_text(self, out: list[SamplingEvent], sinks: dict[str, list[str]], choice: int = 0) -> None:
        """The text of a block is over: half a tag at its end is text."""
        if self._splitters and (splitter := self._splitters.pop(id(sinks), None)) is not None:
            self._spill_tag(out, splitter, choice)

    def _spill_tag(self, out: list[SamplingEvent], splitter: ThinkTagSplitter, choice: int) -> None:
        for channel, text in splitter.finish():
            self.token(out, splitter.sinks[channel], channel, text, choice)

    def is_new(self, annotation: JsonObject) -> bool:
        """Whether an annotation was not met before: servers repeat them in closing events, some in every chunk."""
        key = json.dumps(annotation, sort_keys=True, default=str)
        if key in self._annotations:
            return False
        self._annotations.add(key)
        return True

    def token(self, out: list[SamplingEvent], sink: list[str], channel: str, text: str, choice: int = 0) -> None:
        """A `ChannelToken` for non-empty `text`, which also goes to `sink`; `FirstToken` before the first."""
        if self._carried or not text.isascii():
            text = self._joined(sink, channel, text, choice)
        if not text:
            return
        pulse = self.pulse
        now = pulse.content_at = pulse.now
        sink.append(text)
        stamps = self._stamps
        stamps.append(now)
        index = len(stamps)
        if index == 1:
            out.append(FirstToken(**self.stamp(), channel=channel))
        if channel == TEXT and choice == 0:
            self.text_chars += len(text)
            if self._first_text_at is None:
                self._first_text_at = now
        draft: Any = TokenDraft(self._request_id, self._attempt, now, channel, text, index, choice)
        draft.__class__ = ChannelToken
        out.append(draft)

    def _joined(self, sink: list[str], channel: str, text: str, choice: int) -> str:
        key = (channel, choice)
        _, carry = self._carried.pop(key, (sink, ""))
        if not carry and not _LONE_SURROGATE.search(text):
            return text
        text, carry = _whole_characters(carry + text)
        if carry:
            self._carried[key] = (sink, carry)
        return text

    # -- tools

    def open_tool(
        self,
        out: list[SamplingEvent],
        slot: ToolSlot,
        *,
        id: str | None,  # noqa: A002  # the event's own word
        name: str | None,
        arguments: str = "",
    ) -> None:
        """What became known of a call: at its start id and name, with arguments if they came along."""
        self.progress()
        if arguments:
            arguments, slot.carry = _whole_characters(slot.carry + arguments)
            slot.fragments.append(arguments)
            slot.chars += len(arguments)
        out.append(
            ToolCallDelta(
                **self.stamp(),
                tool_index=slot.index,
                id=id,
                name=name,
                arguments_delta=arguments or None,
                choice=slot.choice,
            )
        )

    def new_slot(self, choice: int = 0, **fields: Any) -> ToolSlot:
        """A slot numbered densely within its choice."""
        slots = self._slots.setdefault(choice, [])
        slot = ToolSlot(index=len(slots), choice=choice, **fields)
        slots.append(slot)
        return slot

    def tool_delta(self, out: list[SamplingEvent], slot: ToolSlot, fragment: str) -> None:
        """A non-empty fragment of arguments; white space alone is no progress (some models emit it for ever)."""
        if not fragment:
            return
        if slot.carry or (not fragment.isascii() and _LONE_SURROGATE.search(fragment)):
            fragment, slot.carry = _whole_characters(slot.carry + fragment)
            if not fragment:
                return
        if not fragment.isspace():
            self.progress()
        slot.fragments.append(fragment)
        slot.chars += len(fragment)
        out.append(ToolCallDelta(**self.stamp(), tool_index=slot.index, arguments_delta=fragment, choice=slot.choice))

    def slots(self, choice: int = 0) -> list[ToolSlot]:
        return self._slots.get(choice, [])


def stop_with_calls(stop: StopReason, has_calls: bool) -> StopReason:
    """The stop reason in the light of what came: servers say `stop` after calls, and `tool_calls` without any."""
    if stop in ("stop", "tool_calls"):
        return "tool_calls" if has_calls else "stop"
    return stop


def mended(text: str) -> str:
    """`text` with surrogate pairs joined and lone halves replaced."""
    whole, half = _whole_characters(text) if _LONE_SURROGATE.search(text) else (text, "")
    return whole + ("\ufffd" if half else "")


def _whole_characters(text: str) -> tuple[str, str]:
    """`text` with its surrogate pairs joined and lone ones replaced, and a first half at its end, held back.

    Servers that escape UTF-16 halves one by one cut pairs between deltas; a str with half a pair breaks its reader
    far away from here.
    """
    carry = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
    text = text[: len(text) - len(carry)]
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), carry
