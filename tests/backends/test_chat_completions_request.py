"""Request bodies of the chat completions wire, held against the published shapes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from rx_sampler.backends.chat_completions.request import PATH, encode
from rx_sampler.backends.history import NO_RESULT
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
)
from rx_sampler.dialects import ChatDialect, ToolIdRule
from rx_sampler.errors import SamplingError, SamplingErrorKind

from .published import as_published

PIXEL = "data:image/png;base64,iVBORw0KGgo="
SYSTEM = SystemItem(content="Be brief.")
ASK = UserItem(content=(TextPart(text="What is 6 * 7?"),))
CLOCK = ToolSpec(name="clock", description="The time.", parameters={"type": "object", "properties": {}})
SEARCHED = BackendToolCallItem(
    call_id="ws_1",
    name="web_search",
    wire=({"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "owls"}},),
)


def config(base_url: str = "http://127.0.0.1:8080/v1", **fields: Any) -> SamplerConfig:
    return SamplerConfig(base_url=base_url, model="m", **fields)


def body_of(*items: Item, base_url: str = "http://127.0.0.1:8080/v1", **fields: Any) -> JsonObject:
    return encode(SamplingRequest(items=items, **fields), config(base_url))


def messages_of(*items: Item, **fields: Any) -> list[JsonObject]:
    return body_of(*items, **fields)["messages"]


def test_the_path() -> None:
    assert PATH == "/chat/completions"


def test_system_and_user_b044() -> None:
    body = body_of(SYSTEM, ASK)
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 6 * 7?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert as_published(CompletionCreateParamsStreaming, body) == body


def test_everything_at_once_and_in_order_b054() -> None:
    """B054 too: nothing but what is listed here is in the body."""
    # B025
    body = body_of(
        ASK,
        base_url="https://api.openai.com/v1",
        model="gpt-x",
        temperature=0.25,
        top_p=0.5,
        max_output_tokens=100,
        stop=("END", "\n\n"),
        n=2,
        tools=(CLOCK,),
        tool_choice="auto",
        json_schema={"type": "object"},
        reasoning_effort="high",
        metadata={"trace": "t1"},
        store=True,
        prompt_cache_key="never on this wire",
    )
    assert list(body.items()) == [
        ("model", "gpt-x"),
        ("messages", [{"role": "user", "content": "What is 6 * 7?"}]),
        ("temperature", 0.25),
        ("top_p", 0.5),
        ("max_completion_tokens", 100),
        ("stop", ["END", "\n\n"]),
        ("n", 2),
        (
            "tools",
            [
                {
                    "type": "function",
                    "function": {
                        "name": "clock",
                        "description": "The time.",
                        "parameters": {"type": "object", "properties": {}},
                    },
                }
            ],
        ),
        ("tool_choice", "auto"),
        (
            "response_format",
            {
                "type": "json_schema",
                "json_schema": {"name": "structured_output", "schema": {"type": "object"}, "strict": True},
            },
        ),
        ("reasoning_effort", "high"),
        ("metadata", {"trace": "t1"}),
        ("store", True),
        ("stream", True),
        ("stream_options", {"include_usage": True}),
    ]
    assert as_published(CompletionCreateParamsStreaming, body) == body


def test_the_configuration_fills_in() -> None:
    defaults = config(temperature=0.5, top_p=0.9, max_output_tokens=7, reasoning_effort="low")
    body = encode(SamplingRequest(items=(ASK,), temperature=0.0), defaults)
    sent = {key: body[key] for key in ("model", "temperature", "top_p", "max_tokens", "reasoning_effort")}
    assert sent == {"model": "m", "temperature": 0.0, "top_p": 0.9, "max_tokens": 7, "reasoning_effort": "low"}


def test_the_name_of_the_token_limit_depends_on_the_host() -> None:
    local = body_of(ASK, max_output_tokens=9)
    assert local["max_tokens"] == 9
    assert "max_completion_tokens" not in local
    azure = body_of(ASK, max_output_tokens=9, base_url="https://me.openai.azure.com/openai/v1")
    assert azure["max_completion_tokens"] == 9
    assert "max_tokens" not in azure
    forced = body_of(ASK, max_output_tokens=9, extra_body={"max_tokens": None, "max_completion_tokens": 9})
    assert forced["max_completion_tokens"] == 9
    assert "max_tokens" not in forced


def test_extra_body_wins() -> None:
    body = body_of(ASK, temperature=1.0, extra_body={"temperature": 0, "stream_options": None, "seed": 5})
    assert body["temperature"] == 0
    assert "stream_options" not in body
    assert list(body)[-1] == "seed"


def test_text_parts_are_lines_of_one_string_b045() -> None:
    parts = (TextPart(text="one"), TextPart(text="two"))
    assert messages_of(UserItem(content=parts)) == [{"role": "user", "content": "one\ntwo"}]


def test_images_make_a_list_in_order_b046() -> None:
    parts = (ImagePart(url="https://h/x.png"), TextPart(text="What is it?"), ImagePart(url=PIXEL))
    body = body_of(UserItem(content=parts))
    assert body["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": "https://h/x.png"}},
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": PIXEL}},
    ]
    assert as_published(CompletionCreateParamsStreaming, body) == body


def test_tool_calls_keep_ids_names_arguments_and_order_b047() -> None:
    calls = (
        ToolCall(id="call:1", name="clock", arguments='{"zone": "UTC"}'),
        ToolCall(id="c2", name="clock", arguments="{}"),
    )
    wire = [
        {"id": "call:1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}},
        {"id": "c2", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
    ]
    whole = body_of(ASK, AssistantItem(content="Let me look.", tool_calls=calls))
    assert whole["messages"][1] == {"role": "assistant", "content": "Let me look.", "tool_calls": wire}
    silent = body_of(ASK, *calls, ToolResultItem(tool_call_id="c2", content="12:00"))
    assert silent["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": wire},
        {"role": "tool", "tool_call_id": "c2", "content": "12:00"},
        {"role": "tool", "tool_call_id": "call:1", "content": NO_RESULT},
    ]
    for body in (whole, silent):
        assert as_published(CompletionCreateParamsStreaming, body) == body


def test_arguments_that_are_no_object_become_one_b035() -> None:
    message, _ = messages_of(ToolCall(id="c", name="f", arguments='{"city": "東京', complete=False))
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


def test_a_custom_call_keeps_its_free_text() -> None:
    body = body_of(ASK, ToolCall(id="c", name="shell", arguments="ls -l", custom=True))
    assert body["messages"][1]["tool_calls"] == [
        {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
    ]
    assert as_published(CompletionCreateParamsStreaming, body) == body


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_tool_choice_is_a_bare_string_b048(choice: str) -> None:
    body = body_of(ASK, tools=(CLOCK,), tool_choice=choice)
    assert body["tool_choice"] == choice
    assert as_published(CompletionCreateParamsStreaming, body) == body


def test_one_function_is_forced_by_an_object_b048() -> None:
    body = body_of(ASK, tools=(CLOCK,), tool_choice=FunctionChoice(name="clock"))
    assert body["tool_choice"] == {"type": "function", "function": {"name": "clock"}}
    assert as_published(CompletionCreateParamsStreaming, body) == body


@pytest.mark.parametrize("choice", ["required", FunctionChoice(name="clock")])
def test_no_tools_no_choice_b049(choice: object) -> None:
    assert "tool_choice" not in body_of(ASK, tool_choice=choice)


def test_a_tool_without_description_has_none() -> None:
    [tool] = body_of(ASK, tools=(ToolSpec(name="f"),))["tools"]
    assert tool["function"] == {"name": "f", "parameters": {"type": "object", "properties": {}}}


def test_hosted_tools_follow_as_given() -> None:
    hosted = HostedTool.model_validate({"type": "browser_search", "depth": 2})
    assert body_of(ASK, hosted_tools=(hosted,))["tools"] == [{"type": "browser_search", "depth": 2}]


def test_effort_is_a_top_level_string_b050() -> None:
    assert body_of(ASK, reasoning_effort="high")["reasoning_effort"] == "high"
    assert "reasoning_effort" not in body_of(ASK)


def test_a_schema_is_a_response_format_b024() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    body = body_of(ASK, json_schema=schema)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "structured_output", "schema": schema, "strict": True},
    }
    assert as_published(CompletionCreateParamsStreaming, body) == body


class TestReasoning:
    """B051: reasoning rides on the assistant message it belongs to, or not at all."""

    @pytest.mark.parametrize("answer", [AssistantItem(content="42"), TextItem(text="42")])
    def test_joined_on_the_next_assistant_message(self, answer: Item) -> None:
        thoughts = (ReasoningItem(text="six sevens"), ReasoningItem(), ReasoningItem(summary=("forty-two",)))
        assert messages_of(ASK, *thoughts, answer)[1:] == [
            {"role": "assistant", "content": "42", "reasoning_content": "six sevens\nforty-two"}
        ]

    @pytest.mark.parametrize("answer", [AssistantItem(content="42"), TextItem(text="42")])
    def test_across_a_backend_call(self, answer: Item) -> None:
        # B051
        assert messages_of(ASK, ReasoningItem(text="look it up"), SEARCHED, answer)[1:] == [
            {
                "role": "assistant",
                "content": "[backend web_search] search: owls\n42",
                "reasoning_content": "look it up",
            }
        ]

    def test_dropped_before_a_user_item_and_at_the_end(self) -> None:
        # B051
        assert messages_of(
            ReasoningItem(text="lost"), ASK, AssistantItem(content="42"), ReasoningItem(text="lost")
        ) == [
            {"role": "user", "content": "What is 6 * 7?"},
            {"role": "assistant", "content": "42"},
        ]

    def test_details_go_back_unchanged(self) -> None:
        details = ({"type": "reasoning.text", "text": "hm"}, {"type": "reasoning.encrypted", "data": "x"})
        items = (ReasoningItem(text="hm", details=details[:1]), TextItem(text="42"), ReasoningItem(details=details[1:]))
        assert messages_of(ASK, *items)[1:] == [
            {"role": "assistant", "content": "42", "reasoning_content": "hm", "reasoning_details": list(details)}
        ]

    def test_not_sent_where_unknown_keys_are_refused(self) -> None:
        thought = ReasoningItem(text="hm", details=({"type": "reasoning.text", "text": "hm"},))
        body = body_of(ASK, thought, TextItem(text="42"), base_url="https://api.openai.com/v1")
        assert body["messages"][1] == {"role": "assistant", "content": "42"}
        assert as_published(CompletionCreateParamsStreaming, body) == body


class TestBackendCalls:
    """B052: a call that the server ran is told in one line of assistant content."""

    def test_alone(self) -> None:
        # B052
        assert messages_of(ASK, SEARCHED)[1:] == [{"role": "assistant", "content": "[backend web_search] search: owls"}]

    def test_each_on_a_line_of_its_own(self) -> None:
        line = "[backend web_search] search: owls"
        [message] = messages_of(TextItem(text="Looking."), SEARCHED, SEARCHED, TextItem(text="Found."))
        assert message["content"] == f"Looking.\n{line}\n{line}\nFound."


class TestTurns:
    def test_opaque_items_have_no_form_here(self) -> None:
        opaque = OpaqueItem(wire={"type": "mcp_approval_request", "id": "a"})
        assert messages_of(ASK, opaque, TextItem(text="42"))[1:] == [{"role": "assistant", "content": "42"}]

    def test_the_items_of_a_response_are_one_message(self) -> None:
        answer = (TextItem(text="I "), TextItem(text="look."), ToolCall(id="c1", name="clock", arguments="{}"))
        result = ToolResultItem(tool_call_id="c1", content="12:00", is_error=True)
        body = body_of(SYSTEM, ASK, *answer, result, TextItem(text="Noon."), ASK)
        assert body["messages"][2:] == [
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
            {"role": "assistant", "content": "Noon."},
            {"role": "user", "content": "What is 6 * 7?"},
        ]
        assert as_published(CompletionCreateParamsStreaming, body) == body

    def test_a_refusal_stands_in_its_own_field(self) -> None:
        body = body_of(ASK, RefusalItem(text="I can"), RefusalItem(text="not."))
        assert body["messages"][1] == {"role": "assistant", "content": None, "refusal": "I cannot."}
        assert as_published(CompletionCreateParamsStreaming, body) == body

    def test_whole_answers_stay_apart(self) -> None:
        items = (AssistantItem(content="a"), AssistantItem(content="b"), TextItem(text="c"), AssistantItem(content="d"))
        assert [message["content"] for message in messages_of(*items)] == ["a", "b", "c", "d"]

    def test_an_empty_answer_is_no_message(self) -> None:
        assert messages_of(ASK, AssistantItem(), TextItem(text=""), RefusalItem(text="")) == [
            {"role": "user", "content": "What is 6 * 7?"}
        ]

    def test_tool_result_with_images_b053(self) -> None:
        image = {"type": "image_url", "image_url": {"url": PIXEL}}
        shot = ToolResultItem(tool_call_id="c", content="a shot", images=(ImagePart(url=PIXEL),))
        assert messages_of(shot) == [
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "a shot"}, image]}
        ]
        silent = ToolResultItem(tool_call_id="c", content="", images=(ImagePart(url=PIXEL),))
        assert messages_of(silent)[0]["content"] == [image]

    def test_where_tool_messages_hold_text_alone_the_user_shows_the_images(self) -> None:
        calls = [ToolCall(id=name, name="look", arguments="{}") for name in ("a", "b")]
        shots = [ToolResultItem(tool_call_id=name, content="a shot", images=[ImagePart(url=PIXEL)]) for name in "ab"]
        body = body_of(ASK, *calls, *shots, ASK, base_url="https://api.openai.com/v1")
        assert [message["role"] for message in body["messages"]] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
            "user",
        ]
        assert [message["content"] for message in body["messages"][2:4]] == ["a shot", "a shot"]
        image = {"type": "image_url", "image_url": {"url": PIXEL}}
        assert body["messages"][4]["content"] == [
            {"type": "text", "text": "Images of the result of a:"},
            image,
            {"type": "text", "text": "Images of the result of b:"},
            image,
        ]
        assert as_published(CompletionCreateParamsStreaming, body) == body


class TestDialects:
    @staticmethod
    def body(*items: Item, dialect: ChatDialect, **fields: Any) -> JsonObject:
        return encode(SamplingRequest(items=items, **fields), config(chat_dialect=dialect))

    def test_where_earlier_reasoning_goes(self) -> None:
        items = (ReasoningItem(text="hm", details=({"type": "reasoning.text"},)), TextItem(text="42"), ASK)
        for name in ("reasoning_content", "reasoning"):
            dialect = ChatDialect(reasoning_field=name, takes_reasoning_details=False)
            [said, _] = self.body(*items, dialect=dialect)["messages"]
            assert said == {"role": "assistant", "content": "42", name: "hm"}
        bare = ChatDialect(reasoning_field=None)
        [said, _] = self.body(*items, dialect=bare)["messages"]
        assert said == {"role": "assistant", "content": "42", "reasoning_details": [{"type": "reasoning.text"}]}

    def test_how_an_effort_is_told(self) -> None:
        assert self.body(ASK, dialect=ChatDialect(), reasoning_effort="low")["reasoning_effort"] == "low"
        nested = self.body(ASK, dialect=ChatDialect(effort_field="reasoning.effort"), reasoning_effort="low")
        assert nested["reasoning"] == {"effort": "low"}
        assert "reasoning_effort" not in nested
        assert "effort" not in repr(self.body(ASK, dialect=ChatDialect(effort_field=None), reasoning_effort="low"))

    def test_what_is_left_out(self) -> None:
        spare = ChatDialect(includes_usage=False, takes_metadata=False, max_tokens_field="max_completion_tokens")
        body = self.body(ASK, dialect=spare, metadata={"a": "b"}, max_output_tokens=5)
        assert "stream_options" not in body
        assert "metadata" not in body
        assert body["max_completion_tokens"] == 5
        stored = self.body(ASK, dialect=spare, metadata={"a": "b"}, store=True)
        assert (stored["metadata"], stored["store"]) == ({"a": "b"}, True)
        assert "store" not in self.body(ASK, dialect=spare, store=False)

    def test_ids_of_calls(self) -> None:
        call, result = ToolCall(id="call_0123456789", name="f", arguments="{}"), "call_0123456789"
        dialect = ChatDialect(tool_ids=ToolIdRule(characters="A-Za-z0-9", length=9))
        said, told = self.body(call, ToolResultItem(tool_call_id=result, content="x"), dialect=dialect)["messages"]
        wire_id = said["tool_calls"][0]["id"]
        assert re.fullmatch("[A-Za-z0-9]{9}", wire_id)
        assert told["tool_call_id"] == wire_id

    def test_what_a_server_put_beside_a_call_goes_back(self) -> None:
        extra: JsonObject = {"google": {"thought_signature": "c2ln"}}
        call = ToolCall(id="c", name="f", arguments="{}", extra_content=extra)
        said, _ = self.body(call, dialect=ChatDialect())["messages"]
        assert said["tool_calls"][0]["extra_content"] == extra
        said, _ = self.body(call, dialect=ChatDialect(takes_extra_content=False))["messages"]
        assert "extra_content" not in said["tool_calls"][0]


def test_one_call_at_a_time() -> None:
    body = body_of(ASK, tools=(CLOCK,), parallel_tool_calls=False)
    assert body["parallel_tool_calls"] is False
    assert as_published(CompletionCreateParamsStreaming, body) == body
    assert "parallel_tool_calls" not in body_of(ASK, parallel_tool_calls=False)


def test_how_closely_an_image_is_looked_at() -> None:
    [message] = messages_of(UserItem(content=(ImagePart(url=PIXEL, detail="low"),)))
    assert message["content"][0]["image_url"] == {"url": PIXEL, "detail": "low"}


class TestRefused:
    def test_no_model(self) -> None:
        with pytest.raises(SamplingError, match="model is ''") as error:
            encode(SamplingRequest(items=(ASK,)), SamplerConfig(base_url="http://127.0.0.1:1/v1"))
        assert error.value.kind is SamplingErrorKind.INVALID_REQUEST

    def test_nothing_to_say(self) -> None:
        with pytest.raises(SamplingError, match="at least one user item") as error:
            body_of(ReasoningItem(text="hm"))
        assert error.value.kind is SamplingErrorKind.INVALID_REQUEST

    def test_a_broken_image_by_its_place(self) -> None:
        with pytest.raises(SamplingError, match=r"items\[1\]\.content\[1\]\.url is 'data:broken'"):
            body_of(SYSTEM, UserItem(content=(TextPart(text="x"), ImagePart(url="data:broken"))))
        with pytest.raises(SamplingError, match=r"items\[0\]\.images\[0\]\.url is 'data:broken'"):
            body_of(ToolResultItem(tool_call_id="c", content="", images=(ImagePart(url="data:broken"),)))
