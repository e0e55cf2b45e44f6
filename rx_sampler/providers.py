"""What is known of providers: where they are, what they speak, and where their key is looked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["PRESETS", "Preset", "preset_fields"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A provider's defaults; a quirk is data here, never an `if provider ==` in a transform."""

    base_url: str
    backend: Literal["chat_completions", "responses", "messages"] = "chat_completions"
    key_env: str | None = None
    model: str = ""
    """A model to begin with, where one is certain to exist; else the caller names it."""
    base_url_env: str | None = None


PRESETS: Mapping[str, Preset] = {
    "openai": Preset(base_url="https://api.openai.com/v1", backend="responses", key_env="OPENAI_API_KEY"),
    "anthropic": Preset(base_url="https://api.anthropic.com/v1", backend="messages", key_env="ANTHROPIC_API_KEY"),
    "xai": Preset(base_url="https://api.x.ai/v1", backend="responses", key_env="XAI_API_KEY"),
    "openrouter": Preset(base_url="https://openrouter.ai/api/v1", key_env="OPENROUTER_API_KEY"),
    "deepseek": Preset(base_url="https://api.deepseek.com/v1", key_env="DEEPSEEK_API_KEY"),
    "groq": Preset(base_url="https://api.groq.com/openai/v1", key_env="GROQ_API_KEY"),
    "mistral": Preset(base_url="https://api.mistral.ai/v1", key_env="MISTRAL_API_KEY"),
    "ollama": Preset(base_url="http://127.0.0.1:11434/v1", base_url_env="OLLAMA_BASE_URL"),
    "llamacpp": Preset(base_url="http://127.0.0.1:8080/v1", base_url_env="LLAMACPP_BASE_URL", model="default"),
    "vllm": Preset(base_url="http://127.0.0.1:8000/v1", base_url_env="VLLM_BASE_URL"),
}


def preset_fields(provider: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The `SamplerConfig` fields of a preset, with the key where `environ` has it.

    Raises ValueError, naming the known providers, for any other name.
    """
    preset = PRESETS.get(provider.lower())
    if preset is None:
        raise ValueError(f"provider {provider!r} is not known; known are {', '.join(sorted(PRESETS))}")
    fields: dict[str, Any] = {"base_url": preset.base_url, "backend": preset.backend, "model": preset.model}
    if preset.base_url_env and (url := environ.get(preset.base_url_env, "").strip()):
        fields["base_url"] = url
    if preset.key_env and (key := environ.get(preset.key_env, "").strip()):
        fields["api_key"] = key
    return fields
