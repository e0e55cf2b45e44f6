"""What a turn sends begins with what the turn before sent, byte for byte: a provider's prompt cache needs that."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from hypothesis import given

from rx_sampler.backends.encoding import body_bytes
from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import JsonObject, SamplingRequest

from .made_conversations import spoken
from .streams import CHAT, MESSAGES, RESPONSES
from .wire_rules import CONFIGS, ENCODERS, marks, turns_of

LOCAL: Final = SamplerConfig(base_url="http://127.0.0.1:1/v1", model="m")
WHOLE_BYTES: Final = ((CHAT, CONFIGS[CHAT]), (CHAT, LOCAL), (RESPONSES, CONFIGS[RESPONSES]), (RESPONSES, LOCAL))
EVERY: Final = (*WHOLE_BYTES, (MESSAGES, CONFIGS[MESSAGES]))


def turns(backend: str, config: SamplerConfig, request: SamplingRequest) -> list[JsonObject]:
    return turns_of(backend, ENCODERS[backend](request, config))


def unmarked(value: Any) -> Any:
    """A JSON value without the marks for the cache, which move on from turn to turn."""
    if isinstance(value, dict):
        items: JsonObject = value  # pyright: ignore[reportUnknownVariableType]
        return {key: unmarked(inner) for key, inner in items.items() if key != "cache_control"}
    if isinstance(value, list):
        entries: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return [unmarked(entry) for entry in entries]
    return value


def text_of(value: object) -> bytes:
    return body_bytes({"turns": value}).removesuffix(b"]}")


@given(requests=spoken())
def test_a_turn_is_a_prefix_of_the_next_b039(requests: list[SamplingRequest]) -> None:
    for backend, config in WHOLE_BYTES:
        sent = [text_of(turns(backend, config, request)) for request in requests]
        for shorter, longer in pairwise(sent):
            assert longer.startswith(shorter)


@given(requests=spoken())
def test_a_turn_of_messages_is_a_prefix_of_the_next_but_for_marks_b039(requests: list[SamplingRequest]) -> None:
    """The last message may grow by blocks: the API joins what stands behind it in the same role."""
    bodies = [unmarked(ENCODERS[MESSAGES](request, CONFIGS[MESSAGES])) for request in requests]
    for shorter, longer in pairwise(bodies):
        assert shorter.get("system") == longer.get("system")
        *before, last = shorter["messages"]
        assert longer["messages"][: len(before)] == before
        grown = longer["messages"][len(before)]
        assert grown["role"] == last["role"]
        assert text_of(grown["content"]).startswith(text_of(last["content"]))


@given(requests=spoken())
def test_where_a_turn_of_messages_ended_the_next_has_a_mark_b074(requests: list[SamplingRequest]) -> None:
    """The API finds what it cached at marks: the end of a turn stays one in the next turn."""
    sent = [turns(MESSAGES, CONFIGS[MESSAGES], request) for request in requests]
    for shorter, longer in pairwise(sent):
        assert marks(shorter[-1]) == 1
        if any(message["role"] == "assistant" for message in longer[len(shorter) :]):
            *_, tip = [at for at, block in enumerate(shorter[-1]["content"]) if "cache_control" in block]
            assert "cache_control" in longer[len(shorter) - 1]["content"][tip]


@given(requests=spoken(turns=2))
def test_the_same_conversation_gives_the_same_bytes_b039(requests: list[SamplingRequest]) -> None:
    request = requests[-1]
    written = request.model_dump_json()
    again = SamplingRequest.model_validate_json(written)
    for backend, config in EVERY:
        encode = ENCODERS[backend]
        sent = body_bytes(encode(request, config))
        assert body_bytes(encode(request, config)) == sent
        assert body_bytes(encode(again, config)) == sent
    assert request.model_dump_json() == written, "encoding has changed the request"
