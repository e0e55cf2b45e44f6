"""Every operator against the rules of all operators, and its diagram against a test."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import reactivex as rx
from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable

from rx_sampler import ChannelToken, SamplingError, operators
from rx_sampler.testing import check_operator, diagram_of

Operator = Callable[[Observable[Any]], Observable[Any]]


def connected(source: Observable[Any]) -> Observable[Any]:
    """The events of `split_channels`, connected by the subscription."""

    def subscribe(observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        channels = source.pipe(operators.split_channels())
        listening = channels.events.subscribe(observer, scheduler=scheduler)
        return CompositeDisposable(listening, channels.connect(scheduler))

    return Observable(subscribe)


def key_of(group: Any) -> str:
    return group.key


EXAMPLES: Final[dict[str, list[tuple[Callable[[], Any], dict[str, Any]]]]] = {
    "accumulate": [(operators.accumulate, {})],
    "annotations": [(operators.annotations, {})],
    "by_request": [(operators.by_request, {"view": key_of})],
    "channel": [(lambda: operators.channel("refusal"), {})],
    "commit_on": [
        (operators.commit_on, {"restarts": False, "per_request": False}),  # one request's: a commitment ends the stream
        (lambda: operators.commit_on("reasoning", cancel=print), {"restarts": False}),
    ],
    "detect_loop": [(operators.detect_loop, {})],
    "fallback": [(lambda: operators.fallback(), {"restarts": False, "per_request": False})],
    "for_request": [(lambda: operators.for_request("sample-3"), {})],
    "goodput": [(lambda: operators.goodput(operators.Slo(time_to_first_token_ms=2.5)), {"per_request": False})],
    "hedge": [(lambda: operators.hedge(0.0025, rx.empty()), {"restarts": False, "per_request": False})],
    "in_flight": [(operators.in_flight, {"per_request": False})],  # counts all of them
    "inter_token_latency": [
        (operators.inter_token_latency, {}),
        (lambda: operators.inter_token_latency("reasoning"), {}),
    ],
    "latency_stats": [(operators.latency_stats, {"per_request": False})],
    "lines": [(operators.lines, {}), (lambda: operators.lines("reasoning"), {})],
    "merge_tagged": [(lambda: operators.merge_tagged("a", {"b": rx.empty()}), {})],
    "of_type": [(lambda: operators.of_type(ChannelToken), {})],
    "partial_arguments": [(operators.partial_arguments, {})],
    "partial_json": [(lambda: operators.partial_json(list[int]), {})],
    "race": [(lambda: operators.race(rx.empty()), {"restarts": False, "per_request": False})],
    "reasoning": [(operators.reasoning, {})],
    "sentences": [(operators.sentences, {})],
    "smooth": [(operators.smooth, {}), (lambda: operators.smooth(0.001, 0.003), {})],
    "split_channels": [(lambda: connected, {"guards_subscribers": True})],
    "split_think_tags": [(operators.split_think_tags, {})],
    "text": [(operators.text, {})],
    "time_to_first_text": [(operators.time_to_first_text, {})],
    "time_to_first_token": [(operators.time_to_first_token, {})],
    "token_rate": [(operators.token_rate, {})],
    "tool_calls": [(operators.tool_calls, {}), (lambda: operators.tool_calls(early=True), {})],
    "until_terminal": [(operators.until_terminal, {"per_request": False})],  # interleaved, it ends when all have
    "unwrap": [(operators.unwrap, {"per_request": False, "own_errors": SamplingError})],  # the first failure ends all
}

ALL: Final = sorted(name for name in operators.__all__ if inspect.isfunction(getattr(operators, name)))
TESTS: Final = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))


def test_none_is_forgotten() -> None:
    assert sorted(EXAMPLES) == ALL


@pytest.mark.parametrize("name", ALL)
def test_it_keeps_the_rules(name: str) -> None:
    for make, options in EXAMPLES[name]:
        check_operator(make, **options)


@pytest.mark.parametrize("name", ALL)
def test_its_diagram_is_that_of_a_test(name: str) -> None:
    assert diagram_of(getattr(operators, name))
    assert f"diagram_of({name})" in TESTS or f"diagram_of(operators.{name})" in TESTS
