"""Who stands by where: by a real ledger, on a clock of the test's."""

from __future__ import annotations

from time import process_time

import pytest

from extender.standing_by import AWAY_SECONDS, IN_VAIN_SECONDS, LOOK_SECONDS, MOST, STAYS_SECONDS, StandingBy
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Demand, Node, Pod, Requirement, Selector

KEY = "default/p"


class Rig:
    """Nodes of 4 CPUs; `changes` counts how often others were due."""

    def __init__(self, nodes: int = 1) -> None:
        self.now, self.changes = 1_000.0, 0
        self.ledger = Ledger(Mode.GUARD, cap_percent=100, binds=False)
        for number in range(nodes):
            self.ledger.set_node(Node(f"n{number}", f"node-{number}", {"cpu": 4_000}))
        self.by = StandingBy(
            self.ledger, kept=lambda key: key != "default/other", changed=self.note, clock=lambda: self.now
        )

    def note(self) -> None:
        self.changes += 1

    def policy(self, key: str = KEY, app: str = "a", slots: int = 2, cpu: int = 2_000) -> None:
        selector = Selector((Requirement("app", "In", (app,)),))
        self.ledger.set_demand(Demand(key, "default", selector, {"cpu": cpu}, slots))

    def pod(self, name: str, node: str = "n0", app: str = "", cpu: int = 2_000) -> None:
        self.ledger.set_pod(
            Pod(name, "default", name, {"cpu": cpu}, {"app": app}, node_name=node, phase="Running")
        )

    async def look(self, later: float = LOOK_SECONDS) -> dict[str, int]:
        self.now += later
        self.ledger.report()
        await self.by.look()
        return self.by.due(KEY)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.policy(slots=1)
    rig.pod("checkout", app="a")
    rig.pod("batch", cpu=1_000)
    return rig


async def test_where_a_slot_could_be_lost(rig: Rig) -> None:
    """Nobody where another slot would fit beside the owner; two owners, two that stand by."""
    assert await rig.look() == {"n0": 1}
    rig.ledger.remove_pod("batch")
    assert await rig.look() == {}
    rig.policy(slots=2)
    rig.pod("checkout-2", app="a")
    assert await rig.look() == {"n0": 2}


async def test_not_where_there_is_plenty_of_room_elsewhere() -> None:
    rig = Rig(nodes=50)
    rig.policy(slots=2)
    rig.pod("checkout", app="a")
    rig.pod("checkout-2", app="a")
    assert await rig.look() == {}
    for number in range(1, 20):
        rig.pod(f"batch-{number}", f"n{number}", cpu=4_000)
    assert await rig.look() == {"n0": 2}


async def test_of_policies_that_the_extender_keeps_nobody_does(rig: Rig) -> None:
    rig.policy("default/other", "o")
    rig.pod("of-another", app="o", cpu=500)
    await rig.look()
    assert rig.by.due("default/other") == {}


async def test_all_policies_have_so_many_together() -> None:
    rig = Rig(nodes=70)
    for app in ("a", "b"):
        rig.policy(f"default/{app}", app, slots=70)
        for number in range(70):
            rig.pod(f"{app}-{number}", f"n{number}", app=app)
    await rig.look()
    assert [sum(rig.by.due(f"default/{app}").values()) for app in ("a", "b")] == [MOST / 2, MOST / 2]


async def test_they_leave_a_node_where_a_placeholder_is_to_be_bound(rig: Rig) -> None:
    """And keep the room of an owner that is gone until its slot has its place, wherever that is."""
    await rig.look()
    rig.by.misses("default/another", ["n0"])
    assert (rig.by.due(KEY), rig.changes) == ({}, 1)
    rig.by.misses("default/another", [])
    assert (rig.by.due(KEY), rig.changes) == ({"n0": 1}, 2)
    rig.by.misses(KEY, ["elsewhere"])
    rig.ledger.remove_pod("checkout")
    assert await rig.look() == {"n0": 1}
    rig.by.forget(KEY)
    assert await rig.look() == {}


async def test_a_policy_that_misses_thousands_holds_up_nobody() -> None:
    rig = Rig(nodes=MOST)
    for number in range(MOST):
        rig.policy(f"default/{number}", f"a{number}", slots=1)
        rig.pod(f"owner-{number}", f"n{number}", app=f"a{number}", cpu=4_000)
    await rig.look()
    nodes, took = [f"elsewhere-{number}" for number in range(5_000)], []
    for _ in range(3):
        began = process_time()
        rig.by.misses(KEY, nodes)
        took.append(process_time() - began)
        rig.by.misses(KEY, [])
    assert min(took) < 0.015, "ten times what is typical"
    assert not rig.changes


async def test_they_make_way_for_a_while_and_not_all_the_time(rig: Rig) -> None:
    await rig.look()
    rig.by.make_way(["elsewhere"])
    assert rig.by.due(KEY) == {"n0": 1}
    rig.by.make_way(["n0", "elsewhere"])
    assert (rig.by.due(KEY), rig.by.pauses(KEY), rig.changes) == ({}, True, 1)
    assert await rig.look(AWAY_SECONDS) == {"n0": 1}
    rig.by.make_way(["n0"])
    assert rig.by.due(KEY) == {"n0": 1}
    await rig.look(STAYS_SECONDS)
    rig.by.make_way(["n0"])
    assert rig.by.due(KEY) == {}


async def test_they_make_way_on_one_node_after_the_other() -> None:
    """A pod may fit on one of them alone, for a reason that the ledger does not know."""
    rig = Rig(nodes=3)
    rig.policy(slots=3)
    for number in range(3):
        rig.pod(f"checkout-{number}", f"n{number}", app="a", cpu=4_000)
    everywhere = {"n0", "n1", "n2"}
    assert (await rig.look()).keys() == everywhere
    left = list[set[str]]()
    for _ in range(4):
        await rig.look(2 * STAYS_SECONDS)
        rig.by.make_way(everywhere)
        left.append(everywhere - rig.by.due(KEY).keys())
    assert left == [{"n0"}, {"n1"}, {"n2"}, {"n0"}]


async def test_one_that_was_bound_in_vain_is_not_made_again_at_once(rig: Rig) -> None:
    await rig.look()
    rig.by.in_vain(KEY, "n0")
    assert (rig.by.due(KEY), rig.by.pauses(KEY)) == ({}, True)
    assert await rig.look(IN_VAIN_SECONDS) == {"n0": 1}
