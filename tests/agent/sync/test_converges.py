"""Whatever happens to objects and connections, in whatever order: in the end Known is what the server has."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.api import PODS, POLICIES, NotFound
from adapters.kubernetes import policies as api_policies
from adapters.kubernetes.node_pods import node_pod
from adapters.memory import MemoryAPI
from agent.state import Known, KnownPod
from agent.sync.followed import known_pod
from agent.sync.kubernetes import KubernetesSource
from qos.pods.containers import NodePod

NAMES = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("pod"), NAMES, st.sampled_from(["here", "there"]), st.sampled_from(["1", "2", "many"])),
    st.tuples(st.just("policy"), NAMES, st.just(""), st.sampled_from(["1", "2"])),
    st.tuples(st.sampled_from(["no pod", "no policy"]), NAMES, st.just(""), st.just("")),
    st.tuples(st.sampled_from(["cut", "expire", "close", "fail", "turn", "turn"]), *[st.just("")] * 3),
)


def step(api: MemoryAPI, what: str, name: str, node: str, cpu: str) -> None:
    match what:
        case "pod":
            container = {"name": "web", "resources": {"requests": {"cpu": cpu}}}
            api.put(PODS, {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}})
        case "policy":
            spec: dict[str, Any] = {"selector": {"matchLabels": {"a": "b"}}, "slots": {"count": 1}}
            api.put(
                POLICIES, {"metadata": {"name": name}, "spec": spec | {"floor": {"resources": {"cpu": cpu}}}}
            )
        case "no pod" | "no policy":
            with suppress(NotFound):
                api.remove(PODS if what == "no pod" else POLICIES, "default", name)
        case "cut":
            api.cut()
        case "expire":
            api.expire()
        case "close":
            api.close_watches()
        case "fail":
            api.fail("watch", times=2)
            api.fail("list_page", times=1)


def served(api: MemoryAPI) -> tuple[dict[str, KnownPod], dict[str, Any], set[str]]:
    """Pods of this node and policies, as the server has them; uids of pods that cannot be read."""
    pods, bad = {}, set()
    for obj in api.objects(PODS):
        if obj["spec"]["nodeName"] != "here":
            continue
        try:
            here = node_pod(json.dumps(obj).encode())
        except Exception:
            bad.add(obj["metadata"]["uid"])
            continue
        pods[here.pod.uid] = known_pod(here)
    policies = [api_policies.policy(json.dumps(obj).encode()) for obj in api.objects(POLICIES)]
    policies = [replace(policy, resource_version="") for policy in policies]
    return pods, {policy.key: policy for policy in policies}, bad


async def follow(steps: list[tuple[str, str, str, str]]) -> None:
    api, known = MemoryAPI(clock=lambda: 0.0), Known()
    known.pods["cached"] = KnownPod(NodePod("cached", "default", "old", ()))

    async def sleep(_: float) -> None:
        await asyncio.sleep(0)

    source = KubernetesSource(api, "here", known, lambda kind, key: None, sleep=sleep)
    task = asyncio.create_task(source.run())
    for each in steps:
        step(api, *each)
        await asyncio.sleep(0)
    for _ in range(3000):
        pods, policies, bad = served(api)
        readable = {uid: one for uid, one in known.pods.items() if uid not in bad}
        if source.spoken.is_set() and readable == pods and known.policies == policies:
            break
        await asyncio.sleep(0)
    else:
        raise AssertionError(f"{known} is not {served(api)}")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=60, deadline=None)
def test_known_becomes_what_the_server_has(steps: list[tuple[str, str, str, str]]) -> None:
    asyncio.run(follow(steps))
