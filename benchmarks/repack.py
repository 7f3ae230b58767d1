"""A node with holds is lost: how long until all holds lie again, and how long a verb waits meanwhile.

1,000 holds, in one case all of them on one large node. Filter is called between all passes, as a cluster that
goes on would: what the ledger puts off until then is paid there, and counted. CPU time, the median of some
rounds.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from adapters import garbage
from benchmarks import clusters
from benchmarks.clusters import GI, Size
from benchmarks.figures import measured
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Node

HOLDS: Final = 1_000
"""In a small cluster as many as fit into half of it."""
_MOST_PASSES: Final = 10_000
LARGE: Final = "large"


def measure(size: Size, rounds: int) -> dict[str, Any]:
    """Milliseconds in all, and of the longest pass or verb; each case with and without its large node."""
    found, longest = {}, []
    cases = (("their node lost", _all_on_one), ("a node with some of them lost", _on_many))
    for name, make in cases:
        ledger, lost = make(size)
        kept = garbage.Keeper()
        kept.keep()
        totals = []
        for _ in range(max(3, rounds)):
            steps = _lose(ledger, lost(), size)
            totals.append(sum(steps))
            longest.append(max(steps))
        found[f"re-pack 1,000 holds, {name}"] = measured(1_000 * statistics.median(totals), "ms")
    waits = 1_000 * statistics.median(longest)
    found["re-pack, longest that a verb waits"] = measured(waits, "ms")
    return found


def _lose(ledger: Ledger, node: Node, size: Size) -> list[float]:
    """Seconds of each pass and of each verb between them, until all is held; then the node is back."""
    before = ledger.gauges()["holds"]
    names = clusters.node_names(size.nodes)
    steps: list[float] = []
    serial = itertools.count()

    def step(call: Callable[[], object]) -> object:
        began = time.thread_time()
        answer = call()
        steps.append(time.thread_time() - began)
        return answer

    def verb() -> object:
        number = next(serial)
        shown = [names[(number * 97 + i) % len(names)] for i in range(min(100, len(names)))]
        pod = clusters.pod(f"asks-{number}", 0.5)
        answer = step(lambda: ledger.filter(pod, shown, 1.0))
        ledger.settle(pod.uid)
        return answer

    step(lambda: ledger.remove_node(node.name))
    verb()
    for _ in range(_MOST_PASSES):
        left = step(ledger.tend)
        verb()
        if not left:
            break
    if ledger.gauges()["holds"] != before:
        raise SystemExit(f"{before - ledger.gauges()['holds']:g} holds are not placed again")
    ledger.set_node(node)
    ledger.report()
    return steps


def _on_many(size: Size) -> tuple[Ledger, Callable[[], Node]]:
    """20 holds each of 50 policies; the node with most of them is lost."""
    ledger = _furnished(size, size.nodes)

    def fullest() -> Node:
        reports = ledger.report().values()
        sums: dict[str, int] = {}
        for name, count in itertools.chain.from_iterable(one.holds for one in reports):
            sums[name] = sums.get(name, 0) + count
        name = max(sums, key=lambda one: (sums[one], one))
        return clusters.node(clusters.node_names(size.nodes).index(name))

    return ledger, fullest


def _all_on_one(size: Size) -> tuple[Ledger, Callable[[], Node]]:
    """All holds lie on one node, the only one that was there when they were placed."""
    amounts = {"cpu": HOLDS * 4_000, "memory": HOLDS * 5 * GI, "pods": 2 * HOLDS}
    large = Node(LARGE, LARGE, amounts, {"kubernetes.io/hostname": LARGE})
    ledger = _furnished(size, 0, large)
    for number in range(size.nodes):
        ledger.set_node(clusters.node(number))

    def once_more() -> Node:
        _move_back(ledger, size, large)
        return large

    return ledger, once_more


def _move_back(ledger: Ledger, size: Size, large: Node) -> None:
    """All holds on the large node again: it is alone for a moment."""
    if ledger.held_nodes() == {large.name}:
        return
    for name in clusters.node_names(size.nodes):
        ledger.remove_node(name)
    ledger.report()
    for number in range(size.nodes):
        ledger.set_node(clusters.node(number))
    ledger.report()


def _furnished(size: Size, nodes: int, *others: Node) -> Ledger:
    ledger = Ledger(Mode.GUARD, cap_percent=100)
    for node in (*others, *(clusters.node(number) for number in range(nodes))):
        ledger.set_node(node)
    for policy, slots in enumerate(_shares(min(HOLDS, 4 * size.nodes), size.policies)):
        ledger.set_demand(clusters.demand(policy, slots))
    ledger.report()
    return ledger


def _shares(holds: int, policies: int) -> Sequence[int]:
    return [holds // policies + (number < holds % policies) for number in range(policies)]
