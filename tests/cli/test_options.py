"""Options and environment made into a configuration."""

import pytest

from rx_sampler.cli.options import ServerOptions, UnusableError, key_variable, resolve
from rx_sampler.config import SamplerConfig


def config_of(options: ServerOptions, environ: dict[str, str]) -> SamplerConfig:
    config = resolve(options, environ)
    assert config is not None
    return config


def key_of(config: SamplerConfig) -> str | None:
    return config.reveal_api_key()


def test_nothing_named_is_nothing_configured() -> None:
    assert resolve(ServerOptions(), {}) is None
    assert resolve(ServerOptions(model="m", backend="messages"), {"OPENAI_API_KEY": "k"}) is None


def test_options_name_everything() -> None:
    options = ServerOptions(base_url="http://h/v1", backend="messages", model="m", api_key_env="MY_KEY")
    config = config_of(options, {"MY_KEY": " k "})
    assert (config.base_url, config.backend, config.model, key_of(config)) == ("http://h/v1", "messages", "m", "k")


def test_further_settings_reach_the_configuration() -> None:
    config = resolve(ServerOptions(base_url="http://h/v1", model="m"), {}, deadline_s=3.0)
    assert config is not None
    assert config.deadline_s == 3.0


def test_a_provider_brings_url_backend_and_key() -> None:
    config = config_of(ServerOptions(provider="anthropic", model="m"), {"ANTHROPIC_API_KEY": "k"})
    assert (config.base_url, config.backend, key_of(config)) == ("https://api.anthropic.com/v1", "messages", "k")


def test_the_environment_alone_is_enough() -> None:
    environ = {"RX_SAMPLER_BASE_URL": "http://h/v1", "RX_SAMPLER_MODEL": "m", "RX_SAMPLER_API_KEY": "k"}
    config = config_of(ServerOptions(), environ)
    assert (config.base_url, config.model, key_of(config)) == ("http://h/v1", "m", "k")


def test_an_option_wins_over_the_environment() -> None:
    environ = {"RX_SAMPLER_BASE_URL": "http://h/v1", "RX_SAMPLER_MODEL": "m"}
    assert config_of(ServerOptions(model="other"), environ).model == "other"


@pytest.mark.parametrize(
    "options",
    [ServerOptions(base_url="http://other/v1", model="m"), ServerOptions(provider="ollama", model="m")],
)
def test_the_key_of_the_environments_server_goes_to_no_other(options: ServerOptions) -> None:
    environ = {"RX_SAMPLER_BASE_URL": "http://h/v1", "RX_SAMPLER_API_KEY": "k", "RX_SAMPLER_BACKEND": "messages"}
    config = config_of(options, environ)
    assert key_of(config) is None
    assert config.backend == "chat_completions"
    assert config.base_url != "http://h/v1"


def test_a_provider_of_the_environment_gives_its_key_to_no_other_url() -> None:
    environ = {"RX_SAMPLER_PROVIDER": "openai", "OPENAI_API_KEY": "k"}
    assert key_of(config_of(ServerOptions(base_url="http://other/v1", model="m"), environ)) is None


def test_a_key_without_a_server_in_the_environment_serves_the_one_named() -> None:
    config = config_of(ServerOptions(base_url="http://h/v1", model="m"), {"RX_SAMPLER_API_KEY": "k"})
    assert key_of(config) == "k"


@pytest.mark.parametrize(
    ("options", "environ", "says"),
    [
        (ServerOptions(), {"RX_SAMPLER_MODEL": "m"}, "RX_SAMPLER_MODEL is set, but no server"),
        (ServerOptions(base_url="nowhere"), {}, "base_url is an http(s) URL"),
        (ServerOptions(base_url="http://h/v1"), {}, "the server needs the name of a model"),
        (ServerOptions(provider="openai"), {}, "openai needs the name of a model"),
        (ServerOptions(), {"RX_SAMPLER_PROVIDER": "nobody"}, "'nobody' is not known"),
        (
            ServerOptions(base_url="http://h/v1", model="m", api_key_env="UNSET"),
            {},
            "UNSET: this environment variable is not set",
        ),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(options: ServerOptions, environ: dict[str, str], says: str) -> None:
    with pytest.raises(UnusableError) as raised:
        resolve(options, environ)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_way_to_a_server_and_what_is_asked_stay_those_of_the_environment() -> None:
    described = {
        "RX_SAMPLER_BASE_URL": "http://described/v1",
        "RX_SAMPLER_AUTH_SCHEME": "api_key",
        "RX_SAMPLER_PROXY": "http://proxy.test:3128",
        "RX_SAMPLER_REASONING_EFFORT": "high",
    }
    other = config_of(ServerOptions(base_url="http://other/v1", model="m"), described)
    assert other.auth_scheme is None  # it belongs to the server that was described
    assert (other.reveal_proxy(), other.reasoning_effort) == ("http://proxy.test:3128", "high")
    assert resolve(ServerOptions(), {"RX_SAMPLER_PROXY": "http://proxy.test:3128"}) is None  # it names no server


def test_a_variable_that_will_not_do_is_named() -> None:
    with pytest.raises(UnusableError, match="RX_SAMPLER_TEMPERATURE: Input should be a valid number"):
        resolve(ServerOptions(base_url="http://h/v1", model="m"), {"RX_SAMPLER_TEMPERATURE": "hot"})
    with pytest.raises(UnusableError, match="set AZURE_OPENAI_ENDPOINT, or give base_url"):
        resolve(ServerOptions(provider="azure", model="m"), {})
    azure = config_of(ServerOptions(provider="azure", base_url="http://h/v1", model="m"), {})
    assert (azure.base_url, azure.auth_scheme) == ("http://h/v1", "api_key")


def test_another_wire_format_is_asked_at_its_own_address() -> None:
    config = config_of(ServerOptions(provider="deepseek", backend="messages", model="m"), {})
    assert config.base_url == "https://api.deepseek.com/anthropic/v1"


def test_the_hint_names_the_variable_that_was_looked_at() -> None:
    assert key_variable(ServerOptions(provider="gemini"), {"GOOGLE_API_KEY": "k"}) == "GOOGLE_API_KEY"
    assert key_variable(ServerOptions(provider="gemini"), {}) == "GEMINI_API_KEY"
    assert key_variable(ServerOptions(provider="groq"), {}) == "GROQ_API_KEY"
    assert key_variable(ServerOptions(provider="groq", api_key_env="MINE"), {}) == "MINE"
    assert key_variable(ServerOptions(), {"RX_SAMPLER_PROVIDER": "xai"}) == "XAI_API_KEY"
    assert key_variable(ServerOptions(base_url="http://h"), {"RX_SAMPLER_PROVIDER": "xai"}) is None
