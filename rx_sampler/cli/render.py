"""What a person sees of a request: events in, pieces of output out. Pure; knows no stream, colour or clock.

The renderer keeps track of the section that is open (the answer, reasoning, a tool call, ...), so that each begins
on a line of its own. Every piece is safe to print (see `sanitize`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

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
    ResponseStarted,
    Retrying,
    SamplingEvent,
    StreamStarted,
    ToolCallDelta,
    ToolResultAdded,
    event_to_json,
)

from .describe import as_list, citation_lines, failure_line, result_line, retry_line, summary_line, tool_gist
from .sanitize import visible, visible_json, visible_line

__all__ = ["EventLines", "Piece", "Renderer", "Sink", "StyleName", "TextRenderer"]

Sink = Literal["answer", "aside", "note"]
"""Where a piece belongs: the answer itself; what surrounds it (reasoning, tools, citations); messages about the run."""
StyleName = Literal["text", "reasoning", "refusal", "tool", "label", "summary", "warning", "error"]
Hint = Callable[[Failed], str | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some output: safe text, where it goes and what it is."""

    sink: Sink
    style: StyleName
    text: str


class Renderer(Protocol):
    """Turns events into output. `feed` takes each event in order; `cancelled` ends a request that was cut short."""

    def feed(self, event: SamplingEvent) -> Iterator[Piece]: ...
    def cancelled(self) -> Iterator[Piece]: ...


@dataclass(frozen=True, slots=True)
class _Section:
    """An open stretch of output; the next piece of an equal section goes on where the last one stopped."""

    sink: Sink
    style: StyleName
    label: str = ""
    choice: int = 0
    tool_index: int | None = None


_ANSWER = _Section("answer", "text")


class TextRenderer:
    """The answer as it comes, with reasoning, tool calls, refusals and sources marked, and a summary at the end.

    `interleaved` says that answer and asides share one stream (a terminal): then sections are parted by blank lines.
    Apart, the answer's stream gets exactly the answer's text and a last newline. Memory: the names of the tool calls
    and the distinct sources of the answer.
    """

    def __init__(self, *, interleaved: bool, hint: Hint = lambda _: None):
        self._interleaved = interleaved
        self._hint = hint
        self._section: _Section | None = None
        self._at_start = True
        self._last_char: dict[Sink, str] = {}
        self._restart()

    def _restart(self) -> None:
        """What belongs to one attempt."""
        self._started_at: float | None = None
        self._first_token_ms: float | None = None
        self._model: str | None = None
        self._chunks = 0
        self._tools: dict[tuple[int, int], str] = {}
        self._sources: dict[str, str] = {}

    def feed(self, event: SamplingEvent) -> Iterator[Piece]:
        match event:
            case ChannelToken():
                self._chunks += 1
                yield from self._open(self._section_of(event))
                yield from self._put(visible(event.text))
            case ToolCallDelta():
                yield from self._tool_call(event)
            case ToolResultAdded():
                yield from self._line("aside", "tool", result_line(event))
            case BackendToolCallStarted():
                yield from self._line("aside", "tool", f"server tool {visible_line(event.name)} started")
            case BackendToolCallCompleted():
                gist = tool_gist(event.result)
                yield from self._line("aside", "tool", f"server tool {visible_line(event.name)} finished{gist}")
            case AnnotationAdded():
                self._cite(event.annotation)
            case StreamStarted():
                self._started_at = event.ts
            case FirstToken():
                if self._started_at is not None:
                    self._first_token_ms = (event.ts - self._started_at) * 1e3
            case ResponseStarted():
                self._model = event.model
            case Retrying():
                void = "; what came so far is void" if self._last_char else ""
                yield from self._close()
                yield from self._end_line("answer")
                yield from self._line("note", "warning", retry_line(event) + void)
                self._restart()
            case ImagesStripped():
                taken = f"{len(event.stripped_urls)} image(s) taken out of the request: {event.reason}"
                yield from self._line("note", "warning", taken)
            case DoomLoopSignals():
                labels = visible_line(", ".join(event.triggers))
                yield from self._line("note", "warning", f"the server reports that the model repeats itself: {labels}")
            case Completed():
                yield from self._completed(event)
            case Failed():
                yield from self._end()
                yield Piece("note", "error", f"error: {failure_line(event.error, self._hint(event))}\n")
            case _:  # ModelMetadata and ReasoningCompleted: nothing that a reader of the answer misses
                pass

    def cancelled(self) -> Iterator[Piece]:
        """Closes what is open and sums up what there was; a disposed stream has no last event that would."""
        yield from self._end()
        line = summary_line(
            model=self._model, first_token_ms=self._first_token_ms, chunks=self._chunks, end="cancelled"
        )
        yield Piece("note", "summary", f"{line}\n")

    def _completed(self, event: Completed) -> Iterator[Piece]:
        response = event.response
        for citation in as_list(response.extras.get("citations")):
            self._cite(citation)
        yield from self._end()
        for call in response.tool_calls:
            if not call.complete:
                yield Piece("note", "warning", f"the call of {visible_line(call.name)} is cut off: do not run it\n")
        line = summary_line(
            model=response.model or self._model,
            first_token_ms=event.metrics.time_to_first_token_ms,
            from_submit_ms=event.metrics.time_to_first_token_from_submit_ms,
            tokens_per_second=event.metrics.output_tokens_per_second,
            chunks=event.metrics.chunk_count,
            usage=response.usage,
            cost_usd=response.cost_usd,
            end=f"stop: {response.stop_reason or 'unknown'}",
            raw_stop_reason=response.raw_stop_reason,
            stop_message=response.stop_message,
        )
        yield Piece("note", "summary", f"{line}\n")
        self._restart()  # another turn may follow

    def _section_of(self, token: ChannelToken) -> _Section:
        if token.choice:
            return _Section("aside", "text", f"choice {token.choice}, {visible_line(token.channel)}: ", token.choice)
        match token.channel:
            case "text":
                return _ANSWER
            case "reasoning":
                return _Section("aside", "reasoning", "reasoning: ")
            case "refusal":
                return _Section("aside", "refusal", "refusal: ")
            case other:
                return _Section("aside", "reasoning", f"{visible_line(other)}: ")

    def _tool_call(self, event: ToolCallDelta) -> Iterator[Piece]:
        # Deltas of parallel calls may alternate: each stretch is headed by the name of its call.
        key = (event.choice, event.tool_index)
        known = key in self._tools
        if event.name or not known:
            name = visible_line(event.name or "(unnamed)")
            self._tools[key] = f"{name} ({visible_line(event.id)})" if event.id else name
        label = f"tool call {self._tools[key]}{', continued' if known else ''}: "
        section = _Section("aside", "tool", label, event.choice, event.tool_index)
        if self._section is None or (self._section.tool_index, self._section.choice) != (
            event.tool_index,
            event.choice,
        ):
            yield from self._open(section)
        if event.arguments_delta:
            yield from self._put(visible(event.arguments_delta))

    def _cite(self, annotation: object) -> None:
        source, line = citation_lines(annotation)
        self._sources.setdefault(source, line)

    def _open(self, section: _Section) -> Iterator[Piece]:
        current = self._section
        if current == section:
            return
        yield from self._close()
        shown = self._last_char.get(self._stream(section.sink))
        if self._interleaved and shown and (current is None or current.style != section.style):
            yield Piece(section.sink, "text", "\n")
        self._section, self._at_start = section, True
        if section.label:
            yield Piece(section.sink, "label", section.label)
            self._last_char[self._stream(section.sink)] = section.label[-1]

    def _put(self, text: str) -> Iterator[Piece]:
        if self._interleaved and self._at_start:  # models like to begin with blank lines, on top of the one that parts
            text = text.lstrip("\n")
        section = self._section
        if section is not None and text:
            self._at_start = False
            self._last_char[self._stream(section.sink)] = text[-1]
            yield Piece(section.sink, section.style, text)

    def _close(self) -> Iterator[Piece]:
        section, self._section = self._section, None
        # Alone on its stream the answer stays as it is: what interrupts it is printed elsewhere.
        if section is not None and (section.sink != "answer" or self._interleaved):
            yield from self._end_line(section.sink)

    def _end_line(self, sink: Sink) -> Iterator[Piece]:
        if self._last_char.get(self._stream(sink), "\n") != "\n":
            self._last_char[self._stream(sink)] = "\n"
            yield Piece(sink, "text", "\n")

    def _line(self, sink: Sink, style: StyleName, text: str) -> Iterator[Piece]:
        if sink == "note":
            yield from self._close()
        else:
            yield from self._open(_Section(sink, style))
        yield Piece(sink, style, f"{text}\n")
        if sink != "note":
            self._last_char[self._stream(sink)] = "\n"

    def _end(self) -> Iterator[Piece]:
        yield from self._close()
        yield from self._end_line("answer")
        if self._sources:
            yield from self._line("aside", "label", "sources:")
            for number, source in enumerate(self._sources.values(), start=1):
                yield from self._line("aside", "label", f"  [{number}] {source}")
            yield from self._close()

    def _stream(self, sink: Sink) -> Sink:
        return "answer" if self._interleaved else sink


class EventLines:
    """Each event as one line of JSON on the answer's stream, for programs; what people should know goes beside it."""

    def __init__(self, *, hint: Hint = lambda _: None):
        self._beside = TextRenderer(interleaved=False, hint=hint)

    def feed(self, event: SamplingEvent) -> Iterator[Piece]:
        yield Piece("answer", "text", visible_json(event_to_json(event)) + "\n")
        yield from self._notes(self._beside.feed(event))

    def cancelled(self) -> Iterator[Piece]:
        yield from self._notes(self._beside.cancelled())

    @staticmethod
    def _notes(pieces: Iterator[Piece]) -> Iterator[Piece]:
        return (piece for piece in pieces if piece.sink == "note")
