"""What is read of the cgroups for the plans of a whole node, and when it is read again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adapters.cgroup_tree import CgroupTree, pod_path
from qos.plan.placed_pod import NodeTree
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED
from tests.adapters.fake_machine import Fake

A_UID, B_UID = "3c0f1d2e-aaaa-4bbb-8ccc-0123456789ab", "3c0f1d2e-aaaa-4bbb-8ccc-0123456789ac"
A, B = f"/kubepods/burstable/pod{A_UID}", f"/kubepods/pod{B_UID}"


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    made = Fake(tmp_path, v1=False, unified=True)
    made.group("unified", "system.slice", cpu_weight="100")
    made.group("unified", "system.slice/pod", cpu_weight="1")
    made.group("unified", "kubepods", cpu_weight="300", memory_min="5", cpuset_cpus_effective="")
    made.group("unified", "kubepods/burstable", cpu_weight="12")
    made.group("unified", "kubepods/burstable/stranger", cpu_weight="7")
    made.group("unified", A, cpu_weight="20", memory_min="7", cpu_max="max 100000")
    made.group("unified", f"{A}/pause", cpu_weight="1")
    made.group("unified", f"{A}/web", cpu_weight="29")
    made.group("unified", f"{A}/web/inner", cpu_weight="100")
    made.group("unified", B, cpu_weight="50")
    return made


def read(tree: CgroupTree, *containers: str, originals: dict[tuple[str, str], str] | None = None) -> NodeTree:
    for _ in tree.update(containers):
        pass
    return tree.with_originals(originals or {})


def tree_of(fake: Fake) -> CgroupTree:
    return CgroupTree(fake.machine())


def test_what_matters_is_read_and_nothing_else(fake: Fake) -> None:
    seen = read(tree_of(fake))
    assert seen.pods == {A_UID: A, B_UID: B}
    assert seen.parents == {GUARANTEED: "/kubepods", BURSTABLE: "/kubepods/burstable"}
    assert seen.groups.keys() == {
        *("/", "/system.slice", "/kubepods", "/kubepods/burstable", "/kubepods/burstable/stranger"),
        *(A, f"{A}/pause", f"{A}/web", B),
    }
    assert seen.groups["/"].children == ("kubepods", "system.slice")
    assert seen.groups[A].children == ("pause", "web")
    assert seen.groups[A].values == {"cpu.weight": "20", "memory.min": "7", "cpu.max": "max 100000"}
    assert seen.cpus == dict.fromkeys(("/", "/kubepods", "/kubepods/burstable"), "0-2,7")


def test_a_pod_is_read_once_and_again_when_it_changed(fake: Fake) -> None:
    tree = tree_of(fake)
    read(tree)
    fake.group("unified", A, cpu_weight="21")
    fake.group("unified", f"{A}/web", cpu_weight="30")
    fake.group("unified", "kubepods/burstable", cpu_weight="13")
    again = read(tree)
    assert again.groups[A].values["cpu.weight"] == "20"
    assert again.groups["/kubepods/burstable"].values["cpu.weight"] == "13"
    tree.changed(f"{A}/web")
    assert {read(tree).groups[path].values["cpu.weight"] for path in (A, f"{A}/web")} == {"21", "30"}
    fake.group("unified", B, cpu_weight="51")
    tree.changed_all()
    assert read(tree).groups[B].values["cpu.weight"] == "51"


def test_what_comes_and_goes_is_noticed(fake: Fake) -> None:
    tree = tree_of(fake)
    read(tree)
    shutil.rmtree(fake.root / f"cgroup/unified{B}")
    fake.group("unified", f"{A}/debug", cpu_weight="100")
    fake.group("unified", "kubepods/besteffort", cpu_weight="1")
    seen = read(tree)
    assert B not in seen.groups
    assert seen.pods == {A_UID: A}
    assert seen.groups[f"{A}/debug"].values == {"cpu.weight": "100"}
    assert seen.parents[BEST_EFFORT] == "/kubepods/besteffort"
    assert (tree.path_of(A_UID), tree.path_of(B_UID)) == (A, "")


def test_one_pod_is_read_by_itself(fake: Fake) -> None:
    tree = tree_of(fake)
    assert tree.of_pod(A_UID, {}) == {}
    tree.refresh(f"{A}/web")
    mine = tree.of_pod(A_UID, {(f"{A}/web", "cpu.weight"): "5", (A, "cpu.idle"): "0"})
    assert mine.keys() == {A, f"{A}/pause", f"{A}/web"}
    assert mine[f"{A}/web"].values == {"cpu.weight": "5"}
    assert "cpu.idle" not in mine[A].values
    shutil.rmtree(fake.root / f"cgroup/unified{A}")
    tree.refresh(A)
    assert tree.of_pod(A_UID, {}) == {}


def test_what_we_wrote_ourselves_does_not_count(fake: Fake) -> None:
    originals = {(A, "memory.min"): "0", ("/kubepods", "memory.min"): "2", ("/gone", "cpu.weight"): "1"}
    tree = tree_of(fake)
    seen = read(tree, originals=originals)
    assert seen.groups[A].values["memory.min"] == "0"
    assert seen.groups["/kubepods"].values["memory.min"] == "2"
    seen = read(tree)  # of A nothing is known any more: it was put back, and is not read again
    assert seen.groups[A].values["memory.min"] == "0"
    assert seen.groups["/kubepods"].values["memory.min"] == "5"
    tree.changed(A)
    assert read(tree).groups[A].values["memory.min"] == "7"


def test_what_a_fake_machine_is_given_lies_below_its_folder(fake: Fake) -> None:
    empty = f"/j10ce-{fake.root.name}/empty"
    fake.group("unified", empty)
    assert Path(f"{fake.root}/cgroup/unified{empty}").is_dir()
    assert not Path(empty).exists()


def test_kubelets_that_live_further_down_are_found_by_their_containers(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=False, unified=True)
    tier = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"
    pod = f"{tier}/kubelet-kubepods-burstable-pod{A_UID.replace('-', '_')}.slice"
    fake.group("unified", f"{pod}/cri-containerd-1.scope", cpu_weight="3")
    tree = tree_of(fake)
    assert read(tree).pods == {}
    seen = read(tree, f"{pod}/cri-containerd-1.scope")
    assert seen.pods == {A_UID: pod}
    assert seen.parents[BURSTABLE] == tier
    assert seen.groups[f"{pod}/cri-containerd-1.scope"].values == {"cpu.weight": "3"}


def test_all_hierarchies_of_v1_are_read(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=True, unified=False)
    fake.group("cpu", A, cpu_shares="20")
    fake.group("memory", A, memory_limit_in_bytes="4096")
    fake.group("memory", "/elsewhere")
    seen = read(tree_of(fake))
    assert seen.groups[A].values == {"cpu.shares": "20", "memory.limit_in_bytes": "4096"}
    assert "/elsewhere" not in seen.groups


def test_threads_beside_cgroups_are_counted(fake: Fake) -> None:
    fake.write("cgroup/unified/cgroup.procs", "0\n0\n")
    tree = tree_of(fake)
    seen = read(tree)
    assert (seen.groups["/"].loose, seen.groups["/kubepods"].loose) == (2, 0)
    fake.write("cgroup/unified/cgroup.procs", "0\n")
    assert read(tree).groups["/"].loose == 2
    tree.changed_all()
    assert read(tree).groups["/"].loose == 1


def test_the_pod_on_a_path() -> None:
    assert (pod_path(f"{A}/web/inner"), pod_path(A), pod_path("/kubepods/burstable")) == (A, A, "")
