"""Hazards of the original that no other test shows, by their numbers in docs/reference/behaviours.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from loopback import Loopback, answering
from reactivex import Observable, abc
from reactivex.disposable import Disposable
from reactivex.testing import TestScheduler
from scripted_transport import END, ScriptedTransport, Seen, Step, arriving, head, run
from wires import BACKENDS, CHAT_USAGE, DONE, answer, chat, named, opening, response, text

from rx_sampler import (
    Completed,
    Failed,
    RetryPolicy,
    Sampler,
    SamplerConfig,
    SamplingEvent,
    SamplingRequest,
)
from rx_sampler.wire.transport import Connected, Prepare, Wire


def config(backend: str = "chat_completions", **fields: Any) -> SamplerConfig:
    given = {"base_url": "http://api.test/v1", "model": "m", "backend": backend, "retry": RetryPolicy(jitter=0)}
    return SamplerConfig.model_validate({**given, **fields})


def ask(transport: ScriptedTransport, backend: str = "chat_completions", **fields: Any) -> Seen:
    sampler = Sampler(config(backend, **fields), transport=transport)
    return run(lambda: sampler.stream("hi", request_id="r"))


def completed(seen: Seen) -> Completed:
    end = seen.events[-1]
    assert isinstance(end, Completed), end
    return end


def failed(seen: Seen) -> Failed:
    end = seen.events[-1]
    assert isinstance(end, Failed), end
    return end


def incomplete(reason: str, *output: dict[str, Any]) -> bytes:
    fields: dict[str, Any] = {"incomplete_details": {"reason": reason}}
    return named({"type": "response.incomplete", "response": response("incomplete", list(output), **fields)})


REFUSAL: Final[dict[str, Any]] = {
    "type": "message",
    "id": "item_1",
    "role": "assistant",
    "content": [{"type": "refusal", "refusal": "I will not."}],
}


@pytest.mark.parametrize(
    "frames",
    [
        [named({"type": "response.completed", "response": response("completed", [REFUSAL])})],
        [incomplete("content_filter")],
        [*opening("responses"), text("responses", "Well, "), incomplete("content_filter")],
    ],
    ids=["refusal", "filtered before a word", "filtered amid the text"],
)
def test_h6_a_refused_or_filtered_response_is_an_answer(frames: list[bytes]) -> None:
    transport = ScriptedTransport(arriving(frames))
    assert completed(ask(transport, "responses", on_length="fail")).response.stop_reason == "content_filter"
    assert len(transport.requests) == 1


@pytest.mark.parametrize(("type_", "requests"), [("invalid_request_error", 1), ("overloaded_error", 2)])
def test_h11_an_error_in_the_stream_is_retried_only_if_its_type_says_so(type_: str, requests: int) -> None:
    error = named({"type": "error", "error": {"type": type_, "message": "no"}})
    transport = ScriptedTransport(
        arriving([*opening("messages"), error]), *[arriving(answer("messages", "ok"))] * (requests - 1)
    )
    ask(transport, "messages")
    assert len(transport.requests) == requests


@pytest.mark.parametrize("backend", BACKENDS)
async def test_h17_each_header_is_sent_once_and_the_requests_own_value_wins(backend: str) -> None:
    request = SamplingRequest.of("hi").model_copy(
        update={"extra_headers": {"X-Deployment-Id": "mine", "User-Agent": "mine/1"}}
    )
    async with Loopback(answering(answer(backend, "ok"))) as server:
        settings: dict[str, Any] = {"extra_headers": {"x-deployment-id": "shared", "x-user-id": "u"}, "api_key": "k"}
        async with Sampler(config(backend, base_url=server.base_url, **settings)) as sampler:
            await sampler.collect(request)
        sent = server.exchanges[0]
    assert len(set(sent.header_names)) == len(sent.header_names)
    assert (sent.headers["x-deployment-id"], sent.headers["x-user-id"]) == ("mine", "u")
    assert sent.headers["user-agent"] == "mine/1"


CALL: Final = ("call_1", "look_up", '{"word": "hal')


def cut_call(backend: str) -> list[bytes]:
    """A tool call whose arguments the token limit cut, as each wire tells it."""
    call_id, name, arguments = CALL
    if backend == "chat_completions":
        call = {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        return [chat({"tool_calls": [call]}), chat({}, "length"), CHAT_USAGE, DONE]
    if backend == "responses":
        item = {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": name, "status": "incomplete"}
        return [
            named({"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}}),
            named({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": arguments}),
            named({"type": "response.output_item.done", "output_index": 0, "item": {**item, "arguments": arguments}}),
            incomplete("max_output_tokens", {**item, "arguments": arguments}),
        ]
    block: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": arguments}
    return [
        opening("messages")[0],
        named({"type": "content_block_start", "index": 0, "content_block": block}),
        named({"type": "content_block_delta", "index": 0, "delta": delta}),
        named({"type": "content_block_stop", "index": 0}),
        named({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 7}}),
        named({"type": "message_stop"}),
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_h21_a_call_that_the_limit_cut_is_the_same_on_all_wires_and_never_a_valid_one(backend: str) -> None:
    answered = completed(ask(ScriptedTransport(arriving(cut_call(backend))), backend)).response
    (call,) = answered.tool_calls
    assert (answered.stop_reason, (call.id, call.name, call.arguments), call.complete) == ("length", CALL, False)
    strict = failed(ask(ScriptedTransport(arriving(cut_call(backend))), backend, on_length="fail"))
    assert strict.error.kind == "max_tokens_truncation"
    assert strict.partial == answered


class InStep:
    """A transport that hands over one frame and then looks at what came of it."""

    def __init__(self, frames: list[bytes], look: Callable[[], object]) -> None:
        self._frames = frames
        self._look = look

    def post(
        self,
        prepare: Prepare,  # noqa: ARG002  # of the protocol
        is_over: Callable[[], bool] = lambda: False,  # noqa: ARG002  # of the protocol
    ) -> Observable[Wire]:
        def subscribe(
            observer: abc.ObserverBase[Wire], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            assert scheduler is not None

            def play(_scheduler: abc.SchedulerBase, _state: object = None) -> None:
                observer.on_next(Connected())
                observer.on_next(head())
                for frame in self._frames:
                    observer.on_next(frame)
                    self._look()

            scheduler.schedule(play)
            return Disposable()

        return Observable(subscribe)

    def open(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def test_h22_nothing_is_queued_between_the_socket_and_its_subscribers() -> None:
    # A read returns when everybody was told of what it brought, so a slow subscriber slows the reading down: what
    # waits, waits in the socket. What late subscribers may ask for is bounded in test_actor.py.
    count = 50
    seen: list[str] = []
    told: list[int] = []
    scheduler = TestScheduler()
    transport = InStep([text("chat_completions", "w")] * count, lambda: told.append(seen.count("channel_token")))
    sampler = Sampler(config(), transport=transport, scheduler=scheduler)

    def note(event: SamplingEvent) -> None:
        seen.append(event.kind)

    sampler.events.subscribe(note)
    request_id = sampler.submit("hi")
    scheduler.advance_to(1)
    assert told == list(range(1, count + 1))
    sampler.cancel(request_id)
    assert seen[-1] == "failed"


@pytest.mark.parametrize("body", [b"", b"x" * 1_000_000], ids=["no body", "longer than is read"])
def test_h24_a_refused_credential_keeps_what_its_headers_tell(body: bytes) -> None:
    headers = {"retry-after": "7", "x-request-id": "req_1", "x-grok-context-window": "8", "x-should-retry": "false"}
    script: list[Step] = [(0, Connected()), (1, head(401, headers)), (2, body), (3, END)]
    error = failed(ask(ScriptedTransport(script), api_key="a-key-of-ours")).error
    assert (error.kind, error.status, error.credential) == ("auth", 401, "sent")
    assert (error.retry_after_s, error.should_retry, error.provider_request_id) == (7.0, False, "req_1")
    assert error.model_metadata == {"context_window": 8}
