"""The few words that matter of a record, for people. Pure, and content with any JSON object: logs outlive versions.

What comes out is not safe for a terminal yet: it quotes servers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

__all__ = ["clipped", "words_of"]

_MAX_CHARS: Final = 300
_COMMON: Final = frozenset({"time", "record", "request_id", "attempt"})

Fields = Mapping[str, Any]


def words_of(record: Fields) -> str:
    """One line: numbers with their units, errors with their kind, and of unknown records whatever they have."""
    describe = _DESCRIBERS.get(str(record.get("record")), _anything)
    return clipped(", ".join(describe(record)), _MAX_CHARS)


def clipped(text: str, max_chars: int) -> str:
    """`text`, or its start and `...`."""
    return text if len(text) <= max_chars else text[: max_chars - 3] + "..."


def _number(fields: Fields, name: str) -> float | None:
    value = fields.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _object(fields: Fields, name: str) -> Fields:
    value = fields.get(name)
    return cast("Fields", value) if isinstance(value, dict) else {}  # JSON objects have str keys


def _text(fields: Fields, *names: str) -> Iterator[str]:
    for name in names:
        value = fields.get(name)
        if value is not None and value != "":
            yield value if isinstance(value, str) else json.dumps(value)


def _counted(fields: Fields, name: str, what: str, *, at_least: int = 1) -> Iterator[str]:
    count = _number(fields, name)
    if count is not None and count >= at_least:
        yield f"{count:g} {what}" if count == 1 else f"{count:g} {what}s"


def _timed(fields: Fields, name: str, before: str) -> Iterator[str]:
    """Milliseconds up to ten seconds, seconds from there."""
    value = _number(fields, name)
    if value is not None:
        yield f"{before}{value:.0f} ms" if value < 10_000 else f"{before}{value / 1e3:.1f} s"


def _submit(fields: Fields) -> Iterator[str]:
    yield " ".join((*_text(fields, "backend"), *_text(fields, "model"))) or "?"
    yield from _text(fields, "base_url")
    yield from (f"effort {effort}" for effort in _text(fields, "reasoning_effort"))
    yield from _counted(fields, "item_count", "item")
    yield from _counted(fields, "tool_count", "tool")
    yield from _counted(fields, "image_count", "image")


def _attempt(fields: Fields) -> Iterator[str]:
    yield from _text(fields, "attempt")
    if (_number(fields, "queued_ms") or 0.0) >= 1.0:
        yield from _timed(fields, "queued_ms", "queued for ")


def _after_submit(fields: Fields) -> Iterator[str]:
    channel = "".join(f"{channel} " for channel in _text(fields, "channel"))
    yield from _timed(fields, "since_submit_ms", f"{channel}after ")


def _named(fields: Fields) -> Iterator[str]:
    yield from _text(fields, "model", "message_id")
    yield from _provider_id(fields)
    window = _number(fields, "context_window")
    if window is not None:
        yield f"context window {window:g}"
    yield from _counted(fields, "input_tokens", "input token")


def _retrying(fields: Fields) -> Iterator[str]:
    wait = _number(fields, "backoff_s")
    after = f" in {wait:.1f} s" if wait is not None else ""
    of = " of ".join((*_text(fields, "retry"), *_text(fields, "max_retries")))
    yield f"attempt {fields.get('next_attempt', '?')}{after} ({fields.get('budget', '?')} retry {of})"
    yield ": ".join((*_text(fields, "error_kind"), *_text(fields, "reason")))


def _tool_result(fields: Fields) -> Iterator[str]:
    yield " ".join((*_text(fields, "name"), "failed" if fields.get("is_error") is True else "ran"))
    yield from _timed(fields, "duration_ms", "for ")
    yield from _counted(fields, "chars", "character")
    yield from _counted(fields, "image_count", "image")
    yield from (f"said {json.dumps(text, ensure_ascii=False)}" for text in _text(fields, "result"))


def _images_stripped(fields: Fields) -> Iterator[str]:
    yield from _counted(fields, "count", "image")
    yield from _text(fields, "reason", "stripped_urls")


def _triggers(fields: Fields) -> Iterator[str]:
    triggers = fields.get("triggers")
    for trigger in cast("list[object]", triggers) if isinstance(triggers, list) else [triggers]:
        yield str(trigger)


def _exhausted(fields: Fields) -> Iterator[str]:
    yield from (f"after {count}" for count in _counted(fields, "total_attempts", "attempt"))


def _completed(fields: Fields) -> Iterator[str]:
    yield from _text(fields, "stop_reason")
    usage, metrics = _object(fields, "usage"), _object(fields, "metrics")
    yield from _counted(usage, "input_tokens", "input token")
    reasoning = "".join(f" ({count:g} reasoning)" for count in [_number(usage, "reasoning_tokens")] if count)
    yield from (f"{tokens}{reasoning}" for tokens in _counted(usage, "output_tokens", "output token"))
    yield from _timed(metrics, "time_to_first_token_from_submit_ms", "first token after ")
    speed = _number(metrics, "output_tokens_per_second")
    if speed is not None:
        yield f"{speed:.1f} tokens/s"
    cost = _number(fields, "cost_usd")
    if cost is not None:
        yield f"${cost:.6f}"
    yield from _counted(fields, "attempts", "attempt", at_least=2)
    yield from (f"said {json.dumps(text, ensure_ascii=False)}" for text in _text(fields, "text"))


def _failed(fields: Fields) -> Iterator[str]:
    code = "".join(f" [{code}]" for code in _text(fields, "code"))
    kind = " ".join((*_text(fields, "kind"), *_text(fields, "status"))) + code
    yield ": ".join((kind, *_text(fields, "message")))
    wait = _number(fields, "retry_after_s")
    if wait is not None:
        yield f"to be asked again in {wait:g} s"
    yield from _counted(fields, "attempts", "attempt", at_least=2)
    yield from (f"{chars} had come" for chars in _counted(fields, "partial_chars", "character"))
    yield from _provider_id(fields)


def _provider_id(fields: Fields) -> Iterator[str]:
    yield from (f"provider's id {one}" for one in _text(fields, "provider_request_id"))


def _lost(fields: Fields) -> Iterator[str]:
    yield from (f"{count} missing here" for count in _counted(fields, "count", "record"))


def _event(fields: Fields) -> Iterator[str]:
    event = _object(fields, "event")
    what = [*_text(event, "kind", "channel", "name")]
    shown = ("text", "arguments_delta", "annotation", "result")
    said = [json.dumps(event[name], ensure_ascii=False) for name in shown if event.get(name) is not None]
    yield " ".join((*what, *said))


def _anything(fields: Fields) -> Iterator[str]:
    for name in fields:
        if name not in _COMMON:
            yield from (f"{name}={value}" for value in _text(fields, name))


_DESCRIBERS: Final[Mapping[str, Callable[[Fields], Iterator[str]]]] = {
    "submit": _submit,
    "attempt": _attempt,
    "stream_started": _after_submit,
    "first_token": _after_submit,
    "dropped_by_subscriber": _after_submit,
    "metadata": _named,
    "response_started": _named,
    "retrying": _retrying,
    "tool_result_added": _tool_result,
    "images_stripped": _images_stripped,
    "doom_loop_signals": _triggers,
    "retries_exhausted": _exhausted,
    "completed": _completed,
    "failed": _failed,
    "dropped": _lost,
    "event": _event,
}
