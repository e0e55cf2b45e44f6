"""The configuration: bounds, presets, the environment, and no secret in any text about it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, Final

import pytest
from pydantic import SecretStr, ValidationError

from rx_sampler.config import DoomLoopPolicy, RetryPolicy, SamplerConfig

URL: Final = "https://api.test/v1"
KEY: Final = "sk-live-7f3d9c2b1a"


def config(**fields: Any) -> SamplerConfig:
    return SamplerConfig.model_validate({"base_url": URL, **fields})


# -- defaults and bounds


def test_defaults_are_those_of_the_contract() -> None:
    it = config()
    assert (it.backend, it.model, it.api_key, it.auth_scheme) == ("chat_completions", "", None, None)
    assert (it.connect_timeout_s, it.header_timeout_s, it.idle_timeout_s) == (10.0, 300.0, 300.0)
    assert (it.content_idle_timeout_s, it.terminal_grace_s, it.deadline_s) == (None, 2.0, None)
    assert (it.on_length, it.accept_unterminated, it.split_think_tags, it.trust_env) == (
        "complete",
        False,
        False,
        False,
    )
    assert it.doom_loop is None
    assert it.retry == RetryPolicy(
        max_retries=15,
        rate_limit_threshold=2,
        initial_backoff_s=2.0,
        max_backoff_s=30.0,
        jitter=0.2,
        retry_after_cap_s=120.0,
        retry_only_before_output=False,
    )
    # B275
    assert DoomLoopPolicy() == DoomLoopPolicy(max_threshold=64, max_retries=2, window_tokens=1024)
    assert DoomLoopPolicy.model_validate({"max_retries": 0}) == DoomLoopPolicy(max_threshold=64, max_retries=0)


def test_the_content_timer_is_the_idle_timer_unless_set() -> None:
    assert config(idle_timeout_s=7.0).content_idle_s == 7.0
    assert config(idle_timeout_s=7.0, content_idle_timeout_s=3.0).content_idle_s == 3.0


def test_a_configuration_is_frozen_and_equal_by_value() -> None:
    it = config()
    with pytest.raises(ValidationError, match="frozen"):
        it.model = "other"  # type: ignore[misc]  # what is tested
    assert it == config()
    assert it.model_copy(update={"model": "m"}) == config(model="m")


def test_defaults_are_not_shared_between_configurations() -> None:
    config().extra_headers["x-a"] = "b"
    assert config().extra_headers == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("connect_timeout_s", 0),
        ("header_timeout_s", -1),
        ("idle_timeout_s", 0),
        ("content_idle_timeout_s", 0),
        ("terminal_grace_s", -0.1),
        ("deadline_s", 0),
        ("max_frame_bytes", 1023),
        ("max_output_tokens", 0),
        ("temperature", -0.1),
        ("top_p", 1.01),
        ("on_length", "stop"),
        ("auth_scheme", "basic"),
        ("reasoning_effort", "extreme"),
        ("base_url", 7),
        ("api_key", ["a"]),
        ("idle_timeout_s", "soon"),
        ("time_out", 3),
    ],
)
def test_a_value_out_of_bounds_is_named_with_its_field(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        config(**{field: value})


@pytest.mark.parametrize("field", ["connect_timeout_s", "header_timeout_s", "idle_timeout_s", "deadline_s"])
def test_a_timer_is_a_number_of_seconds(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        config(**{field: float("nan")})


@pytest.mark.parametrize(
    ("policy", "field", "value"),
    [
        (RetryPolicy, "max_retries", -1),
        (RetryPolicy, "rate_limit_threshold", 0),
        (RetryPolicy, "initial_backoff_s", -1),
        (RetryPolicy, "max_backoff_s", -1),
        (RetryPolicy, "jitter", 1.1),
        (RetryPolicy, "retry_after_cap_s", -1),
        (DoomLoopPolicy, "max_threshold", 65),
        (DoomLoopPolicy, "max_threshold", 1),
        (DoomLoopPolicy, "max_retries", 6),
        (DoomLoopPolicy, "window_tokens", 511),
        (DoomLoopPolicy, "window_tokens", 4097),
    ],
)
def test_policies_have_bounds(policy: type[RetryPolicy | DoomLoopPolicy], field: str, value: float) -> None:
    """B276, which bends values into the bounds without a word."""
    with pytest.raises(ValidationError, match=field):
        policy(**{field: value})  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    "url", ["", "api.test/v1", "ftp://api.test", "http://", "https:///v1", "unix:/tmp/x", "localhost:8080"]
)
def test_a_base_url_is_http_with_a_host(url: str) -> None:
    with pytest.raises(ValidationError, match="base_url") as caught:
        config(base_url=url)
    assert "https://api.openai.com/v1" in str(caught.value)  # what would be right


@pytest.mark.parametrize(
    "url", [URL, "http://127.0.0.1:8080", "http://[::1]:8080/v1", "HTTPS://API.TEST/v1", URL + "?a=b"]
)
def test_any_http_url_with_a_host_will_do(url: str) -> None:
    assert config(base_url=url).base_url == url


@pytest.mark.parametrize("url", ["http://api.test:80a/v1", "http://api.test:99999/v1"])
def test_a_port_is_a_port(url: str) -> None:
    with pytest.raises(ValidationError, match="base_url"):
        config(base_url=url)


# -- secrets


def _everything(make: Callable[[], object]) -> str:
    """All texts about an object, or about the error that its making raised."""
    try:
        made = make()
    except ValidationError as error:
        shown = "".join(traceback.format_exception(error))
        return "\n".join([shown, str(error), repr(error)])
    assert isinstance(made, SamplerConfig)
    return "\n".join([repr(made), str(made), f"{made}", made.model_dump_json(), repr(made.model_dump(mode="json"))])


SECRET_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "key": {"api_key": KEY},
    "key as a SecretStr": {"api_key": SecretStr(KEY)},
    "extra header": {"extra_headers": {"authorization": f"Bearer {KEY}"}},
    "query parameter": {"query_params": {"key": KEY}},
    "key in the URL": {"base_url": f"{URL}?key={KEY}"},
    "password in the URL": {"base_url": f"https://user:{KEY}@api.test/v1"},
    "user in the URL": {"base_url": f"https://{KEY}@api.test/v1"},
    "fragment of the URL": {"base_url": f"{URL}#{KEY}"},
}


@pytest.mark.parametrize("fields", SECRET_FIELDS.values(), ids=SECRET_FIELDS.keys())
def test_repr_and_str_show_no_secret(fields: dict[str, Any]) -> None:
    it = config(**fields)
    for text in (repr(it), str(it), f"{it}", f"{it!r:.500}", repr([it])):
        assert KEY not in text
        assert "api.test" in text  # and still say where it goes


@pytest.mark.parametrize(
    "fields", [SECRET_FIELDS["key"], SECRET_FIELDS["key as a SecretStr"]], ids=["str", "SecretStr"]
)
def test_json_shows_no_key(fields: dict[str, Any]) -> None:
    assert KEY not in _everything(lambda: config(**fields))


@pytest.mark.parametrize(
    "name",
    [
        "extra header",
        "query parameter",
        "key in the URL",
        "password in the URL",
        "user in the URL",
        "fragment of the URL",
    ],
)
def test_json_shows_no_other_secret(name: str) -> None:
    assert KEY not in config(**SECRET_FIELDS[name]).model_dump_json()


def test_json_leaves_live_objects_out() -> None:
    it = config(bearer_resolver=lambda: KEY, header_injector=dict[str, str].clear)
    dumped = it.model_dump_json()
    assert KEY not in dumped
    assert "resolver" not in dumped
    assert "injector" not in dumped


@pytest.mark.parametrize(
    "fields",
    [
        {"base_url": f"api.test/v1?key={KEY}"},
        {"base_url": f"ftp://user:{KEY}@api.test/v1"},
        {"base_url": KEY},  # the key in the wrong field
        {"api_key": [KEY]},
        {"api_key": KEY.encode() + b"\xff"},
        {"extra_headers": {"authorization": [KEY]}},
        {"extra_headers": f"authorization: {KEY}"},
        {"query_params": {"key": [KEY]}},
        {"apikey": KEY},  # the key in a misspelt field
    ],
    ids=lambda fields: f"{next(iter(fields))}: {type(next(iter(fields.values()))).__name__}",
)
def test_an_error_does_not_quote_a_secret(fields: dict[str, Any]) -> None:
    shown = _everything(lambda: config(**fields))
    assert KEY not in shown
    assert next(iter(fields)) in shown  # and still names the field


def test_an_error_elsewhere_does_not_quote_the_key() -> None:
    assert KEY not in _everything(lambda: config(api_key=KEY, idle_timeout_s=-1, extra_headers={"x-key": KEY}))


# -- where it comes from

PRESETS: Final = [
    # provider, base URL, backend, environment variable of the key: as the providers' quickstarts give them
    ("openai", "https://api.openai.com/v1", "responses", "OPENAI_API_KEY"),
    ("anthropic", "https://api.anthropic.com/v1", "messages", "ANTHROPIC_API_KEY"),
    ("xai", "https://api.x.ai/v1", "responses", "XAI_API_KEY"),
    ("openrouter", "https://openrouter.ai/api/v1", "chat_completions", "OPENROUTER_API_KEY"),
    ("deepseek", "https://api.deepseek.com/v1", "chat_completions", "DEEPSEEK_API_KEY"),
    ("groq", "https://api.groq.com/openai/v1", "chat_completions", "GROQ_API_KEY"),
    ("mistral", "https://api.mistral.ai/v1", "chat_completions", "MISTRAL_API_KEY"),
    ("ollama", "http://127.0.0.1:11434/v1", "chat_completions", None),
    ("llamacpp", "http://127.0.0.1:8080/v1", "chat_completions", None),
    ("vllm", "http://127.0.0.1:8000/v1", "chat_completions", None),
]


@pytest.mark.parametrize(("provider", "url", "backend", "variable"), PRESETS)
def test_a_preset_is_all_but_the_model(
    provider: str, url: str, backend: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OLLAMA_BASE_URL", "LLAMACPP_BASE_URL", "VLLM_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, f" {KEY}\n")
    it = SamplerConfig.preset(provider, model="m")
    assert (it.base_url, it.backend, it.model) == (url, backend, "m")
    assert (it.reveal_api_key()) == (KEY if variable else None)


def test_a_preset_without_its_key_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert SamplerConfig.preset("openai").api_key is None


def test_what_is_given_wins_over_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XAI_API_KEY", "from the environment")
    it = SamplerConfig.preset("xai", api_key=KEY, backend="chat_completions", base_url=URL, idle_timeout_s=5)
    assert it.api_key is not None
    assert it.reveal_api_key() == KEY
    assert (it.backend, it.base_url, it.idle_timeout_s) == ("chat_completions", URL, 5.0)


def test_an_unknown_preset_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="opanai") as caught:
        SamplerConfig.preset("opanai")
    assert all(provider in str(caught.value) for provider, *_ in PRESETS)


def test_the_environment_sets_fields() -> None:
    it = SamplerConfig.from_env(
        {
            "RX_SAMPLER_BACKEND": "messages",
            "RX_SAMPLER_BASE_URL": URL,
            "RX_SAMPLER_MODEL": "m",
            "RX_SAMPLER_API_KEY": KEY,
        }
    )
    assert it == config(backend="messages", model="m", api_key=KEY)
    assert KEY not in repr(it)


def test_the_environment_names_a_provider_and_sets_fields_over_it() -> None:
    env = {"RX_SAMPLER_PROVIDER": "anthropic", "ANTHROPIC_API_KEY": KEY, "RX_SAMPLER_MODEL": "m"}
    assert SamplerConfig.from_env(env) == SamplerConfig(
        base_url="https://api.anthropic.com/v1", backend="messages", api_key=SecretStr(KEY), model="m"
    )
    over = SamplerConfig.from_env({**env, "RX_SAMPLER_API_KEY": "other", "RX_SAMPLER_BASE_URL": URL})
    assert over.api_key is not None
    assert (over.reveal_api_key(), over.base_url, over.backend) == ("other", URL, "messages")


def test_what_is_given_wins_over_the_environment() -> None:
    it = SamplerConfig.from_env({"RX_SAMPLER_BASE_URL": "http://other.test", "RX_SAMPLER_MODEL": "x"}, base_url=URL)
    assert (it.base_url, it.model) == (URL, "x")


def test_blank_variables_are_as_if_unset() -> None:
    env = {"RX_SAMPLER_PROVIDER": "", "RX_SAMPLER_API_KEY": "", "RX_SAMPLER_MODEL": "", "RX_SAMPLER_BASE_URL": URL}
    assert SamplerConfig.from_env(env) == config()


def test_white_space_around_a_variable_is_no_part_of_it() -> None:
    # a key read from a file ends in a line end more often than not
    env = {"RX_SAMPLER_BASE_URL": f"{URL} ", "RX_SAMPLER_API_KEY": f"{KEY}\n", "RX_SAMPLER_MODEL": " m"}
    assert SamplerConfig.from_env(env) == config(api_key=KEY, model="m")


def test_an_environment_that_says_nothing_names_what_is_missing() -> None:
    with pytest.raises(ValidationError, match="base_url"):
        SamplerConfig.from_env({})


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROVIDER", "BACKEND", "MODEL", "API_KEY"):
        monkeypatch.delenv(f"RX_SAMPLER_{name}", raising=False)
    monkeypatch.setenv("RX_SAMPLER_BASE_URL", URL)
    assert SamplerConfig.from_env() == config()
