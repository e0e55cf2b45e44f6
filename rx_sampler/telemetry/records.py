"""What the sampling log says of a request: events in, records out. Pure.

A record is a JSON object that begins with `time`, `record` and `request_id`. Which fields follow depends on `record`
alone; what is not known is null. Without content a record holds nothing that the user or the model said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from rx_sampler.conversation import ReasoningItem, RefusalItem, SamplingResponse, TextItem, Usage
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
    event_to_json,
)
from rx_sampler.images import image_urls
from rx_sampler.metrics import LatencyMetrics

from .masking import with_short_images
from .notes import Notes, Record, rfc3339

__all__ = ["Builder", "attempt", "builders", "dropped_by_subscriber", "submit"]

Builder = Callable[[Notes, Any], list[Record]]


def builders(*, content: bool) -> Mapping[type[SamplingEvent], Builder]:
    """How each event is recorded; those that are not in it are not."""
    return _WITH_CONTENT if content else _WITHOUT_CONTENT


def _record(notes: Notes, name: str, ts: float, /, **fields: object) -> Record:
    return {"time": rfc3339(ts), "record": name, "request_id": notes.facts.request_id, **fields}


def _since_submit_ms(notes: Notes, ts: float) -> float:
    return round((ts - notes.facts.ts) * 1e3, 3)


def submit(notes: Notes) -> list[Record]:
    """The request as it was made."""
    facts, request = notes.facts, notes.facts.request
    record = _record(
        notes,
        "submit",
        facts.ts,
        backend=facts.backend,
        model=facts.model,
        base_url=facts.base_url,
        reasoning_effort=facts.reasoning_effort,
        item_count=len(request.items),
        tool_count=len(request.tools) + len(request.hosted_tools),
        image_count=len(image_urls(request)),
    )
    if not notes.content:
        return [record]
    return [{**record, "items": [with_short_images(item.model_dump(mode="json")) for item in request.items]}]


def attempt(notes: Notes, number: int, ts: float) -> list[Record]:
    """An attempt begins; on the first, `queued_ms` is how long the request had waited for its turn."""
    first = {"queued_ms": _since_submit_ms(notes, ts)} if number == 1 else {}
    return [_record(notes, "attempt", ts, attempt=number, **first)]


def dropped_by_subscriber(notes: Notes, ts: float) -> list[Record]:
    """The subscriber went away before the end."""
    return [_record(notes, "dropped_by_subscriber", ts, since_submit_ms=_since_submit_ms(notes, ts))]


def _of(notes: Notes, name: str, event: SamplingEvent, /, **fields: object) -> Record:
    """What every record of an event begins with, then `fields`."""
    return _record(notes, name, event.ts, attempt=event.attempt, **fields)


def _stream_started(notes: Notes, event: StreamStarted) -> list[Record]:
    return [_of(notes, "stream_started", event, since_submit_ms=_since_submit_ms(notes, event.ts))]


def _response_started(notes: Notes, event: ResponseStarted) -> list[Record]:
    named = {"message_id": event.message_id, "model": event.model, "input_tokens": event.input_tokens}
    return [_of(notes, "response_started", event, **named)]


def _metadata(notes: Notes, event: ModelMetadata) -> list[Record]:
    return [
        _of(
            notes,
            "metadata",
            event,
            model=event.model,
            context_window=event.context_window,
            max_completion_tokens=event.max_completion_tokens,
            models_etag=event.models_etag,
            rate_limits=[asdict(limit) for limit in event.rate_limits],
            provider_request_id=event.provider_request_id,
        )
    ]


def _first_token(notes: Notes, event: FirstToken) -> list[Record]:
    passed_ms = _since_submit_ms(notes, event.ts)
    return [_of(notes, "first_token", event, channel=event.channel, since_submit_ms=passed_ms)]


def _tool_result_added(notes: Notes, event: ToolResultAdded) -> list[Record]:
    result = event.result
    said = {"result": with_short_images(result.content)} if notes.content else {}
    return [
        _of(
            notes,
            "tool_result_added",
            event,
            tool_call_id=event.tool_call_id,
            name=event.name,
            is_error=result.is_error,
            duration_ms=round(event.duration_ms, 3),
            chars=len(result.content),
            image_count=len(result.images),
            **said,
        )
    ]


def _images_stripped(notes: Notes, event: ImagesStripped) -> list[Record]:
    urls = {"stripped_urls": with_short_images(event.stripped_urls)} if notes.content else {}
    return [_of(notes, "images_stripped", event, count=len(event.stripped_urls), reason=event.reason, **urls)]


def _doom_loop_signals(notes: Notes, event: DoomLoopSignals) -> list[Record]:
    return [_of(notes, "doom_loop_signals", event, triggers=event.triggers)]


def _retrying(notes: Notes, event: Retrying) -> list[Record]:
    return [
        _of(
            notes,
            "retrying",
            event,
            next_attempt=event.next_attempt,
            retry=event.retry,
            max_retries=event.max_retries,
            budget=event.budget,
            error_kind=event.error_kind,
            reason=notes.words(event.error_kind, event.reason),
            backoff_s=round(event.backoff_s, 3),
            doom_loop_triggers=event.doom_loop_triggers,
            doom_loop_aborted_at_chunk=event.doom_loop_aborted_at_chunk,
        )
    ]


def _completed(notes: Notes, event: Completed) -> list[Record]:
    response = event.response
    text = {"text": with_short_images(response.text)} if notes.content else {}
    return [
        _of(
            notes,
            "completed",
            event,
            stop_reason=response.stop_reason,
            model=response.model,
            message_id=response.message_id,
            usage=_usage(response.usage),
            cost_usd=response.cost_usd,
            attempts=event.metrics.attempts,
            metrics=_metrics(event.metrics),
            **text,
        )
    ]


def _failed(notes: Notes, event: Failed) -> list[Record]:
    error, attempts = event.error, max(event.attempt, event.metrics.attempts)
    failed = _of(
        notes,
        "failed",
        event,
        kind=error.kind,
        status=error.status,
        code=error.code,
        message=notes.words(error.kind, error.message, event.partial),
        is_retryable=error.is_retryable,
        provider_request_id=error.provider_request_id,
        retry_after_s=error.retry_after_s,
        attempts=attempts,
        partial_chars=_said_chars(event.partial),
        metrics=_metrics(event.metrics),
    )
    if not (error.is_retryable and notes.retries):
        return [failed]
    exhausted = _of(notes, "retries_exhausted", event, total_attempts=attempts)
    return [exhausted, failed]


def _event(notes: Notes, event: SamplingEvent) -> list[Record]:
    """The event itself, as `event_to_json` writes it."""
    document: object = json.loads(event_to_json(event))
    return [_of(notes, "event", event, event=with_short_images(document))]


def _usage(usage: Usage | None) -> dict[str, int | None] | None:
    return usage.model_dump(exclude={"wire"}) if usage is not None else None


def _metrics(metrics: LatencyMetrics) -> dict[str, float | None]:
    fields: dict[str, float | None] = asdict(metrics)
    del fields["attempts"]
    return {name: round(value, 3) if value is not None else None for name, value in fields.items()}


def _said_chars(partial: SamplingResponse | None) -> int:
    items = partial.items if partial is not None else ()
    return sum(len(item.text) for item in items if isinstance(item, TextItem | ReasoningItem | RefusalItem))


_WITHOUT_CONTENT: Final[Mapping[type[SamplingEvent], Builder]] = {
    StreamStarted: _stream_started,
    ResponseStarted: _response_started,
    ModelMetadata: _metadata,
    FirstToken: _first_token,
    ToolResultAdded: _tool_result_added,
    ImagesStripped: _images_stripped,
    DoomLoopSignals: _doom_loop_signals,
    Retrying: _retrying,
    Completed: _completed,
    Failed: _failed,
}
_CONTENT_EVENTS: Final[tuple[type[SamplingEvent], ...]] = (
    ChannelToken,
    ReasoningCompleted,
    ToolCallDelta,
    BackendToolCallStarted,
    BackendToolCallCompleted,
    AnnotationAdded,
)
_WITH_CONTENT: Final[Mapping[type[SamplingEvent], Builder]] = {
    **_WITHOUT_CONTENT,
    **dict.fromkeys(_CONTENT_EVENTS, _event),
}
