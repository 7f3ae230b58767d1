"""Which containers run: by runtime, status and cgroup."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.containers import Containers
from agent.state import ContainerKey, KnownPod, Running
from qos.pods.containers import Container, NodePod

UID = "0c6f8b1e-5f3a-4a0e-9a53-0d6a6b2d9f11"
KEY = ContainerKey(UID, "app")
SLICE = "/kubelet.slice/kubelet-kubepods.slice"
POD_SLICE = f"kubepods-besteffort-pod{UID.replace('-', '_')}.slice"
POD = NodePod(UID, "shop", "checkout-1", (Container("app"),))


def test_the_runtime_comes_before_a_status() -> None:
    containers = Containers(lambda path: True)
    containers.found({UID: KnownPod(POD, ids={"app": "old"})})
    assert containers[KEY].container_id == "old"
    containers.told(Running(KEY, "new", "/kubepods/x/new", 7))
    assert containers[KEY].container_id == "new"
    containers.found({UID: KnownPod(POD, ids={"app": "old"})})
    assert containers.all() == {KEY: Running(KEY, "new", "/kubepods/x/new", 7)}


def test_the_end_of_an_old_one_does_not_end_the_new_one() -> None:
    containers = Containers(lambda path: False)
    containers.told(Running(KEY, "one", "/a/one"))
    containers.told(Running(KEY, "two", "/a/two"))
    assert containers.ended("one") is None
    assert containers[KEY].container_id == "two"
    assert containers.ended("two") == Running(KEY, "two", "/a/two")
    assert KEY not in containers


def test_a_container_is_found_where_its_cgroup_is() -> None:
    pod = f"kubepods-besteffort-pod{UID.replace('-', '_')}.slice"
    place = f"/kubepods.slice/kubepods-besteffort.slice/{pod}/cri-containerd-abc.scope"
    containers = Containers(lambda path: path == place)
    containers.found({UID: KnownPod(POD, ids={"app": "abc"})})
    assert containers[KEY] == Running(KEY, "abc", place)
    containers.found({UID: KnownPod(POD, ids={"app": "abc"}, finished=True)})
    assert len(containers) == 0


def test_one_without_a_cgroup_is_none() -> None:
    containers = Containers(lambda path: False)
    containers.found({UID: KnownPod(POD, ids={"app": "abc"})})
    assert KEY not in containers


def test_what_the_runtime_has_replaces_all_it_had() -> None:
    containers = Containers(lambda path: True)
    containers.told(Running(KEY, "one", "/a/one"))
    containers.retell([Running(ContainerKey("other", "b"), "two", "/a/two")])
    assert set(containers.all()) == {ContainerKey("other", "b")}
    assert list(containers.of_pod(UID)) == []


@pytest.mark.parametrize(
    ("top", "place"),
    [
        ("/kubelet/kubepods", f"/kubelet/kubepods/besteffort/pod{UID}/abc"),
        (SLICE, f"{SLICE}/kubelet-kubepods-besteffort.slice/kubelet-{POD_SLICE}/cri-containerd-abc.scope"),
    ],
)
def test_kubelets_cgroups_are_looked_for_once_when_a_container_is_not_found(top: str, place: str) -> None:
    searches = []

    def search() -> tuple[str, ...]:
        searches.append(top)
        return (top,)

    containers = Containers(lambda path: path == place, search)
    pods = {UID: KnownPod(POD, ids={"app": "abc"})}
    containers.found(pods)
    containers.found(pods)
    assert containers[KEY] == Running(KEY, "abc", place)
    assert (len(searches), containers.missing) == (1, frozenset())


def test_what_is_not_found_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    searches = []
    containers = Containers(lambda path: False, lambda: searches.append(1) or ())
    for _ in range(3):
        containers.found({UID: KnownPod(POD, ids={"app": "abc"})})
    assert containers.missing == {KEY}
    assert len(searches) == 1
    assert [record.message[:20] for record in caplog.records] == ["containers not found"]
    containers.found({})
    assert not containers.missing


def test_without_the_runtimes_word_a_restarted_container_is_found() -> None:
    """Once NRI is away nobody tells that the one before has ended: its cgroup is gone."""
    there = {"/kubepods/x/old"}
    containers = Containers(there.__contains__)
    containers.told(Running(KEY, "old", "/kubepods/x/old"))
    place = f"/kubepods/besteffort/pod{UID}/new"
    there.clear()
    there.add(place)
    containers.found({UID: KnownPod(POD, ids={"app": "new"})})
    assert containers[KEY] == Running(KEY, "new", place)


def test_an_odd_pod_does_not_hide_the_others() -> None:
    other = ContainerKey("other", "app")
    containers = Containers(lambda path: path.endswith("/two"))
    odd = KnownPod(replace(POD, qos="Whatever"), ids={"app": "one"})
    containers.found({UID: odd, "other": KnownPod(replace(POD, uid="other"), ids={"app": "two"})})
    assert set(containers.all()) == {other}


def test_the_one_before_is_returned() -> None:
    containers = Containers(lambda path: True)
    one = Running(KEY, "one", "/a/one")
    assert containers.told(one) is None
    assert containers.told(one) is None
    assert containers.told(Running(KEY, "two", "/a/two")) == one
