"""Conversations and settings drawn at random, in the shapes that programs really hold them in, whole and broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

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
    ResponseItem,
    SamplingRequest,
    SamplingResponse,
    SystemItem,
    TextItem,
    TextPart,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    UserItem,
    WebSearch,
)

from .streams import CHAT, MESSAGES, RESPONSES

__all__ = ["ASK", "PIXEL", "answers", "histories", "reasoning", "requests", "spoken"]

PIXEL: Final = "data:image/png;base64,iVBORw0KGgo="
ASK: Final = UserItem(content=[TextPart(text="What now?")])

words: Final = st.sampled_from(["", " ", "\n", "An owl.", "東京 ☂", 'say "it" \\ \n twice', "x" * 50])
spoken_words: Final = st.sampled_from(["An owl.", "東京 ☂", 'say "it" \\ \n twice', "{}", "  led by space"])
few_ids: Final = st.sampled_from(
    ["call_1", "call_2", "call:1/x", "call_1_x", "", "é", "toolu_01", "n" * 70, "n" * 69 + "m", "fc_" + "9" * 40]
)
arguments: Final = st.sampled_from(
    ["{}", '{"a": 1}', ' {"s":"é"}\n', '{"a": ', "", "[1]", "null", '{"a":NaN}', "ls -l"]
)

# -- what a server of each wire sends about its own tools, after the providers' published examples

SERVED_BY_RESPONSES: Final[tuple[JsonObject, ...]] = (
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "owls", "queries": ["owls"], "sources": [{"type": "url", "url": "u"}]},
    },
    {"type": "web_search_call", "id": "ws_2", "status": "completed", "action": {"type": "open_page", "url": "u"}},
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "code": "1 + 1",
        "container_id": "cntr_1",
        "outputs": [{"type": "logs", "logs": "2"}],
    },
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["owls"], "results": None},
    {
        "type": "mcp_call",
        "id": "mcp_1",
        "name": "ask",
        "server_label": "wiki",
        "arguments": "{}",
        "output": "an owl",
        "error": None,
    },
)
SERVED_BY_MESSAGES: Final[tuple[tuple[JsonObject, JsonObject], ...]] = (
    (
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "owls"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"type": "web_search_result", "url": "u", "title": "Owls", "encrypted_content": "SECRET-W"}],
        },
    ),
    (
        {"type": "server_tool_use", "id": "srvtoolu_2", "name": "code_execution", "input": {"code": "1 + 1"}},
        {
            "type": "code_execution_tool_result",
            "tool_use_id": "srvtoolu_2",
            "content": {
                "type": "code_execution_result",
                "stdout": "2",
                "stderr": "",
                "return_code": 0,
                "content": [],
            },
        },
    ),
)
OPAQUE_OF_RESPONSES: Final[tuple[JsonObject, ...]] = (
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "SECRET-C"},
    {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}", "server_label": "wiki"},
)
OPAQUE_OF_MESSAGES: Final[tuple[JsonObject, ...]] = ({"type": "container_upload", "file_id": "file_1"},)
CITATION_OF_MESSAGES: Final[JsonObject] = {
    "type": "web_search_result_location",
    "cited_text": "An owl",
    "encrypted_index": "SECRET-I",
    "title": None,
    "url": "u",
}
CITATION_OF_RESPONSES: Final[JsonObject] = {
    "type": "url_citation",
    "url": "u",
    "title": "Owls",
    "start_index": 0,
    "end_index": 2,
}


def _call_name(wire: JsonObject) -> str:
    return str(wire.get("name") or wire["type"].removesuffix("_call"))


def _served_by_messages(pair: tuple[JsonObject, JsonObject]) -> list[Item]:
    """A call and its result as they are decoded: the one named, the other opaque."""
    use, result = pair
    return [
        BackendToolCallItem(call_id=use["id"], name=use["name"], wire=(use,)),
        OpaqueItem(wire=result, backend=MESSAGES),
    ]


def _served_by_responses(wire: JsonObject) -> list[Item]:
    return [BackendToolCallItem(call_id=str(wire["id"]), name=_call_name(wire), wire=(wire,))]


def _in_one_item(pair: tuple[JsonObject, JsonObject]) -> list[Item]:
    return [BackendToolCallItem(call_id=pair[0]["id"], name=pair[0]["name"], wire=pair)]


_UNTOLD: Final[list[Item]] = [BackendToolCallItem(call_id="b", name="novel_search")]
served: Final[st.SearchStrategy[list[Item]]] = (
    st.sampled_from(SERVED_BY_RESPONSES).map(_served_by_responses)
    | st.sampled_from(SERVED_BY_MESSAGES).map(_served_by_messages)
    | st.sampled_from(SERVED_BY_MESSAGES).map(_in_one_item)
    | st.just(_UNTOLD)
)
opaque: Final[st.SearchStrategy[Item]] = st.sampled_from(
    [
        *(OpaqueItem(wire=wire, backend=RESPONSES) for wire in OPAQUE_OF_RESPONSES),
        *(OpaqueItem(wire=wire, backend=MESSAGES) for wire in OPAQUE_OF_MESSAGES),
        OpaqueItem(wire={"type": "novel"}, backend="of a third party"),
    ]
)

# -- one item

images: Final = st.builds(
    ImagePart,
    url=st.sampled_from(["https://h/x.png", PIXEL, "data:image/jpeg;base64,/9j/"]),
    detail=st.sampled_from([None, None, "auto", "low", "high"]),
)
texts: Final = st.builds(TextPart, text=words)


def _user(before: list[TextPart | ImagePart], sure: TextPart | ImagePart, after: list[TextPart | ImagePart]) -> Item:
    return UserItem(content=(*before, sure, *after))


users: Final[st.SearchStrategy[Item]] = st.builds(
    _user,
    st.lists(texts | images, max_size=2),
    st.builds(TextPart, text=spoken_words) | images,
    st.lists(texts | images, max_size=1),
)
systems: Final[st.SearchStrategy[Item]] = st.builds(SystemItem, content=words)
reasoning: Final[st.SearchStrategy[ResponseItem]] = st.sampled_from(
    [
        ReasoningItem(text="plain thought"),
        ReasoningItem(text="parts", summary=("one", "two"), content=("deep",)),
        ReasoningItem(text="signed", signature="SECRET-S"),
        ReasoningItem(signature="SECRET-S2"),
        ReasoningItem(text="unsigned", signature=""),
        ReasoningItem(redacted_data="SECRET-R"),
        ReasoningItem(text="sealed", id="rs_1", summary=("sealed",), encrypted_content="SECRET-E"),
        ReasoningItem(id="rs_2", content=("deep",), encrypted_content="SECRET-E2"),
        ReasoningItem(text="unsealed", id="rs_4", content=("unsealed",), encrypted_content=""),
        ReasoningItem(text="kept", id="rs_3", summary=("kept",)),
        ReasoningItem(text="hm", details=({"type": "reasoning.text", "text": "hm", "signature": "SECRET-D"},)),
        ReasoningItem(details=({"type": "reasoning.encrypted", "data": "SECRET-D2", "id": None},)),
        ReasoningItem(),
    ]
)
said: Final[st.SearchStrategy[ResponseItem]] = st.builds(
    TextItem,
    text=words,
    annotations=st.sampled_from([(), (), (CITATION_OF_MESSAGES,), (CITATION_OF_RESPONSES,)]),
)
refusals: Final[st.SearchStrategy[ResponseItem]] = st.builds(RefusalItem, text=words)


def calls(ids: st.SearchStrategy[str]) -> st.SearchStrategy[ToolCall]:
    return st.builds(
        ToolCall,
        id=ids,
        name=st.sampled_from(["clock", "look_up"]),
        arguments=arguments,
        custom=st.sampled_from([False, False, False, True]),
        extra_content=st.sampled_from([{}, {}, {"google": {"thought_signature": "SECRET-G"}}]),
    )


def results(ids: st.SearchStrategy[str]) -> st.SearchStrategy[Item]:
    return st.builds(
        ToolResultItem,
        tool_call_id=ids,
        content=words,
        images=st.lists(images, max_size=1),
        is_error=st.sampled_from([False, False, True]),
    )


# -- whole histories

_assistants: Final = st.builds(AssistantItem, content=words, tool_calls=st.lists(calls(few_ids), max_size=2))
_runs: Final[st.SearchStrategy[list[Item]]] = st.one_of(
    users.map(lambda item: [item]),
    systems.map(lambda item: [item]),
    _assistants.map(lambda item: [item]),
    said.map(lambda item: [item]),
    refusals.map(lambda item: [item]),
    reasoning.map(lambda item: [item]),
    opaque.map(lambda item: [item]),
    served,
    calls(few_ids).map(lambda item: [item]),
    results(few_ids).map(lambda item: [item]),
)
histories: Final[st.SearchStrategy[list[Item]]] = st.lists(_runs, max_size=10).map(
    lambda runs: [ASK, *(item for run in runs for item in run)]
)
"""Items in any order behind a question: calls dangle, results come twice, late, early, or belong to no call."""


# -- conversations as they come about, turn by turn


def answers(prefix: str) -> st.SearchStrategy[SamplingResponse]:
    """What a model may answer at a time; `prefix` begins the ids of its calls, which a server does not repeat."""
    pieces: st.SearchStrategy[list[Item]] = st.one_of(
        reasoning.map(lambda item: [item]),
        said.map(lambda item: [item]),
        refusals.map(lambda item: [item]),
        opaque.map(lambda item: [item]),
        served,
        calls(st.just("")).map(lambda item: [item]),
    )
    return st.lists(pieces, min_size=1, max_size=5).map(lambda runs: _answer(prefix, runs))


def _answer(prefix: str, runs: list[list[Item]]) -> SamplingResponse:
    items: list[Any] = []
    for run in runs:
        for item in run:
            named = item.model_copy(update={"id": f"{prefix}{len(items)}"}) if isinstance(item, ToolCall) else item
            items.append(named)
    return SamplingResponse(items=tuple(items))


@st.composite
def spoken(draw: st.DrawFn, *, turns: int = 3) -> list[SamplingRequest]:
    """The requests of a conversation, each made from the one before with `then`: all calls answered, in any order.

    The next thing the user says, or nothing where results came, closes a turn; some servers name their calls alike
    in every answer.
    """
    prefix = draw(st.sampled_from(["call:{turn}.", "call_{turn}_", "call_", "n" * 66 + "{turn}"]))
    opening: list[Item] = draw(st.sampled_from([[], [SystemItem(content="Be brief.")]]))
    request = SamplingRequest(items=(*opening, draw(users)))
    made = [request]
    for turn in range(draw(st.integers(1, turns))):
        answer = draw(answers(prefix.format(turn=turn)))
        done = [draw(results(st.just(call.id))) for call in answer.tool_calls]
        more: list[Item] = list(draw(st.permutations(done)))
        if not more or draw(st.booleans()):
            more.append(draw(users))
        request = request.then(answer, *more)
        made.append(request)
    return made


# -- everything else that a request may ask for

tools: Final = st.sampled_from(
    [
        ToolSpec(name="clock"),
        ToolSpec(
            name="look_up",
            description="Finds things.",
            parameters={
                "type": "object",
                "properties": {"what": {"type": "string", "enum": ["a", "b"]}},
                "required": ["what"],
                "additionalProperties": False,
            },
        ),
        ToolSpec(name="web_search", parameters={"properties": {}}),
        ToolSpec(name="bare", parameters={}),
    ]
)
_hosted: Final[dict[str, list[Any]]] = {
    CHAT: [WebSearch(allowed_domains=["a.example"])],  # which has no form there
    RESPONSES: [
        WebSearch(),
        WebSearch(allowed_domains=["a.example", "b.example"]),
        HostedTool.model_validate({"type": "code_interpreter", "container": {"type": "auto"}}),
        HostedTool.model_validate({"type": "web_search", "search_context_size": "low"}),
    ],
    MESSAGES: [
        WebSearch(),
        WebSearch(allowed_domains=["a.example"]),
        WebSearch(excluded_domains=["b.example"]),
        HostedTool.model_validate({"type": "web_search_20250305", "name": "web_search", "max_uses": 3}),
        HostedTool.model_validate({"type": "code_execution_20250825", "name": "code_execution"}),
    ],
}


def _sometimes(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def requests(backend: str) -> st.SearchStrategy[SamplingRequest]:
    """Requests that `backend` can send, with anything set that it knows."""
    fields: dict[str, Any] = {
        "items": histories,
        "tools": st.lists(tools, max_size=2, unique_by=lambda tool: tool.name),
        "hosted_tools": st.lists(st.sampled_from(_hosted[backend]), max_size=1),
        "tool_choice": st.sampled_from([None, "auto", "none", "required", FunctionChoice(name="clock")]),
        "parallel_tool_calls": _sometimes(st.booleans()),
        "max_output_tokens": _sometimes(st.just(100)),
        "reasoning_effort": _sometimes(
            st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
        ),
        "reasoning_summary": _sometimes(st.sampled_from(["auto", "concise", "detailed", "none"])),
        "json_schema": _sometimes(st.just({"type": "object", "properties": {"n": {"type": "integer"}}})),
        "conversation_id": _sometimes(st.just("conv-1")),
        "prompt_cache_key": _sometimes(st.just("key-1")),
        "cache_breakpoints": _sometimes(st.booleans()),
        "store": _sometimes(st.booleans()),
        "metadata": st.sampled_from([{}, {"user_id": "u-1", "trace": "t-1"}]),
        "n": _sometimes(st.just(1)),
    }
    if backend != RESPONSES:
        fields["stop"] = st.lists(st.sampled_from(["END", "\n\n"]), max_size=2, unique=True)
    if backend != MESSAGES:  # whose published type has lost them: newer models refuse both
        fields |= {"temperature": _sometimes(st.just(0.5)), "top_p": _sometimes(st.just(0.9))}
    build: Callable[..., SamplingRequest] = SamplingRequest
    return st.builds(build, **fields)
