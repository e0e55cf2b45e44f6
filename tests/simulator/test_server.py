"""The server: determinism, routes, scripts per request, pacing, and its life."""

from __future__ import annotations

import asyncio
import json
import socket
from random import Random
from typing import Any
from urllib.parse import urlsplit

import anthropic
import openai
import pytest

from rx_sampler.simulator import Fault, Simulator, SimulatorThread, Timing, ToolCall, Turn
from rx_sampler.simulator.pacing import Pacer

from .raw_http import BODIES, CHAT, MESSAGES, post, posting

INSTANT = Timing.instant()
PATHS = pytest.mark.parametrize("path", list(BODIES))
STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@PATHS
@STREAMS
def test_the_same_seed_and_request_give_the_same_bytes(path: str, stream: bool) -> None:
    body = {**BODIES[path], "stream": stream}
    answers: list[bytes] = []
    for _ in range(2):
        with SimulatorThread(seed=5, timing=INSTANT) as simulator:
            answers.extend(post(simulator.origin, path, body).raw for _ in range(2))
    assert len(set(answers)) == 1
    with SimulatorThread(seed=6, timing=INSTANT) as simulator:
        assert post(simulator.origin, path, body).raw not in answers


def test_a_question_has_one_answer_in_all_formats(simulator: SimulatorThread) -> None:
    chat, responses, messages = (post(simulator.origin, path, body).json for path, body in BODIES.items())
    text = chat["choices"][0]["message"]["content"]
    assert text == responses["output"][0]["content"][0]["text"] == messages["content"][0]["text"]


@PATHS
def test_the_path_may_do_without_v1(simulator: SimulatorThread, path: str) -> None:
    short = path.removeprefix("/v1")
    assert post(simulator.origin, short, BODIES[path]).body == post(simulator.origin, path, BODIES[path]).body


def test_requests_are_kept_as_they_came(simulator: SimulatorThread) -> None:
    post(simulator.origin, "/v1/messages?beta=true", MESSAGES, {"X-API-Key": "sk-secret"})
    (received,) = simulator.requests
    assert (received.method, received.path, received.query) == ("POST", "/v1/messages", {"beta": "true"})
    assert received.headers["x-api-key"] == "sk-secret"
    assert received.body == MESSAGES
    assert "sk-secret" not in repr(received)


def test_only_the_last_thousand_requests_are_kept(simulator: SimulatorThread) -> None:
    address = urlsplit(simulator.origin)
    with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
        for number in range(1001):
            connection.sendall(f"GET /{number} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            while b"request_id" not in (piece := connection.recv(65536)) and b'"error"' not in piece:
                assert piece
    simulator.wait_received(1001)
    assert [received.path for received in simulator.requests] == [f"/{number}" for number in range(1, 1001)]


def test_models_are_listed_as_each_provider_does() -> None:
    with (
        SimulatorThread(models=["model-a", "vendor/model-b"]) as simulator,
        openai.OpenAI(api_key="dummy", base_url=simulator.base_url, max_retries=0) as openai_client,
        anthropic.Anthropic(api_key="dummy", base_url=simulator.origin, max_retries=0) as anthropic_client,
    ):
        assert [model.id for model in openai_client.models.list()] == ["model-a", "vendor/model-b"]
        assert openai_client.models.retrieve("vendor/model-b").object == "model"
        assert [model.id for model in anthropic_client.models.list()] == ["model-a", "vendor/model-b"]
        assert anthropic_client.models.retrieve("model-a").display_name == "model-a"
        with pytest.raises(openai.NotFoundError):
            openai_client.models.retrieve("model-c")
        with pytest.raises(anthropic.NotFoundError):
            anthropic_client.models.retrieve("model-c")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"3", b'{"a": NaN}', b"\xff", b"[" * 200_000])
@PATHS
def test_what_is_no_json_object_is_refused(simulator: SimulatorThread, path: str, raw: bytes) -> None:
    answer = post(simulator.origin, path, raw)
    assert answer.status == 400
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert simulator.requests[-1].body is None


def test_unknown_paths_and_methods_get_the_providers_error(simulator: SimulatorThread) -> None:
    answer = post(simulator.origin, "/v1/embeddings", CHAT)
    assert (answer.status, answer.json["error"]["type"]) == (404, "invalid_request_error")
    answer = post(simulator.origin, "/v1/complete", CHAT, {"anthropic-version": "2023-06-01"})
    assert (answer.status, answer.json["error"]["type"]) == (404, "not_found_error")
    for path in BODIES:
        answer = post(simulator.origin, path, b"", method="GET")
        assert (answer.status, answer.json["error"]["type"]) == (405, "invalid_request_error")


def test_turns_are_taken_in_order_and_then_generated(simulator: SimulatorThread) -> None:
    simulator.script_next(Turn(text="first"), Turn(text="second"))
    said = [post(simulator.origin, "/v1/messages", MESSAGES).json["content"][0]["text"] for _ in range(3)]
    assert said[:2] == ["first", "second"]
    assert said[2].startswith("This is a simulated answer")


def test_a_script_may_be_given_at_the_start() -> None:
    with SimulatorThread(timing=INSTANT, script=[Turn(fault=Fault(kind="status", status=418))]) as simulator:
        assert post(simulator.origin, "/v1/messages", {}).status == 418
        assert post(simulator.origin, "/v1/messages", MESSAGES).status == 200


def test_a_script_of_something_else_is_refused_where_it_is_given(simulator: SimulatorThread) -> None:
    wrong: Any = {"text": "hi"}
    with pytest.raises(TypeError, match="turn 1 is dict, expected Turn"):
        simulator.script_next(Turn(), wrong)
    with pytest.raises(TypeError, match="turn 0 is dict, expected Turn"):
        Simulator(script=[wrong])


@PATHS
def test_a_request_may_bring_its_own_turn(simulator: SimulatorThread, path: str) -> None:
    simulator.script_next(Turn(text="scripted"))
    own = Turn(text="its own", headers={"X-Models-Etag": "v7"})
    answer = post(simulator.origin, path, BODIES[path], {"x-simulator-turn": own.model_dump_json(exclude_unset=True)})
    assert b"its own" in answer.body
    assert answer.headers["x-models-etag"] == "v7"
    assert b"scripted" in post(simulator.origin, path, BODIES[path]).body


@PATHS
def test_a_bad_turn_in_a_header_is_refused_with_its_field(simulator: SimulatorThread, path: str) -> None:
    answer = post(simulator.origin, path, BODIES[path], {"x-simulator-turn": '{"fault": {"kind": "explode"}}'})
    assert answer.status == 400
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert "x-simulator-turn" in answer.json["error"]["message"]
    assert "fault.kind = 'explode'" in answer.json["error"]["message"]


def test_a_large_turn_fits_a_header(simulator: SimulatorThread) -> None:
    own = json.dumps({"text": "x" * 30_000})
    answer = post(simulator.origin, "/v1/messages", MESSAGES, {"x-simulator-turn": own})
    assert answer.json["content"][0]["text"] == "x" * 30_000


def test_halves_of_a_character_do_no_harm(simulator: SimulatorThread) -> None:
    body = json.dumps({**CHAT, "model": "m\ud83d", "messages": [{"role": "user", "content": "\ude00 why"}]}).encode()
    answer = post(simulator.origin, "/v1/chat/completions", body)
    assert answer.status == 200
    assert answer.json["model"] == "m?"


def test_a_scripted_answer_keeps_characters_whole(simulator: SimulatorThread) -> None:
    text = "Zürich 東京 👩‍🚀\u2028end"
    calls = (ToolCall(name="f", arguments={"город": "Бern"}),)
    simulator.script_next(Turn(text=text, tool_calls=calls, delta_chars=1))
    frames = post(simulator.origin, "/v1/messages", {**MESSAGES, "stream": True}).data
    deltas = [frame["delta"] for frame in frames if frame["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == text
    assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == {"город": "Бern"}


def test_a_client_that_leaves_frees_its_handler() -> None:
    slow = Timing(time_to_first_token_s=3600.0, tokens_per_second=0.001)
    with SimulatorThread(timing=slow) as simulator:
        for number, path in enumerate(BODIES, start=1):
            for stream in (True, False):
                with posting(simulator.origin, path, {**BODIES[path], "stream": stream}):
                    simulator.wait_received(2 * number - stream)
                    assert simulator.active_count == 1
                simulator.wait_idle()


async def test_stopping_ends_what_is_still_running() -> None:
    async with Simulator(timing=INSTANT, script=[Turn(fault=Fault(kind="silent"))]) as simulator:
        address = urlsplit(simulator.origin)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        await simulator.wait_received(1)
        assert simulator.active_count == 1
    assert simulator.active_count == 0
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def test_requests_are_answered_side_by_side() -> None:
    async with Simulator(timing=INSTANT, script=[Turn(fault=Fault(kind="stall"))]) as simulator:
        stalled = asyncio.open_connection("127.0.0.1", urlsplit(simulator.origin).port)
        _, writer = await stalled
        raw = json.dumps({**MESSAGES, "stream": True}).encode()
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
        writer.write(head.encode() + raw)
        await simulator.wait_received(1)
        async with anthropic.AsyncAnthropic(api_key="dummy", base_url=simulator.origin, max_retries=0) as client:
            question: Any = MESSAGES["messages"]
            message = await client.messages.create(model="m", max_tokens=64, messages=question)
            assert message.stop_reason == "end_turn" or message.stop_reason == "max_tokens"
        assert simulator.active_count == 1
        writer.close()
        await writer.wait_closed()
        await simulator.wait_idle()


async def test_a_taken_port_is_an_error_of_the_caller() -> None:
    async with Simulator() as first:
        port = urlsplit(first.origin).port
        assert port is not None
        with pytest.raises(OSError, match=str(port)):
            async with Simulator(port=port):
                pass
        with pytest.raises(OSError, match=str(port)), SimulatorThread(port=port):
            pass


def test_there_is_no_address_outside() -> None:
    simulator = SimulatorThread()
    with pytest.raises(RuntimeError, match="before it is entered"):
        _ = simulator.base_url
    with pytest.raises(RuntimeError, match="does not run"):
        simulator.wait_idle()
    with simulator:
        assert simulator.base_url == f"{simulator.origin}/v1"
        with pytest.raises(RuntimeError, match="runs already"):
            simulator.__enter__()


def test_the_pace() -> None:
    timing = Timing(time_to_first_token_s=2.0, tokens_per_second=10.0, jitter=0.0)
    pacer = Pacer(timing, Random(0), token_count=40, delta_count=20)
    assert [pacer.before_delta_s() for _ in range(3)] == pytest.approx([2.0, 0.2, 0.2])
    assert pacer.whole_s() == pytest.approx(6.0)
    jittered = Pacer(timing.model_copy(update={"jitter": 0.5}), Random(0), token_count=40, delta_count=20)
    waits = [jittered.before_delta_s() for _ in range(200)][1:]
    assert 0.1 <= min(waits) < 0.15
    assert 0.25 < max(waits) <= 0.3


def test_no_pace_at_all() -> None:
    pacer = Pacer(Timing.instant(), Random(0), token_count=40, delta_count=20)
    assert [pacer.before_delta_s(), pacer.before_delta_s(), pacer.whole_s()] == [0.0, 0.0, 0.0]
    assert Pacer(Timing.instant(), Random(0), token_count=0, delta_count=0).whole_s() == 0.0


def test_the_fixture_answers_at_once_with_seed_0(simulator: SimulatorThread) -> None:
    with SimulatorThread(seed=0, timing=INSTANT) as other:
        assert post(simulator.origin, "/v1/messages", MESSAGES).raw == post(other.origin, "/v1/messages", MESSAGES).raw
