"""What is known of providers, as data: each preset is usable, is found by its address, and has its row in the docs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import docs_runner
import pytest

from rx_sampler import get_backend
from rx_sampler.dialects import ChatDialect, MessagesDialect, ResponsesDialect, ToolIdRule
from rx_sampler.providers import PRESETS, Preset, known_provider, preset_fields

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "providers.md"

LOCAL: Final = {
    "ollama": "OLLAMA_BASE_URL",
    "llamacpp": "LLAMACPP_BASE_URL",
    "vllm": "VLLM_BASE_URL",
    "lmstudio": "LMSTUDIO_BASE_URL",
    "sglang": "SGLANG_BASE_URL",
}


def urls(preset: Preset) -> list[str]:
    return [url for url in (preset.base_url, *preset.other_backends.values()) if url]


def test_the_known_providers() -> None:
    hosted = {"openai", "azure", "anthropic", "xai", "openrouter", "deepseek", "groq", "mistral", "together"}
    hosted |= {"fireworks", "cerebras", "perplexity", "moonshot", "zai", "gemini"}
    assert set(PRESETS) == hosted | set(LOCAL)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_usable_and_safe(name: str) -> None:
    preset = PRESETS[name]
    for backend in (preset.backend, *preset.other_backends):
        assert get_backend(backend).name == backend
    assert preset.backend not in preset.other_backends
    assert bool(preset.base_url) or preset.base_url_env is not None
    for url in map(urlsplit, urls(preset)):
        assert not url.path.endswith("/")
        assert (url.query, url.fragment, url.username) == ("", "", None)
        # a key travels; and on this machine not to a name that may resolve to elsewhere
        assert (url.scheme, url.hostname) == ("http", "127.0.0.1") if name in LOCAL else url.scheme == "https"
    assert preset.base_url_env == LOCAL.get(name, "AZURE_OPENAI_ENDPOINT" if name == "azure" else None)
    for variable in (preset.key_env, *preset.other_key_envs):
        assert variable is None or variable.endswith(("_API_KEY", "_API_TOKEN"))
    assert name in LOCAL or preset.key_env is not None


@pytest.mark.parametrize(("name", "variable"), LOCAL.items())
def test_a_local_server_may_be_elsewhere(name: str, variable: str) -> None:
    assert preset_fields(name, {variable: " http://gpu.test:1234/v1 "})["base_url"] == "http://gpu.test:1234/v1"
    assert preset_fields(name, {variable: "  "})["base_url"] == PRESETS[name].base_url
    assert preset_fields(name, {})["base_url"] == PRESETS[name].base_url


@pytest.mark.parametrize(
    ("endpoint", "base_url"),
    [
        ("https://my.openai.azure.com", "https://my.openai.azure.com/openai/v1"),
        (" https://my.openai.azure.com/ ", "https://my.openai.azure.com/openai/v1"),
        ("https://my.openai.azure.com/openai/v1", "https://my.openai.azure.com/openai/v1"),
        ("https://my.openai.azure.com/openai/v1/", "https://my.openai.azure.com/openai/v1/"),
        (
            "https://my.openai.azure.com/?api-version=preview",
            "https://my.openai.azure.com/openai/v1?api-version=preview",
        ),
        ("https://gateway.test/team", "https://gateway.test/team/openai/v1"),
        ("https://[::1", "https://[::1"),
    ],
)
def test_the_path_of_an_endpoint_is_put_behind_it_once(endpoint: str, base_url: str) -> None:
    assert preset_fields("azure", {"AZURE_OPENAI_ENDPOINT": endpoint})["base_url"] == base_url


def test_without_an_address_there_is_none() -> None:
    assert "base_url" not in preset_fields("azure", {})
    assert "base_url" not in preset_fields("azure", {}, "chat_completions")


def test_a_key_comes_from_the_providers_own_variables_only() -> None:
    env = {"OPENAI_API_KEY": "a", "GROQ_API_KEY": " b ", "XAI_API_KEY": " "}
    assert preset_fields("openai", env)["api_key"] == "a"
    assert preset_fields("groq", env)["api_key"] == "b"
    assert "api_key" not in preset_fields("xai", env)  # blank is none
    assert "api_key" not in preset_fields("mistral", env)
    assert "api_key" not in preset_fields("ollama", env)


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("gemini", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("perplexity", "PERPLEXITY_API_KEY", "PPLX_API_KEY"),
        ("fireworks", "FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
        ("zai", "ZAI_API_KEY", "Z_AI_API_KEY"),
    ],
)
def test_of_several_variables_the_first_that_is_set_counts(name: str, first: str, second: str) -> None:
    assert preset_fields(name, {second: "b", first: "a"})["api_key"] == "a"
    assert preset_fields(name, {second: "b", first: " "})["api_key"] == "b"


def test_names_are_found_in_any_case() -> None:
    assert preset_fields("OpenAI", {}) == preset_fields("openai", {})


@pytest.mark.parametrize("name", ["", "open ai", "gpt"])
def test_an_unknown_name_is_shown_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match="is not known") as caught:
        preset_fields(name, {})
    assert repr(name) in str(caught.value)
    assert ", ".join(sorted(PRESETS)) in str(caught.value)


def test_a_wire_format_that_a_provider_does_not_document_is_asked_at_its_usual_address() -> None:
    fields = preset_fields("groq", {}, "messages")
    assert (fields["backend"], fields["base_url"]) == ("messages", "https://api.groq.com/openai/v1")


def test_presets_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PRESETS["openai"].base_url = "http://elsewhere"  # type: ignore[misc]  # what is tested


# -- whose address it is


@pytest.mark.parametrize("name", PRESETS)
def test_a_provider_is_known_by_each_of_its_addresses(name: str) -> None:
    preset = PRESETS[name]
    for url in [*urls(preset), *(f"https://{host}/v1" for host in preset.hosts)]:
        assert known_provider(url) is preset
    if name not in LOCAL:
        for host in [*preset.hosts, *(urlsplit(url).netloc for url in urls(preset))]:
            assert known_provider(f"https://my.{host.upper()}.:8443/any/path?a=b") is preset


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://my-resource.openai.azure.com/openai/v1", "azure"),
        ("https://my-resource.openai.azure.us/openai/v1", "azure"),
        ("https://my-resource.cognitiveservices.azure.com/openai/v1", "azure"),
        ("https://my-resource.services.ai.azure.com/openai/v1", "azure"),
        ("https://us.api.x.ai/v1", "xai"),
        ("https://eu.openrouter.ai/api/v1", "openrouter"),
        ("https://api.together.xyz/v1", "together"),
        ("https://api.moonshot.cn/v1", "moonshot"),
        ("http://localhost:11434/v1", "ollama"),
        ("http://[::1]:1234", "lmstudio"),
        ("https://user:key@api.openai.com/v1", "openai"),
    ],
)
def test_a_host_counts_with_its_subdomains_and_this_machine_by_its_port(url: str, name: str) -> None:
    assert known_provider(url) is PRESETS[name]


@pytest.mark.parametrize(
    "url",
    [
        "https://api.test/v1",
        "https://notapi.openai.com/v1",
        "https://api.openai.com.evil.test/v1",
        "https://evil.test/api.openai.com",
        "https://api.openai.com@evil.test/v1",
        "https://openai.com/v1",
        "https://azure.com/",
        "http://127.0.0.1:9999/v1",
        "http://127.0.0.1",
        "http://gpu.test:11434/v1",
        "https://com",
        "",
        "no address",
        "http://[::1",
        "http://api.openai.com:port/",
    ],
)
def test_any_other_address_is_nobodys(url: str) -> None:
    assert known_provider(url) is None


def test_two_providers_do_not_share_an_address() -> None:
    places = [
        (urlsplit(url).netloc if name in LOCAL else urlsplit(url).hostname, name)
        for name, preset in PRESETS.items()
        for url in urls(preset)
    ]
    assert len({place for place, _ in places}) == len(PRESETS) - 1  # Azure's addresses are its customers'


# -- what they want


def test_quirks_are_those_that_the_servers_complain_about() -> None:
    openai = ChatDialect(
        max_tokens_field="max_completion_tokens",
        reasoning_field=None,
        takes_reasoning_details=False,
        takes_extra_content=False,
        tool_result_images="user_message",
        tool_ids=ToolIdRule(max_length=40),
        takes_metadata=False,
    )
    assert {name: preset.chat_dialect for name, preset in PRESETS.items() if preset.chat_dialect is not None} == {
        "openai": openai,
        "azure": openai,
        "openrouter": ChatDialect(reasoning_field="reasoning", effort_field="reasoning.effort"),
        "groq": ChatDialect(reasoning_field=None, takes_reasoning_details=False, takes_extra_content=False),
        "mistral": ChatDialect(
            reasoning_field=None,
            takes_reasoning_details=False,
            takes_extra_content=False,
            tool_ids=ToolIdRule(characters="A-Za-z0-9", length=9),
            includes_usage=False,
        ),
        "cerebras": ChatDialect(reasoning_field="reasoning", takes_reasoning_details=False, takes_extra_content=False),
        "gemini": ChatDialect(reasoning_field=None, takes_reasoning_details=False, takes_metadata=False),
        "ollama": ChatDialect(reasoning_field="reasoning"),
        "vllm": ChatDialect(reasoning_field="reasoning"),
    }
    responses = {name: preset.responses_dialect for name, preset in PRESETS.items() if preset.responses_dialect}
    assert responses == dict.fromkeys(
        ("openai", "azure"),
        ResponsesDialect(reasoning_summary="auto", reasoning_needs_effort=True, takes_unencrypted_reasoning=False),
    )
    messages = {name: preset.messages_dialect for name, preset in PRESETS.items() if preset.messages_dialect}
    claude = MessagesDialect(default_max_tokens=32_000, takes_unsigned_thinking=False, takes_thinking_last=False)
    assert messages == dict.fromkeys(("azure", "anthropic"), claude)


# -- the page about them


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_page_lists_where_each_provider_is() -> None:
    listed = {
        code(name)[0]: (code(url), code(backend), code(scheme))
        for name, url, backend, scheme in docs_runner.table(PAGE, "Addresses")
    }
    expected: dict[str, tuple[list[str], list[str], list[str]]] = {}
    for name, preset in PRESETS.items():
        wanted = [preset.base_url] if preset.base_url else []
        expected[name] = (wanted, [preset.backend], [preset.auth_scheme] if preset.auth_scheme else [])
    assert listed == expected
    assert list(listed) == list(PRESETS)


def test_the_page_lists_the_other_wire_formats() -> None:
    rows = [tuple(map(code, row)) for row in docs_runner.table(PAGE, "Other wire formats")]
    assert rows == [
        ([name], [backend], [url] if url else [])
        for name, preset in PRESETS.items()
        for backend, url in preset.other_backends.items()
    ]


def test_the_page_lists_the_variables() -> None:
    rows = [tuple(map(code, row)) for row in docs_runner.table(PAGE, "Variables")]
    assert rows == [
        (
            [name],
            [variable for variable in (preset.key_env, *preset.other_key_envs) if variable],
            [preset.base_url_env] if preset.base_url_env else [],
        )
        for name, preset in PRESETS.items()
    ]


def test_the_page_lists_every_quirk() -> None:
    listed = {
        (code(name)[0], code(dialect)[0]): set(code(fields))
        for name, dialect, fields, _ in docs_runner.table(PAGE, "Quirks")
    }
    expected = {
        (name, type(dialect).__name__): {
            field.name for field in dataclasses.fields(dialect) if getattr(dialect, field.name) != field.default
        }
        for name, preset in PRESETS.items()
        for dialect in (preset.chat_dialect, preset.responses_dialect, preset.messages_dialect)
        if dialect is not None
    }
    assert listed == expected


@pytest.mark.parametrize(
    "kind", [ChatDialect, ResponsesDialect, MessagesDialect, ToolIdRule], ids=lambda it: it.__name__
)
def test_the_page_lists_the_fields_of_the_dialects(kind: type) -> None:
    def shown(value: object) -> str:
        if isinstance(value, ToolIdRule):
            given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            inside = ", ".join(f"{name}={shown(one)}" for name, one in given.items() if one is not None)
            return f"ToolIdRule({inside})"
        return f'"{value}"' if isinstance(value, str) else repr(value)

    rows = [(*code(name), *code(default)) for name, default, _ in docs_runner.table(PAGE, kind.__name__)]
    assert rows == [(field.name, shown(field.default)) for field in dataclasses.fields(kind)]
