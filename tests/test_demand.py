"""`Demand` and `Gate`: who holds whom, and who is told when it ends."""

from __future__ import annotations

import asyncio

import pytest

from rx_sampler.demand import Demand, Gate, current_demand, demanding


def test_a_gate_is_shut_while_any_demand_on_it_is_held() -> None:
    gate, one, other = Gate(), Demand(), Demand()
    assert not gate.is_watched
    gate.attach(one)
    gate.attach(other)
    assert gate.is_watched
    assert not gate.is_shut
    one.hold()
    one.hold()  # once is enough
    other.hold()
    one.release()
    assert gate.is_shut
    other.release()
    other.release()
    assert not gate.is_shut


def test_a_demand_holds_every_source_that_it_reaches() -> None:
    demand, gates = Demand(), [Gate(), Gate()]
    gates[0].attach(demand)
    demand.hold()
    gates[1].attach(demand)  # a source that begins while the consumer is full
    gates[1].attach(demand)  # attached once, whatever is said
    assert [gate.is_shut for gate in gates] == [True, True]
    demand.release()
    assert [gate.is_shut for gate in gates] == [False, False]


@pytest.mark.parametrize("end", ["detach", "close the gate", "close the demand"])
def test_who_leaves_holds_nobody_any_more(end: str) -> None:
    gate, demand, other = Gate(), Demand(), Demand()
    gate.attach(demand)
    gate.attach(other)
    demand.hold()
    if end == "detach":
        gate.detach(demand)
    elif end == "close the gate":
        gate.close()
    else:
        demand.close()
    assert not gate.is_shut
    assert gate.is_watched is (end != "close the gate")
    demand.release()
    demand.hold()
    assert not gate.is_shut


def test_nobody_is_no_demand() -> None:
    gate = Gate()
    gate.attach(None)
    gate.detach(None)
    assert not gate.is_watched


async def test_opened_returns_when_the_last_demand_is_released() -> None:
    gate, one, other = Gate(), Demand(), Demand()
    for demand in (one, other):
        gate.attach(demand)
        demand.hold()
    waiting = [asyncio.create_task(gate.opened()) for _ in range(2)]
    await asyncio.sleep(0)
    one.release()
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [False, False]
    other.release()
    await asyncio.gather(*waiting)
    await gate.opened()


async def test_opened_waits_on_if_somebody_holds_again_at_once() -> None:
    gate, demand = Gate(), Demand()
    gate.attach(demand)
    demand.hold()
    waiting = asyncio.create_task(gate.opened())
    await asyncio.sleep(0)
    demand.release()
    demand.hold()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    demand.release()
    await waiting


async def test_one_who_gives_up_waiting_leaves_the_others_waiting() -> None:
    gate, demand = Gate(), Demand()
    gate.attach(demand)
    demand.hold()
    quitter, patient = asyncio.create_task(gate.opened()), asyncio.create_task(gate.opened())
    await asyncio.sleep(0)
    quitter.cancel()
    await asyncio.gather(quitter, return_exceptions=True)
    assert not patient.done()
    demand.release()
    await patient


def test_a_release_calls_those_who_kept_something_back_until_the_consumer_is_full_again() -> None:
    demand, called = Demand(), list[str]()

    def fill() -> None:
        called.append("fills")
        demand.hold()

    forget = demand.on_release(fill)
    demand.on_release(lambda: called.append("after"))
    demand.hold()
    demand.release()
    assert called == ["fills"]
    assert not demand.wants
    forget()
    demand.release()
    assert called == ["fills", "after"]


def test_the_demand_of_a_subscription_is_told_by_context() -> None:
    demand = Demand()
    assert current_demand() is None
    with demanding(demand):
        assert current_demand() is demand
        with demanding(None):
            assert current_demand() is None
        assert current_demand() is demand
    assert current_demand() is None
