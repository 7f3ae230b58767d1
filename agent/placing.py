"""What was decided of a node's pods and where they are, made anew only where what it is made from changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from agent.state import Known, KnownPod
from qos.cluster.policy import Policy
from qos.plan.assumed import Machine
from qos.plan.placed_pod import NodeTree, PlacedPod, placed
from qos.pods.decision import Decided

Policies: TypeAlias = Mapping[str, Policy]
_NONE: Final[Policies] = {}


@dataclass(frozen=True, slots=True)
class _Decided:
    """`policies`: those of its namespace, the same object while they are the same."""

    pod: KnownPod
    policies: Policies
    decided: Decided


@dataclass(frozen=True, slots=True)
class _Placed:
    """`key`: all that the place was made from."""

    key: tuple[Any, ...]
    place: PlacedPod


class Placing:
    """Remembers pods by uid. decide: (pod, known, its namespace's policies) -> what is decided; pure.

    A pod that only the runtime has told of is decided each time: that depends on the others that are known.
    """

    def __init__(self, decide: Callable[[KnownPod, Known, Policies], Decided]) -> None:
        self._decide = decide
        self._rules: tuple[Any, ...] = ()
        self._policies: dict[str, Policies] = {}
        self._decided: dict[str, _Decided] = {}
        self._placed: dict[str, _Placed] = {}

    def begin(self, known: Known) -> None:
        """A new pass: what is not known any more is forgotten, and what rules have changed for."""
        rules = dict(known.profiles), dict(known.priority_classes), dict(known.opt_outs)
        if rules != self._rules:
            self._rules = rules
            self._decided.clear()
        now = _by_namespace(known)
        before = self._policies
        self._policies = {key: before[key] if before.get(key) == one else one for key, one in now.items()}
        for remembered in (self._decided, self._placed):
            for uid in remembered.keys() - known.pods.keys():
                del remembered[uid]

    def decided(self, one: KnownPod, known: Known) -> Decided:
        """What is decided of a pod, by the rules as they were when the pass began."""
        uid, policies = one.pod.uid, self._policies.get(one.pod.namespace, _NONE)
        last = self._decided.get(uid)
        if last is not None and last.pod is one and last.policies is policies:
            return last.decided
        decided = self._decide(one, known, policies)
        if one.provisional:
            self._decided.pop(uid, None)
        else:
            self._decided[uid] = _Decided(one, policies, decided)
        return decided

    def placed(
        self, tree: NodeTree, machine: Machine, decided: Decided, running: Mapping[str, str]
    ) -> PlacedPod:
        """Where it is; running: the cgroups of its containers that there are, by name."""
        uid = decided.pod.uid
        path = tree.pods.get(uid, "")
        seen = tree.groups.get(path)
        inside = tuple(tree.groups.get(f"{path}/{name}") for name in seen.children) if seen else ()
        known = tuple((name, there, tree.groups.get(there)) for name, there in running.items())
        key = (decided, path, seen, inside, known, tree.parents, tree.cpus, tree.page, machine)
        last = self._placed.get(uid)
        if last is None or last.key != key:
            self._placed[uid] = last = _Placed(key, placed(tree, machine, decided, running))
        return last.place


def _by_namespace(known: Known) -> dict[str, dict[str, Policy]]:
    """A cluster may have thousands of policies, and no pod needs those of other namespaces."""
    policies: dict[str, dict[str, Policy]] = {}
    for key, one in known.policies.items():
        policies.setdefault(one.namespace or "default", {})[key] = one
    return policies
