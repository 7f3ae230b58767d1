"""What the agent does when the runtime reports something: NRI's handler."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import NamedTuple

from agent.containers import Containers
from agent.enforcement.originals import Originals
from agent.enforcement.places import Place
from agent.nri.records import Adjustment, LinuxResources, NriContainer, NriPod, State
from agent.provisional import named, pod_of, with_container
from agent.reconciler import Reconciler
from agent.state import ContainerKey, Known, KnownPod, Running
from agent.telling import Telling
from agent.told import NOBODY
from qos.plan.layout import runtime_path, slice_path

_ENDED = (State.STOPPED,)
_NOT_YET = (State.UNKNOWN, State.CREATED)

log = logging.getLogger(__name__)


class _Asked(NamedTuple):
    """What was asked for a container that has no cgroup yet."""

    sandbox: str
    path: str
    resources: LinuxResources


class RuntimeEvents:
    """agent.nri's Handler: containers get their settings before their first instruction, and keep them.

    expect: called with a cgroup that the runtime is about to write. read: what a pod's cgroup has now, by
    file. telling: makes the answers. unified: the node has cgroup v2. observe: only listen: nothing is
    answered, nothing waits for a plan. network: called with a pod whose sandbox has its network, and waited
    for. `synchronized`: the runtime has told of all that it has.
    """

    def __init__(
        self,
        known: Known,
        containers: Containers,
        reconciler: Reconciler,
        originals: Originals,
        expect: Callable[[str], None],
        read: Callable[[str], Mapping[str, str]],
        telling: Telling,
        *,
        unified: bool,
        observe: bool = False,
        network: Callable[[KnownPod], Awaitable[None]] | None = None,
    ) -> None:
        self._known = known
        self._containers = containers
        self._reconciler = reconciler
        self._originals = originals
        self._expect, self._read, self._telling = expect, read, telling
        self._observe, self._network = observe, network
        self._raised = "cpu.weight" if unified else "cpu.shares"  # by kubelet, for pods
        self.synchronized = False
        self._sandboxes: dict[str, NriPod] = {}
        self._asked: dict[str, _Asked] = {}

    async def synchronize(
        self, pods: list[NriPod], containers: list[NriContainer]
    ) -> Mapping[str, Adjustment]:
        """What runs already: a pass, at once; what their specs can say, the runtime is told as well."""
        by_id = {pod.id: pod for pod in pods}
        self._part({pod.uid for pod in pods}, by_id)
        for container in sorted(containers, key=_runs):  # a pod's last sandbox is the one in which some run
            if pod := by_id.get(container.pod_id):
                self._meet(pod, container)
        running = [one for one in containers if _runs(one) and one.pod_id in by_id]
        self._containers.retell(self._running(by_id[one.pod_id], one) for one in running)
        for one in running:
            self._telling.learn(runtime_path(one.cgroups_path), one.resources, written=False)
        there = [one for one in containers if one.state not in _ENDED]  # also what waits for its start
        self._telling.ended_but({runtime_path(one.cgroups_path) for one in there})
        self.synchronized = True
        await self._reconciler.reconcile()
        self._reconciler.changed()  # once it is connected what is not told of does not run
        changes = {}
        for one in running:
            if wanted := self._adjustment(by_id[one.pod_id], one):
                changes[one.id] = wanted
        return changes

    async def pod_started(self, pod: NriPod) -> None:
        """The pod's cgroup and its network are there; its containers follow."""
        log.debug(
            "sandbox pod=%s pid=%d addresses=%s own_network=%s",
            pod.uid, pod.pid, ",".join(pod.addresses), pod.own_network,
        )  # fmt: skip
        self._sandboxes[pod.uid] = pod
        path = _pods_path(pod)
        self._reconciler.cgroup_changed(path)
        self._seed_pod(path)  # here it costs no container's start anything
        if self._network is not None:
            await self._network(self._as_known(pod))

    async def pod_updated(self, pod: NriPod) -> None:
        """Kubelet has resized the pod."""
        self._reconciler.cgroup_changed(_pods_path(pod))
        self._reconciler.changed()

    async def pod_gone(self, pod: NriPod) -> None:
        """What only the runtime told of is forgotten with it; the API server's word on a pod stays."""
        self._asked = {one: asked for one, asked in self._asked.items() if asked.sandbox != pod.id}
        now = self._sandboxes.get(pod.uid)
        if now is not None and now.id != pod.id:
            return  # the one before: kubelet clears it away a minute after it made the new one
        self._leave(pod.uid)
        self._reconciler.forget(pod.uid)
        self._reconciler.changed()

    async def create(self, pod: NriPod, container: NriContainer) -> Adjustment | None:
        """What goes into its spec, before there is a cgroup."""
        self._meet(pod, container)
        if self._observe:
            return None
        path, resources = runtime_path(container.cgroups_path), container.resources
        self._asked[container.id] = _Asked(pod.id, path, resources)
        self._originals.seed(path, self._telling.asked(resources))
        self._seed_pod(_pods_path(pod))
        self._reconciler.plan_now(pod.uid)
        return self._adjustment(pod, container)

    async def starting(self, pod: NriPod, container: NriContainer) -> None:
        """Its cgroup is there and its process waits: everything is written now, by ourselves."""
        running = self._running(pod, container)
        self._tell(running)
        self._reconciler.cgroup_changed(running.cgroup)
        if self._observe:
            self._reconciler.changed()
            return
        if (before := self._asked.pop(container.id, None)) is not None:
            self._telling.learn(before.path, container.resources, written=True)
            wanted = self._telling.asked(before.resources)
            self._originals.seed(before.path, wanted)  # a pass meanwhile has found no such cgroup
            self._reconciler.apply_planned(running)  # planning again would cost its start a millisecond
        else:
            self._reconciler.apply_now(running)
        self._reconciler.changed()  # the others make room in the next pass

    async def update(
        self, pod: NriPod, container: NriContainer, resources: LinuxResources
    ) -> Adjustment | None:
        """A resize: what kubelet asks for is what plans are made from now; our values stay."""
        if self._observe:
            return None
        path = runtime_path(container.cgroups_path)
        self._expect(path)
        self._originals.seed(path, self._telling.asked(resources))
        self._reconciler.plan_now(pod.uid)
        return self._adjustment(pod, container, resources)

    async def updated(self, pod: NriPod, container: NriContainer) -> None:
        """The runtime has written the whole spec again: what a spec cannot say is drift by now."""
        running = self._running(pod, container)
        self._tell(running)
        self._reconciler.cgroup_changed(running.cgroup)
        if not self._observe:
            self._reconciler.apply_now(running)
        self._reconciler.changed()

    async def stopped(self, _: NriPod, container: NriContainer) -> None:
        """It runs no more."""
        self._asked.pop(container.id, None)
        self._telling.ended(runtime_path(container.cgroups_path))
        ended = self._containers.ended(container.id)
        if ended is not None:
            self._reconciler.ended(ended)

    async def removed(self, pod: NriPod, container: NriContainer) -> None:
        """It never ran, or is gone altogether."""
        await self.stopped(pod, container)

    @property
    def sandboxes(self) -> Mapping[str, NriPod]:
        """The present one of each pod, by the pod's uid, as far as the runtime told."""
        return self._sandboxes

    def cgroup_of(self, uid: str) -> str:
        """A pod's cgroup as the runtime names it; "" where it tells of no such pod."""
        pod = self._sandboxes.get(uid)
        return _pods_path(pod) if pod is not None else ""

    def runs(self, uid: str) -> bool:
        """Whether the runtime has a sandbox of this pod, as far as it told."""
        return uid in self._sandboxes

    def _part(self, uids: Container[str], ids: Container[str]) -> None:
        """Forget what ended while the runtime could not tell."""
        provisional = [uid for uid, one in self._known.pods.items() if one.provisional]
        for uid in {*self._sandboxes, *provisional}:
            if uid not in uids:
                self._leave(uid)
        self._asked = {one: asked for one, asked in self._asked.items() if asked.sandbox in ids}

    def _leave(self, uid: str) -> None:
        self._sandboxes.pop(uid, None)
        known = self._known.pods.get(uid)
        if known is not None and known.provisional:
            del self._known.pods[uid]

    def _tell(self, running: Running) -> None:
        before = self._containers.told(running)
        if before is not None:  # its own end may be told late
            self._reconciler.ended(before)

    def _seed_pod(self, path: str) -> None:
        """No hook has run for the pod's first container: what is there now is kubelet's."""
        if not self._observe and self._originals.record(Place(path, self._raised)) is None:
            weight = self._read(path).get(self._raised)
            self._originals.seed(path, {self._raised: weight.strip()} if weight else {})

    def _meet(self, pod: NriPod, container: NriContainer) -> None:
        """Know a pod before its source tells of it, and with what a folder says of one of its name."""
        self._sandboxes[pod.uid] = pod
        known = self._known.pods.get(pod.uid)
        if known is not None and not known.provisional:
            if (known.pod.namespace, known.pod.name) == (pod.namespace, pod.name):
                return  # the API server's word is better than the runtime's
            key = f"{known.pod.namespace}/{known.pod.name}"
            log.warning("pod refused key=%s uid=%s: the runtime has another by this uid", key, pod.uid)
            known = None
        written = self._written(pod)
        self._known.pods[pod.uid] = (
            named(written, pod)
            if written
            else with_container(known or pod_of(pod), container.name, container.resources)
        )

    def _as_known(self, pod: NriPod) -> KnownPod:
        """A pod without any container yet, as its source tells of it, else as the runtime does."""
        known = self._known.pods.get(pod.uid)
        if known is not None and (known.pod.namespace, known.pod.name) == (pod.namespace, pod.name):
            return known
        written = self._written(pod)
        return named(written, pod) if written else pod_of(pod)

    def _written(self, pod: NriPod) -> KnownPod | None:
        """What a folder says of one of its name."""
        return self._known.pods.get(f"{pod.namespace}/{pod.name}")

    def renew(self, key: str) -> None:
        """A folder says something else, or nothing more, of the pod namespace/name."""
        written = self._known.pods.get(key)
        for uid, pod in self._sandboxes.items():
            if written is not None and f"{pod.namespace}/{pod.name}" == key:
                self._known.pods[uid] = named(written, pod)

    def _adjustment(
        self, pod: NriPod, container: NriContainer, wished: LinuxResources = NOBODY
    ) -> Adjustment | None:
        if self._observe:
            return None
        return self._telling.adjustment(self._running(pod, container), container.resources, wished)

    def _running(self, pod: NriPod, container: NriContainer) -> Running:
        key = ContainerKey(pod.uid, container.name)
        return Running(key, container.id, runtime_path(container.cgroups_path), container.pid)


def _runs(container: NriContainer) -> bool:
    return container.state not in (*_ENDED, *_NOT_YET)


def _pods_path(pod: NriPod) -> str:
    """The pod's cgroup, from its parent as the runtime has it: a path, or a slice."""
    parent = pod.cgroup_parent
    return parent if parent.startswith("/") else slice_path(parent)
