"""Where requests go and how long they may take: `SamplerConfig` and its policies."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer, field_validator

from .conversation import ReasoningEffort
from .providers import preset_fields

__all__ = ["DoomLoopPolicy", "LoopDetection", "RetryBudget", "RetryPolicy", "SamplerConfig", "shown_url"]

BearerResolver = Callable[[], str | Awaitable[str | None] | None]
HeaderInjector = Callable[[dict[str, str]], None]


class _Frozen(BaseModel):
    # Built at first use: the schemas of all models cost as much as the import of a library.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class RetryPolicy(_Frozen):
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


class RetryBudget(_Frozen):
    """A sampler's tokens for retries, shared by its requests, so that a dead server is not asked many times over.

    Each retry that answers a failure takes one token; where none is left, a failure is final. A request that succeeds
    gives back what its retries took, and `refill_per_success` at least. Doom loop retries and retries without images
    take none. `capacity` is where it starts, and its most.
    """

    capacity: float = Field(default=100, ge=1, allow_inf_nan=False)
    refill_per_success: float = Field(default=1, ge=0, allow_inf_nan=False)


class DoomLoopPolicy(_Frozen):
    """Opt-in to the server's repetition check (responses backend), and what is done about a doom loop.

    * `max_threshold`: how tight a repetition of the reasoning must be to drop the attempt (lower is tighter).
    * `max_retries`: how often an attempt may be dropped; the one after that is accepted as it comes. A budget of its
      own: transport retries do not debit it. Nothing is dropped where `RetryPolicy.max_retries` is 0.
    * `window_tokens`: what the server is asked to look at.
    """

    max_threshold: int = Field(default=64, ge=2, le=64)
    max_retries: int = Field(default=2, ge=0, le=5)
    window_tokens: int = Field(default=1024, ge=512, le=4096)


class LoopDetection(_Frozen):
    """A check for repetition on our side, for servers that have none.

    An answer counts as looping when its last characters, on a channel or in the arguments of one tool call, are
    `min_repeats` times or more the same passage of at most `max_period_chars`, and `min_chars` together.
    """

    min_repeats: int = Field(default=4, ge=2)
    min_chars: int = Field(default=1024, ge=16)
    max_period_chars: int = Field(default=2048, ge=1)


class SamplerConfig(_Frozen):
    """One server, one credential, one set of limits; shared by any number of requests.

    Secrets (`api_key`, header values, query parameters, whatever in `base_url` is not the address) show in no repr, no
    JSON and no validation error. Names ending in `_s` are seconds.

    * `api_key`: given as str, held as pydantic's `SecretStr`.
    * `backend`: the wire format: `chat_completions`, `responses`, `messages`, or one that a third party registered.
    * `base_url`: the endpoint's path is put behind it (`{base_url}/chat/completions`); its query string is kept.
    * `auth_scheme`: `bearer` (`Authorization: Bearer KEY`) or `x_api_key` (`x-api-key: KEY`); by default what the
      backend's own vendor uses: `x_api_key` for messages, `bearer` for the others.
    * `bearer_resolver`: asked before each attempt; its answer replaces `api_key`, None sends no credential.
    * `header_injector`: called last with the headers about to be sent, which it may change.
    * `env_http_headers`: header name -> environment variable; unset or blank ones are left out.
    * `retry_budget`: shared by all requests of a sampler; None for no limit.
    * `max_concurrency`: how many requests of a sampler run at a time, their waits between attempts included; the
      others queue, first come first served. None for no limit.
    * `doom_loop`: what to do about a model that repeats itself; None leaves the server's check off.
    * `detect_loops`: check for repetition here, on any backend; recovery and budget are those of `doom_loop`, or of
      a `DoomLoopPolicy()` where that is None.
    * timers: `connect_timeout_s` until the connection stands, `header_timeout_s` from there to the response headers,
      `idle_timeout_s` without any byte, `content_idle_timeout_s` without content (pings and empty deltas do not
      count; None: as `idle_timeout_s`), `terminal_grace_s` from a stop reason to the announced end, `deadline_s`
      over all, queue and retries included. None switches `deadline_s` off.
    * `max_frame_bytes`: the largest single event that is read; beyond it the request fails (`serialization`).
    * `split_think_tags`: `<think>` tags inside text become the reasoning channel, on every backend.
    * `on_length`: whether a stop at the token limit is `Completed` or `Failed(max_tokens_truncation)`.
    * `accept_unterminated`: take a clean end of body as the end of the answer, for servers that never announce it.
    * `trust_env`: use `HTTP(S)_PROXY` and `.netrc` of the environment.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    backend: str = "chat_completions"
    base_url: str
    model: str = ""
    api_key: SecretStr | str | None = Field(default=None, repr=False)
    auth_scheme: Literal["bearer", "x_api_key"] | None = None
    bearer_resolver: BearerResolver | None = Field(default=None, repr=False, exclude=True)
    header_injector: HeaderInjector | None = Field(default=None, repr=False, exclude=True)
    extra_headers: dict[str, str] = Field(default={}, repr=False)
    env_http_headers: dict[str, str] = {}
    query_params: dict[str, str] = Field(default={}, repr=False)
    retry: RetryPolicy = RetryPolicy()
    retry_budget: RetryBudget | None = RetryBudget()
    max_concurrency: int | None = Field(default=None, ge=1)
    doom_loop: DoomLoopPolicy | None = None
    detect_loops: LoopDetection | None = None
    connect_timeout_s: float = Field(default=10.0, gt=0)
    header_timeout_s: float = Field(default=300.0, gt=0)
    idle_timeout_s: float = Field(default=300.0, gt=0)
    content_idle_timeout_s: float | None = Field(default=None, gt=0)
    terminal_grace_s: float = Field(default=2.0, ge=0)
    deadline_s: float | None = Field(default=None, gt=0)
    max_frame_bytes: int = Field(default=64 * 2**20, ge=1024)
    split_think_tags: bool = False
    on_length: Literal["complete", "fail"] = "complete"
    accept_unterminated: bool = False
    trust_env: bool = False
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_output_tokens: int | None = Field(default=None, ge=1)
    reasoning_effort: ReasoningEffort | None = None

    @field_validator("api_key")
    @classmethod
    def _a_secret(cls, key: SecretStr | str | None) -> SecretStr | None:
        return SecretStr(key) if isinstance(key, str) else key

    @field_validator("base_url")
    @classmethod
    def _an_http_url(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            sound = sound and bool((parts.hostname or "").rstrip(".").encode("idna"))
        except ValueError:  # a port that is none, a label that is empty or too long
            sound = False
        if not sound:
            raise ValueError("base_url is an http(s) URL with a host, such as https://api.openai.com/v1")
        return url

    @classmethod
    def preset(cls, provider: str, **overrides: Any) -> Self:
        """The configuration of a known provider: base URL, backend, auth scheme and the key from its variable.

        `overrides` are fields of this class and win. Raises ValueError for a name that `providers` does not know.
        """
        return cls(**{**preset_fields(provider, os.environ), **overrides})

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """The configuration that the environment describes.

        `RX_SAMPLER_PROVIDER` names a preset; `RX_SAMPLER_BACKEND`, `_BASE_URL`, `_MODEL` and `_API_KEY` set fields
        over it. `overrides` win. Raises pydantic's ValidationError where a needed field is still missing.
        """
        env = os.environ if environ is None else environ
        fields: dict[str, Any] = {}
        if provider := env.get("RX_SAMPLER_PROVIDER", "").strip():
            fields |= preset_fields(provider, env)
        for name in ("backend", "base_url", "model", "api_key"):
            if value := env.get(f"RX_SAMPLER_{name.upper()}", "").strip():
                fields[name] = value
        return cls(**{**fields, **overrides})

    def reveal_api_key(self) -> str | None:
        """The key itself, for whoever has to send it."""
        key = self.api_key
        return key.get_secret_value() if isinstance(key, SecretStr) else key

    @property
    def content_idle_s(self) -> float:
        return self.idle_timeout_s if self.content_idle_timeout_s is None else self.content_idle_timeout_s

    @field_serializer("base_url", when_used="json")
    def _address(self, url: str) -> str:
        return shown_url(url)

    @field_serializer("extra_headers", "query_params", when_used="json")
    def _names(self, given: dict[str, str]) -> dict[str, str]:
        return dict.fromkeys(given, "**********")

    def __repr__(self) -> str:
        key = "" if self.api_key is None else ", api_key=***"
        url = shown_url(self.base_url)
        return f"SamplerConfig(backend={self.backend!r}, base_url={url!r}, model={self.model!r}{key})"

    __str__ = __repr__


def shown_url(url: str) -> str:
    """The address in a URL: scheme, host and path. User, password, query and fragment may be secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an unreadable address"
    more = "?..." if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{more}" if parts.netloc else parts.path
