"""The events of legal streams keep the grammar, and no single change to them does, but for those listed here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import reactivex as rx
from hypothesis import given, settings
from hypothesis import strategies as st
from reactivex import operators as ops

from rx_sampler import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallItem,
    BackendToolCallStarted,
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    FirstToken,
    ImagesStripped,
    LatencyMetrics,
    ModelMetadata,
    ReasoningCompleted,
    ResponseStarted,
    Retrying,
    SamplingErrorInfo,
    SamplingErrorKind,
    SamplingEvent,
    StreamStarted,
    ToolCallDelta,
    failures_as_events,
    get_backend,
    through,
)
from rx_sampler.backends.assembly import Context
from rx_sampler.backends.base import ChunkDecoder, EventReader
from rx_sampler.events import ToolResultAdded
from rx_sampler.testing.grammar import GrammarError, check_events
from rx_sampler.wire.idle import Pulse
from rx_sampler.wire.sse import SseParser

from .made_streams import MADE, damaged, soups
from .streams import (
    BACKENDS,
    CHAT,
    MESSAGES,
    RESPONSES,
    STOP,
    StillTime,
    closes,
    ended,
    ev,
    opens,
    run,
    sse,
    started,
    stops,
)

TESTS: Final = Path(__file__).parents[1]
SHARED: Final = TESTS.parents[1] / "shared"
RECORDINGS: Final = sorted((TESTS / "recordings").glob("*/*.sse"))
BACKEND_OF: Final = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES, "any": CHAT}
TICK_S: Final = 0.125


def told(backend: str, body: bytes, *, attempt: int = 1, tick_s: float = 0.0) -> list[SamplingEvent]:
    """The events of an attempt as a request gives them, headers with facts included; time goes on with each frame."""
    pulse = Pulse(2_000.0, submitted_at=1_999.0)
    wire_format = get_backend(backend)
    transform = wire_format.transform(Context(request_id="r", attempt=attempt, pulse=pulse))
    parser = SseParser()
    events = transform.opening({"provider_request_id": "req-1"})
    rx.from_iterable([*parser.feed(body), *parser.finish()]).pipe(
        ops.do_action(lambda _: pulse.advance(pulse.now + tick_s)),
        through(lambda: EventReader(ChunkDecoder(wire_format), transform)),
        failures_as_events(request_id="r"),
    ).subscribe(events.append, scheduler=StillTime())
    return events


def retrying(after: SamplingEvent, attempt: int = 1) -> Retrying:
    return Retrying(
        request_id="r",
        attempt=attempt,
        ts=after.ts,
        next_attempt=attempt + 1,
        retry=attempt,
        max_retries=3,
        budget="transport",
        error_kind=SamplingErrorKind.HTTP,
        reason="broke",
        backoff_s=0.5,
    )


def broken(events: Sequence[SamplingEvent], backend: str, *, whole: bool = True) -> GrammarError | None:
    try:
        check_events(events, backend=backend, whole=whole)
    except GrammarError as error:
        return error
    return None


# -- what is legal


@pytest.mark.parametrize("path", RECORDINGS, ids=[f"{p.parent.name}-{p.stem}" for p in RECORDINGS])
@pytest.mark.parametrize("tick_s", [0.0, TICK_S])
def test_recordings_keep_the_grammar(path: Path, tick_s: float) -> None:
    backend, body = path.parent.name, path.read_bytes()
    check_events(told(backend, body, tick_s=tick_s), backend=backend)
    for end in range(0, len(body), 37):
        check_events(told(backend, body[:end], tick_s=tick_s), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@given(data=st.data(), split_think_tags=st.booleans())
def test_legal_streams_keep_the_grammar(backend: str, data: st.DataObject, split_think_tags: bool) -> None:
    body, _ = data.draw(MADE[backend]())
    body = body[: data.draw(st.one_of(st.just(len(body)), st.integers(0, len(body))))]
    check_events(run(backend, body, split_think_tags=split_think_tags, both_roads=False), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@given(data=st.data(), split_think_tags=st.booleans())
def test_damaged_streams_keep_what_holds_for_all(backend: str, data: st.DataObject, split_think_tags: bool) -> None:
    body, _ = data.draw(MADE[backend]())
    body = data.draw(st.one_of(damaged(body), soups()))
    check_events(run(backend, body, split_think_tags=split_think_tags, both_roads=False))


def shared_streams() -> Iterator[Any]:
    for folder, index in (("corpus", "index.jsonl"), ("corpus-local", "expect.jsonl")):
        if (path := SHARED / folder / index).exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                body = SHARED / folder / row["file"]
                yield pytest.param(BACKEND_OF[row["backend"]], body, id=f"{folder}/{row['file']}")
    for path in sorted((SHARED / "field-cases").glob("*.json")):
        if "chunks" in json.loads(path.read_text(encoding="utf-8"))["given"]:
            case = json.loads(path.read_text(encoding="utf-8"))
            yield pytest.param(BACKEND_OF[case["backend"]], path, id=path.stem)


def body_of(path: Path) -> bytes:
    if path.suffix != ".json" or path.parent.name != "field-cases":
        return path.read_bytes()
    given_ = json.loads(path.read_text(encoding="utf-8"))["given"]
    text = "".join(given_["chunks"])
    for name, expanded in given_.get("expand", {}).items():
        text = text.replace(name, expanded["char"] * expanded["times"])
    return text.encode(given_.get("encoding", "utf-8"))


SHARED_STREAMS: Final = list(shared_streams())


@pytest.mark.skipif(not SHARED_STREAMS, reason="the recordings lie beside the project, not in it")
@pytest.mark.parametrize(("backend", "path"), SHARED_STREAMS)
def test_recorded_streams_keep_the_grammar(backend: str, path: Path) -> None:
    body = body_of(path)
    for split_think_tags in (False, True):
        events = run(backend, body, split_think_tags=split_think_tags, both_roads=False)
        check_events(events, backend=backend)


# -- what is not


class Case(NamedTuple):
    """A change to a legal stream, and where it must be found: None where the changed stream is legal, too."""

    what: str
    events: list[SamplingEvent]
    at: frozenset[int] | None


class Stream:
    """A legal stream, and where the grammar must stumble over its changes.

    Legal though changed, and why:

    * without `ModelMetadata`: headers need not tell anything.
    * without `StreamStarted` before `Retrying`: the attempt may have failed before its headers came.
    * without `ImagesStripped`: a retry need not strip anything.
    * without `ResponseStarted`, on responses: a stream that is resumed in its middle does not say how it began.
    * without `BackendToolCallCompleted`, on responses: the answer does not tell whether the tool came to its end.
    * without a fragment `{}` that is all of a call's arguments: those of a call without any are `{}`, too.
    * whatever an attempt said that a `Retrying` voids, if order, numbers and ids are right: nothing sums it up.
    * neighbours in another order that have nothing to do with each other: see `independent`.
    """

    def __init__(self, backend: str, events: list[SamplingEvent]) -> None:
        self.backend = backend
        self.events = events
        self.last = len(events) - 1

    # The attempt around an event

    def close_of(self, at: int) -> int:
        """Where the attempt of event `at` ends."""
        return next(i for i in range(at, len(self.events)) if isinstance(self.events[i], Retrying | Completed | Failed))

    def is_void(self, at: int) -> bool:
        return isinstance(self.events[self.close_of(at)], Retrying)

    def sums(self, at: int, *, shift: int = 0) -> frozenset[int] | None:
        """Found when the attempt is summed up, if it is; `shift` is how much later its end now stands."""
        return None if self.is_void(at) else frozenset({self.close_of(at) + shift})

    def after(self, at: int, kinds: type[Any] | tuple[type[Any], ...]) -> Iterator[int]:
        for i in range(at + 1, self.close_of(at) + 1):
            if isinstance(self.events[i], kinds):
                yield i

    def offset_after(self, at: int) -> list[int]:
        """Where the next citation says how much text there was."""
        return list(self.after(at, AnnotationAdded))[:1]

    def is_first_of_call(self, at: int) -> bool:
        event = self.events[at]
        assert isinstance(event, ToolCallDelta)
        return not any(
            isinstance(e, ToolCallDelta) and e.tool_index == event.tool_index and e.choice == event.choice
            for e in self.events[self.close_of_before(at) : at]
        )

    def close_of_before(self, at: int) -> int:
        return max((i for i in range(at) if isinstance(self.events[i], Retrying)), default=0)

    # The changes

    def cases(self) -> Iterator[Case]:
        for at in range(len(self.events)):
            yield self.dropped(at)
            yield self.doubled(at)
            yield from self.moved(at)
            yield from self.altered(at)
        yield from self.around_the_end()

    def dropped(self, at: int) -> Case:
        events, event = self.events, self.events[at]
        follower = events[at + 1] if at < self.last else None
        where: frozenset[int] | None
        match event:
            case Completed() | Failed():
                where = frozenset({at})
            case ModelMetadata() | ImagesStripped():
                where = None
            case StreamStarted():
                where = None if isinstance(follower, Retrying) else frozenset({at})
                if isinstance(follower, ModelMetadata) and isinstance(events[at + 2], Retrying):
                    where = frozenset({at})
            case ResponseStarted():
                where = None if self.backend == RESPONSES else self.sums(at, shift=-1)
            case FirstToken() | Retrying():
                where = frozenset({at})
            case ChannelToken():
                where = self._without_token(at)
            case ToolCallDelta():
                where = self._without_delta(at)
            case BackendToolCallStarted():
                ends = [
                    i - 1
                    for i in self.after(at, BackendToolCallCompleted)
                    if getattr(events[i], "call_id", None) == event.call_id
                ]
                where = frozenset(ends[:1]) or self.sums(at, shift=-1)
            case BackendToolCallCompleted():
                where = None if self.backend == RESPONSES else self.sums(at, shift=-1)
            case DoomLoopSignals():
                where = frozenset({at})
            case ReasoningCompleted() | AnnotationAdded():
                where = self.sums(at, shift=-1)
            case ToolResultAdded():  # of no backend's making
                raise AssertionError(event)
        return Case(f"without {at}", [*events[:at], *events[at + 1 :]], where)

    def _without_token(self, at: int) -> frozenset[int] | None:
        if isinstance(self.events[at - 1], FirstToken):
            return frozenset({at})
        nearest = [*self.after(at, ChannelToken)][:1]
        if getattr(self.events[at], "channel", "") == "text":
            nearest += self.offset_after(at)
        return frozenset({min(nearest) - 1}) if nearest else self.sums(at, shift=-1)

    def _without_delta(self, at: int) -> frozenset[int] | None:
        event = self.events[at]
        assert isinstance(event, ToolCallDelta)
        if not self.is_first_of_call(at):
            return None if event.arguments_delta == "{}" else self.sums(at, shift=-1)
        found: list[int] = []
        for i in self.after(at, ToolCallDelta):
            later = self.events[i]
            assert isinstance(later, ToolCallDelta)
            # Its own next fragment has no id; and where calls are shown in order, the next call's number is too high.
            if later.tool_index == event.tool_index or (self.backend != CHAT and later.tool_index > event.tool_index):
                found.append(i - 1)
                break
        return frozenset(found) or self.sums(at, shift=-1)

    def doubled(self, at: int) -> Case:
        event = self.events[at]
        where: frozenset[int] | None = frozenset({at + 1})
        bare = isinstance(event, ToolCallDelta) and event.id is None and event.name is None
        if bare or isinstance(event, ReasoningCompleted | AnnotationAdded):
            where = self.sums(at, shift=1)
        return Case(f"twice {at}", [*self.events[: at + 1], *self.events[at:]], where)

    def moved(self, at: int) -> Iterator[Case]:
        events = self.events
        if at < self.last:
            rest = [*events[:at], *events[at + 1 :]]
            yield Case(f"{at} behind the end", [*rest, events[at]], frozenset(range(at, self.last + 1)))
        if at > 0:
            rest = [*events[:at], *events[at + 1 :]]
            yield Case(f"{at} at the start", [events[at], *rest], frozenset({0, 1}))
        if at < self.last and events[at] != events[at + 1]:
            first, second = events[at], events[at + 1]
            swapped = [*events[:at], second, first, *events[at + 2 :]]
            where: frozenset[int] | None = frozenset({at, at + 1})
            if isinstance(first, ToolCallDelta) and isinstance(second, ToolCallDelta):
                same = first.tool_index == second.tool_index
                if same and not self.is_first_of_call(at):
                    where = self.sums(at)  # the same pieces in the wrong order
            if self.independent(at):
                where = None
            yield Case(f"{at} and {at + 1} exchanged", swapped, where)

    def independent(self, at: int) -> bool:
        """Whether the order of `at` and its follower says nothing: different tools, tokens, signatures, citations."""
        first, second = self.events[at], self.events[at + 1]
        if isinstance(self.events[at], FirstToken) or isinstance(self.events[at - 1], FirstToken):
            return False
        content = (
            ChannelToken,
            ToolCallDelta,
            ReasoningCompleted,
            AnnotationAdded,
            BackendToolCallStarted,
            BackendToolCallCompleted,
        )
        if not isinstance(first, content) or not isinstance(second, content):
            return False
        if isinstance(first, ToolCallDelta) and isinstance(second, ToolCallDelta):
            if first.tool_index == second.tool_index:
                return False
            shown = self.is_first_of_call(at) and self.is_first_of_call(at + 1)
            return self.backend == CHAT or not shown  # where calls are shown in order of their numbers
        if isinstance(first, ChannelToken) and isinstance(second, ChannelToken):
            return False
        tokens = [e for e in (first, second) if isinstance(e, ChannelToken)]
        if tokens and isinstance(second if tokens[0] is first else first, AnnotationAdded):
            return tokens[0].channel != "text"
        hosted = (BackendToolCallStarted, BackendToolCallCompleted)
        if isinstance(first, hosted) and isinstance(second, hosted):
            return first.call_id != second.call_id
        return True

    def altered(self, at: int) -> Iterator[Case]:
        event = self.events[at]
        yield self.put(at, {1} if at == 0 else {at}, request_id="another")
        yield self.put(at, {at}, attempt=event.attempt + 1)
        yield self.put(at, {at}, attempt=event.attempt - 1)
        match event:
            case FirstToken():
                yield self.put(at, {at + 1}, channel="another")
            case ChannelToken():
                yield self.put(at, {at}, chunk_index=event.chunk_index + 1)
                yield self.put(at, {at}, chunk_index=event.chunk_index - 1)
                yield self.put(at, {at}, text="")
                summed = self.sums(at)
                if event.channel == "text" and (offsets := self.offset_after(at)):
                    summed = frozenset(offsets)
                yield self.put(at, summed, text=event.text + "x")
                is_first = isinstance(self.events[at - 1], FirstToken)
                yield self.put(at, {at} if is_first else summed, channel="another")
            case ToolCallDelta():
                yield from self.altered_call(at, event)
            case BackendToolCallStarted() | BackendToolCallCompleted():
                found = self.sums(at)
                if isinstance(event, BackendToolCallCompleted):
                    found = frozenset({at})
                else:
                    ends = [
                        i
                        for i in self.after(at, BackendToolCallCompleted)
                        if getattr(self.events[i], "call_id", None) == event.call_id
                    ]
                    found = frozenset(ends[:1]) or found
                yield self.put(at, found, name="another")
                yield self.put(at, found, call_id="another")
            case ReasoningCompleted():
                # Responses encrypts anew whenever it repeats an item.
                yield self.put(at, None if self.backend == RESPONSES else self.sums(at), signature="another")
                yield self.put(at, {at}, signature="")
            case AnnotationAdded():
                yield self.put(at, self.sums(at), annotation={"another": 1})
                yield self.put(at, {at}, offset=(event.offset or 0) + 1)
                yield self.put(at, {at}, offset=-1)
            case ResponseStarted():
                where = None if self.backend == RESPONSES else self.sums(at)
                yield self.put(at, where, message_id="another")
            case DoomLoopSignals():
                yield self.put(at, {at + 1}, triggers=("another",))
                yield self.put(at, {at}, triggers=())
            case Retrying():
                yield self.put(at, {at}, retry=event.retry + 1)
                yield self.put(at, {at}, next_attempt=event.next_attempt + 1)
                yield self.put(at, {at}, max_retries=0)
                yield self.put(at, {at}, budget="doom_loop")
                yield self.put(at, {at}, budget="rate_limit")
                yield self.put(at, {at}, backoff_s=-1.0)
            case Completed() | Failed():
                yield from self.altered_end(at, event)
            case _:
                pass

    def altered_call(self, at: int, event: ToolCallDelta) -> Iterator[Case]:
        summed = self.sums(at)
        anywhere = None if summed is None else frozenset(range(at, self.last + 1))
        if self.is_first_of_call(at):
            yield self.put(at, {at}, id=None)
            yield self.put(at, summed, id="another")
            yield self.put(at, summed, name="another")
            if self.backend != CHAT:
                yield self.put(at, {at}, tool_index=event.tool_index + 1)
                yield self.put(at, {at}, tool_index=-1)
        if anywhere is not None:
            yield self.put(at, anywhere, tool_index=event.tool_index + 7)
        yield self.put(at, {at}, arguments_delta="")
        yield self.put(at, summed, arguments_delta=(event.arguments_delta or "") + "x")
        if event.arguments_delta and event.id is None:
            yield self.put(at, {at}, arguments_delta=None)

    def altered_end(self, at: int, event: Completed | Failed) -> Iterator[Case]:
        metrics = event.metrics
        yield self.put(at, {at}, metrics=replace(metrics, chunk_count=metrics.chunk_count + 1))
        yield self.put(at, {at}, metrics=replace(metrics, attempts=metrics.attempts + 1))
        first_ms = (metrics.time_to_first_token_ms or 0.0) + 1.0
        yield self.put(at, {at}, metrics=replace(metrics, time_to_first_token_ms=first_ms))
        if isinstance(event, Completed):
            response = event.response
            yield self.put(at, {at}, response=response.model_copy(update={"stop_reason": None}))
            # The result of a hosted call of an earlier turn stands in the answer without the call.
            if response.items and not isinstance(response.items[0], BackendToolCallItem):
                yield self.put(at, {at}, response=response.model_copy(update={"items": response.items[1:]}))
            if response.items:
                doubled = (*response.items, response.items[-1])
                yield self.put(at, {at}, response=response.model_copy(update={"items": doubled}))
        elif metrics.chunk_count:
            yield self.put(at, {at}, partial=None)

    def around_the_end(self) -> Iterator[Case]:
        events, end = self.events, self.events[-1]
        failed = Failed(
            request_id=end.request_id,
            attempt=end.attempt,
            ts=end.ts,
            error=SamplingErrorInfo(kind=SamplingErrorKind.HTTP, message="broke"),
            metrics=LatencyMetrics(),
        )
        yield Case("a failure behind the end", [*events, failed], frozenset({len(events)}))
        for cut in range(len(events)):
            yield Case(f"cut at {cut}", events[:cut], frozenset({cut}))

    def put(self, at: int, where: set[int] | frozenset[int] | None, **fields: Any) -> Case:
        changed: Any = self.events[at]
        events = [*self.events]
        events[at] = replace(changed, **fields)
        return Case(f"{at} with {fields}", events, None if where is None else frozenset(where))


def check_all_changes(stream: Stream) -> None:
    check_events(stream.events, backend=stream.backend)
    for case in stream.cases():
        error = broken(case.events, stream.backend)
        found = None if error is None else error.position
        assert found in case.at if case.at is not None else found is None, (
            f"{case.what}: found {error}, expected at {case.at}\n" + "\n".join(map(str, stream.events))
        )


def voided(stream: list[SamplingEvent], then: Sequence[SamplingEvent]) -> list[SamplingEvent]:
    """An attempt that came to nothing, and the one after it."""
    return [*stream[:-1], retrying(stream[-1]), *then]


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25)
@given(data=st.data())
def test_every_change_to_a_legal_stream_is_found_where_it_is(backend: str, data: st.DataObject) -> None:
    body, _ = data.draw(MADE[backend]())
    if data.draw(st.booleans()):
        check_all_changes(Stream(backend, told(backend, body)))
    else:
        first, _ = data.draw(MADE[backend]())
        first = first[: data.draw(st.integers(0, len(first)))]
        check_all_changes(Stream(backend, voided(told(backend, first), told(backend, body, attempt=2))))


@pytest.mark.parametrize("path", RECORDINGS, ids=[f"{p.parent.name}-{p.stem}" for p in RECORDINGS])
def test_every_change_to_a_recording_is_found_where_it_is(path: Path) -> None:
    check_all_changes(Stream(path.parent.name, told(path.parent.name, path.read_bytes())))


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25)
@given(data=st.data())
def test_time_that_goes_back_is_found(backend: str, data: st.DataObject) -> None:
    body, _ = data.draw(MADE[backend]())
    events = told(backend, body, tick_s=TICK_S)
    for at, event in enumerate(events):
        if at > 0:
            error = broken([*events[:at], replace(event, ts=events[at - 1].ts - 0.01), *events[at + 1 :]], backend)
            assert error is not None
            assert error.position == at
        if at < len(events) - 1:
            error = broken([*events[:at], replace(event, ts=events[at + 1].ts + 0.01), *events[at + 1 :]], backend)
            assert error is not None
            assert error.position == at + 1
    # An end that came later than it says is no matter of order: its own figures give it away.
    error = broken([*events[:-1], replace(events[-1], ts=events[-1].ts + 1)], backend)
    assert error is not None
    assert "time_to_last_byte_ms" in error.rule


@pytest.mark.parametrize("backend", BACKENDS)
@given(data=st.data())
def test_the_beginning_of_a_legal_stream_is_in_order(backend: str, data: st.DataObject) -> None:
    body, _ = data.draw(MADE[backend]())
    events = told(backend, body)
    for cut in range(len(events)):
        assert broken(events[:cut], backend, whole=False) is None


# -- what the grammar found


def test_a_call_whose_id_changes_says_so() -> None:
    # Told by its deltas before its item came: the item then brings the id that a result must name.
    body = sse(
        ev("created", response={"id": "resp-1", "model": "toy-1"}),
        ev("function_call_arguments.delta", output_index=0, item_id="fc-1", delta='{"a"'),
        ev("function_call_arguments.done", output_index=0, item_id="fc-1", arguments='{"a":1}') | {"name": "f"},
        ev(
            "output_item.done",
            output_index=0,
            item={"type": "function_call", "id": "fc-1", "call_id": "call-9", "name": "f", "arguments": '{"a":1}'},
        ),
        ended(),
    )
    events = run(RESPONSES, body)
    check_events(events, backend=RESPONSES)
    ids = [event.id for event in events if isinstance(event, ToolCallDelta) and event.id]
    assert ids == ["fc-1", "call-9"]
    end = events[-1]
    assert isinstance(end, Completed)
    assert [call.id for call in end.response.tool_calls] == ["call-9"]


def test_what_is_held_back_comes_before_the_signals_that_end_the_attempt() -> None:
    pulse = Pulse(2_000.0)
    wire_format = get_backend(RESPONSES)
    context = Context(request_id="r", pulse=pulse, split_think_tags=True, doom_loop_threshold=64)
    transform = wire_format.transform(context)
    body = sse(
        ev("created", response={"id": "resp-1", "model": "toy-1"}),
        ev("output_text.delta", output_index=0, content_index=0, delta="a <thi"),  # half a tag, perhaps
        ev("doom_loop_check", doom_loop_check={"triggers": ["tail_repetition:8@thinking"]}),
        ev("output_text.delta", output_index=0, content_index=0, delta="nk>"),
    )
    events = transform.opening({})
    rx.of(body).pipe(
        through(SseParser, lambda: EventReader(ChunkDecoder(wire_format), transform)),
        failures_as_events(request_id="r"),
    ).subscribe(events.append, scheduler=StillTime())
    assert [event.kind for event in events][-3:] == ["channel_token", "doom_loop_signals", "failed"]
    check_events(events, backend=RESPONSES)


SEARCHES: Final = [
    ev("output_item.added", output_index=0, item={"type": "web_search_call", "id": "ws-1"}),
    ev("web_search_call.searching", output_index=0, item_id="ws-1"),
    ev("output_item.done", output_index=0, item={"type": "web_search_call", "id": "ws-1", "status": "completed"}),
]


@pytest.mark.parametrize("place", [None, 7], ids=["no index", "another index"])
def test_a_hosted_call_whose_events_disagree_on_its_place_keeps_the_grammar(place: int | None) -> None:
    opened = {**SEARCHES[0], "output_index": place}
    events = run(RESPONSES, sse(opened, *SEARCHES[1:], ended()))
    check_events(events)
    started = [event.call_id for event in events if isinstance(event, BackendToolCallStarted)]
    assert started == (["ws-1"] if place is None else ["ws-1", "ws-1_1"])


def test_a_hosted_call_stays_one_when_its_name_changes() -> None:
    item: dict[str, Any] = {"type": "custom_tool_call", "id": "ct-1", "call_id": "c-1", "name": "x_user_search"}
    body = sse(
        ev("output_item.added", output_index=0, item=item),
        ev("output_item.done", output_index=0, item={**item, "name": "other", "input": "owls"}),
        ended(),
    )
    events = run(RESPONSES, body)
    check_events(events)
    assert not [event for event in events if isinstance(event, ToolCallDelta)]


def test_the_text_of_a_reasoning_is_what_streamed_whatever_the_order_of_its_parts() -> None:
    where: dict[str, Any] = {"output_index": 0, "item_id": "rs-1"}
    body = sse(
        ev("output_item.added", output_index=0, item={"type": "reasoning", "id": "rs-1", "summary": []}),
        ev("reasoning_summary_text.delta", summary_index=0, delta="", **where),
        ev("reasoning_summary_text.delta", summary_index=1, delta="later", **where),
        ev("reasoning_summary_text.delta", summary_index=0, delta="earlier", **where),
        ended(),
    )
    events = run(RESPONSES, body)
    check_events(events)
    end = events[-1]
    assert isinstance(end, Completed)
    assert end.response.reasoning == "later\n\nearlier"


def test_a_hosted_call_that_comes_twice_is_told_once() -> None:
    use = opens(0, "server_tool_use", id="st-1", name="web_search", input={})
    found = opens(1, "web_search_tool_result", tool_use_id="st-1", content=[])
    body = sse(started(), use, closes(0), use, closes(0), found, closes(1), found, closes(1), stops("end_turn"), STOP)
    events = run(MESSAGES, body)
    check_events(events)
    kinds = [e.kind for e in events if isinstance(e, BackendToolCallStarted | BackendToolCallCompleted)]
    assert kinds == ["backend_tool_call_started", "backend_tool_call_completed"]
