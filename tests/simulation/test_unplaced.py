"""Slots that found no room get the first that comes free, whoever waits for it."""

from __future__ import annotations

import pytest

from simulation.history import History, Step, World
from simulation.play import Play

NODES = [
    (0.0, "node", ("n0", 4000, 65536, 110)),
    (0.0, "node", ("n1", 4000, 65536, 110)),
]
FLOOD = (0.5, "flood", ("f", 60, 1000, 64, 0))
QUIET = (5.0, "nothing", ())


def slots(count: int, of: str = "high") -> dict[str, object]:
    return {"floor": {"resources": {"cpu": "1"}}, "slots": {"count": count}, "priorityClassName": of}


A = (3.0, "policy", ("a", slots(2)))


def finish(pod: int) -> tuple[float, str, tuple[str]]:
    return 2.0, "finish", (f"f-{pod}",)


def cordon(*, cordoned: bool) -> tuple[float, str, tuple[str, bool]]:
    return 3.0, "cordon", ("n0", cordoned)


def ready(*, ready: bool) -> tuple[float, str, tuple[str, bool]]:
    return 5.0, "node-ready", ("n0", ready)


def played(seed: int, *steps: Step) -> Play:
    world = World(seed, mode="Guard", latency=0.02, lag=0.01, settle=10.0, keeper="Placeholders")
    play = Play(History(world, steps), story=True)
    outcome = play.run()
    assert not outcome.broken
    assert not [line for line in outcome.story if "preempts" in line], "nobody is evicted"
    return play


def held(play: Play, policy: str = "a") -> int:
    return play.extender.ledger.report()[f"default/{policy}"].held


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "steps",
    [
        (*NODES, FLOOD, A, QUIET, finish(0), finish(1), QUIET),
        (*NODES, A, FLOOD, QUIET, cordon(cordoned=True), cordon(cordoned=False), QUIET),
        (*NODES, A, FLOOD, QUIET, ready(ready=False), ready(ready=True), QUIET),
    ],
    ids=["pods end", "a node is cordoned for a while", "a node is not ready for a while"],
)
def test_an_unplaced_slot_comes_before_pods_that_wait(seed, steps):
    play = played(seed, *steps)
    assert held(play) == 2
    standing = play.extender.books.keeper.standing
    assert sum(slots for _, slots in standing.nodes("default/a")) == 2


@pytest.mark.parametrize("seed", range(3))
def test_slots_come_back_each_time_that_nodes_are_cordoned(seed):
    """Those that roamed once go again with their node: they did not go astray."""
    in_turn = [
        step
        for node in ("n0", "n1") * 4
        for step in ((7.0, "cordon", (node, True)), (3.0, "cordon", (node, False)))
    ]
    play = played(seed, *NODES, A, FLOOD, QUIET, *in_turn, QUIET)
    assert held(play) == 2


@pytest.mark.parametrize("seed", range(5))
def test_who_waits_for_a_higher_policy_leaves_an_heir_its_place(seed):
    """The heir is nominated, and kube-scheduler keeps that from whoever is not above it."""
    play = played(
        seed,
        *NODES,
        (0.5, "policy", ("b", slots(4, "middle"))),
        (1.0, "app", ("b", 4, 1000, 64, 10)),
        (4.0, "flood", ("f", 40, 1000, 64, 0)),
        (3.0, "policy", ("a", slots(1))),
        (4.0, "crash", ("b", 0, 1.5)),
        QUIET,
    )
    report = play.extender.ledger.report()["default/b"]
    assert (report.filled, held(play)) == (4, 0)


@pytest.mark.parametrize("after", [0.5, 1.2, 1.5, 2.2, 3.0])
def test_those_that_wait_outlive_a_restart(after):
    """Nobody knows yet how many are to wait: those that do stay."""
    ends = [(after if not pod else 0.0, "finish", (f"f-{pod}",)) for pod in range(2)]
    play = played(0, *NODES, FLOOD, A, QUIET, (0.0, "restart-extender", (1.0,)), *ends, QUIET)
    assert held(play) == 2


def test_once_bound_one_has_the_priority_of_its_policy():
    """It waits at that of the lowest."""
    play = played(0, *NODES, FLOOD, A, (0.0, "policy", ("b", slots(1, "middle"))), QUIET, finish(0), QUIET)
    standing = play.extender.books.keeper.standing
    a, b = standing.of("default/a"), standing.of("default/b")
    assert sorted((one.bound, one.priority) for one in a) == [(False, 10), (True, 100)]
    assert [(one.bound, one.priority) for one in b] == [(False, 9)]


@pytest.mark.parametrize("seed", range(3))
def test_where_several_policies_lack_slots_the_highest_gets_what_comes_free(seed):
    """Also where the lower one has waited longer; nobody takes a slot that the ledger gives to another."""
    lower = (3.0, "policy", ("b", slots(4, "middle")))
    play = played(seed, *NODES, FLOOD, lower, A, QUIET, finish(0), finish(1), QUIET)
    assert (held(play), held(play, "b")) == (2, 0)
    assert not play.extender.books.keeper._placeholders._roaming._misplaced.barred(0.0)


@pytest.mark.parametrize("seed", range(3))
def test_slots_that_are_replaced_on_a_node_that_came_are_not_lost_with_the_next_cordon(seed):
    comes = (0.3, "node", ("n2", 12000, 65536, 110))
    again = (0.3, "node", ("n3", 12000, 65536, 110))
    cordons = [
        step for one in ("n2", "n3") for step in ((5.0, "cordon", (one, True)), (5.0, "cordon", (one, False)))
    ]
    lower = (0.1, "policy", ("b", slots(1, "middle")))
    many = (3.0, "policy", ("a", slots(20)))
    play = played(seed, *NODES, lower, FLOOD, many, QUIET, comes, again, *cordons, QUIET)
    assert held(play) >= 17, "the flood has taken little before the second node was there"
