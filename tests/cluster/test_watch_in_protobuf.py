"""A real API server's watch of pods in protobuf says what its watch in JSON says."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest

from adapters.api import PODS, APIError, Gone, Resource, Unreachable
from adapters.kubernetes import decode, gangs, placeholders
from adapters.kubernetes.client import KubernetesAPI
from adapters.kubernetes.protobuf.pods import as_json
from tests.waiting import running

pytestmark = pytest.mark.cluster

DEADLINE = 60.0
NODE_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "zone", "operator": "In", "values": ["a", "b"]},
                    {"key": "gpu", "operator": "DoesNotExist"},
                ]
            },
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        ]
    },
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 5, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}
    ],
}
RICH = {
    "metadata": {
        "name": "rich",
        "labels": {"app": "web", "pod-group.scheduling.sigs.k8s.io": "crew", "tier": "front"},
        "annotations": {
            "gang.scheduling.koordinator.sh/name": "crew",
            "gang.scheduling.koordinator.sh/min-available": "2",
            "j10ce.io/placeholder-of": 'a "quoted" name / \\ of \u00fc\U0001f600',
            "empty": "",
        },
    },
    "spec": {
        "schedulerName": "nobody",
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"disk": "ssd", "zone": "a"},
        "schedulingGates": [{"name": "j10ce.io/gang"}, {"name": "example.com/other"}],
        "affinity": {"nodeAffinity": NODE_AFFINITY, "podAntiAffinity": {}},
        "tolerations": [
            {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "t", "value": "v", "effect": "NoExecute", "tolerationSeconds": 30},
            {"operator": "Exists"},
        ],
        "initContainers": [
            {"name": "once", "image": "x", "resources": {"limits": {"memory": "4Gi"}}},
            {
                "name": "mesh",
                "image": "x",
                "restartPolicy": "Always",
                "resources": {"requests": {"cpu": "0.1"}},
            },
        ],
        "containers": [
            {
                "name": "app",
                "image": "x",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "value": "b"}],
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            },
            {"name": "free", "image": "x"},
        ],
    },
}
PLAIN = {
    "metadata": {"name": "plain"},
    "spec": {"schedulerName": "nobody", "containers": [{"name": "app", "image": "x"}]},
}
WHOLE = {
    "metadata": {"name": "whole"},
    "spec": {
        "schedulerName": "nobody",
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}},
        "containers": [{"name": "app", "image": "x"}],
    },
}
REFUSED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/5 nodes",
    "lastTransitionTime": "2026-11-28T09:00:00Z",
}
RUNNING = {
    "phase": "Running",
    "conditions": [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-28T09:00:01Z"},
        {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "lastTransitionTime": None},
    ],
    "containerStatuses": [
        {
            "name": "app",
            "ready": True,
            "restartCount": 0,
            "image": "x",
            "imageID": "x",
            "allocatedResources": {"cpu": "250m"},
            "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1"}},
        }
    ],
}
FAILED = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}


class Seen(dict):
    """What a watch of all pods has said, (type, bytes) by UID and version."""

    def __init__(self, api):
        super().__init__()
        self._api = api
        self._news = asyncio.Event()

    async def follow(self, version):
        async for event in self._api.watch(PODS, resource_version=version):
            meta = decode.metadata(event.object)
            self[(meta.uid, meta.resource_version)] = event.type, event.object
            self._news.set()

    async def until(self, true):
        async with asyncio.timeout(DEADLINE):
            while not true(self):
                self._news.clear()
                await self._news.wait()


def within(part, whole, path=""):
    """What is said in `part` and not, or otherwise, in `whole`; nothing counts as empty."""
    if isinstance(part, dict):
        for key, value in part.items():
            yield from within(value, (whole or {}).get(key), f"{path}.{key}")
    elif isinstance(part, list) and isinstance(whole, list) and len(part) == len(whole):
        for number, value in enumerate(part):
            yield from within(value, whole[number], f"{path}[{number}]")
    elif (part or whole) and part != whole:
        yield path, part, whole


def readings(raw):
    """All that the extender's decoders of pods make of one."""
    pod = decode.pod(raw)
    held = placeholders.placeholder(raw)
    where = placeholders.placement(raw)
    return pod, held, where, placeholders.gates(raw), gangs.member(pod, raw), placeholders.ended_because(raw)


async def owners(api, namespace):
    """Two that are there, else the garbage collector takes what they own; the second is the controller."""
    maps, found = Resource("", "v1", "configmaps", "ConfigMap"), []
    for name in ("a", "b"):
        uid = decode.metadata(await api.create(maps, namespace, {"metadata": {"name": name}})).uid
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
    return [found[0], found[1] | {"controller": True}]


async def test_both_watches_say_the_same_of_each_event(cluster, api, namespace):
    version = (await api.list_page(PODS)).resource_version
    client = KubernetesAPI.from_kubeconfig(cluster.kubeconfig, in_protobuf={PODS: as_json})
    by_json, by_protobuf = Seen(api), Seen(client)
    async with client, running(by_json.follow(version)), running(by_protobuf.follow(version)):
        metadata = RICH["metadata"] | {"ownerReferences": await owners(api, namespace)}
        for body in (RICH | {"metadata": metadata}, PLAIN, WHOLE):
            await api.create(PODS, namespace, body)
        for status in ({"conditions": [REFUSED], "nominatedNodeName": "n1"}, RUNNING, FAILED):
            for body in (RICH, PLAIN, WHOLE):
                name = body["metadata"]["name"]
                await api.patch(PODS, namespace, name, {"status": status}, subresource="status")
        for body in (RICH, PLAIN, WHOLE):
            await api.delete(PODS, namespace, body["metadata"]["name"])
        mine = f'"namespace":"{namespace}"'.encode()

        def gone(seen):
            return sum(kind == "DELETED" and mine in raw for kind, raw in seen.values()) == 3

        for seen in (by_json, by_protobuf):
            await seen.until(gone)
    wanted = {key: one for key, one in by_json.items() if mine in one[1]}
    assert len(wanted) >= 15
    for key, (kind, raw) in wanted.items():
        ours, text = by_protobuf[key]
        assert ours == kind
        assert not [*within(json.loads(text), json.loads(raw))]
        assert readings(text) == readings(raw)
        assert text != raw, "both came in JSON"


async def test_what_the_server_refuses_it_refuses_in_words(cluster):
    old = Resource("", "v1", "nothing", "Nothing")
    client = KubernetesAPI.from_kubeconfig(cluster.kubeconfig, in_protobuf={PODS: as_json, old: as_json})
    async with client as api:
        with pytest.raises(APIError, match="could not find the requested resource") as refused:
            await anext(api.watch(old, resource_version="1"))
        assert (refused.value.status, refused.value.reason) == (404, "NotFound")


async def test_a_version_that_is_too_old_is_gone(make_cluster):
    """In the stream, or in place of it."""
    own = make_cluster()
    client = KubernetesAPI.from_kubeconfig(own.kubeconfig, in_protobuf={PODS: as_json})
    async with client as api:
        own.kill("kube-apiserver")  # its next watch cache begins now, and knows nothing before
        own.start("kube-apiserver")
        with pytest.raises(Gone):
            await first(api, "2")


async def first(api, version):
    """The first event after a version, once the server is there."""
    async with asyncio.timeout(DEADLINE):
        while True:
            with suppress(Unreachable):
                return await anext(api.watch(PODS, resource_version=version))


async def test_a_resource_without_protobuf_comes_in_json(cluster, api, namespace):
    """Custom resources have none; who asks for it all the same is answered in JSON."""
    policies = Resource("j10ce.io", "v1alpha1", "minimalreservationpolicies", "MinimalReservationPolicy")
    version = (await api.list_page(policies)).resource_version
    spec = {
        "selector": {"matchLabels": {"app": "web"}},
        "floor": {"resources": {"cpu": "1"}},
        "slots": {"count": 1},
    }
    client = KubernetesAPI.from_kubeconfig(cluster.kubeconfig, in_protobuf={policies: as_json})
    async with client as other:
        watch = other.watch(policies, resource_version=version)
        body = {"apiVersion": "j10ce.io/v1alpha1", "kind": policies.kind, "metadata": {"name": "web"}}
        await api.create(policies, namespace, body | {"spec": spec})
        async with asyncio.timeout(DEADLINE):
            event = await anext(watch)
        assert decode.policy(event.object).count == 1
        await watch.aclose()
