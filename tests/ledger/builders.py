"""Short ways to write nodes, pods, demands and ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import (
    Demand,
    Node,
    NodePredicate,
    OwnerReference,
    Pod,
    Requirement,
    Selector,
    Toleration,
)

EVERYWHERE = NodePredicate()
TOLERATE_ALL = NodePredicate(tolerations=(Toleration(operator="Exists"),))


def labelled(app: str) -> Selector:
    return Selector((Requirement("app", "In", (app,)),))


def node(name: str, cpu: int = 8, memory: int = 32, pods: int = 110, **others: Any) -> Node:
    """cpu in cores, memory in units; `extra` adds resources."""
    extra: Mapping[str, int] = others.pop("extra", {})
    amounts = {"cpu": cpu * 1000, "memory": memory, "pods": pods, **extra}
    return Node(name, f"uid-{name}", amounts, **others)


def pod(name: str, cpu: float = 1, memory: int = 1, **others: Any) -> Pod:
    """`app` labels it; `node` puts it on a node."""
    extra: Mapping[str, int] = others.pop("extra", {})
    app = others.pop("app", "")
    on = others.pop("node", "")
    requests = {"cpu": int(cpu * 1000), "memory": memory, "pods": 1, **extra}
    labels = {"app": app} if app else {}
    namespace = others.pop("namespace", "default")
    return Pod(name, namespace, name, requests, labels=labels, node_name=on, **others)


def daemon_pod(name: str, cpu: float, owner: str, **others: Any) -> Pod:
    return pod(name, cpu, controller=OwnerReference("DaemonSet", owner, owner), **others)


def demand(app: str, desired: int, cpu: float = 2, memory: int = 1, **others: Any) -> Demand:
    """Older than all that say when they were created."""
    others.setdefault("created", 0.5)
    extra: Mapping[str, int] = others.pop("extra", {})
    vector = {"cpu": int(cpu * 1000), "memory": memory, "pods": 1, **extra}
    selector = others.pop("selector", labelled(app))
    return Demand(f"default/{app}", "default", selector, vector, desired, **others)


def ledger(*things: Node | Pod | Demand, mode: Mode = Mode.STRICT, **others: Any) -> Ledger:
    """A ledger fed with these, without a cap unless one is given."""
    made = Ledger(mode, cap_percent=others.pop("cap_percent", 100), **others)
    for thing in things:
        match thing:
            case Node():
                made.set_node(thing)
            case Pod():
                made.set_pod(thing)
            case Demand():
                made.set_demand(thing)
    return made


def nodes(count: int, cpu: int = 8, **others: Any) -> list[Node]:
    return [node(f"n{i}", cpu, **others) for i in range(count)]


def names(count: int) -> list[str]:
    return [f"n{i}" for i in range(count)]


def holds(of: Ledger, app: str) -> dict[str, int]:
    return dict(of.report()[f"default/{app}"].holds)


def go(through: Ledger, who: Pod, asked: Sequence[str], now: float = 0.0) -> str:
    """Filter, then bind to the first answer; the node, or "" when refused."""
    answer = through.filter(who, asked, now)
    if not answer.nodes or through.bind(who, answer.nodes[0], now).refusal:
        return ""
    return answer.nodes[0]
