"""From options and environment to a configuration and a request. What cannot be used is told in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rx_sampler.providers import PRESETS

if TYPE_CHECKING:
    from pydantic import ValidationError

    from rx_sampler.config import SamplerConfig

__all__ = ["ServerOptions", "UnusableError", "key_variable", "one_line", "resolve"]

_SERVER_VARIABLES = ("RX_SAMPLER_PROVIDER", "RX_SAMPLER_BASE_URL")
_VARIABLES = (
    *_SERVER_VARIABLES,
    "RX_SAMPLER_BACKEND",
    "RX_SAMPLER_MODEL",
    "RX_SAMPLER_API_KEY",
    "RX_SAMPLER_AUTH_SCHEME",
)
"""What describes a server. The others that `SamplerConfig.from_env` reads are about the way there, or what is asked."""


class UnusableError(Exception):
    """What was asked for cannot be done; `str()` is the reason, one line for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What the command line says about the server; None where it says nothing."""

    provider: str | None = None
    base_url: str | None = None
    backend: str | None = None
    model: str | None = None
    api_key_env: str | None = None


def resolve(options: ServerOptions, environ: Mapping[str, str], **settings: Any) -> SamplerConfig | None:
    """The configuration that options and environment name; None if neither names any server.

    The environment describes one server (`SamplerConfig.from_env`). A command line that names another, by provider or
    base URL, takes nothing of that description, its key least of all. `settings` are further fields of the
    configuration. Raises `UnusableError`.
    """
    from pydantic import ValidationError

    from rx_sampler.config import SamplerConfig

    env = dict(environ)
    if options.provider or options.base_url:
        if any(env.get(name) for name in _SERVER_VARIABLES):
            env = {name: value for name, value in env.items() if name not in _VARIABLES}
        if options.provider:
            env["RX_SAMPLER_PROVIDER"] = options.provider
    elif not any(env.get(name) for name in _VARIABLES):
        return None
    elif not any(env.get(name) for name in _SERVER_VARIABLES):
        given = next(name for name in _VARIABLES if env.get(name))
        raise UnusableError(
            f"{given} is set, but no server: name one with --provider, --base-url or RX_SAMPLER_BASE_URL"
        )
    named = {"base_url": options.base_url, "backend": options.backend, "model": options.model}
    fields: dict[str, Any] = {**settings, **{name: value for name, value in named.items() if value is not None}}
    if options.api_key_env is not None:
        fields["api_key"] = _key(options.api_key_env, environ)
    try:
        config = SamplerConfig.from_env(env, **fields)
    except ValidationError as error:
        raise UnusableError(one_line(error)) from None
    except ValueError as error:
        raise UnusableError(str(error)) from None
    if not config.model:
        whose = env.get("RX_SAMPLER_PROVIDER") or "the server"
        raise UnusableError(f"{whose} needs the name of a model: --model NAME or RX_SAMPLER_MODEL")
    return config


def key_variable(options: ServerOptions, environ: Mapping[str, str]) -> str | None:
    """The variable that a provider's key is looked for in, for a hint; None where there is no usual one."""
    if options.api_key_env:
        return options.api_key_env
    provider = options.provider or ("" if options.base_url else environ.get("RX_SAMPLER_PROVIDER", ""))
    preset = PRESETS.get(provider.lower())
    if preset is None or environ.get("RX_SAMPLER_API_KEY"):
        return None
    return next((name for name in preset.other_key_envs if environ.get(name, "").strip()), preset.key_env)


def _key(variable: str, environ: Mapping[str, str]) -> str:
    key = environ.get(variable, "").strip()
    if not key:
        raise UnusableError(f"--api-key-env {variable}: this environment variable is not set")
    return key


def one_line(error: ValidationError) -> str:
    """The first complaint of a validation, with its field and without the value, which may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    said = first["msg"].removeprefix("Value error, ")
    return said if where in said else f"{where}: {said}"
