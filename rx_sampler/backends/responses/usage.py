"""Token counts of the responses wire, normalised."""

from __future__ import annotations

from rx_sampler.backends.lenient import as_int, as_object
from rx_sampler.conversation import JsonObject, Usage

__all__ = ["responses_usage"]


def responses_usage(wire: JsonObject) -> Usage | None:
    """The counts of a usage object; None if it has none.

    xAI bills all server turns of an answer together and tells the length of the conversation in `context_details`;
    where that is complete, it is the total.
    """
    prompt, output, total = (as_int(wire.get(name)) for name in ("input_tokens", "output_tokens", "total_tokens"))
    if not prompt and not output and not total:
        return None
    context = as_object(wire.get("context_details")) or {}
    live = [as_int(context.get(name)) for name in ("input_tokens", "output_tokens")]
    if live[0] is not None and live[1] is not None:
        total = live[0] + live[1]
    return Usage(
        input_tokens=prompt or 0,
        output_tokens=output or 0,
        total_tokens=total if total is not None else (prompt or 0) + (output or 0),
        cached_input_tokens=as_int((as_object(wire.get("input_tokens_details")) or {}).get("cached_tokens")),
        reasoning_tokens=as_int((as_object(wire.get("output_tokens_details")) or {}).get("reasoning_tokens")),
        wire=wire,
    )
