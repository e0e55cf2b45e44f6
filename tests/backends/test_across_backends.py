"""A conversation that begins on one backend goes on, whole and valid, on each of the others."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import permutations
from typing import Any, Final

import pytest

from rx_sampler import RetryPolicy, Sampler, SamplerConfig
from rx_sampler.backends.encoding import body_bytes
from rx_sampler.conversation import (
    ImagePart,
    Item,
    JsonObject,
    SamplingRequest,
    SamplingResponse,
    SystemItem,
    TextPart,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
)
from rx_sampler.simulator import Simulator, Timing, Turn
from rx_sampler.simulator import ToolCall as ScriptedCall

from .made_conversations import PIXEL
from .streams import (
    BACKENDS,
    CHAT,
    CREATED,
    DONE,
    MESSAGES,
    RESPONSES,
    STOP,
    adds,
    calling,
    chat,
    closes,
    completed,
    ended,
    ev,
    function,
    message,
    opens,
    run,
    says,
    sse,
    started,
    stops,
    text_block,
)
from .wire_rules import CONFIGS, ENCODERS, check_body, check_rules, encoded, turns_of

# Every opaque string below begins with SEALED, so that none can leak unseen.
SEALED: Final = {
    CHAT: ("SEALED-detail", "SEALED-extra"),
    RESPONSES: ("SEALED-compaction", "SEALED-reasoning"),
    MESSAGES: ("SEALED-signature", "SEALED-redacted", "SEALED-result", "SEALED-index"),
}
# The ids of the calls are such as servers give, and more than some other server takes.
LONG_ID: Final = "call_" + "7" * 58
IDS: Final = {
    CHAT: ("functions.look_up:0", "functions.clock:1"),  # as Kimi numbers its calls
    RESPONSES: (LONG_ID + "7", LONG_ID + "8"),
    MESSAGES: ("toolu_01A", "toolu_01B"),
}
SEARCH: Final[JsonObject] = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "owls at night"},
}
COMPACTED: Final[JsonObject] = {"type": "compaction", "id": "cmp_1", "encrypted_content": "SEALED-compaction"}
THOUGHT: Final[JsonObject] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "I look it up."}],
    "encrypted_content": "SEALED-reasoning",
}
SERVER_USE: Final[JsonObject] = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "owls at night"},
}
SERVER_RESULT: Final[JsonObject] = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "u", "title": "Owls", "encrypted_content": "SEALED-result"}],
}
CITATION: Final[JsonObject] = {
    "type": "web_search_result_location",
    "cited_text": "hoot",
    "encrypted_index": "SEALED-index",
    "title": "Owls",
    "url": "u",
}
DETAIL: Final[JsonObject] = {
    "type": "reasoning.text",
    "text": "I look it up.",
    "signature": "SEALED-detail",
    "index": 0,
}
EXTRA: Final[JsonObject] = {"google": {"thought_signature": "SEALED-extra"}}


def calling_stream(backend: str) -> bytes:
    """Thoughts with all that a wire seals, a search of the server's own where it has one, text, and two calls."""
    first, second = IDS[backend]
    if backend == CHAT:
        extra = {"index": 0, "id": first, "function": {"name": "look_up", "arguments": '{"w": "東"}'}}
        return sse(
            chat({"role": "assistant", "reasoning_content": "I look it up.", "reasoning_details": [DETAIL]}),
            says("One moment."),
            chat({"tool_calls": [{**extra, "extra_content": EXTRA}]}),
            calling("{}", index=1, id=second, name="clock", finish="tool_calls"),
            DONE,
        )
    if backend == RESPONSES:
        output = [
            COMPACTED,
            THOUGHT,
            SEARCH,
            message("One moment."),
            {**function("look_up", '{"w": "東"}', call_id=first), "id": "fc_1"},
            {**function("clock", "{}", call_id=second), "id": "fc_2"},
        ]
        done = [ev("output_item.done", output_index=index, item=item) for index, item in enumerate(output)]
        return sse(CREATED, *done, ended(output=output))
    return sse(
        started(),
        opens(0, "thinking", thinking="", signature=""),
        adds(0, "thinking", thinking="I look it up."),
        adds(0, "signature", signature="SEALED-signature"),
        closes(0),
        opens(1, "redacted_thinking", data="SEALED-redacted"),
        closes(1),
        {"type": "content_block_start", "index": 2, "content_block": SERVER_USE},
        closes(2),
        {"type": "content_block_start", "index": 3, "content_block": SERVER_RESULT},
        closes(3),
        opens(4, "text", text="", citations=[]),
        adds(4, "citations", citation=CITATION),
        adds(4, "text", text="One moment."),
        closes(4),
        opens(5, "tool_use", id=first, name="look_up", input={}),
        adds(5, "input_json", partial_json='{"w": "東"}'),
        closes(5),
        opens(6, "tool_use", id=second, name="clock", input={}),
        closes(6),
        stops("tool_use"),
        STOP,
    )


def closing_stream(backend: str) -> bytes:
    """A plain answer."""
    if backend == CHAT:
        return sse(says("They hoot.", "stop"), DONE)
    if backend == RESPONSES:
        return sse(CREATED, ended(output=[message("They hoot.")]))
    return sse(started(), *text_block(0, "They hoot."), stops("end_turn"), STOP)


def answered(backend: str, stream: bytes) -> SamplingResponse:
    return completed(run(backend, stream, both_roads=False))


def results(response: SamplingResponse) -> list[Item]:
    """The results of both calls, the second first, and with an image."""
    first, second = response.tool_calls
    return [
        ToolResultItem(tool_call_id=second.id, content="twelve", images=[ImagePart(url=PIXEL)]),
        ToolResultItem(tool_call_id=first.id, content="a bird", is_error=True),
    ]


QUESTION: Final = SamplingRequest(
    items=[
        SystemItem(content="Be brief."),
        UserItem(content=[TextPart(text="What do owls do?"), ImagePart(url="https://h/owl.png", detail="low")]),
    ],
    tools=[ToolSpec(name="look_up"), ToolSpec(name="clock")],
)
AGAIN: Final = "And by day?"


def half_way(backend: str) -> SamplingRequest:
    """The conversation up to the results of the calls that one backend made."""
    response = answered(backend, calling_stream(backend))
    return QUESTION.then(response, *results(response))


def said_words(backend: str, body: JsonObject) -> str:
    """Everything in the turns of a body as JSON text with plain characters."""
    return body_bytes({"turns": turns_of(backend, body)}).decode()


TOLD: Final = ("What do owls do?", "https://h/owl.png", "One moment.", "look_up", "clock", "東")
TOLD_AFTERWARDS: Final = ("twelve", "a bird", "iVBORw0KGgo=")
OF_ONE_WIRE: Final = {
    CHAT: ("reasoning_details", "extra_content", "thought_signature"),
    RESPONSES: ("web_search_call", "compaction", "encrypted_content", "rs_1", "ws_1", "cmp_1"),
    MESSAGES: (
        "server_tool_use",
        "web_search_tool_result",
        "redacted_thinking",
        "signature",
        "encrypted_index",
        "srvtoolu_1",
    ),
}
"""What only a server of that wire can read."""

every_pair = pytest.mark.parametrize(("first", "second"), list(permutations(BACKENDS, 2)))


@every_pair
def test_goes_on_with_all_that_was_said_and_done(first: str, second: str) -> None:
    body = encoded(second, half_way(first))
    check_body(second, body)
    words = said_words(second, body)
    assert [told for told in (*TOLD, *TOLD_AFTERWARDS) if told not in words] == []
    in_order = ("What do owls do?", "One moment.", "twelve", "a bird")
    assert sorted(in_order, key=words.index) == list(in_order)
    assert "Be brief." in (json.dumps(body["system"]) if second == MESSAGES else words)
    if first != CHAT:  # a search of the server's own is told in words
        assert "[backend web_search] search: owls at night" in words


@every_pair
def test_takes_nothing_along_that_only_the_other_server_reads(first: str, second: str) -> None:
    words = said_words(second, encoded(second, half_way(first)))
    assert "SEALED" not in words
    assert [mark for mark in OF_ONE_WIRE[first] if mark in words] == []


def named(backend: str, turns: list[JsonObject]) -> tuple[list[str], list[str]]:
    """The ids of the calls and those that results name, in order."""
    if backend == CHAT:
        calls = [call["id"] for turn in turns for call in turn.get("tool_calls", ())]
        return calls, [turn["tool_call_id"] for turn in turns if turn["role"] == "tool"]
    if backend == RESPONSES:
        calls = [turn["call_id"] for turn in turns if turn["type"] == "function_call"]
        return calls, [turn["call_id"] for turn in turns if turn["type"] == "function_call_output"]
    blocks = [block for turn in turns for block in turn["content"]]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return calls, [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


@every_pair
def test_calls_keep_their_results_under_ids_that_the_server_takes(first: str, second: str) -> None:
    turns = turns_of(second, encoded(second, half_way(first)))
    calls, answers = named(second, turns)
    assert len(set(calls)) == 2
    assert answers == calls[::-1]  # the second came first
    assert (calls == list(IDS[first])) == ((first, second) not in {(CHAT, MESSAGES), (RESPONSES, CHAT)})


@every_pair
def test_back_at_home_everything_is_there_again(first: str, second: str) -> None:
    """The other's turn in between takes nothing away: the first server sees again what only it can read."""
    config = SamplerConfig(base_url="http://127.0.0.1:1/v1", model="m") if first == CHAT else CONFIGS[first]
    begun = half_way(first)
    back = begun.then(answered(second, closing_stream(second)), AGAIN)
    before = turns_of(first, ENCODERS[first](begun, config))
    after = turns_of(first, ENCODERS[first](back, config))
    if first == MESSAGES:
        before, after = unmarked(before), unmarked(after)
    assert after[: len(before)] == before
    words = json.dumps(after)
    assert sorted(re.findall(r"SEALED-\w+", words)) == sorted(SEALED[first])
    assert "They hoot." in words
    assert AGAIN in words


def unmarked(turns: list[JsonObject]) -> list[JsonObject]:
    return [
        {**turn, "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in turn["content"]]}
        for turn in turns
    ]


@pytest.mark.parametrize("order", list(permutations(BACKENDS)), ids="-".join)
def test_each_takes_a_turn(order: tuple[str, ...]) -> None:
    """Calls on the first, calls again on the second, and the third reads it all."""
    first, second, third = order
    response = answered(second, calling_stream(second))
    request = half_way(first).then(response, *results(response), AGAIN)
    body = encoded(third, request)
    check_body(third, body)
    words = said_words(third, body)
    assert "SEALED" not in words
    assert [mark for other in (first, second) for mark in OF_ONE_WIRE[other] if mark in words] == []
    assert words.count("One moment.") == 2
    calls, answers = named(third, turns_of(third, body))
    assert len(set(calls)) == 4
    assert answers == [calls[1], calls[0], calls[3], calls[2]]


# -- over a socket


def sampler(base_url: str, backend: str) -> Sampler:
    config: dict[str, Any] = {"base_url": base_url, "backend": backend, "model": "m", "reasoning_effort": "low"}
    return Sampler(SamplerConfig.model_validate(config | {"retry": RetryPolicy(max_retries=0)}))


@every_pair
def test_live(first: str, second: str) -> None:
    script = [
        Turn(
            reasoning="I look it up.",
            text="One moment.",
            tool_calls=(ScriptedCall(name="look_up", arguments={"w": "東"}), ScriptedCall(name="clock", arguments={})),
        ),
        Turn(reasoning="I know now.", text="They hoot."),
        Turn(text="They sleep."),
    ]

    async def talk() -> tuple[list[JsonObject], list[SamplingResponse], list[ToolCall]]:
        async with Simulator(seed=3, timing=Timing.instant(), script=script) as server:
            async with sampler(server.base_url, first) as one, sampler(server.base_url, second) as other:
                asked = (await one.collect(QUESTION)).response
                request = QUESTION.then(asked, *results(asked))
                told = (await other.collect(request)).response
                again = (await one.collect(request.then(told, AGAIN))).response
            bodies = [received.body for received in server.requests if received.body is not None]
        return bodies, [asked, told, again], list(asked.tool_calls)

    bodies, responses, calls = asyncio.run(talk())
    assert [response.text for response in responses] == ["One moment.", "They hoot.", "They sleep."]
    assert [call.arguments_json for call in calls] == [{"w": "東"}, {}]
    assert len(bodies) == 3
    for backend, body in zip((first, second, first), bodies, strict=True):
        check_rules(backend, body)
    words = said_words(second, bodies[1])
    assert all(told in words for told in (*TOLD, *TOLD_AFTERWARDS))
    sealed = [secret for item in responses[0].items for secret in secrets_of(item)]
    assert bool(sealed) == (first != CHAT), "the simulated server seals its thoughts on two wires"
    assert [secret for secret in sealed if secret in words] == []
    home = said_words(first, bodies[2])
    assert [secret for secret in sealed if secret not in home] == []


def secrets_of(item: Any) -> list[str]:
    names = ("signature", "encrypted_content", "redacted_data")
    return [secret for name in names if (secret := getattr(item, name, None))]
