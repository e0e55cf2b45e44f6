"""A backend of somebody else's: what Gemini is asked, and how a request goes over a socket."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from reactivex import operators as ops

from rx_sampler import (
    Backend,
    Completed,
    Failed,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingError,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
)
from rx_sampler.testing import Answer, ScriptedServer
from rx_sampler.testing.grammar import check_events

from .transcripts import BLOCKED, CALLS, THOUGHTS, chunk, sse

pytestmark = pytest.mark.usefixtures("installed")

Json = dict[str, Any]

CONFIG: Final = SamplerConfig(backend="gemini", base_url="https://models.invalid/v1beta", model="gemini-3-toy")
IMAGE: Final = "data:image/png;base64,iVBORw0KGgo="
SCHEMA: Final[Json] = {"type": "object", "properties": {"name": {"type": "string"}}}
TOOL: Final[Json] = {"name": "look_up", "description": "Looks up.", "parameters": SCHEMA}
HELLO: Final[Json] = {"type": "user", "content": "Hello"}


def request(*items: Any, **fields: Any) -> SamplingRequest:
    return SamplingRequest.model_validate({"items": list(items) or [HELLO], **fields})


@pytest.fixture
def encoded(gemini: Backend[Any]) -> Any:
    def encode(*items: Any, config: SamplerConfig = CONFIG, **fields: Any) -> Json:
        return gemini.encode(request(*items, **fields), config)

    return encode


# -- the body


def test_a_plain_question(encoded: Any) -> None:
    assert encoded() == {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}


def test_settings(encoded: Any) -> None:
    body = encoded(temperature=0.5, top_p=0.9, max_output_tokens=64, stop=["END"], n=2, json_schema=SCHEMA)
    assert body["generationConfig"] == {
        "temperature": 0.5,
        "topP": 0.9,
        "maxOutputTokens": 64,
        "stopSequences": ["END"],
        "candidateCount": 2,
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
    }


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-3-toy", "low", {"includeThoughts": True, "thinkingLevel": "low"}),
        ("gemini-3-toy", "max", {"includeThoughts": True, "thinkingLevel": "high"}),
        ("gemini-3-toy", "none", {"includeThoughts": False, "thinkingBudget": 0}),
        ("gemini-2.5-toy", "medium", {"includeThoughts": True, "thinkingBudget": 8192}),
        ("models/gemini-2.5-toy", "high", {"includeThoughts": True, "thinkingBudget": 24576}),
    ],
)
def test_efforts(encoded: Any, model: str, effort: str, thinking: Json) -> None:
    body = encoded(model=model, reasoning_effort=effort)
    assert body["generationConfig"]["thinkingConfig"] == thinking


def test_system_items_and_images(encoded: Any) -> None:
    body = encoded(
        {"type": "system", "content": "Be brief."},
        {"type": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image", "url": IMAGE}]},
        {"type": "user", "content": [{"type": "image", "url": "https://example.org/owl.png"}]},
    )
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["contents"] == [
        {
            "role": "user",
            "parts": [
                {"text": "What is this?"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                {"fileData": {"fileUri": "https://example.org/owl.png"}},
            ],
        }
    ]


def test_tools(encoded: Any) -> None:
    body = encoded(tools=[TOOL], hosted_tools=[{"type": "google_search"}], tool_choice={"name": "look_up"})
    declared = {"name": "look_up", "description": "Looks up.", "parametersJsonSchema": SCHEMA}
    assert body["tools"] == [{"functionDeclarations": [declared]}, {"google_search": {}}]
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look_up"]}}
    for choice, mode in (("auto", "AUTO"), ("none", "NONE"), ("required", "ANY")):
        assert encoded(tools=[TOOL], tool_choice=choice)["toolConfig"]["functionCallingConfig"] == {"mode": mode}
    assert "toolConfig" not in encoded(tool_choice="required")


def test_results_of_tools(encoded: Any) -> None:
    call = {"type": "tool_call", "id": "fc-1", "name": "look_up", "arguments": '{"name":"owl"}'}
    other = {**call, "id": "fc-2"}
    body = encoded(
        HELLO,
        {"type": "assistant", "content": "Wait.", "tool_calls": [call, other]},
        {"type": "tool_result", "tool_call_id": "fc-1", "content": "a bird", "images": [{"url": IMAGE}]},
        {"type": "tool_result", "tool_call_id": "fc-2", "content": "no such bird", "is_error": True},
    )
    called, results = body["contents"][1:]
    assert called["parts"][1] == {"functionCall": {"id": "fc-1", "name": "look_up", "args": {"name": "owl"}}}
    assert results == {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "fc-1", "name": "look_up", "response": {"output": "a bird"}}},
            {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
            {"functionResponse": {"id": "fc-2", "name": "look_up", "response": {"error": "no such bird"}}},
        ],
    }


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"type": "tool_result", "tool_call_id": "fc-9", "content": "x"}, r"items\[1\].tool_call_id is 'fc-9'"),
        ({"type": "user", "content": []}, r"items\[1\].content"),
        ({"type": "user", "content": [{"type": "image", "url": "data:text/plain,x"}]}, r"items\[1\].content\[0\].url"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(encoded: Any, item: Json, words: str) -> None:
    with pytest.raises(SamplingError, match=words) as caught:
        encoded(HELLO, item)
    assert caught.value.info.kind is SamplingErrorKind.INVALID_REQUEST


def test_items_of_other_wires(encoded: Any) -> None:
    body = encoded(
        HELLO,
        {"type": "reasoning", "text": "thought without a signature"},
        {"type": "opaque", "wire": {"type": "compaction", "content": "x"}},
        {
            "type": "backend_tool_call",
            "call_id": "ws",
            "name": "web_search",
            "wire": [{"action": {"type": "search", "query": "owls"}}],
        },
        {"type": "refusal", "text": "No."},
    )
    assert body["contents"][1]["parts"] == [{"text": "[backend web_search] search: owls"}, {"text": "No."}]


def parts_of(body: bytes) -> list[Json]:
    """The parts that a stream brought, without those that say nothing."""
    frames = [json.loads(line.removeprefix("data: ")) for line in body.decode().split("\r\n") if line]
    parts = [part for frame in frames for answer in frame["candidates"] for part in answer["content"]["parts"]]
    return [part for part in parts if part != {"text": ""}]


@pytest.mark.parametrize(
    "parts",
    [
        [{"text": "b", "thoughtSignature": "s"}],
        [{"text": "a"}, {"text": "b", "thoughtSignature": "s"}, {"text": "c"}],
        [{"text": "a"}, {"text": "", "thoughtSignature": "s"}],
        [{"text": "hm", "thought": True, "thoughtSignature": "s"}, {"text": "a"}],
        [{"text": "hm", "thought": True, "thoughtSignature": "s"}, {"text": "a", "thoughtSignature": "t"}],
        [
            {"functionCall": {"id": "1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "s"},
            {"functionCall": {"id": "2", "name": "f", "args": {}}},
        ],
        [
            {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s"},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK"}},
        ],
        [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}, "thoughtSignature": "s"}],
    ],
)
async def test_an_answer_goes_back_part_by_part_as_it_came(encoded: Any, parts: list[Json]) -> None:
    body = sse(*(chunk(part) for part in parts), chunk({"text": ""}, finish="STOP"))
    async with ScriptedServer([Answer(chunks=(body,))]) as server:
        end = (await told(Sampler(config(server))))[-1]
    assert isinstance(end, Completed)
    (said,) = [content for content in encoded(HELLO, *end.response.items)["contents"] if content["role"] == "model"]
    assert said["parts"] == parts_of(body)


# -- over a socket


def config(server: ScriptedServer, **fields: Any) -> SamplerConfig:
    retry = RetryPolicy(initial_backoff_s=0.001, max_backoff_s=0.001, jitter=0)
    return CONFIG.model_copy(update={"base_url": f"{server.url}/v1beta", "retry": retry, **fields})


async def told(sampler: Sampler, asked: SamplingRequest | str = "Hello") -> Sequence[SamplingEvent]:
    events: list[SamplingEvent] = []
    async with sampler:
        await sampler.stream(asked).pipe(ops.do_action(events.append))
    check_events(events)
    return events


def refusal(status: int, reason: str, message: str) -> Answer:
    body = {"error": {"code": status, "message": message, "status": reason}}
    return Answer(status=status, headers={"content-type": "application/json"}, chunks=(json.dumps(body).encode(),))


async def test_a_question_over_a_socket() -> None:
    async with ScriptedServer([Answer(chunks=(THOUGHTS,))]) as server:
        sampler = Sampler(config(server, api_key="AIza-secret-key"))
        end = (await told(sampler))[-1]
        (got,) = server.requests
    assert isinstance(end, Completed)
    assert end.response.text == "An owl—a bird 🦉"
    assert got.path == "/v1beta/models/gemini-3-toy:streamGenerateContent?alt=sse"
    assert got.headers["x-goog-api-key"] == "AIza-secret-key"
    assert "authorization" not in got.headers
    assert json.loads(got.body) == {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}


async def test_the_request_names_the_model_and_the_configuration_the_query() -> None:
    async with ScriptedServer([Answer(chunks=(CALLS,))]) as server:
        sampler = Sampler(config(server, query_params={"quotaUser": "u 1"}))
        await told(sampler, request(model="tunedModels/owl 1"))
        assert server.requests[0].path == "/v1beta/tunedModels/owl%201:streamGenerateContent?alt=sse&quotaUser=u+1"


async def test_a_server_that_is_overloaded_is_asked_again() -> None:
    answers = [refusal(503, "UNAVAILABLE", "The model is overloaded."), Answer(chunks=(THOUGHTS,))]
    async with ScriptedServer(answers) as server:
        events = await told(Sampler(config(server)))
    assert [event.kind for event in events][:2] == ["retrying", "stream_started"]
    end = events[-1]
    assert isinstance(end, Completed)
    assert end.metrics.attempts == 2


@pytest.mark.parametrize(
    ("answer", "kind", "status", "retryable", "message"),
    [
        (
            refusal(400, "INVALID_ARGUMENT", "Unknown name"),
            SamplingErrorKind.API,
            400,
            False,
            "Unknown name",
        ),
        (refusal(401, "UNAUTHENTICATED", "No key"), SamplingErrorKind.AUTH, 401, False, "No key"),
        (refusal(404, "NOT_FOUND", "no such model"), SamplingErrorKind.API, 404, False, "no such model"),
        (refusal(429, "RESOURCE_EXHAUSTED", "Quota"), SamplingErrorKind.RATE_LIMITED, 429, True, "Quota"),
    ],
)
async def test_refusals(answer: Answer, kind: SamplingErrorKind, status: int, retryable: bool, message: str) -> None:
    async with ScriptedServer([answer]) as server:
        sampler = Sampler(config(server, retry=RetryPolicy(max_retries=0)))
        end = (await told(sampler))[-1]
    assert isinstance(end, Failed)
    error = end.error
    assert error.code == json.loads(answer.chunks[0])["error"]["status"]
    assert (error.kind, error.status, error.is_retryable, error.message) == (kind, status, retryable, message)


async def test_the_key_is_known_as_a_credential_and_never_told() -> None:
    async with ScriptedServer([refusal(401, "UNAUTHENTICATED", "API key AIza-secret-key is bad")]) as server:
        end = (await told(Sampler(config(server, api_key="AIza-secret-key"))))[-1]
    assert isinstance(end, Failed)
    assert (end.error.message, end.error.credential) == ("API key *** is bad", "sent")


async def test_a_prompt_that_is_blocked_is_not_asked_again() -> None:
    async with ScriptedServer([Answer(chunks=(BLOCKED,))]) as server:
        end = (await told(Sampler(config(server))))[-1]
    assert isinstance(end, Completed)
    assert end.response.stop_reason == "content_filter"


@pytest.mark.parametrize("in_a_list", [False, True])
async def test_a_server_that_does_not_stream(in_a_list: bool) -> None:
    last = chunk({"text": "hu."}, finish="STOP", output=2)
    parts = [chunk({"text": "U"}), last] if in_a_list else chunk({"text": "Uhu."}, finish="STOP", output=2)
    whole = json.dumps(parts).encode()
    answer = Answer(headers={"content-type": "application/json"}, chunks=(whole,))
    async with ScriptedServer([answer]) as server:
        end = (await told(Sampler(config(server))))[-1]
    assert isinstance(end, Completed)
    assert end.response.text == "Uhu."
