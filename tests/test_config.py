"""The configuration: bounds, presets, the environment, and no secret in any text about it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import SecretStr, ValidationError

from rx_sampler.config import ENVIRONMENT, DoomLoopPolicy, RetryPolicy, SamplerConfig
from rx_sampler.dialects import ChatDialect, MessagesDialect, ResponsesDialect
from rx_sampler.providers import PRESETS as PROVIDERS
from rx_sampler.vendor_headers import GrokHeaders

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
    assert (it.proxy, it.ca_bundle, it.application, it.vendor_headers) == (None, None, None, None)
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
        ("vendor_headers", "x-grok-session-id: 1"),
        ("ca_bundle", 7),
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


@pytest.mark.parametrize("effort", ["high", "HIGH", "High"])
def test_efforts_are_read_in_any_case_b043(effort: str) -> None:
    assert config(reasoning_effort=effort).reasoning_effort == "high"
    env = {"RX_SAMPLER_BASE_URL": URL, "RX_SAMPLER_REASONING_EFFORT": effort}
    assert SamplerConfig.from_env(env).reasoning_effort == "high"


@pytest.mark.parametrize("effort", ["", "highest", "hi gh", 3])
def test_what_is_no_effort_is_taken_for_none_of_them_b043(effort: object) -> None:
    with pytest.raises(ValidationError, match="reasoning_effort"):
        config(reasoning_effort=effort)


@pytest.mark.parametrize("application", ["my-app", "my-app/1.2", "a.b_c~d/1.2.3-rc.1+x"])
def test_an_application_is_a_product_with_or_without_a_version(application: str) -> None:
    # RFC 9110, section 10.1.5
    assert config(application=application).application == application


@pytest.mark.parametrize(
    "application", ["", "my app", "my-app/", "/1.2", "a/b/c", "app\n", "app (linux)", "\u00fcber/1"]
)
def test_an_application_that_no_user_agent_can_name_is_refused(application: str) -> None:
    with pytest.raises(ValidationError, match="NAME or NAME/VERSION"):
        config(application=application)


@pytest.mark.parametrize(
    "proxy", ["http://proxy.test:3128", "https://proxy.test", "http://jim:pass%20word@[::1]:3128", "HTTP://proxy.test/"]
)
def test_a_proxy_is_http_with_a_host(proxy: str) -> None:
    assert config(proxy=proxy).reveal_proxy() == proxy
    assert config(proxy=SecretStr(proxy)) == config(proxy=proxy)


@pytest.mark.parametrize(
    "where",
    [
        "",
        "proxy.test:3128",
        "ftp://{}@proxy.test",
        "http://",
        "http://{}@",
        "http://{}@proxy.test:99999",
        "http://{}@proxy.test/path",
        "http://proxy.test?key={}",
        "http://proxy.test#{}",
    ],
)
def test_what_is_no_proxy_is_refused_without_being_shown(where: str) -> None:
    shown = _everything(lambda: config(proxy=where.format(f"jim:{KEY}")))
    assert "proxy is http(s)://HOST:PORT" in shown
    assert KEY not in shown


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "SOCKS4"])
def test_a_socks_proxy_is_told_to_be_none_of_ours(scheme: str) -> None:
    shown = _everything(lambda: config(proxy=f"{scheme}://jim:{KEY}@proxy.test:1080"))
    assert "SOCKS proxy, and these are not supported" in shown
    assert KEY not in shown


def test_a_bundle_is_a_path_however_it_was_given() -> None:
    assert config(ca_bundle="/etc/ca.pem") == config(ca_bundle=Path("/etc/ca.pem"))


# -- what the server wants


def test_quirks_are_those_given_else_those_of_the_address_else_none() -> None:
    openai = PROVIDERS["openai"]
    it = config(base_url="https://api.openai.com/v1")
    assert (it.chat_quirks, it.responses_quirks) == (openai.chat_dialect, openai.responses_dialect)
    assert it.messages_quirks == MessagesDialect()
    assert config(base_url="https://api.anthropic.com/v1").messages_quirks == PROVIDERS["anthropic"].messages_dialect
    unknown = config()
    assert (unknown.chat_quirks, unknown.responses_quirks) == (ChatDialect(), ResponsesDialect())
    own = {
        "chat_dialect": ChatDialect(includes_usage=False),
        "responses_dialect": ResponsesDialect(reasoning_summary="detailed"),
        "messages_dialect": MessagesDialect(default_max_tokens=5),
    }
    for url in (URL, "https://api.openai.com/v1", "https://api.anthropic.com/v1"):
        given = config(base_url=url, **own)
        assert [given.chat_quirks, given.responses_quirks, given.messages_quirks] == list(own.values())


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
    "password of the proxy": {"proxy": f"http://jim:{KEY}@proxy.test:3128"},
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
        "password of the proxy",
    ],
)
def test_json_shows_no_other_secret(name: str) -> None:
    assert KEY not in config(**SECRET_FIELDS[name]).model_dump_json()


def test_json_leaves_live_objects_out() -> None:
    it = config(
        bearer_resolver=lambda: KEY, header_injector=dict[str, str].clear, vendor_headers=GrokHeaders(user_id="u-1")
    )
    dumped = it.model_dump_json()
    assert KEY not in dumped
    assert "vendor" not in dumped
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
    ("together", "https://api.together.ai/v1", "chat_completions", "TOGETHER_API_KEY"),
    ("fireworks", "https://api.fireworks.ai/inference/v1", "chat_completions", "FIREWORKS_API_KEY"),
    ("cerebras", "https://api.cerebras.ai/v1", "chat_completions", "CEREBRAS_API_KEY"),
    ("perplexity", "https://api.perplexity.ai/v1", "responses", "PERPLEXITY_API_KEY"),
    ("moonshot", "https://api.moonshot.ai/v1", "chat_completions", "MOONSHOT_API_KEY"),
    ("zai", "https://api.z.ai/api/paas/v4", "chat_completions", "ZAI_API_KEY"),
    ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "chat_completions", "GEMINI_API_KEY"),
    ("ollama", "http://127.0.0.1:11434/v1", "chat_completions", None),
    ("llamacpp", "http://127.0.0.1:8080/v1", "chat_completions", None),
    ("vllm", "http://127.0.0.1:8000/v1", "chat_completions", None),
    ("lmstudio", "http://127.0.0.1:1234/v1", "chat_completions", "LM_API_TOKEN"),
    ("sglang", "http://127.0.0.1:30000/v1", "chat_completions", None),
]


@pytest.fixture(autouse=True)
def an_environment_without_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    for preset in PROVIDERS.values():
        for name in (preset.base_url_env, preset.key_env, *preset.other_key_envs):
            if name is not None:
                monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("provider", "url", "backend", "variable"), PRESETS)
def test_a_preset_is_all_but_the_model(
    provider: str, url: str, backend: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv(variable, f" {KEY}\n")
    it = SamplerConfig.preset(provider, model="m")
    assert (it.base_url, it.backend, it.model) == (url, backend, "m")
    assert (it.reveal_api_key()) == (KEY if variable else None)


def test_a_preset_without_its_key_has_none() -> None:
    assert SamplerConfig.preset("openai").api_key is None


def test_what_is_given_wins_over_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XAI_API_KEY", "from the environment")
    it = SamplerConfig.preset("xai", api_key=KEY, backend="chat_completions", base_url=URL, idle_timeout_s=5)
    assert it.api_key is not None
    assert it.reveal_api_key() == KEY
    assert (it.backend, it.base_url, it.idle_timeout_s) == ("chat_completions", URL, 5.0)


OTHER_BACKENDS: Final = [
    # as the providers document them, with the path of the endpoint taken off
    ("openai", "chat_completions", "https://api.openai.com/v1"),
    ("xai", "chat_completions", "https://api.x.ai/v1"),
    ("openrouter", "responses", "https://openrouter.ai/api/v1"),
    ("openrouter", "messages", "https://openrouter.ai/api/v1"),
    ("deepseek", "messages", "https://api.deepseek.com/anthropic/v1"),
    ("mistral", "responses", "https://api.mistral.ai/v1"),
    ("fireworks", "messages", "https://api.fireworks.ai/inference/v1"),
    ("perplexity", "chat_completions", "https://api.perplexity.ai"),
    ("moonshot", "responses", "https://api.moonshot.ai/v1"),
    ("moonshot", "messages", "https://api.moonshot.ai/anthropic/v1"),
    ("zai", "messages", "https://api.z.ai/api/anthropic/v1"),
    ("ollama", "messages", "http://127.0.0.1:11434/v1"),
    ("lmstudio", "responses", "http://127.0.0.1:1234/v1"),
    ("sglang", "messages", "http://127.0.0.1:30000/v1"),
]


@pytest.mark.parametrize(("provider", "backend", "url"), OTHER_BACKENDS)
def test_another_wire_format_of_a_provider_is_at_its_own_address(provider: str, backend: str, url: str) -> None:
    it = SamplerConfig.preset(provider, backend=backend)
    assert (it.backend, it.base_url) == (backend, url)
    env = {"RX_SAMPLER_PROVIDER": provider, "RX_SAMPLER_BACKEND": backend}
    assert SamplerConfig.from_env(env) == it
    assert SamplerConfig.from_env({"RX_SAMPLER_PROVIDER": provider}, backend=backend) == it


def test_an_endpoint_of_azure_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    for endpoint in ("https://my.openai.azure.com", "https://my.openai.azure.com/openai/v1/"):
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", endpoint)
        it = SamplerConfig.preset("azure", model="my-deployment")
        assert it.base_url.rstrip("/") == "https://my.openai.azure.com/openai/v1"
        assert (it.backend, it.auth_scheme, it.reveal_api_key()) == ("responses", "api_key", KEY)
    token = SamplerConfig.preset("azure", bearer_resolver=lambda: "token", auth_scheme="bearer")
    assert token.auth_scheme == "bearer"


def test_a_provider_without_a_common_address_asks_for_one() -> None:
    for make in (
        lambda: SamplerConfig.preset("Azure"),
        lambda: SamplerConfig.from_env({"RX_SAMPLER_PROVIDER": "azure"}),
    ):
        with pytest.raises(ValueError, match="set AZURE_OPENAI_ENDPOINT, or give base_url"):
            make()
    assert SamplerConfig.preset("azure", base_url=URL).auth_scheme == "api_key"
    env = {"RX_SAMPLER_PROVIDER": "azure", "RX_SAMPLER_BASE_URL": URL}
    assert SamplerConfig.from_env(env).base_url == URL


def test_a_provider_at_another_address_keeps_its_quirks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://gpu.test:11434/v1")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://gateway.test/openai/v1")
    assert SamplerConfig.preset("ollama").chat_quirks == PROVIDERS["ollama"].chat_dialect
    assert SamplerConfig.preset("azure").responses_quirks == PROVIDERS["azure"].responses_dialect
    # but an address that somebody gives in code may be of any server
    assert SamplerConfig.preset("openai", base_url=URL).chat_quirks == ChatDialect()


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


def test_the_environment_sets_what_needs_no_code() -> None:
    it = SamplerConfig.from_env(
        {
            "RX_SAMPLER_BASE_URL": URL,
            "RX_SAMPLER_AUTH_SCHEME": "api_key",
            "RX_SAMPLER_APPLICATION": "my-app/1.2",
            "RX_SAMPLER_PROXY": f"http://jim:{KEY}@proxy.test:3128",
            "RX_SAMPLER_CA_BUNDLE": "/etc/ca.pem",
            "RX_SAMPLER_TRUST_ENV": "true",
            "RX_SAMPLER_TEMPERATURE": "0.5",
            "RX_SAMPLER_TOP_P": "0.9",
            "RX_SAMPLER_MAX_OUTPUT_TOKENS": "500",
            "RX_SAMPLER_REASONING_EFFORT": "low",
        }
    )
    assert it == config(
        auth_scheme="api_key",
        application="my-app/1.2",
        proxy=f"http://jim:{KEY}@proxy.test:3128",
        ca_bundle="/etc/ca.pem",
        trust_env=True,
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=500,
        reasoning_effort="low",
    )


def test_each_variable_sets_a_field_of_its_own_name() -> None:
    assert {f"RX_SAMPLER_{field.upper()}" for field in ENVIRONMENT.values()} == set(ENVIRONMENT)
    assert set(ENVIRONMENT.values()) <= SamplerConfig.model_fields.keys()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RX_SAMPLER_BASE_URL", f"ftp://{KEY}"),
        ("RX_SAMPLER_AUTH_SCHEME", KEY),
        ("RX_SAMPLER_APPLICATION", f"my app {KEY}"),
        ("RX_SAMPLER_PROXY", f"socks5://{KEY}"),
        ("RX_SAMPLER_TRUST_ENV", KEY),
        ("RX_SAMPLER_TEMPERATURE", KEY),
        ("RX_SAMPLER_TOP_P", "2"),
        ("RX_SAMPLER_MAX_OUTPUT_TOKENS", "1.5"),
        ("RX_SAMPLER_REASONING_EFFORT", f"{{{KEY}}}"),
    ],
)
def test_a_variable_that_will_not_do_is_named_and_not_shown(variable: str, value: str) -> None:
    env = {"RX_SAMPLER_BASE_URL": URL, variable: value}
    shown = _everything(lambda: SamplerConfig.from_env(env))
    assert variable in shown
    assert KEY not in shown
    # what code gives in its place is not the variable's affair
    with pytest.raises(ValidationError) as caught:
        SamplerConfig.from_env(env, **{ENVIRONMENT[variable]: object()})
    assert {error["loc"][0] for error in caught.value.errors()} == {ENVIRONMENT[variable]}


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
    for name in ("RX_SAMPLER_PROVIDER", *ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RX_SAMPLER_BASE_URL", URL)
    assert SamplerConfig.from_env() == config()
