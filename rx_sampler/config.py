"""Where requests go and how long they may take: `SamplerConfig` and its policies."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer, field_validator

from .conversation import ReasoningEffort
from .providers import preset_fields

__all__ = ["DoomLoopPolicy", "RetryPolicy", "SamplerConfig", "shown_url"]

BearerResolver = Callable[[], str | Awaitable[str | None] | None]
HeaderInjector = Callable[[dict[str, str]], None]


class _Frozen(BaseModel):
    # Built at first use: the schemas of all models cost as much as the import of a library.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class RetryPolicy(_Frozen):
    """How often and how patiently a failed attempt is repeated. All times in seconds."""

    max_retries: int = Field(default=15, ge=0)
    rate_limit_threshold: int = Field(default=2, ge=1)
    initial_backoff_s: float = Field(default=2.0, ge=0)
    max_backoff_s: float = Field(default=30.0, ge=0)
    jitter: float = Field(default=0.2, ge=0, le=1)
    retry_after_cap_s: float = Field(default=120.0, ge=0)
    retry_only_before_output: bool = False


class DoomLoopPolicy(_Frozen):
    """Opt-in to the server's repetition check (responses backend)."""

    max_threshold: int = Field(default=64, ge=2, le=64)
    max_retries: int = Field(default=2, ge=0, le=5)
    window_tokens: int = Field(default=1024, ge=512, le=4096)


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
    * timers: `connect_timeout_s` until the connection stands, `header_timeout_s` from there to the response headers,
      `idle_timeout_s` without any byte, `content_idle_timeout_s` without content (pings and empty deltas do not
      count; None: as `idle_timeout_s`), `terminal_grace_s` from a stop reason to the announced end, `deadline_s`
      over all. None switches `deadline_s` off.
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
    doom_loop: DoomLoopPolicy | None = None
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
