"""Sampling events for diagrams: templates that become events once it is known whose they are, and when.

A drawing counts attempts and chunks by itself, and its terminal events say what was drawn before, so that streams are
legal unless one takes pains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rx_sampler.conversation import (
    JsonObject,
    ResponseItem,
    SamplingResponse,
    TextItem,
    ToolCall,
    ToolResultItem,
    json_object,
)
from rx_sampler.errors import SamplingErrorInfo, SamplingErrorKind
from rx_sampler.events import (
    REASONING,
    REFUSAL,
    TEXT,
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
from rx_sampler.metrics import LatencyMetrics
from rx_sampler.operators.partial_response import measured, partial_response

__all__ = [
    "Course",
    "Drawing",
    "Template",
    "annotation",
    "backend_tool_completed",
    "backend_tool_started",
    "completed",
    "failed",
    "first_token",
    "images_stripped",
    "metadata",
    "reasoning",
    "reasoning_completed",
    "refusal",
    "response_started",
    "retrying",
    "signals",
    "started",
    "text",
    "token",
    "tool",
    "tool_result",
]

RetryBudgetName = Literal["transport", "rate_limit", "doom_loop"]


@dataclass(slots=True)
class Course:
    """A request as far as it is drawn."""

    request_id: str
    begun_at: float
    attempt: int = 1
    events: list[SamplingEvent] = field(default_factory=list[SamplingEvent])
    """Of the running attempt, as are the next two."""
    chunk_count: int = 0
    triggers: tuple[str, ...] = ()
    retries: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("transport", "rate_limit", "doom_loop"), 0))
    limited_in_row: int = 0

    def stamp(self, ts: float) -> dict[str, Any]:
        return {"request_id": self.request_id, "attempt": self.attempt, "ts": ts}

    def note(self, event: SamplingEvent) -> None:
        """What comes next stands behind this event."""
        self.attempt = event.attempt
        if isinstance(event, Retrying):
            self.attempt, self.events, self.chunk_count, self.triggers = event.next_attempt, [], 0, ()
            self.retries[event.budget] += 1
            if event.budget != "doom_loop":
                self.limited_in_row = self.limited_in_row + 1 if event.budget == "rate_limit" else 0
            return
        self.events.append(event)
        if isinstance(event, ChannelToken):
            self.chunk_count += 1
        elif isinstance(event, DoomLoopSignals):
            self.triggers = event.triggers

    def retry(self, budget: RetryBudgetName) -> int:
        """The number of the next retry in its budget: 429s count in a row, and into that of the transport too."""
        if budget == "rate_limit":
            return self.limited_in_row + 1
        if budget == "doom_loop":
            return self.retries[budget] + 1
        return self.retries["transport"] + self.retries["rate_limit"] + 1

    def response(self) -> SamplingResponse:
        """What was drawn in this attempt; its calls are complete if their arguments are."""
        drawn = partial_response(self.events)
        return drawn.model_copy(update={"items": tuple(_judged(item) for item in drawn.items)})

    def metrics(self, ts: float, output_tokens: int | None = None) -> LatencyMetrics:
        started = next((event.ts for event in self.events if isinstance(event, StreamStarted)), None)
        return measured(
            self.events,
            submitted_at=self.begun_at,
            started_at=started,
            ended_at=ts,
            output_tokens=output_tokens,
            attempts=self.attempt,
        )


def _judged(item: ResponseItem) -> ResponseItem:
    if not isinstance(item, ToolCall):
        return item
    return item.model_copy(update={"complete": json_object(item.arguments) is not None})


@dataclass(frozen=True, slots=True)
class Template:
    """An event to be: `make` gets the request that it belongs to, and its time."""

    make: Callable[[Course, float], SamplingEvent]
    of: str | None = None
    """Another request than the diagram's own."""


def _template(kind: Callable[..., SamplingEvent], of: str | None, **fields: Any) -> Template:
    return Template(lambda course, ts: kind(**course.stamp(ts), **fields), of)


def token(channel: str, text: str, *, choice: int = 0, of: str | None = None) -> Template:
    """A `ChannelToken`; its number is counted."""

    def make(course: Course, ts: float) -> SamplingEvent:
        number = course.chunk_count + 1
        return ChannelToken(**course.stamp(ts), channel=channel, text=text, chunk_index=number, choice=choice)

    return Template(make, of)


def text(piece: str, *, choice: int = 0, of: str | None = None) -> Template:
    """A token of the text channel."""
    return token(TEXT, piece, choice=choice, of=of)


def reasoning(piece: str, *, choice: int = 0, of: str | None = None) -> Template:
    """A token of the reasoning channel."""
    return token(REASONING, piece, choice=choice, of=of)


def refusal(piece: str, *, choice: int = 0, of: str | None = None) -> Template:
    """A token of the refusal channel."""
    return token(REFUSAL, piece, choice=choice, of=of)


def tool(
    tool_index: int = 0,
    *,
    id: str | None = None,  # noqa: A002  # the event's own word
    name: str | None = None,
    arguments: str | None = None,
    choice: int = 0,
    of: str | None = None,
) -> Template:
    """A `ToolCallDelta`."""
    return _template(
        ToolCallDelta, of, tool_index=tool_index, id=id, name=name, arguments_delta=arguments, choice=choice
    )


def tool_result(
    call_id: str = "call_1",
    content: str = "done",
    name: str = "look_up",
    *,
    is_error: bool = False,
    duration_ms: float = 0.0,
    turn: int | None = None,
    of: str | None = None,
) -> Template:
    """`ToolResultAdded`: a call of the turn before was run, and this request brings its result."""
    result = ToolResultItem(tool_call_id=call_id, content=content, is_error=is_error)
    return _template(
        ToolResultAdded, of, tool_call_id=call_id, name=name, result=result, duration_ms=duration_ms, turn=turn
    )


def backend_tool_started(call_id: str = "call_1", name: str = "web_search", *, of: str | None = None) -> Template:
    """`BackendToolCallStarted`: the server begins to run a tool of its own."""
    return _template(BackendToolCallStarted, of, call_id=call_id, name=name)


def backend_tool_completed(
    call_id: str = "call_1", name: str = "web_search", result: JsonObject | None = None, *, of: str | None = None
) -> Template:
    """`BackendToolCallCompleted`; `result` is the wire item that says so."""
    return _template(BackendToolCallCompleted, of, call_id=call_id, name=name, result=result)


def started(*, of: str | None = None) -> Template:
    """`StreamStarted`; the request was made at the beginning of the diagram."""
    return Template(lambda course, ts: StreamStarted(**course.stamp(ts), submitted_at=course.begun_at), of)


def metadata(*, of: str | None = None, **fields: Any) -> Template:
    """`ModelMetadata` with these fields."""
    return _template(ModelMetadata, of, **fields)


def response_started(
    message_id: str | None = "msg_1", model: str | None = "model", *, of: str | None = None, **fields: Any
) -> Template:
    """`ResponseStarted`."""
    return _template(ResponseStarted, of, message_id=message_id, model=model, **fields)


def first_token(channel: str = TEXT, *, of: str | None = None) -> Template:
    """`FirstToken`, which stands directly before a token."""
    return _template(FirstToken, of, channel=channel)


def reasoning_completed(signature: str = "signature", *, of: str | None = None) -> Template:
    """`ReasoningCompleted`."""
    return _template(ReasoningCompleted, of, signature=signature)


def annotation(
    value: JsonObject | None = None, *, channel: str = TEXT, offset: int | None = None, of: str | None = None
) -> Template:
    """`AnnotationAdded`; a citation of a page where nothing is given."""
    citation = {"type": "url_citation", "url": "https://example.org/"} if value is None else value
    return _template(AnnotationAdded, of, annotation=citation, channel=channel, offset=offset)


def signals(*triggers: str, of: str | None = None) -> Template:
    """`DoomLoopSignals`; one trigger where none is given."""
    return _template(DoomLoopSignals, of, triggers=triggers or ("repetition",))


def images_stripped(
    *urls: str,
    reason: Literal["server_rejected", "payload_heuristic"] = "server_rejected",
    of: str | None = None,
) -> Template:
    """`ImagesStripped`; one URL where none is given."""
    return _template(ImagesStripped, of, stripped_urls=urls or ("https://example.org/image.png",), reason=reason)


def retrying(
    kind: SamplingErrorKind = SamplingErrorKind.HTTP,
    reason: str = "connection reset",
    *,
    backoff_s: float = 0.0,
    max_retries: int = 15,
    of: str | None = None,
) -> Template:
    """`Retrying`, the next in the budget that this kind of error debits; the triggers are those that were signalled."""
    budgets: dict[SamplingErrorKind, RetryBudgetName] = {
        SamplingErrorKind.RATE_LIMITED: "rate_limit",
        SamplingErrorKind.DOOM_LOOP_DETECTED: "doom_loop",
    }
    budget = budgets.get(kind, "transport")

    def make(course: Course, ts: float) -> SamplingEvent:
        return Retrying(
            **course.stamp(ts),
            next_attempt=course.attempt + 1,
            retry=course.retry(budget),
            max_retries=max_retries,
            budget=budget,
            error_kind=kind,
            reason=reason,
            backoff_s=backoff_s,
            doom_loop_triggers=course.triggers if budget == "doom_loop" else (),
        )

    return Template(make, of)


def completed(*items: ResponseItem | str, of: str | None = None, **fields: Any) -> Template:
    """`Completed`; without items its response is what was drawn. A str is a text item, `fields` are the response's.

    TypeError for a field that it does not have.
    """
    _check_fields(fields, SamplingResponse.model_fields)
    said = tuple(TextItem(text=item) if isinstance(item, str) else item for item in items)

    def make(course: Course, ts: float) -> SamplingEvent:
        drawn = course.response()
        whole: dict[str, Any] = {name: getattr(drawn, name) for name in SamplingResponse.model_fields}
        whole["items"] = said or drawn.items
        calls = any(isinstance(item, ToolCall) for item in whole["items"])
        whole["stop_reason"] = "tool_calls" if calls else "stop"
        response = SamplingResponse(**{**whole, **fields})
        tokens = response.usage.output_tokens if response.usage else None
        return Completed(**course.stamp(ts), response=response, metrics=course.metrics(ts, tokens))

    return Template(make, of)


def failed(
    kind: SamplingErrorKind = SamplingErrorKind.HTTP,
    message: str = "the connection broke",
    *,
    of: str | None = None,
    **fields: Any,
) -> Template:
    """`Failed`, with what was drawn as its partial response; `fields` are those of `SamplingErrorInfo`."""
    error = SamplingErrorInfo(kind=kind, message=message, **fields)

    def make(course: Course, ts: float) -> SamplingEvent:
        partial = course.response()
        content = partial.items or any(isinstance(event, ChannelToken | ToolCallDelta) for event in course.events)
        return Failed(**course.stamp(ts), error=error, partial=partial if content else None, metrics=course.metrics(ts))

    return Template(make, of)


def _check_fields(given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in given:
        if name not in known:
            raise TypeError(f"a response has no {name!r}: its fields are {', '.join(known)}")


class Drawing:
    """Makes events of letters, one after the other, for one diagram.

    A letter is looked up in `templates` (a template, or an event as it is). Else `S` is `StreamStarted`, `F` the
    `FirstToken` of the token behind it, `R` `Retrying`, `C` `Completed`, `X` `Failed`, and any other letter a token of
    text that says that letter.
    """

    def __init__(
        self, templates: Mapping[str, Template | SamplingEvent], *, request_id: str = "r", begun_at: float = 0.0
    ) -> None:
        self._templates = templates
        self._request_id = request_id
        self._begun_at = begun_at
        self._courses: dict[str, Course] = {}

    def event(self, letter: str, ts: float, following: str | None = None) -> SamplingEvent:
        """The event of this letter; `following` is the letter behind it. ValueError for an `F` without its token."""
        template = self._template(letter, following)
        if not isinstance(template, Template):
            return self._noted(template)
        return self._noted(template.make(self._course(template.of or self._request_id), ts))

    def _course(self, request_id: str) -> Course:
        course = self._courses.get(request_id)
        if course is None:
            course = self._courses[request_id] = Course(request_id, self._begun_at)
        return course

    def _noted(self, event: SamplingEvent) -> SamplingEvent:
        if isinstance(event, Completed | Failed):
            self._courses.pop(event.request_id, None)
        else:
            self._course(event.request_id).note(event)
        return event

    def _template(self, letter: str, following: str | None) -> Template | SamplingEvent:
        if letter in self._templates:
            return self._templates[letter]
        if letter == "F":
            return self._first(following)
        plain = {"S": started, "R": retrying, "C": completed, "X": failed}.get(letter)
        return plain() if plain is not None else text(letter)

    def _first(self, following: str | None) -> Template:
        """Announces the token behind it, on its channel and for its request."""
        token = None if following in (None, "F") else self._template(following, None)
        if isinstance(token, Template):
            token = token.make(Course(token.of or self._request_id, self._begun_at), self._begun_at)
        if isinstance(token, ChannelToken):
            return first_token(token.channel, of=token.request_id)
        raise ValueError(f"F announces the token behind it, and {'nothing' if token is None else token.kind} is there")
