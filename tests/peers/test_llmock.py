"""Against llmock, a mock of the providers' APIs that breaks on demand. One attempt each: what fails stays visible."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from rx_sampler import Sampler, SamplingError, SamplingErrorKind, SamplingRequest, ToolSpec, UserItem

from .answers import BACKENDS, Answer, unstreamed
from .llmocks import config_of, script
from .streams import completed, failed

if TYPE_CHECKING:
    from llmock.testing import LLMockServer

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

LONG_S = 3.0  # much more than the limits below; llmock sleeps it out before it can be stopped
SAID = "One two three four five."
# How many events each format has before the first piece of text (llmock sends a piece per word).
OPENING_EVENTS = {"chat_completions": 1, "responses": 4, "messages": 3}


@pytest.fixture(scope="module")
def running() -> Generator[LLMockServer]:
    pytest.importorskip("llmock", reason="llmock is not installed")
    from llmock.testing import LLMockServer

    with LLMockServer() as server:
        yield server


@pytest.fixture
def mock(running: LLMockServer) -> Generator[LLMockServer]:
    running.state.reset()
    yield running
    running.state.reset()


def says(text: str = SAID) -> dict[str, Any]:
    return {"type": "reply", "text": text}


def breaks(kind: str, backend: str, *, pieces: int = 2, **fields: Any) -> dict[str, Any]:
    """A fault right after that many pieces of text."""
    return {"type": "stream_fault", "kind": kind, "after_chunks": OPENING_EVENTS[backend] + pieces, **fields}


async def test_an_answer(mock: LLMockServer, backend: str) -> None:
    script(mock, says())
    response = (await completed("hi", config_of(mock, backend))).response

    assert response.text == SAID
    assert response.stop_reason == "stop"
    assert response.usage is not None
    assert response.usage.output_tokens == len(SAID) // 4  # how llmock counts
    assert response.model == "toy"


@pytest.mark.parametrize("question", ["hi", "why is the sky blue?", "漢字 🚀"])
async def test_streamed_equals_unstreamed(mock: LLMockServer, backend: str, question: str) -> None:
    request = SamplingRequest.of(question)
    config = config_of(mock, backend)

    assert Answer.of((await completed(request, config)).response) == await unstreamed(request, config)


async def test_tool_calls(mock: LLMockServer, backend: str) -> None:
    calls: list[dict[str, Any]] = [
        {"name": "weather", "arguments": {"city": "Paris"}},
        {"name": "clock", "arguments": {}},
    ]
    script(mock, {"type": "reply", "text": "Let me see.", "tool_calls": calls})
    request = SamplingRequest(
        items=(UserItem.model_validate({"content": "hi"}),), tools=(ToolSpec(name="weather"), ToolSpec(name="clock"))
    )
    response = (await completed(request, config_of(mock, backend))).response

    assert response.text == "Let me see."
    assert [(call.name, call.arguments_json, call.complete) for call in response.tool_calls] == [
        ("weather", {"city": "Paris"}, True),
        ("clock", {}, True),
    ]
    assert response.stop_reason == "tool_calls"


async def test_a_tool_call_with_broken_arguments_is_flagged(mock: LLMockServer, backend: str) -> None:
    script(
        mock,
        {"type": "reply", "tool_calls": [{"name": "weather", "arguments": {"city": "Paris"}}]},
        {"type": "tool_fault", "kind": "malformed_arguments"},
    )
    request = SamplingRequest(items=SamplingRequest.of("hi").items, tools=(ToolSpec(name="weather"),))
    (call,) = (await completed(request, config_of(mock, backend))).response.tool_calls

    sent = '{"city": "Paris"}'
    assert call.arguments == sent[: len(sent) // 2]  # what llmock does to them
    assert not call.complete


@pytest.mark.parametrize(
    ("reason", "stop_reason"), [("length", "length"), ("content_filter", "content_filter"), ("novel", "stop")]
)
async def test_other_ends(mock: LLMockServer, backend: str, reason: str, stop_reason: str) -> None:
    if backend == "responses" and reason != "length":
        pytest.skip("llmock's responses know no other end")
    script(mock, {**says(), "finish_reason": reason})
    response = (await completed("hi", config_of(mock, backend))).response

    assert response.stop_reason == stop_reason
    assert response.text == SAID


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, SamplingErrorKind.API, False),
        (401, SamplingErrorKind.AUTH, False),
        (403, SamplingErrorKind.API, False),
        (404, SamplingErrorKind.API, False),
        (408, SamplingErrorKind.API, True),
        (413, SamplingErrorKind.API, False),
        (422, SamplingErrorKind.API, False),
        (429, SamplingErrorKind.RATE_LIMITED, True),
        (500, SamplingErrorKind.API, True),
        (501, SamplingErrorKind.API, False),
        (503, SamplingErrorKind.API, True),
        (529, SamplingErrorKind.API, True),
    ],
)
async def test_a_status(
    mock: LLMockServer, backend: str, status: int, kind: SamplingErrorKind, retryable: bool
) -> None:
    script(mock, {"type": "fail", "status": status, "message": "So it goes."})
    end = await failed("hi", config_of(mock, backend))

    assert (end.error.kind, end.error.status, end.error.is_retryable) == (kind, status, retryable)
    assert end.error.message == "So it goes."
    assert end.partial is None
    assert end.error.credential == ("sent" if status == 401 else "unknown")


@pytest.mark.parametrize("status", [429, 503])
async def test_a_wait_is_told_and_each_request_is_sent_once(mock: LLMockServer, backend: str, status: int) -> None:
    script(mock, {"type": "fail", "status": status, "retry_after": 7, "times": 2}, says())
    waits: list[float | None] = []
    async with Sampler(config_of(mock, backend)) as sampler:
        for _ in range(2):
            with pytest.raises(SamplingError) as caught:
                await sampler.collect("hi")
            waits.append(caught.value.info.retry_after_s)
        result = await sampler.collect("hi")

    assert waits == [7, 7]
    assert result.response.text == SAID
    assert [record.status for record in mock.state.journal.records(wait=2.0)] == [status, status, 200]


async def test_a_full_context(mock: LLMockServer, backend: str) -> None:
    message = "This model's maximum context length was exceeded."
    script(mock, {"type": "fail", "status": 400, "code": "context_length_exceeded", "message": message})
    end = await failed("hi", config_of(mock, backend))

    assert end.error.kind is SamplingErrorKind.API
    assert end.error.is_context_overflow
    assert not end.error.is_retryable


@pytest.mark.parametrize("fault", ["truncate", "disconnect"])
async def test_a_stream_that_breaks(mock: LLMockServer, backend: str, fault: str) -> None:
    script(mock, says(), breaks(fault, backend))
    end = await failed("hi", config_of(mock, backend))

    assert (end.error.kind, end.error.is_retryable, end.error.status) == (SamplingErrorKind.HTTP, True, None)
    assert end.partial is not None
    assert end.partial.text == "One two "
    assert end.partial.stop_reason is None


async def test_an_event_that_is_no_json(mock: LLMockServer, backend: str) -> None:
    script(mock, says(), breaks("malformed", backend))
    end = await failed("hi", config_of(mock, backend))

    assert (end.error.kind, end.error.is_retryable, end.error.status) == (SamplingErrorKind.SERIALIZATION, False, None)
    assert end.partial is not None
    assert end.partial.text == "One two four five."  # what can be read is read; the broken event held "three "


@pytest.mark.parametrize("fault", ["truncate", "disconnect"])
async def test_a_stream_that_breaks_before_its_first_event(mock: LLMockServer, backend: str, fault: str) -> None:
    script(mock, says(), {"type": "stream_fault", "kind": fault, "after_chunks": 0})
    end = await failed("hi", config_of(mock, backend))

    assert (end.error.kind, end.error.is_retryable) == (SamplingErrorKind.HTTP, True)
    assert end.partial is None


async def test_a_stream_cut_after_all_of_its_text(mock: LLMockServer, backend: str) -> None:
    script(mock, says(), breaks("truncate", backend, pieces=5))
    end = await failed("hi", config_of(mock, backend))

    assert (end.error.kind, end.error.is_retryable) == (SamplingErrorKind.HTTP, True)
    assert end.partial is not None
    assert end.partial.text == SAID


async def test_a_tool_call_that_is_cut(mock: LLMockServer, backend: str) -> None:
    call = {"name": "weather", "arguments": {"city": "Paris", "unit": "celsius"}}
    # Without text the call follows at once: its opening event and a fragment of twelve characters come through.
    before = {"chat_completions": 1, "responses": 2, "messages": 1}[backend]
    script(
        mock,
        {"type": "reply", "tool_calls": [call]},
        {"type": "stream_fault", "kind": "truncate", "after_chunks": before + 2},
    )
    request = SamplingRequest(items=SamplingRequest.of("hi").items, tools=(ToolSpec(name="weather"),))
    end = await failed(request, config_of(mock, backend))

    assert end.error.kind is SamplingErrorKind.HTTP
    assert end.partial is not None
    (partial,) = end.partial.tool_calls
    assert (partial.name, partial.arguments, partial.complete) == ("weather", '{"city": "Pa', False)


@pytest.mark.parametrize("limit", ["idle_timeout_s", "content_idle_timeout_s", "deadline_s"])
async def test_a_stream_that_stalls(mock: LLMockServer, backend: str, limit: str) -> None:
    script(mock, says(), breaks("stall", backend, stall_seconds=LONG_S))
    end = await failed("hi", config_of(mock, backend, **{limit: 0.3}))

    assert end.error.kind is SamplingErrorKind.IDLE_TIMEOUT
    assert not end.error.is_retryable
    assert end.partial is not None
    assert end.partial.text == "One two "


async def test_a_first_token_that_is_late(mock: LLMockServer, backend: str) -> None:
    script(mock, says(), {"type": "slow_first_token", "seconds": LONG_S})
    end = await failed("hi", config_of(mock, backend, idle_timeout_s=0.2))

    assert end.error.kind is SamplingErrorKind.IDLE_TIMEOUT
    assert end.partial is None
    assert end.metrics.time_to_stream_started_ms is not None
    assert end.metrics.time_to_first_token_ms is None


async def test_a_first_token_that_is_slow_but_in_time(mock: LLMockServer, backend: str) -> None:
    script(mock, says(), {"type": "slow_first_token", "seconds": 0.1})
    end = await completed("hi", config_of(mock, backend, idle_timeout_s=30))

    assert end.response.text == SAID
    assert end.metrics.time_to_first_token_ms is not None


async def test_headers_that_do_not_come(mock: LLMockServer, backend: str) -> None:
    script(mock, {"type": "delay", "seconds": LONG_S})
    end = await failed("hi", config_of(mock, backend, header_timeout_s=0.2))

    assert (end.error.kind, end.error.code, end.error.status) == (SamplingErrorKind.HTTP, "header_timeout", None)
    assert end.error.is_retryable
    assert end.partial is None
    assert end.metrics.time_to_stream_started_ms is None


async def test_the_mock_s_own_verdict_on_whole_answers(mock: LLMockServer, backend: str) -> None:
    from llmock.verdict import judge

    async with Sampler(config_of(mock, backend)) as sampler:
        for _ in range(3):
            await sampler.collect("hi")
    records = mock.state.journal.records(wait=2.0)

    assert [(record.status, record.completed) for record in records] == [(200, True)] * 3
    judge(records).assert_ok(strict=True)
