"""Broken histories, put right: every call answered once, behind its turn, under an id that the server takes."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

import pytest
from counted_calls import calls_during
from hypothesis import given

from rx_sampler.backends.history import NO_RESULT, settled_history
from rx_sampler.conversation import (
    AssistantItem,
    BackendToolCallItem,
    Item,
    OpaqueItem,
    ReasoningItem,
    SamplingRequest,
    SystemItem,
    TextItem,
    TextPart,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from rx_sampler.dialects import ToolIdRule

from .made_conversations import histories, spoken

ANY: Final = ToolIdRule()
MOST_40: Final = ToolIdRule(max_length=40)
PLAIN_64: Final = ToolIdRule(characters="A-Za-z0-9_-", max_length=64)
NINE: Final = ToolIdRule(characters="A-Za-z0-9", length=9)
RULES: Final = {"any": (ANY, r"(?s).+"), "40": (MOST_40, r"(?s).{1,40}"), "64": (PLAIN_64, r"[A-Za-z0-9_-]{1,64}")} | {
    "nine": (NINE, r"[A-Za-z0-9]{9}")
}
ASK: Final = UserItem(content=[TextPart(text="Go on.")])
THOUGHT: Final = ReasoningItem(text="hm", signature="s")


def call(call_id: str, **fields: Any) -> ToolCall:
    return ToolCall(id=call_id, name="clock", arguments="{}", **fields)


def result(call_id: str, content: str = "12:00", **fields: Any) -> ToolResultItem:
    return ToolResultItem(tool_call_id=call_id, content=content, **fields)


def no_result(call_id: str) -> ToolResultItem:
    return ToolResultItem(tool_call_id=call_id, content=NO_RESULT, is_error=True)


def settled(*items: Item, rule: ToolIdRule = ANY) -> list[Item]:
    return [item for _, item in settled_history(items, rule)]


class TestDanglingCalls:
    def test_made_up_results_follow_those_that_came_in_the_order_of_the_calls_b036(self) -> None:
        calls = (call("a"), call("b"), call("c"))
        once = settled(ASK, *calls, result("b"), ASK)
        assert once == [ASK, *calls, result("b"), no_result("a"), no_result("c"), ASK]
        assert settled(*once) == once

    def test_of_a_whole_turn_in_one_item_b036(self) -> None:
        turn = AssistantItem(content="Two.", tool_calls=(call("a"), call("b")))
        assert settled(turn) == [turn, no_result("a"), no_result("b")]
        assert settled(turn, result("b")) == [turn, result("b"), no_result("a")]

    def test_the_made_up_result_lands_before_the_user_b037(self) -> None:
        once = settled(ASK, call("a"), ASK)
        assert once == [ASK, call("a"), no_result("a"), ASK]
        assert settled(*once) == once

    @pytest.mark.parametrize("next_turn", [ASK, SystemItem(content="s"), AssistantItem(content="Well.")])
    def test_whatever_opens_the_next_turn_b037(self, next_turn: Item) -> None:
        assert settled(call("a"), next_turn) == [call("a"), no_result("a"), next_turn]

    def test_the_rest_of_the_answer_stays_with_its_call(self) -> None:
        rest = (
            TextItem(text="and"),
            THOUGHT,
            OpaqueItem(wire={"type": "x"}),
            BackendToolCallItem(call_id="s", name="n"),
        )
        assert settled(call("a"), *rest, call("b"), ASK) == [
            call("a"),
            *rest,
            call("b"),
            no_result("a"),
            no_result("b"),
            ASK,
        ]

    def test_two_turns_are_told_apart(self) -> None:
        items = (call("a"), result("a"), TextItem(text="again"), call("b"), ASK)
        assert settled(*items) == [*items[:4], no_result("b"), ASK]

    def test_an_answer_without_calls_gets_nothing(self) -> None:
        items = (ASK, THOUGHT, TextItem(text="An owl."), ASK)
        assert settled(*items) == list(items)
        assert settled() == []


class TestResults:
    def test_of_two_for_one_call_the_last_counts_b038(self) -> None:
        once = settled(call("a"), result("a", "first"), result("a", "last"), ASK)
        assert once == [call("a"), result("a", "last"), ASK]
        assert settled(*once) == once

    def test_the_last_counts_in_its_own_place_b038(self) -> None:
        items = (call("a"), call("b"), result("a", "first"), result("b"), result("a", "last"))
        assert settled(*items) == [call("a"), call("b"), result("b"), result("a", "last")]

    def test_the_last_counts_although_the_user_went_on_b038(self) -> None:
        items = (call("a"), result("a", "first"), ASK, result("a", "last"))
        assert settled(*items) == [call("a"), result("a", "last"), ASK]

    def test_a_late_one_moves_behind_its_turn_b037(self) -> None:
        assert settled(call("a"), ASK, TextItem(text="meanwhile"), result("a"), ASK) == [
            call("a"),
            result("a"),
            ASK,
            TextItem(text="meanwhile"),
            ASK,
        ]

    def test_of_no_call_stays_where_it_is(self) -> None:
        items = (result("x"), ASK, call("a"), result("a"), result("é"), ASK)
        assert settled(*items, rule=NINE)[0] is items[0]
        assert settled(*items) == list(items)

    def test_of_no_call_does_not_part_a_call_from_its_own(self) -> None:
        assert settled(call("a"), result("x"), result("a"), ASK) == [call("a"), result("a"), result("x"), ASK]

    def test_before_its_call_answers_nothing(self) -> None:
        assert settled(result("a", "early"), call("a")) == [result("a", "early"), call("a"), no_result("a")]


class TestRenamedAndNameless:
    def test_a_result_may_name_a_call_as_the_wire_does(self) -> None:
        assert settled(call("call:1"), result("call_1"), rule=PLAIN_64) == [call("call_1"), result("call_1")]
        twice = settled(call("a:1"), result("a:1", "first"), result("a_1", "last"), rule=PLAIN_64)
        assert twice == [call("a_1"), result("a_1", "last")]

    def test_a_call_that_really_has_that_id_comes_first(self) -> None:
        both = settled(call("a:1"), call("a_1"), result("a_1", "of the second"), result("a:1"), rule=PLAIN_64)
        assert both == [call("a_1"), call("a_1_1"), result("a_1_1", "of the second"), result("a_1")]

    def test_a_call_that_was_cut_before_its_name_is_left_out_with_its_results(self) -> None:
        cut = ToolCall(id="a", name="", arguments="{", complete=False)
        assert settled(ASK, call("b"), cut, result("a"), result("b"), ASK) == [ASK, call("b"), result("b"), ASK]
        assert settled(AssistantItem(tool_calls=[cut, call("b")]), result("b")) == [
            AssistantItem(tool_calls=[call("b")]),
            result("b"),
        ]
        assert settled(cut, ASK, call("a"), result("a")) == [ASK, call("a"), result("a")]


class TestSharedIds:
    """Some servers give every call the same id; others begin to count anew in each answer."""

    def test_in_one_turn_results_go_to_the_calls_in_order(self) -> None:
        items = (call("call_0"), call("call_0"), result("call_0", "one"), result("call_0", "two"))
        first, second, one, two = settled(*items)
        assert isinstance(first, ToolCall)
        assert isinstance(second, ToolCall)
        assert first.id == "call_0"
        assert first.id != second.id
        assert [one, two] == [result(first.id, "one"), result(second.id, "two")]

    def test_in_one_turn_a_result_too_many_replaces_the_last(self) -> None:
        items = (call("c"), call("c"), result("c", "one"), result("c", "two"), result("c", "three"))
        *_, one, two = settled(*items)
        assert isinstance(one, ToolResultItem)
        assert isinstance(two, ToolResultItem)
        assert [one.content, two.content] == ["one", "three"]

    def test_in_two_turns_a_result_is_of_the_newer_call(self) -> None:
        items = (call("c"), result("c", "old"), ASK, call("c"), result("c", "new"), ASK)
        old, first, _, new, second, _ = settled(*items)
        assert (old, first) == (call("c"), result("c", "old"))
        assert isinstance(new, ToolCall)
        assert new.id != "c"
        assert second == result(new.id, "new")

    def test_once_told_apart_they_stay(self) -> None:
        items = (call("c"), call("c"), result("c"), ASK, call("c"), call("c_1"), result("c_1"), ASK)
        once = settled(*items)
        assert len({item.id for item in once if isinstance(item, ToolCall)}) == 4
        assert settled(*once) == once


class TestIds:
    @pytest.mark.parametrize(
        ("rule", "call_id", "wire_id"),
        [
            (ANY, "call:1/x é", "call:1/x é"),
            (ANY, "", "call"),
            (MOST_40, "n" * 40, "n" * 40),
            (PLAIN_64, "call:1/x", "call_1_x"),
            (PLAIN_64, "toolu_01-A", "toolu_01-A"),
            (NINE, "D681PevKs", "D681PevKs"),
        ],
    )
    def test_what_a_rule_makes_of_one_b080(self, rule: ToolIdRule, call_id: str, wire_id: str) -> None:
        assert settled(call(call_id), result(call_id), rule=rule) == [call(wire_id), result(wire_id)]

    def test_a_long_one_keeps_its_beginning(self) -> None:
        [cut, _] = settled(call("call_" + "9" * 80), rule=MOST_40)
        assert isinstance(cut, ToolCall)
        assert len(cut.id) == 40
        assert cut.id.startswith("call_" + "9" * 20)

    @pytest.mark.parametrize("rule", [rule for rule, _ in RULES.values()], ids=list(RULES))
    def test_unlike_ones_stay_unlike(self, rule: ToolIdRule) -> None:
        ids = ["a:1", "a/1", "a_1", "a1", "é", "東", "", "call", "n" * 80 + "x", "n" * 80 + "y", "\ud83d"]
        made = settled(*map(call, ids), *map(result, reversed(ids)), rule=rule)
        wire_ids = [item.id for item in made if isinstance(item, ToolCall)]
        assert len(set(wire_ids)) == len(ids)
        assert [item.tool_call_id for item in made if isinstance(item, ToolResultItem)] == wire_ids[::-1]

    def test_the_calls_of_a_whole_turn_are_named_alike(self) -> None:
        turn = AssistantItem(content="x", tool_calls=(call("a:1"), call("b")), model_id="m")
        made = AssistantItem(content="x", tool_calls=(call("a_1"), call("b")), model_id="m")
        assert settled(turn, result("a:1"), result("b"), rule=PLAIN_64) == [made, result("a_1"), result("b")]

    def test_everything_else_of_a_call_and_a_result_stays(self) -> None:
        asked = call("a:1", custom=True, extra_content={"google": {"thought_signature": "s"}})
        told = result("a:1", is_error=True)
        assert settled(asked, told, rule=PLAIN_64) == [
            asked.model_copy(update={"id": "a_1"}),
            told.model_copy(update={"tool_call_id": "a_1"}),
        ]


def test_places_are_those_of_the_request() -> None:
    items: list[Item] = [ASK, call("a"), call("b"), ASK, result("b"), ASK]
    # the late result of b stands at 4; the one made up for a is blamed on the call
    assert [index for index, _ in settled_history(items, ANY)] == [0, 1, 2, 4, 1, 3, 5]


@given(items=histories)
def test_every_call_is_answered_once_behind_its_turn(items: list[Item]) -> None:
    for rule, pattern in RULES.values():
        made = settled(*items, rule=rule)
        waiting: list[str] = []
        every_id: list[str] = []
        for item in made:
            if isinstance(item, ToolResultItem):
                if item.tool_call_id in waiting:
                    waiting.remove(item.tool_call_id)
                continue
            if isinstance(item, UserItem | SystemItem | AssistantItem):
                assert not waiting, "the next turn begins before a call is answered"
            ids = [made_call.id for made_call in calls_of(item)]
            waiting += ids
            every_id += ids
        assert not waiting
        assert len(set(every_id)) == len(every_id)
        assert [call_id for call_id in every_id if not re.fullmatch(pattern, call_id)] == []
        kept = [item for item in made if not isinstance(item, ToolResultItem)]
        assert len(kept) == sum(not isinstance(item, ToolResultItem) for item in items)


def calls_of(item: Item) -> tuple[ToolCall, ...]:
    if isinstance(item, ToolCall):
        return (item,)
    return tuple(item.tool_calls) if isinstance(item, AssistantItem) else ()


@given(items=histories)
def test_settling_again_changes_nothing_b036_b038(items: list[Item]) -> None:
    for rule, _ in RULES.values():
        once = settled(*items, rule=rule)
        assert settled(*once, rule=rule) == once


@given(requests=spoken())
def test_what_is_whole_is_not_touched(requests: list[SamplingRequest]) -> None:
    items = requests[-1].items
    ids = [item.id for item in items if isinstance(item, ToolCall)]
    made = settled(*items)
    if len(set(ids)) == len(ids):
        assert all(one is other for one, other in zip(made, items, strict=True))
    else:  # only calls and results are renamed
        named = [item for item in made if not isinstance(item, ToolCall | ToolResultItem)]
        before = [item for item in items if not isinstance(item, ToolCall | ToolResultItem)]
        assert all(one is other for one, other in zip(named, before, strict=True))


@given(requests=spoken())
def test_a_turn_begins_as_the_one_before_b039(requests: list[SamplingRequest]) -> None:
    for rule, _ in RULES.values():
        for shorter, longer in pairwise(settled(*request.items, rule=rule) for request in requests):
            assert longer[: len(shorter)] == shorter


def well_answered(turn: int) -> list[Item]:
    return [ASK, call(f"c{turn}"), result(f"c{turn}")]


def never_answered(turn: int) -> list[Item]:
    return [ASK, call(f"c{turn}"), TextItem(text="x")]


def under_one_id(_: int) -> list[Item]:
    return [ASK, call("c"), call("c"), result("c"), result("c"), result("c")]


def under_one_long_id(_: int) -> list[Item]:
    return [ASK, call("c:" * 40), result("c:" * 40)]


@pytest.mark.parametrize("turn", [well_answered, never_answered, under_one_id, under_one_long_id])
@pytest.mark.parametrize("rule", [ANY, PLAIN_64, NINE], ids=["any", "64", "nine"])
def test_the_work_is_linear(turn: Any, rule: ToolIdRule) -> None:
    def work(turns: int) -> int:
        items = [item for number in range(turns) for item in turn(number)]
        return calls_during(lambda: settled_history(items, rule))

    work(3)  # what is built at first use
    assert work(1000) <= 2.2 * work(500)


def test_a_turn_of_many_calls_answered_backwards_is_linear() -> None:
    def work(calls: int) -> int:
        items: list[Item] = [call(f"c{number}") for number in range(calls)]
        items += [result(f"c{number}") for number in reversed(range(calls))]
        return calls_during(lambda: settled_history(items, ANY))

    work(3)
    assert work(1000) <= 2.2 * work(500)
