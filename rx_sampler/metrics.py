"""Latency of one request, measured at the arrival of its bytes."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import islice
from math import ceil
from operator import sub

__all__ = ["LatencyMetrics", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyMetrics:
    """How long a request took, in milliseconds; None where there was nothing to measure.

    A chunk is one `ChannelToken` (any channel), stamped when the read that completed its frame arrived, before any
    parsing. Inter-token figures are gaps between such chunks, which need not be single tokens; only
    `output_tokens_per_second` counts tokens, as the provider reports them in `usage`:
    `output_tokens / (last byte - first token)`, None without usage or without an interval to divide by.
    Percentiles are nearest-rank over all gaps: p50 is `sorted[n // 2]`, p99 is `sorted[ceil(0.99 n) - 1]`.
    """

    queued_ms: float | None = None
    """From submit to the first attempt: the wait for a free place (`max_concurrency`) or for a shared cooldown."""
    time_to_stream_started_ms: float | None = None
    """From submit (the subscription) to accepted response headers; earlier attempts and all waits included."""
    time_to_first_token_ms: float | None = None
    """From the stream's start (accepted headers) to the first non-empty chunk of any channel."""
    time_to_first_token_from_submit_ms: float | None = None
    time_to_first_text_ms: float | None = None
    """From the stream's start to the first non-empty chunk of the text channel."""
    time_to_last_byte_ms: float | None = None
    """From the stream's start to the end of the answer."""
    inter_token_p50_ms: float | None = None
    inter_token_p90_ms: float | None = None
    inter_token_p99_ms: float | None = None
    inter_token_max_ms: float | None = None
    inter_token_mean_ms: float | None = None
    output_tokens_per_second: float | None = None
    chunk_count: int = 0
    attempts: int = 1
    """How many were begun; 0 for a request that failed while it queued."""


def measure(
    *,
    submitted_at: float,
    queued_s: float | None = None,
    started_at: float | None,
    ended_at: float,
    stamps: array[float],
    first_text_at: float | None,
    output_tokens: int | None,
    attempts: int,
) -> LatencyMetrics:
    """Compute the metrics of an attempt from its times in seconds, all on one monotone clock."""
    queued_ms = queued_s * 1e3 if queued_s is not None else None
    if started_at is None:
        return LatencyMetrics(attempts=attempts, queued_ms=queued_ms)
    first = stamps[0] if stamps else None
    gaps_s = sorted(map(sub, islice(stamps, 1, None), stamps))
    n = len(gaps_s)
    decode_s = ended_at - first if first is not None else 0.0

    def rank(share: float) -> float | None:
        return gaps_s[min(max(ceil(share * n) - 1, 0), n - 1)] * 1e3 if n else None

    return LatencyMetrics(
        queued_ms=queued_ms,
        time_to_stream_started_ms=(started_at - submitted_at) * 1e3,
        time_to_first_token_ms=(first - started_at) * 1e3 if first is not None else None,
        time_to_first_token_from_submit_ms=(first - submitted_at) * 1e3 if first is not None else None,
        time_to_first_text_ms=(first_text_at - started_at) * 1e3 if first_text_at is not None else None,
        time_to_last_byte_ms=(ended_at - started_at) * 1e3,
        inter_token_p50_ms=gaps_s[n // 2] * 1e3 if n else None,
        inter_token_p90_ms=rank(0.90),
        inter_token_p99_ms=rank(0.99),
        inter_token_max_ms=gaps_s[-1] * 1e3 if n else None,
        inter_token_mean_ms=sum(gaps_s) / n * 1e3 if n else None,
        output_tokens_per_second=output_tokens / decode_s if output_tokens and decode_s > 0 else None,
        chunk_count=len(stamps),
        attempts=attempts,
    )
