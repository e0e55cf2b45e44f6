"""One safe line of words for a citation, a tool result, a retry, a failure, a finished request. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from rx_sampler.conversation import JsonObject, Usage
from rx_sampler.errors import SamplingErrorInfo
from rx_sampler.events import Retrying, ToolResultAdded

from .sanitize import visible_line

__all__ = ["as_list", "citation_lines", "failure_line", "result_line", "retry_line", "summary_line", "tool_gist"]

MAX_GIST_CHARS = 200
"""Of a server tool's input: results run to megabytes, a reader wants to know what was asked."""

# Where the wire formats put what a server tool was told to do, and what went wrong with it.
_GIST_KEYS = ("error", "action", "input", "arguments", "queries", "query", "code")
_TITLE_KEYS = ("title", "document_title", "filename", "file_id")
_PLACE_KEYS = ("url", "source")

# The wires' words for what the normalised stop reason says already; any other word tells more.
_PLAIN_STOP_REASONS = frozenset(
    {
        "completed",
        "content_filter",
        "end_turn",
        "length",
        "max_output_tokens",
        "max_tokens",
        "stop",
        "tool_calls",
        "tool_use",
    }
)


def _compact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_GIST_CHARS else text[: MAX_GIST_CHARS - 3] + "..."


def _as_object(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}  # JSON objects have str keys


def as_list(value: object) -> list[object]:
    """A JSON array; an empty one for anything else."""
    return cast(list[object], value) if isinstance(value, list) else []  # its elements are checked where they are used


def tool_gist(result: JsonObject | None) -> str:
    """`": ..."` with what a server tool did, cut to `MAX_GIST_CHARS`; empty where the wire does not say."""
    found = (value for key in _GIST_KEYS if (value := _as_object(result).get(key)))
    gist = next(found, None)
    return "" if gist is None else ": " + visible_line(_clipped(_compact(gist)))


def result_line(event: ToolResultAdded) -> str:
    """What a tool of the user's gave, cut to `MAX_GIST_CHARS`, and how long it took."""
    result = event.result
    ended = "failed" if result.is_error else "finished"
    images = f" and {len(result.images)} image(s)" if result.images else ""
    said = visible_line(_clipped(result.content))
    return f"tool {visible_line(event.name)} {ended} in {event.duration_ms:.0f} ms: {said}{images}"


def citation_lines(annotation: object) -> tuple[str, str]:
    """What tells a source from others (its place, if it has one), and its title and place in one line.

    Reads the shapes that providers give a citation, a bare URL among them; of any other its JSON is shown, clipped.
    """
    fields = _as_object(annotation)
    # Chat completions wraps the fields: {"type": "url_citation", "url_citation": {...}}.
    fields = _as_object(fields.get(str(fields.get("type")))) or fields
    title = next((fields[key] for key in _TITLE_KEYS if isinstance(fields.get(key), str) and fields[key]), None)
    place = next((fields[key] for key in _PLACE_KEYS if isinstance(fields.get(key), str) and fields[key]), None)
    known = f"{title} <{place}>" if title and place else title or place
    line = visible_line(known or _clipped(_compact(annotation)))
    return place or line, line


def retry_line(event: Retrying) -> str:
    """When the next attempt begins and why."""
    count = f"retry {event.retry} of {event.max_retries}"
    return f"trying again in {event.backoff_s:.1f} s ({count}): {visible_line(event.reason)}"


def failure_line(error: SamplingErrorInfo, hint: str | None) -> str:
    """What went wrong in the words of the error, and what to do about it where `hint` knows."""
    message = visible_line(error.message.strip() or error.kind.value)
    return f"{message} ({hint})" if hint else message


def summary_line(
    *,
    model: str | None,
    first_token_ms: float | None,
    chunks: int,
    end: str,
    from_submit_ms: float | None = None,
    tokens_per_second: float | None = None,
    usage: Usage | None = None,
    cost_usd: float | None = None,
    raw_stop_reason: str | None = None,
    stop_message: str | None = None,
) -> str:
    """Speed, size and end of an answer; what is not known is left out."""
    parts: list[str] = []
    if model:
        parts.append(visible_line(model))
    if first_token_ms is not None:
        submit = f" ({from_submit_ms:.0f} ms from submit)" if from_submit_ms is not None else ""
        parts.append(f"time to first token {first_token_ms:.0f} ms{submit}")
    if tokens_per_second is not None:
        parts.append(f"{tokens_per_second:.1f} tokens/s")
    parts.append(", ".join(_usage_words(usage)) if usage is not None else f"{chunks} chunks")
    if cost_usd is not None:
        parts.append(f"${cost_usd:.6f}")
    if raw_stop_reason and raw_stop_reason not in _PLAIN_STOP_REASONS:
        end = f"{end} ({visible_line(raw_stop_reason)})"
    parts.append(end)
    if stop_message:
        parts.append(visible_line(stop_message))
    return " | ".join(parts)


def _usage_words(usage: Usage) -> Iterator[str]:
    cached = f" ({usage.cached_input_tokens} cached)" if usage.cached_input_tokens else ""
    yield f"{usage.input_tokens} input tokens{cached}"
    reasoning = f" ({usage.reasoning_tokens} reasoning)" if usage.reasoning_tokens else ""
    yield f"{usage.output_tokens} output tokens{reasoning}"
