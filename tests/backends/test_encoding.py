"""What the request encoders share: settings, merging, tools, arguments, images, summary lines, JSON bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rx_sampler.backends.chat_completions import request as chat_completions
from rx_sampler.backends.encoding import (
    body_bytes,
    checked_image_url,
    finished,
    function_tools,
    has_choice,
    hosted_tools,
    invalid,
    is_messages_wire,
    object_arguments,
    parse_data_uri,
    present,
    reasoning_text,
    refuse_several_choices,
    settings,
    summary_line,
)
from rx_sampler.backends.messages import request as messages
from rx_sampler.backends.responses import request as responses
from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import (
    BackendToolCallItem,
    HostedTool,
    ImagePart,
    JsonObject,
    ReasoningItem,
    SamplingRequest,
    ToolCall,
    ToolSpec,
    UserItem,
    WebSearch,
    XSearch,
    json_object,
)
from rx_sampler.errors import SamplingError, SamplingErrorKind

HELLO = UserItem.model_validate({"content": "hello"})


def asking(**fields: Any) -> SamplingRequest:
    return SamplingRequest(items=(HELLO,), **fields)


def config(**fields: Any) -> SamplerConfig:
    return SamplerConfig(base_url="http://127.0.0.1:1/v1", **fields)


def refusal(error: pytest.ExceptionInfo[SamplingError]) -> str:
    assert error.value.kind is SamplingErrorKind.INVALID_REQUEST
    assert not error.value.info.is_retryable
    return error.value.info.message


class TestBodyBytes:
    def test_compact_utf8_in_the_order_of_the_dict(self) -> None:
        assert (
            body_bytes({"b": "naïve 東", "a": [1, 2.5, None, True]})
            == '{"b":"naïve 東","a":[1,2.5,null,true]}'.encode()
        )

    def test_a_lone_surrogate_becomes_the_replacement_character(self) -> None:
        assert body_bytes({"a": 'x\ud83d"y\udc00'}) == '{"a":"x\ufffd\\"y\ufffd"}'.encode()

    def test_two_halves_of_one_character_are_joined(self) -> None:
        assert body_bytes({"a": "\ud83d\ude00 \ud83d"}) == '{"a":"😀 \ufffd"}'.encode()

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes", object(), {"deep": [{("a",): 1}]}])
    def test_what_is_not_json_is_refused_by_name(self, value: object) -> None:
        with pytest.raises(SamplingError) as error:
            body_bytes({"model": "m", "odd": value})
        assert "'odd'" in refusal(error)

    def test_a_dict_that_holds_itself_is_refused(self) -> None:
        circle: JsonObject = {}
        circle["again"] = circle
        with pytest.raises(SamplingError) as error:
            body_bytes({"model": "m", "circle": circle})
        assert "'circle'" in refusal(error)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
        )
    )
    def test_json_reads_back_equal(self, value: object) -> None:
        assert json.loads(body_bytes({"value": value})) == {"value": value}


class TestSettings:
    def test_the_request_wins_and_the_configuration_fills_in(self) -> None:
        defaults = config(model="c", temperature=0.5, top_p=0.9, max_output_tokens=10, reasoning_effort="low")
        both = settings(asking(model="r", temperature=0.0, max_output_tokens=5), defaults)
        assert (both.model, both.temperature, both.top_p) == ("r", 0.0, 0.9)
        assert (both.max_output_tokens, both.reasoning_effort) == (5, "low")

    def test_nothing_set_is_nothing_sent(self) -> None:
        bare = settings(asking(), config(model="m"))
        assert (bare.temperature, bare.top_p, bare.max_output_tokens, bare.reasoning_effort) == (None,) * 4

    def test_no_model_anywhere_is_refused(self) -> None:
        with pytest.raises(SamplingError) as error:
            settings(asking(), config())
        message = refusal(error)
        assert message.startswith("model is ''")
        assert "SamplerConfig.model" in message

    @pytest.mark.parametrize("model", ["x", None])
    def test_extra_body_may_bring_or_drop_the_model(self, model: str | None) -> None:
        assert settings(asking(extra_body={"model": model}), config()).model == ""


class TestFinished:
    def test_extra_body_replaces_adds_and_removes_top_level_keys(self) -> None:
        extra = {"a": {"new": 1}, "b": None, "c": 3}
        body = finished({"a": {"old": 1}, "b": 2, "input": ["x"]}, asking(extra_body=extra), turns="input")
        assert list(body.items()) == [("a", {"new": 1}), ("input", ["x"]), ("c", 3)]

    def test_only_extra_body_removes_a_key(self) -> None:
        assert finished({"a": None, "input": [1]}, asking(), turns="input") == {"a": None, "input": [1]}

    def test_a_conversation_with_nothing_in_it_is_refused(self) -> None:
        with pytest.raises(SamplingError) as error:
            finished({"input": []}, asking(), turns="input")
        assert "items is ('user',)" in refusal(error)

    def test_extra_body_may_drop_the_conversation(self) -> None:
        assert finished({"input": []}, asking(extra_body={"input": None}), turns="input") == {}


class TestTools:
    def test_a_hosted_tool_claims_its_name_b062(self) -> None:
        search, clock = ToolSpec(name="web_search"), ToolSpec(name="clock")
        asked = asking(tools=(search, clock))
        assert function_tools(asked, []) == (search, clock)
        assert function_tools(asked, [{"type": "web_search"}]) == (clock,)
        assert function_tools(asked, [{"type": "web_search_20250305", "name": "web_search"}]) == (clock,)

    def test_hosted_tools_keep_their_keys_b063(self) -> None:
        for filters in ({"allowed_domains": ["a.example"]}, {"excluded_domains": ["b.example"]}):
            tool = HostedTool.model_validate({"type": "web_search", "filters": filters})
            assert hosted_tools(asking(hosted_tools=(tool,))) == [{"type": "web_search", "filters": filters}]
        assert hosted_tools(asking(hosted_tools=(HostedTool(type="web_search"),))) == [{"type": "web_search"}]

    def test_a_known_search_is_written_by_the_wire_or_left_out(self) -> None:
        request = asking(hosted_tools=(XSearch(), HostedTool(type="x"), WebSearch(allowed_domains=["a.example"])))
        assert hosted_tools(request) == [{"type": "x"}]
        written = hosted_tools(
            request, web_search=lambda tool: {"w": list(tool.allowed_domains)}, x_search=lambda _: {}
        )
        assert written == [{}, {"type": "x"}, {"w": ["a.example"]}]

    def test_tools_may_come_from_anywhere(self) -> None:
        assert not has_choice(asking(), [])
        assert has_choice(asking(), [{"type": "function"}])
        assert has_choice(asking(extra_body={"tools": [{"type": "x"}]}), [])

    def test_more_than_one_choice_is_refused(self) -> None:
        refuse_several_choices(asking(), "messages")
        refuse_several_choices(asking(n=1), "messages")
        with pytest.raises(SamplingError) as error:
            refuse_several_choices(asking(n=2), "messages")
        assert refusal(error).startswith("n is 2: the messages API gives one answer")


class TestArguments:
    @pytest.mark.parametrize("raw", ["{}", '{"a": 1}', ' {"b":[1,{"c":"é"}]} \n', '{"s":"\\ud83d"}'])
    def test_an_object_passes_byte_for_byte_b035(self, raw: str) -> None:
        assert object_arguments(ToolCall(id="c", name="f", arguments=raw)) == raw
        assert json_object(raw) == json.loads(raw)

    @pytest.mark.parametrize(
        "raw", ["", " ", '{"a": ', "東京" * 300, "[1]", '"{}"', "null", '{"a":1}{"a":1}', '{"a":NaN}', "[" * 100_000]
    )
    def test_anything_else_becomes_an_empty_object_b035(self, raw: str) -> None:
        assert object_arguments(ToolCall(id="c", name="f", arguments=raw)) == "{}"
        assert json_object(raw) is None


class TestImages:
    @pytest.mark.parametrize(
        ("url", "media_type", "data"),
        [
            ("data:image/png;base64,AAA", "image/png", "AAA"),
            ("data:IMAGE/JPEG;charset=x;BASE64,Zm8=", "image/jpeg", "Zm8="),
            ("data:;base64,AAA", "image/png", "AAA"),
            ("data:image/jpg;base64,/9j/", "image/jpeg", "/9j/"),
        ],
    )
    def test_a_data_uri_is_taken_apart_b081(self, url: str, media_type: str, data: str) -> None:
        uri = parse_data_uri(url, "field")
        assert (uri.media_type, uri.data) == (media_type, data)
        assert checked_image_url(ImagePart(url=url), "field") == url

    @pytest.mark.parametrize(
        "url",
        [
            "data:broken",
            "data:,AAA",
            "data:image/png,AAA",
            "data:image/png;base64,",
            "data:text/plain;base64,AAA",
            "data:base64,A",
        ],
    )
    def test_a_broken_one_is_refused_b081(self, url: str) -> None:
        with pytest.raises(SamplingError) as error:
            checked_image_url(ImagePart(url=url), "items[0].content[1].url")
        message = refusal(error)
        assert message.startswith(f"items[0].content[1].url is {url!r}: ")
        assert "data:image/png;base64,DATA" in message

    def test_a_web_url_passes_unread(self) -> None:
        assert checked_image_url(ImagePart(url="https://h/x.png"), "field") == "https://h/x.png"


def test_an_error_shows_little_of_a_long_value() -> None:
    message = invalid("field", "\x1b[2J" + "x" * 10_000, "less").info.message
    assert len(message) < 100
    assert "\x1b" not in message
    assert message.endswith("...: less")


def test_present_keeps_order_and_falsy_values() -> None:
    assert list(present(b=0, a=None, c=False, d="").items()) == [("b", 0), ("c", False), ("d", "")]


def test_reasoning_is_what_streamed_or_else_its_parts() -> None:
    assert reasoning_text(ReasoningItem(text="streamed", summary=("s",))) == "streamed"
    assert reasoning_text(ReasoningItem(summary=("s", "t"), content=("c",))) == "s\nt\nc"


@pytest.mark.parametrize(
    ("name", "wire", "line"),
    [
        ("web_search", {"action": {"type": "search", "query": "owls"}}, "[backend web_search] search: owls"),
        ("web_search", {"action": {"type": "open_page", "url": "https://h/"}}, "[backend web_search] open: https://h/"),
        (
            "web_search",
            {"action": {"type": "find_in_page", "pattern": "owl", "url": "https://h/"}},
            '[backend web_search] find "owl" in https://h/',
        ),
        (
            "x_search",
            {"type": "custom_tool_call", "name": "x_keyword_search", "input": '{"query":"owls"}'},
            '[backend x_search] x_keyword_search({"query":"owls"})',
        ),
        ("code_interpreter", {"code": "p" * 150}, "[backend code_interpreter] " + "p" * 100 + "..."),
        ("code_interpreter", {"code": "a = 1\nprint(a)"}, "[backend code_interpreter] a = 1 print(a)"),
        ("web_search", {"type": "server_tool_use", "input": {"query": "owls"}}, "[backend web_search] search: owls"),
        ("code_execution", {"type": "server_tool_use", "input": {"code": "1+1"}}, "[backend code_execution] 1+1"),
        ("novel", {"action": {"type": "search", "query": None}}, "[backend novel]"),
    ],
)
def test_summary_lines_b052(name: str, wire: JsonObject, line: str) -> None:
    assert summary_line(BackendToolCallItem(call_id="c", name=name, wire=(wire,))) == line


def test_a_call_without_wire_is_told_by_name() -> None:
    assert summary_line(BackendToolCallItem(call_id="c", name="web_search")) == "[backend web_search]"


@pytest.mark.parametrize(
    ("types", "is_messages"),
    [
        (("server_tool_use", "web_search_tool_result"), True),
        (("mcp_tool_use",), True),
        (("web_search_call",), False),
        (("custom_tool_call",), False),
        ((), False),
    ],
)
def test_whose_wire_a_backend_call_came_from(types: tuple[str, ...], is_messages: bool) -> None:
    item = BackendToolCallItem(call_id="c", name="n", wire=tuple({"type": kind} for kind in types))
    assert is_messages_wire(item) is is_messages


Encode = Callable[[SamplingRequest, SamplerConfig], JsonObject]
ENCODERS = [chat_completions.encode, responses.encode, messages.encode]

text = st.text(st.characters(), max_size=8)  # lone surrogates included: file names and cut streams have them
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
json_objects = st.dictionaries(text, json_values, max_size=3)


def image_part(url: str) -> JsonObject:
    return {"type": "image", "url": url}


def text_part(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def record(required: dict[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(required, optional=optional)


good_urls = ["https://h/x.png", "http://h/", "data:image/png;base64,AAA", "data:;base64,A"]
images = st.sampled_from([*good_urls, *good_urls, "data:broken"]).map(image_part)
arguments = st.sampled_from(["", "{}", '{"a":1}', '{"a":', '{"a":1e999}', '{"a":"\\ud83d"}', "[]", "NaN"]) | text
calls = record(
    {"type": st.just("tool_call"), "id": text, "name": text, "arguments": arguments, "custom": st.booleans()}
)
parts = text | st.lists(images | text.map(text_part), max_size=3)
foreign_or_own = json_objects | st.just({"type": "server_tool_use", "input": None})
items = st.one_of(
    record({"type": st.just("system"), "content": text}),
    record({"type": st.just("user"), "content": parts}),
    record({"type": st.just("assistant"), "content": text, "tool_calls": st.lists(calls, max_size=2)}),
    record(
        {"type": st.just("tool_result"), "tool_call_id": text, "content": text},
        images=st.lists(images, max_size=2),
        is_error=st.booleans(),
    ),
    record({"type": st.just("text"), "text": text, "annotations": st.lists(json_objects, max_size=2)}),
    record({"type": st.just("refusal"), "text": text}),
    record(
        {"type": st.just("reasoning"), "text": text},
        id=text,
        summary=st.lists(text, max_size=2),
        content=st.lists(text, max_size=2),
        signature=text,
        encrypted_content=text,
        redacted_data=text,
        details=st.lists(json_objects, max_size=2),
    ),
    calls,
    record(
        {
            "type": st.just("backend_tool_call"),
            "call_id": text,
            "name": text,
            "wire": st.lists(foreign_or_own, max_size=2),
        }
    ),
    record({"type": st.just("opaque"), "wire": json_objects}),
)
tools = record({"name": st.sampled_from(["f", "web_search"])}, parameters=json_objects)
requests = record(
    {"items": st.lists(items, min_size=1, max_size=6)},
    model=st.none() | text,
    temperature=st.floats(0, allow_infinity=False),
    top_p=st.floats(0, 1),
    max_output_tokens=st.integers(1),
    reasoning_effort=st.sampled_from(["none", "minimal", "low", "max"]),
    tools=st.lists(tools, max_size=2),
    hosted_tools=st.just([{"type": "web_search"}]),
    tool_choice=st.sampled_from(["auto", "none", "required", {"name": "f"}]),
    json_schema=json_objects,
    stop=st.sampled_from([(), (), ("END",)]),
    n=st.sampled_from([None, 1, 1, 2]),
    metadata=st.dictionaries(st.just("user_id") | text, text, max_size=2),
    extra_body=st.dictionaries(st.sampled_from(["model", "input", "messages", "tools", "x"]), json_values),
).map(SamplingRequest.model_validate)


def sent(encode: Encode, request: SamplingRequest, model: str) -> bytes | SamplingError:
    try:
        return body_bytes(encode(request, config(model=model)))
    except SamplingError as refused:
        return refused


@pytest.mark.parametrize("encode", ENCODERS)
class TestEveryRequest:
    @given(request=requests, model=st.sampled_from(["", "m"]))
    def test_is_json_the_same_twice_or_refused_b039(self, encode: Encode, request: SamplingRequest, model: str) -> None:
        before = repr(request)  # not the request, since a NaN in it equals nothing
        outcome = sent(encode, request, model)
        again = sent(encode, SamplingRequest.model_validate(request.model_dump()), model)
        if isinstance(outcome, SamplingError):
            assert outcome.kind is SamplingErrorKind.INVALID_REQUEST
            assert "\n" not in outcome.info.message
            assert repr(again) == repr(outcome)
        else:
            assert again == outcome
            assert json.loads(outcome)["stream"] is True
        assert repr(request) == before
