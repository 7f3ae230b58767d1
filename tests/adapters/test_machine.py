"""A machine's cgroups as a node's facts: made-up trees of each kind, and this machine's own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.machine import Promised, ThisMachine
from lab.runtimes.cgroups import is_v2, scratch
from qos.plan import assumed, layout
from qos.plan.controller import all_files
from qos.plan.layout import Driver
from qos.plan.node import HYBRID, V1, V2, Rival
from qos.pods.containers import BURSTABLE, GUARANTEED, Container, NodePod
from tests.adapters.fake_machine import Fake

POD = NodePod("u-1", "default", "web", (Container("web", 200),), BURSTABLE)


def kubelets(weight: int, **more: int) -> Rival:
    """One that kubelet gave its weight, and so requests what that stands for."""
    return Rival(weight, cpu_guard=layout.requested(weight, unified=True), **more)


def test_its_size(tmp_path: Path) -> None:
    size = Fake(tmp_path, v1=False, unified=True, systemd=True).machine().size(frozenset({"cpu.weight"}))
    assert (size.cpus, size.memory, size.cgroup, size.driver) == (4000, 2**20, V2, Driver.SYSTEMD)
    assert size.devices == ("8:0",)
    assert size.files == {"cpu.weight", "oom_score_adj"}


def test_who_makes_cgroups(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=False, unified=True, systemd=True)
    assert fake.machine().driver("/kubepods") is Driver.SYSTEMD
    fake.group("unified", "kubepods")
    assert fake.machine().driver("/kubepods") is Driver.CGROUPFS
    assert fake.machine().driver("/libpod_parent") is Driver.SYSTEMD


@pytest.mark.parametrize(
    "path", ["kubepods", "kubepods.slice", "kubelet.slice/kubelet-kubepods.slice", "docker/abc/kubepods"]
)
def test_where_kubelet_keeps_pods(tmp_path: Path, path: str) -> None:
    fake = Fake(tmp_path, v1=False, unified=True)
    fake.group("unified", f"{path}/burstable")
    fake.group("unified", "system.slice/a/b/kubepods")  # too deep: somebody else's
    assert fake.machine().kubepods() == (f"/{path}",)


@pytest.mark.parametrize(
    ("v1", "unified", "cgroup"), [(True, False, V1), (True, True, HYBRID), (False, True, V2)]
)
def test_its_version(tmp_path: Path, v1: bool, unified: bool, cgroup: str) -> None:
    assert Fake(tmp_path, v1=v1, unified=unified).machine().cgroup == cgroup


def test_what_exists_is_read_and_the_rest_expected(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=False, unified=True)
    fake.group("unified", "system.slice", cpu_weight="100")
    fake.group("unified", "kubepods", cpu_weight="300", memory_min="5")
    fake.group("unified", "kubepods/burstable", cpu_weight="12")
    fake.group("unified", "kubepods/besteffort", cpu_weight="1")
    fake.group("unified", "kubepods/burstable/podother", cpu_weight="20", memory_min="7")
    machine = fake.machine()
    facts = machine.observed(assumed.kubernetes_facts(POD, "web", machine.size(frozenset())))
    kubepods, burstable, pod, container = facts.levels
    assert (kubepods.weight, kubepods.memory_min, kubepods.assumed) == (300, 5, False)
    assert kubepods.rivals == (Rival(100),)
    assert (burstable.weight, burstable.rivals) == (12, (Rival(1),))
    assert pod.assumed
    assert (pod.weight, pod.rivals) == (8, (kubelets(20, memory_min=7),))
    assert (container.weight, container.rivals, container.assumed) == (29, (), True)
    assert facts.shared_cpus == "0-2,7"


def test_a_container_will_have_the_period_that_its_pod_has(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=False, unified=True)
    fake.group("unified", "kubepods/burstable/podu-1", cpu_weight="8", cpu_max="5000 10000")
    machine = fake.machine()
    *_, pod, own = machine.observed(assumed.kubernetes_facts(POD, "web", machine.size(frozenset()))).levels
    assert (pod.cpu_quota, pod.cpu_period) == (500, 10_000)
    assert own.cpu_period == 10_000


def test_its_page_is_what_its_kernel_rounds_memory_to(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=False, unified=True)
    expected = assumed.standalone_facts(fake.machine().size(frozenset()), ("/ID",), 0)
    assert fake.machine().observed(expected).page == os.sysconf("SC_PAGE_SIZE")
    large = ThisMachine(f"{tmp_path}/proc", f"{tmp_path}/sys", tmp_path / "run", page=65_536)
    assert large.observed(expected).page == 65_536


@pytest.mark.parametrize(
    ("v1", "file"), [(False, "cpuset.cpus.effective"), (True, "cpuset.effective_cpus"), (True, "cpuset.cpus")]
)
def test_only_the_cpus_that_the_groups_above_may_use_are_shared(tmp_path: Path, v1: bool, file: str) -> None:
    fake = Fake(tmp_path, v1=v1, unified=not v1, more="cpuset")
    hierarchy = "cpuset" if v1 else "unified"
    fake.group(hierarchy, "kubepods/burstable")
    fake.write(f"cgroup/{hierarchy}/{file}", "0-2,7\n")
    machine = fake.machine()
    expected = assumed.kubernetes_facts(POD, "web", machine.size(frozenset()))
    assert (machine.observed(expected).cpus, machine.observed(expected).shared_cpus) == (4000, "0-2,7")
    fake.write(f"cgroup/{hierarchy}/kubepods/{file}", "1-2,7\n")
    fake.write(f"cgroup/{hierarchy}/kubepods/burstable/{file}", "1-2\n")
    facts = machine.observed(expected)
    assert (facts.cpus, facts.shared_cpus) == (2000, "1-2")


A_UID, B_UID = "3c0f1d2e-aaaa-4bbb-8ccc-0123456789ab", "3c0f1d2e-aaaa-4bbb-8ccc-0123456789ac"


def test_the_floors_of_other_pods_are_those_they_were_promised(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=False, unified=True)
    fake.group("unified", f"kubepods/pod{A_UID}", cpu_weight="50")
    fake.group("unified", f"kubepods/burstable/pod{B_UID}", cpu_weight="20")
    fake.group("unified", "kubepods/burstable/podother", cpu_weight="9")
    machine = fake.machine()
    others = [Promised(A_UID, 500), Promised(B_UID, 300), Promised("", 70, 7, "/kubepods/burstable")]
    expected = assumed.kubernetes_facts(POD, "web", machine.size(frozenset()))
    kubepods, burstable, pod, _ = machine.observed(expected, others).levels
    assert kubepods.rivals == ()
    assert burstable.rivals == (kubelets(50, cpu_floor=500),)
    assert pod.rivals == (kubelets(20, cpu_floor=300), kubelets(9), Rival(7, cpu_floor=70))
    guaranteed = assumed.kubernetes_facts(replace(POD, qos=GUARANTEED), "web", machine.size(frozenset()))
    _, pod, _ = machine.observed(guaranteed, others).levels
    assert pod.rivals == (kubelets(100, cpu_floor=370), kubelets(50, cpu_floor=500))


def test_a_pod_that_is_planned_with_others_meets_them_where_no_kubelet_is(tmp_path: Path) -> None:
    machine = Fake(tmp_path, v1=False, unified=True).machine()
    expected = assumed.kubernetes_facts(POD, "web", machine.size(frozenset()))
    *_, pod, _ = machine.observed(expected, [Promised(A_UID, 70, 7, "/kubepods/burstable")]).levels
    assert pod.rivals == (*expected.levels[-2].rivals, Rival(7, cpu_floor=70))


def test_where_there_is_no_kubelet_only_the_host_is_read(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=False, unified=True)
    fake.group("unified", "system.slice", cpu_weight="50")
    machine = fake.machine()
    expected = assumed.kubernetes_facts(POD, "web", machine.size(frozenset()))
    kubepods, *below = machine.observed(expected).levels
    assert kubepods.rivals == (Rival(50),)
    assert tuple(below) == expected.levels[1:]


def test_v1_hierarchies_are_read_together(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=True, unified=False)
    fake.group("cpu", "kubepods", cpu_shares="4096")
    fake.group("memory", "kubepods", memory_limit_in_bytes="99")
    fake.group("cpu", "only-cpu", cpu_shares="7")
    machine = fake.machine()
    assert machine.size(frozenset()).files == {"cpu.shares", "memory.limit_in_bytes", "oom_score_adj"}
    level = machine.observed(assumed.kubernetes_facts(POD, "web", machine.size(frozenset()))).levels[0]
    assert (level.weight, level.memory_max, level.rivals) == (4096, 99, (Rival(7),))


def test_on_v1_only_the_cpu_hierarchy_has_rivals_for_the_cpu(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=True, unified=False)
    fake.group("cpu", "machine.slice/libpod-a.scope", cpu_shares="7")
    fake.group("memory", "machine.slice/libpod-a.scope", memory_limit_in_bytes="1")
    fake.group("memory", "machine.slice/only-memory.scope", memory_limit_in_bytes="1")
    fake.group("memory", "only-memory", memory_limit_in_bytes="1")
    machine = fake.machine()
    expected = assumed.standalone_facts(
        machine.size(frozenset()), ("/machine.slice", "/machine.slice/libpod-ID.scope"), 0, host=0
    )
    parent, own = machine.observed(expected).levels
    assert (parent.rivals, own.rivals) == ((), (Rival(7),))


@pytest.mark.parametrize(("hierarchy", "weight"), [("cpu", 1024), ("unified", 100)])
def test_one_thread_a_cpu_outside_of_any_group_is_a_rival(
    tmp_path: Path, hierarchy: str, weight: int
) -> None:
    fake = Fake(tmp_path, v1=hierarchy == "cpu", unified=hierarchy == "unified")
    fake.group(hierarchy, "machine.slice")
    stat = "{pid} (a) b c) S 0 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 {threads} 0 0\n"
    fake.write("proc/3/stat", stat.format(pid=3, flags=0x200040, threads=1))  # a kernel thread
    fake.write("proc/4/stat", stat.format(pid=4, flags=0x400100, threads=3))
    fake.write("proc/5/stat", stat.format(pid=5, flags=0x400100, threads=9))
    fake.write(f"cgroup/{hierarchy}/cgroup.procs", "3\n4\n5\n6\n")
    fake.write(f"cgroup/{hierarchy}/machine.slice/cgroup.procs", "4\n")
    machine = fake.machine()
    expected = assumed.standalone_facts(
        machine.size(frozenset()), ("/machine.slice", "/machine.slice/libpod-ID.scope"), 0, host=0
    )
    parent, own = machine.observed(expected).levels
    assert (parent.rivals, parent.loose) == ((Rival(weight),) * 4, 12)
    assert (own.rivals, own.loose) == ((Rival(weight),) * 3, 3)


def test_a_container_of_podman_meets_those_that_run(tmp_path: Path) -> None:
    fake = Fake(tmp_path, v1=False, unified=True)
    fake.group("unified", "machine.slice/libpod-a.scope", cpu_weight="50", memory_min="9")
    machine = fake.machine()
    expected = assumed.standalone_facts(
        machine.size(frozenset()), ("/machine.slice", "/machine.slice/libpod-ID.scope"), 1, host=0
    )
    parent, own = machine.observed(expected).levels
    assert (parent.weight, parent.assumed) == (100, False)
    assert own.rivals == (Rival(50, memory_min=9), Rival(100))


@pytest.mark.runtime
def test_real_cgroups() -> None:
    machine = ThisMachine()
    with scratch("facts") as here:
        if is_v2(here.mounts):
            pytest.skip("this machine has cgroup v2: tests/kernel reads it in the test VM")
        here.make("parent", "one")
        here.make("parent", "two")
        (here.folder("cpu", "parent", "one") / "cpu.shares").write_text("300")
        (here.folder("cpu", "parent") / "cpu.cfs_quota_us").write_text("50000")
        (here.folder("memory", "parent") / "memory.limit_in_bytes").write_text(str(2**26))
        paths = [here.name, here.path("parent"), here.path("parent", "one"), here.path("parent", "one", "ID")]
        size = machine.size(frozenset())
        facts = machine.observed(assumed.standalone_facts(size, paths, 0, host=0))
    parent, one = facts.levels[1:3]
    assert (parent.cpu_quota, parent.memory_max, parent.weight) == (500, 2**26, 1024)
    assert (one.weight, one.rivals) == (300, ())  # nothing runs in the other one
    assert not any(level.assumed for level in facts.levels[:-1])
    assert facts.cpus == 1000 * (os.cpu_count() or 1)
    known = {file.name for file in all_files().values() if V1 in file.versions}
    assert {"cpu.shares", "memory.limit_in_bytes", "pids.max", "oom_score_adj"} <= size.files & known
