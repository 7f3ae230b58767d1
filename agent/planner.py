"""Plans for all pods of this node, or for one that starts, from its cgroups as others left them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from adapters.cgroup_tree import CgroupTree
from adapters.machine import ThisMachine
from agent.placing import Placing
from agent.state import ContainerKey, Known, KnownPod, Running
from qos.cluster.policy import Policy
from qos.cluster.precedence import PriorityClasses
from qos.plan.assumed import Machine
from qos.plan.container_plan import ContainerPlan
from qos.plan.node import Level
from qos.plan.node_plan import PlannedNode
from qos.plan.node_share import (
    NodeShare,
    NodeShares,
    allocatable_weight,
    node_share,
    pods_level,
    scale_of,
    with_weight,
)
from qos.plan.placed_pod import NodeTree, PlacedPod
from qos.pods.decision import NOTHING_CHOSEN, Choices, Decided, decide, is_opted_out, opted_out
from qos.pods.expectation import states_class

log = logging.getLogger(__name__)

REREAD_SECONDS: Final = 300.0
"""Seconds after which all cgroups are read again, in case somebody wrote into them unseen."""

MEMORY_USED: Final = "memory.current"

OriginalValues: TypeAlias = Mapping[tuple[str, str], str]
"""(cgroup, file) -> what somebody else wrote there last; only of files that we have written."""


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """What a pod gets, and the plans of its containers."""

    decided: Decided
    containers: tuple[ContainerPlan, ...]

    @property
    def uid(self) -> str:
        """The pod's."""
        return self.decided.pod.uid

    @property
    def problem(self) -> str:
        """The problem with its policy, "" for none."""
        return self.decided.problem


class Planner:
    """Keeps what was read of the cgroups, and the plans of the last pass.

    size: of the machine, with the kernel files that there are; looked up anew for each pass. node_shares:
    which weight the cgroup of all pods has at the root. problems: by uid, why a pod was not planned then.
    follows_use: whether those plans depend on how much memory some pod uses. Methods raise
    kernel.refused.Refused.
    """

    def __init__(
        self,
        machine: ThisMachine,
        size: Machine,
        clock: Callable[[], float],
        choices: Choices = NOTHING_CHOSEN,
        node_shares: NodeShares = NodeShares.KUBELET,
    ) -> None:
        self._cgroups = CgroupTree(machine)
        self._machine = machine
        self._size = size
        self._usual_files = size.files
        self._clock = clock
        self._choices = choices
        self._placing = Placing(lambda one, known, policies: _decided(one, known, policies, choices))
        self._node_shares = node_shares
        self._all_pods: Level | None = None
        """Their cgroup, with kubelet's weight."""
        self._tree = NodeTree({}, {})
        self._node = PlannedNode(self._tree, size, {})
        self._read_at = float("-inf")
        self.problems: dict[str, str] = {}
        self.follows_use = False
        self._told: set[str] = set()
        self._lost = False

    def prepare(
        self, known: Known, running: Mapping[ContainerKey, Running], originals: OriginalValues
    ) -> Iterator[None]:
        """Read the cgroups and solve for all pods, in steps of about a millisecond; then plans() has them.

        What changes between two steps counts with the next pass.
        """
        pods = list(_to_plan(known))
        self.problems = {}
        self._size = self._size_now()
        cgroups = _by_pod(running)
        self._placing.begin(known)
        if self._clock() - self._read_at >= REREAD_SECONDS:
            self._cgroups.changed_all()
            self._read_at = self._clock()
        yield from self._cgroups.update([one.cgroup for one in running.values()])
        tree = self._with_node_weight(self._cgroups.with_originals(originals))
        places = {}
        for one in pods:
            uid = one.pod.uid
            try:
                if uid in self._cgroups.unread:
                    raise self._cgroups.unread[uid]
                decided = self._placing.decided(one, known)
                places[uid] = self._placed(tree, decided, cgroups.get(uid, {}))
            except Exception as error:  # one pod that nobody thought of must not cost all others their floors
                self._tell(uid, error)
                if (before := self._node.places.get(uid)) is not None:
                    places[uid] = before
            yield
        node = PlannedNode(tree, self._size, places)
        yield
        yield from node.solve()
        self._tree, self._node = tree, node
        self.follows_use = any(place.follows_use for place in places.values())

    def _placed(self, tree: NodeTree, decided: Decided, running: Mapping[str, str]) -> PlacedPod:
        """A pod where it is, with what it uses of its memory where plans depend on that."""
        place = self._placing.placed(tree, self._size, decided, running)
        if not place.follows_use:
            return place
        return place.using(int(self._cgroups.now(place.level.path, MEMORY_USED) or 0))

    @property
    def size(self) -> Machine:
        """The machine as the last pass saw it."""
        return self._size

    def is_outdated(self) -> bool:
        """Whether CPUs, disks, memory or the files that cgroups have are others than at the last pass."""
        return self._size_now() != self._size

    def _size_now(self) -> Machine:
        return self._machine.size(self._usual_files)

    def _with_node_weight(self, tree: NodeTree) -> NodeTree:
        """The tree in which the cgroup of all pods has what is planned for it, as far as that is written:
        what the kernel refused is nothing to build floors on.
        """
        self._all_pods = pods_level(tree, self._size)
        wanted = self.node_weight()
        lost = self._all_pods is None and self._node_shares is not NodeShares.KUBELET
        if lost and not self._lost:
            log.warning(
                "--node-shares %s: no kubepods with a process at the root, none is weighed yet",
                self._node_shares.value,
            )
        self._lost = lost
        if wanted is None:
            return tree
        path, file, weight = wanted
        there = self._cgroups.now(path, file)
        return with_weight(tree, path, min(weight, int(there or weight)), self._size.unified)

    def node_weight(self) -> tuple[str, str, int] | None:
        """The cgroup of all pods, its file and what that shall hold; None: what kubelet wrote."""
        level = self._all_pods
        if level is None or self._node_shares is NodeShares.KUBELET:
            return None
        weight = allocatable_weight(level, self._size.cpus, self._size.unified)
        return (level.path, scale_of(self._size.unified).file, weight) if weight > level.weight else None

    def node_share(self) -> NodeShare | None:
        """What all pods get together, by the weight that their cgroup has now; None: it is not known."""
        level = self._all_pods
        if level is None:
            return None
        there = self._cgroups.now(level.path, scale_of(self._size.unified).file)
        return node_share(level, self._size.cpus, self._size.unified, int(there or 0))

    def plans(self) -> Iterator[PlannedPod]:
        """The plans of all pods that were prepared."""
        node = self._node
        for uid, place in node.places.items():
            try:
                planned = PlannedPod(place.decided, node.plan(uid))
            except Exception as error:
                self._tell(uid, error)
                continue
            yield planned
        self._told = set(self.problems)

    def _tell(self, uid: str, error: Exception) -> None:
        self.problems[uid] = f"pod {uid} cannot be planned: {error!r}"
        if uid not in self._told:
            log.error("pod not planned uid=%s: it keeps what it has", uid, exc_info=error)

    def plan_pod(
        self, uid: str, known: Known, running: Mapping[ContainerKey, Running], originals: OriginalValues
    ) -> PlannedPod:
        """One pod as it is there now, beside all others as they were planned last.

        KeyError: it is not known.
        """
        if not self._tree.groups:
            for _ in self.prepare(known, running, originals):
                pass
        decided = _decided(known.pods[uid], known, known.policies, self._choices)
        cgroups = {key.name: one.cgroup for key, one in running.items() if key.pod_uid == uid}
        self._cgroups.refresh(self._cgroups.path_of(uid) or next(iter(cgroups.values()), ""))
        own = self._cgroups.of_pod(uid, originals)
        path = self._cgroups.path_of(uid)
        tree = replace(self._tree, groups={**self._tree.groups, **own}, pods={**self._tree.pods, uid: path})
        return PlannedPod(decided, self._node.plan_beside(self._placed(tree, decided, cgroups)))

    def decided(self, one: KnownPod, known: Known) -> Decided:
        """What a pod may expect, whether it has cgroups or not."""
        return _decided(one, known, known.policies, self._choices)

    def cgroup_of(self, uid: str) -> str:
        """A pod's cgroup, "" where it had none when it was looked for."""
        return self._cgroups.path_of(uid)

    def read_pod(self, path: str) -> Mapping[str, str]:
        """What a pod's cgroup has now, by file, whoever wrote it; {} where there is none."""
        self.changed(path)
        self._cgroups.refresh(path)
        return self._cgroups.values(path)

    def forget(self, pod_uid: str) -> None:
        """A pod is gone."""
        self._cgroups.forget(self._cgroups.path_of(pod_uid))

    def changed(self, pod: str) -> None:
        """Somebody else wrote into a cgroup of this pod: its uid, or the path of the cgroup."""
        self._cgroups.changed(pod if pod.startswith("/") else self._cgroups.path_of(pod))


def _decided(one: KnownPod, known: Known, policies: Mapping[str, Policy], choices: Choices) -> Decided:
    """A runtime does not know a pod's priority: it may be the node's own, and no class is guessed for it."""
    if is_opted_out(one.pod, known.opt_outs):
        return opted_out(one.pod)
    decided = decide(
        one.pod,
        one.policy,
        policies,
        known.profiles,
        PriorityClasses(known.priority_classes),
        requests_known=not one.provisional,
        choices=choices,
    )
    if not one.provisional or decided.policy or _written(one) in known.pods or states_class(one.pod):
        return decided
    return replace(decided, exempt=True)


def _to_plan(known: Known) -> Iterator[KnownPod]:
    """Without those of a folder that the runtime runs under a uid: such a pod is there twice."""
    alive = [one for one in known.pods.values() if one.pod.uid and not one.finished]
    run = {_written(one) for one in alive if one.pod.uid != _written(one)}
    return (one for one in alive if one.pod.uid not in run)


def _written(one: KnownPod) -> str:
    """What a folder's pod without a uid is called."""
    return f"{one.pod.namespace}/{one.pod.name}"


def _by_pod(running: Mapping[ContainerKey, Running]) -> dict[str, dict[str, str]]:
    cgroups: dict[str, dict[str, str]] = {}
    for key, one in running.items():
        cgroups.setdefault(key.pod_uid, {})[key.name] = one.cgroup
    return cgroups
