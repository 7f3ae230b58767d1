"""What kube-scheduler 1.36 does with pods that wait, in steps: its calls to an extender, its preemption.

Source: pkg/scheduler/framework/preemption and plugins/defaultpreemption of Kubernetes 1.36.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from ledger.ledger import Ledger
from qos.cluster.objects import Pod
from tests.extender.room_world import Cluster, Watch


class KubeScheduler:
    """As far as its own watch has come. What it does asynchronously waits in `tasks`."""

    def __init__(self, cluster: Cluster, ledger: Ledger) -> None:
        self._cluster, self._ledger, self._watch = cluster, ledger, Watch(cluster)
        self._pods: dict[str, Pod] = {}
        self._assumed: dict[str, str] = {}
        self._preempting: dict[str, int] = {}
        self.tasks: list[Callable[[], None]] = []

    def see(self) -> bool:
        """One event more; False: there is none."""
        event = self._watch.next()
        if event is None:
            return False
        pod, there = event
        if there:
            self._pods[pod.uid] = pod
        else:
            self._pods.pop(pod.uid, None)
        if pod.node_name or not there:
            self._assumed.pop(pod.uid, None)
        return True

    def waiting(self) -> list[Pod]:
        """Pods that it may try, the most important first."""
        pods = [pod for pod in self._pods.values() if not (pod.node_name or pod.deleting)]
        pods = [pod for pod in pods if pod.uid not in self._assumed and not self._preempting.get(pod.uid)]
        return sorted(pods, key=lambda pod: -pod.priority)

    def attempt(self, pod: Pod) -> None:
        """One scheduling cycle."""
        every, resolvable = list(self._cluster.nodes), set[str]()
        for names in ([pod.nominated_node_name], every) if pod.nominated_node_name else (every,):
            fitting = [name for name in names if self._fits(pod, name, self._there(name))]
            said = self._ledger.filter(pod, fitting, self._cluster.now) if fitting else None
            if said is not None and said.nodes:
                self._assumed[pod.uid] = said.nodes[0]
                self.tasks.append(partial(self._bind, pod, said.nodes[0]))
                return
            resolvable = {name for name in every if name not in fitting}
            resolvable |= set(said.resolvable) if said is not None else set()
        nomination = self._preempt(pod, resolvable)
        node = pod.nominated_node_name if nomination is None else nomination
        changes = {"nominated_node_name": node, "unschedulable_since": 1.0}
        self.tasks.append(partial(self._cluster.patch, pod.uid, **changes))

    def _there(self, node: str) -> list[Pod]:
        on = {uid: pod.node_name or self._assumed.get(uid) for uid, pod in self._pods.items()}
        return [pod for uid, pod in self._pods.items() if on[uid] == node]

    def _fits(self, pod: Pod, node: str, there: Iterable[Pod]) -> bool:
        """Beside those that are nominated there and matter as much."""
        nominated = (
            one
            for one in self._pods.values()
            if one.nominated_node_name == node and not one.node_name and one.uid not in self._assumed
            if one.priority >= pod.priority and one.uid != pod.uid
        )
        taken = sum(one.requests["cpu"] for one in (*there, *nominated))
        return taken + pod.requests["cpu"] <= self._cluster.nodes[node]

    def _preempt(self, pod: Pod, resolvable: set[str]) -> str | None:
        """The node to nominate it to, "" for none; None: it stays as it is."""
        found = {node: victims for node in resolvable if (victims := self._dry_run(pod, node))}
        if not found:
            return ""
        kept = self._ledger.preempt(
            pod, {node: [one.uid for one in victims] for node, victims in found.items()}, self._cluster.now
        )
        if not kept:
            return None
        harm = {name: (max(one.priority for one in found[name]), len(found[name])) for name in kept}
        node = min(reversed(kept), key=harm.__getitem__)  # of equals another one than the leader's
        for victim in found[node]:
            if not victim.deleting:
                self._preempting[pod.uid] = self._preempting.get(pod.uid, 0) + 1
                self.tasks.append(partial(self._delete, victim.uid, pod.uid))
        return node

    def _delete(self, victim: str, preemptor: str) -> None:
        self._cluster.evict(victim)
        self._preempting[preemptor] -= 1

    def _dry_run(self, pod: Pod, node: str) -> list[Pod]:
        """The fewest that matter least there: all of lower priority go, and as many as may come back do."""
        there = self._there(node)
        lower = sorted((one for one in there if one.priority < pod.priority), key=lambda one: -one.priority)
        stay = [one for one in there if one not in lower]
        if not self._fits(pod, node, stay):
            return []
        victims = []
        for one in lower:
            if self._fits(pod, node, [*stay, one]):
                stay.append(one)
            else:
                victims.append(one)
        return victims

    def _bind(self, pod: Pod, node: str) -> None:
        said = self._ledger.bind(pod, node, self._cluster.now)
        if said.awaited:
            gone = [one.uid for one in said.awaited if one.uid not in self._cluster.pods]
            said = self._ledger.bind(pod, node, self._cluster.now, gone)
        if said.refusal:
            self._assumed.pop(pod.uid, None)
            self._cluster.patch(pod.uid, nominated_node_name="", unschedulable_since=1.0)
        elif pod.uid not in self._cluster.pods:
            self._assumed.pop(pod.uid, None)
            self._ledger.release(pod.uid)
        else:
            self._ledger.bound(pod.uid, node)
            self._cluster.patch(pod.uid, node_name=node, nominated_node_name="")
