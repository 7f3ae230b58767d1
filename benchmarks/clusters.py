"""Clusters of a size: nodes of 32 cores, policies that hold slots on a tenth of them, and pods.

`Size` is a column of the table. Objects are made twice: as records for a ledger, as JSON for an API server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.pod_json import pod_json
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Demand, Node, Pod, Requirement, Selector

GI: Final = 2**30
CORES: Final = 32
SLOTS_A_NODE: Final = 4
SLOT_CORES: Final = 4
HOLDING: Final = 10
"""Every tenth node's worth of slots is held."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many of each; `pods` run on the nodes, evenly."""

    nodes: int
    policies: int
    pods: int

    @property
    def name(self) -> str:
        """As the table's column is called."""
        return f"{self.nodes}/{self.policies}"

    @property
    def slots(self) -> int:
        """Slots of all policies together, at least one each."""
        return max(self.policies, self.nodes // HOLDING * SLOTS_A_NODE)

    def slots_of(self, policy: int) -> int:
        """Slots of one policy."""
        return self.slots // self.policies + (policy < self.slots % self.policies)


def node_name(number: int) -> str:
    """43 characters, as a cloud provider's are."""
    return f"ip-10-0-{number // 256:03d}-{number % 256:03d}.compute.example.internal"


def node_names(count: int) -> list[str]:
    """The first so many."""
    return [node_name(number) for number in range(count)]


def app(policy: int) -> str:
    """The label of a policy's pods, and the policy's name."""
    return f"app-{policy}"


def namespace(policy: int) -> str:
    """Each policy has a namespace of its own, as a tenant has."""
    return f"team-{policy}"


def node(number: int) -> Node:
    """A node's record."""
    name = node_name(number)
    allocatable = {"cpu": CORES * 1_000, "memory": 128 * GI, "pods": 110}
    return Node(name, f"node-{number}", allocatable, {"kubernetes.io/hostname": name})


def demand(policy: int, slots: int, cores: float = SLOT_CORES, **others: Any) -> Demand:
    """A policy's demand; each policy's slot is a little different, so that shapes differ."""
    vector = {"cpu": int(cores * 1_000), "memory": 4 * GI + policy * 2**20, "pods": 1}
    selector = Selector((Requirement("app", "In", (app(policy),)),))
    key = f"{namespace(policy)}/{app(policy)}"
    return Demand(
        key, namespace(policy), selector, vector, slots, priority=1_000, created=float(policy), **others
    )


def pod(name: str, cores: float, node: str = "", owner_of: int | None = None, **others: Any) -> Pod:
    """A pod's record; `owner_of`: the policy whose slot it fills."""
    requests = {"cpu": int(cores * 1_000), "memory": GI, "pods": 1}
    of = "batch" if owner_of is None else namespace(owner_of)
    labels = {"app": "batch" if owner_of is None else app(owner_of)}
    return Pod(name, of, name, requests, labels=labels, node_name=node, **others)


def roomy(size: Size, mode: Mode = Mode.GUARD) -> Ledger:
    """17 cores are free on each node; where slots are held, at most four of them, 1 is left."""
    ledger = _with_nodes(size, mode)
    for number in range(size.nodes):
        ledger.set_pod(pod(f"filler-{number}", CORES - 17, node_name(number)))
    for policy in range(size.policies):
        ledger.set_demand(demand(policy, size.slots_of(policy), max_slots_per_node=SLOTS_A_NODE))
    ledger.report()
    return ledger


def full(size: Size, *, spare: int = 0) -> Ledger:
    """A hold on every node, of four cores; 0.5 are left; two pods of 2 cores might be evicted.

    `spare`: so many of the last nodes have no holds, and room for two.
    """
    ledger = _with_nodes(size, Mode.GUARD)
    taken = CORES - SLOT_CORES - 4.5
    holding = size.nodes - spare
    for number in range(size.nodes):
        less = 0 if number < holding else SLOT_CORES
        ledger.set_pod(pod(f"filler-{number}", taken - less, node_name(number), priority=2_000))
        for which in "ab":
            ledger.set_pod(pod(f"victim-{number}-{which}", 2, node_name(number)))
    for policy in range(size.policies):
        share = holding // size.policies + (policy < holding % size.policies)
        ledger.set_demand(demand(policy, share))
    ledger.report()
    return ledger


def _with_nodes(size: Size, mode: Mode) -> Ledger:
    ledger = Ledger(mode, cap_percent=100)
    for number in range(size.nodes):
        ledger.set_node(node(number))
    return ledger


def new_pod(
    name: str, cores: float, node: str = "", *, owner_of: int | None = None, **others: Any
) -> dict[str, Any]:
    """A pod as the API server has it."""
    if owner_of is not None:
        others |= {"namespace": namespace(owner_of), "app": app(owner_of)}
    return pod_json(name, cores, node, **others)


def node_json(number: int, *, ready: bool = True) -> dict[str, Any]:
    """A node as the API server has it."""
    name = node_name(number)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{number}", "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": str(CORES), "memory": "128Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def policy_json(policy: int, slots: int | None, cores: int = SLOT_CORES, **spec: Any) -> dict[str, Any]:
    """A policy; `slots` None: those of the Deployment of its name."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app(policy)}
    floor = {"cpu": str(cores), "memory": f"{4 * 1024 + policy}Mi"}
    body: dict[str, Any] = {
        "selector": {"matchLabels": {"app": app(policy)}},
        "floor": {"resources": floor},
        "slots": {"scaleTargetRef": target} if slots is None else {"count": slots},
        "priorityClassName": "floors",
        "placement": {"maxSlotsPerNode": SLOTS_A_NODE, "inheritFromWorkload": False},
    }
    return {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "MinimalReservationPolicy",
        "metadata": {"namespace": namespace(policy), "name": app(policy), "generation": 1},
        "spec": body | spec,
    }


def deployment_json(policy: int, replicas: int) -> dict[str, Any]:
    """The Deployment that a policy's slots follow."""
    resources = {"requests": {"cpu": str(SLOT_CORES), "memory": "1Gi"}}
    template = {
        "metadata": {"labels": {"app": app(policy)}},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": namespace(policy), "name": app(policy), "generation": 1},
        "spec": {"replicas": replicas, "template": template},
    }


def owners(size: Size) -> Iterator[tuple[int, int]]:
    """(policy, number) of the pods that fill half of the slots."""
    for policy in range(size.policies):
        for number in range(size.slots_of(policy) // 2):
            yield policy, number
