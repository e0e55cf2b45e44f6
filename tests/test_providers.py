"""What is known of providers, as data."""

from __future__ import annotations

import dataclasses
from urllib.parse import urlsplit

import pytest

from rx_sampler import get_backend
from rx_sampler.providers import PRESETS, Preset, preset_fields

LOCAL = {"ollama": "OLLAMA_BASE_URL", "llamacpp": "LLAMACPP_BASE_URL", "vllm": "VLLM_BASE_URL"}


def test_the_known_providers_are_those_of_the_command_line() -> None:
    assert set(PRESETS) == {
        "openai",
        "anthropic",
        "xai",
        "openrouter",
        "deepseek",
        "groq",
        "mistral",
        "ollama",
        "llamacpp",
        "vllm",
    }


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_usable_and_safe(name: str) -> None:
    preset = PRESETS[name]
    url = urlsplit(preset.base_url)
    assert get_backend(preset.backend).name == preset.backend
    assert not preset.base_url.endswith("/")
    assert not url.query
    if name in LOCAL:
        # a server of one's own: no key needed, on this machine, and not by a name that may resolve to elsewhere
        assert (url.hostname, preset.key_env, preset.base_url_env) == ("127.0.0.1", None, LOCAL[name])
    else:
        assert url.scheme == "https"  # a key travels
        assert preset.key_env is not None
        assert preset.key_env.endswith("_API_KEY")


@pytest.mark.parametrize(("name", "variable"), LOCAL.items())
def test_a_local_server_may_be_elsewhere(name: str, variable: str) -> None:
    assert preset_fields(name, {variable: " http://gpu.test:1234/v1 "})["base_url"] == "http://gpu.test:1234/v1"
    assert preset_fields(name, {variable: "  "})["base_url"] == PRESETS[name].base_url
    assert preset_fields(name, {})["base_url"] == PRESETS[name].base_url


def test_a_key_comes_from_the_providers_own_variable_only() -> None:
    env = {"OPENAI_API_KEY": "a", "GROQ_API_KEY": " b ", "XAI_API_KEY": " "}
    assert preset_fields("openai", env)["api_key"] == "a"
    assert preset_fields("groq", env)["api_key"] == "b"
    assert "api_key" not in preset_fields("xai", env)  # blank is none
    assert "api_key" not in preset_fields("mistral", env)
    assert "api_key" not in preset_fields("ollama", env)


def test_names_are_found_in_any_case() -> None:
    assert preset_fields("OpenAI", {}) == preset_fields("openai", {})


@pytest.mark.parametrize("name", ["", "open ai", "gpt"])
def test_an_unknown_name_is_shown_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match="is not known") as caught:
        preset_fields(name, {})
    assert repr(name) in str(caught.value)
    assert ", ".join(sorted(PRESETS)) in str(caught.value)


def test_presets_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PRESETS["openai"].base_url = "http://elsewhere"  # type: ignore[misc]  # what is tested
    assert PRESETS["openai"] == Preset(
        base_url="https://api.openai.com/v1", backend="responses", key_env="OPENAI_API_KEY"
    )
