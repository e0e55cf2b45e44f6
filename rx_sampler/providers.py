"""What is known of providers: where they are, what they speak and want, and where their key is looked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from .dialects import ChatDialect, MessagesDialect, ResponsesDialect, ToolIdRule

__all__ = ["PRESETS", "AuthScheme", "Preset", "known_provider", "preset_fields"]

AuthScheme = Literal["bearer", "x_api_key", "api_key"]
"""How a key goes: `Authorization: Bearer KEY`, `x-api-key: KEY`, or `api-key: KEY`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A provider's defaults; a quirk is data here, never an `if provider ==` in a transform.

    * `base_url`: where the API is, for `backend`; empty where each customer has an address of their own.
    * `other_backends`: the further wire formats that the provider documents, each with its base URL.
    * `hosts`: host names that are this provider's besides those in the base URLs, each with its subdomains.
    * `key_env`, `other_key_envs`: the environment variables that may hold the key; the first that is set counts.
    * `auth_scheme`: how the key goes; None for what the vendor of each wire format does.
    * `model`: a model to begin with, where one is certain to exist; else the caller names it.
    * `base_url_env`, `base_url_path`: the variable that may hold another address, and the path that is put behind it
      where it has not got it already.
    * `chat_dialect`, `responses_dialect`, `messages_dialect`: what it wants differently, where something is known.
    """

    base_url: str
    backend: Literal["chat_completions", "responses", "messages"] = "chat_completions"
    other_backends: Mapping[str, str] = field(default_factory=dict[str, str])
    hosts: tuple[str, ...] = ()
    key_env: str | None = None
    other_key_envs: tuple[str, ...] = ()
    auth_scheme: AuthScheme | None = None
    model: str = ""
    base_url_env: str | None = None
    base_url_path: str = ""
    chat_dialect: ChatDialect | None = None
    responses_dialect: ResponsesDialect | None = None
    messages_dialect: MessagesDialect | None = None


# OpenAI's own servers are stricter and newer than those that imitate them. "Unsupported parameter: 'max_tokens'" say
# its reasoning models; keys of a message that are not in the published schema are an error; "Image URLs are only
# allowed for messages with role 'user'"; an id of a call beyond 40 characters is "string too long"; and "the 'metadata'
# parameter is only allowed when 'store' is enabled".
_OPENAI_CHAT: Final = ChatDialect(
    max_tokens_field="max_completion_tokens",
    reasoning_field=None,
    takes_reasoning_details=False,
    takes_extra_content=False,
    tool_result_images="user_message",
    tool_ids=ToolIdRule(max_length=40),
    takes_metadata=False,
)
# "'concise' is not supported with the 'gpt-5' model", and models that do not reason refuse effort and summary alike.
_OPENAI_RESPONSES: Final = ResponsesDialect(
    reasoning_summary="auto", reasoning_needs_effort=True, takes_unencrypted_reasoning=False
)
# A limit above a model's own is refused. Claude Opus 4 and 4.1 write 32,000 tokens at most, the others of generation 4
# and 4.5 64,000, later ones 128,000: so this much is right for each of them. "The final block in an assistant message
# cannot be `thinking`".
_CLAUDE: Final = MessagesDialect(default_max_tokens=32_000, takes_unsigned_thinking=False, takes_thinking_last=False)

PRESETS: Final[Mapping[str, Preset]] = {
    "openai": Preset(
        base_url="https://api.openai.com/v1",
        backend="responses",
        other_backends={"chat_completions": "https://api.openai.com/v1"},
        key_env="OPENAI_API_KEY",
        chat_dialect=_OPENAI_CHAT,
        responses_dialect=_OPENAI_RESPONSES,
    ),
    "azure": Preset(
        base_url="",
        backend="responses",
        other_backends={"chat_completions": ""},
        hosts=("openai.azure.com", "openai.azure.us", "cognitiveservices.azure.com", "services.ai.azure.com"),
        key_env="AZURE_OPENAI_API_KEY",
        auth_scheme="api_key",  # a token of Entra goes as bearer
        base_url_env="AZURE_OPENAI_ENDPOINT",
        base_url_path="/openai/v1",
        chat_dialect=_OPENAI_CHAT,
        responses_dialect=_OPENAI_RESPONSES,
        messages_dialect=_CLAUDE,  # of Foundry, at /anthropic/v1
    ),
    "anthropic": Preset(
        base_url="https://api.anthropic.com/v1",
        backend="messages",
        key_env="ANTHROPIC_API_KEY",
        messages_dialect=_CLAUDE,
    ),
    "xai": Preset(
        base_url="https://api.x.ai/v1",
        backend="responses",
        # its endpoint for messages is "fully deprecated", and so not offered here
        other_backends={"chat_completions": "https://api.x.ai/v1"},
        key_env="XAI_API_KEY",
        auth_scheme="bearer",
    ),
    "openrouter": Preset(
        base_url="https://openrouter.ai/api/v1",
        other_backends={"responses": "https://openrouter.ai/api/v1", "messages": "https://openrouter.ai/api/v1"},
        key_env="OPENROUTER_API_KEY",
        auth_scheme="bearer",
        # it says and hears thoughts as `reasoning`, and effort is part of its `reasoning` object
        chat_dialect=ChatDialect(reasoning_field="reasoning", effort_field="reasoning.effort"),
    ),
    "deepseek": Preset(
        base_url="https://api.deepseek.com/v1",
        other_backends={"messages": "https://api.deepseek.com/anthropic/v1"},
        key_env="DEEPSEEK_API_KEY",
    ),
    "groq": Preset(
        base_url="https://api.groq.com/openai/v1",
        key_env="GROQ_API_KEY",
        # "property 'reasoning_content' is unsupported", and so is any other that it does not know; `reasoning` is
        # refused by its models that do not reason
        chat_dialect=ChatDialect(reasoning_field=None, takes_reasoning_details=False, takes_extra_content=False),
    ),
    "mistral": Preset(
        base_url="https://api.mistral.ai/v1",
        other_backends={"responses": "https://api.mistral.ai/v1"},
        key_env="MISTRAL_API_KEY",
        # "Extra inputs are not permitted": `reasoning_content`, `max_completion_tokens`, `stream_options` (usage comes
        # unasked). "Tool call id ... must be a-z, A-Z, 0-9, with a length of 9"
        chat_dialect=ChatDialect(
            reasoning_field=None,
            takes_reasoning_details=False,
            takes_extra_content=False,
            tool_ids=ToolIdRule(characters="A-Za-z0-9", length=9),
            includes_usage=False,
        ),
    ),
    "together": Preset(
        base_url="https://api.together.ai/v1",
        hosts=("api.together.xyz",),  # its older name
        key_env="TOGETHER_API_KEY",
    ),
    "fireworks": Preset(
        base_url="https://api.fireworks.ai/inference/v1",
        other_backends={
            "responses": "https://api.fireworks.ai/inference/v1",
            "messages": "https://api.fireworks.ai/inference/v1",
        },
        key_env="FIREWORKS_API_KEY",
        other_key_envs=("FIREWORKS_AI_API_KEY",),
        auth_scheme="bearer",
    ),
    "cerebras": Preset(
        base_url="https://api.cerebras.ai/v1",
        key_env="CEREBRAS_API_KEY",
        # "property 'messages.2.assistant.reasoning_content' is unsupported"; `reasoning`, its own word, it takes
        chat_dialect=ChatDialect(reasoning_field="reasoning", takes_reasoning_details=False, takes_extra_content=False),
    ),
    "perplexity": Preset(
        base_url="https://api.perplexity.ai/v1",
        backend="responses",
        # Sonar's endpoint, which Perplexity has given up in favour of responses
        other_backends={"chat_completions": "https://api.perplexity.ai"},
        key_env="PERPLEXITY_API_KEY",
        other_key_envs=("PPLX_API_KEY",),
    ),
    "moonshot": Preset(
        base_url="https://api.moonshot.ai/v1",
        other_backends={
            "responses": "https://api.moonshot.ai/v1",
            "messages": "https://api.moonshot.ai/anthropic/v1",
        },
        hosts=("api.moonshot.cn",),
        key_env="MOONSHOT_API_KEY",
        auth_scheme="bearer",
    ),
    "zai": Preset(
        base_url="https://api.z.ai/api/paas/v4",
        other_backends={"messages": "https://api.z.ai/api/anthropic/v1"},
        hosts=("open.bigmodel.cn",),
        key_env="ZAI_API_KEY",
        other_key_envs=("Z_AI_API_KEY",),
        auth_scheme="bearer",
    ),
    "gemini": Preset(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_env="GEMINI_API_KEY",
        other_key_envs=("GOOGLE_API_KEY",),
        # "Unknown name ...: Cannot find field" for whatever its schema does not have, `metadata` among it; but
        # "Function call is missing a thought_signature" where the `extra_content` of a call does not come back
        chat_dialect=ChatDialect(reasoning_field=None, takes_reasoning_details=False, takes_metadata=False),
    ),
    "ollama": Preset(
        base_url="http://127.0.0.1:11434/v1",
        other_backends={"responses": "http://127.0.0.1:11434/v1", "messages": "http://127.0.0.1:11434/v1"},
        base_url_env="OLLAMA_BASE_URL",
        # it reads `reasoning` of an assistant message, and passes `reasoning_content` by
        chat_dialect=ChatDialect(reasoning_field="reasoning"),
    ),
    "llamacpp": Preset(
        base_url="http://127.0.0.1:8080/v1",
        other_backends={"responses": "http://127.0.0.1:8080/v1", "messages": "http://127.0.0.1:8080/v1"},
        base_url_env="LLAMACPP_BASE_URL",
        model="default",
    ),
    "vllm": Preset(
        base_url="http://127.0.0.1:8000/v1",
        other_backends={"responses": "http://127.0.0.1:8000/v1", "messages": "http://127.0.0.1:8000/v1"},
        base_url_env="VLLM_BASE_URL",
        # renamed late in 2025; the older `reasoning_content` of a message is passed by
        chat_dialect=ChatDialect(reasoning_field="reasoning"),
    ),
    "lmstudio": Preset(
        base_url="http://127.0.0.1:1234/v1",
        other_backends={"responses": "http://127.0.0.1:1234/v1", "messages": "http://127.0.0.1:1234/v1"},
        key_env="LM_API_TOKEN",
        base_url_env="LMSTUDIO_BASE_URL",
    ),
    "sglang": Preset(
        base_url="http://127.0.0.1:30000/v1",
        other_backends={"messages": "http://127.0.0.1:30000/v1"},
        base_url_env="SGLANG_BASE_URL",
    ),
}


def _endpoint(url: str) -> str:
    """The host, or host and port on this machine, where many servers are. Raises ValueError for what is no URL."""
    parts = urlsplit(url)
    host, port = (parts.hostname or "").rstrip("."), parts.port
    return f"127.0.0.1:{port}" if host in ("127.0.0.1", "::1", "localhost") else host


def _by_endpoint() -> dict[str, Preset]:
    found: dict[str, Preset] = {}
    for preset in PRESETS.values():
        urls = filter(None, (preset.base_url, *preset.other_backends.values()))
        found |= dict.fromkeys([*preset.hosts, *map(_endpoint, urls)], preset)
    return found


_BY_ENDPOINT: Final = _by_endpoint()


def known_provider(base_url: str) -> Preset | None:
    """The preset of the provider that an address belongs to; None for any other.

    A host counts with its subdomains, on any port; a server of this machine is known by the port that it has unless
    told otherwise.
    """
    try:
        host = _endpoint(base_url)
    except ValueError:
        return None
    while host:
        if (preset := _BY_ENDPOINT.get(host)) is not None:
            return preset
        host = host.partition(".")[2]
    return None


def preset_fields(provider: str, environ: Mapping[str, str], backend: str | None = None) -> dict[str, Any]:
    """The `SamplerConfig` fields of a preset, for its own wire format or another; with the key where `environ` has it.

    `base_url` is missing where the provider has none for all its customers and `environ` does not say which. Raises
    ValueError, naming the known providers, for any other name.
    """
    preset = PRESETS.get(provider.lower())
    if preset is None:
        raise ValueError(f"provider {provider!r} is not known; known are {', '.join(sorted(PRESETS))}")
    backend = backend or preset.backend
    fields: dict[str, Any] = {"backend": backend, "model": preset.model}
    url = _address(preset, environ) or preset.other_backends.get(backend, preset.base_url)
    given = {
        "base_url": url or None,
        "auth_scheme": preset.auth_scheme,
        "api_key": next((key for name in _key_envs(preset) if (key := environ.get(name, "").strip())), None),
    }
    if known_provider(url) is not preset:  # by whose address its quirks would be found
        given |= {name: getattr(preset, name) for name in ("chat_dialect", "responses_dialect", "messages_dialect")}
    return fields | {name: value for name, value in given.items() if value is not None}


def _key_envs(preset: Preset) -> tuple[str, ...]:
    return (preset.key_env, *preset.other_key_envs) if preset.key_env else preset.other_key_envs


def _address(preset: Preset, environ: Mapping[str, str]) -> str:
    """The base URL of the environment; empty where it names none."""
    url = environ.get(preset.base_url_env, "").strip() if preset.base_url_env else ""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # whoever uses it as a base URL will say what is wrong with it
    if not url or preset.base_url_path in parts.path:
        return url
    return parts._replace(path=parts.path.rstrip("/") + preset.base_url_path).geturl()
