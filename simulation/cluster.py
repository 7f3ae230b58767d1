"""The rest of the cluster: what creates, replaces, ends and removes pods and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapters.api import DAEMON_SETS, DEPLOYMENTS, NODES, PODS, NotFound, Resource
from qos.cluster.objects import Pod
from simulation import api, objects
from simulation.chance import Chance
from simulation.history import World
from simulation.loop import VirtualLoop
from simulation.store import Body, Entry, Store

COLLECTED_SECONDS = 2.0
"""How long pods outlive their node (upstream's collector takes longer)."""
OTHER_SCHEDULER = "other-scheduler"


@dataclass(slots=True)
class App:
    """A workload whose pods are replaced when they go. cpu in millicores, memory in Mi."""

    name: str
    replicas: int
    cpu: int
    memory: int
    priority: int
    deployed: bool = False
    made: int = 0


class Cluster:
    """Kubelets, controllers and a second scheduler, acting on the store itself, at once but where said."""

    def __init__(self, store: Store, loop: VirtualLoop, chance: Chance, world: World) -> None:
        self.store = store
        self._loop, self._chance, self._crowd = loop, chance, world.crowd
        self._dying = world.dying
        self._skew = world.skew
        self.apps: dict[str, App] = {}
        self._numbers = 0
        self._due: set[str] = set()
        self._waiting: dict[str, tuple[int, str]] = {}
        store.listeners.append(self._see)

    # --- workloads ---

    def set_app(self, app: App) -> None:
        """A workload as it shall be."""
        known = self.apps.get(app.name)
        app.made = known.made if known else 0
        self.apps[app.name] = app
        if app.deployed:
            template = self._pod("", app)
            self.store.write(DEPLOYMENTS, objects.deployment(app.name, app.replicas, template))
        elif self.store.find(DEPLOYMENTS, "default", app.name):
            self.store.remove(DEPLOYMENTS, "default", app.name)
        self._soon(app.name)

    def _pod(self, name: str, app: App) -> Body:
        even = {"topologySpreadConstraints": [objects.spread(app.name, self._skew)]} if self._skew else {}
        return objects.pod(name, app.cpu, app.memory, app.priority, {"app": app.name}, **even)

    def pods_of(self, app: str) -> list[Body]:
        """Its pods that are not on their way out, oldest first."""
        mine = (body for body in self.store.bodies(PODS) if body["metadata"]["labels"].get("app") == app)
        alive = (b for b in mine if not _leaving(b))
        return sorted(alive, key=lambda body: int(body["metadata"]["uid"][1:]))

    def _soon(self, app: str) -> None:
        if app in self._due:
            return
        self._due.add(app)
        delay = self._chance.between(0.02, 0.8, "replace", app, self.apps[app].made, self.store.version % 7)
        self._loop.call_later(delay, self._reconcile, app)

    def _reconcile(self, name: str) -> None:
        self._due.discard(name)
        app = self.apps[name]
        pods = self.pods_of(name)
        for body in pods[app.replicas :]:
            self.delete(body["metadata"]["name"], body["metadata"]["uid"])
        for _ in range(app.replicas - len(pods)):
            app.made += 1
            self.store.create(PODS, self._pod(f"{name}-{app.made}", app))

    def reconcile_daemons(self) -> None:
        """A pod for each DaemonSet and node."""
        daemons = list(self.store.bodies(DAEMON_SETS))
        there = {
            (b["metadata"]["labels"].get("daemon"), b["metadata"]["labels"].get("pin"))
            for b in self.store.bodies(PODS)
        }
        names = [body["metadata"]["name"] for body in self.store.bodies(NODES)]
        for daemon in daemons:
            for name in names:
                if (daemon["metadata"]["name"], name) not in there:
                    self._numbers += 1
                    self.store.create(PODS, objects.pinned(daemon, name, self._numbers))

    # --- pods ---

    def delete(
        self, name: str, uid: str = "", *, grace: float | None = None, namespace: str = "default"
    ) -> None:
        """DELETE a pod: at once where it has no node, else after its grace. NotFound."""
        body = self.store.get(PODS, namespace, name)
        meta = body["metadata"]
        if uid and meta["uid"] != uid:
            raise NotFound(404, "NotFound", f"pod {name} is another one")
        if body["spec"].get("terminationGracePeriodSeconds") == 0:
            grace = 0.0
        if grace is None:
            grace = self._chance.between(0.0, self._dying, "grace", name)
        if (
            not body["spec"].get("nodeName")
            or grace == 0
            or body["status"]["phase"] in ("Succeeded", "Failed")
        ):
            self.store.remove(PODS, namespace, name)
            return
        if "deletionTimestamp" not in meta:
            stamped = {**meta, "deletionTimestamp": self.store.now()}
            self.store.write(PODS, {**body, "metadata": stamped})
            self._loop.call_later(grace, self._removed, name, meta["uid"])

    def evict(self, victim: Pod) -> None:
        """kube-scheduler preempts a pod: it is marked, then deleted."""
        body = self.store.get(PODS, victim.namespace, victim.name)
        if body["metadata"]["uid"] == victim.uid:
            condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            conditions = [*body["status"].get("conditions", ()), condition]
            self.store.write(PODS, {**body, "status": {**body["status"], "conditions": conditions}})
        self.delete(victim.name, victim.uid, namespace=victim.namespace)

    def _removed(self, name: str, uid: str) -> None:
        body = self.store.find(PODS, "default", name)
        if body is not None and body["metadata"]["uid"] == uid:
            self.store.remove(PODS, "default", name)

    def finish(self, name: str) -> None:
        """A pod on a node ends."""
        body = self.store.find(PODS, "default", name)
        if body is not None and body["spec"].get("nodeName"):
            self.store.write(PODS, {**body, "status": {**body["status"], "phase": "Succeeded"}})

    # --- what follows from changes ---

    def _see(self, resource: Resource, entry: Entry, before: Body | None) -> None:
        if resource is PODS:
            self._see_pod(entry, before)
        elif resource is NODES:
            name = entry.body["metadata"]["name"]
            if entry.type == "DELETED":
                self._loop.call_later(COLLECTED_SECONDS, self._collect, name)
            elif entry.type == "ADDED":
                self._loop.call_later(0.1, self.reconcile_daemons)

    def _see_pod(self, entry: Entry, before: Body | None) -> None:
        labels = entry.body["metadata"]["labels"]
        leaves = entry.type == "DELETED" or _leaving(entry.body)
        if leaves and labels.get("app") in self.apps:
            self._soon(labels["app"])
        if self._crowd and "plain" in labels:
            self._count(entry.body, waits=not (leaves or entry.body["spec"].get("nodeName")))
        if leaves and "daemon" in labels:
            self._loop.call_later(0.5, self.reconcile_daemons)
        if before is None and entry.body["spec"]["schedulerName"] == OTHER_SCHEDULER:
            name, uid = entry.body["metadata"]["name"], entry.body["metadata"]["uid"]
            delay = self._chance.between(0.01, 0.3, "other", name)
            self._loop.call_later(delay, self._schedule_otherwise, name, uid)

    def _count(self, body: Body, *, waits: bool) -> None:
        meta = body["metadata"]
        if not waits:
            self._waiting.pop(meta["uid"], None)
        elif meta["uid"] not in self._waiting:
            self._waiting[meta["uid"]] = body["spec"]["priority"], meta["name"]
            self._loop.call_later(0.0, self._thin_out)

    def _thin_out(self) -> None:
        """Too many wait: the owners of some lose patience."""
        while len(self._waiting) > self._crowd:
            uid = min(self._waiting, key=lambda uid: self._waiting[uid][0])
            self.delete(self._waiting[uid][1], uid)

    def _collect(self, node: str) -> None:
        """Remove the pods of a node that is gone."""
        if self.store.find(NODES, "", node) is None:
            for body in list(self.store.bodies(PODS)):
                if body["spec"].get("nodeName") == node:
                    meta = body["metadata"]
                    self.store.remove(PODS, meta["namespace"], meta["name"])

    def _schedule_otherwise(self, name: str, uid: str) -> None:
        """The second scheduler: the first node with room, by its own account, and no extender."""
        body = self.store.find(PODS, "default", name)
        if body is None or body["metadata"]["uid"] != uid or body["spec"].get("nodeName"):
            return
        needs = _milli(body)
        for node in self.store.bodies(NODES):
            node_name = node["metadata"]["name"]
            used = sum(_milli(other) for other in self._on(node_name))
            have = int(node["status"]["allocatable"]["cpu"].removesuffix("m"))
            if not node["spec"].get("taints") and used + needs <= have:
                api.bind(self.store, "default", name, uid, node_name, {})
                return

    def _on(self, node: str) -> list[Body]:
        return [b for b in self.store.bodies(PODS) if b["spec"].get("nodeName") == node and not _ended(b)]


def _milli(body: Mapping[str, Any]) -> int:
    request: str = body["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return int(request.removesuffix("m"))


def _ended(body: Mapping[str, Any]) -> bool:
    return body["status"]["phase"] in ("Succeeded", "Failed")


def _leaving(body: Mapping[str, Any]) -> bool:
    return _ended(body) or "deletionTimestamp" in body["metadata"]
