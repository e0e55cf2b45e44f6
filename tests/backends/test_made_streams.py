"""Streams that nobody wrote by hand: however cut, they say what was put in; however broken, they end well."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rx_sampler import Completed, SamplingEvent

from .laws import check_frame, check_json, check_laws, check_numbering, check_sums
from .made_streams import MADE, cut_somewhere, damaged, soups
from .streams import BACKENDS, calls, completed, run, tokens


def _joined(events: list[SamplingEvent], channel: str) -> str:
    return "".join(text for name, text in tokens(events) if name == channel)


@pytest.mark.parametrize("backend", BACKENDS)
@given(data=st.data())
def test_a_legal_stream_says_what_was_put_in(backend: str, data: st.DataObject) -> None:
    body, said = data.draw(MADE[backend]())
    events = run(backend, body)
    check_laws(events)
    response = completed(events)
    assert (_joined(events, "text"), _joined(events, "reasoning")) == (said.text, said.reasoning)
    assert [call[:3] for call in calls(response)] == [(call.id, call.name, call.arguments) for call in said.calls]
    assert all(call.complete for call in response.tool_calls)


@pytest.mark.parametrize("backend", BACKENDS)
@given(data=st.data())
def test_cuts_are_invisible(backend: str, data: st.DataObject) -> None:
    body, _ = data.draw(MADE[backend]())
    assert run(backend, data.draw(cut_somewhere(body))) == run(backend, body)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=70)
@given(data=st.data())
def test_a_damaged_stream_ends_well(backend: str, data: st.DataObject) -> None:
    body, _ = data.draw(MADE[backend]())
    body = data.draw(damaged(body))
    events = run(backend, body)
    check_frame(events)
    check_numbering(events)
    check_json(events)
    assert run(backend, data.draw(cut_somewhere(body))) == events


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=70)
@given(data=st.data())
def test_a_damaged_stream_keeps_what_came(backend: str, data: st.DataObject) -> None:
    body, _ = data.draw(MADE[backend]())
    check_sums(run(backend, data.draw(damaged(body))), in_order=False)


@pytest.mark.parametrize("backend", BACKENDS)
@given(body=st.one_of(soups(), st.binary(max_size=200)), data=st.data())
def test_any_soup_ends_well(backend: str, body: bytes, data: st.DataObject) -> None:
    events = run(backend, body)
    check_laws(events, in_order=False)
    assert run(backend, data.draw(cut_somewhere(body))) == events


@pytest.mark.parametrize("backend", BACKENDS)
@given(data=st.data())
def test_a_legal_stream_cut_short_is_no_success_before_its_end_is_announced(backend: str, data: st.DataObject) -> None:
    body, said = data.draw(MADE[backend]())
    events = run(backend, body[: data.draw(st.integers(0, len(body)))])
    check_laws(events)
    assert said.text.startswith(_joined(events, "text"))
    if isinstance(events[-1], Completed):
        assert _joined(events, "text") == said.text
