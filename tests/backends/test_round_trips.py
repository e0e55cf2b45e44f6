"""What a provider must see again of its own reasoning is in the next turn byte for byte and in order.

The truth is read from the raw bytes by a plain reader of its own, not through the pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest

from rx_sampler.config import SamplerConfig
from rx_sampler.conversation import JsonObject, SamplingRequest, SamplingResponse, ToolResultItem
from rx_sampler.events import Completed

from .made_conversations import ASK
from .streams import (
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
from .wire_rules import CONFIGS, ENCODERS, check_body, turns_of

LOCAL: Final = SamplerConfig(base_url="http://127.0.0.1:1/v1", model="m")


def next_turn(response: SamplingResponse) -> SamplingRequest:
    """The turn behind an answer: every call has a result, or else the user goes on."""
    results = [ToolResultItem(tool_call_id=call.id, content="done") for call in response.tool_calls]
    return SamplingRequest(items=[ASK]).then(response, *(results or [ASK]))


def said_again(backend: str, response: SamplingResponse, config: SamplerConfig | None = None) -> list[JsonObject]:
    """What the next turn sends of the answer on its own wire, without the question before it."""
    body = ENCODERS[backend](next_turn(response), config or CONFIGS[backend])
    return turns_of(backend, body)[1:]


# -- an independent reader


def documents(raw: bytes) -> Iterator[JsonObject]:
    for frame in raw.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = b"\n".join(line[5:].lstrip(b" ") for line in frame.split(b"\n") if line.startswith(b"data:"))
        try:
            document = json.loads(data)
        except ValueError:  # [DONE], comments, damage
            continue
        if isinstance(document, dict):
            yield document  # pyright: ignore[reportUnknownVariableType]


_SEALED: Final = frozenset({"signature", "closed_with", "encrypted_content", "encrypted_index", "encrypted_stdout"})


def sealed(value: Any) -> list[str]:
    """Every opaque string in a JSON value, in order."""
    if isinstance(value, dict):
        fields: JsonObject = value  # pyright: ignore[reportUnknownVariableType]
        keys = _SEALED | {"data"} if str(fields.get("type")).startswith(("redacted", "reasoning.")) else _SEALED
        return [
            text
            for key, inner in fields.items()
            for text in ([inner] if key in keys and isinstance(inner, str) and inner else sealed(inner))
        ]
    if isinstance(value, list):
        entries: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return [text for entry in entries for text in sealed(entry)]
    return []


def blocks_on_the_wire(raw: bytes) -> list[JsonObject]:
    """The blocks of a message, each with its thinking, the signature that closed it, and its citations."""
    blocks: dict[int, JsonObject] = {}
    for document in documents(raw):
        kind, index = document.get("type"), document.get("index") or 0
        if kind == "content_block_start":
            blocks[index] = {name: value for name, value in document["content_block"].items() if name != "signature"}
            if signature := document["content_block"].get("signature"):
                blocks[index]["closed_with"] = signature
        elif kind == "content_block_delta":
            block, delta = blocks.setdefault(index, {"type": "text"}), document["delta"]
            block["thinking"] = (block.get("thinking") or "") + (delta.get("thinking") or "")
            if delta.get("type") == "signature_delta":
                block["closed_with"] = delta.get("signature") or ""
            if citation := delta.get("citation"):
                block["citations"] = [*(block.get("citations") or ()), citation]
    return [blocks[index] for index in sorted(blocks)]


def items_on_the_wire(raw: bytes) -> tuple[list[JsonObject], list[JsonObject]]:
    """The output of a response as its closing events have it, and as the last event repeats it."""
    closed: dict[int, JsonObject] = {}
    repeated: list[JsonObject] = []
    for document in documents(raw):
        if document.get("type") == "response.output_item.done":
            closed[document.get("output_index", len(closed))] = document["item"]
        elif document.get("type") in ("response.completed", "response.incomplete"):
            repeated = document["response"].get("output") or []
    return [closed[index] for index in sorted(closed)], repeated


def deltas_on_the_wire(raw: bytes) -> list[JsonObject]:
    """The deltas of the first choice."""
    return [
        choice.get("delta") or {}
        for document in documents(raw)
        for choice in document.get("choices") or ()
        if (choice.get("index") or 0) == 0
    ]


def content_blocks(delta: JsonObject) -> list[JsonObject]:
    """The content of a delta as blocks, which Mistral sends where others send text."""
    content = delta.get("content")
    return cast("list[JsonObject]", content) if isinstance(content, list) else [{"type": "text", "text": content}]


def thought_in(delta: JsonObject) -> str:
    """The reasoning of a delta, in whatever field or among the blocks of its content."""
    thoughts = [part["text"] for block in content_blocks(delta) for part in block.get("thinking", ())]
    return "".join([delta.get("reasoning_content") or delta.get("reasoning") or "", *thoughts])


def says_something(delta: JsonObject) -> bool:
    return bool(
        any(block.get("text") for block in content_blocks(delta)) or delta.get("refusal") or delta.get("tool_calls")
    )


def details_of(deltas: list[JsonObject]) -> list[JsonObject]:
    return [detail for delta in deltas for detail in delta.get("reasoning_details") or ()]


def text_of(details: list[JsonObject]) -> str:
    return "".join(str(detail.get("text") or detail.get("summary") or "") for detail in details)


# -- recordings, where they lie beside the checkout

SHARED: Final = Path(__file__).resolve().parents[3] / "shared"
FOLDERS: Final = (("corpus", "index.jsonl"), ("corpus-local", "expect.jsonl"))
NAMES: Final = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}
SIGNS: Final = (b"reasoning", b"thinking", b"encrypted", b"signature")


def recordings(backend: str) -> list[Any]:
    """The recorded answers of a wire that have some reasoning, or something sealed."""
    found: list[Any] = []
    for folder, index in FOLDERS:
        path = SHARED / folder / index
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            row = json.loads(line)
            file = SHARED / folder / row["file"]
            if NAMES[row["backend"]] == backend and file.exists() and any(sign in file.read_bytes() for sign in SIGNS):
                found.append(pytest.param(file, id=f"{folder}/{row['file']}"))
    return found or [pytest.param(None, marks=pytest.mark.skip(reason="no recorded corpus beside the checkout"))]


def answered(backend: str, raw: bytes) -> SamplingResponse:
    events = run(backend, raw, both_roads=False)
    if not isinstance(events[-1], Completed):
        pytest.skip("the recorded answer did not come to its end")
    return events[-1].response


@pytest.mark.parametrize("file", recordings(MESSAGES))
def test_a_recorded_message_returns_its_thinking(file: Path) -> None:
    raw = file.read_bytes()
    blocks = blocks_on_the_wire(raw)
    thoughts = [
        {"type": "thinking", "thinking": block["thinking"], "signature": block["closed_with"]}
        if block["type"] == "thinking"
        else {"type": "redacted_thinking", "data": block["data"]}
        for block in blocks
        if "closed_with" in block or block["type"] == "redacted_thinking"
    ]
    # to a server of one's own, which takes an empty signature back as well
    sent = [
        block
        for turn in said_again(MESSAGES, answered(MESSAGES, raw), LOCAL)
        if turn["role"] == "assistant"
        for block in turn["content"]
    ]
    assert [block for block in sent if block["type"] in ("thinking", "redacted_thinking")] == thoughts
    assert sealed(sent) == sealed(blocks)
    assert [block for block in sent if block["type"].endswith("_tool_result")] == [
        {name: value for name, value in block.items() if name not in ("thinking", "closed_with")}
        for block in blocks
        if block["type"].endswith("_tool_result")
    ]


def reduced(item: JsonObject) -> JsonObject:
    """What counts of a reasoning item, whatever else a server puts into it."""
    texts = {name: [part["text"] for part in item.get(name) or ()] for name in ("summary", "content")}
    return {"id": item["id"], "encrypted_content": item["encrypted_content"], **texts}


def is_sealed(item: JsonObject) -> bool:
    """Whether it is reasoning that can go back; some servers seal it with an empty string."""
    return item["type"] == "reasoning" and item.get("encrypted_content") is not None


@pytest.mark.parametrize("file", recordings(RESPONSES))
def test_a_recorded_response_returns_its_items(file: Path) -> None:
    raw = file.read_bytes()
    # Some providers seal a thing anew each time that they send it, and take any of those back.
    accepted = [
        ([reduced(item) for item in items if is_sealed(item)], items) for items in items_on_the_wire(raw) if items
    ]
    sent = said_again(RESPONSES, answered(RESPONSES, raw), LOCAL)
    thoughts = [reduced(item) for item in sent if item["type"] == "reasoning"]
    if not accepted:
        assert not thoughts
        return
    assert thoughts in [reduced_items for reduced_items, _ in accepted]
    told = {"message", "reasoning", "function_call", "custom_tool_call"}
    served = [item for item in sent if item["type"] not in told and not item["type"].endswith("_output")]
    assert served in [
        [item for item in items if item["type"] not in told and not item["type"].endswith("_output")]
        for _, items in accepted
    ]


@pytest.mark.parametrize("file", recordings(CHAT))
def test_a_recorded_completion_returns_its_reasoning(file: Path) -> None:
    raw = file.read_bytes()
    deltas = deltas_on_the_wire(raw)
    details = details_of(deltas)
    sent = said_again(CHAT, answered(CHAT, raw), LOCAL)
    if not any(map(says_something, deltas)):
        assert [turn["role"] for turn in sent] == ["user"], "no message carries thoughts alone"
        return
    said = sent[0]
    kept: list[JsonObject] = said.get("reasoning_details", [])
    assert sealed(kept) == sealed(details)
    assert text_of(kept) == text_of(details)
    assert {detail["type"] for detail in kept} == {detail["type"] for detail in details}
    assert said.get("reasoning_content", "") == ("".join(map(thought_in, deltas)) or text_of(details))


# -- streams that say each kind, whatever lies beside the checkout


def test_thinking_between_calls_returns_as_it_came() -> None:
    """Interleaved: each block with its own signature, a redacted one among them."""
    raw = sse(
        started(),
        opens(0, "thinking", thinking="", signature=""),
        adds(0, "thinking", thinking="Look "),
        adds(0, "thinking", thinking="it up. 東"),
        adds(0, "signature", signature="c2lnLTA="),
        closes(0),
        opens(1, "redacted_thinking", data="b3BhcXVl/+=="),
        closes(1),
        *text_block(2, "One moment."),
        opens(3, "thinking", thinking="", signature=""),
        adds(3, "signature", signature="c2lnLTM="),
        closes(3),
        opens(4, "tool_use", id="toolu_1", name="look_up", input={}),
        adds(4, "input_json", partial_json='{"w":"owl"}'),
        closes(4),
        opens(5, "thinking", thinking="", signature=""),
        adds(5, "thinking", thinking="And the time."),
        adds(5, "signature", signature="c2lnLTU="),
        closes(5),
        opens(6, "tool_use", id="toolu_2", name="clock", input={}),
        closes(6),
        stops("tool_use"),
        STOP,
    )
    response = completed(run(MESSAGES, raw))
    assistant, results = said_again(MESSAGES, response)
    assert assistant["content"] == [
        {"type": "thinking", "thinking": "Look it up. 東", "signature": "c2lnLTA="},
        {"type": "redacted_thinking", "data": "b3BhcXVl/+=="},
        {"type": "text", "text": "One moment."},
        {"type": "thinking", "thinking": "", "signature": "c2lnLTM="},
        {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"w": "owl"}},
        {"type": "thinking", "thinking": "And the time.", "signature": "c2lnLTU="},
        {"type": "tool_use", "id": "toolu_2", "name": "clock", "input": {}},
    ]
    assert [block["tool_use_id"] for block in results["content"]] == ["toolu_1", "toolu_2"]
    check_body(MESSAGES, ENCODERS[MESSAGES](next_turn(response), CONFIGS[MESSAGES]))


def test_a_thought_without_a_signature_returns_to_a_server_that_has_none() -> None:
    """llama.cpp closes a thought with an empty one; Anthropic refuses that."""
    raw = sse(
        started(),
        opens(0, "thinking", thinking=""),
        adds(0, "thinking", thinking="Hm."),
        adds(0, "signature", signature=""),
        closes(0),
        *text_block(1, "An owl."),
        stops("end_turn"),
        STOP,
    )
    response = completed(run(MESSAGES, raw))
    text = {"type": "text", "text": "An owl."}
    assert said_again(MESSAGES, response, LOCAL)[0]["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        text,
    ]
    assert said_again(MESSAGES, response)[0]["content"] == [text]


def test_a_search_between_thoughts_returns_with_what_was_found_and_cited() -> None:
    found: JsonObject = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "u", "title": "Owls", "encrypted_content": "ZW5j"}],
    }
    cited: JsonObject = {
        "type": "web_search_result_location",
        "cited_text": "owls",
        "url": "u",
        "title": "Owls",
        "encrypted_index": "aW5kZXg=",
    }
    raw = sse(
        started(),
        opens(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        adds(0, "input_json", partial_json='{"query":"owls"}'),
        closes(0),
        {"type": "content_block_start", "index": 1, "content_block": found},
        closes(1),
        opens(2, "thinking", thinking="", signature=""),
        adds(2, "thinking", thinking="So."),
        adds(2, "signature", signature="c2ln"),
        closes(2),
        opens(3, "text", text="", citations=[]),
        adds(3, "citations", citation=cited),
        adds(3, "text", text="Owls hoot."),
        closes(3),
        stops("end_turn"),
        STOP,
    )
    response = completed(run(MESSAGES, raw))
    [assistant, _] = said_again(MESSAGES, response)
    assert assistant["content"] == [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "owls"}},
        found,
        {"type": "thinking", "thinking": "So.", "signature": "c2ln"},
        {"type": "text", "text": "Owls hoot.", "citations": [cited]},
    ]
    check_body(MESSAGES, ENCODERS[MESSAGES](next_turn(response), CONFIGS[MESSAGES]))


def thought(number: int, **fields: Any) -> JsonObject:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"gAAA{number}==", **fields}


def test_reasoning_items_return_between_their_calls() -> None:
    summary = [{"type": "summary_text", "text": "**First**\n\nparts"}, {"type": "summary_text", "text": "second"}]
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "owls"},
    }
    output = [
        thought(1, summary=summary),
        {**function("look_up", '{"w": "owl"}', call_id="call_1"), "id": "fc_1"},
        thought(2),
        search,
        thought(3, content=[{"type": "reasoning_text", "text": "deep"}]),
        {**function("clock", "{}", call_id="call_2"), "id": "fc_2"},
        message("One moment."),
    ]
    raw = sse(
        CREATED,
        *(
            event
            for index, item in enumerate(output)
            for event in (
                # what is sealed is whole only in the closing event
                ev("output_item.added", output_index=index, item={**item, "encrypted_content": "gA"}),
                ev("output_item.done", output_index=index, item=item),
            )
        ),
        ended(output=output),
    )
    response = completed(run(RESPONSES, raw))
    assert said_again(RESPONSES, response) == [
        thought(1, summary=summary),
        {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": '{"w": "owl"}'},
        thought(2),
        search,
        thought(3, content=[{"type": "reasoning_text", "text": "deep"}]),
        {"type": "function_call", "call_id": "call_2", "name": "clock", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": "One moment."},
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
        {"type": "function_call_output", "call_id": "call_2", "output": "done"},
    ]
    check_body(RESPONSES, ENCODERS[RESPONSES](next_turn(response), CONFIGS[RESPONSES]))


def test_plain_reasoning_of_a_completion_returns_beside_what_was_said() -> None:
    raw = sse(
        chat({"role": "assistant", "reasoning_content": "Look "}),
        chat({"reasoning_content": "it up. 東"}),
        says("One moment."),
        calling("{}", id="call_1", name="clock", finish="tool_calls"),
        DONE,
    )
    [said, result] = said_again(CHAT, completed(run(CHAT, raw)), LOCAL)
    assert said == {
        "role": "assistant",
        "content": "One moment.",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}],
        "reasoning_content": "Look it up. 東",
    }
    assert result["tool_call_id"] == "call_1"


def test_reasoning_details_return_whole_and_in_order() -> None:
    """The fragments of one block joined, the signature that ends it kept; sealed ones and unknown keys untouched."""
    sealed_detail = {"type": "reasoning.encrypted", "data": "ZW5j/+==", "id": "rs_1", "format": "openai-v1", "index": 1}
    summary = {"type": "reasoning.summary", "summary": "In short.", "format": "openai-v1", "index": 2}
    novel = {"type": "reasoning.novel", "payload": {"deep": [1, None]}, "index": 3}
    raw = sse(
        chat({"reasoning": "Look ", "reasoning_details": [piece("Look ")]}),
        chat({"reasoning": "it up.", "reasoning_details": [piece("it up.")]}),
        chat({"reasoning_details": [{**piece(""), "signature": "c2ln"}]}),
        chat({"reasoning_details": [sealed_detail, summary]}),
        chat({"reasoning_details": [novel]}),
        says("An owl.", "stop"),
        DONE,
    )
    [said, _] = said_again(CHAT, completed(run(CHAT, raw)), LOCAL)
    assert said["reasoning_details"] == [{**piece("Look it up."), "signature": "c2ln"}, sealed_detail, summary, novel]


def piece(text: str) -> JsonObject:
    return {"type": "reasoning.text", "text": text, "format": "anthropic-claude-v1", "index": 0}


def test_the_signature_beside_a_call_returns_with_it() -> None:
    extra = {"google": {"thought_signature": "c2ln/+=="}}
    raw = sse(
        chat({"tool_calls": [{**called("call_1", "clock"), "index": 0, "extra_content": extra}]}),
        chat({"tool_calls": [{**called("call_2", "clock"), "index": 1}]}, "tool_calls"),
        DONE,
    )
    [said, *_] = said_again(CHAT, completed(run(CHAT, raw)), LOCAL)
    assert said["tool_calls"] == [{**called("call_1", "clock"), "extra_content": extra}, called("call_2", "clock")]


def called(call_id: str, name: str) -> JsonObject:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
