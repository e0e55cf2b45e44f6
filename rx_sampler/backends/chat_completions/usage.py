"""Token counts of the chat wire, normalised."""

from __future__ import annotations

from typing import Any

from rx_sampler.backends.lenient import as_int, as_object
from rx_sampler.conversation import JsonObject, Usage

__all__ = ["chat_usage", "cost_usd", "merge_usage"]


def merge_usage(known: JsonObject, new: JsonObject) -> JsonObject:
    """`known` with what `new` adds: the last value of a field wins, but null and all-zero objects erase nothing."""
    counts = [as_int(new.get(name)) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    if known and not any(counts):
        return known
    return known | {
        name: value for name, value in new.items() if value is not None and (value != 0 or not known.get(name))
    }


def chat_usage(wire: JsonObject) -> Usage | None:
    """The counts of a usage object; None if it has none.

    Two habits are undone where the numbers prove them: reasoning counted beside the completion (some xAI models: the
    three add up to the total), and cached tokens counted beside the prompt (more of them than the prompt has).
    """
    prompt = as_int(wire.get("prompt_tokens"))
    completion = as_int(wire.get("completion_tokens"))
    total = as_int(wire.get("total_tokens"))
    if not prompt and not completion and not total:
        return None
    prompt, completion = prompt or 0, completion or 0
    inputs = as_object(wire.get("prompt_tokens_details")) or {}
    outputs = as_object(wire.get("completion_tokens_details")) or {}
    reasoning = _first_int(outputs.get("reasoning_tokens"), wire.get("reasoning_tokens"))
    cached = _first_int(inputs.get("cached_tokens"), wire.get("prompt_cache_hit_tokens"), wire.get("cached_tokens"))
    if reasoning and total == prompt + completion + reasoning:
        completion += reasoning
    if cached and cached > prompt:
        prompt += cached
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        total_tokens=max(total or 0, prompt + completion),
        cached_input_tokens=cached,
        cache_creation_input_tokens=_first_int(
            inputs.get("cache_creation_tokens"),
            inputs.get("cache_write_tokens"),
            wire.get("cache_creation_input_tokens"),
        ),
        reasoning_tokens=reasoning,
        wire=wire,
    )


def cost_usd(wire: JsonObject) -> float | None:
    """What the answer cost, where the wire says so: `cost` in dollars (OpenRouter), or xAI's ticks of 1e-10 dollars."""
    ticks = as_int(wire.get("cost_in_usd_ticks"))
    if ticks and ticks > 0:
        return ticks / 1e10
    cost: Any = wire.get("cost")
    if (detail := as_object(cost)) is not None:  # Perplexity
        cost = detail.get("total_cost")
    is_number = isinstance(cost, int | float) and not isinstance(cost, bool)
    return float(cost) if is_number and 0 < cost < 1e9 else None


def _first_int(*values: object) -> int | None:
    return next((number for value in values if (number := as_int(value)) is not None), None)
