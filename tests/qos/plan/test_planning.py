"""The plan: division of a floor over containers, order, ranges, and honesty about what a kernel lacks."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.kernel_rules import cpu_time, protection
from qos.classes import promises_of
from qos.plan.controller import CPUS, DEVICE_LIMIT, DEVICE_LIMITS, all_controllers, all_files
from qos.plan.cpu_list import cpu_count
from qos.plan.kernel_table import kept_as, made
from qos.plan.node import HYBRID, V1, V2, Level, NodeFacts, Rival
from qos.plan.planning import divided, parts, plan
from qos.plan.settings import PROCESS, RAISE, SET
from qos.pods.containers import Container, NodePod
from qos.promises import CpuQuota, CpuSet, IoLimit, Promises

GI = 2**30
MI = 2**20

AMOUNTS = st.integers(0, 16).map(lambda n: n * 250)
MEMORIES = st.integers(0, 64).map(lambda n: n * 37 * MI)
PERCENT = st.integers(0, 100)
CONTAINERS = st.builds(
    Container,
    st.just(""),
    cpu_request=AMOUNTS,
    cpu_limit=AMOUNTS,
    memory_request=MEMORIES,
    memory_limit=MEMORIES,
    init=st.sampled_from([False, False, True]),
    sidecar=st.booleans(),
).map(lambda one: replace(one, sidecar=one.sidecar and one.init))
PROMISES = st.builds(
    Promises,
    cpu_idle=st.booleans(),
    cpu_weight=st.one_of(st.none(), st.integers(1, 10_000)),
    cpu_quota=st.sampled_from(CpuQuota),
    cpu_burst_percent=PERCENT,
    cpus=st.sampled_from(CpuSet),
    memory_min_percent=PERCENT,
    memory_low_percent=PERCENT,
    memory_request_min_percent=PERCENT,
    memory_request_low_percent=PERCENT,
    memory_high_percent=PERCENT,
    memory_oom_group=st.sampled_from([None, False, True]),
    oom_score_adj=st.one_of(st.none(), st.integers(-1000, 1000)),
    io_weight=st.one_of(st.none(), st.integers(1, 10_000)),
    io_limit=st.one_of(st.none(), st.builds(IoLimit, *[st.sampled_from([0, 1, 10**6, 2**40])] * 4)),
    pids_max=st.one_of(st.none(), st.integers(1, 2**31)),
)


@st.composite
def pods(draw):
    containers = draw(st.lists(CONTAINERS, min_size=1, max_size=4))
    named = [replace(one, name=f"c{number}") for number, one in enumerate(containers)]
    return NodePod("uid", "default", "web", tuple(named), draw(st.sampled_from(["Guaranteed", "Burstable"])))


@st.composite
def nodes(draw):
    cgroup = draw(st.sampled_from([V1, V2, HYBRID]))
    version = V2 if cgroup == V2 else V1
    has = sorted(name for name, file in all_files().items() if version in file.versions)
    missing = draw(st.sets(st.sampled_from(has), max_size=4))
    low, high = (1, 10_000) if version == V2 else (2, 262_144)
    depth = draw(st.integers(1, 4))
    levels = [
        Level(
            f"/{index}",
            draw(st.integers(low, 500)),
            tuple(
                draw(
                    st.lists(
                        st.builds(Rival, st.integers(low, high), st.booleans(), AMOUNTS, MEMORIES, MEMORIES),
                        max_size=3,
                    )
                )
            ),
            owned=index >= depth - 2,
            idle=draw(st.sampled_from([False, False, False, True])),
            cpu_quota=draw(st.sampled_from([None, 10, 1500])),
            memory_min=draw(MEMORIES),
            memory_max=draw(st.sampled_from([None, 512 * MI])),
            cpu_period=draw(st.sampled_from([100_000, 5000])),
        )
        for index in range(depth)
    ]
    return NodeFacts(
        cgroup,
        draw(st.integers(1, 16)) * 1000,
        64 * GI,
        frozenset(has) - missing,
        tuple(levels),
        page=draw(st.sampled_from([4096, 65_536])),
        devices=draw(st.sampled_from([(), ("8:0",), ("8:0", "259:1")])),
        shared_cpus=draw(st.sampled_from(["", "0-1", "0,2-3"])),
        own_cpus=draw(st.sampled_from(["", "4-5"])),
    )


FLOORS = st.one_of(st.none(), st.fixed_dictionaries({}, optional={"cpu": AMOUNTS, "memory": MEMORIES}))


@settings(deadline=None)
@given(pods(), PROMISES, FLOORS, nodes(), st.data())
def test_every_plan_is_one_that_a_kernel_takes(pod, promises, floor, node, data):
    name = data.draw(st.sampled_from(pod.containers)).name
    found = plan(pod, name, promises, floor, node)
    for setting in found.settings:
        in_range(setting, node)
        exact_only_where_it_is_ours(setting, node)
    in_write_order(found.settings)
    as_the_kernel_demands({(one.level, one.file): one.value for one in found.settings}, node)
    for one in found.unsupported:
        if one.promise not in ("cpus", "io_limit"):  # these also lack CPUs, or disks
            assert one.file not in node.files
        assert one.why


def in_range(setting, node):
    file = all_files()[setting.file]
    assert setting.level == PROCESS or setting.file in node.files
    assert setting.value == setting.value.strip() != ""
    for number in integers(file.kind, setting.value):
        assert file.low <= number <= file.high, setting
    assert setting.reason
    assert not setting.reason.endswith(".")


def integers(kind, value):
    """The integers in a value, by its kind; what is not one raises."""
    if kind == CPUS:
        cpu_count(value)
        return []
    words = value.split()
    if kind in (DEVICE_LIMIT, DEVICE_LIMITS):
        words = [word.partition("=")[2] or word for word in words[1:]]
    return [int(word) for word in words if word not in ("max", "default")]


def exact_only_where_it_is_ours(setting, node):
    if setting.level == PROCESS:
        return
    level = node.levels[len(node.levels) - 1 - setting.level]
    assert setting.group == level.path
    assert setting.mode == (SET if level.owned else RAISE)
    if setting.mode == RAISE:
        assert setting.file in ("memory.min", "memory.low")


def in_write_order(settings):
    """Parents before children, then by file; each file once, or once a disk."""
    places = [(-one.level if one.level != PROCESS else 1, all_files()[one.file].order) for one in settings]
    assert places == sorted(places)
    device = [one.value.split()[0] if ":" in one.value else "" for one in settings]
    keys = [(one.level, one.file, which) for one, which in zip(settings, device, strict=True)]
    assert len(keys) == len(set(keys))


def as_the_kernel_demands(written, node):
    """No weight while idle, no burst above the quota, whole pages."""
    for (number, file), value in written.items():
        if file == "cpu.idle" and value == "1":
            assert (number, "cpu.weight") not in written
            assert (number, "cpu.shares") not in written
        if file in ("cpu.max.burst", "cpu.cfs_burst_us"):
            level = node.levels[len(node.levels) - 1 - number]
            assert level.cpu_quota is not None
            assert int(value) <= level.cpu_quota * level.cpu_period // 1000
        if file.startswith("memory.") and file != "memory.oom.group":
            assert int(value) % node.page == 0


def claiming(level, file):
    """The level whose siblings claim by this file what they claim by the other."""
    rivals = level.rivals
    if file == "memory.low":
        rivals = tuple(replace(one, memory_low=one.memory_min) for one in rivals)
        level = replace(level, memory_low=level.memory_min)
    return replace(level, rivals=rivals)


@settings(deadline=None)
@given(pods(), FLOORS, nodes(), st.data())
def test_after_the_plan_the_floor_is_kept_or_said_to_be_short(tree_of, pod, floor, node, data):
    """Through the plan as it is written: settings in, what the kernel then gives out."""
    node = replace(node, cgroup=V2, files=frozenset(all_files()), shared_cpus="", own_cpus="", page=4096)
    node = replace(node, levels=tuple(replace(level, idle=False) for level in node.levels))
    name = data.draw(st.sampled_from(pod.containers)).name
    file = data.draw(st.sampled_from(["memory.min", "memory.low"]))
    percent = 100 if file == "memory.min" else 0
    node = replace(node, levels=tuple(claiming(level, file) for level in node.levels))
    found = plan(pod, name, promises_of("LS", {"memory_min_percent": percent}), floor, node)
    part = parts(pod, floor)[name]
    short = {one.resource: one.missing for one in found.shortfalls}
    weights = {one.level: int(one.value) for one in found.settings if one.file == "cpu.weight"}
    protected = {one.level: int(one.value) for one in found.settings if one.file == file}
    usage = part.get("memory", 0) * 2 + 4096
    tree = tree_of(node.levels, weights=weights, protection=protected, usage=usage)
    assert cpu_time(tree, node.cpus)["level0"] >= part.get("cpu", 0) - short.get("cpu", 0)
    kept = protection(tree, recursive=data.draw(st.booleans()), memory=node.memory)["level0"]
    assert kept >= part.get("memory", 0) - short.get("memory", 0)


@settings(deadline=None)
@given(st.integers(0, 10**9), st.lists(st.integers(0, 10**6), min_size=1, max_size=9))
def test_a_divided_amount_adds_up_and_is_in_proportion(amount, weights):
    portions = divided(amount, weights)
    assert sum(portions) == amount
    total = sum(weights)
    for portion, weight in zip(portions, weights, strict=True):
        exact = amount * weight / total if total else amount / len(weights)
        assert abs(portion - exact) < 1


def test_what_runs_together_shares_the_floor_and_what_runs_alone_has_all_of_it():
    pod = NodePod(
        "uid",
        "default",
        "web",
        (
            Container("migrate", cpu_request=100, init=True),
            Container("proxy", cpu_request=250, init=True, sidecar=True),
            Container("app", cpu_request=750),
        ),
    )
    floor = {"cpu": 2000, "memory": 300 * MI}
    assert parts(pod, floor) == {
        "migrate": {"cpu": 2000, "memory": 300 * MI},
        "proxy": {"cpu": 500, "memory": 150 * MI},  # nobody requests memory: equal parts
        "app": {"cpu": 1500, "memory": 150 * MI},
    }


def test_memory_is_divided_in_whole_pages():
    pod = NodePod("uid", "default", "web", tuple(Container(name, memory_request=MI) for name in "abc"))
    assert [part["memory"] for part in parts(pod, {"memory": MI}).values()] == [393_216, 327_680, 327_680]
    assert sum(part["memory"] for part in parts(pod, {"memory": MI + 1}).values()) == MI + 1


def test_a_container_that_the_pod_has_not_is_an_error():
    node = NodeFacts(V2, 1000, GI, frozenset(), (Level("/c", 100, owned=True),))
    with pytest.raises(KeyError, match="other"):
        plan(NodePod("u", "default", "web", (Container("app"),)), "other", Promises(), None, node)


def test_every_promise_is_kept_by_a_controller():
    known = {keeps.promise for controller in all_controllers() for keeps in controller.KEEPS}
    assert {kept_as(field.name) for field in fields(Promises)} == known - {"floor (cpu)"}
    assert made(Promises()) == {}


def test_every_file_that_keeps_a_promise_is_declared_for_its_version():
    for controller in all_controllers():
        for keeps in controller.KEEPS:
            for version, names in ((V2, keeps.v2), (V1, keeps.v1)):
                assert all(version in all_files()[name].versions for name in names)
