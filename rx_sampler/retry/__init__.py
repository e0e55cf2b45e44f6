"""Asking again: what may be repeated, when, and how often.

`classify` is the decision table, pure; `retrying` is the operator that follows it. What requests of one sampler share
(tokens for retries, cooldowns) is in `limits`.
"""

from .decisions import TABLE, Action, Budget, Decision, RetryState, classify
from .environment import max_retries_from
from .limits import Cooldowns, RetryTokens, SharedLimits
from .operator import joined_attempts, retrying

__all__ = [
    "TABLE",
    "Action",
    "Budget",
    "Cooldowns",
    "Decision",
    "RetryState",
    "RetryTokens",
    "SharedLimits",
    "classify",
    "joined_attempts",
    "max_retries_from",
    "retrying",
]
