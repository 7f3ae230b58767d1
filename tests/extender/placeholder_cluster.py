"""A cluster whose kube-scheduler knows nothing of us, played: its pods, and what tests ask about them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

from adapters.api import (
    NODES,
    PODS,
    POLICIES,
    Conflict,
    NotFound,
)
from qos import keys

OURS = "j10ce-placeholders"


class Scheduler:
    """Binds what fits, by whole CPUs of a node; a gated pod waits. Who was nominated goes there first."""

    def __init__(self, api, cpus: int) -> None:
        self.api, self.cpus = api, cpus
        self.history: list[str] = []
        self.most_nominated = 0
        """Pods that waited for the same node at once."""

    async def run(self) -> None:
        while True:
            with contextlib.suppress(NotFound, Conflict):
                await self.once()
            await asyncio.sleep(0.002)

    async def once(self) -> None:
        for one in ours(self.api):  # as the API server does
            if "priority" not in one["spec"]:
                one["spec"]["priority"] = int(one["spec"]["priorityClassName"].rpartition("-")[2])
                self.api.put(PODS, one)
        pods = self.api.objects(PODS)
        used = Counter()
        for one in pods:
            if node := one["spec"].get("nodeName") or one.get("status", {}).get("nominatedNodeName"):
                used[node] += cpus_of(one)
        nominated = [p for p in pods if "nominatedNodeName" in p.get("status", {})]
        there = Counter(p["status"]["nominatedNodeName"] for p in nominated if not p["spec"].get("nodeName"))
        self.most_nominated = max(self.most_nominated, *there.values(), 0)
        waiting = [p for p in pods if not p["spec"].get("nodeName") and not p["spec"].get("schedulingGates")]
        for one in sorted(waiting, key=lambda p: -p["spec"].get("priority", 0)):
            nominated = one.get("status", {}).get("nominatedNodeName")
            free = dict.fromkeys([n["metadata"]["name"] for n in self.api.objects(NODES)], self.cpus)
            nodes = [nominated] if nominated else wanted_node(one) or sorted(free)
            fit = [n for n in nodes if used[n] + (0 if n == nominated else cpus_of(one)) <= self.cpus]
            name = one["metadata"]["name"]
            if fit:
                await self.api.bind(one["metadata"]["namespace"], name, one["metadata"]["uid"], fit[0], {})
                self.history.append(name)
                return
            refuse(self.api, one)


def refuse(api, pod) -> None:
    if pod["metadata"]["namespace"] != OURS and not pod.get("status", {}).get("conditions"):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
        }
        api.put(PODS, pod | {"status": {"phase": "Pending", "conditions": [condition]}})


def requested(pod) -> str:
    """CPU, as it is written."""
    return pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]


def cpus_of(pod) -> int:
    asked = requested(pod)
    return int(asked[:-1]) // 1000 if asked.endswith("m") else int(asked)


def wanted_node(pod) -> list[str]:
    affinity = pod["spec"].get("affinity")
    if not affinity:
        return []
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"][0]["matchFields"][0]["values"]


def ours(api):
    return [one for one in api.objects(PODS) if one["metadata"]["namespace"] == OURS]


def before_each_pod(api, monkeypatch, what) -> None:
    """Have `what` awaited with the body of each pod that is created; what it raises is the answer."""
    create = api.create

    async def created(resource, namespace, body):
        if resource is PODS:
            await what(body)
        return await create(resource, namespace, body)

    monkeypatch.setattr(api, "create", created)


def stand(api) -> Counter:
    return Counter(one["spec"]["nodeName"] for one in ours(api) if one["spec"].get("nodeName"))


def nodes_of(api, prefix: str) -> dict[str, str]:
    pods = [p for p in api.objects(PODS) if p["metadata"]["name"].startswith(prefix)]
    return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName")}


def condition(api, kind: str) -> tuple[str, str, str]:
    status = api.get_object(POLICIES, "default", "checkout").get("status", {})
    found = {
        one["type"]: (one["status"], one["reason"], one["message"]) for one in status.get("conditions", ())
    }
    return found.get(kind, ("", "", ""))


def gated(pod):
    pod["spec"]["schedulingGates"] = [{"name": keys.HAND_OVER_GATE}]
    return pod


def stand_by(api) -> Counter:
    waiting = [one for one in ours(api) if not one["spec"].get("nodeName")]
    nominated = (one.get("status", {}).get("nominatedNodeName") for one in waiting)
    return Counter(node for node in nominated if node)
