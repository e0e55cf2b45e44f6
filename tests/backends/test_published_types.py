"""Whatever a conversation holds, its body is what the vendors publish, and keeps the rules that types cannot say."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rx_sampler.backends.encoding import body_bytes
from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import HostedTool, ResponseItem, SamplingRequest, WebSearch, XSearch

from .made_conversations import ASK, reasoning, requests
from .streams import BACKENDS, CHAT, MESSAGES, RESPONSES
from .wire_rules import CONFIGS, ENCODERS, check_body, check_rules, encoded, marks, turns_of

EXAMPLES: Final = 80


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_every_body_is_of_the_published_type(backend: str, data: st.DataObject) -> None:
    request = data.draw(requests(backend))
    body = encoded(backend, request)
    check_body(backend, body)
    assert body["stream"] is True
    assert turns_of(backend, body)


ANY_ID: Final = r"(?s).+"
OTHERS: Final[dict[str, dict[str, str | None]]] = {
    CHAT: {
        "https://api.mistral.ai/v1": r"[A-Za-z0-9]{9}",
        "https://openrouter.ai/api/v1": ANY_ID,
        "http://127.0.0.1:1/v1": ANY_ID,
    },
    RESPONSES: {"https://api.x.ai/v1": None, "http://127.0.0.1:1/v1": None},
    MESSAGES: {"https://openrouter.ai/api/v1": None, "http://127.0.0.1:1/v1": None},
}
"""Servers that have no published types, with the ids that they take where those are not the vendor's."""


@pytest.mark.parametrize("backend", BACKENDS)
@given(data=st.data())
def test_every_body_keeps_the_rules_of_other_servers(backend: str, data: st.DataObject) -> None:
    request = data.draw(requests(backend))
    for base_url, tool_ids in OTHERS[backend].items():
        body = ENCODERS[backend](request, SamplerConfig(base_url=base_url, model="m"))
        check_rules(backend, body, tool_ids=tool_ids)


@given(request=requests(MESSAGES))
def test_without_marks_a_body_is_the_same_otherwise_b074(request: SamplingRequest) -> None:
    marked = encoded(MESSAGES, request.replaced(cache_breakpoints=True))
    plain = encoded(MESSAGES, request.replaced(cache_breakpoints=False))
    assert marks(marked) > 0
    assert marks(plain) == 0
    assert body_bytes(marked).replace(b',"cache_control":{"type":"ephemeral"}', b"") == body_bytes(plain)


@given(request=requests(MESSAGES), thoughts=st.lists(reasoning, min_size=1, max_size=2), goes_on=st.booleans())
def test_a_thought_is_not_marked_wherever_it_stands_b077(
    request: SamplingRequest, thoughts: list[ResponseItem], goes_on: bool
) -> None:
    behind = [ASK] if goes_on else []
    marked = request.replaced(items=[*request.items, *thoughts, *behind], cache_breakpoints=True)
    check_body(MESSAGES, encoded(MESSAGES, marked))


class TestWhatOneVendorAloneHas:
    """Outside of what the published types know, so held against what the vendor documents."""

    @pytest.mark.parametrize(
        ("tool", "wire"),
        [
            (
                WebSearch(excluded_domains=["a.example"]),
                {"type": "web_search", "filters": {"excluded_domains": ["a.example"]}},
            ),
            (XSearch(), {"type": "x_search"}),
            (
                XSearch(from_date="2026-03-05", to_date="2026-03-06"),
                {"type": "x_search", "from_date": "2026-03-05", "to_date": "2026-03-06"},
            ),
        ],
    )
    def test_searches_of_xai(self, tool: HostedTool | WebSearch | XSearch, wire: dict[str, Any]) -> None:
        body = ENCODERS[RESPONSES](
            SamplingRequest(items=[ASK], hosted_tools=[tool]),
            SamplerConfig(base_url="https://api.x.ai/v1", model="m"),
        )
        assert body["tools"] == [wire]

    @pytest.mark.parametrize("backend", [CHAT, MESSAGES])
    def test_a_search_on_x_has_no_form_elsewhere(self, backend: str) -> None:
        assert "tools" not in encoded(backend, SamplingRequest(items=[ASK], hosted_tools=[XSearch()]))

    def test_streamed_arguments_are_asked_of_xai(self) -> None:
        config = SamplerConfig(base_url="https://api.x.ai/v1", model="m", stream_tool_calls=True)
        assert ENCODERS[RESPONSES](SamplingRequest(items=[ASK]), config)["stream_tool_calls"] is True

    def test_temperature_for_the_older_models_of_anthropic(self) -> None:
        body = encoded(MESSAGES, SamplingRequest(items=[ASK], temperature=0.5, top_p=0.9))
        assert (body.pop("temperature"), body.pop("top_p")) == (0.5, 0.9)
        check_body(MESSAGES, body)

    def test_extra_body_is_nobody_s_business(self) -> None:
        request = SamplingRequest(items=[ASK], extra_body={"novel": {"deep": [1]}})
        for backend in BACKENDS:
            body = ENCODERS[backend](request, CONFIGS[backend])
            assert body.pop("novel") == {"deep": [1]}
            check_body(backend, body)
