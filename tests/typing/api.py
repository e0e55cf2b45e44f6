"""Every public name as a user would use it: checked by mypy and pyright, and run as a script. It needs no network."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, assert_never, assert_type

import reactivex as rx
from pydantic import BaseModel
from reactivex import Observable
from reactivex import operators as ops

from rx_sampler import (
    PRESETS,
    Action,
    AnnotationAdded,
    AssistantItem,
    Backend,
    BackendToolCallCompleted,
    BackendToolCallItem,
    BackendToolCallStarted,
    BlockingSampler,
    ChannelToken,
    ChatDialect,
    Completed,
    Decision,
    DoomLoopPolicy,
    DoomLoopSignals,
    EmptyResponseContext,
    Failed,
    FirstToken,
    FunctionChoice,
    GrokHeaders,
    HostedTool,
    ImagePart,
    ImagesStripped,
    Item,
    LatencyMetrics,
    LoopDetection,
    LoopTimeScheduler,
    Machine,
    MessagesDialect,
    ModelMetadata,
    OpaqueItem,
    Preset,
    PythonFunction,
    RateLimit,
    ReasoningCompleted,
    ReasoningItem,
    RefusalItem,
    RequestFacts,
    RequestId,
    RequestWatch,
    ResponseItem,
    ResponsesDialect,
    ResponseStarted,
    RetryBudget,
    Retrying,
    RetryPolicy,
    RetryState,
    Sampler,
    SamplerActor,
    SamplerConfig,
    SamplerHandle,
    SamplerObserver,
    SamplingError,
    SamplingErrorInfo,
    SamplingErrorKind,
    SamplingEvent,
    SamplingRequest,
    SamplingResponse,
    SamplingResult,
    SharedLimits,
    SseFrame,
    StreamStarted,
    SystemItem,
    TextItem,
    TextPart,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolIdRule,
    ToolResultAdded,
    ToolResultItem,
    ToolSpec,
    Usage,
    UserItem,
    VendorHeaders,
    WebSearch,
    XSearch,
    blocking,
    classify,
    collect_tools,
    event_from_json,
    event_json_schema,
    event_to_json,
    failures_as_events,
    get_backend,
    known_provider,
    operators,
    output_schema,
    retrying,
    run_tools,
    sampling_events,
    sse_frames,
    through,
    typed_chunks,
)

READS: Sequence[bytes] = (
    b'data: {"id": "c", "model": "toy-1", "choices": [{"index": 0, "delta": {"content": "Hel"}}]}\n\nda',
    b'ta: {"id": "c", "model": "toy-1", "choices": [{"index": 0, "delta": {"content": "lo"}}]}\n\n',
    b'data: {"id": "c", "model": "toy-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n',
    b"data: [DONE]\n\n",
)


def offline(reads: Iterable[bytes]) -> Observable[SamplingEvent]:
    """A recording becomes events: the element type is inferred at each stage and through the whole pipe."""
    frames = rx.from_iterable(reads).pipe(sse_frames(max_frame_bytes=2**20))
    assert_type(frames, Observable[SseFrame])
    chunks = frames.pipe(typed_chunks("chat_completions"))
    assert_type(chunks, Observable[Any])
    events = chunks.pipe(sampling_events("chat_completions", request_id="r", attempt=1, split_think_tags=False))
    assert_type(events, Observable[SamplingEvent])
    whole = rx.from_iterable(reads).pipe(
        sse_frames(), typed_chunks("chat_completions"), sampling_events("chat_completions"), failures_as_events()
    )
    assert_type(whole, Observable[SamplingEvent])
    return whole


def is_text(event: SamplingEvent) -> bool:
    return isinstance(event, ChannelToken) and event.channel == "text"


def words(event: SamplingEvent) -> str:
    return event.text if isinstance(event, ChannelToken) else ""


def text_only(events: Observable[SamplingEvent]) -> Observable[str]:
    texts = events.pipe(ops.filter(is_text), ops.map(words))
    assert_type(texts, Observable[str])
    return texts


def told(event: SamplingEvent) -> str:
    """One line about any event: the union is closed, so a checker knows when one is forgotten."""
    match event:
        case StreamStarted():
            return f"attempt {event.attempt} accepted"
        case ResponseStarted():
            return f"{event.model} {event.message_id} {event.input_tokens}"
        case ModelMetadata():
            return ", ".join(limit.name for limit in event.rate_limits)
        case FirstToken():
            return f"first on {event.channel}"
        case ChannelToken():
            return event.text
        case ReasoningCompleted():
            return f"{len(event.signature)} characters of signature"
        case ToolCallDelta():
            return f"{event.tool_index} {event.id} {event.name} {event.arguments_delta}"
        case ToolResultAdded():
            return f"{event.name} gave {event.result.content} in {event.duration_ms:.0f} ms, for turn {event.turn}"
        case BackendToolCallStarted():
            return f"{event.name} began"
        case BackendToolCallCompleted():
            return f"{event.name} gave {event.result}"
        case AnnotationAdded():
            return f"{event.annotation} at {event.offset}"
        case ImagesStripped():
            return f"{len(event.stripped_urls)} images removed: {event.reason}"
        case DoomLoopSignals():
            return ", ".join(event.triggers)
        case Retrying():
            return f"again in {event.backoff_s:.1f} s ({event.retry} of {event.max_retries}): {event.reason}"
        case Completed():
            return event.response.text
        case Failed():
            return str(event.to_error())
        case _:
            assert_never(event)


def every_event() -> list[SamplingEvent]:
    def stamp() -> dict[str, Any]:
        return {"request_id": "r", "attempt": 1, "ts": 1.0}

    return [
        StreamStarted(request_id="r", attempt=1, ts=1.0),
        ResponseStarted(**stamp(), model="m"),
        ModelMetadata(**stamp(), rate_limits=(RateLimit(name="tokens", limit=5, remaining=4, reset_after_s=1.5),)),
        FirstToken(**stamp(), channel="text"),
        ChannelToken(request_id="r", attempt=1, ts=1.0, channel="text", text="t", chunk_index=1),
        ReasoningCompleted(**stamp(), signature="s"),
        ToolCallDelta(**stamp(), tool_index=0, id="c", name="f"),
        ToolResultAdded(
            **stamp(),
            turn=2,
            tool_call_id="c",
            name="f",
            result=ToolResultItem(tool_call_id="c", content="rain"),
            duration_ms=2.0,
        ),
        BackendToolCallStarted(**stamp(), call_id="c", name="web_search"),
        BackendToolCallCompleted(**stamp(), call_id="c", name="web_search"),
        AnnotationAdded(**stamp(), annotation={"url": "https://example.org"}),
        ImagesStripped(**stamp(), stripped_urls=("https://example.org/i.png",), reason="server_rejected"),
        DoomLoopSignals(**stamp(), triggers=("low_logprob@final",)),
        Retrying(
            **stamp(),
            next_attempt=2,
            retry=1,
            max_retries=15,
            budget="transport",
            error_kind=SamplingErrorKind.HTTP,
            reason="the connection broke",
            backoff_s=2.0,
        ),
        Completed(**stamp(), response=SamplingResponse(), metrics=LatencyMetrics()),
        Failed(**stamp(), error=SamplingErrorInfo(kind=SamplingErrorKind.HTTP, message="the connection broke")),
    ]


def through_json(events: Iterable[SamplingEvent]) -> None:
    for event in events:
        line = event_to_json(event)
        assert_type(line, str)
        back = event_from_json(line)
        assert_type(back, SamplingEvent)
        assert back == event
    schema = event_json_schema()
    assert_type(schema, Mapping[str, Any])
    assert schema["discriminator"]["propertyName"] == "kind"


def request() -> SamplingRequest:
    """A conversation with an item of each kind, and every option that has a type of its own."""
    answered: list[ResponseItem] = [
        ReasoningItem(text="hm", signature="s"),
        TextItem(text="let me see"),
        BackendToolCallItem(call_id="w", name="web_search"),
        ToolCall(id="c", name="weather", arguments='{"city": "Basel"}'),
        RefusalItem(text="not that"),
        OpaqueItem(wire={"type": "compaction"}),
    ]
    items: list[Item] = [
        SystemItem(content="be brief"),
        UserItem(content=[TextPart(text="look"), ImagePart(url="https://example.org/i.png")]),
        AssistantItem(content="a picture"),
        *answered,
        ToolResultItem(tool_call_id="c", content="rain"),
    ]
    return SamplingRequest(
        items=tuple(items),
        tools=(ToolSpec(name="weather", description="the weather", parameters={"type": "object"}),),
        hosted_tools=(HostedTool(type="file_search"), WebSearch(allowed_domains=["example.org"]), XSearch()),
        tool_choice=FunctionChoice(name="weather"),
        reasoning_effort="low",
        temperature=0.5,
        extra_body={"seed": 7},
    )


class Forecast(BaseModel):
    celsius: float


def weather(city: str) -> str:
    return city


def next_turn(response: SamplingResponse) -> SamplingRequest:
    asked = SamplingRequest.user("Rain?", ImagePart(url="https://example.org/i.png")).with_tools(weather)
    asked = asked.with_hosted_tools(web_search=None, x_search=XSearch()).with_output(Forecast)
    assert asked.json_schema == output_schema(Forecast)
    assert_type(response.parsed(Forecast), Forecast)
    assert_type([call.parsed(Forecast) for call in response.tool_calls], list[Forecast])
    following = asked.then(response, ToolResultItem(tool_call_id="c", content="rain"), "And tomorrow?")
    assert_type(following, SamplingRequest)
    return following


def loop(sampler: Sampler) -> Observable[str]:
    known_later = Tool(ToolSpec(name="forecast"), lambda arguments: arguments)
    tools = (weather, PythonFunction(weather, name="rain"), known_later)
    events = run_tools(sampler, "Rain?", tools, max_turns=3)
    assert_type(events, Observable[SamplingEvent])
    collect: Callable[..., object] = collect_tools
    assert callable(collect)
    return events.pipe(operators.text())


def dialects(vendor: VendorHeaders) -> SamplerConfig:
    assert_type(known_provider("https://api.x.ai/v1"), Preset | None)
    config = SamplerConfig(
        base_url="http://127.0.0.1:1/v1",
        vendor_headers=vendor,
        chat_dialect=ChatDialect(tool_ids=ToolIdRule(length=9)),
        responses_dialect=ResponsesDialect(reasoning_summary="auto"),
        messages_dialect=MessagesDialect(default_max_tokens=4096),
    )
    assert_type(config.chat_quirks, ChatDialect)
    return config.model_copy(update={"vendor_headers": GrokHeaders(session_id="s")})


def config() -> SamplerConfig:
    preset = PRESETS["llamacpp"]
    assert_type(preset, Preset)
    assert_type(SamplerConfig.preset("llamacpp", model="m"), SamplerConfig)
    assert_type(SamplerConfig.from_env({"RX_SAMPLER_BASE_URL": preset.base_url}), SamplerConfig)

    async def token() -> str | None:
        return None

    def sign(headers: dict[str, str]) -> None:
        headers["x-signature"] = "s"

    return SamplerConfig(
        backend="chat_completions",
        base_url=preset.base_url,
        model="m",
        bearer_resolver=token,
        header_injector=sign,
        retry=RetryPolicy(max_retries=3),
        doom_loop=DoomLoopPolicy(max_retries=1),
        idle_timeout_s=60.0,
    )


def streams(sampler: Sampler) -> None:
    """Cold streams of the three forms of a question: nothing is sent, since nobody subscribes."""
    assert_type(sampler.stream("why is the sky blue?"), Observable[SamplingEvent])
    assert_type(sampler.stream(request(), request_id="mine"), Observable[SamplingEvent])
    assert_type(sampler.stream([UserItem(content=(TextPart(text="hi"),))]), Observable[SamplingEvent])


async def ask(sampler: Sampler) -> str:
    """As an application would; not run here, where there is no server."""
    try:
        async with sampler:
            result = await sampler.collect("why is the sky blue?")
    except SamplingError as error:
        assert_type(error.kind, SamplingErrorKind)
        assert_type(error.info, SamplingErrorInfo)
        assert_type(error.partial, SamplingResponse | None)
        return str(error)
    assert_type(result, SamplingResult)
    assert_type(result.events_summary, Mapping[str, int])
    assert_type(result.metrics.time_to_first_token_ms, float | None)
    return result.response.text


def answer() -> SamplingResponse:
    response = SamplingResponse(
        items=(TextItem(text="yes"), ToolCall(id="c", name="f", arguments="{}")),
        usage=Usage(input_tokens=3, output_tokens=4, total_tokens=7),
        stop_reason="tool_calls",
    )
    assert_type(response.text, str)
    assert_type(response.tool_calls, tuple[ToolCall, ...])
    assert_type(response.tool_calls[0].arguments_json, dict[str, Any] | None)
    return response


def failure() -> SamplingError:
    info = SamplingErrorInfo(
        kind=SamplingErrorKind.EMPTY_RESPONSE,
        message="nothing came",
        is_retryable=True,
        empty_response_context=EmptyResponseContext(reason="no_visible_content", had_reasoning=False),
    )
    return info.to_error()


class Lengths(Machine[str, int]):
    """A stage of one's own."""

    def feed(self, item: str) -> Iterable[int]:
        return (len(item),)


class Doubles(Machine[int, int]):
    def feed(self, item: int) -> Iterable[int]:
        return (item, item)


def lengths() -> Observable[int]:
    lift: Callable[[Observable[str]], Observable[int]] = through(Lengths)
    measured = rx.of("a", "bcd").pipe(lift, through(Doubles))
    assert_type(measured, Observable[int])
    return measured


def backend() -> Backend[Any]:
    it = get_backend("messages")
    assert_type(it, Backend[Any])
    return it


async def clock() -> float:
    scheduler = LoopTimeScheduler(asyncio.get_running_loop())
    assert_type(scheduler.seconds(), float)
    return scheduler.seconds()


class Looker:
    """Counts what it is told of."""

    def __init__(self) -> None:
        self.events = 0

    def request_made(self, facts: RequestFacts) -> RequestWatch:
        assert_type(facts.request, SamplingRequest)
        return self

    def attempt_started(self, number: int, ts: float) -> None:
        assert number > 0
        assert ts > 0

    def on_event(self, event: SamplingEvent) -> None:
        self.events += event.kind != "channel_token"

    def dropped(self, ts: float) -> None:
        assert ts > 0


def repeated(events: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
    limits = SharedLimits(RetryBudget(capacity=10))
    joined = events.pipe(
        operators.detect_loop(LoopDetection(min_repeats=8)),
        retrying(RetryPolicy(max_retries=1), doom_loop=DoomLoopPolicy(), limits=limits),
        failures_as_events(),
    )
    assert_type(joined, Observable[SamplingEvent])
    return joined


def decision(error: SamplingError) -> Decision:
    found = classify(error, RetryState(), RetryPolicy(), DoomLoopPolicy())
    assert_type(found.action, Action)
    return found


async def many() -> int:
    observer: SamplerObserver = Looker()
    async with Sampler(config(), observer=observer) as sampler:
        with sampler.handle() as handle:
            assert_type(handle, SamplerHandle)
            request_id = handle.submit("hi")
            assert_type(request_id, RequestId)
        assert_type(sampler.events, Observable[SamplingEvent])
        assert_type(sampler.events_of(request_id), Observable[SamplingEvent])
        assert sampler.is_active(request_id)
        sampler.update_config(config())
        sampler.cancel(request_id)
        return sampler.active_count()


async def iterated(sampler: Sampler) -> None:
    async for event in sampler.iterate("hi", capacity=8, overflow="drop_oldest"):
        assert_type(event, SamplingEvent)


def without_a_loop() -> BlockingSampler:
    with blocking(config(), random=lambda: 0.5) as sampler:
        assert_type(sampler, BlockingSampler)
        ask: Callable[[str], SamplingResult] = sampler.collect
        assert callable(ask)
        events = sampler.iterate("hi")
        assert_type(events, Generator[SamplingEvent])
        events.close()
    return sampler


def main() -> None:
    seen: list[SamplingEvent] = []
    offline(READS).subscribe(seen.append)
    assert isinstance(seen[-1], Completed)
    assert seen[-1].response.text == "Hello"
    texts: list[str] = []
    text_only(offline(READS)).subscribe(texts.append)
    assert texts == ["Hel", "lo"]
    failed: list[SamplingEvent] = []
    offline(READS[:1]).subscribe(failed.append)
    assert isinstance(failed[-1], Failed)
    assert failed[-1].partial is not None
    assert failed[-1].partial.text == "Hel"
    events = every_event()
    assert all(told(event) for event in events if not isinstance(event, Completed))
    through_json([*events, *seen])
    streams(Sampler(config()))
    assert loop(Sampler(config()))
    counts: list[int] = []
    lengths().subscribe(counts.append)
    assert counts == [1, 1, 3, 3]
    assert backend().name == "messages"
    assert answer().tool_calls[0].arguments_json == {}
    assert failure().info.empty_response_context is not None
    assert request().items
    wet = SamplingResponse(
        items=(TextItem(text='{"celsius": 1}'), ToolCall(id="c", name="weather", arguments='{"celsius": 2}'))
    )
    assert next_turn(wet).tools[0].name == "weather"
    assert dialects(GrokHeaders()).messages_quirks.default_max_tokens == 4096
    assert inspect.iscoroutinefunction(ask)
    again: list[SamplingEvent] = []
    repeated(offline(READS)).subscribe(again.append)
    assert isinstance(again[-1], Completed)
    assert decision(failure()).rule
    assert asyncio.run(many()) == 0
    assert SamplerActor.__doc__
    assert inspect.iscoroutinefunction(iterated)
    without_a_loop()
    assert asyncio.run(clock()) > 0
    print("every public name was used")


if __name__ == "__main__":
    main()
