"""The facts of one moment, for the invariants: from the API server's objects and the public reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from adapters.api import BUDGETS, DAEMON_SETS, NAMESPACES, NODES, PODS, RESERVATIONS
from adapters.kubernetes import decode
from qos.cluster.objects import Demand, Node, Pod, Resources
from qos.cluster.selectors import admits, matches
from qos.keys import PODS as ONE_POD
from simulation import parsed, reserved
from simulation.books import PLACEHOLDERS
from simulation.history import World
from simulation.invariants import Facts
from simulation.store import Body, Store

if TYPE_CHECKING:
    from simulation.extender import Extender


def facts_of(world: World, store: Store, extender: Extender) -> Facts:
    """What is true now. The extender must be up to date."""
    nodes = {node.name: node for node in (parsed.node(e.raw) for e in store.entries(NODES))}
    pods: dict[str, list[Pod]] = {}
    nominated: dict[str, list[Resources]] = {}
    for entry in store.entries(PODS):
        pod = parsed.pod(entry.raw)
        if pod.namespace == PLACEHOLDERS:
            continue  # the hold itself
        if pod.node_name and not pod.terminal:
            pods.setdefault(pod.node_name, []).append(pod)
        elif pod.nominated_node_name and not pod.terminal:
            nominated.setdefault(pod.nominated_node_name, []).append(pod.requests)
    reports = extender.ledger.report()
    demands = ordered(extender.books.demands(), reports)
    bodies = {f"/{body['metadata']['name']}": body for body in store.bodies(RESERVATIONS)}
    bound = [pod for there in pods.values() for pod in there]
    coming = extender.ledger.in_flight
    demands = [_left(one, bodies[one.key], bound, coming) if one.reserved else one for one in demands]
    return Facts(
        nodes=nodes,
        pods={name: [_counted(pod, demands) for pod in there] for name, there in pods.items()},
        demands=demands,
        reports=reports,
        owners={p.uid: _owner(p, demands) for there in pods.values() for p in there},
        nominated=nominated,
        expected=_expected(store, nodes, pods),
        cap=world.cap,
        budgets=[decode.budget(entry.raw).rules for entry in store.entries(BUDGETS)],
        labels=dict(decode.namespace(entry.raw) for entry in store.entries(NAMESPACES)),
    )


def ordered(demands: Mapping[str, Demand], reports: Mapping[str, object]) -> list[Demand]:
    """The demands of which there is a report, in the ledger's order."""
    there = [demand for key, demand in demands.items() if key in reports]
    return sorted(there, key=lambda d: (-d.priority, d.created, d.key))


def _left(demand: Demand, body: Body, pods: list[Pod], coming: list[Pod]) -> Demand:
    """What a Reservation that is shared holds beside its pods, at least: those on their way may use it."""
    if not reserved.shared(body):
        return demand
    uid, there = reserved.uid_of(body), {pod.uid for pod in pods}
    may = [replace(p, reserved_by=uid) for p in coming if p.uid not in there and reserved.for_pod(body, p)]
    return replace(demand, vector=reserved.left_of(body, [*pods, *may]) | {ONE_POD: 1})


def _counted(pod: Pod, demands: list[Demand]) -> Pod:
    """The pod as one that requests what it counts for: at its network floor if it fills a slot."""
    floor = next((d.owed for d in demands if d.key == _owner(pod, demands)), {}) if pod.slot != "" else {}
    more = {name: amount for name, amount in floor.items() if amount > pod.requests.get(name, 0)}
    return replace(pod, requests={**pod.requests, **more}) if more else pod


def _owner(pod: Pod, demands: list[Demand]) -> str:
    used = (d.key for d in demands if d.reserved is not None and d.reserved.uid == pod.reserved_by)
    if pod.reserved_by and (key := next(used, "")):
        return key
    selecting = (d for d in demands if d.namespace == pod.namespace and matches(d.selector, pod.labels))
    return next((d.key for d in selecting if d.admits(pod.requests)), "")


def _expected(
    store: Store, nodes: Mapping[str, Node], pods: Mapping[str, list[Pod]]
) -> dict[str, list[Resources]]:
    """What DaemonSets have still to place, by node."""
    missing: dict[str, list[Resources]] = {}
    for entry in store.entries(DAEMON_SETS):
        daemon = decode.daemon_set(entry.raw)
        for name, node in nodes.items():
            here = (pod.controller.uid for pod in pods.get(name, ()) if pod.controller is not None)
            if admits(daemon.where, node) and daemon.uid not in here:
                missing.setdefault(name, []).append(daemon.requests)
    return missing
