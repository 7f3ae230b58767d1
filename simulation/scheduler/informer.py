"""What kube-scheduler does about what its watches show: its cache and its queue follow."""

from __future__ import annotations

from qos.cluster.objects import Pod
from simulation import parsed
from simulation.books import SCHEDULER
from simulation.scheduler.cache import Cache
from simulation.scheduler.queue import Queue


class Informer:
    """Feeds a cache and a queue. `known`: each pod's object as it was shown last, by UID."""

    def __init__(self, cache: Cache, queue: Queue) -> None:
        self.cache, self.queue = cache, queue
        self.known: dict[str, bytes] = {}

    def set_node(self, raw: bytes) -> str:
        """A node came or changed."""
        node = parsed.node(raw)
        event = "node-update" if node.name in self.cache.nodes else "node-add"
        if self.cache.nodes.get(node.name) != node:
            self.cache.set_node(node)
            self.queue.move(event)
        return node.name

    def remove_node(self, name: str) -> None:
        """A node is gone."""
        self.cache.remove_node(name)
        self.queue.move("node-delete")

    def set_pod(self, raw: bytes) -> str:
        """A pod came or changed."""
        pod = parsed.pod(raw)
        before = self.known.get(pod.uid)
        if before == raw:
            return pod.uid
        self.known[pod.uid] = raw
        if pod.terminal:
            self._gone(pod.uid)
        elif pod.node_name:
            self._assigned(pod, raw)
        elif pod.scheduler_name == SCHEDULER:
            self._pending(pod, raw, parsed.pod(before) if before else None)
        return pod.uid

    def _assigned(self, pod: Pod, raw: bytes) -> None:
        before = self.cache.placed.get(pod.uid)
        event = "pod-add"
        if before is not None and before.raw:
            less = any(pod.requests.get(name, 0) < amount for name, amount in before.pod.requests.items())
            event = "scale-down" if less else "pod-update"
        self.cache.put(pod, pod.node_name, raw)
        self.cache.nominate(pod, "")
        self.queue.remove(pod.uid)
        self.queue.move(event)

    def _pending(self, pod: Pod, raw: bytes, before: Pod | None) -> None:
        if self.cache.assumed(pod.uid):
            if pod.deleting and before is not None and not before.deleting:
                self.forget(pod.uid)
            return
        wants = parsed.wants(raw)
        if before is None:
            if wants.only:
                self.cache.only[pod.uid] = wants.only
            self.queue.add(pod, raw, shut=wants.gated)
            if not wants.gated:  # the nomination of one with gates is taken up with its next update only
                self.cache.nominate(pod, pod.nominated_node_name)
            return
        self.queue.update(pod, raw, shut=wants.gated)
        node = pod.nominated_node_name
        if node != before.nominated_node_name or (node and pod.uid not in self.cache.nominated):
            self.cache.nominate(pod, node)
            if before.nominated_node_name:
                self.queue.move("pod-delete", least=pod.priority)

    def remove_pod(self, uid: str) -> None:
        """A pod is gone."""
        self.known.pop(uid, None)
        self._gone(uid)
        self.cache.only.pop(uid, None)

    def _gone(self, uid: str) -> None:
        queued = self.queue.find(uid)
        self.queue.remove(uid)
        nominated = self.cache.nominated.get(uid)
        if nominated is not None:
            self.cache.nominate(nominated[1], "")
        if self.cache.drop(uid) is not None:
            self.queue.move("pod-delete")
        elif queued is not None and nominated is not None:
            self.queue.move("pod-delete", least=queued.pod.priority)

    def forget(self, uid: str, *, but: str = "") -> None:
        """An assumed pod is not there after all: tell the queue, `but` not this pod."""
        if self.cache.assumed(uid):
            self.cache.drop(uid)
            self.queue.move("pod-delete", but=but)
