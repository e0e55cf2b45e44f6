"""Request bodies of the messages wire, held against the published shapes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import ValidationError

from rx_sampler.backends.history import NO_RESULT
from rx_sampler.backends.messages.request import HEADERS, PATH, encode
from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import (
    AssistantItem,
    BackendToolCallItem,
    FunctionChoice,
    HostedTool,
    ImagePart,
    Item,
    JsonObject,
    OpaqueItem,
    ReasoningItem,
    RefusalItem,
    SamplingRequest,
    SystemItem,
    TextItem,
    TextPart,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
    WebSearch,
    XSearch,
)
from rx_sampler.errors import SamplingError, SamplingErrorKind

from .published import as_published

PIXEL = "data:image/png;base64,iVBORw0KGgo="
PIXEL_BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
SYSTEM = SystemItem(content="Be brief.")
ASK = UserItem(content=(TextPart(text="What is 6 * 7?"),))
ASKED = {"role": "user", "content": [{"type": "text", "text": "What is 6 * 7?"}]}
CLOCK = ToolSpec(name="clock", description="The time.", parameters={"type": "object", "properties": {}})
SERVER_CALL: JsonObject = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "owls"},
}
SERVER_RESULT: JsonObject = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
SEARCHED = BackendToolCallItem(call_id="srvtoolu_1", name="web_search", wire=(SERVER_CALL, SERVER_RESULT))
CONFIG = SamplerConfig(base_url="https://api.anthropic.com/v1", backend="messages", model="m", cache_breakpoints=False)


def body_of(*items: Item, **fields: Any) -> JsonObject:
    return encode(SamplingRequest(items=items, **fields), CONFIG)


def messages_of(*items: Item) -> list[JsonObject]:
    return body_of(*items)["messages"]


def blocks_of(*items: Item) -> list[JsonObject]:
    [message] = messages_of(*items)
    return message["content"]


def unanswered(call_id: str) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": call_id, "content": NO_RESULT, "is_error": True}


def test_path_and_headers() -> None:
    assert PATH == "/messages"
    assert dict(HEADERS) == {"anthropic-version": "2023-06-01"}


def test_system_and_user() -> None:
    body = body_of(SYSTEM, ASK)
    assert body == {
        "model": "m",
        "max_tokens": 32_000,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [ASKED],
        "stream": True,
    }
    assert as_published(MessageCreateParamsStreaming, body) == body


def test_everything_at_once_and_in_order() -> None:
    body = body_of(
        SYSTEM,
        ASK,
        model="claude-x",
        temperature=0.25,
        top_p=0.5,
        max_output_tokens=100,
        stop=("END",),
        n=1,
        tools=(CLOCK,),
        tool_choice="auto",
        json_schema={"type": "object"},
        reasoning_effort="high",
        metadata={"trace": "t1", "user_id": "u1"},
        prompt_cache_key="never on this wire",
    )
    assert list(body.items()) == [
        ("model", "claude-x"),
        ("max_tokens", 100),
        ("system", [{"type": "text", "text": "Be brief."}]),
        ("messages", [ASKED]),
        (
            "tools",
            [{"name": "clock", "description": "The time.", "input_schema": {"type": "object", "properties": {}}}],
        ),
        ("tool_choice", {"type": "auto"}),
        ("temperature", 0.25),
        ("top_p", 0.5),
        ("stop_sequences", ["END"]),
        ("thinking", {"type": "adaptive", "display": "summarized"}),
        ("output_config", {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}}),
        ("metadata", {"user_id": "u1"}),
        ("stream", True),
    ]
    # The published type dropped these two for models that refuse them; the API still takes them for the others.
    newest = {key: value for key, value in body.items() if key not in ("temperature", "top_p")}
    assert as_published(MessageCreateParamsStreaming, body) == newest


def test_metadata_without_user_id_is_not_sent() -> None:
    assert "metadata" not in body_of(ASK, metadata={"trace": "t1"})


def test_max_tokens_b070() -> None:
    """Request, else configuration, else 128,000; 32,000 at Anthropic, some of whose models refuse more."""
    limited = CONFIG.model_copy(update={"max_output_tokens": 1024})
    elsewhere = CONFIG.model_copy(update={"base_url": "http://127.0.0.1:1/v1"})
    assert body_of(ASK)["max_tokens"] == 32_000
    assert encode(SamplingRequest(items=(ASK,)), elsewhere)["max_tokens"] == 128_000
    assert encode(SamplingRequest(items=(ASK,)), limited)["max_tokens"] == 1024
    assert encode(SamplingRequest(items=(ASK,), max_output_tokens=5), limited)["max_tokens"] == 5


@pytest.mark.parametrize("effort", ["low", "medium", "high", "xhigh", "max"])
def test_effort_makes_adaptive_thinking_b071(effort: str) -> None:
    # B043
    body = body_of(ASK, reasoning_effort=effort)
    assert body["output_config"] == {"effort": effort}
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert as_published(MessageCreateParamsStreaming, body) == body


@pytest.mark.parametrize("effort", ["none", "minimal", None])
def test_no_effort_no_thinking_b072(effort: str | None) -> None:
    body = body_of(ASK, reasoning_effort=effort)
    assert "output_config" not in body
    assert "thinking" not in body


def test_a_schema_alone_does_not_think_b024_b073() -> None:
    """B073: with an effort, `output_config` has both."""
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    alone = body_of(ASK, json_schema={"type": "object"})
    assert alone["output_config"] == {"format": schema}
    assert "thinking" not in alone
    both = body_of(ASK, json_schema={"type": "object"}, reasoning_effort="high")
    assert both["output_config"] == {"effort": "high", "format": schema}
    assert "thinking" in both
    assert as_published(MessageCreateParamsStreaming, both) == both


def test_extra_body_wins() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2048}
    body = body_of(ASK, reasoning_effort="high", extra_body={"thinking": thinking, "output_config": None})
    assert body["thinking"] == thinking
    assert "output_config" not in body


def test_system_items_are_collected_from_anywhere() -> None:
    body = body_of(SYSTEM, ASK, TextItem(text="42"), SystemItem(content="Be kind."), SystemItem(content=" "), ASK)
    assert body["system"] == [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]


class TestReasoning:
    """Thinking blocks go back word for word, in their place, or not at all."""

    def test_signed_and_redacted_before_a_call(self) -> None:
        answer = (
            ReasoningItem(text="Look it up.", signature="sig-A"),
            ReasoningItem(redacted_data="b3BhcXVl"),
            TextItem(text="One moment."),
            ReasoningItem(text="Again.", signature="sig-B"),
            ToolCall(id="toolu_9", name="lookup", arguments='{"w":"owl"}'),
        )
        body = body_of(ASK, *answer, ToolResultItem(tool_call_id="toolu_9", content="a bird"))
        assert body["messages"][1:] == [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Look it up.", "signature": "sig-A"},
                    {"type": "redacted_thinking", "data": "b3BhcXVl"},
                    {"type": "text", "text": "One moment."},
                    {"type": "thinking", "thinking": "Again.", "signature": "sig-B"},
                    {"type": "tool_use", "id": "toolu_9", "name": "lookup", "input": {"w": "owl"}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "toolu_9", "content": "a bird"}],
            },
        ]
        assert as_published(MessageCreateParamsStreaming, body) == body

    def test_only_a_signature_b078(self) -> None:
        assert blocks_of(ReasoningItem(signature="s")) == [{"type": "thinking", "thinking": "", "signature": "s"}]

    @pytest.mark.parametrize(
        "item",
        [ReasoningItem(), ReasoningItem(text="unsigned"), ReasoningItem(id="rs", encrypted_content="other wire")],
    )
    def test_without_a_signature_no_block_b078(self, item: ReasoningItem) -> None:
        assert messages_of(ASK, item) == [ASKED]

    def test_a_thought_goes_back_to_a_server_that_signs_none_b078(self) -> None:
        """llama.cpp sends an empty signature, and takes it back; Anthropic would refuse it."""
        unsigned = ReasoningItem(text="hm", signature="")
        elsewhere = CONFIG.model_copy(update={"base_url": "http://127.0.0.1:1/v1"})
        body = encode(SamplingRequest(items=(ASK, unsigned)), elsewhere)
        assert body["messages"][1]["content"] == [{"type": "thinking", "thinking": "hm", "signature": ""}]
        nothing = encode(SamplingRequest(items=(ASK, ReasoningItem(signature=""))), elsewhere)
        assert nothing["messages"] == messages_of(ASK, unsigned) == [ASKED]


class TestTurns:
    def test_parallel_results_share_one_user_message_b079(self) -> None:
        calls = (ToolCall(id="a", name="clock", arguments="{}"), ToolCall(id="b", name="clock", arguments="{}"))
        results = (
            ToolResultItem(tool_call_id="a", content="12:00"),
            ToolResultItem(tool_call_id="b", content="broken", is_error=True),
        )
        body = body_of(ASK, *calls, *results, ASK)
        assert body["messages"][2:] == [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "12:00"},
                    {"type": "tool_result", "tool_use_id": "b", "content": "broken", "is_error": True},
                ],
            },
            ASKED,
        ]
        assert as_published(MessageCreateParamsStreaming, body) == body

    def test_an_error_without_words_gets_one(self) -> None:
        [block] = blocks_of(ToolResultItem(tool_call_id="a", content="", is_error=True))
        assert block["content"] == "error"

    def test_assistant_items_share_one_message(self) -> None:
        call = ToolCall(id="a", name="clock", arguments="{}")
        use: JsonObject = {"type": "tool_use", "id": "a", "name": "clock", "input": {}}
        items = (
            AssistantItem(content="I look.", tool_calls=(call,)),
            TextItem(text="Done."),
            RefusalItem(text="No more."),
        )
        assert messages_of(*items, SEARCHED) == [
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]},
            {"role": "user", "content": [unanswered("a")]},  # an assistant item is a turn of its own
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Done."},
                    {"type": "text", "text": "No more."},
                    SERVER_CALL,
                    SERVER_RESULT,
                ],
            },
        ]

    def test_white_space_alone_is_no_block(self) -> None:
        call = ToolCall(id="a", name="clock", arguments="{}")
        said, _ = messages_of(TextItem(text="\n\n"), call)
        assert [block["type"] for block in said["content"]] == ["tool_use"]
        assert messages_of(ASK, AssistantItem(), TextItem(text=" "), RefusalItem(text="")) == [ASKED]
        user = UserItem(content=(TextPart(text=" "), TextPart(text="x")))
        assert blocks_of(user) == [{"type": "text", "text": "x"}]

    def test_user_parts_keep_their_order(self) -> None:
        parts = (ImagePart(url=PIXEL), TextPart(text="What is it?"))
        assert blocks_of(UserItem(content=parts)) == [PIXEL_BLOCK, {"type": "text", "text": "What is it?"}]

    def test_citations_of_this_wire_stay_with_their_text(self) -> None:
        cited = {"type": "web_search_result_location", "url": "https://h/", "encrypted_index": "x"}
        foreign = {"type": "url_citation", "url": "https://h/"}
        assert blocks_of(TextItem(text="Owls.", annotations=(cited, foreign))) == [
            {"type": "text", "text": "Owls.", "citations": [cited]}
        ]
        assert blocks_of(TextItem(text="Owls.", annotations=(foreign,))) == [{"type": "text", "text": "Owls."}]

    def test_backend_calls_are_echoed_block_by_block(self) -> None:
        body = body_of(ASK, SEARCHED, TextItem(text="Owls."))
        assert body["messages"][1]["content"] == [SERVER_CALL, SERVER_RESULT, {"type": "text", "text": "Owls."}]
        assert as_published(MessageCreateParamsStreaming, body) == body

    def test_opaque_blocks_are_echoed_in_place(self) -> None:
        novel: JsonObject = {"type": "novel", "data": "x"}
        assert blocks_of(TextItem(text="a"), OpaqueItem(wire=novel), TextItem(text="b")) == [
            {"type": "text", "text": "a"},
            novel,
            {"type": "text", "text": "b"},
        ]
        here, elsewhere = (OpaqueItem(wire=novel, backend=backend) for backend in ("messages", "responses"))
        assert blocks_of(here, elsewhere) == [novel]

    def test_backend_calls_of_another_wire_are_told_b052(self) -> None:
        wire = ({"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "owls"}},)
        foreign = BackendToolCallItem(call_id="w", name="web_search", wire=wire)
        assert blocks_of(foreign) == [{"type": "text", "text": "[backend web_search] search: owls"}]


class TestToolCalls:
    def test_ids_are_rewritten_alike_on_both_sides_b080(self) -> None:
        messages = messages_of(
            ToolCall(id="call:1/x", name="f", arguments="{}"), ToolResultItem(tool_call_id="call:1/x", content="ok")
        )
        assert messages[0]["content"][0]["id"] == "call_1_x"
        assert messages[1]["content"][0]["tool_use_id"] == "call_1_x"

    def test_distinct_ids_stay_distinct(self) -> None:
        ids = ["a:1", "a/1", "a_1", "é", "東", ""]
        calls = [ToolCall(id=call_id, name="f", arguments="{}") for call_id in ids]
        results = [ToolResultItem(tool_call_id=call_id, content="ok") for call_id in reversed(ids)]
        called, answered = messages_of(*calls, *results)
        wire_ids = [block["id"] for block in called["content"]]
        assert len(set(wire_ids)) == len(ids)
        assert all(re.fullmatch(r"[A-Za-z0-9_-]+", wire_id) for wire_id in wire_ids)
        assert [block["tool_use_id"] for block in answered["content"]] == wire_ids[::-1]

    @pytest.mark.parametrize("arguments", ["", '{"city": "東京', "[1]", "null"])
    def test_arguments_that_are_no_object_become_one(self, arguments: str) -> None:
        said, _ = messages_of(ToolCall(id="a", name="f", arguments=arguments, complete=False))
        assert said["content"][0]["input"] == {}

    def test_a_number_beyond_a_float_is_not_sent(self) -> None:
        said, _ = messages_of(ToolCall(id="a", name="f", arguments='{"a": 1e999}'))
        assert said["content"][0]["input"] == {}

    def test_free_text_of_a_custom_call_is_kept(self) -> None:
        said, _ = messages_of(ToolCall(id="a", name="shell", arguments="ls -l", custom=True))
        assert said["content"][0]["input"] == {"input": "ls -l"}

    def test_results_with_images_b083(self) -> None:
        images = (ImagePart(url=PIXEL), ImagePart(url="https://h/x.png"))
        shot = ToolResultItem(tool_call_id="a", content="a shot", images=images)
        body = body_of(ToolCall(id="a", name="f", arguments="{}"), shot)
        web = {"type": "image", "source": {"type": "url", "url": "https://h/x.png"}}
        assert body["messages"][1]["content"][0]["content"] == [{"type": "text", "text": "a shot"}, PIXEL_BLOCK, web]
        assert as_published(MessageCreateParamsStreaming, body) == body


class TestCutAnswers:
    THOUGHT = ReasoningItem(text="hm", signature="sig")

    def test_a_thought_is_not_the_last_of_an_answer_that_others_follow(self) -> None:
        """Anthropic refuses it; alone at the end of the conversation it may stand."""
        assert messages_of(ASK, self.THOUGHT, ASK) == [ASKED, ASKED]
        said = {"role": "assistant", "content": [{"type": "text", "text": "a"}]}
        hidden = ReasoningItem(redacted_data="xyz")
        assert messages_of(ASK, TextItem(text="a"), self.THOUGHT, hidden, ASK) == [ASKED, said, ASKED]
        assert messages_of(ASK, self.THOUGHT)[1]["content"][0]["type"] == "thinking"

    def test_other_servers_get_it(self) -> None:
        elsewhere = CONFIG.model_copy(update={"base_url": "http://127.0.0.1:1/v1"})
        body = encode(SamplingRequest(items=(ASK, self.THOUGHT, ASK)), elsewhere)
        assert body["messages"][1]["content"] == [{"type": "thinking", "thinking": "hm", "signature": "sig"}]

    def test_a_call_of_the_servers_that_came_to_nothing_is_told_once_something_follows(self) -> None:
        cut = BackendToolCallItem(call_id="srvtoolu_1", name="web_search", wire=(SERVER_CALL,))
        assert messages_of(ASK, cut, ASK)[1]["content"] == [
            {"type": "text", "text": "[backend web_search] search: owls"}
        ]
        assert messages_of(ASK, cut)[1]["content"] == [SERVER_CALL]  # to be gone on with
        assert messages_of(ASK, SEARCHED, ASK)[1]["content"] == [SERVER_CALL, SERVER_RESULT]

    def test_the_last_text_of_the_conversation_ends_in_a_letter(self) -> None:
        assert messages_of(ASK, TextItem(text="So \n"))[1]["content"] == [{"type": "text", "text": "So"}]
        assert messages_of(ASK, TextItem(text="So \n"), ASK)[1]["content"] == [{"type": "text", "text": "So \n"}]


class TestCacheMarks:
    def marked(self, *items: Item, **fields: Any) -> list[tuple[str, JsonObject]]:
        """The marked blocks without their marks, with the role of their message."""
        body = encode(SamplingRequest(items=items, **fields), CONFIG.model_copy(update={"cache_breakpoints": True}))
        assert as_published(MessageCreateParamsStreaming, body) == body
        found: list[tuple[str, JsonObject]] = []
        system: JsonObject = {"role": "system", "content": body.get("system", [])}
        for message in [system, *body["messages"]]:
            for block in message["content"]:
                if "cache_control" in block:
                    assert block["cache_control"] == {"type": "ephemeral"}
                    found.append(
                        (message["role"], {key: value for key, value in block.items() if key != "cache_control"})
                    )
        return found

    def test_the_system_and_the_last_two_tips_b074(self) -> None:
        again, thanks = (UserItem(content=(TextPart(text=text),)) for text in ("Sure?", "Thanks."))
        turns = (SystemItem(content="First."), SYSTEM, ASK, TextItem(text="42"), again, TextItem(text="Yes."), thanks)
        assert self.marked(*turns) == [
            ("system", {"type": "text", "text": "Be brief."}),
            ("user", {"type": "text", "text": "Sure?"}),
            ("user", {"type": "text", "text": "Thanks."}),
        ]
        assert self.marked(ASK) == [("user", {"type": "text", "text": "What is 6 * 7?"})]

    def test_the_older_tip_lies_before_the_last_assistant_message_b075(self) -> None:
        call = ToolCall(id="a", name="clock", arguments="{}")
        result = ToolResultItem(tool_call_id="a", content="12:00")
        reminder, more = (UserItem(content=(TextPart(text=text),)) for text in ("Remember.", "More."))
        assert self.marked(ASK, call, result, reminder, more) == [
            ("user", {"type": "text", "text": "What is 6 * 7?"}),
            ("user", {"type": "text", "text": "More."}),
        ]
        assert self.marked(ASK, call, result, TextItem(text="Noon."), more)[0] == (
            "user",
            {"type": "tool_result", "tool_use_id": "a", "content": "12:00"},
        )

    def test_an_image_at_the_tip_carries_the_mark_b076(self) -> None:
        shown = UserItem(content=(TextPart(text="What is it?"), ImagePart(url=PIXEL)))
        assert self.marked(shown) == [("user", PIXEL_BLOCK)]

    def test_thinking_is_never_marked_b077(self) -> None:
        thought = ReasoningItem(text="hm", signature="sig")
        hidden = ReasoningItem(redacted_data="xyz")
        said = {"type": "text", "text": "42"}
        assert self.marked(ASK, TextItem(text="42"), thought, hidden) == [("assistant", said)]
        assert self.marked(ASK, thought, hidden) == [("user", {"type": "text", "text": "What is 6 * 7?"})]

    def test_the_blocks_of_the_request_stay_as_they_are(self) -> None:
        before = SEARCHED.model_dump()
        assert self.marked(ASK, SEARCHED)[-1] == ("assistant", SERVER_RESULT)
        assert SEARCHED.model_dump() == before

    def test_off_and_on(self) -> None:
        assert self.marked(ASK, cache_breakpoints=False) == []
        assert "cache_control" in repr(body_of(ASK, cache_breakpoints=True))
        assert "cache_control" not in repr(body_of(ASK))


class TestTools:
    def test_one_call_at_a_time(self) -> None:
        for choice, wire in (
            (None, {"type": "auto"}),
            ("auto", {"type": "auto"}),
            ("required", {"type": "any"}),
            (FunctionChoice(name="clock"), {"type": "tool", "name": "clock"}),
        ):
            body = body_of(ASK, tools=(CLOCK,), tool_choice=choice, parallel_tool_calls=False)
            assert body["tool_choice"] == {**wire, "disable_parallel_tool_use": True}
            assert as_published(MessageCreateParamsStreaming, body) == body
        off = body_of(ASK, tools=(CLOCK,), tool_choice="none", parallel_tool_calls=False)
        assert off["tool_choice"] == {"type": "none"}
        assert "tool_choice" not in body_of(ASK, parallel_tool_calls=False)

    def test_a_web_search_is_anthropics_own(self) -> None:
        allowed, excluded = WebSearch(allowed_domains=["a.test"]), WebSearch(excluded_domains=["b.test"])
        body = body_of(ASK, tools=(CLOCK, ToolSpec(name="web_search")), hosted_tools=(allowed,))
        search = {"type": "web_search_20250305", "name": "web_search"}
        assert [tool["name"] for tool in body["tools"]] == ["clock", "web_search"]
        assert body["tools"][1] == {**search, "allowed_domains": ["a.test"]}
        assert as_published(MessageCreateParamsStreaming, body) == body
        assert body_of(ASK, hosted_tools=(excluded,))["tools"] == [{**search, "blocked_domains": ["b.test"]}]
        assert "tools" not in body_of(ASK, hosted_tools=(XSearch(),))

    @pytest.mark.parametrize(
        ("choice", "wire"),
        [
            ("auto", {"type": "auto"}),
            ("none", {"type": "none"}),
            ("required", {"type": "any"}),
            (FunctionChoice(name="clock"), {"type": "tool", "name": "clock"}),
        ],
    )
    def test_choices_b082(self, choice: object, wire: JsonObject) -> None:
        """A departure from the reference, which turns none into auto: none forbids tools."""
        body = body_of(ASK, tools=(CLOCK,), tool_choice=choice)
        assert body["tool_choice"] == wire
        assert as_published(MessageCreateParamsStreaming, body) == body
        assert "tool_choice" not in body_of(ASK, tool_choice=choice)

    def test_a_schema_always_has_a_type(self) -> None:
        [tool] = body_of(ASK, tools=(ToolSpec(name="f", parameters={}),))["tools"]
        assert tool == {"name": "f", "input_schema": {"type": "object"}}

    def test_hosted_tools_follow_and_claim_their_name(self) -> None:
        hosted = HostedTool.model_validate({"type": "web_search_20250305", "name": "web_search", "max_uses": 3})
        body = body_of(ASK, tools=(CLOCK, ToolSpec(name="web_search")), hosted_tools=(hosted,))
        assert [tool["name"] for tool in body["tools"]] == ["clock", "web_search"]
        assert body["tools"][1] == {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
        assert as_published(MessageCreateParamsStreaming, body) == body


class TestImages:
    """B081, with refusals where the reference sends a placeholder text that the model would take for the image."""

    @pytest.mark.parametrize(
        ("url", "source"),
        [
            ("data:image/png;base64,AAA", {"type": "base64", "media_type": "image/png", "data": "AAA"}),
            ("https://h/x.png", {"type": "url", "url": "https://h/x.png"}),
        ],
    )
    def test_sources(self, url: str, source: JsonObject) -> None:
        # B081
        assert blocks_of(UserItem(content=(ImagePart(url=url),))) == [{"type": "image", "source": source}]

    def test_a_broken_one_is_refused_by_its_place(self) -> None:
        with pytest.raises(SamplingError, match=r"items\[1\]\.content\[0\]\.url is 'data:broken'") as error:
            body_of(ASK, UserItem(content=(ImagePart(url="data:broken"),)))
        assert error.value.kind is SamplingErrorKind.INVALID_REQUEST
        with pytest.raises(SamplingError, match=r"items\[0\]\.images\[0\]\.url is 'data:broken'"):
            body_of(ToolResultItem(tool_call_id="c", content="", images=(ImagePart(url="data:broken"),)))

    def test_another_scheme_is_refused_before_there_is_a_request(self) -> None:
        with pytest.raises(ValidationError, match="weird"):
            ImagePart(url="weird")


class TestRefused:
    def test_no_model(self) -> None:
        with pytest.raises(SamplingError, match="model is ''") as error:
            encode(SamplingRequest(items=(ASK,)), SamplerConfig(base_url="http://127.0.0.1:1/v1"))
        assert error.value.kind is SamplingErrorKind.INVALID_REQUEST

    def test_only_a_system_item(self) -> None:
        with pytest.raises(SamplingError, match="at least one user item"):
            body_of(SYSTEM)

    def test_a_user_item_without_content(self) -> None:
        with pytest.raises(SamplingError, match=r"items\[1\]\.content is .*: the messages API wants some text"):
            body_of(ASK, UserItem(content=(TextPart(text=" \n"),)))

    def test_several_choices(self) -> None:
        with pytest.raises(SamplingError, match="n is 3: the messages API gives one answer"):
            body_of(ASK, n=3)
