"""What a diagram stands for."""

from __future__ import annotations

from typing import Any

import pytest

from rx_sampler.testing.marble_notices import MarbleError, event_notices, notices_of, read_cold
from rx_sampler.testing.marble_report import Notice
from rx_sampler.testing.marble_syntax import read_diagram


def told(diagram: str, values: dict[str, Any] | None = None, error: Any = None) -> list[Notice]:
    return notices_of(diagram, read_diagram(diagram), values, error)


def test_values_and_completion() -> None:
    assert told("-a(bc)|", {"a": 1, "b": None}) == [
        Notice(1, "next", 1),
        Notice(2, "next", None),
        Notice(2, "next", "c"),
        Notice(6, "completed"),
    ]
    assert [notice.letter for notice in told("-a(bc)|", {"a": 1})] == ["a", "b", "c", ""]


def test_errors() -> None:
    error = OSError("x")
    assert told("#", error=error)[0].value is error
    assert told("#", error=OSError)[0].value is OSError
    assert isinstance(told("#")[0].value, MarbleError)


def test_the_value_of_a_letter_need_not_be_true() -> None:
    assert [notice.value for notice in told("abc", {"a": 0, "b": "", "c": False})] == [0, "", False]


def test_events_count_from_the_time_that_is_given() -> None:
    notices = event_notices("-a-^-b|", read_diagram("-a-^-b|"), None, "q", None, zero_us=5_000)
    assert [(one.at_ms, one.kind) for one in notices] == [(-2, "next"), (2, "next"), (3, "completed")]
    assert [(one.value.ts, one.value.request_id) for one in notices[:2]] == [(0.003, "q"), (0.007, "q")]


def test_cold_diagrams() -> None:
    assert read_cold("-a|") == read_diagram("-a|")
    with pytest.raises(ValueError, match="belongs into a hot diagram"):
        read_cold("^-a|")
