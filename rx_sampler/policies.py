"""How long and how often a failed request is tried again: the policies of a configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["DoomLoopPolicy", "Frozen", "LoopDetection", "RetryBudget", "RetryPolicy"]


class Frozen(BaseModel):
    """What the parts of a configuration have in common: no change afterwards, and no field that is not known."""

    # Built at first use: the schemas of all models cost as much as the import of a library.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class RetryPolicy(Frozen):
    """How often and how patiently a failed attempt is repeated. All times in seconds.

    * `max_retries`: retries after the first attempt, for failures of transport and server and for empty answers. 0
      switches off every retry, and the wait of one request for another's `Retry-After`. Else
      `RX_SAMPLER_MAX_RETRIES` and then `GROK_MAX_RETRIES` of the environment win.
    * `rate_limit_threshold`: the n-th 429 in a row is the request's failure; 1 means that none is retried.
    * `initial_backoff_s`, `max_backoff_s`, `jitter`: waits double from the first to the second, then each is drawn
      evenly from plus or minus `jitter` of itself.
    * `retry_after_cap_s`: a 429 waits as long as its `Retry-After` says, up to this; beyond it the request fails at
      once. Other failures wait for theirs, but never longer than `max_backoff_s` and the jitter on it.
    * `retry_only_before_output`: once a token or a part of a tool call came, the request is not repeated.
    * `max_elapsed_s`: no attempt begins later than this after the request was made.
    """

    max_retries: int = Field(default=15, ge=0)
    rate_limit_threshold: int = Field(default=2, ge=1)
    initial_backoff_s: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    max_backoff_s: float = Field(default=30.0, ge=0, allow_inf_nan=False)
    jitter: float = Field(default=0.2, ge=0, le=1)
    retry_after_cap_s: float = Field(default=120.0, ge=0)
    retry_only_before_output: bool = False
    max_elapsed_s: float | None = Field(default=None, gt=0)


class RetryBudget(Frozen):
    """A sampler's tokens for retries, shared by its requests, so that a dead server is not asked many times over.

    Each retry that answers a failure takes one token; where none is left, a failure is final. A request that succeeds
    gives back what its retries took, and `refill_per_success` at least. Doom loop retries and retries without images
    take none. `capacity` is where it starts, and its most.
    """

    capacity: float = Field(default=100, ge=1, allow_inf_nan=False)
    refill_per_success: float = Field(default=1, ge=0, allow_inf_nan=False)


class DoomLoopPolicy(Frozen):
    """Opt-in to the server's repetition check (responses backend), and what is done about a doom loop.

    * `max_threshold`: how tight a repetition of the reasoning must be to drop the attempt (lower is tighter).
    * `max_retries`: how often an attempt may be dropped; the one after that is accepted as it comes. A budget of its
      own: transport retries do not debit it. Nothing is dropped where `RetryPolicy.max_retries` is 0.
    * `window_tokens`: what the server is asked to look at.
    """

    max_threshold: int = Field(default=64, ge=2, le=64)
    max_retries: int = Field(default=2, ge=0, le=5)
    window_tokens: int = Field(default=1024, ge=512, le=4096)


class LoopDetection(Frozen):
    """A check for repetition on our side, for servers that have none.

    An answer counts as looping when its last characters, on a channel or in the arguments of one tool call, are
    `min_repeats` times or more the same passage of at most `max_period_chars`, and `min_chars` together.
    """

    min_repeats: int = Field(default=4, ge=2)
    min_chars: int = Field(default=1024, ge=16)
    max_period_chars: int = Field(default=2048, ge=1)
