"""Scripts: the same in Python and in JSON, and refused with the field named."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rx_sampler.simulator import Fault, ScriptError, Timing, ToolCall, Turn, Usage, dump_script, load_script, load_turn

SCRIPT = (
    Turn(text="hello", delta_chars=3, headers={"x-models-etag": "v1"}),
    Turn(
        reasoning="hm",
        tool_calls=(ToolCall(name="weather", arguments={"city": "Zürich", "days": [1, 2]}),),
        stop_reason="tool_calls",
        usage=Usage(input_tokens=10, cached_input_tokens=4),
        timing=Timing(time_to_first_token_s=0.5, tokens_per_second=10.0, jitter=0.0),
    ),
    Turn(fault=Fault(kind="status", status=429, headers={"retry-after": "2"}, body={"error": "slow down"})),
    Turn(fault=Fault(kind="doom_loop", after_deltas=3, triggers=("tail_repetition:4@thinking", "low_logprob"))),
    Turn(text="ok", faults=(Fault(kind="close"), None, Fault(kind="reset", after_share=0.5))),
    Turn(faults=(Fault(kind="upload_reset", after_bytes=10), Fault(kind="slow_headers", delay_s=0.1))),
    Turn(fault=Fault(kind="error", after_bytes=99, code=429)),
    Turn(annotations=({"type": "url_citation", "url": "https://example.com"},), refusal="No."),
)


def test_a_script_survives_json() -> None:
    assert load_script(dump_script(SCRIPT)) == SCRIPT


def test_a_script_is_written_as_people_write_it() -> None:
    assert load_script('[{"text": "hi"}, {"fault": {"kind": "cut", "after_deltas": 2}}]') == (
        Turn(text="hi"),
        Turn(fault=Fault(kind="cut", after_deltas=2)),
    )
    assert load_script('[{"faults": [{"kind": "close"}, null]}]') == (Turn(faults=(Fault(kind="close"), None)),)
    assert dump_script([Turn(text="hi")]) == '[{"text":"hi"}]'


@pytest.mark.parametrize(
    ("script", "place", "value"),
    [
        ('[{"text": 5}]', "0.text", "5"),
        ('[{}, {"txt": "typo"}]', "1.txt", "typo"),
        ('[{"fault": {"kind": "explode"}}]', "0.fault.kind", "explode"),
        ('[{"fault": {"kind": "status", "status": 1000}}]', "0.fault.status", "1000"),
        ('[{"fault": {"kind": "cut", "after_deltas": -1}}]', "0.fault.after_deltas", "-1"),
        ('[{"fault": {"kind": "cut", "after_bytes": -1}}]', "0.fault.after_bytes", "-1"),
        ('[{"fault": {"kind": "cut", "after_share": 1.5}}]', "0.fault.after_share", "1.5"),
        ('[{"fault": {"kind": "slow_headers", "delay_s": -1}}]', "0.fault.delay_s", "-1"),
        ('[{"faults": [null, {"kind": "explode"}]}]', "0.faults.1.kind", "explode"),
        ('[{"faults": {"kind": "cut"}}]', "0.faults", "cut"),
        ('[{"tool_calls": [{"name": "f", "arguments": "{}"}]}]', "0.tool_calls.0.arguments", "{}"),
        ('[{"stop_reason": "end_turn"}]', "0.stop_reason", "end_turn"),
        ('[{"delta_chars": 0}]', "0.delta_chars", "0"),
        ('[{"timing": {"jitter": 2}}]', "0.timing.jitter", "2"),
        ('[{"headers": {"x": "a\\r\\nb: c"}}]', "0.headers.x", "a"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_value(script: str, place: str, value: str) -> None:
    with pytest.raises(ScriptError) as caught:
        load_script(script)
    assert f"{place} = " in str(caught.value)
    assert value in str(caught.value)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[{}", "null"])
def test_what_is_no_script_is_refused(text: str) -> None:
    with pytest.raises(ScriptError):
        load_script(text)


def test_one_turn_is_an_object() -> None:
    assert load_turn('{"text": "hi"}') == Turn(text="hi")
    with pytest.raises(ScriptError, match=r"turn: fault\.kind"):
        load_turn('{"fault": {}}')


def test_a_field_of_another_fault_is_refused() -> None:
    with pytest.raises(ValidationError, match="status means nothing for kind='stall', which takes after_"):
        Fault(kind="stall", status=503)


def test_a_fault_has_one_place() -> None:
    with pytest.raises(ValidationError, match="after_bytes and after_deltas are 2 places for one fault"):
        Fault(kind="cut", after_deltas=2, after_bytes=7)
    with pytest.raises(ValidationError, match="after_share means nothing for kind='upload_reset'"):
        Fault(kind="upload_reset", after_share=0.5)


def test_a_turn_has_one_fault_or_one_per_attempt() -> None:
    with pytest.raises(ValidationError, match="fault and faults exclude each other"):
        Turn(fault=Fault(kind="cut"), faults=(None,))


def test_reported_input_holds_its_cache() -> None:
    with pytest.raises(ValidationError, match="at least the 12 cache tokens"):
        Usage(input_tokens=10, cached_input_tokens=7, cache_creation_input_tokens=5)


def test_models_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Turn(text="a").text = "b"  # pyright: ignore[reportAttributeAccessIssue] - that is the point
