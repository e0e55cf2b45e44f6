"""One request of a storm as it is played: asked, watched, broken off, and looked at afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from rx_sampler import Completed, Failed, ImagesStripped, Retrying, Sampler, SamplingError, SamplingEvent
from rx_sampler import SamplingErrorKind as Kind
from rx_sampler.sampler import SamplingResult

from .grammar import broken_rule, last_text
from .scripts import Script
from .viewers import Ledger, StormError, Viewer

__all__ = ["CollectPlay", "Play", "play_of"]

HANG_S: Final = 30.0
"""A request that takes longer hangs: the longest script of faults and waits takes a few seconds."""


class Play:
    """A request: `run` plays it, `faults` says afterwards what was wrong with it."""

    def __init__(self, script: Script, sampler: Sampler, ledger: Ledger, raised: list[StormError]) -> None:
        self.script = script
        self.begun = asyncio.Event()
        self.outcome = "hung"
        self._sampler = sampler
        self._ledger = ledger
        self._raised = raised
        self._notes: list[str] = []
        self._done = False
        self._is_inside = False
        """What is done now is done inside `on_next`."""
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        deed = self.script.deed
        if deed is not None and deed.after_events is None:
            self._later(deed.after_s)
        try:
            async with asyncio.timeout(HANG_S):
                await self._play()
        except TimeoutError:
            self._notes.append(f"not ended after {HANG_S:g} s")
        except Exception as error:
            self._notes.append(f"asking raised {error!r}")
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self.begun.set()

    @property
    def seen(self) -> Sequence[Sequence[SamplingEvent]]:
        """What its subscribers saw; of a `collect` what the bus showed, once `faults` has looked."""
        return ()

    def faults(self, bus: Mapping[str, Sequence[SamplingEvent]]) -> Iterator[str]:
        """What was wrong with it; `bus` is what `events` showed of all requests, by id."""
        yield from self._notes
        yield from self._faults(bus)
        if (record := self._ledger.by_name.get(self.script.name)) is not None:
            yield from record.faults()

    async def _play(self) -> None:
        raise NotImplementedError

    def _faults(self, bus: Mapping[str, Sequence[SamplingEvent]]) -> Iterator[str]:
        raise NotImplementedError

    def _do(self) -> None:
        """The caller's deed."""
        raise NotImplementedError

    def _count(self, count: int) -> None:
        """An event came to the subscriber that the deed is about."""
        deed = self.script.deed
        if deed is not None and deed.after_events == count:
            if deed.after_s is None:
                self._is_inside = True
                self._do()
                self._is_inside = False
            self._later(deed.after_s)

    def _later(self, seconds: float | None) -> None:
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._do)

    def _at_end(self) -> None:
        if self.script.deed is not None and self.script.deed.act == "raise_at_end":
            raise self._own_error()

    def _own_error(self) -> StormError:
        """An error for a subscriber to raise, which has to be reported."""
        error = StormError(self.script.name)
        self._raised.append(error)
        return error

    def _ended(self, events: Sequence[SamplingEvent], gone: bool) -> None:
        last = events[-1] if events else None
        self.outcome = outcome_of(last) if isinstance(last, Completed | Failed) else "left" if gone else "no end"


def outcome_of(end: Completed | Failed) -> str:
    return f"failed {end.error.kind}" if isinstance(end, Failed) else end.kind


def wrong_answer(events: Sequence[SamplingEvent], script: Script) -> str | None:
    """What an answer that counts as complete says instead of what the server had to say."""
    end = events[-1] if events else None
    if isinstance(end, Completed) and end.response.text != script.text:
        return f"Completed says {end.response.text!r} instead of {script.text!r}"
    return None


class StreamPlay(Play):
    """`stream`: one subscriber, which leaves, raises, or stays."""

    def __init__(self, script: Script, sampler: Sampler, ledger: Ledger, raised: list[StormError]) -> None:
        super().__init__(script, sampler, ledger, raised)
        self._viewer = Viewer(self._count, self._at_end)

    async def _play(self) -> None:
        viewer = self._viewer
        viewer.watch(self._sampler.stream(self.script.request, request_id=self.script.name))
        self.begun.set()
        await viewer.over.wait()
        self._ended(viewer.events, viewer.gone)

    @property
    def seen(self) -> Sequence[Sequence[SamplingEvent]]:
        return (self._viewer.events,)

    def _do(self) -> None:
        assert self.script.deed is not None
        if self.script.deed.act == "raise":
            self._viewer.fail(self._own_error())
        self._viewer.dispose()

    def _faults(self, bus: Mapping[str, Sequence[SamplingEvent]]) -> Iterator[str]:
        yield from self._viewer.faults("the subscriber")
        if wrong := wrong_answer(self._viewer.events, self.script):
            yield wrong
        if self.script.name in bus:
            yield "a streamed request is on the bus"


class SubmitPlay(Play):
    """`submit` and `events_of`: one subscriber that misbehaves, one that does not, perhaps one that comes late."""

    def __init__(self, script: Script, sampler: Sampler, ledger: Ledger, raised: list[StormError]) -> None:
        super().__init__(script, sampler, ledger, raised)
        self._first = Viewer(self._count, self._at_end)
        self._witnesses: list[Viewer] = []
        self._late: Viewer | None = None
        self._was_active = False

    async def _play(self) -> None:
        script = self.script
        if script.from_thread:
            await asyncio.to_thread(self._sampler.submit, script.request, script.name)
        else:
            self._sampler.submit(script.request, script.name)
        source = self._sampler.events_of(script.name)
        witness = Viewer(self._welcome_late)
        self._witnesses.append(witness)
        # In turn, so that the one that misbehaves comes before and behind the one that does not.
        pair = (witness, self._first) if script.index % 2 else (self._first, witness)
        for viewer in pair:
            viewer.watch(source)
        self.begun.set()
        await witness.over.wait()
        deed = script.deed
        if deed is not None and deed.act == "submit_again" and not self._done:
            self._do()  # under the id of a request that has ended
        if script.late_after is not None and self._late is None:
            self._join_late()
        for viewer in [self._first, *self._witnesses]:
            await viewer.over.wait()
        self._ended(witness.events, gone=False)

    @property
    def seen(self) -> Sequence[Sequence[SamplingEvent]]:
        return [viewer.events for viewer in self._witnesses]

    def _do(self) -> None:
        deed, name, sampler = self.script.deed, self.script.name, self._sampler
        assert deed is not None
        if self._done or not self._witnesses:  # not submitted yet, by a thread that takes its time
            return
        self._done = True
        match deed.act:
            case "dispose":
                self._first.dispose()
            case "raise":
                self._first.fail(self._own_error())
            case "cancel":
                self._ending(lambda: sampler.cancel(name))
            case "cancel_in_thread":
                asyncio.get_running_loop().run_in_executor(None, sampler.cancel, name)
            case "submit_again":
                again = self.script.again
                assert again is not None
                self._ending(lambda: sampler.submit(again.request, name))
                witness = Viewer()
                self._witnesses.append(witness)
                witness.watch(sampler.events_of(name))
            case "raise_at_end":
                raise AssertionError("has its own time")

    def _ending(self, act: Callable[[], object]) -> None:
        """Do what ends the request at once, with a single event, unless it had ended."""
        self._was_active, before = self._sampler.is_active(self.script.name), len(self._witnesses[0].events)
        act()
        # Inside on_next, all that is told comes after the event in hand.
        if self._was_active and not self._is_inside and len(self._witnesses[0].events) != before + 1:
            self._notes.append(f"event {before} should have been its end")

    def _welcome_late(self, count: int) -> None:
        if count == self.script.late_after:
            self._join_late()

    def _join_late(self) -> None:
        self._late = Viewer()
        self._late.watch(self._sampler.events_of(self.script.name))

    def _faults(self, bus: Mapping[str, Sequence[SamplingEvent]]) -> Iterator[str]:
        first, witnesses = self._first, self._witnesses
        yield from first.faults("the subscriber")
        for number, witness in enumerate(witnesses):
            yield from witness.faults(f"witness {number}")
        whole = witnesses[0].events if witnesses else []
        if (len(first.events) != len(whole) and not first.gone) or first.events != whole[: len(first.events)]:
            yield f"the subscriber saw other events than the witness: {[event.kind for event in first.events]}"
        if self._late is not None:
            yield from self._late.faults("the late subscriber")
            if self._late.events != whole:
                yield f"the late subscriber saw other events: {[event.kind for event in self._late.events]}"
        shown = bus.get(self.script.name, [])
        if list(shown) != [event for witness in witnesses for event in witness.events]:
            yield f"the bus showed other events: {[event.kind for event in shown]}"
        for script, witness in zip((self.script, self.script.again or self.script), witnesses, strict=False):
            if wrong := wrong_answer(witness.events, script):
                yield wrong
        end = whole[-1] if whole else None
        if self._was_active and not (isinstance(end, Failed) and end.error.kind is Kind.CANCELLED):
            yield "it was active when it was cancelled, and did not end as cancelled"


class CollectPlay(Play):
    """`collect`: awaited by a task, which may be cancelled."""

    def __init__(self, script: Script, sampler: Sampler, ledger: Ledger, raised: list[StormError]) -> None:
        super().__init__(script, sampler, ledger, raised)
        self.request_id: str | None = None
        """None if it was never made."""
        self._task: asyncio.Task[SamplingResult] | None = None
        self._result: SamplingResult | None = None
        self._error: BaseException | None = None
        self._events: Sequence[SamplingEvent] = ()

    @property
    def seen(self) -> Sequence[Sequence[SamplingEvent]]:
        return (self._events,)

    async def _play(self) -> None:
        self._task = asyncio.create_task(self._sampler.collect(self.script.request), name="storm collect")
        await asyncio.sleep(0)  # its first step
        self.begun.set()
        try:
            await asyncio.wait([self._task])
        finally:
            self._task.cancel()
        record = self._ledger.by_name.get(self.script.name)
        self.request_id = record.request_id if record is not None else None
        if self.request_id is not None and self._sampler.is_active(self.request_id):
            self._notes.append("the request goes on without its collector")
        if self._task.cancelled():
            self.outcome = "left"
        elif (error := self._task.exception()) is not None:
            self._error = error
            self.outcome = f"failed {error.kind}" if isinstance(error, SamplingError) else repr(error)
        else:
            self._result = self._task.result()
            self.outcome = "completed"

    def _do(self) -> None:
        if self._task is not None:
            self._done = True
            self._task.cancel()

    def _faults(self, bus: Mapping[str, Sequence[SamplingEvent]]) -> Iterator[str]:
        self._events = events = bus.get(self.request_id or "", ())
        if self.request_id is not None and (wrong := broken_rule(events, whole=True)):
            yield f"on the bus: {wrong}"
        if self.outcome == "left" and not self._done:
            yield "the task was cancelled, by nobody"
        elif self._error is not None and not isinstance(self._error, SamplingError):
            yield f"collect raised {self._error!r}"
        elif isinstance(self._error, SamplingError):
            end = events[-1] if events else None
            if not isinstance(end, Failed) or end.error != self._error.info:
                yield f"collect raised {self._error!r}, the bus showed {end}"
        elif (result := self._result) is not None:
            if result.request_id != self.request_id:
                yield f"the result is of request {result.request_id} instead of {self.request_id}"
            retries = tuple(event for event in events if isinstance(event, Retrying))
            stripped = tuple(event for event in events if isinstance(event, ImagesStripped))
            if dict(result.events_summary) != Counter(event.kind for event in events):
                yield f"events_summary is {dict(result.events_summary)}"
            if (result.retries, result.images_stripped) != (retries, stripped):
                yield f"the result tells of {len(result.retries)} retries and {len(result.images_stripped)} strippings"
            if result.response.text != self.script.text or last_text(events) != self.script.text:
                yield f"the answer is {result.response.text!r} instead of {self.script.text!r}"


def play_of(script: Script, sampler: Sampler, ledger: Ledger, raised: list[StormError]) -> Play:
    kinds: dict[str, type[Play]] = {"stream": StreamPlay, "submit": SubmitPlay, "collect": CollectPlay}
    return kinds[script.how](script, sampler, ledger, raised)
