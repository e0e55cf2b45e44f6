"""Request bodies of the responses wire, held against the published shapes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from rx_sampler.backends.encoding import body_bytes
from rx_sampler.backends.history import NO_RESULT
from rx_sampler.backends.responses.request import PATH, encode
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
SYSTEM = SystemItem(content="Be brief.")
ASK = UserItem(content=(TextPart(text="What is 6 * 7?"),))
ASKED = {"type": "message", "role": "user", "content": "What is 6 * 7?"}
CLOCK = ToolSpec(name="clock", description="The time.", parameters={"type": "object", "properties": {}})
SEARCH_CALL: JsonObject = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "owls"},
}
SEARCHED = BackendToolCallItem(call_id="ws_1", name="web_search", wire=(SEARCH_CALL,))
THOUGHT = ReasoningItem(text="hm", id="rs_1", summary=("hm",), content=("deep",), encrypted_content="ENC")
CONFIG = SamplerConfig(base_url="https://api.openai.com/v1", backend="responses", model="m")
ELSEWHERE = CONFIG.model_copy(update={"base_url": "http://127.0.0.1:1/v1"})


def body_of(*items: Item, **fields: Any) -> JsonObject:
    return encode(SamplingRequest(items=items, **fields), CONFIG)


def input_of(*items: Item, **fields: Any) -> list[JsonObject]:
    return body_of(*items, **fields)["input"]


def test_the_path() -> None:
    assert PATH == "/responses"


def test_nothing_is_stored_and_encrypted_reasoning_is_asked_for_b055() -> None:
    body = body_of(SYSTEM, ASK)
    assert body == {
        "model": "m",
        "input": [{"type": "message", "role": "system", "content": "Be brief."}, ASKED],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    }
    assert as_published(ResponseCreateParamsStreaming, body) == body


def test_everything_at_once_and_in_order() -> None:
    body = body_of(
        ASK,
        model="gpt-x",
        temperature=0.25,
        top_p=0.5,
        max_output_tokens=100,
        n=1,
        tools=(CLOCK,),
        hosted_tools=(HostedTool(type="web_search"),),
        tool_choice="required",
        json_schema={"type": "object"},
        reasoning_effort="high",
        metadata={"trace": "t1"},
        prompt_cache_key="k",
    )
    assert list(body.items()) == [
        ("model", "gpt-x"),
        ("input", [ASKED]),
        (
            "tools",
            [
                {
                    "type": "function",
                    "name": "clock",
                    "description": "The time.",
                    "parameters": {"type": "object", "properties": {}},
                    "strict": False,
                },
                {"type": "web_search"},
            ],
        ),
        ("tool_choice", "required"),
        (
            "text",
            {
                "format": {
                    "type": "json_schema",
                    "name": "structured_output",
                    "schema": {"type": "object"},
                    "strict": True,
                }
            },
        ),
        ("reasoning", {"effort": "high", "summary": "auto"}),
        ("max_output_tokens", 100),
        ("temperature", 0.25),
        ("top_p", 0.5),
        ("prompt_cache_key", "k"),
        ("metadata", {"trace": "t1"}),
        ("store", False),
        ("include", ["reasoning.encrypted_content"]),
        ("stream", True),
    ]
    assert as_published(ResponseCreateParamsStreaming, body) == body


def test_the_configuration_fills_in() -> None:
    defaults = CONFIG.model_copy(update={"temperature": 0.5, "max_output_tokens": 7, "reasoning_effort": "low"})
    body = encode(SamplingRequest(items=(ASK,)), defaults)
    assert (body["temperature"], body["max_output_tokens"], body["reasoning"]["effort"]) == (0.5, 7, "low")


def test_extra_body_replaces_whole_keys() -> None:
    body = body_of(ASK, extra_body={"include": ["message.input_image.image_url"], "store": None})
    assert body["include"] == ["message.input_image.image_url"]
    assert "store" not in body


def test_further_includes_stand_once_behind_the_first_b056() -> None:
    more = ("web_search_call.action.sources", "reasoning.encrypted_content", "web_search_call.action.sources")
    body = encode(SamplingRequest(items=(ASK,)), CONFIG.model_copy(update={"response_includes": more}))
    assert body["include"] == ["reasoning.encrypted_content", "web_search_call.action.sources"]
    assert as_published(ResponseCreateParamsStreaming, body) == body


def test_calls_are_streamed_if_that_was_asked_for_b068() -> None:
    streamed = encode(SamplingRequest(items=(ASK,)), CONFIG.model_copy(update={"stream_tool_calls": True}))
    assert streamed["stream_tool_calls"] is True
    assert "stream_tool_calls" not in body_of(ASK)


def test_a_summary_of_the_reasoning_is_always_asked_for_b057() -> None:
    assert reasoning_of(ELSEWHERE) == {"summary": "concise"}
    assert reasoning_of(ELSEWHERE, reasoning_effort="low") == {"effort": "low", "summary": "concise"}
    assert reasoning_of(ELSEWHERE, reasoning_summary="detailed") == {"summary": "detailed"}
    configured = ELSEWHERE.model_copy(update={"reasoning_summary": "auto"})
    assert reasoning_of(configured) == {"summary": "auto"}
    assert reasoning_of(configured, reasoning_summary="detailed") == {"summary": "detailed"}
    assert reasoning_of(ELSEWHERE, reasoning_summary="none") is None
    assert reasoning_of(ELSEWHERE, reasoning_summary="none", reasoning_effort="low") == {"effort": "low"}


def test_at_openai_only_with_an_effort_or_a_summary_that_was_set_b057() -> None:
    """Its models without reasoning refuse the object, and not all of the others know `concise`."""
    assert reasoning_of(CONFIG) is None
    assert reasoning_of(CONFIG, reasoning_effort="low") == {"effort": "low", "summary": "auto"}
    assert reasoning_of(CONFIG, reasoning_summary="concise") == {"summary": "concise"}


def reasoning_of(config: SamplerConfig, **fields: Any) -> JsonObject | None:
    return encode(SamplingRequest(items=(ASK,), **fields), config).get("reasoning")


def test_the_server_keeps_the_answer_only_if_told_to() -> None:
    kept = CONFIG.model_copy(update={"store": True})
    known = ReasoningItem(id="rs_1", summary=("hm",))
    body = encode(SamplingRequest(items=(ASK, known, ASK)), kept)
    assert body["store"] is True
    assert body["input"][1] == {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert as_published(ResponseCreateParamsStreaming, body) == body
    assert encode(SamplingRequest(items=(ASK,), store=False), kept)["store"] is False
    assert body_of(ASK, store=True)["store"] is True
    assert input_of(ASK, known, ASK) == [ASKED, ASKED]  # what was not stored cannot be named


def test_one_call_at_a_time() -> None:
    body = body_of(ASK, tools=(CLOCK,), parallel_tool_calls=False)
    assert body["parallel_tool_calls"] is False
    assert as_published(ResponseCreateParamsStreaming, body) == body
    assert "parallel_tool_calls" not in body_of(ASK, parallel_tool_calls=False)


def test_how_closely_an_image_is_looked_at() -> None:
    [message] = input_of(UserItem(content=(ImagePart(url=PIXEL, detail="low"), ImagePart(url=PIXEL))))
    assert [part["detail"] for part in message["content"]] == ["low", "auto"]


def test_user_content_b058() -> None:
    assert input_of(ASK) == [ASKED]
    body = body_of(UserItem(content=(TextPart(text="What is it?"), ImagePart(url=PIXEL))))
    assert body["input"][0]["content"] == [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
    ]
    assert as_published(ResponseCreateParamsStreaming, body) == body
    two = input_of(UserItem(content=(TextPart(text="a"), TextPart(text="b"))))
    assert two[0]["content"] == [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert input_of(UserItem(content=()))[0]["content"] == ""


def test_an_assistant_item_is_a_message_and_its_calls_b059_b069() -> None:
    """B069 too: without text there is no message, and no placeholder."""
    calls = (
        ToolCall(id="c1", name="clock", arguments='{"zone": "UTC"}'),
        ToolCall(id="c2", name="clock", arguments=""),
    )
    wire = [
        {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": '{"zone": "UTC"}'},
        {"type": "function_call", "call_id": "c2", "name": "clock", "arguments": "{}"},
    ]
    said = {"type": "message", "role": "assistant", "content": "Let me look."}
    body = body_of(ASK, AssistantItem(content="Let me look.", tool_calls=calls))
    unanswered = [{"type": "function_call_output", "call_id": name, "output": NO_RESULT} for name in ("c1", "c2")]
    assert body["input"] == [ASKED, said, *wire, *unanswered]
    assert as_published(ResponseCreateParamsStreaming, body) == body
    assert input_of(ASK, THOUGHT, AssistantItem(tool_calls=calls))[2:] == [*wire, *unanswered]


def test_arguments_that_are_no_object_become_one_b035() -> None:
    call, _ = input_of(ToolCall(id="c", name="f", arguments='{"city": "東京', complete=False))
    assert call["arguments"] == "{}"


def test_a_reasoning_item_returns_in_place_without_status_b060_b061() -> None:
    """B061 too: every content entry is typed."""
    body = body_of(ASK, THOUGHT, TextItem(text="42"))
    assert body["input"][1] == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "content": [{"type": "reasoning_text", "text": "deep"}],
        "encrypted_content": "ENC",
    }
    assert body["input"][2] == {"type": "message", "role": "assistant", "content": "42"}
    assert as_published(ResponseCreateParamsStreaming, body) == body


def test_a_reasoning_item_without_summary_has_an_empty_one() -> None:
    [item] = input_of(ReasoningItem(encrypted_content="ENC"))
    assert item == {"type": "reasoning", "summary": [], "encrypted_content": "ENC"}


@pytest.mark.parametrize(
    "item",
    [
        ReasoningItem(text="hm", id="rs_1", summary=("hm",)),
        ReasoningItem(text="hm", id="rs_1", encrypted_content=""),
        ReasoningItem(text="hm", signature="of another wire"),
    ],
)
def test_reasoning_that_the_server_cannot_know_is_left_out(item: ReasoningItem) -> None:
    assert input_of(ASK, item) == [ASKED]
    assert input_of(ASK, ReasoningItem(text="hm", signature="of another wire"), store=True) == [ASKED]


def test_reasoning_goes_back_to_a_server_that_encrypts_none() -> None:
    """llama.cpp sends an empty form, and takes it back."""
    plain = ReasoningItem(text="hm", id="rs_1", content=("hm",), encrypted_content="")
    body = encode(SamplingRequest(items=(ASK, plain)), ELSEWHERE)
    assert body["input"][1] == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "encrypted_content": "",
    }


def test_a_function_that_a_hosted_tool_claims_is_dropped_b062() -> None:
    functions = (ToolSpec(name="x_search"), CLOCK)
    hosted = (HostedTool(type="x_search"),)
    assert [tool.get("name") for tool in body_of(ASK, tools=functions)["tools"]] == ["x_search", "clock"]
    assert [tool["type"] for tool in body_of(ASK, tools=functions, hosted_tools=hosted)["tools"]] == [
        "function",
        "x_search",
    ]


def test_hosted_tools_are_appended_as_given_b063_b064() -> None:
    hosted = HostedTool.model_validate({"type": "web_search", "filters": {"allowed_domains": ["a.example"]}})
    body = body_of(ASK, tools=(CLOCK,), hosted_tools=(hosted,))
    assert body["tools"][0]["name"] == "clock"
    assert body["tools"][1:] == [{"type": "web_search", "filters": {"allowed_domains": ["a.example"]}}]
    assert as_published(ResponseCreateParamsStreaming, body) == body
    assert body_of(ASK, hosted_tools=(HostedTool(type="web_search"),))["tools"] == [{"type": "web_search"}]
    assert "tools" not in body_of(ASK)


def test_the_cache_key_is_the_one_given_or_else_the_conversations_id_b065() -> None:
    # B025
    assert body_of(ASK, prompt_cache_key="k")["prompt_cache_key"] == "k"
    assert body_of(ASK, conversation_id="c")["prompt_cache_key"] == "c"
    assert body_of(ASK, prompt_cache_key="k", conversation_id="c")["prompt_cache_key"] == "k"
    assert "prompt_cache_key" not in body_of(ASK)


def test_a_hosted_tool_is_forced_by_its_type() -> None:
    runner = HostedTool.model_validate({"type": "code_interpreter", "container": {"type": "auto"}})
    forced = body_of(ASK, tools=(CLOCK,), hosted_tools=(runner,), tool_choice=FunctionChoice(name="code_interpreter"))
    assert forced["tool_choice"] == {"type": "code_interpreter"}
    assert as_published(ResponseCreateParamsStreaming, forced) == forced
    own = body_of(ASK, tools=(CLOCK,), hosted_tools=(runner,), tool_choice=FunctionChoice(name="clock"))
    assert own["tool_choice"] == {"type": "function", "name": "clock"}


def test_searches_go_with_their_bounds_b063() -> None:
    """As xAI has them; `allowed_domains` are OpenAI's too."""
    allowed = body_of(ASK, hosted_tools=(WebSearch(allowed_domains=["a.test"]),))
    assert allowed["tools"] == [{"type": "web_search", "filters": {"allowed_domains": ["a.test"]}}]
    assert as_published(ResponseCreateParamsStreaming, allowed) == allowed
    others = (WebSearch(excluded_domains=["b.test"]), XSearch(from_date="2026-01-01"), XSearch())
    assert body_of(ASK, hosted_tools=others)["tools"] == [
        {"type": "web_search", "filters": {"excluded_domains": ["b.test"]}},
        {"type": "x_search", "from_date": "2026-01-01"},
        {"type": "x_search"},
    ]
    assert body_of(ASK, hosted_tools=(WebSearch(),))["tools"] == [{"type": "web_search"}]
    assert body_of(ASK, tools=(ToolSpec(name="web_search"),), hosted_tools=(WebSearch(),))["tools"] == [
        {"type": "web_search"}
    ]


def test_backend_calls_are_echoed_in_place_b066() -> None:
    first = body_of(ASK, SEARCHED, TextItem(text="Owls."))
    second = body_of(ASK, SEARCHED, TextItem(text="Owls."), ASK)
    assert first["input"][1] == second["input"][1] == SEARCH_CALL
    assert as_published(ResponseCreateParamsStreaming, first) == first


def test_opaque_items_are_echoed_in_place() -> None:
    approval: JsonObject = {
        "type": "mcp_approval_request",
        "id": "a",
        "name": "delete",
        "arguments": "{}",
        "server_label": "files",
    }
    body = body_of(ASK, OpaqueItem(wire=approval), ASK)
    assert body["input"] == [ASKED, approval, ASKED]
    assert as_published(ResponseCreateParamsStreaming, body) == body
    assert input_of(ASK, OpaqueItem(wire=approval, backend="responses")) == [ASKED, approval]
    assert input_of(ASK, OpaqueItem(wire=approval, backend="messages")) == [ASKED]


def test_backend_calls_of_another_wire_are_told_b052() -> None:
    foreign = BackendToolCallItem(
        call_id="s",
        name="web_search",
        wire=({"type": "server_tool_use", "input": {"query": "owls"}}, {"type": "web_search_tool_result"}),
    )
    told = {"type": "message", "role": "assistant", "content": "[backend web_search] search: owls"}
    assert input_of(ASK, foreign) == [ASKED, told]
    assert input_of(BackendToolCallItem(call_id="s", name="web_search"))[0]["content"] == "[backend web_search]"


def test_tool_results_b067() -> None:
    plain = ToolResultItem(tool_call_id="c", content="12:00", is_error=True)
    shot = ToolResultItem(tool_call_id="c", content="a shot", images=(ImagePart(url=PIXEL),))
    silent = ToolResultItem(tool_call_id="c", content="", images=(ImagePart(url=PIXEL),))
    image = {"type": "input_image", "image_url": PIXEL, "detail": "auto"}
    body = body_of(ASK, plain, shot, silent)
    assert body["input"][1:] == [
        {"type": "function_call_output", "call_id": "c", "output": "12:00"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a shot"}, image]},
        {"type": "function_call_output", "call_id": "c", "output": [image]},
    ]
    assert as_published(ResponseCreateParamsStreaming, body) == body


def test_custom_calls_and_their_results() -> None:
    custom = ToolCall(id="c1", name="shell", arguments="ls -l", custom=True)
    results = (ToolResultItem(tool_call_id="c1", content="a b"), ToolResultItem(tool_call_id="c2", content="12:00"))
    body = body_of(ASK, custom, ToolCall(id="c2", name="clock", arguments="{}"), *results)
    assert body["input"][1:] == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "shell", "input": "ls -l"},
        {"type": "function_call", "call_id": "c2", "name": "clock", "arguments": "{}"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "a b"},
        {"type": "function_call_output", "call_id": "c2", "output": "12:00"},
    ]
    assert as_published(ResponseCreateParamsStreaming, body) == body
    whole = input_of(AssistantItem(tool_calls=(custom,)), results[0])
    assert [item["type"] for item in whole] == ["custom_tool_call", "custom_tool_call_output"]


def test_a_refusal_returns_as_what_the_assistant_said() -> None:
    assert input_of(ASK, RefusalItem(text="No.")) == [ASKED, {"type": "message", "role": "assistant", "content": "No."}]


def test_a_schema_is_a_text_format_b024() -> None:
    text = body_of(ASK, json_schema={"type": "object"})["text"]
    assert text["format"] == {
        "type": "json_schema",
        "name": "structured_output",
        "schema": {"type": "object"},
        "strict": True,
    }


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_tool_choice(choice: str) -> None:
    body = body_of(ASK, tools=(CLOCK,), tool_choice=choice)
    assert body["tool_choice"] == choice
    assert as_published(ResponseCreateParamsStreaming, body) == body
    assert "tool_choice" not in body_of(ASK, tool_choice=choice)


def test_one_function_is_forced_by_an_object() -> None:
    body = body_of(ASK, tools=(CLOCK,), tool_choice=FunctionChoice(name="clock"))
    assert body["tool_choice"] == {"type": "function", "name": "clock"}
    assert as_published(ResponseCreateParamsStreaming, body) == body


@pytest.mark.parametrize("thoughts", [(), (THOUGHT,)])
def test_the_input_of_a_turn_is_a_prefix_of_the_next_b039(thoughts: tuple[Item, ...]) -> None:
    answer = (*thoughts, SEARCHED, TextItem(text="I look."), ToolCall(id="c", name="clock", arguments="{}"))
    items: tuple[Item, ...] = (SYSTEM, ASK, *answer, ToolResultItem(tool_call_id="c", content="12:00"), *thoughts, ASK)
    answered = len(items) - len(thoughts) - 1
    ends = [end for end in range(1, len(items) + 1) if end != answered - 1]  # there the call waits for its result
    serialised = [body_bytes({"input": input_of(*items[:end])}) for end in ends]
    for shorter, longer in pairwise(serialised):
        assert longer.startswith(shorter.removesuffix(b"]}"))


class TestRefused:
    def test_no_model(self) -> None:
        with pytest.raises(SamplingError, match="model is ''") as error:
            encode(SamplingRequest(items=(ASK,)), SamplerConfig(base_url="http://127.0.0.1:1/v1"))
        assert error.value.kind is SamplingErrorKind.INVALID_REQUEST

    def test_nothing_to_say(self) -> None:
        with pytest.raises(SamplingError, match="at least one user item"):
            body_of(ReasoningItem(text="hm"))

    def test_a_broken_image_by_its_place(self) -> None:
        with pytest.raises(SamplingError, match=r"items\[0\]\.content\[0\]\.url is 'data:broken'"):
            body_of(UserItem(content=(ImagePart(url="data:broken"),)))
        with pytest.raises(SamplingError, match=r"items\[0\]\.images\[0\]\.url is 'data:broken'"):
            body_of(ToolResultItem(tool_call_id="c", content="", images=(ImagePart(url="data:broken"),)))

    def test_stop_and_several_choices(self) -> None:
        with pytest.raises(SamplingError, match=r"stop is \('END',\): the responses API") as stop:
            body_of(ASK, stop="END")
        with pytest.raises(SamplingError, match="n is 2: the responses API") as several:
            body_of(ASK, n=2)
        assert stop.value.kind is several.value.kind is SamplingErrorKind.INVALID_REQUEST
