"""Following the API server: what is taken over, and that nothing goes for lack of data."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from adapters.api import PODS, POLICIES, PRIORITY_CLASSES, PROFILES, APIError
from adapters.memory import MemoryAPI
from agent.state import Known, KnownPod
from agent.sync.followed import Pods
from agent.sync.kubernetes import KubernetesSource
from qos import keys
from qos.cluster.precedence import PriorityClass
from qos.pods.containers import NodePod
from tests import waiting

STATIC = "0123456789abcdef0123456789abcdef"
NOTES = {keys.MIRROR_ANNOTATION: STATIC, keys.STATIC_UID_ANNOTATION: STATIC}
MIRROR = {"annotations": NOTES, "ownerReferences": [{"kind": "Node", "name": "here", "uid": "n1"}]}


def pod(name: str, node: str = "here", phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"} | metadata,
        "spec": {"nodeName": node, "containers": [{"name": "web", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": phase, "qosClass": "Burstable"},
    }


def policy(name: str, cpu: str = "1") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "floor": {"resources": {"cpu": cpu}},
            "slots": {"count": 1},
        },
    }


PROFILE = {"metadata": {"name": "fast"}, "spec": {"class": "LSR"}}
PRIORITY = {"metadata": {"name": "high"}, "value": 1000}


class Rig:
    """A source of node `here` in front of an API server in memory."""

    def __init__(self, fake_time: Any, eventually: Any) -> None:
        self.api = MemoryAPI(clock=lambda: 0.0)
        self.known = Known()
        self.changes: list[tuple[str, str]] = []
        self.registry = CollectorRegistry()
        self.time, self.eventually = fake_time, eventually
        self.run: set[str] = set()
        self.source = KubernetesSource(
            self.api,
            "here",
            self.known,
            lambda kind, key: self.changes.append((kind, key)),
            self.run.__contains__,
            registry=self.registry,
            clock=fake_time,
            sleep=fake_time.sleep,
            jitter=lambda: 0.5,
        )

    @asynccontextmanager
    async def running(self, *, spoken: bool = True) -> AsyncIterator[None]:
        async with waiting.running(self.source.run()):
            if spoken:
                await self.eventually(self.source.spoken.is_set)
            yield

    def put(self, *pods: dict[str, Any]) -> None:
        for one in pods:
            self.api.put(PODS, one)

    @property
    def uids(self) -> list[str]:
        return sorted(self.known.pods)


@pytest.fixture
def rig(fake_time: Any, eventually: Callable[..., Any]) -> Rig:
    return Rig(fake_time, eventually)


def known_pod(uid: str, *, provisional: bool = False) -> KnownPod:
    return KnownPod(NodePod(uid, "shop", uid, ()), provisional=provisional)


async def test_what_there_is_and_what_comes_and_goes(rig: Rig) -> None:
    rig.put(pod("a"), pod("b", node="there"), pod("c", phase="Succeeded"))
    rig.api.put(POLICIES, policy("web"))
    rig.api.put(PROFILES, PROFILE)
    rig.api.put(PRIORITY_CLASSES, PRIORITY)
    async with rig.running():
        assert rig.uids == ["uid-a", "uid-c"]
        assert [rig.known.pods[uid].finished for uid in rig.uids] == [False, True]
        assert rig.known.policies["shop/web"].floor == {"cpu": 1000}
        assert rig.known.profiles["fast"].class_name == "LSR"
        assert rig.known.priority_classes == {"high": (1000, False)}
        rig.changes.clear()
        rig.put(pod("d"))
        rig.api.remove(PODS, "shop", "a")
        rig.api.put(POLICIES, policy("web", cpu="2"))
        rig.api.remove(PROFILES, "", "fast")
        await rig.eventually(lambda: len(rig.changes) == 4)
        assert rig.uids == ["uid-c", "uid-d"]
        assert rig.known.policies["shop/web"].floor == {"cpu": 2000}
        assert rig.known.profiles == {}
        assert sorted(rig.changes) == [
            ("pods", "uid-a"),
            ("pods", "uid-d"),
            ("rules", "fast"),
            ("rules", "shop/web"),
        ]
        assert rig.source.problem() == ""


async def test_only_this_nodes_pods_are_asked_for(rig: Rig, monkeypatch: Any) -> None:
    asked: dict[str, set[str]] = {}

    def spied(real: Any) -> Any:
        def ask(resource: Any, **options: Any) -> Any:
            asked.setdefault(resource.plural, set()).add(options["field_selector"])
            return real(resource, **options)

        return ask

    for verb in ("list_page", "watch"):
        monkeypatch.setattr(rig.api, verb, spied(getattr(rig.api, verb)))
    async with rig.running():
        await rig.eventually(lambda: rig.api.watchers(PODS) == 1)
        assert asked.pop("pods") == {"spec.nodeName=here"}
        assert set.union(*asked.values()) == {""}


def test_another_nodes_pod_is_not_kept_though_it_be_told() -> None:
    known = Known()
    pods = Pods("here", known.pods, lambda kind, key: None)
    assert pods.set(json.dumps(pod("a", node="there")).encode()) is None
    assert known.pods == {}


async def test_what_changes_nothing_for_a_node_is_no_change(rig: Rig) -> None:
    rig.put(pod("a"))
    rig.api.put(POLICIES, policy("web"))
    async with rig.running():
        rig.changes.clear()
        beat = copy.deepcopy(pod("a"))
        beat["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        rig.put(beat)
        rig.api.put(POLICIES, policy("web") | {"status": {"slots": {"desired": 1}}})
        rig.put(pod("b"))
        rig.api.put(POLICIES, policy("other"))
        await rig.eventually(lambda: len(rig.changes) == 2)
        assert sorted(rig.changes) == [("pods", "uid-b"), ("rules", "shop/other")]


async def test_what_was_known_before_goes_only_when_the_server_has_it_no_more(rig: Rig) -> None:
    rig.known.pods |= {"uid-a": known_pod("uid-a"), "uid-old": known_pod("uid-old")}
    rig.known.pods["uid-new"] = known_pod("uid-new", provisional=True)
    rig.known.priority_classes["old"] = PriorityClass(1)
    rig.put(pod("a"))
    rig.api.put(PRIORITY_CLASSES, PRIORITY)
    gate = rig.api.hang("list_page", resource=PODS)
    async with rig.running(spoken=False):
        await rig.eventually(lambda: rig.known.priority_classes == {"high": (1000, False)})
        assert rig.uids == ["uid-a", "uid-new", "uid-old"]
        assert not rig.source.spoken.is_set()
        assert rig.source.problem() == "the API server has not listed pods yet"
        gate.set()
        await rig.eventually(rig.source.spoken.is_set)
        assert rig.uids == ["uid-a", "uid-new"]
        assert ("pods", "uid-old") in rig.changes
        assert not rig.known.pods["uid-a"].provisional


@pytest.mark.parametrize(
    "break_it",
    [
        lambda api: (api.fail("list_page", times=50), api.expire()),
        lambda api: (api.fail("list_page", APIError(403, "Forbidden", "no list"), times=50), api.expire()),
        lambda api: (api.fail("watch", APIError(403, "Forbidden", "no watch"), times=50), api.cut()),
        lambda api: (api.fail("watch", times=50), api.close_watches()),
    ],
    ids=["410 and no list", "rights taken away", "no right to watch", "no watch"],
)
async def test_nothing_goes_while_the_server_does_not_say_so(rig: Rig, break_it: Any) -> None:
    rig.put(pod("a"))
    rig.api.put(POLICIES, policy("web"))
    async with rig.running():
        before = copy.deepcopy(rig.known)
        rig.changes.clear()
        break_it(rig.api)
        await rig.eventually(lambda: len(rig.time.slept) >= 12)
        assert rig.known == before
        assert rig.changes == []
        rig.put(pod("b"))
        await rig.eventually(lambda: rig.uids == ["uid-a", "uid-b"])


async def test_an_empty_list_is_the_servers_word(rig: Rig) -> None:
    rig.put(pod("a"))
    async with rig.running():
        rig.api.fail("watch", times=1, resource=PODS)
        rig.api._objects.clear()
        rig.api.expire()
        await rig.eventually(lambda: rig.uids == [])


async def test_a_missed_deletion_is_found_by_listing_again(rig: Rig) -> None:
    rig.put(pod("a"), pod("b"))
    async with rig.running():
        rig.api.cut(PODS)
        rig.api.remove(PODS, "shop", "a")
        rig.api.expire(PODS)
        await rig.eventually(lambda: rig.uids == ["uid-b"])


async def test_a_static_pod_is_known_by_its_cgroups_uid(rig: Rig) -> None:
    rig.put(pod("etcd", **MIRROR))
    async with rig.running():
        assert rig.uids == [STATIC]
        rig.api.remove(PODS, "shop", "etcd")
        await rig.eventually(lambda: rig.uids == [])
        rig.put(pod("etcd", uid="another", **MIRROR))
        await rig.eventually(lambda: rig.uids == [STATIC])


async def test_nobody_takes_a_static_pods_place(rig: Rig) -> None:
    rig.put(pod("etcd", **MIRROR))
    async with rig.running():
        rig.put(pod("forged", **MIRROR), pod("last"))
        await rig.eventually(lambda: "uid-last" in rig.known.pods)
        assert rig.known.pods[STATIC].pod.name == "etcd"
        rig.api.remove(PODS, "shop", "last")
        rig.api.remove(PODS, "shop", "etcd")
        await rig.eventually(lambda: rig.known.pods[STATIC].pod.name == "forged")
        rig.api.remove(PODS, "shop", "forged")
        await rig.eventually(lambda: rig.uids == [])


@pytest.mark.parametrize(
    "owners",
    [[], [{"kind": "Node", "name": "other", "uid": "n2"}], [{"kind": "Pod", "name": "here", "uid": "p"}]],
)
async def test_what_its_node_does_not_own_is_no_mirror(rig: Rig, owners: list[dict[str, str]]) -> None:
    """After a restart lists come by namespace: a forged one would be the first that is told."""
    rig.put(pod("etcd", **{**MIRROR, "ownerReferences": owners}))
    async with rig.running():
        assert rig.uids == []
        rig.put(pod("last", **MIRROR))
        await rig.eventually(lambda: STATIC in rig.known.pods)
        assert rig.known.pods[STATIC].pod.name == "last"
        assert 'sync_rejected_objects_total{resource="pods"} 1.0' in generate_latest(rig.registry).decode()


@pytest.mark.parametrize("provisional", [False, True], ids=["cache", "runtime"])
async def test_a_mirror_of_another_name_than_was_known_is_none(rig: Rig, provisional: bool) -> None:
    there = NodePod(uid=STATIC, namespace="shop", name="etcd", containers=())
    rig.known.pods[STATIC] = KnownPod(there, provisional=provisional)
    rig.put(pod("a-forged", **MIRROR), pod("etcd", **MIRROR), pod("etcd-last"))
    async with rig.running():
        assert (rig.known.pods[STATIC].pod.name, rig.known.pods[STATIC].provisional) == ("etcd", False)


async def test_a_pod_that_the_runtime_has_by_another_name_gives_its_place_away(rig: Rig) -> None:
    rig.put(pod("a-forged", **MIRROR), pod("etcd", **MIRROR))
    async with rig.running():
        assert rig.known.pods[STATIC].pod.name == "a-forged"
        there = NodePod(uid=STATIC, namespace="shop", name="etcd", containers=())
        rig.known.pods[STATIC] = KnownPod(there, provisional=True)
        rig.put(pod("a-forged", **MIRROR, labels={"a": "b"}), pod("etcd", **MIRROR, labels={"a": "b"}))
        await rig.eventually(lambda: not rig.known.pods[STATIC].provisional)
        assert rig.known.pods[STATIC].pod.name == "etcd"


async def test_a_static_pod_whose_mirror_is_deleted_goes_on_while_it_runs(rig: Rig) -> None:
    rig.put(pod("etcd", **MIRROR))
    rig.run.add(STATIC)
    async with rig.running():
        before = rig.known.pods[STATIC]
        rig.api.remove(PODS, "shop", "etcd")
        await rig.eventually(lambda: rig.known.pods[STATIC].provisional)
        assert rig.known.pods[STATIC].pod == before.pod
        rig.put(pod("etcd", uid="another", **MIRROR))
        await rig.eventually(lambda: not rig.known.pods[STATIC].provisional)
        rig.run.clear()
        rig.api.remove(PODS, "shop", "etcd")
        await rig.eventually(lambda: rig.uids == [])


async def test_what_cannot_be_read_stays_as_it_was_known(rig: Rig, caplog: Any) -> None:
    rig.known.pods["uid-cached"] = known_pod("uid-cached")
    bad = {"containers": [{"name": "web", "resources": {"requests": {"cpu": "many"}}}], "nodeName": "here"}
    rig.put(pod("a"), pod("cached") | {"spec": bad})
    rig.api.put(POLICIES, policy("web"))
    async with rig.running():
        assert rig.uids == ["uid-a", "uid-cached"]
        rig.put(pod("a") | {"spec": bad}, pod("new") | {"spec": bad}, pod("last"))
        rig.api.put(POLICIES, policy("web", cpu="many"))
        await rig.eventually(lambda: "uid-last" in rig.known.pods)
        await rig.eventually(lambda: caplog.text.count("object unread") == 3)
        assert rig.uids == ["uid-a", "uid-cached", "uid-last"]
        assert rig.known.policies["shop/web"].floor == {"cpu": 1000}
        assert 'rejected_objects_total{resource="pods"} 3.0' in generate_latest(rig.registry).decode()
        for name in ("a", "cached", "new"):
            rig.api.remove(PODS, "shop", name)
        await rig.eventually(lambda: rig.uids == ["uid-last"])


async def test_silence_is_told(rig: Rig) -> None:
    async with rig.running():
        rig.time.now += 500
        assert rig.source.problem() == "the API server has said nothing of pods for 500 s"
        assert 'silent_seconds{resource="pods"} 500.0' in generate_latest(rig.registry).decode()
