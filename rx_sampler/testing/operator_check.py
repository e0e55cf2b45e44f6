"""A conformance kit for operators: what must hold for each of them, ours and yours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from reactivex import Observable

from rx_sampler.events import Retrying, SamplingEvent

from .made import annotation, reasoning, refusal, response_started, text, tool
from .marble_report import Notice, difference
from .marbles import drawn
from .operator_probe import Run, Script, SourceError, scripted
from .operator_rules import by_time, merges, no_thread_started, woven

__all__ = ["SAMPLE_STREAMS", "check_operator"]

Operator = Callable[[Observable[Any]], Observable[Any]]

_DIAGRAMS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (
        "Sm(Fa)bcdC",
        {"m": response_started(), "a": text("Hello "), "b": text("wor"), "c": text("ld.\nHow"), "d": text("?")},
    ),
    (
        "S(Fr)s(t)uvwC",
        {
            "r": reasoning("Let me "),
            "s": reasoning("see."),
            "t": text("One moment"),
            "u": tool(0, id="call_1", name="look_up", arguments='{"what": "s'),
            "v": tool(0, arguments='ky"}'),
            "w": tool(1, id="call_2", name="now", arguments="{}"),
        },
    ),
    ("S(Fa)bRS(Fc)dC", {}),
    ("RS(Fa)bC", {}),
    ("S(Fa)bX", {}),
    ("S(Fr)qC", {"r": refusal("I "), "q": refusal("cannot.")}),
    ("S(Fa)nbC", {"n": annotation(offset=1)}),
    ("X", {}),
)

SAMPLE_STREAMS: Final[tuple[tuple[SamplingEvent, ...], ...]] = tuple(
    tuple(drawn(diagram, templates, request_id=f"sample-{number}"))
    for number, (diagram, templates) in enumerate(_DIAGRAMS, 1)
)
"""Legal streams of one request each: text, reasoning and calls, retries, failures, a refusal, a citation."""

_INTERLEAVINGS: Final = 5


def check_operator(
    make: Callable[[], Operator],
    streams: Sequence[Sequence[Any]] = SAMPLE_STREAMS,
    *,
    view: Callable[[Any], Any] = lambda value: value,
    per_request: bool = True,
    restarts: bool = True,
    passes_errors: bool = True,
    own_errors: type[Exception] | tuple[type[Exception], ...] = (),
    guards_subscribers: bool = False,
) -> None:
    """Hold an operator against the rules that every operator keeps; AssertionError says which one it breaks, and how.

        check_operator(lambda: lines())

    `make` makes the operator, `streams` are the values that it is tried on, each a stream of its own, in virtual time.
    The rules:

    * Nothing is subscribed to before it is subscribed to itself; then its source gets the scheduler.
    * Its state belongs to the subscription: applied twice, subscribed to twice, one after the other or at a time, it
      gives the same.
    * It gives the same of a source that says everything while it is subscribed to, such as a list.
    * Disposed at any time, it lets go of its source at once, leaves no timer, and says nothing more.
    * It ends once, says nothing behind its end, and leaves no timer. It completes, with its source at the latest, or
      ends with one of its `own_errors`; it raises nothing into its source.
    * The source's error comes out as the same object (unless `passes_errors` is false).
    * No thread is started.
    * What a subscriber raises goes to the producer, and nobody else hears of it (unless `guards_subscribers`).
    * Of interleaved requests each gets what it gets alone, at the same times (unless `per_request` is false).
    * What was before a `Retrying` makes no difference to the values behind it (unless `restarts` is false).

    Outputs are compared by `==`; `view` makes comparable what is not, such as groups.
    """
    check = _Check(make, view)
    with no_thread_started():
        for number, stream in enumerate(streams, 1):
            try:
                check.forwards(stream, own_errors)
                check.state(stream)
                check.at_once(stream)
                check.disposal(stream)
                check.errors(stream, passes_errors)
                if not guards_subscribers:
                    check.raising(stream)
                if restarts:
                    check.restart(stream)
            except AssertionError as wrong:
                wrong.add_note(
                    f"on stream {number}: {', '.join(getattr(value, 'kind', repr(value)) for value in stream)}"
                )
                raise
        if per_request:
            for seed in range(_INTERLEAVINGS):
                check.interleaved(streams, seed)


class _Check:
    def __init__(self, make: Callable[[], Operator], view: Callable[[Any], Any]) -> None:
        self._make = make
        self._view = view

    def _run(self, script: Script, **options: Any) -> Run:
        return Run(self._make(), script, view=self._view, **options)

    def _alone(self, script: Script) -> list[Notice]:
        return self._run(script).subscribe().to_the_end().notices

    def forwards(self, values: Sequence[Any], own_errors: type[Exception] | tuple[type[Exception], ...]) -> None:
        run = self._run(scripted(values))
        if run.probe.schedulers:
            raise AssertionError("it subscribes to its source before anybody subscribes to it")
        run.subscribe().to_the_end()
        if not run.probe.schedulers:
            raise AssertionError("it does not subscribe to its source")
        if any(scheduler is not run.scheduler for scheduler in run.probe.schedulers):
            raise AssertionError(f"it does not hand the scheduler on: its source got {run.probe.schedulers[0]!r}")
        end = _one_end(run)
        if end.kind == "error" and not isinstance(end.value, own_errors):
            raise AssertionError(f"its source completed, and what comes is {end}")

    def state(self, values: Sequence[Any]) -> None:
        script = scripted(values)
        expected = self._alone(script)
        run = self._run(script).subscribe().to_the_end()
        _same("subscribed to a second time", expected, run.subscribe().to_the_end().notices)
        run = self._run(script)
        first = run.watch()
        run.at(2.5, run.watch).to_the_end()
        _same("subscribed to twice at a time", expected, first)
        _same("subscribed to while another subscription runs", expected, run.notices)
        operator = self._make()
        for number in ("first", "second"):
            run = Run(operator, script, view=self._view).subscribe().to_the_end()
            _same(f"applied to its {number} source", expected, run.notices)
        run = Run(operator, script, view=self._view)
        other = Run(operator, script, view=self._view, scheduler=run.scheduler)
        run.subscribe().at(2.5, other.watch).to_the_end()
        for one in (run, other):
            _same("applied to two sources at a time", expected, one.notices)

    def at_once(self, values: Sequence[Any]) -> None:
        script = Script(tuple((0, value) for value in values), 0)
        expected = self._alone(script)
        run = self._run(replace(script, inside_subscribe=True)).subscribe().to_the_end()
        when = "from a source that says all while it is subscribed to"
        _same(when, expected, run.notices, "one that says it later")
        _one_end(run, f"{when}, ")

    def disposal(self, values: Sequence[Any]) -> None:
        script = scripted(values)
        whole = self._alone(script)
        for place in range(len(values) + 1):
            run = self._run(script).subscribe()
            held: list[int] = []

            def leave(run: Run = run, held: list[int] = held) -> None:
                held.append(len(run.notices))
                run.subscription.dispose()
                held.extend((run.probe.active, run.scheduler.pending))

            run.at(place + 0.5, leave).to_the_end()
            count, active, pending = held
            if active:
                raise AssertionError(f"disposed after value {place}, it holds on to its source")
            if pending:
                raise AssertionError(f"disposed after value {place}, it leaves {pending} timers behind")
            if len(run.notices) != count:
                raise AssertionError(f"disposed after value {place}, it still says\n{_listed(run.notices[count:])}")
        for number in range(1, len(whole)):
            run = self._acting_at(script, number, lambda run: run.subscription.dispose()).to_the_end()
            if len(run.notices) != number:
                raise AssertionError(f"disposed inside on_next of output {number}, it gives {len(run.notices)}")
            if run.probe.spoke_at_ms > run.notices[-1].at_ms:
                raise AssertionError(f"disposed inside on_next of output {number}, it holds on to its source")
            if run.now_ms > run.notices[-1].at_ms:
                raise AssertionError(f"disposed inside on_next of output {number}, it leaves timers behind")

    def _acting_at(self, script: Script, number: int, act: Callable[[Run], None]) -> Run:
        """A run whose subscriber does something while it handles what it is told as the `number`th."""

        def on_notice(_notice: Notice) -> None:
            if len(run.notices) == number:
                act(run)

        run = self._run(script, act=on_notice)
        return run.subscribe()

    def errors(self, values: Sequence[Any], passes_errors: bool) -> None:
        for place in range(len(values) + 1):
            error = SourceError(f"after value {place}")
            script = scripted(values[:place], error)
            run = self._run(script).subscribe().to_the_end()
            end = _one_end(run, f"its source failed after value {place}, ")
            if passes_errors and end.at_ms >= script.ends_at_ms and end.value is not error:
                raise AssertionError(f"its source failed with {error!r}, and what comes is {end}")

    def raising(self, values: Sequence[Any]) -> None:
        script = scripted(values)
        whole = self._alone(script)
        for number, notice in enumerate(whole, 1):
            if notice.kind == "error":
                continue
            place = f"output {number}" if notice.kind == "next" else "completion"
            bug = KeyError(place)

            def fail(_run: Run, bug: Exception = bug) -> None:
                raise bug

            run = self._acting_at(script, number, fail)
            raised: list[BaseException] = []
            try:
                run.to_the_end()
            except KeyError as error:
                raised.append(error)
            raised += run.probe.raised
            if raised != [bug]:
                raise AssertionError(f"a subscriber raised at {place}, and the producer was told {raised!r}")
            if any(notice.kind == "error" and notice.value is bug for notice in run.notices):
                raise AssertionError(f"a subscriber raised at {place}, and got its own error by on_error")

    def restart(self, values: Sequence[Any]) -> None:
        places = [place for place, value in enumerate(values) if isinstance(value, Retrying)]
        for place in places:
            with_it = self._values_behind(place + 1, values)
            without_it = self._values_behind(1, values[place:])
            if with_it != without_it:
                raise AssertionError(
                    "what was before a Retrying makes a difference behind it\n"
                    f"with it     {with_it!r}\nwithout it  {without_it!r}"
                )

    def _values_behind(self, ms: int, values: Sequence[Any]) -> list[Any]:
        return [notice.value for notice in self._alone(scripted(values)) if notice.kind == "next" and notice.at_ms > ms]

    def interleaved(self, streams: Sequence[Sequence[Any]], seed: int) -> None:
        """All that each stream gives alone must come at the same times when it is one of many, and nothing else."""
        scripts = woven(streams, seed)
        alone = [by_time(self._alone(script)) for script in scripts]
        whole = tuple(sorted((timed for script in scripts for timed in script.values), key=lambda timed: timed[0]))
        found = by_time(self._alone(Script(whole, scripts[0].ends_at_ms)))
        for ms in sorted({ms for outputs in (found, *alone) for ms in outputs}):
            parts = [outputs[ms] for outputs in alone if ms in outputs]
            if not merges(parts, found.get(ms, [])):
                expected = " and ".join(map(repr, parts)) or "nothing"
                raise AssertionError(
                    f"among others, at {ms:g} ms (order {seed}), it gives something else than alone\n"
                    f"alone  {expected}\namong  {found.get(ms, [])!r}"
                )


def _one_end(run: Run, when: str = "") -> Notice:
    """How a run ended that has nothing to do any more. AssertionError if that was not once, last, and all."""
    for error in run.probe.raised:
        raise AssertionError(f"{when}it raises {error!r} into its source") from error
    if len(run.ends) != 1 or run.notices[-1] is not run.ends[0]:
        raise AssertionError(f"{when}it does not end once, and last:\n{_listed(run.notices)}")
    end = run.notices[-1]
    if run.probe.spoke_at_ms > end.at_ms:
        raise AssertionError(f"{when}it is over at {end.at_ms:g} ms, but holds on to its source")
    if run.now_ms > end.at_ms:
        raise AssertionError(f"{when}it is over at {end.at_ms:g} ms, and a timer of its runs at {run.now_ms:g} ms")
    return end


def _same(when: str, expected: Sequence[Notice], found: Sequence[Notice], than: str = "alone") -> None:
    if (wrong := difference(expected, found, {})) is not None:
        what = f", it gives something else than {than}" if than else ""
        raise AssertionError(f"{when}{what}: {wrong}")


def _listed(notices: Sequence[Notice]) -> str:
    return "\n".join(f"  {notice}" for notice in notices) or "  nothing"
