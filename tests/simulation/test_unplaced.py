"""Slots that found no room get the first that comes free, whoever waits for it."""

from __future__ import annotations

import pytest

from simulation.history import History, World
from simulation.play import Play

NODES = [
    (0.0, "node", ("n0", 4000, 65536, 110)),
    (0.0, "node", ("n1", 4000, 65536, 110)),
]
FLOOD = (0.5, "flood", ("f", 60, 1000, 64, 0))
POLICY = {"floor": {"resources": {"cpu": "1"}}, "slots": {"count": 2}, "priorityClassName": "high"}
A = (3.0, "policy", ("a", POLICY))
QUIET = (5.0, "nothing", ())


def finish(pod: int) -> tuple[float, str, tuple[str]]:
    return 2.0, "finish", (f"f-{pod}",)


def cordon(*, cordoned: bool) -> tuple[float, str, tuple[str, bool]]:
    return 3.0, "cordon", ("n0", cordoned)


def ready(*, ready: bool) -> tuple[float, str, tuple[str, bool]]:
    return 5.0, "node-ready", ("n0", ready)


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
    world = World(seed, mode="Guard", latency=0.02, lag=0.01, settle=10.0, keeper="Placeholders")
    play = Play(History(world, steps))
    assert not play.run().broken
    report = play.extender.ledger.report()["default/a"]
    assert report.held == 2, report
    standing = play.extender.books.keeper.standing
    assert sum(slots for _, slots in standing.nodes("default/a")) == 2
