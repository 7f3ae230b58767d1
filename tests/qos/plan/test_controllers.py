"""Each controller's settings, on v2, on v1, and where the kernel lacks the file."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from qos.classes import CLASSES, promises_of
from qos.plan import controllers
from qos.plan.controller import all_controllers, all_files
from qos.plan.controllers.io import native_weight
from qos.plan.kernel_table import allowed
from qos.plan.node import HYBRID, V1, V2, Level, NodeFacts, Rival
from qos.plan.planning import plan
from qos.pods.containers import Container, NodePod
from qos.promises import CpuQuota, CpuSet, IoLimit, Promises

MI = 2**20
GI = 2**30
APP = Container("app", 500, 1000, 256 * MI, 1024 * MI)
POD = NodePod("uid", "default", "web", (APP,), "Burstable")


def node(cgroup=V2, without=(), **more):
    version = V2 if cgroup == V2 else V1
    files = frozenset(name for name, file in all_files().items() if version in file.versions) - set(without)
    new = 100 if version == V2 else 1024
    levels = (
        Level("/kubepods", new, (Rival(new),)),
        Level("/kubepods/pod", new, (Rival(new),), owned=True, cpu_quota=1000),
        Level("/kubepods/pod/app", new, (), owned=True, cpu_quota=1000, memory_max=1024 * MI),
    )
    return NodeFacts(
        cgroup, 4000, 8 * GI, files, **({"levels": levels, "devices": ("8:0",), "page": 4096} | more)
    )


def written(promises, facts, floor=None, pod=POD):
    """{(level, file): value}; one entry a disk for device files."""
    found = plan(pod, "app", promises, floor, facts)
    return {(one.level, one.file): one.value for one in found.settings}


def unsupported(promises, facts, floor=None):
    return {one.promise: one for one in plan(POD, "app", promises, floor, facts).unsupported}


def test_a_class_that_promises_nothing_writes_nothing():
    assert written(Promises(), node()) == {}
    assert unsupported(Promises(), node()) == {}


def test_idle_is_set_where_pods_meet_and_nowhere_is_a_weight():
    assert written(Promises(cpu_idle=True), node(), {"cpu": 500}) == {(1, "cpu.idle"): "1"}


def test_idle_is_set_on_the_container_where_that_alone_is_ours():
    levels = (Level("/machine.slice", 100), Level("/machine.slice/c", 100, owned=True))
    assert written(Promises(cpu_idle=True), node(levels=levels)) == {(0, "cpu.idle"): "1"}


@pytest.mark.parametrize(("cgroup", "file", "value"), [(V2, "cpu.weight", "1"), (V1, "cpu.shares", "2")])
def test_without_cpu_idle_the_lowest_weight_is_the_nearest(cgroup, file, value):
    facts = node(cgroup, without=["cpu.idle"])
    settings = written(Promises(cpu_idle=True), facts)
    assert settings[1, file] == value
    one = unsupported(Promises(cpu_idle=True), facts)["cpu_idle"]
    assert one.file == "cpu.idle"
    assert "lowest weight" in one.why


def test_what_was_idle_and_is_not_of_an_idle_class_wakes_before_it_is_weighed():
    facts = node()
    levels = (facts.levels[0], replace(facts.levels[1], idle=True, weight=0), facts.levels[2])
    settings = plan(POD, "app", Promises(), {"cpu": 100}, replace(facts, levels=levels)).settings
    on_pod = [(one.file, one.value) for one in settings if one.level == 1]
    assert on_pod == [("cpu.idle", "0"), ("cpu.weight", "100")]


@pytest.mark.parametrize(
    ("cgroup", "file", "value"),
    [(V2, "cpu.weight", "250"), (V1, "cpu.shares", "2560"), (HYBRID, "cpu.shares", "2560")],
)
def test_a_fixed_weight_is_in_the_files_own_scale(cgroup, file, value):
    assert written(Promises(cpu_weight=250), node(cgroup)) == {(1, file): value}


def test_a_floor_raises_a_fixed_weight_that_would_not_keep_it():
    assert int(written(Promises(cpu_weight=1), node(), {"cpu": 1000})[1, "cpu.weight"]) >= 100


@pytest.mark.parametrize(
    ("cgroup", "file", "value"), [(V2, "cpu.max", "max 100000"), (V1, "cpu.cfs_quota_us", "-1")]
)
def test_a_pinned_class_has_no_quota_once_it_has_its_cpus(cgroup, file, value):
    promises = Promises(cpu_quota=CpuQuota.NONE, cpus=CpuSet.RESERVED, cpu_burst_percent=50)
    settings = written(promises, node(cgroup, own_cpus="2-3"))
    assert settings == {(1, file): value, (0, file): value, (0, "cpuset.cpus"): "2-3"}
    waiting = node(cgroup, shared_cpus="0-1")
    assert (0, file) not in written(promises, waiting)
    assert written(promises, waiting)[0, "cpuset.cpus"] == "0-1"
    assert "keeps its quota" in unsupported(promises, waiting)["cpus"].why


def test_no_quota_is_written_where_nothing_is_limited():
    facts = node()
    levels = tuple(replace(level, cpu_quota=None) for level in facts.levels)
    unlimited = replace(POD, containers=(Container("app", 500),))
    promises = Promises(cpu_quota=CpuQuota.NONE)
    assert written(promises, replace(facts, levels=levels), pod=unlimited) == {}


def test_with_its_own_cpus_the_floor_is_kept_without_a_quota():
    promises = Promises(cpu_quota=CpuQuota.NONE, cpus=CpuSet.EXCLUSIVE)
    found = plan(POD, "app", promises, {"cpu": 2000}, node(own_cpus="2-3"))
    assert found.shortfalls == ()
    [short] = plan(POD, "app", promises, {"cpu": 3000}, node(own_cpus="2-3")).shortfalls
    assert short.missing == 1000


@pytest.mark.parametrize(("cgroup", "file"), [(V2, "cpu.max.burst"), (V1, "cpu.cfs_burst_us")])
def test_a_burst_is_saved_on_the_container_and_its_pod(cgroup, file):
    promises = Promises(cpu_burst_percent=40)
    assert written(promises, node(cgroup)) == {(1, file): "40000", (0, file): "40000"}
    facts = node(cgroup, without=[file])
    assert written(promises, facts) == {}
    assert unsupported(promises, facts)["cpu_burst_percent"].file == file


def test_the_share_pool_is_written_where_it_is_not_the_whole_node():
    assert written(Promises(), node(shared_cpus="0-2")) == {(0, "cpuset.cpus"): "0-2"}
    assert written(Promises(), node(shared_cpus="0-3")) == {}


def test_the_systems_cpus_are_not_known():
    assert "which CPUs" in unsupported(Promises(cpus=CpuSet.SYSTEM), node())["cpus"].why


def test_memory_is_protected_on_every_ancestor():
    settings = written(CLASSES["LS"].promises, node(), {"memory": 100 * MI + 1})
    whole = str(100 * MI + 4096)
    assert settings == {(level, "memory.low"): whole for level in (0, 1, 2)}


def test_a_profile_may_ask_for_memory_that_is_never_reclaimed():
    """Above the pod as far as the pod uses it, in 64ths: the rest would be its neighbours' for good."""
    promises = promises_of("LS", {"memory_min_percent": 50})
    used = [0, 9 * MI, 31 * MI + 1, 32 * MI, 64 * MI]
    of_tier = []
    for memory in (None, *used):
        facts = node()
        *above, pod, own = facts.levels
        facts = replace(facts, levels=(*above, replace(pod, memory_used=memory), own))
        settings = written(promises, facts, {"memory": 64 * MI})
        assert settings[0, "memory.min"] == settings[1, "memory.min"] == str(32 * MI)
        assert {settings[level, "memory.low"] for level in (0, 1, 2)} == {str(64 * MI)}
        of_tier.append(int(settings.get((2, "memory.min"), 0)))
    assert of_tier == [32 * MI, 0, 9 * MI, 31 * MI, 32 * MI, 32 * MI]


def test_requests_are_protected_where_the_class_says_so():
    settings = written(Promises(memory_request_min_percent=50), node(), {"memory": 64 * MI})
    assert settings[0, "memory.min"] == str(128 * MI)
    assert settings[0, "memory.low"] == str(128 * MI)  # never below memory.min


def test_the_pod_is_protected_for_all_that_runs_in_it():
    pod = replace(POD, containers=(APP, Container("log", memory_request=256 * MI)))
    settings = written(CLASSES["LS"].promises, node(), {"memory": 100 * MI}, pod)
    assert settings[0, "memory.low"] == str(50 * MI)
    assert settings[1, "memory.low"] == settings[2, "memory.low"] == str(100 * MI)


def test_a_pod_is_protected_for_its_containers_whole_pages():
    pod = replace(POD, containers=(APP, Container("log", memory_request=512 * MI)))
    settings = written(CLASSES["LS"].promises, node(), {"memory": 100 * MI + 1}, pod)
    log = plan(pod, "log", CLASSES["LS"].promises, {"memory": 100 * MI + 1}, node()).settings
    [of_log] = [int(one.value) for one in log if (one.level, one.file) == (0, "memory.low")]
    assert int(settings[1, "memory.low"]) == int(settings[0, "memory.low"]) + of_log > 100 * MI + 1


def test_on_v1_memory_cannot_be_protected_and_idle_classes_give_way():
    found = plan(POD, "app", CLASSES["LS"].promises, {"memory": 100 * MI}, node(V1))
    assert [one for one in found.settings if one.controller == "memory"] == []
    assert [one.promise for one in found.unsupported] == ["memory_low_percent"]
    assert "give their memory first" in found.unsupported[0].why
    idle = written(Promises(cpu_idle=True), node(V1))
    assert idle == {(1, "cpu.idle"): "1", (0, "memory.soft_limit_in_bytes"): str(256 * MI)}


def test_an_old_kernel_with_memory_low_alone_gets_that():
    facts = node(without=["memory.min"])
    promises = promises_of("LS", {"memory_min_percent": 100})
    assert (0, "memory.low") in written(promises, facts, {"memory": MI})
    assert unsupported(promises, facts, {"memory": MI})["memory_min_percent"].file == "memory.min"


def test_a_memory_limit_below_the_floor_is_a_shortfall():
    [short] = plan(POD, "app", CLASSES["LS"].promises, {"memory": 2 * GI}, node()).shortfalls
    assert (short.resource, short.level, short.missing) == ("memory", 0, GI)


@pytest.mark.parametrize(("cgroup", "file"), [(V2, "memory.high"), (V1, "memory.soft_limit_in_bytes")])
def test_throttling_starts_between_request_and_limit(cgroup, file):
    assert written(Promises(memory_high_percent=50), node(cgroup)) == {(0, file): str(640 * MI)}


def test_throttling_is_never_below_what_is_protected_nor_planned_at_the_limit():
    promises = Promises(memory_high_percent=10, memory_min_percent=100)
    assert written(promises, node(), {"memory": 900 * MI})[0, "memory.high"] == str(900 * MI)
    assert written(Promises(memory_high_percent=100), node()) == {}


def test_killing_all_processes_together():
    promises = Promises(memory_oom_group=True)
    assert written(promises, node()) == {(0, "memory.oom.group"): "1"}
    assert written(Promises(memory_oom_group=False), node()) == {(0, "memory.oom.group"): "0"}
    assert unsupported(promises, node(V1))["memory_oom_group"].file == "memory.oom.group"


@pytest.mark.parametrize(
    ("cgroup", "without", "file", "value"),
    [
        (V2, (), "io.weight", "default 300"),
        (V2, ("io.weight",), "io.bfq.weight", "300"),
        (V1, (), "blkio.bfq.weight", "300"),
        (V1, ("blkio.bfq.weight",), "blkio.weight", "1000"),
    ],
)
def test_a_disk_weight_is_set_where_pods_meet(cgroup, without, file, value):
    assert written(Promises(io_weight=300), node(cgroup, without))[1, file] == value


def test_disk_weights_keep_their_proportion_to_the_default():
    assert [native_weight("blkio.weight", weight) for weight in (1, 10, 100, 200, 10_000)] == [
        10,
        50,
        500,
        1000,
        1000,
    ]
    assert [native_weight("io.bfq.weight", weight) for weight in (1, 100, 10_000)] == [1, 100, 1000]


def test_disk_limits_are_one_line_a_disk():
    promises = Promises(io_limit=IoLimit(read_bytes=10 * MI, write_operations=2**40))
    facts = node(devices=("8:0", "259:1"))
    values = [one.value for one in plan(POD, "app", promises, None, facts).settings]
    assert values == [f"{disk} rbps=10485760 wiops=4294967295" for disk in facts.devices]
    settings = written(promises, node(V1))
    assert settings[0, "blkio.throttle.read_bps_device"] == "8:0 10485760"
    assert settings[0, "blkio.throttle.write_iops_device"] == "8:0 4294967295"


def test_disk_limits_without_a_disk_or_a_file_are_named():
    promises = Promises(io_limit=IoLimit(read_bytes=1))
    assert "no disk" in unsupported(promises, node(devices=()))["io_limit"].why
    assert unsupported(promises, node(without=["io.max"]))["io_limit"].file == "io.max"


def test_processes_and_the_order_of_killing():
    settings = written(Promises(pids_max=100, oom_score_adj=-500), node())
    assert settings == {(0, "pids.max"): "100", (-1, "oom_score_adj"): "-500"}
    assert written(Promises(pids_max=2**31), node()) == {(0, "pids.max"): "max"}
    assert unsupported(Promises(pids_max=1), node(without=["pids.max"]))["pids_max"].file == "pids.max"


def test_without_weights_a_cpu_floor_is_named():
    one = unsupported(Promises(), node(without=["cpu.weight"]), {"cpu": 100})["floor (cpu)"]
    assert (one.file, one.why) == ("cpu.weight", "this kernel has no cpu.weight; the floor is not kept")


def test_names_and_orders_are_unique():
    names = [file.name for controller in all_controllers() for file in controller.FILES]
    orders = [file.order for controller in all_controllers() for file in controller.FILES]
    assert len(names) == len(set(names)) == len(set(orders))
    assert [controller.NAME for controller in all_controllers()] == [
        "cpu",
        "cpuset",
        "io",
        "memory",
        "oom",
        "pids",
    ]


def test_raising_goes_memsw_first_and_idle_before_weights():
    order = list(all_files())
    assert order.index("memory.memsw.limit_in_bytes") < order.index("memory.limit_in_bytes")
    assert order.index("cpuset.mems") < order.index("cpuset.cpus")
    assert order.index("cpu.max") < order.index("cpu.max.burst")
    assert order[0] == "cpu.idle"


def test_a_new_controller_is_one_file(tmp_path, monkeypatch):
    (tmp_path / "zswap.py").write_text(
        "from qos.plan.controller import INTEGER_OR_MAX, UNIFIED, File, setting\n"
        "from qos.plan.node import V2\n"
        "NAME = 'zswap'\n"
        "FILES = (File('memory.zswap.max', (V2,), UNIFIED, INTEGER_OR_MAX, 0, 2**40, 99, '5.19',\n"
        "              trial='0', fresh='max', nri=''),)\n"
        "KEEPS = ()\n"
        "def settings(case):\n"
        "    yield setting(NAME, 0, case.node.levels[-1], FILES[0].name, 0, 'no memory in zswap')\n"
    )
    monkeypatch.setattr(controllers, "__path__", [*controllers.__path__, str(tmp_path)])
    all_controllers.cache_clear()
    all_files.cache_clear()
    try:
        assert written(Promises(), node()) == {(0, "memory.zswap.max"): "0"}
        assert '"memory.zswap.max": ("", "integer-or-max", 0, 1_099_511_627_776, 99)' in allowed()
    finally:
        monkeypatch.undo()
        all_controllers.cache_clear()
        all_files.cache_clear()
        sys.modules.pop("qos.plan.controllers.zswap", None)
