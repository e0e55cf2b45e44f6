"""Operators over `SamplingEvent`s, for `pipe`: select, measure, assemble, combine."""

from .accumulate import Snapshot, accumulate
from .arguments import PartialArguments, partial_arguments
from .channels import Channels, split_channels
from .contest import MAX_HELD, RaceOutcome
from .counting import in_flight
from .fallback import fallback
from .goodput import Goodput, Slo, goodput
from .grouping import by_request
from .hedge import hedge
from .latency import (
    FirstTokenLatency,
    InterTokenLatency,
    inter_token_latency,
    time_to_first_text,
    time_to_first_token,
)
from .lines import lines, sentences
from .loops import detect_loop
from .merge import Tagged, merge_tagged
from .outcome import commit_on, unwrap
from .pacing import smooth
from .quantiles import Quantiles
from .race import race
from .rates import TokenRate, token_rate
from .select import annotations, channel, for_request, of_type, reasoning, text, until_terminal
from .statistics import LatencyStats, latency_stats
from .structured import PartialJson, partial_json
from .think_tags import split_think_tags
from .tools import FinishedToolCall, tool_calls

__all__ = [
    "MAX_HELD",
    "Channels",
    "FinishedToolCall",
    "FirstTokenLatency",
    "Goodput",
    "InterTokenLatency",
    "LatencyStats",
    "PartialArguments",
    "PartialJson",
    "Quantiles",
    "RaceOutcome",
    "Slo",
    "Snapshot",
    "Tagged",
    "TokenRate",
    "accumulate",
    "annotations",
    "by_request",
    "channel",
    "commit_on",
    "detect_loop",
    "fallback",
    "for_request",
    "goodput",
    "hedge",
    "in_flight",
    "inter_token_latency",
    "latency_stats",
    "lines",
    "merge_tagged",
    "of_type",
    "partial_arguments",
    "partial_json",
    "race",
    "reasoning",
    "sentences",
    "smooth",
    "split_channels",
    "split_think_tags",
    "text",
    "time_to_first_text",
    "time_to_first_token",
    "token_rate",
    "tool_calls",
    "until_terminal",
    "unwrap",
]
