"""Searches that servers run: their options, and how a turn keeps, clears or replaces them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rx_sampler.conversation import HostedTool, SamplingRequest, WebSearch, XSearch

FIVE = ["a.test", "b.test", "c.test", "d.test", "e.test"]
ASK = SamplingRequest.user("Any owls?")


def asking_with(tool: dict[str, Any]) -> SamplingRequest:
    return SamplingRequest.model_validate({"items": [{"type": "user", "content": "hi"}], "hosted_tools": [tool]})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"allowed_domains": ["a.test"], "excluded_domains": ["b.test"]}, "not both"),
        ({"allowed_domains": [*FIVE, "f.test"]}, "allowed_domains"),
        ({"excluded_domains": [*FIVE, "f.test"]}, "excluded_domains"),
        ({"allowed_domains": [], "limit": 3}, "limit"),
    ],
)
def test_options_of_a_web_search_b040(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        WebSearch.model_validate(options)
    with pytest.raises(ValidationError, match=words):
        asking_with({"type": "web_search", **options})


def test_five_domains_and_none_are_fine_b040() -> None:
    assert WebSearch(allowed_domains=FIVE).allowed_domains == tuple(FIVE)
    assert asking_with({"type": "web_search", "excluded_domains": FIVE}).hosted_tools == (
        WebSearch(excluded_domains=FIVE),
    )
    assert WebSearch(allowed_domains=[], excluded_domains=["a.test"]).allowed_domains == ()


def test_further_keys_of_a_wire_stay_a_plain_hosted_tool() -> None:
    raw = {"type": "web_search", "filters": {"allowed_domains": ["a.test"]}, "search_context_size": "low"}
    [tool] = asking_with(raw).hosted_tools
    assert isinstance(tool, HostedTool)
    assert tool.model_dump() == raw


@pytest.mark.parametrize(
    "options",
    [
        {"from_date": "2024-3-5"},
        {"to_date": "0000-01-01"},
        {"from_date": "10000-01-01"},
        {"from_date": "2024-02-30"},
        {"from_date": "2024-03-06", "to_date": "2024-03-05"},
        {"from_date": "٢٠٢٤-٠٣-٠٥"},
        {"from_date": "2024-03-05", "since": "x"},
    ],
)
def test_bounds_of_an_x_search_b041(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        XSearch.model_validate(options)
    with pytest.raises(ValidationError):
        asking_with({"type": "x_search", **options})
    with pytest.raises(ValidationError):
        ASK.with_hosted_tools(x_search=XSearch.model_validate(options))


def test_equal_dates_and_the_first_year_are_fine_b041() -> None:
    assert XSearch(from_date="2024-03-05", to_date="2024-03-05").to_date == "2024-03-05"
    assert asking_with({"type": "x_search", "from_date": "0001-01-01"}).hosted_tools == (
        XSearch(from_date="0001-01-01"),
    )


def test_a_turn_keeps_clears_or_sets_b042() -> None:
    cutoff = XSearch(to_date="2024-01-01")
    seeded = ASK.with_hosted_tools(x_search=cutoff)
    assert seeded.with_hosted_tools().hosted_tools == (cutoff,)  # nothing said, nothing cleared
    web = WebSearch(excluded_domains=["a.test"])
    both = seeded.with_hosted_tools(web_search=web)
    assert both.hosted_tools == (cutoff, web)
    assert both.with_hosted_tools(x_search=None).hosted_tools == (web,)
    later = XSearch(to_date="2025-01-01")
    assert both.with_hosted_tools(x_search=later).hosted_tools == (later, web)
    assert ASK.hosted_tools == ()


def test_other_tools_are_added_each_once() -> None:
    files, notes = (HostedTool.model_validate({"type": "mcp", "server_label": name}) for name in ("files", "notes"))
    request = ASK.with_hosted_tools(files, web_search=WebSearch()).with_hosted_tools(files, notes)
    assert request.hosted_tools == (files, WebSearch(), notes)


def test_searches_come_back_from_json() -> None:
    request = ASK.with_hosted_tools(web_search=WebSearch(), x_search=XSearch(from_date="2024-03-05"))
    assert SamplingRequest.model_validate_json(request.model_dump_json()) == request
