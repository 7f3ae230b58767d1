"""A small cluster on which our leader makes room, in whatever order of steps a test chooses.

What happens to pods is a log, which watches show one event at a time, when the test says so. The leader goes
on from one wait to the next, likewise.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field, replace
from typing import Any, cast

from adapters.api import EvictingAPI, NotFound, NotTaken, Resource
from adapters.kubernetes.events import EventWriter
from extender.config import GiveBack
from extender.giving_back import GivingBack
from extender.metrics import Metrics
from extender.view import View
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Node, Pod
from qos.cluster.quota import ElasticQuota
from quota.limits import Limits


@dataclass
class Cluster:
    """What is true: nodes and the CPU of each, pods by UID. `evicted`: who was, in this order; `guarded`: who
    may not be, but for a dry run.
    """

    nodes: dict[str, int]
    pods: dict[str, Pod] = field(default_factory=dict)
    log: list[tuple[Pod, bool]] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    guarded: set[str] = field(default_factory=set)
    now: float = 0.0

    def write(self, pod: Pod) -> None:
        """As it is now."""
        self.pods[pod.uid] = pod
        self.log.append((pod, True))

    def patch(self, uid: str, **changes: Any) -> None:
        """Nothing where it is not there any more, or has a node already."""
        pod = self.pods.get(uid)
        if pod is not None and not pod.node_name:
            self.write(replace(pod, **changes))

    def remove(self, uid: str) -> None:
        """It is gone, and nobody makes it again."""
        self.log.append((self.pods.pop(uid), False))

    def evict(self, uid: str) -> None:
        """It is being deleted, and ends at some later step."""
        pod = self.pods.get(uid)
        if pod is not None and not pod.deleting:
            self.evicted.append(uid)
            self.write(replace(pod, deleting=True))

    def end(self) -> bool:
        """One that is being deleted ends, and its controller makes another; False: none is."""
        for pod in self.pods.values():
            if pod.deleting:
                del self.pods[pod.uid]
                self.log.append((pod, False))
                name = f"{pod.name}+"
                self.write(replace(pod, uid=name, name=name, node_name="", deleting=False))
                return True
        return False


class Watch:
    """Shows the log from its beginning, one event at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._shown = cluster, 0

    def next(self) -> tuple[Pod, bool] | None:
        """A pod, and whether it is there; None: all was shown."""
        if self._shown == len(self._cluster.log):
            return None
        self._shown += 1
        return self._cluster.log[self._shown - 1]


OVER = "over"


class _Turn:
    """Awaited: others may come before it goes on."""

    def __init__(self, call: str) -> None:
        self._call = call

    def __await__(self) -> Generator[str, None, None]:
        yield self._call


class _API:
    """What the leader asks of the API server: before and after each call others may come."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def get(self, _: Resource, namespace: str, name: str) -> bytes:
        await _Turn("get")
        raw = _written(self._find(name))
        await _Turn("got")
        return raw

    async def patch(self, _: Resource, namespace: str, name: str, body: Any, **__: Any) -> bytes:
        await _Turn("patch")
        uid = self._find(name).uid
        self._cluster.patch(uid, nominated_node_name=body["status"]["nominatedNodeName"] or "")
        await _Turn("patched")
        return b""

    async def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool = False) -> None:
        await _Turn("evict dry" if dry_run else "evict")
        self._find(name)
        if not dry_run and uid in self._cluster.guarded:
            raise NotTaken("it would violate the pod's disruption budget")
        if not dry_run:
            self._cluster.evict(uid)
        await _Turn("evicted")

    def _find(self, name: str) -> Pod:
        if name not in self._cluster.pods:
            raise NotFound(404, "NotFound", name)
        return self._cluster.pods[name]


def _written(pod: Pod) -> bytes:
    meta = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "labels": dict(pod.labels)}
    requests = {"cpu": f"{pod.requests['cpu']}m"}
    spec = {"nodeName": pod.node_name, "containers": [{"name": "c", "resources": {"requests": requests}}]}
    status = {"nominatedNodeName": pod.nominated_node_name}
    return json.dumps({"metadata": meta, "spec": spec, "status": status}).encode()


class _Events:
    def say(self, *_: Any) -> None:
        """Nobody reads them."""


class Extender:
    """The real ledger, quotas and leader, as far as their watch has come; `leads` while it does."""

    def __init__(
        self, cluster: Cluster, quotas: tuple[ElasticQuota, ...], *, grace: float = 0, a_minute: int = 60
    ) -> None:
        self.leads = True
        self._cluster, self._watch = cluster, Watch(cluster)
        self._view, limits = View(), Limits()
        self.ledger = Ledger(Mode.STRICT, cap_percent=100, quotas=limits)
        for name, cpu in cluster.nodes.items():
            self.ledger.set_node(Node(name, name, {"cpu": cpu, "pods": 110}))
        for quota in quotas:
            self.ledger.set_quota(quota)
        api, events = cast("EvictingAPI", _API(cluster)), cast("EventWriter", _Events())
        config = GiveBack(grace_seconds=grace, evictions_per_minute=a_minute)
        self._giving = GivingBack(
            api,
            self.ledger,
            limits,
            self._view,
            events,
            Metrics(),
            config,
            schedulers=["default-scheduler"],
            clock=self._clock,
            wall=self._clock,
            leads=lambda: self.leads,
        )
        self._pass: Coroutine[Any, Any, None] | None = None

    def _clock(self) -> float:
        return self._cluster.now

    def see(self) -> bool:
        """One event more; False: there is none."""
        event = self._watch.next()
        if event is None:
            return False
        pod, there = event
        if there:
            self.ledger.set_pod(pod)
            self._view.set_pod(pod)
        else:
            self.ledger.remove_pod(pod.uid)
            self._view.remove_pod(pod.uid)
        return True

    def lead(self) -> str:
        """The leader begins a pass, or goes on to its next wait: OVER when the pass is, else the call that it
        makes or has made, "" for none.
        """
        if self._pass is None:
            self._pass = self._giving.run_once()
        try:
            return cast("str | None", self._pass.send(None)) or ""
        except StopIteration:
            self._pass = None
            return OVER
