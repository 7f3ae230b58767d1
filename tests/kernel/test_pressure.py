"""Pressure (PSI): who waits for memory is the neighbour, not the container with a floor."""

from __future__ import annotations

from collections.abc import Callable

from lab.contention import measures, work
from lab.contention.node import Node, best_effort, pod
from lab.contention.work import Load
from qos.classes import promises_of
from qos.keys import MEMORY
from qos.pods.containers import BURSTABLE, Container

MIB = 1 << 20
FLOOR = 48 * MIB
WORKING_SET = 32 * MIB
KUBEPODS = 96 * MIB

Record = Callable[[str, object], None]


def as_promised(protected: float, loud: float) -> bool:
    return loud > 0.05 and protected < loud / 20


def test_the_protected_container_does_not_wait(node: Node, load: Load, record_property: Record) -> None:
    node.limit(KUBEPODS)
    ours = pod("ours", BURSTABLE, Container("app", memory_request=FLOOR))
    app, neighbour = node.start(ours)["app"], node.start(best_effort("neighbour"))["app"]
    load.churn(app, WORKING_SET)
    node.keep(ours, "app", promises_of("LS"), {MEMORY: FLOOR})
    load.churn(neighbour, KUBEPODS)
    protected, loud = measures.Waiting(app, "memory"), measures.Waiting(neighbour, "memory")

    def parts() -> tuple[float, float]:
        return protected.part(), loud.part()

    work.wait_until(
        lambda: loud.seconds() > (1.0 if as_promised(*parts()) else 10.0),
        "the neighbour has waited for memory for a second",
    )
    found = parts()
    record_property("part of the time waited, ours and the neighbour's", found)
    assert as_promised(*found)
