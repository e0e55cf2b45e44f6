"""What each operator costs per event, beside RxPY's own `map(lambda e: e)`.

    python tests/benchmarks/operators.py [--tokens 1000] [--rounds 60] [--check] [NAME ...]

Prepared streams of one request run from `from_iterable`, the cheapest source, through one operator to a subscriber that
does nothing. `adds` is the CPU time per event that the operator adds to source and subscriber alone; `added` is that
beside what `map` adds, and `whole` the whole pipeline beside the one with `map` in its place. All of them take turns in
each round, and of each the best round counts: a busy machine adds to all, a slow one scales all.

`--check` exits with 1 where `whole` is over 3.0 (to a tenth: the figures are no surer than that), or where accumulating
100,000 tokens costs more than 12 times what 10,000 do. With names, only those are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import inspect
import math
import pkgutil
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import reactivex as rx
from pydantic import BaseModel
from reactivex import Observable
from reactivex import operators as rx_ops
from reactivex.scheduler import ImmediateScheduler
from reactivex.subject import Subject

import rx_sampler.operators
from rx_sampler.conversation import ReasoningItem, SamplingResponse, TextItem, ToolCall
from rx_sampler.events import (
    ChannelToken,
    Completed,
    FirstToken,
    ModelMetadata,
    ResponseStarted,
    SamplingEvent,
    StreamStarted,
    ToolCallDelta,
)
from rx_sampler.metrics import LatencyMetrics
from rx_sampler.scheduling import LoopTimeScheduler

MOST_TIMES_MAP: Final = 3.0
MOST_TIMES_TEN: Final = 12.0
BURSTS: Final = (1, 64)
"""How many events come in one turn of the loop."""

Stream = list[SamplingEvent]
Sink = Callable[[Observable[Any]], Observable[Any] | None]


# -- streams


def framed(content: Stream, response: SamplingResponse) -> Stream:
    """A request's whole stream: a token every 10 ms."""
    stamp: Any = {"request_id": "r", "attempt": 1, "ts": 100.2}
    opening: Stream = [
        StreamStarted(**stamp, submitted_at=100.0),
        ModelMetadata(**stamp, model="bench-1"),
        ResponseStarted(**stamp, message_id="m", model="bench-1"),
    ]
    metrics = LatencyMetrics(
        time_to_stream_started_ms=200.0,
        time_to_first_token_ms=10.0,
        time_to_first_token_from_submit_ms=210.0,
        time_to_last_byte_ms=10.0 * len(content),
        chunk_count=sum(isinstance(event, ChannelToken) for event in content),
    )
    ended: Any = {**stamp, "ts": at(len(content) + 1)}
    return [*opening, *content, Completed(**ended, response=response, metrics=metrics)]


def at(index: int) -> float:
    return 100.2 + 0.01 * index


def tokens(pieces: Sequence[tuple[str, str]]) -> Stream:
    events: Stream = [FirstToken(request_id="r", attempt=1, ts=at(1), channel=pieces[0][0])]
    for index, (channel, piece) in enumerate(pieces, 1):
        events.append(
            ChannelToken(request_id="r", attempt=1, ts=at(index), channel=channel, text=piece, chunk_index=index)
        )
    return events


def prose(count: int) -> Stream:
    """A tenth reasoning, then sentences of some twelve words in paragraphs of some four."""
    random = Random(7)
    words = ["".join(random.choices("etaoinshrdlu", k=random.randint(2, 8))) for _ in range(2000)]
    ends = ["", ",", ".", ".\n\n"]

    def word() -> str:
        return " " + random.choice(words) + random.choices(ends, [84, 8, 6, 2])[0]

    pieces = [("reasoning" if index < count // 10 else "text", word()) for index in range(count)]
    thought, said = ("".join(text for channel, text in pieces if channel == name) for name in ("reasoning", "text"))
    items = (ReasoningItem(text=thought), TextItem(text=said)) if thought else (TextItem(text=said),)
    return framed(tokens(pieces), SamplingResponse(items=items, stop_reason="stop"))


def fragments(random: Random, text: str) -> list[str]:
    """Pieces of a text as a model sends them."""
    pieces: list[str] = []
    while text:
        length = random.randint(2, 6)
        pieces.append(text[:length])
        text = text[length:]
    return pieces


def record(random: Random) -> str:
    words = ["".join(random.choices("etaoinshrdlu", k=6)) for _ in range(4)]
    return f'{{"name": "{" ".join(words)}", "size": {random.randint(1, 9999)}, "tags": ["{words[0]}", "{words[1]}"]}}'


def tools(count: int) -> Stream:
    """Calls with some 250 fragments of arguments each."""
    random = Random(11)
    events: Stream = []
    calls: list[ToolCall] = []
    while len(events) < count:
        index = len(calls)
        arguments = '{"files": [' + ", ".join(record(random) for _ in range(12)) + "]}"
        calls.append(ToolCall(id=f"call_{index}", name="write", arguments=arguments))
        stamp: Any = {"request_id": "r", "attempt": 1, "tool_index": index}
        events.append(ToolCallDelta(**stamp, ts=at(len(events)), id=f"call_{index}", name="write"))
        events.extend(
            ToolCallDelta(**stamp, ts=at(len(events) + place), arguments_delta=piece)
            for place, piece in enumerate(fragments(random, arguments))
        )
    return framed(events, SamplingResponse(items=tuple(calls), stop_reason="tool_calls"))


def json_text(count: int) -> Stream:
    """Text that is one JSON document."""
    random = Random(13)
    records = [record(random) for _ in range(max(count // 22, 1))]
    text = '{"files": [' + ", ".join(records) + "]}"
    pieces = [("text", piece) for piece in fragments(random, text)]
    return framed(tokens(pieces), SamplingResponse(items=(TextItem(text=text),), stop_reason="stop"))


STREAMS: Final[dict[str, Callable[[int], Stream]]] = {"text": prose, "tools": tools, "json": json_text}


class Record(BaseModel):
    name: str
    size: int
    tags: list[str]


class Answer(BaseModel):
    files: list[Record]


# -- operators


def discovered() -> SimpleNamespace:
    """Every public name of every module of operators."""
    names: dict[str, Any] = {}
    for info in pkgutil.iter_modules(rx_sampler.operators.__path__, "rx_sampler.operators."):
        module = importlib.import_module(info.name)
        names.update({name: getattr(module, name) for name in module.__all__})
    return SimpleNamespace(**names)


def is_operator(value: object) -> bool:
    return inspect.isfunction(value) and str(value.__annotations__.get("return")).startswith("Callable[[Observable[")


def whole(piped: Observable[Any]) -> Observable[Any]:
    return piped


def by_group(piped: Observable[Any]) -> Observable[Any]:
    """Each group with a subscriber."""
    return rx.create(lambda _observer, _scheduler: piped.subscribe(lambda group: group.subscribe(ignore)))


def by_part(channels: Any) -> Observable[Any]:
    """The text with a subscriber, then connected."""

    def subscribe(observer: Any, scheduler: Any = None) -> Any:
        channels.text.subscribe(observer)
        return channels.connect(scheduler)

    return Observable(subscribe)


@dataclass(frozen=True)
class Case:
    """An operator, how it is made, on which streams, and how its result is subscribed to."""

    name: str
    make: Callable[[Any], Any]
    streams: tuple[str, ...] = ("text",)
    sink: Callable[[Any], Observable[Any]] = whole
    variant: str = ""
    waits: bool = False
    """Whether its end comes later than that of the source."""

    @property
    def label(self) -> str:
        return f"{self.name}{self.variant}"


CASES: Final = (
    Case("of_type", lambda o: o.of_type(ChannelToken), ("text", "tools")),
    Case("for_request", lambda o: o.for_request("r")),
    Case("by_request", lambda o: o.by_request(), sink=by_group),
    Case("text", lambda o: o.text()),
    Case("reasoning", lambda o: o.reasoning()),
    Case("channel", lambda o: o.channel("text")),
    Case("split_channels", lambda o: o.split_channels(), sink=by_part),
    Case("until_terminal", lambda o: o.until_terminal()),
    Case("annotations", lambda o: o.annotations()),
    Case("time_to_first_token", lambda o: o.time_to_first_token()),
    Case("time_to_first_text", lambda o: o.time_to_first_text()),
    Case("inter_token_latency", lambda o: o.inter_token_latency()),
    Case("token_rate", lambda o: o.token_rate()),
    Case("in_flight", lambda o: o.in_flight()),
    Case("latency_stats", lambda o: o.latency_stats()),
    Case("goodput", lambda o: o.goodput(o.Slo(time_to_first_token_ms=500.0))),
    Case("accumulate", lambda o: o.accumulate(), ("text", "tools")),
    Case("tool_calls", lambda o: o.tool_calls(), ("text", "tools")),
    Case("tool_calls", lambda o: o.tool_calls(early=True), ("text", "tools"), variant=" (early)"),
    Case("partial_arguments", lambda o: o.partial_arguments(), ("text", "tools")),
    Case("partial_json", lambda o: o.partial_json(Answer), ("json",)),
    Case("lines", lambda o: o.lines()),
    Case("sentences", lambda o: o.sentences()),
    Case("split_think_tags", lambda o: o.split_think_tags()),
    Case("smooth", lambda o: o.smooth(1e-9)),  # each token comes late enough to pass at once
    Case("smooth", lambda o: o.smooth(0.0005, 0.005), variant=" (queues)", waits=True),
    Case("commit_on", lambda o: o.commit_on(), ("text", "tools")),
    Case("unwrap", lambda o: o.unwrap()),
    Case("detect_loop", lambda o: o.detect_loop(), ("text", "tools")),
    Case("race", lambda o: o.race(rx.never())),
    Case("hedge", lambda o: o.hedge(math.inf)),
    Case("fallback", lambda o: o.fallback(rx.never())),
    Case("merge_tagged", lambda o: o.merge_tagged("a", {"b": rx.never()})),
)


def same(event: Any) -> Any:
    return event


def ignore(_value: object) -> None:
    pass


def piping(operator: Any, sink: Callable[[Any], Observable[Any]]) -> Callable[[Observable[Any]], Observable[Any]]:
    return lambda source: sink(source.pipe(operator))


def spent_s(row: Row, events: Stream, scheduler: LoopTimeScheduler) -> float:
    """CPU seconds from the subscription to the end of the source, or of the operator if it is one that waits."""
    loop = scheduler.loop
    has_ended = False

    def end() -> None:
        nonlocal has_ended
        has_ended = True
        if loop.is_running():
            loop.stop()

    began = time.process_time()
    piped = row.pipe(rx.from_iterable(events, ImmediateScheduler.singleton()))
    subscription = piped.subscribe(ignore, on_completed=end, scheduler=scheduler)
    if row.waits and not has_ended:
        loop.run_forever()
    spent = time.process_time() - began
    subscription.dispose()
    return spent


@dataclass
class Row:
    label: str
    stream: str
    pipe: Callable[[Observable[Any]], Observable[Any]]
    waits: bool = False
    best_s: float = math.inf


def measure(cases: Sequence[Case], operators: Any, count: int, rounds: int) -> tuple[list[str], bool]:
    """The lines of the table, and whether every operator keeps within the limits."""
    streams = {name: make(count) for name, make in STREAMS.items() if any(name in case.streams for case in cases)}
    rows: list[Row] = []
    for stream in streams:
        rows.append(Row("", stream, whole))
        rows.append(Row("map(lambda e: e)", stream, rx_ops.map(same)))
        for case in cases:
            if stream in case.streams:
                pipe = piping(case.make(operators), case.sink)
                rows.append(Row(case.label, stream, pipe, case.waits))
    loop = asyncio.new_event_loop()
    scheduler = LoopTimeScheduler(loop)
    for _ in range(rounds):
        with uncollected():
            spent_s(rows[0], streams[rows[0].stream], scheduler)  # to warm up
            for row in rows:
                row.best_s = min(row.best_s, spent_s(row, streams[row.stream], scheduler))
    loop.close()
    lines = [f"{'ns per event':26s} {'stream':6s} {'adds':>7s} {'added':>7s}  {'whole':>6s}"]
    is_good = True
    for stream, events in streams.items():
        bare, mapped, *others = (row for row in rows if row.stream == stream)
        own_s = mapped.best_s - bare.best_s
        lines.append(f"{'(source and subscriber)':26s} {stream:6s} {bare.best_s / len(events) * 1e9:7.0f}")
        for row in (mapped, *others):
            added_s = row.best_s - bare.best_s
            added, times = added_s / own_s, row.best_s / mapped.best_s
            over = round(times, 1) > MOST_TIMES_MAP
            is_good = is_good and not over
            shown = f"{added_s / len(events) * 1e9:7.0f} {added:7.2f}  {times:6.2f}"
            lines.append(f"{row.label:26s} {stream:6s} {shown}{'  OVER' if over else ''}")
    return lines, is_good


def accumulated(operators: Any, rounds: int) -> tuple[str, bool]:
    """How the cost of a whole answer, read at its end, grows with its length."""
    streams = {count: prose(count) for count in (10_000, 100_000)}
    best_s = dict.fromkeys(streams, math.inf)
    for _ in range(rounds):
        for count, events in streams.items():
            subject: Subject[Any] = Subject()
            latest = Latest()
            subscription = subject.pipe(operators.accumulate()).subscribe(latest)
            with uncollected():
                began = time.process_time()
                for event in events:
                    subject.on_next(event)
                assert len(latest.value.text) > count
                best_s[count] = min(best_s[count], time.process_time() - began)
            subscription.dispose()
    few_s, many_s = best_s.values()
    times = many_s / few_s
    shown = f"10,000 tokens {few_s * 1e3:.1f} ms, 100,000 {many_s * 1e3:.1f} ms: {times:.1f} times as much"
    return f"accumulate: {shown}", times <= MOST_TIMES_TEN


class Latest:
    """Keeps the last value."""

    value: Any = None

    def __call__(self, value: Any) -> None:
        self.value = value


@contextmanager
def uncollected() -> Generator[None]:
    """Garbage is collected before and after, not inside: what is there already would be counted again and again."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# -- hops to an async consumer


async def produce(events: Stream, burst: int, subject: Subject[Any]) -> None:
    for place, event in enumerate(events, 1):
        subject.on_next(event)
        if place % burst == 0:
            await asyncio.sleep(0)
    subject.on_completed()


async def through_nothing(subject: Subject[Any], producing: Callable[[], Any]) -> None:
    subject.subscribe(ignore)
    await producing()


async def through_queue(subject: Subject[Any], producing: Callable[[], Any]) -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    subject.subscribe(queue.put_nowait, on_completed=lambda: queue.put_nowait(None))
    producer = asyncio.ensure_future(producing())
    while await queue.get() is not None:
        pass
    await producer


async def through_iterator(subject: Subject[Any], producing: Callable[[], Any]) -> None:
    from rx_sampler.flow import to_async_iterator

    async with to_async_iterator(subject) as iterator:
        producer = asyncio.ensure_future(producing())
        async for _ in iterator:
            pass
        await producer


async def through_takes(subject: Subject[Any], producing: Callable[[], Any]) -> None:
    from rx_sampler.flow import to_async_iterator

    async with to_async_iterator(subject) as iterator:
        producer = asyncio.ensure_future(producing())
        while await iterator.take():
            pass
        await producer


HOPS: Final = {
    "asyncio.Queue": through_queue,
    "to_async_iterator": through_iterator,
    "to_async_iterator, take()": through_takes,
}


def hops(count: int, rounds: int) -> list[str]:
    """What it costs to hand an event to a task, beside a queue of asyncio's own."""
    events = prose(count)
    best_s: dict[tuple[str, int], float] = {}
    with asyncio.Runner() as runner:

        def spent_s(hop: Callable[..., Any], burst: int) -> float:
            subject: Subject[Any] = Subject()
            began = time.process_time()
            runner.run(hop(subject, lambda: produce(events, burst, subject)))
            return time.process_time() - began

        for _ in range(rounds):
            for burst in BURSTS:
                for name, hop in {"": through_nothing, **HOPS}.items():
                    key = name, burst
                    best_s[key] = min(best_s.get(key, math.inf), spent_s(hop, burst))
    lines = [f"{'ns per event':26s} {'burst':>6s} {'adds':>7s} {'x queue':>7s}"]
    for burst in BURSTS:
        added_s = {name: best_s[name, burst] - best_s["", burst] for name in HOPS}
        for name, spent in added_s.items():
            times = spent / added_s["asyncio.Queue"]
            lines.append(f"{name:26s} {burst:6d} {spent / len(events) * 1e9:7.0f} {times:7.2f}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    operators = discovered()
    wanted = [case for case in CASES if not options.names or case.name in options.names]
    found = [case for case in wanted if hasattr(operators, case.name)]
    lines, is_good = measure(found, operators, options.tokens, options.rounds)
    print("\n".join(lines))
    missing = sorted({case.name for case in wanted} - {case.name for case in found})
    known = {case.name for case in CASES}
    exported = {name: getattr(rx_sampler.operators, name) for name in rx_sampler.operators.__all__}
    unknown = sorted(name for name, value in exported.items() if is_operator(value) and name not in known)
    if missing:
        print("not there:", ", ".join(missing))
    if unknown:
        print("not measured:", ", ".join(unknown))
    if not options.names or "accumulate" in options.names:
        line, is_linear = accumulated(operators, 3)
        print(f"\n{line}")
        is_good = is_good and is_linear
    if not options.names:
        print("\n" + "\n".join(hops(options.tokens, options.rounds)))
    if options.check and not is_good:
        sys.exit(1)


if __name__ == "__main__":
    main()
