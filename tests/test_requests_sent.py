"""What a sampler sends, seen where it would leave the process: one POST, its headers and its body, on each backend."""

from __future__ import annotations

import json
from typing import Any, Final

import aiohttp
import pytest
from fixtures_aioresponses import BASE_URL, Mocked
from fixtures_aioresponses import mocked as mocked  # the fixture
from wires import BACKENDS, PATHS

from rx_sampler import RetryPolicy, Sampler, SamplerConfig, SamplingError, SamplingErrorKind, SamplingRequest
from rx_sampler.vendor_headers import GrokHeaders

KEY: Final = "sk-live-7f3d9c2b1a"

REQUEST: Final = SamplingRequest.model_validate(
    {
        "items": [{"type": "system", "content": "be brief"}, {"type": "user", "content": "hi"}],
        "tools": [{"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}],
        "max_output_tokens": 9,
        "temperature": 0.5,
    }
)

TOOL_SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {}}

BODIES: Final[dict[str, dict[str, Any]]] = {
    # by the providers' API references
    "chat_completions": {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "max_tokens": 9,
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": TOOL_SCHEMA}}],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "responses": {
        "model": "m",
        "temperature": 0.5,
        "max_output_tokens": 9,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    },
    "messages": {
        "model": "m",
        "max_tokens": 9,
        "temperature": 0.5,
        "tools": [{"name": "f", "description": "d", "input_schema": TOOL_SCHEMA}],
        "stream": True,
    },
}


def sampler(backend: str, **fields: Any) -> Sampler:
    once = {"retry": RetryPolicy(max_retries=0)}
    fields = {"base_url": BASE_URL, "backend": backend, "model": "m", **once, **fields}
    return Sampler(SamplerConfig.model_validate(fields))


@pytest.mark.parametrize("backend", BACKENDS)
async def test_one_post_with_the_body_of_the_wire(backend: str, mocked: Mocked) -> None:
    # B202
    mocked.answers(backend, "Hel", "lo")
    result = await sampler(backend).collect(REQUEST)
    assert result.response.text == "Hello"
    ((url, headers, data),) = mocked.sent()
    assert url == BASE_URL + PATHS[backend]
    body = json.loads(data)
    assert {name: body[name] for name in BODIES[backend]} == BODIES[backend]
    assert headers["content-type"] == "application/json"
    assert headers["accept"] == "text/event-stream"
    assert not {"authorization", "x-api-key"} & headers.keys()


async def test_the_conversation_has_the_shape_of_each_wire(mocked: Mocked) -> None:
    for backend in BACKENDS:
        mocked.answers(backend)
        await sampler(backend).collect(REQUEST)
    bodies = [json.loads(data) for _, _, data in mocked.sent()]
    assert [message["role"] for message in bodies[0]["messages"]] == ["system", "user"]
    assert [item["role"] for item in bodies[1]["input"]] == ["system", "user"]
    assert [message["role"] for message in bodies[2]["messages"]] == ["user"]
    assert [block["text"] for block in bodies[2]["system"]] == ["be brief"]


@pytest.mark.parametrize(
    ("backend", "headers"),
    [
        ("chat_completions", {"authorization": f"Bearer {KEY}"}),
        ("responses", {"authorization": f"Bearer {KEY}"}),
        ("messages", {"x-api-key": KEY, "anthropic-version": "2023-06-01"}),
    ],
)
async def test_the_key_goes_out_once(backend: str, headers: dict[str, str], mocked: Mocked) -> None:
    # B084
    mocked.answers(backend)
    await sampler(backend, api_key=KEY).collect("hi")
    ((url, sent, data),) = mocked.sent()
    assert {name: sent[name] for name in headers} == headers
    assert str(sent).count(KEY) == 1
    assert KEY not in url
    assert KEY not in data.decode()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_headers_and_parameters_of_the_configuration_go_out(backend: str, mocked: Mocked) -> None:
    # B090, B092
    def inject(headers: dict[str, str]) -> None:
        headers["x-trace"] = "1"

    mocked.answers(backend, query="?api-version=1&tenant=a+b")
    configured = sampler(
        backend,
        extra_headers={"X-Team": "t"},
        query_params={"api-version": "1", "tenant": "a b"},
        header_injector=inject,
    )
    await configured.collect("hi")
    ((_, sent, _),) = mocked.sent()
    assert (sent["x-team"], sent["x-trace"]) == ("t", "1")


@pytest.mark.parametrize("backend", BACKENDS)
async def test_every_attempt_of_a_request_carries_its_id_b103(backend: str, mocked: Mocked) -> None:
    mocked.post(BASE_URL + PATHS[backend], status=500, payload={"error": {"message": "no"}})
    mocked.answers(backend)
    mocked.answers(backend)
    once_more = RetryPolicy(max_retries=1, initial_backoff_s=0, max_backoff_s=0)
    asking = sampler(backend, vendor_headers=GrokHeaders(session_id="s-1"), retry=once_more)
    asked = SamplingRequest(items=SamplingRequest.of("hi").items, conversation_id="conv-7")
    async for _ in asking.iterate(asked, request_id="req-9"):
        pass
    other = await asking.collect("hi")
    sent = [headers for _, headers, _ in mocked.sent()]
    assert [one["x-grok-req-id"] for one in sent] == ["req-9", "req-9", other.request_id]
    assert [one["x-grok-conv-id"] for one in sent] == ["conv-7", "conv-7", ""]
    assert {(one["x-grok-session-id"], one["x-grok-model-override"]) for one in sent} == {("s-1", "m")}


@pytest.mark.parametrize("backend", BACKENDS)
async def test_equal_requests_are_equal_bytes(backend: str, mocked: Mocked) -> None:
    # prompt caches of providers match prefixes of bytes
    for _ in range(2):
        mocked.answers(backend)
        await sampler(backend).collect(REQUEST)
    (_, _, first), (_, _, second) = mocked.sent()
    assert first == second


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_next_turn_begins_with_the_bytes_of_this_one(backend: str, mocked: Mocked) -> None:
    for _ in range(2):
        mocked.answers(backend)
    asked = SamplingRequest.of("hi")
    result = await sampler(backend).collect(asked)
    following = SamplingRequest(items=(*asked.items, *result.response.items, *SamplingRequest.of("more").items))
    await sampler(backend).collect(following)
    turns = "input" if backend == "responses" else "messages"
    first, second = (json.loads(data)[turns] for _, _, data in mocked.sent())
    strip = _without_cache_marks if backend == "messages" else _same
    assert [strip(turn) for turn in second[: len(first)]] == [strip(turn) for turn in first]
    assert len(second) == len(first) + 2


def _same(turn: Any) -> Any:
    return turn


def _without_cache_marks(turn: Any) -> Any:
    # the mark moves on to the newest turn, which the provider's cache expects
    blocks = [{k: v for k, v in block.items() if k != "cache_control"} for block in turn["content"]]
    return {**turn, "content": blocks}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("status", "kind"), [(400, "api"), (401, "auth"), (404, "api"), (429, "rate_limited"), (500, "api"), (529, "api")]
)
async def test_a_refusal_is_an_error_and_asked_once(backend: str, status: int, kind: str, mocked: Mocked) -> None:
    body = {"error": {"message": "these are the words"}}
    mocked.post(BASE_URL + PATHS[backend], status=status, payload=body, headers={"Retry-After": "7"})
    with pytest.raises(SamplingError) as caught:
        await sampler(backend).collect("hi")
    info = caught.value.info
    assert (info.kind, info.status, info.message, info.retry_after_s) == (kind, status, "these are the words", 7.0)
    assert len(mocked.sent()) == 1


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_servers_verdict_reaches_who_awaits_the_answer(backend: str, mocked: Mocked) -> None:
    """B203: and it is followed, so that one request is all."""
    headers = {"X-Should-Retry": "false"}
    mocked.post(BASE_URL + PATHS[backend], status=500, payload={"error": {"message": "no"}}, headers=headers)
    with pytest.raises(SamplingError) as caught:
        await sampler(backend).collect("hi")
    info = caught.value.info
    assert (info.kind, info.status, info.should_retry, info.is_retryable) == ("api", 500, False, False)
    assert len(mocked.sent()) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int, mocked: Mocked) -> None:
    mocked.post(
        BASE_URL + "/chat/completions",
        status=status,
        headers={"Location": "https://elsewhere.test/v1/chat/completions"},
    )
    with pytest.raises(SamplingError) as caught:
        await sampler("chat_completions", api_key=KEY).collect("hi")
    assert caught.value.info.status == status
    assert [url for url, _, _ in mocked.sent()] == [BASE_URL + "/chat/completions"]


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (aiohttp.ServerDisconnectedError(), True),
        (aiohttp.ClientPayloadError("x"), True),
        (aiohttp.ClientOSError(104, "Connection reset by peer"), True),
        (ConnectionResetError(104, "Connection reset by peer"), True),
        (TimeoutError(), True),
        (aiohttp.ServerTimeoutError("x"), True),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_whatever_breaks_below_is_one_kind_of_failure(error: Exception, retryable: bool, mocked: Mocked) -> None:
    mocked.post(BASE_URL + "/chat/completions", exception=error)
    with pytest.raises(SamplingError) as caught:
        await sampler("chat_completions").collect("hi")
    assert (caught.value.kind, caught.value.info.status) == (SamplingErrorKind.HTTP, None)
    assert caught.value.info.is_retryable is retryable
    assert caught.value.__cause__ is error
    assert "api.test" in caught.value.info.message
