"""One request from another: tools, hosted tools, output, and the next turn."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rx_sampler.conversation import (
    AssistantItem,
    ImagePart,
    ReasoningItem,
    SamplingRequest,
    SamplingResponse,
    SystemItem,
    TextItem,
    TextPart,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)
from rx_sampler.functions import PythonFunction

CALL = ToolCall(id="c1", name="clock", arguments="{}")
ANSWER = SamplingResponse(items=(ReasoningItem(text="hm", signature="sig"), TextItem(text="I look."), CALL))


def said(text: str) -> UserItem:
    return UserItem(content=(TextPart(text=text),))


def clock(zone: str = "UTC") -> str:
    """The time of day."""
    return f"12:00 {zone}"


def test_a_user_message_of_parts() -> None:
    image = ImagePart(url="https://h/x.png")
    request = SamplingRequest.user("What is this?", image, system="Be brief.")
    assert request.items == (
        SystemItem(content="Be brief."),
        UserItem(content=(TextPart(text="What is this?"), image)),
    )


def test_the_next_turn_holds_all_that_was_said() -> None:
    request = SamplingRequest.user("What time is it?").replaced(temperature=0.5)
    result = ToolResultItem(tool_call_id="c1", content="12:00")
    following = request.then(ANSWER, result, "And in Tokyo?")
    assert following.items == (*request.items, *ANSWER.items, result, said("And in Tokyo?"))
    assert following.temperature == 0.5
    assert len(request.items) == 1


def test_more_may_come_without_an_answer() -> None:
    request = SamplingRequest.user("hi").with_items(SystemItem(content="Be brief."), "And?")
    assert request.items == (said("hi"), SystemItem(content="Be brief."), said("And?"))


def test_a_result_of_a_call_that_nobody_made_is_refused_by_its_id() -> None:
    with pytest.raises(ValueError, match=r"'c2' is the id of no call: made were \['c1'\]"):
        SamplingRequest.user("hi").then(ANSWER, ToolResultItem(tool_call_id="c2", content="x"))


def test_a_call_of_an_earlier_turn_may_be_answered_late() -> None:
    request = SamplingRequest(items=[said("hi"), AssistantItem(tool_calls=[CALL]), said("never mind")])
    late = ToolResultItem(tool_call_id="c1", content="12:00")
    assert request.then(SamplingResponse(items=(TextItem(text="ok"),)), late).items[-1] == late


def test_a_function_becomes_a_tool() -> None:
    request = SamplingRequest.user("hi").with_tools(clock)
    [spec] = request.tools
    assert (spec.name, spec.description) == ("clock", "The time of day.")
    assert spec.parameters["properties"]["zone"]["type"] == "string"
    assert spec.parameters["type"] == "object"
    assert SamplingRequest.model_validate_json(request.model_dump_json()) == request


def test_a_tool_takes_the_place_of_its_namesake() -> None:
    other = ToolSpec(name="other")
    request = SamplingRequest.user("hi").with_tools(ToolSpec(name="clock"), other).with_tools(clock)
    assert request.tools == (ToolSpec.of(clock), other)
    renamed = PythonFunction(clock, name="other", description="Another.")
    assert request.with_tools(renamed).tools[1] == ToolSpec.of(clock).model_copy(
        update={"name": "other", "description": "Another."}
    )


def test_replaced_fields_are_validated() -> None:
    with pytest.raises(ValidationError, match="temperature"):
        SamplingRequest.user("hi").replaced(temperature=-1)
