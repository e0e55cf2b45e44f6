"""The conversation that a loop leaves, and the loop as one awaitable."""

from __future__ import annotations

import asyncio

import pytest

from rx_sampler import SamplingError, SamplingErrorKind, SamplingRequest, SystemItem, ToolCall, Usage
from rx_sampler.conversation import ToolResultItem, UserItem
from rx_sampler.tools import ToolsResult, collect_tools, conversation, run_tools, total_usage

from .plays import Server, calling, played, saying


async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"{seconds:g}"


TWO_WAITS = calling(("wait", '{"seconds": 2}'), ("wait", '{"seconds": 1}'))


def test_the_conversation_grows_with_each_answer_and_its_results() -> None:
    asked = SamplingRequest.user("go", system="Be brief.")

    async def play() -> tuple[Server, list[SamplingRequest]]:
        server = Server(TWO_WAITS, calling(("wait", '{"seconds": 3}')), saying("done"))
        grown: list[SamplingRequest] = []
        ended = asyncio.get_running_loop().create_future()
        run_tools(server.sampler(), asked, [wait]).pipe(conversation(asked)).subscribe(
            grown.append, ended.set_exception, lambda: ended.set_result(None)
        )
        await ended
        return server, grown

    server, grown = played(play)
    assert [[item.type for item in request.items[2:]] for request in grown] == [
        ["tool_call", "tool_call"],
        ["tool_call", "tool_call", "tool_result", "tool_result"],
        ["tool_call", "tool_call", "tool_result", "tool_result", "tool_call"],
        ["tool_call", "tool_call", "tool_result", "tool_result", "tool_call", "tool_result"],
        ["tool_call", "tool_call", "tool_result", "tool_result", "tool_call", "tool_result", "text"],
    ]
    last = grown[-1]
    assert last.items[:2] == (SystemItem(content="Be brief."), UserItem.model_validate({"content": "go"}))
    results = [item for item in last.items if isinstance(item, ToolResultItem)]
    assert [(one.tool_call_id, one.content) for one in results] == [("c0", "2"), ("c1", "1"), ("c0", "3")]
    assert last.tools == ()
    # the last but one is what the last turn was asked with
    assert len(server.requests[-1]["messages"]) == 2 + 1 + 2 + 1 + 1


def test_collect_gives_answer_conversation_turns_and_the_whole_bill() -> None:
    async def play() -> tuple[Server, ToolsResult, ToolsResult]:
        server = Server(TWO_WAITS, saying("done"), saying("again"))
        sampler = server.sampler()
        result = await collect_tools(sampler, "go", [wait], request_id="r")
        more = await collect_tools(sampler, [*result.conversation.items, UserItem.model_validate({"content": "and?"})])
        return server, result, more

    server, result, more = played(play)
    assert result.response.text == "done"
    first, second = result.turns
    assert (first.request_id, second.request_id) == ("r:1", "r:2")
    assert [call.id for call in first.response.tool_calls] == ["c0", "c1"]
    assert [one.content for one in first.results] == ["2", "1"]
    assert second.results == ()
    assert first.metrics.time_to_last_byte_ms is not None
    assert result.usage == Usage(input_tokens=10, output_tokens=14, total_tokens=24)
    assert result.cost_usd is None
    assert more.response.text == "again"
    roles = [message["role"] for message in server.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user"]


def test_a_failure_is_raised_with_its_cause() -> None:
    async def play() -> SamplingError:
        broken = SamplingError.of(SamplingErrorKind.HTTP, "the connection broke")
        server = Server(TWO_WAITS, broken)
        with pytest.raises(SamplingError) as raised:
            await collect_tools(server.sampler(), "go", [wait])
        return raised.value

    assert played(play).kind is SamplingErrorKind.HTTP


@pytest.mark.parametrize("after_s", [0.5, 2.5, 4.5])
def test_cancelling_the_awaiting_task_ends_everything(after_s: float) -> None:
    async def play() -> Server:
        server = Server(TWO_WAITS, saying("done"))
        task = asyncio.create_task(collect_tools(server.sampler(), "go", [wait]))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert server.open_count == 0
        return server

    assert len(played(play).requests) == (2 if after_s > 4 else 1)


def test_max_turns_leaves_calls_without_results() -> None:
    async def play() -> tuple[ToolCall, ...]:
        server = Server(TWO_WAITS)
        result = await collect_tools(server.sampler(), "go", [wait], max_turns=1)
        assert result.turns[0].results == ()
        assert result.conversation.items[1:] == result.response.items
        return result.response.tool_calls

    assert [call.name for call in played(play)] == ["wait", "wait"]


def test_usage_is_summed_and_stays_unknown_where_nobody_tells() -> None:
    assert total_usage([None, None]) is None
    one = Usage(input_tokens=1, output_tokens=2, total_tokens=3, cached_input_tokens=1, wire={"a": 1})
    two = Usage(input_tokens=10, output_tokens=20, total_tokens=30, reasoning_tokens=5)
    assert total_usage([one, None, two]) == Usage(
        input_tokens=11, output_tokens=22, total_tokens=33, cached_input_tokens=1, reasoning_tokens=5
    )
