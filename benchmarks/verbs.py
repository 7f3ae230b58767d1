"""What the verbs cost, bytes in to bytes out, by the fixed work's units; no HTTP (see http_cost).

`roomy`: a tenth of the nodes hold slots, so most pods meet none. `full`: every node does, and a pod is
refused or has to evict.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from adapters import garbage
from benchmarks import clusters
from benchmarks.clusters import Size
from benchmarks.fixed_work import Took, took
from extender import verbs
from ledger.decisions import Mode
from ledger.ledger import Ledger

SIZES: Final = (100, 500, 5_000)
_MOST_PREEMPTIONS: Final = 200


class Calls:
    """Bodies of one verb for pods of one kind, each of a new pod; kube-scheduler's names come in rotation."""

    def __init__(self, names: Sequence[str], size: int, cores: float, **pod: Any) -> None:
        self._names, self._size = names, min(size, len(names))
        self._pod = clusters.new_pod("POD", cores, **pod)

    def body(self, number: int) -> bytes:
        """ExtenderArgs; the pod's UID is uid-POD-number."""
        shown = [*self._names[number * 97 % len(self._names) :], *self._names][: self._size]
        pod = self._named(number)
        return orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": shown})

    def preempting(self, number: int) -> bytes:
        """ExtenderPreemptionArgs: all names are candidates, each with its two victims."""
        victims = {
            name: {"Pods": [{"UID": f"victim-{i}-a"}, {"UID": f"victim-{i}-b"}], "NumPDBViolations": 0}
            for i, name in enumerate(self._names[: self._size])
        }
        pod = self._named(number)
        return orjson.dumps({"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims})

    def _named(self, number: int) -> dict[str, Any]:
        name = f"POD-{number}"
        meta = self._pod["metadata"] | {"name": name, "uid": f"uid-{name}"}
        return self._pod | {"metadata": meta}


def measure(size: Size, runs: int) -> dict[str, float]:
    """All verbs on clusters of this size: name -> units."""
    found: dict[str, float] = {}
    kept = garbage.Keeper()
    roomy = clusters.roomy(size)
    kept.keep()  # as the program does: a full collection of the cluster is no part of a call
    names = clusters.node_names(size.nodes)
    shuffled = random.Random(7).sample(names, len(names))
    held = [name for name in shuffled if name in roomy.held_nodes()]
    for count in (one for one in SIZES if one <= size.nodes):
        found[f"filter, {count} names"] = _filter(roomy, Calls(shuffled, count, 0.5), runs).p50
    for count in (one for one in SIZES[:2] if one <= len(held)):
        # 12 cores are free and held in part: one hold or more has to move.
        taken = _filter(roomy, Calls(held, count, 12), runs)
        found[f"filter, {count} names, holds move"] = taken.p50
    found["prioritize, 500 names"] = _prioritize(roomy, Calls(shuffled, 500, 0.5), runs).p50
    found["bind"] = _bind(roomy, shuffled, runs).p50
    del roomy
    crowded = clusters.full(size)
    kept.keep()
    for count in (one for one in SIZES if one <= size.nodes):
        refused = Calls(shuffled, count, 1)
        found[f"filter, {count} names, refused"] = _filter(crowded, refused, runs).p50
    last = verbs.filter(Calls(shuffled, 5_000, 1).body(0), crowded, 1.0)
    found["refusal, KB"] = len(last.body) / 1_000
    del crowded
    # As many candidates as kube-scheduler shows: a tenth of the nodes, 100 at least.
    candidates = names[: max(size.nodes // 10, 100)]
    crowded = clusters.full(size, spare=size.nodes // 10)
    kept.keep()
    for what, cores in (("preempt, p99", 2), ("preempt, holds move, p99", 6)):
        calls = Calls(candidates, len(candidates), cores)
        found[what] = _preempt(crowded, calls, names[-1], runs).p99
    return found


def _filter(ledger: Ledger, calls: Calls, runs: int) -> Took:
    def call(number: int) -> Callable[[], object]:
        if number:
            ledger.settle(f"uid-POD-{number - 1}")  # the one before is bound, as in a cluster
        body = calls.body(number)
        return lambda: verbs.filter(body, ledger, 1.0)

    try:
        return took(call, runs)
    finally:
        ledger.settle(f"uid-POD-{runs - 1}")


def _prioritize(ledger: Ledger, calls: Calls, runs: int) -> Took:
    def call(number: int) -> Callable[[], object]:
        body = calls.body(number)
        return lambda: verbs.prioritize(body, ledger, 1.0)

    return took(call, runs)


def _bind(ledger: Ledger, names: Sequence[str], runs: int) -> Took:
    """Ledger.bind of pods that filter has just answered; they stay."""
    pods = [clusters.pod(f"bound-{i}", 0.5) for i in range(runs)]

    def call(number: int) -> Callable[[], object]:
        if number:
            ledger.bound(pods[number - 1].uid, nodes[-1])
        start = number * 97 % len(names)
        nodes.append(ledger.filter(pods[number], [*names[start:], *names][:100], 1.0).nodes[0])
        return lambda: ledger.bind(pods[number], nodes[-1], 1.0)

    nodes: list[str] = []
    return took(call, runs)


def _preempt(ledger: Ledger, calls: Calls, elsewhere: str, runs: int) -> Took:
    """Each call after a change, which makes what searches share anew; as many as a 99th percentile needs."""

    def call(number: int) -> Callable[[], object]:
        ledger.set_pod(clusters.pod("changes", 0.001 * (1 + number % 2), elsewhere))
        body = calls.preempting(number)
        return lambda: verbs.preempt(body, ledger, 1.0)

    return took(call, min(_MOST_PREEMPTIONS, 14 * runs))


def special(size: Size, runs: int) -> dict[str, float]:
    """Cases that once were slow: many nominated pods, many owners in flight, many unplaced policies."""
    names = random.Random(7).sample(clusters.node_names(size.nodes), size.nodes)
    return {
        "filter, 500 names, 1,000 nominated pods": _with_nominated(size, names, runs),
        "filter, 500 names, 1,500 owners in flight": _with_owners_in_flight(size, names, runs),
        **_with_unplaced(size, names, runs),
    }


def _with_nominated(size: Size, names: Sequence[str], runs: int) -> float:
    ledger = clusters.roomy(size)
    for number in range(1_000):
        where = names[number % len(names)]
        ledger.set_pod(clusters.pod(f"nominated-{number}", 0.5, priority=10, nominated_node_name=where))
    return _filter(ledger, Calls(names, 500, 0.5), runs).p50


def _with_owners_in_flight(size: Size, names: Sequence[str], runs: int) -> float:
    """Owners that filter has answered, and that are not bound yet."""
    ledger = clusters.roomy(size)
    many = min(1_500, size.slots)
    for number in range(many):
        owner = clusters.pod(f"owner-{number}", 4, owner_of=number % size.policies)
        ledger.filter(owner, names[:500], 1.0)
    return _filter(ledger, Calls(names, 500, 0.5), runs).p50


def _with_unplaced(size: Size, names: Sequence[str], runs: int) -> dict[str, float]:
    """Bind while 300 policies have slots that no node has room for, in Guard and in Strict."""
    found = {}
    for mode in (Mode.GUARD, Mode.STRICT):
        ledger = clusters.roomy(Size(size.nodes, 1, size.pods), mode)
        for policy in range(1, 301):
            ledger.set_demand(clusters.demand(policy, 2, cores=clusters.CORES + 1))
        ledger.report()
        found[f"bind, 300 unplaced policies, {mode.value}"] = _bind(ledger, names, runs).p50
    return found
