"""Items: notes that programs keep, what is written only if it is there, words in any case."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import (
    AssistantItem,
    ImagePart,
    Item,
    ReasoningEffort,
    SamplingRequest,
    TextPart,
    ToolCall,
    ToolResultItem,
    UserItem,
)

ITEM = TypeAdapter[Item](Item)
SAID = (TextPart(text="go on"),)


def written(item: Item) -> dict[str, object]:
    return json.loads(item.model_dump_json())


def test_why_a_program_wrote_an_item_is_kept_b026() -> None:
    plain = UserItem(content=SAID)
    assert written(plain).keys() == {"type", "content"}
    reminder = UserItem(content=SAID, synthetic_reason="system_reminder", prior_turn_interrupt="permission_rejected")
    assert written(reminder).keys() == {"type", "content", "synthetic_reason", "prior_turn_interrupt"}
    assert ITEM.validate_json(reminder.model_dump_json()) == reminder
    later = ITEM.validate_json('{"type": "user", "content": "go on", "synthetic_reason": "moon_phase"}')
    assert later == UserItem(content=SAID, synthetic_reason="moon_phase")  # the set is open: the word itself is kept


def test_an_old_word_reads_as_the_new_one_b027() -> None:
    item = ITEM.validate_python({"type": "user", "content": "hi", "synthetic_reason": "parent_agent_message"})
    assert isinstance(item, UserItem)
    assert item.synthetic_reason == "agent_message"


@pytest.mark.parametrize("name", ["system_fingerprint", "model_fingerprint"])
def test_an_empty_fingerprint_is_none_b028(name: str) -> None:
    item = ITEM.validate_python({"type": "assistant", "content": "hi", name: ""})
    assert isinstance(item, AssistantItem)
    assert item.model_fingerprint is None
    assert "model_fingerprint" not in written(item)
    named = ITEM.validate_python({"type": "assistant", "content": "hi", name: "fp_1"})
    assert written(named)["model_fingerprint"] == "fp_1"
    assert ITEM.validate_json(named.model_dump_json()) == named


def test_images_of_a_result_are_written_if_there_are_any_b029() -> None:
    bare = ToolResultItem(tool_call_id="c", content="3")
    assert "images" not in written(bare)
    assert ITEM.validate_json(bare.model_dump_json()) == bare
    shown = ToolResultItem(tool_call_id="c", content="3", images=(ImagePart(url="https://h/x.png"),))
    assert written(shown)["images"] == [{"type": "image", "url": "https://h/x.png"}]
    assert ITEM.validate_json(shown.model_dump_json()) == shown


def test_a_call_without_extra_content_does_not_speak_of_it() -> None:
    assert "extra_content" not in written(ToolCall(id="c", name="f", arguments="{}"))


@pytest.mark.parametrize("effort", get_args(ReasoningEffort))
@pytest.mark.parametrize("case", [str.upper, str.title, str.lower])
def test_an_effort_is_read_in_any_case_b043(effort: ReasoningEffort, case: type[str]) -> None:
    word = case(effort)
    assert SamplingRequest.user("hi").replaced(reasoning_effort=word).reasoning_effort == effort
    config = SamplerConfig.model_validate({"base_url": "http://h/v1", "reasoning_effort": word})
    assert config.reasoning_effort == effort


@pytest.mark.parametrize("word", ["very high", "", "x-high", "maximum"])
def test_an_effort_that_is_none_of_them_is_refused_by_name_b043(word: str) -> None:
    with pytest.raises(ValidationError, match=r"reasoning_effort\n.*'none', 'minimal'"):
        SamplingRequest.user("hi").replaced(reasoning_effort=word)
