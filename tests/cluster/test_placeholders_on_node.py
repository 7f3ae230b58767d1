"""Bound placeholder pods on a real kubelet: what bypasses the scheduler is refused, owners never are."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from adapters.api import NODES, PODS, PRIORITY_CLASSES, NotFound
from adapters.kubernetes.client import KubernetesAPI
from lab.cluster import Cluster
from lab.node.node import RealNode
from lab.node.rig import real_node
from lab.runtimes.images import PAUSE
from qos.quantity import parse
from tests.waiting import SECONDS

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.full,  # four minutes, beside a load of 40 a quarter of an hour
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="a real node needs cgroups, namespaces and mounts: be root"),
]

SLOTS = 10
"""On the node; together all of its CPU but less than one slot."""
OWNERS = 200
GATE = "example.com/wait-for-slot"
CLASSES = {"slot-holder": 1000, "slot-owner": 1001}


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[RealNode]:
    with real_node(cluster, f"real-{secrets.token_hex(2)}") as made:
        yield made


@pytest.fixture
async def cpu(api: KubernetesAPI, node: RealNode) -> AsyncIterator[str]:
    """What a slot has of the node's CPU; the PriorityClasses are there."""
    for name, value in CLASSES.items():
        body = {"metadata": {"name": name}, "value": value}
        body |= {"preemptionPolicy": "Never"} if name == "slot-holder" else {}
        await api.create(PRIORITY_CLASSES, "", body)
    found = json.loads(await api.get(NODES, "", node.name))
    yield f"{parse('cpu', found['status']['allocatable']['cpu']) // SLOTS}m"
    for name in CLASSES:
        await api.delete(PRIORITY_CLASSES, "", name)


def pod(name: str, priority: str, node: str, cpu: str, **spec: Any) -> dict[str, Any]:
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [only]}
    container = {
        "name": "main",
        "image": PAUSE,
        "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": cpu}},
    }
    return {
        "metadata": {"name": name, "labels": {"made": priority}},
        "spec": {
            "priorityClassName": priority,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        }
        | spec,
    }


def placeholder(name: str, form: str, node: str, cpu: str) -> dict[str, Any]:
    """One that never starts, for want of a ConfigMap, or one that only pauses."""
    made = pod(name, "slot-holder", node, cpu)
    if form == "never":
        made["spec"]["volumes"] = [{"name": "never", "configMap": {"name": "never"}}]
        made["spec"]["containers"][0]["volumeMounts"] = [{"name": "never", "mountPath": "/never"}]
    return made


async def status(api: KubernetesAPI, namespace: str, name: str) -> dict[str, Any]:
    """With the node, "" for none."""
    found = json.loads(await api.get(PODS, namespace, name))
    return found.get("status", {}) | {"node": found["spec"].get("nodeName", "")}


async def taken(api: KubernetesAPI, namespace: str, name: str, *, ready: bool) -> dict[str, Any]:
    """The pod's status once kubelet has refused it, or taken it and (ready) started it."""
    async with asyncio.timeout(SECONDS * 2):
        while True:
            found = await status(api, namespace, name)
            is_ready = any(
                one["type"] == "Ready" and one["status"] == "True" for one in found.get("conditions", [])
            )
            if found.get("phase") == "Failed" or ("startTime" in found and (is_ready or not ready)):
                return found
            await asyncio.sleep(0.05)


async def gone(api: KubernetesAPI, namespace: str, names: list[str]) -> None:
    for name in names:
        with suppress(NotFound):
            await api.delete(PODS, namespace, name, grace_seconds=0)
    async with asyncio.timeout(SECONDS):
        for name in names:
            with suppress(NotFound):
                while True:
                    await api.get(PODS, namespace, name)
                    await asyncio.sleep(0.05)


async def bound(api: KubernetesAPI, namespace: str, name: str) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            if (await status(api, namespace, name))["node"]:
                return
            await asyncio.sleep(0.01)


async def hand_over(
    api: KubernetesAPI, namespace: str, owner: str, holder: str, node: RealNode, cpu: str
) -> None:
    """By a gate: the owner is nominated before a placeholder goes, so nobody else slips in."""
    gated = pod(owner, "slot-owner", node.name, cpu, schedulingGates=[{"name": GATE}])
    await api.create(PODS, namespace, gated)
    nominated = {"status": {"nominatedNodeName": node.name}}
    await api.patch(PODS, namespace, owner, nominated, subresource="status")
    await api.delete(PODS, namespace, holder, grace_seconds=0)
    await api.patch(PODS, namespace, owner, {"spec": {"schedulingGates": []}})


async def place(api: KubernetesAPI, namespace: str, form: str, node: RealNode, cpu: str) -> list[str]:
    """Placeholders on all of the node."""
    names = [f"hold-{form}-{number}" for number in range(SLOTS)]
    for name in names:
        await api.create(PODS, namespace, placeholder(name, form, node.name, cpu))
    for name in names:
        found = await taken(api, namespace, name, ready=form == "pause")
        assert found["phase"] == ("Pending" if form == "never" else "Running"), found
    return names


@pytest.mark.parametrize("form", ["never", "pause"])
async def test_a_pod_that_bypasses_the_scheduler_is_refused(
    api: KubernetesAPI, namespace: str, node: RealNode, cpu: str, form: str
) -> None:
    names = await place(api, namespace, form, node, cpu)
    past = pod(
        "past", "slot-owner", node.name, cpu, nodeName=node.name, preemptionPolicy="PreemptLowerPriority"
    )
    await api.create(PODS, namespace, past)
    found = await taken(api, namespace, "past", ready=True)
    assert (found["phase"], found["reason"]) == ("Failed", "OutOfcpu"), found
    await gone(api, namespace, [*names, "past"])


@pytest.mark.parametrize(("form", "way"), [("never", "gate"), ("pause", "gate"), ("never", "preemption")])
async def test_an_owner_is_admitted_every_time(
    api: KubernetesAPI, namespace: str, node: RealNode, cpu: str, form: str, way: str
) -> None:
    """On a node that has nothing else left, at once after a placeholder was deleted there."""
    refused = []
    for turn in range(OWNERS // SLOTS):
        names = await place(api, namespace, form, node, cpu)
        owners = [f"owner-{turn}-{number}" for number in range(SLOTS)]
        for owner, name in zip(owners, names, strict=True):
            if way == "gate":
                await hand_over(api, namespace, owner, name, node, cpu)
            else:
                await api.create(PODS, namespace, pod(owner, "slot-owner", node.name, cpu))
            await bound(api, namespace, owner)
        for owner in owners:
            found = await taken(api, namespace, owner, ready=owner == owners[-1])
            if found["phase"] == "Failed":
                refused.append((owner, found))
        await gone(api, namespace, [*names, *owners])
    assert not refused
