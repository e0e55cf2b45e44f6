"""What it costs to make a body: little more memory than the body itself, and work that grows as the conversation."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

import pytest
from counted_calls import calls_during

from rx_sampler.backends.encoding import body_bytes
from rx_sampler.conversation import (
    ImagePart,
    Item,
    ReasoningItem,
    SamplingRequest,
    TextItem,
    TextPart,
    ToolCall,
    ToolResultItem,
    UserItem,
)

from .streams import BACKENDS, CHAT, MESSAGES, RESPONSES
from .wire_rules import encoded

IMAGES: Final = 20
IMAGE_CHARS: Final = 2**20
MOST: Final = {CHAT: 1.3, RESPONSES: 1.3, MESSAGES: 2.2}
"""How many times the body the peak may be. Messages wants the data of an image apart from the head of its URI, which
is a copy of it; the other two take the URI as it is."""


def image(number: int) -> ImagePart:
    """One of 1 MiB, unlike the others."""
    return ImagePart(url=f"data:image/png;base64,{number:04}".ljust(IMAGE_CHARS, "A"))


def turn(number: int, *images: ImagePart) -> list[Item]:
    """Five items, as they come about."""
    return [
        UserItem(content=[TextPart(text=f"Question {number}."), *images]),
        ReasoningItem(text="hm", signature="sig", id=f"rs_{number}", encrypted_content="enc"),
        TextItem(text="One moment."),
        ToolCall(id=f"call:{number}", name="look_up", arguments='{"w": "owl"}'),
        ToolResultItem(tool_call_id=f"call:{number}", content="a bird"),
    ]


def spread() -> list[Item]:
    """A thousand items, an image in every tenth turn."""
    turns = [turn(number, *([image(number)] if number % 10 == 0 else [])) for number in range(10 * IMAGES)]
    return [item for items in turns for item in items]


def in_one_question() -> list[Item]:
    return [UserItem(content=[image(number) for number in range(IMAGES)])]


def in_the_results_of_one_turn() -> list[Item]:
    """Which messages puts into one user message."""
    calls = [ToolCall(id=f"c{number}", name="look_up", arguments="{}") for number in range(IMAGES)]
    results = [
        ToolResultItem(tool_call_id=f"c{number}", content="", images=[image(number)]) for number in range(IMAGES)
    ]
    return [*turn(0), *calls, *results]


def peak_and_size(work: Callable[[], bytes]) -> tuple[int, int]:
    """The most bytes that were held at a time while `work` ran, and the length of its result."""
    gc.collect()
    tracemalloc.start()
    try:
        size = len(work())
        return tracemalloc.get_traced_memory()[1], size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("made", [spread, in_one_question, in_the_results_of_one_turn])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_peak_is_the_body_and_little_more(backend: str, made: Callable[[], list[Item]]) -> None:
    request = SamplingRequest(items=made())
    assert len(request.items) == 1000 or made is not spread
    encoded(backend, SamplingRequest(items=turn(0)))  # what is built at first use
    peak, size = peak_and_size(lambda: body_bytes(encoded(backend, request)))
    assert size > IMAGES * IMAGE_CHARS
    assert peak <= MOST[backend] * size


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_work_is_linear(backend: str) -> None:
    def work(items: int) -> int:
        request = SamplingRequest(items=[item for number in range(items // 5) for item in turn(number)])
        return calls_during(lambda: body_bytes(encoded(backend, request)))

    work(5)  # what is built at first use
    assert work(2000) <= 2.2 * work(1000)
