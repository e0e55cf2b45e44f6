"""Requests, responses and their items: built in three ways, frozen, read back from JSON, and clear when wrong."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from pydantic import BaseModel, ValidationError

from rx_sampler.conversation import (
    AssistantItem,
    BackendToolCallItem,
    FunctionChoice,
    HostedTool,
    ImagePart,
    OpaqueItem,
    ReasoningItem,
    RefusalItem,
    SamplingRequest,
    SamplingResponse,
    SystemItem,
    TextItem,
    TextPart,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    Usage,
    UserItem,
)

PIXEL: Final = "data:image/png;base64,iVBORw0KGgo="

RESPONSE_ITEMS: Final = (
    ReasoningItem(
        text="first I think",
        id="rs_1",
        summary=("short",),
        content=("long",),
        signature="sig",
        encrypted_content="enc",
        redacted_data="red",
        details=({"type": "reasoning.text", "text": "t"},),
    ),
    TextItem(text="Hel", annotations=({"type": "url_citation", "url": "https://a.test"},)),
    BackendToolCallItem(call_id="ws_1", name="web_search", wire=({"type": "web_search_call", "id": "ws_1"},)),
    ReasoningItem(text=", then again"),
    TextItem(text="lo", annotations=({"type": "file_citation"}, {"n": None})),
    RefusalItem(text="not that"),
    ToolCall(id="call_1", name="f", arguments='{"a": 1}', extra_content={"google": {"thought_signature": "sig"}}),
    ToolCall(id="call_2", name="sql", arguments="select 1", custom=True),
    OpaqueItem(wire={"type": "compaction", "data": [1, {"x": None}]}, backend="responses"),
)
REQUEST_ITEMS: Final = (
    SystemItem(content="be brief"),
    UserItem(
        content=(TextPart(text="look"), ImagePart(url=PIXEL), ImagePart(url="https://a.test/i.png", detail="low")),
        synthetic_reason="auto_continue",
        prior_turn_interrupt="mid_turn_abort",
        prompt_index=3,
        cwd_generation=1,
    ),
    AssistantItem(
        content="ok",
        tool_calls=(ToolCall(id="call_0", name="f", arguments="{}"),),
        model_id="m-1",
        model_fingerprint="fp",
        reasoning_effort="low",
    ),
    ToolResultItem(tool_call_id="call_0", content="3", images=(ImagePart(url=PIXEL),), is_error=True),
)
RESPONSE: Final = SamplingResponse(
    items=RESPONSE_ITEMS,
    stop_reason="tool_calls",
    raw_stop_reason="tool_use",
    stop_sequence="END",
    stop_message="because",
    usage=Usage(
        input_tokens=3,
        output_tokens=4,
        total_tokens=7,
        cached_input_tokens=1,
        cache_creation_input_tokens=0,
        reasoning_tokens=2,
        wire={"prompt_tokens": 3, "details": {"x": None}},
    ),
    cost_usd=0.125,
    model="toy-1",
    message_id="msg_1",
    doom_loop_triggers=("low_logprob@final",),
    extras={"service_tier": "default"},
)
REQUEST: Final = SamplingRequest(
    items=(*REQUEST_ITEMS, *RESPONSE_ITEMS),
    tools=(ToolSpec(name="f", description="d", parameters={"type": "object"}),),
    hosted_tools=(HostedTool.model_validate({"type": "web_search", "filters": {"allowed_domains": ["a.test"]}}),),
    tool_choice=FunctionChoice(name="f"),
    model="m",
    temperature=0.0,
    top_p=1.0,
    max_output_tokens=1,
    parallel_tool_calls=False,
    reasoning_effort="xhigh",
    reasoning_summary="detailed",
    json_schema={"type": "object"},
    conversation_id="c",
    prompt_cache_key="k",
    cache_breakpoints=False,
    store=True,
    stop=("a", "b"),
    n=2,
    metadata={"user": "u"},
    extra_body={"seed": 1, "nested": {"a": [None]}},
    extra_headers={"x-a": "b"},
)


# -- construction


def test_keywords_dicts_and_json_build_the_same_request() -> None:
    from_keywords = SamplingRequest(
        items=(UserItem(content=(TextPart(text="hi"), ImagePart(url="https://a.test/i.png"))),)
    )
    document = {
        "items": [
            {
                "type": "user",
                "content": [{"type": "text", "text": "hi"}, {"type": "image", "url": "https://a.test/i.png"}],
            }
        ]
    }
    assert SamplingRequest.model_validate(document) == from_keywords
    assert SamplingRequest.model_validate_json(json.dumps(document)) == from_keywords


@pytest.mark.parametrize(
    ("document", "item"),
    [
        ({"type": "system", "content": "s"}, SystemItem(content="s")),
        ({"type": "user", "content": "u"}, UserItem(content=(TextPart(text="u"),))),
        ({"type": "assistant", "content": "a"}, AssistantItem(content="a")),
        ({"type": "tool_result", "tool_call_id": "c", "content": "r"}, ToolResultItem(tool_call_id="c", content="r")),
        ({"type": "text", "text": "t"}, TextItem(text="t")),
        ({"type": "refusal", "text": "t"}, RefusalItem(text="t")),
        ({"type": "reasoning", "text": "t"}, ReasoningItem(text="t")),
        ({"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}, ToolCall(id="c", name="f", arguments="{}")),
        ({"type": "backend_tool_call", "call_id": "c", "name": "n"}, BackendToolCallItem(call_id="c", name="n")),
        ({"type": "opaque", "wire": {"a": 1}}, OpaqueItem(wire={"a": 1})),
    ],
)
def test_each_kind_of_item_is_known_by_its_type(document: dict[str, Any], item: object) -> None:
    request = SamplingRequest.model_validate({"items": [document]})
    assert request.items == (item,)
    assert type(request.items[0]) is type(item)


def test_a_question_may_be_words_items_or_a_request() -> None:
    item = UserItem(content=(TextPart(text="hi"),))
    request = SamplingRequest(items=(item,))
    assert SamplingRequest.of("hi") == request
    assert SamplingRequest.of([item]) == request
    assert SamplingRequest.of((item,)) == request
    assert SamplingRequest.of(request) is request


def test_one_stop_sequence_may_come_alone() -> None:
    assert SamplingRequest.model_validate({"items": [{"type": "user", "content": "u"}], "stop": "END"}).stop == ("END",)


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    assert ToolSpec(name="f").parameters == {"type": "object", "properties": {}}


def test_a_hosted_tool_keeps_what_it_does_not_know() -> None:
    # B040
    tool = HostedTool.model_validate({"type": "mcp", "server_url": "https://a.test", "x": None})
    assert tool.model_dump() == {"type": "mcp", "server_url": "https://a.test", "x": None}


def test_optional_parts_start_out_empty_and_are_not_shared() -> None:
    one, other = SamplingRequest.of("a"), SamplingRequest.of("b")
    one.extra_body["seed"] = 1
    one.metadata["a"] = "b"
    assert (other.extra_body, other.metadata) == ({}, {})
    assert SamplingRequest.of("c").extra_body == {}


# -- frozen, by value, through JSON

MODELS: Final[list[BaseModel]] = [*REQUEST_ITEMS, *RESPONSE_ITEMS, REQUEST, RESPONSE, Usage(), ToolSpec(name="f")]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_models_are_frozen_and_equal_by_value(model: BaseModel) -> None:
    field = next(iter(type(model).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(model, field, getattr(model, field))
    assert model == model.model_copy(deep=True)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_models_come_back_from_json(model: BaseModel) -> None:
    # B029
    assert type(model).model_validate_json(model.model_dump_json()) == model
    assert type(model).model_validate(model.model_dump()) == model


def test_no_field_of_the_examples_is_at_its_default() -> None:
    # Else a field that JSON drops would come back as its default and nobody would see.
    for model in (REQUEST, RESPONSE, RESPONSE_ITEMS[0], RESPONSE_ITEMS[8], *REQUEST_ITEMS[1:]):
        for name, field in type(model).model_fields.items():
            if name != "type":
                assert getattr(model, name) != field.get_default(call_default_factory=True), name


def test_the_items_of_a_response_stand_in_the_next_request_as_they_are() -> None:
    following = SamplingRequest(items=(*REQUEST_ITEMS, *RESPONSE.items, UserItem(content=(TextPart(text="go on"),))))
    assert following.items[len(REQUEST_ITEMS) : -1] == RESPONSE.items
    assert SamplingRequest.model_validate_json(following.model_dump_json()) == following


# -- views


def test_views_are_the_items_joined_in_order() -> None:
    assert RESPONSE.text == "Hello"
    assert RESPONSE.reasoning == "first I think, then again"
    assert RESPONSE.refusal == "not that"
    assert [call.id for call in RESPONSE.tool_calls] == ["call_1", "call_2"]
    assert [call.call_id for call in RESPONSE.backend_tool_calls] == ["ws_1"]
    assert RESPONSE.annotations == (
        {"type": "url_citation", "url": "https://a.test"},
        {"type": "file_citation"},
        {"n": None},
    )


def test_views_of_an_empty_answer_are_empty() -> None:
    empty = SamplingResponse()
    assert (empty.text, empty.reasoning, empty.refusal) == ("", "", "")
    assert (empty.tool_calls, empty.backend_tool_calls, empty.annotations) == ((), (), ())
    assert (empty.usage, empty.stop_reason, empty.cost_usd) == (None, None, None)


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"a": {"b": [1]}}', {"a": {"b": [1]}}),
        ("{}", {}),
        (" {} ", {}),
        ("", None),
        ('{"a":', None),
        ("[1]", None),
        ("null", None),
        ('"{}"', None),
        ("{}{}", None),
        ("[" * 100_000, None),  # deep enough to break a recursive reader
    ],
)
def test_arguments_are_one_json_object_or_nothing(arguments: str, parsed: object) -> None:
    assert ToolCall(id="c", name="f", arguments=arguments).arguments_json == parsed


@pytest.mark.parametrize("arguments", ['{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}'])
def test_what_is_no_json_by_the_rfc_is_none_here_either(arguments: str) -> None:
    assert ToolCall(id="c", name="f", arguments=arguments).arguments_json is None


# -- errors


def user(**fields: Any) -> dict[str, Any]:
    return {"items": [{"type": "user", "content": "u"}], **fields}


@pytest.mark.parametrize(
    ("document", "named", "shown"),
    [
        ({"items": []}, "items", "at least 1"),
        ({}, "items", "required"),
        ({"items": [{"type": "usr", "content": "u"}]}, "items.0", "usr"),
        ({"items": [{"content": "u"}]}, "items.0", "type"),
        ({"items": [{"type": "user"}]}, "items.0.user.content", "required"),
        ({"items": [{"type": "user", "content": [{"type": "video"}]}]}, "items.0.user.content.0", "video"),
        ({"items": [{"type": "user", "content": [{"type": "image", "url": "ftp://a"}]}]}, "url", "ftp://a"),
        ({"items": [{"type": "user", "content": [{"type": "image", "url": "/etc/passwd"}]}]}, "url", "https://"),
        (user(temperature=-1), "temperature", "-1"),
        (user(temperature="warm"), "temperature", "warm"),
        (user(top_p=1.5), "top_p", "1.5"),
        (user(max_output_tokens=0), "max_output_tokens", "0"),
        (user(n=0), "n", "0"),
        (user(reasoning_effort="hard"), "reasoning_effort", "'high'"),
        (user(tool_choice="any"), "tool_choice", "'required'"),
        (user(tool_choice={"name": ""}), "tool_choice", "at least 1"),
        (user(tools=[{"name": ""}]), "tools.0.name", "at least 1"),
        (user(hosted_tools=[{"type": ""}]), "hosted_tools.0.other.type", "at least 1"),
        (user(metadata={"a": 1}), "metadata.a", "1"),
        (user(extra_body={"a": object}), "extra_body.a", "object"),
        (user(extra_headers={"a": 1}), "extra_headers.a", "string"),
        (user(max_tokens=5), "max_tokens", "5"),  # the wire's name is not ours
        (user(stream=True), "stream", "True"),
    ],
)
def test_an_error_names_the_field_and_what_is_wrong(document: dict[str, Any], named: str, shown: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SamplingRequest.model_validate(document)
    text = str(caught.value)
    assert named in text
    assert shown in text


@pytest.mark.parametrize("question", [5, None, [], [5], {"type": "user", "content": "u"}, b"bytes"])
def test_a_question_that_is_none_is_refused_at_once(question: Any) -> None:
    with pytest.raises(ValidationError):
        SamplingRequest.of(question)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["temperature", "top_p"])
def test_a_number_that_json_does_not_have_is_refused(field: str, value: float) -> None:
    with pytest.raises(ValidationError, match=field):
        SamplingRequest.model_validate(user(**{field: value}))


# -- repr


def test_reprs_do_not_show_images_wire_items_or_headers() -> None:
    shown = repr(REQUEST) + repr(RESPONSE)
    for hidden in (PIXEL, "x-a", "web_search_call", "compaction", "prompt_tokens", "service_tier"):
        assert hidden not in shown
