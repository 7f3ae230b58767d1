"""The adapters against a real API server."""

import asyncio
import json
import secrets
import threading
from contextlib import asynccontextmanager, suppress

import pytest
import uvloop

from adapters.api import (
    DEPLOYMENTS,
    LEASES,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    APIError,
    Conflict,
    NotFound,
    NotTaken,
    Resource,
    Unreachable,
)
from adapters.kubernetes import decode
from adapters.kubernetes.client import KubernetesAPI, Timeouts
from adapters.kubernetes.lease import LeaseElector
from adapters.kubernetes.reflector import Reflector
from tests.waiting import running

pytestmark = pytest.mark.cluster

DEADLINE = 60.0


async def eventually(true):
    """Waits for something that typically takes well under a second."""
    async with asyncio.timeout(DEADLINE):
        while not await _value(true):  # noqa: ASYNC110 - the API server sends no events to a test
            await asyncio.sleep(0.02)


async def _value(true):
    result = true()
    return await result if asyncio.iscoroutine(result) else result


@pytest.fixture
async def node(api):
    name = f"node-{secrets.token_hex(3)}"
    await api.create(NODES, "", node_object(name))
    yield name
    await api.delete(NODES, "", name)


def node_object(name):
    size = {"cpu": "32", "memory": "64Gi", "pods": "110"}
    return {
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name},  # as every node has; KWOK passes over one without any
        },
        "status": {"capacity": size, "allocatable": size},
    }


def pod_object(name, **spec):
    container = {"name": "app", "image": "x", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"schedulerName": "nobody", "containers": [container]} | spec,
    }


@asynccontextmanager
async def reflecting(api, resource, names, **options):
    def keep(raw):
        obj = decode.metadata(raw)
        names[obj.uid] = obj.name
        return obj.uid

    reflector = Reflector(api, resource, keep, lambda key: names.pop(key), **options)
    async with running(reflector.run()):
        async with asyncio.timeout(DEADLINE):
            await reflector.synced.wait()
        yield reflector


async def test_t03_a_bind_carries_its_annotation_and_only_binds_that_pod(api, namespace, node):
    pod = decode.pod(await api.create(PODS, namespace, pod_object("web-1")))
    with pytest.raises(Conflict, match="UID"):
        await api.bind(namespace, "web-1", "00000000-0000-4000-8000-000000000000", node, {})
    with pytest.raises(NotFound):
        await api.bind(namespace, "web-2", pod.uid, node, {})
    assert decode.pod(await api.get(PODS, namespace, "web-1")).node_name == ""
    await api.bind(namespace, "web-1", pod.uid, node, {"j10ce.io/bound-by": "extender-1"})
    bound = decode.pod(await api.get(PODS, namespace, "web-1"))
    assert (bound.node_name, bound.bound_by, bound.requests) == (node, "extender-1", pod.requests)
    assert bound.scheduled >= bound.created > 0
    with pytest.raises(Conflict, match="already assigned"):
        await api.bind(namespace, "web-1", pod.uid, node, {})


async def test_an_eviction_is_as_budgets_allow_it_and_a_dry_run_evicts_nobody(api, namespace, node):
    pod = decode.pod(await api.create(PODS, namespace, pod_object("web-1", nodeName=node)))
    disruptions = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
    budget = {
        "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    }

    async def ready():
        conditions = json.loads(await api.get(PODS, namespace, "web-1"))["status"].get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    await eventually(ready)
    await api.create(disruptions, namespace, budget)
    for dry_run in (True, False):
        with pytest.raises(NotTaken):
            await api.evict(namespace, "web-1", pod.uid, dry_run=dry_run)
    await api.delete(disruptions, namespace, "web")
    with pytest.raises(Conflict):
        await api.evict(namespace, "web-1", "00000000-0000-4000-8000-000000000000")
    await api.evict(namespace, "web-1", pod.uid, dry_run=True)
    assert not decode.pod(await api.get(PODS, namespace, "web-1")).deleting
    await api.evict(namespace, "web-1", pod.uid)
    with suppress(NotFound):  # its node has been quick
        assert decode.pod(await api.get(PODS, namespace, "web-1")).deleting


async def test_a_node_turns_ready(api, node):
    async def ready():
        return decode.node(await api.get(NODES, "", node)).ready

    await eventually(ready)
    seen = decode.node(await api.get(NODES, "", node))
    assert seen.allocatable == {"cpu": 32000, "memory": 64 * 2**30, "pods": 110}


async def test_a_reflector_lists_in_pages_then_follows(api, namespace):
    for number in range(5):
        await api.create(PODS, namespace, pod_object(f"web-{number}"))
    names = {}
    async with reflecting(api, PODS, names, page_size=2) as reflector:
        assert {f"web-{n}" for n in range(5)} <= set(names.values())
        await api.create(PODS, namespace, pod_object("late"))
        await api.delete(PODS, namespace, "web-0", grace_seconds=0)
        await eventually(lambda: "late" in names.values() and "web-0" not in names.values())
        assert reflector.relists == 1


async def test_a_page_token_of_nonsense_is_refused(api):
    with pytest.raises(APIError, match="continue"):
        await api.list_page(PODS, continue_token="nonsense")


async def test_what_a_template_asks_is_what_its_pods_ask(api, namespace):
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "schedulerName": "nobody",
            "containers": [
                {"name": "app", "image": "x", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
                {"name": "more", "image": "x", "resources": {"requests": {"cpu": "0.25"}}},
            ],
            "initContainers": [
                {
                    "name": "proxy",
                    "image": "x",
                    "restartPolicy": "Always",
                    "resources": {"requests": {"cpu": "100m"}},
                },
                {"name": "once", "image": "x", "resources": {"limits": {"memory": "4Gi"}}},
            ],
        },
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    await api.create(DEPLOYMENTS, namespace, {"metadata": {"name": "web"}, "spec": spec})
    workload = decode.workload(DEPLOYMENTS, await api.get(DEPLOYMENTS, namespace, "web"))
    assert workload.requests == {"cpu": 1350, "memory": 4 * 2**30, "pods": 1}

    async def pods():
        page = await api.list_page(PODS, namespace=namespace)
        return [decode.pod(raw) for raw in page.items] if len(page.items) == 2 else []

    await eventually(pods)
    assert {tuple(sorted(pod.requests.items())) for pod in await pods()} == {
        tuple(sorted(workload.requests.items()))
    }
    assert {pod.controller.kind for pod in await pods()} == {"ReplicaSet"}


async def test_a_policy_is_read_and_its_status_written_under_its_version(api, namespace):
    spec = {
        "selector": {"matchLabels": {"app": "web"}},
        "floor": {"resources": {"cpu": "2", "memory": "4Gi"}},
        "slots": {"count": 3},
    }
    body = {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "MinimalReservationPolicy",
        "metadata": {"name": "web"},
        "spec": spec,
    }
    policy = decode.policy(await api.create(POLICIES, namespace, body))
    assert (policy.key, policy.count, policy.floor) == (
        f"{namespace}/web",
        3,
        {"cpu": 2000, "memory": 4 * 2**30},
    )
    change = {
        "metadata": {"resourceVersion": policy.resource_version},
        "status": {"observedGeneration": policy.generation, "slots": {"desired": 3, "held": 3}},
    }
    written = decode.policy(await api.patch(POLICIES, namespace, "web", change, subresource="status"))
    assert written.status["slots"]["held"] == 3
    assert written.generation == policy.generation
    with pytest.raises(Conflict):
        await api.patch(POLICIES, namespace, "web", change, subresource="status")


async def test_priority_classes(api):
    page = await api.list_page(PRIORITY_CLASSES)
    classes = dict(decode.priority_class(raw)[:2] for raw in page.items)
    assert classes["system-node-critical"] == 2_000_001_000


async def test_a_watch_ends_in_good_order_at_its_time(api):
    version = (await api.list_page(LEASES)).resource_version
    async with KubernetesAPI(api._endpoint, Timeouts(watch=1.0)) as brief:
        async with asyncio.timeout(DEADLINE):
            events = [event async for event in brief.watch(LEASES, resource_version=version)]
    assert all(decode.metadata(event.object).resource_version for event in events)


async def test_a_watch_whose_loop_is_blocked_at_times_loses_nothing_of_a_burst(cluster, api, namespace):
    """Blocked until so many more were written: more than the kernel's buffer has room for."""
    maps, writers, writes, burst = Resource("", "v1", "configmaps", "ConfigMap"), 16, 125, 200
    written, seen, more = [], [], threading.Condition()
    ready, ended = threading.Event(), threading.Event()

    def keep(raw):
        obj = decode.metadata(raw)
        if obj.namespace == namespace and obj.name.startswith("w-"):
            seen.append(int(obj.resource_version))
            if len(seen) % burst == 1:
                with more:  # the loop of the watch stands still
                    behind = len(seen) + burst
                    assert more.wait_for(lambda: len(written) >= behind or ended.is_set(), DEADLINE)
        return obj.uid

    async def follow():
        async with KubernetesAPI.from_kubeconfig(cluster.kubeconfig) as mine:
            reflector = Reflector(mine, maps, keep, lambda _: None)
            async with running(reflector.run()):
                await eventually(reflector.synced.is_set)
                ready.set()
                await eventually(lambda: ended.is_set() and len(seen) >= len(written))
            return reflector.relists

    async def write(name):
        for number in range(writes):
            body = {"metadata": {"name": name}, "data": {"number": str(number), "pad": "x" * 4096}}
            made = api.patch(maps, namespace, name, body) if number else api.create(maps, namespace, body)
            raw = await made
            with more:
                written.append(int(decode.metadata(raw).resource_version))
                more.notify()

    watch = asyncio.create_task(asyncio.to_thread(uvloop.run, follow()))
    await eventually(ready.is_set)
    try:
        await asyncio.gather(*(write(f"w-{number}") for number in range(writers)))
    finally:
        with more:
            ended.set()
            more.notify()
    assert await watch == 1
    assert seen == sorted(written)


async def test_two_candidates_for_a_lease(api, namespace):
    def candidate(identity):
        return LeaseElector(api, namespace, "lead", identity)

    first, second = candidate("first"), candidate("second")
    tasks = [asyncio.create_task(first.run())]
    await eventually(lambda: first.is_leader)
    tasks.append(asyncio.create_task(second.run()))
    await eventually(lambda: second.holder == "first")
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    assert not first.is_leader
    await eventually(lambda: second.is_leader)
    spec = json.loads(await api.get(LEASES, namespace, "lead"))["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)
    assert second.vacant_seconds < DEADLINE
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)


async def test_a_reflector_outlives_the_api_server(make_cluster):
    own = make_cluster()
    names = {}
    async with (
        KubernetesAPI.from_kubeconfig(own.kubeconfig) as api,
        reflecting(api, NODES, names) as reflector,
    ):
        await api.create(NODES, "", node_object("n1"))
        await eventually(lambda: "n1" in names.values())
        own.kill("kube-apiserver")
        with pytest.raises(Unreachable):
            await api.get(NODES, "", "n1")
        assert "n1" in names.values()
        assert reflector.synced.is_set()
        own.start("kube-apiserver")

        async def made():
            with suppress(Unreachable):
                with suppress(Conflict):  # an earlier try was carried out, and its answer lost
                    await api.create(NODES, "", node_object("n2"))
                return True

        await eventually(made)
        await eventually(lambda: "n2" in names.values())
        assert sorted(names.values()) == ["n1", "n2"]
