"""Where requests go and how long they may take: `SamplerConfig` and its policies."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, LiteralString, Self, cast

from pydantic import ConfigDict, Field, SecretStr, ValidationError, field_serializer, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from .addresses import checked_base_url, checked_proxy, shown_url
from .conversation import ReasoningEffort, ReasoningSummary
from .conversation.items import any_case
from .dialects import ChatDialect, MessagesDialect, ResponsesDialect
from .policies import DoomLoopPolicy, Frozen, LoopDetection, RetryBudget, RetryPolicy
from .providers import PRESETS, AuthScheme, known_provider, preset_fields
from .vendor_headers import VendorHeaders

__all__ = [
    "ENVIRONMENT",
    "DoomLoopPolicy",
    "LoopDetection",
    "RetryBudget",
    "RetryPolicy",
    "SamplerConfig",
    "shown_url",
]

BearerResolver = Callable[[], str | Awaitable[str | None] | None]
HeaderInjector = Callable[[dict[str, str]], None]

ENVIRONMENT: Final[Mapping[str, str]] = {
    "RX_SAMPLER_BACKEND": "backend",
    "RX_SAMPLER_BASE_URL": "base_url",
    "RX_SAMPLER_MODEL": "model",
    "RX_SAMPLER_API_KEY": "api_key",
    "RX_SAMPLER_AUTH_SCHEME": "auth_scheme",
    "RX_SAMPLER_APPLICATION": "application",
    "RX_SAMPLER_PROXY": "proxy",
    "RX_SAMPLER_CA_BUNDLE": "ca_bundle",
    "RX_SAMPLER_TRUST_ENV": "trust_env",
    "RX_SAMPLER_TEMPERATURE": "temperature",
    "RX_SAMPLER_TOP_P": "top_p",
    "RX_SAMPLER_MAX_OUTPUT_TOKENS": "max_output_tokens",
    "RX_SAMPLER_REASONING_EFFORT": "reasoning_effort",
}
"""The variables that `SamplerConfig.from_env` reads besides `RX_SAMPLER_PROVIDER`, and the fields that they set."""

_PRODUCT: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+(/[!#$%&'*+.^_`|~0-9A-Za-z-]+)?")  # RFC 9110, 10.1.5


class SamplerConfig(Frozen):
    """One server, one credential, one set of limits; shared by any number of requests.

    Secrets (`api_key`, `proxy`, header values, query parameters, whatever in `base_url` is not the address) show in no
    repr, no JSON and no validation error. Names ending in `_s` are seconds.

    * `api_key`: given as str, held as pydantic's `SecretStr`.
    * `backend`: the wire format: `chat_completions`, `responses`, `messages`, or one that a third party registered.
    * `base_url`: the endpoint's path is put behind it (`{base_url}/chat/completions`); its query string is kept.
    * `auth_scheme`: `bearer` (`Authorization: Bearer KEY`), `x_api_key` (`x-api-key: KEY`) or Azure's `api_key`
      (`api-key: KEY`); by default that of the backend's own vendor: `x_api_key` for messages, `bearer` for the others.
    * `bearer_resolver`: asked before each attempt; its answer replaces `api_key`, None sends no credential.
    * `header_injector`: called last with the headers about to be sent, which it may change.
    * `vendor_headers`: headers of one vendor, such as `GrokHeaders`; every other source of headers wins over them.
    * `application`: who asks, `NAME` or `NAME/VERSION`; stands before `rx-sampler/VERSION` in the user agent.
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
    * `proxy`: `http(s)://USER:PASSWORD@HOST:PORT`, through which everything goes, whatever the environment says. Held
      as `SecretStr`.
    * `ca_bundle`: a PEM file of certificate authorities that are trusted besides the system's.
    * `store`: whether a server of responses keeps the answer.
    * `reasoning_summary`: the summary of its reasoning that a server of responses is asked for; None leaves the choice
      to `responses_dialect`, `none` asks for no summary.
    * `response_includes`: what else a server of responses shall include, behind the encrypted reasoning.
    * `stream_tool_calls`: ask a server of responses to stream the arguments of calls (xAI's flag).
    * `cache_breakpoints`: mark, on messages, what the server may cache.
    * `chat_dialect`, `responses_dialect`, `messages_dialect`: what the server wants differently; by default what is
      known of the provider that `base_url` belongs to.
    """

    model_config = ConfigDict(hide_input_in_errors=True, arbitrary_types_allowed=True)

    backend: str = "chat_completions"
    base_url: str
    model: str = ""
    api_key: SecretStr | str | None = Field(default=None, repr=False)
    auth_scheme: AuthScheme | None = None
    bearer_resolver: BearerResolver | None = Field(default=None, repr=False, exclude=True)
    header_injector: HeaderInjector | None = Field(default=None, repr=False, exclude=True)
    extra_headers: dict[str, str] = Field(default={}, repr=False)
    vendor_headers: VendorHeaders | None = Field(default=None, repr=False, exclude=True)
    application: str | None = None
    env_http_headers: dict[str, str] = Field(default={})
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
    proxy: SecretStr | str | None = Field(default=None, repr=False)
    ca_bundle: Path | str | None = None
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_output_tokens: int | None = Field(default=None, ge=1)
    reasoning_effort: ReasoningEffort | None = None
    store: bool = False
    reasoning_summary: ReasoningSummary | None = None
    response_includes: tuple[str, ...] = ()
    stream_tool_calls: bool = False
    cache_breakpoints: bool = True
    chat_dialect: ChatDialect | None = None
    responses_dialect: ResponsesDialect | None = None
    messages_dialect: MessagesDialect | None = None

    @field_validator("api_key")
    @classmethod
    def _a_secret(cls, key: SecretStr | str | None) -> SecretStr | None:
        return SecretStr(key) if isinstance(key, str) else key

    @field_validator("base_url")
    @classmethod
    def _an_http_url(cls, url: str) -> str:
        return checked_base_url(url)

    @field_validator("proxy")
    @classmethod
    def _a_proxy(cls, proxy: SecretStr | str | None) -> SecretStr | None:
        url = proxy.get_secret_value() if isinstance(proxy, SecretStr) else proxy
        return None if url is None else SecretStr(checked_proxy(url))

    @field_validator("ca_bundle")
    @classmethod
    def _a_path(cls, path: Path | str | None) -> Path | None:
        return Path(path) if isinstance(path, str) else path

    @field_validator("application")
    @classmethod
    def _a_product(cls, application: str | None) -> str | None:
        if application is not None and not _PRODUCT.fullmatch(application):
            raise ValueError("application is NAME or NAME/VERSION without spaces, such as my-app/1.2")
        return application

    @field_validator("reasoning_effort", "reasoning_summary", mode="before")
    @classmethod
    def _in_any_case(cls, word: object) -> object:
        return any_case(word)

    @classmethod
    def preset(cls, provider: str, **overrides: Any) -> Self:
        """The configuration of a known provider: address, wire format, auth scheme, quirks, and the key if it is set.

        `overrides` are fields of this class and win; with another `backend` the address is the one for it. Raises
        ValueError for a name that `providers` does not know, and for a provider whose address nobody gave.
        """
        fields = preset_fields(provider, os.environ, overrides.get("backend"))
        return cls(**_with_address({**fields, **overrides}, provider))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """The configuration that the environment describes.

        `RX_SAMPLER_PROVIDER` names a preset; the variables of `ENVIRONMENT` set fields over it; blank ones are as if
        unset. `overrides` win. Raises pydantic's ValidationError where a needed field is still missing, and for a value
        that will not do, naming the variable that it came from.
        """
        env = os.environ if environ is None else environ
        given = {variable: value for variable in ENVIRONMENT if (value := env.get(variable, "").strip())}
        fields: dict[str, Any] = {ENVIRONMENT[variable]: value for variable, value in given.items()} | overrides
        if provider := env.get("RX_SAMPLER_PROVIDER", "").strip():
            fields = _with_address({**preset_fields(provider, env, fields.get("backend")), **fields}, provider)
        try:
            return cls(**fields)
        except ValidationError as error:
            sources = {ENVIRONMENT[variable]: variable for variable in given if ENVIRONMENT[variable] not in overrides}
            raise _named_after(error, sources) from None

    def reveal_api_key(self) -> str | None:
        """The key itself, for whoever has to send it."""
        key = self.api_key
        return key.get_secret_value() if isinstance(key, SecretStr) else key

    @property
    def content_idle_s(self) -> float:
        return self.idle_timeout_s if self.content_idle_timeout_s is None else self.content_idle_timeout_s

    def reveal_proxy(self) -> str | None:
        """The proxy with its credentials, for whoever has to connect to it."""
        proxy = self.proxy
        return proxy.get_secret_value() if isinstance(proxy, SecretStr) else proxy

    @property
    def chat_quirks(self) -> ChatDialect:
        """What the server wants differently on chat completions: `chat_dialect`, else what is known of its provider."""
        known = known_provider(self.base_url)
        return self.chat_dialect or (known and known.chat_dialect) or ChatDialect()

    @property
    def responses_quirks(self) -> ResponsesDialect:
        """What the server wants differently on responses: `responses_dialect`, else what is known of its provider."""
        known = known_provider(self.base_url)
        return self.responses_dialect or (known and known.responses_dialect) or ResponsesDialect()

    @property
    def messages_quirks(self) -> MessagesDialect:
        """What the server wants differently on messages: `messages_dialect`, else what is known of its provider."""
        known = known_provider(self.base_url)
        return self.messages_dialect or (known and known.messages_dialect) or MessagesDialect()

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


def _with_address(fields: dict[str, Any], provider: str) -> dict[str, Any]:
    if not fields.get("base_url"):
        variable = PRESETS[provider.lower()].base_url_env
        raise ValueError(f"{provider} has an address for each customer: set {variable}, or give base_url")
    return fields


def _named_after(error: ValidationError, sources: Mapping[str, str]) -> ValidationError:
    """The error with each field called what it is called where its value came from."""
    lines: list[InitErrorDetails] = []
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        # pydantic's own types of errors want their own contexts; the words are what matters
        kind, words = cast(LiteralString, one["type"]), cast(LiteralString, one["msg"])
        first, *rest = one["loc"] or ("",)
        where = (sources.get(str(first), first), *rest)
        lines.append(InitErrorDetails(type=PydanticCustomError(kind, words), loc=where, input=None))
    return ValidationError.from_exception_data(error.title, lines, hide_input=True)
