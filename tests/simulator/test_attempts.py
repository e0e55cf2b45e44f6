"""Faults per attempt, observed at the socket: each request meets its own, whoever else retries at the same time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rx_sampler.simulator import Fault, SimulatorThread, Turn

from .raw_http import BODIES, Answer, post

PATHS = pytest.mark.parametrize("path", list(BODIES))

FAULTS = (
    Fault(kind="close"),
    Fault(kind="reset"),
    Fault(kind="status", status=429, headers={"retry-after-ms": "5"}),
    Fault(kind="cut", after_deltas=1),
    Fault(kind="truncated_json"),
)


def asking(path: str, question: str) -> dict[str, Any]:
    body = {**BODIES[path], "stream": True}
    if path == "/v1/responses":
        return {**body, "input": question}
    return {**body, "messages": [{"role": "user", "content": question}]}


def outcome(answer: Answer) -> str:
    """What became of an attempt, in the words of the fault that it met."""
    if not answer.raw:
        return "close" if answer.ending == "closed" else "reset"
    if answer.status == 429:
        return "status"
    if not answer.is_whole:
        return "cut"
    try:
        return "answered" if answer.data else "early_end"
    except json.JSONDecodeError:
        return "truncated_json"


EXPECTED = [*(fault.kind for fault in FAULTS), "answered"]


@PATHS
def test_each_attempt_meets_its_own_fault(simulator: SimulatorThread, path: str) -> None:
    simulator.script_next(Turn(text="well", faults=FAULTS), Turn(text="next"))
    body = asking(path, "Why?")
    answers = [post(simulator.origin, path, body) for _ in EXPECTED]
    assert [outcome(answer) for answer in answers] == EXPECTED
    assert b"well" in answers[-1].body
    assert answers[2].headers["retry-after-ms"] == "5"
    assert b"next" in post(simulator.origin, path, body).body
    told = [(request.turn, request.attempt, request.fault) for request in simulator.requests]
    assert told == [*((0, number, fault) for number, fault in enumerate((*FAULTS, None), start=1)), (1, 1, None)]
    assert len({request.key for request in simulator.requests}) == 1


def test_requests_that_retry_side_by_side_keep_their_turns(simulator: SimulatorThread) -> None:
    count = 12
    simulator.script_next(*(Turn(text=f"answer {number}", faults=FAULTS) for number in range(count)))

    def persist(number: int) -> tuple[list[str], bytes]:
        path = list(BODIES)[number % 3]
        answers = [post(simulator.origin, path, asking(path, f"Question {number}?")) for _ in EXPECTED]
        return [outcome(answer) for answer in answers], answers[-1].body

    with ThreadPoolExecutor(count) as threads:
        ended = list(threads.map(persist, range(count)))
    assert [outcomes for outcomes, _ in ended] == [EXPECTED] * count
    taken: dict[str | None, set[int | None]] = {}
    for request in simulator.requests:
        taken.setdefault(request.key, set()).add(request.turn)
    assert sorted(turns.pop() or 0 for turns in taken.values() if len(turns) == 1) == list(range(count))


@PATHS
def test_the_same_question_by_two_names_is_two_requests(simulator: SimulatorThread, path: str) -> None:
    simulator.script_next(Turn(faults=(Fault(kind="close"),)), Turn(faults=(Fault(kind="reset"),)))
    body = asking(path, "Why?")
    order = ("one", "two", "two", "one")
    answers = [post(simulator.origin, path, body, {"x-simulator-request": name}) for name in order]
    assert [outcome(answer) for answer in answers] == ["close", "reset", "answered", "answered"]
    assert [(request.key, request.attempt) for request in simulator.requests] == [
        ("one", 1),
        ("two", 1),
        ("two", 2),
        ("one", 2),
    ]


IMAGES = {
    "/v1/chat/completions": {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    "/v1/responses": {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
    "/v1/messages": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
}


@PATHS
@pytest.mark.parametrize("fault", [Fault(kind="status", status=413), Fault(kind="upload_reset", after_bytes=20)])
def test_a_retry_without_its_image_is_the_same_request(simulator: SimulatorThread, path: str, fault: Fault) -> None:
    kind = "input_text" if path == "/v1/responses" else "text"
    content = [{"type": kind, "text": "What is this?"}, IMAGES[path]]
    field = "input" if path == "/v1/responses" else "messages"
    body = {**BODIES[path], field: [{"role": "user", "content": content}]}
    stripped = {**BODIES[path], field: [{"role": "user", "content": "What is this?\n[image removed]"}]}
    simulator.script_next(Turn(text="turn", faults=(fault,)), Turn(text="next"))
    first = post(simulator.origin, path, body)
    assert (first.status if first.raw else first.ending) == (413 if fault.kind == "status" else "reset")
    assert b"turn" in post(simulator.origin, path, stripped).body
    assert [(request.turn, request.attempt) for request in simulator.requests] == [(0, 1), (0, 2)]


@PATHS
def test_a_request_may_bring_its_own_attempts(simulator: SimulatorThread, path: str) -> None:
    own = Turn(text="own", faults=(Fault(kind="close"),)).model_dump_json(exclude_unset=True)
    answers = [post(simulator.origin, path, asking(path, "Why?"), {"x-simulator-turn": own}) for _ in range(2)]
    assert outcome(answers[0]) == "close"
    assert b'"own"' in answers[1].body
    assert [(request.turn, request.attempt) for request in simulator.requests] == [(None, 1), (None, 2)]


@PATHS
def test_an_upload_that_only_the_body_can_tell_is_reset_after_it(simulator: SimulatorThread, path: str) -> None:
    held_back = Turn(faults=(Fault(kind="close"), None))
    simulator.script_next(held_back, Turn(fault=Fault(kind="upload_reset")))
    bodies = [asking(path, question) for question in ("Why?", "How?", "Why?")]  # of the same length
    answers = [post(simulator.origin, path, body) for body in bodies]
    assert [outcome(answer) for answer in answers] == ["close", "reset", "answered"]
    assert [request.turn for request in simulator.requests] == [0, 1, 0]
