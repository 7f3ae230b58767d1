"""Owners that come after a pod that ends, on its node."""

from __future__ import annotations

from simulation.history import History, World
from simulation.play import play

WORLD = World(1, mode="Guard", keeper="Placeholders", latency=0.01, lag=0.002, prebind=0.0, settle=10.0)


def test_no_heir_waits_for_a_node_that_was_closed() -> None:
    """Its predecessor's node is cordoned while that ends; elsewhere a lower placeholder makes way for it."""
    high = {"floor": {"resources": {"cpu": "1"}}, "slots": {"count": 1}, "priorityClassName": "high"}
    steps = (
        (0.0, "node", ("n1", 1000, 65536, 110)),
        (0.0, "policy", ("a", high)),
        (0.0, "app", ("a", 1, 1000, 64, 100, True)),
        (3.0, "node", ("n2", 4000, 65536, 110)),
        (0.0, "policy", ("c", high | {"priorityClassName": "middle"})),
        *((1.0, "pod", (f"y{number}", 1000, 64, 0)) for number in range(3)),
        (5.0, "crash", ("a", 0, 3.0)),
        (1.5, "cordon", ("n1", True)),
        (12.0, "nothing", ()),
    )
    story = play(History(WORLD, steps), story=True).story
    assert any("a-2 is bound to n2" in line for line in story)
    assert not [line for line in story if "preempts" in line]
