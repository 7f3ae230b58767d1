"""Plans for the pods of a node: from real cgroups where they are applied, else from plain files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.machine import ThisMachine
from agent.planner import REREAD_SECONDS, Planner
from agent.state import ContainerKey, Known, KnownPod, Running
from kernel.apply import apply
from kernel.target import Target
from lab.runtimes.cgroups import Scratch, is_v2, scratch
from qos.cluster.objects import Requirement, Selector
from qos.plan.controller import all_files
from qos.plan.node import V1, V2
from qos.pods.containers import BURSTABLE, Container, NodePod
from qos.pods.decision import NOTHING_CHOSEN, Choices
from tests.adapters.fake_machine import Fake
from tests.qos.builders import policy

MI = 2**20
UIDS = [f"3c0f1d2e-0000-4000-8000-00000000000{number}" for number in range(4)]
FILES = {
    version: frozenset(n for n, f in all_files().items() if version in f.versions) for version in (V1, V2)
}


class Here:
    """A node's cgroups below `top`, and what the agent knows of its pods."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.known = Known()
        self.running: dict[ContainerKey, Running] = {}
        self.originals: dict[tuple[str, str], str] = {}
        self.now = 0.0

    def pod(self, number: int, cpu: int, memory: int = 0, **more: object) -> str:
        """A pod with a policy that gives it a floor; its cgroup's path."""
        labels = {"app": f"a{number}"}
        web = Container("web", max(cpu, 100), memory_request=memory)
        one = NodePod(UIDS[number], "shop", f"p{number}", (web,), BURSTABLE, labels)
        self.known.pods[one.uid] = KnownPod(one, **more)
        if cpu:
            made = policy(
                key=f"shop/a{number}",
                name=f"a{number}",
                selector=Selector((Requirement("app", "In", (f"a{number}",)),)),
                floor={"cpu": cpu, "memory": memory},
            )
            self.known.policies[made.key] = made
        return f"{self.top}/kubepods/burstable/pod{one.uid}"

    def run(self, number: int, path: str) -> None:
        """Its container runs there."""
        key = ContainerKey(UIDS[number], "web")
        self.running[key] = Running(key, "c1", f"{path}/c1")

    def planner(self, machine: ThisMachine, version: str, choices: Choices = NOTHING_CHOSEN) -> Planner:
        return Planner(machine, machine.size(FILES[version]), lambda: self.now, choices)

    def plans(self, planner: Planner):
        for _ in planner.prepare(self.known, self.running, self.originals):
            pass
        return {one.uid: one for one in planner.plans()}


def entries(planned) -> dict[str, list]:
    return {
        f"{uid}/{container.name}": [(one.group, *one.entry) for one in container.plan.settings]
        for uid, one in planned.items()
        for container in one.containers
    }


# --- on plain files, as on cgroup v2 ---


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    made = Fake(tmp_path, v1=False, unified=True)
    made.write("proc/meminfo", "MemTotal:  4194304 kB\n")
    for path in ("kubepods", "kubepods/burstable", "system.slice"):
        made.group("unified", path, cpu_weight="100", memory_min="0", memory_low="0")
    return made


def start(fake: Fake, path: str, weight: str = "4") -> None:
    for one in (path, f"{path}/pause", f"{path}/c1"):
        fake.group("unified", one, cpu_weight=weight, memory_min="0", memory_low="0", memory_max="max")


def two_that_run(fake: Fake) -> Here:
    """Two pods, each with a container that runs."""
    here = Here("")
    for number in (0, 1):
        path = here.pod(number, 500)
        start(fake, path)
        here.run(number, path)
    return here


def settings_of(planned, level: int) -> dict[str, str]:
    (container,) = planned.containers
    return {one.file: one.value for one in container.plan.settings if one.level == level}


def test_all_pods_are_planned_together(fake: Fake) -> None:
    here = Here("")
    for number, memory in ((0, 64 * MI), (1, 32 * MI)):
        path = here.pod(number, 500, memory)
        start(fake, path)
        here.run(number, path)
    here.pod(2, 0)
    planned = here.plans(here.planner(fake.machine(), V2))
    assert list(planned) == UIDS[:3]
    assert planned[UIDS[2]].containers[0].plan.settings == ()
    for uid in UIDS[:2]:
        assert settings_of(planned[uid], 2)["memory.low"] == str(96 * MI)
        assert settings_of(planned[uid], 3)["memory.low"] == str(96 * MI)
        assert planned[uid].containers[0].plan.shortfalls == ()
        assert planned[uid].problem == ""


def test_a_floor_comes_and_goes_with_the_slot(fake: Fake) -> None:
    """What the extender says of a pod changes while it runs."""
    here = Here("")
    start(fake, path := here.pod(0, 500, 64 * MI))
    here.run(0, path)
    planner, one = here.planner(fake.machine(), V2), here.known.pods[UIDS[0]]
    floors = []
    for said in ("shop/p0", "", None, ""):
        here.known.pods[UIDS[0]] = replace(one, policy=said)
        floors.append(settings_of(here.plans(planner)[UIDS[0]], 2).get("memory.low"))
    assert floors == [str(64 * MI), None, str(64 * MI), None]


def test_who_ended_and_who_has_no_uid_is_not_planned(fake: Fake) -> None:
    here = Here("")
    here.pod(0, 500, finished=True)
    here.pod(1, 500)
    one = here.known.pods.pop(UIDS[1])
    here.known.pods[""] = KnownPod(replace(one.pod, uid=""))
    assert here.plans(here.planner(fake.machine(), V2)) == {}


def test_the_nodes_own_pods_get_nothing(fake: Fake) -> None:
    here = Here("")
    here.pod(0, 0)
    one = here.known.pods[UIDS[0]]
    here.known.pods[UIDS[0]] = KnownPod(replace(one.pod, namespace="kube-system", qos="BestEffort"))
    [planned] = here.plans(here.planner(fake.machine(), V2)).values()
    assert planned.decided.exempt
    assert [container.plan.settings for container in planned.containers] == [()]


def test_of_a_pod_that_only_the_runtime_knows_no_class_is_guessed(fake: Fake) -> None:
    """It may be critical for the node: its priority is not known, and idle at birth stays with a process."""
    here = Here("")
    here.pod(0, 0)
    one = here.known.pods[UIDS[0]]
    guessed = KnownPod(replace(one.pod, namespace="calico-system", qos="BestEffort"), provisional=True)
    here.known.pods[UIDS[0]] = guessed
    planner = here.planner(fake.machine(), V2, Choices(class_defaults=True))
    [planned] = here.plans(planner).values()
    assert [container.plan.settings for container in planned.containers] == [()]
    here.known.pods["calico-system/p0"] = KnownPod(replace(guessed.pod, uid="calico-system/p0"))  # a folder
    [planned] = here.plans(planner).values()
    assert "oom_score_adj" in settings_of(planned, -1)
    del here.known.pods["calico-system/p0"]
    here.known.pods[UIDS[0]] = replace(guessed, provisional=False)
    assert "oom_score_adj" in settings_of(here.plans(planner)[UIDS[0]], -1)


def test_what_has_no_policy_and_no_class_is_left_alone(fake: Fake) -> None:
    """Whoever installs this has not asked for idle BestEffort pods, nor have their authors."""
    here = Here("")
    here.pod(0, 0)
    one = here.known.pods[UIDS[0]]
    silent = replace(one.pod, qos="BestEffort", containers=(Container("web"),))
    here.known.pods[UIDS[0]] = KnownPod(silent)
    for choices, files in ((NOTHING_CHOSEN, set()), (Choices(class_defaults=True), {"oom_score_adj"})):
        [planned] = here.plans(here.planner(fake.machine(), V2, choices)).values()
        assert settings_of(planned, -1).keys() == files
    here.known.pods[UIDS[0]] = KnownPod(replace(silent, labels={"koordinator.sh/qosClass": "BE"}))
    [planned] = here.plans(here.planner(fake.machine(), V2)).values()
    assert settings_of(planned, -1) == {"oom_score_adj": "1000"}


def test_an_author_alone_gets_no_oom_score_below_kubelets(fake: Fake) -> None:
    here = Here("")
    here.pod(0, 0)
    one = here.known.pods[UIDS[0]]
    asked = replace(
        one.pod,
        labels={"koordinator.sh/qosClass": "LS"},
        annotations={"koordinator.sh/oom-score-adj": "-1000"},
        containers=(Container("web", 100, memory_request=1024 * MI),),
    )
    here.known.pods[UIDS[0]] = KnownPod(asked)
    [planned] = here.plans(here.planner(fake.machine(), V2)).values()
    assert settings_of(planned, -1) == {"oom_score_adj": "750"}  # a quarter of 4 GiB
    assert [one.why for one in planned.containers[0].plan.unsupported if one.promise == "oom_score_adj"] == [
        "-1000 is below kubelet's 750: that needs --author-oom-scores"
    ]
    chosen = here.planner(fake.machine(), V2, Choices(author_oom_scores=True))
    assert settings_of(here.plans(chosen)[UIDS[0]], -1) == {"oom_score_adj": "-1000"}


def test_a_pod_of_a_folder_is_planned_once(fake: Fake) -> None:
    """As it is written there, under its name, and as the runtime has it, under its uid."""
    here = Here("")
    path = here.pod(0, 1500)
    start(fake, path)
    here.run(0, path)
    planner = here.planner(fake.machine(), V2)
    alone = entries(here.plans(planner))
    one = here.known.pods[UIDS[0]]
    here.known.pods["shop/p0"] = KnownPod(replace(one.pod, uid="shop/p0"))
    assert entries(here.plans(planner)) == alone


def test_a_pod_that_cannot_be_planned_keeps_its_plan_and_costs_nobody_theirs(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    here = two_that_run(fake)
    planner = here.planner(fake.machine(), V2)
    before = entries(here.plans(planner))
    one = here.known.pods[UIDS[0]]
    here.known.pods[UIDS[0]] = replace(one, pod=replace(one.pod, qos="Whatever"))
    for _ in range(2):
        assert entries(here.plans(planner)) == before
    assert [record.message for record in caplog.records] == [
        f"pod not planned uid={UIDS[0]}: it keeps what it has"
    ]
    here.known.pods[UIDS[2]] = replace(one, pod=replace(one.pod, uid=UIDS[2], qos="Whatever"))
    assert entries(here.plans(planner)) == before


def test_a_cgroup_that_cannot_be_read_costs_its_pod_alone_what_is_new(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    here = two_that_run(fake)
    planner = here.planner(fake.machine(), V2)
    before = entries(here.plans(planner))
    path = here.running[ContainerKey(UIDS[1], "web")].cgroup.rpartition("/")[0]
    low = Path(f"{fake.root}/cgroup/unified{path}/memory.low")
    low.unlink()
    low.symlink_to("/dev/null")
    planner.changed(UIDS[1])
    assert entries(here.plans(planner)) == before
    fresh = here.planner(fake.machine(), V2)
    assert entries(here.plans(fresh)).keys() == {one for one in before if one.startswith(UIDS[0])}
    assert {UIDS[1]} == fresh.problems.keys()
    assert f"pod not planned uid={UIDS[1]}: it keeps what it has" in caplog.text


def test_a_pod_of_which_no_container_is_known_is_beside_the_others(fake: Fake) -> None:
    here = Here("")
    start(fake, here.pod(0, 500))
    one = here.known.pods[UIDS[0]]
    here.known.pods[UIDS[0]] = KnownPod(replace(one.pod, containers=()), provisional=True)
    here.pod(1, 500)
    planned = here.plans(here.planner(fake.machine(), V2))
    assert planned[UIDS[0]].containers == ()
    assert len(planned[UIDS[1]].containers[0].facts.levels[-2].rivals) == 1


def test_a_policy_of_another_namespace_gives_nothing(fake: Fake) -> None:
    here = Here("")
    here.pod(0, 500)
    here.known.policies = {key: replace(one, namespace="other") for key, one in here.known.policies.items()}
    [planned] = here.plans(here.planner(fake.machine(), V2)).values()
    assert planned.decided.policy is None


def test_a_pod_that_is_still_to_come_has_its_plan_and_its_place(fake: Fake) -> None:
    here = Here("")
    path = here.pod(0, 500, 64 * MI)
    planner = here.planner(fake.machine(), V2)
    [before] = here.plans(planner).values()
    assert before.containers[0].facts.levels[-2].path == path
    start(fake, path, weight="20")
    here.run(0, path)
    [after] = here.plans(planner).values()
    assert after.containers[0].facts.levels[-1].path == f"{path}/c1"
    assert settings_of(after, 1) == settings_of(before, 1)
    assert settings_of(after, 2) == settings_of(before, 2)


def test_one_pod_is_planned_beside_the_others(fake: Fake) -> None:
    here = Here("")
    start(fake, path := here.pod(0, 500, 64 * MI))
    here.run(0, path)
    planner = here.planner(fake.machine(), V2)
    together = here.plans(planner)
    assert planner.plan_pod(UIDS[0], here.known, here.running, here.originals) == together[UIDS[0]]
    start(fake, new := here.pod(1, 500, 32 * MI))
    here.run(1, new)
    alone = planner.plan_pod(UIDS[1], here.known, here.running, here.originals)
    assert alone.containers[0].facts.levels[-1].path == f"{new}/c1"
    assert not alone.containers[0].facts.levels[-1].assumed
    assert settings_of(alone, 2)["memory.low"] == str(96 * MI)
    with pytest.raises(KeyError):
        planner.plan_pod(UIDS[3], here.known, here.running, here.originals)


def test_one_pod_can_be_planned_before_all_were(fake: Fake) -> None:
    here = Here("")
    start(fake, path := here.pod(0, 500, 64 * MI))
    here.run(0, path)
    planner = here.planner(fake.machine(), V2)
    first = planner.plan_pod(UIDS[0], here.known, here.running, here.originals)
    assert first == here.plans(planner)[UIDS[0]]


def test_what_is_known_may_change_while_plans_are_prepared(fake: Fake) -> None:
    here = Here("")
    here.pod(0, 500)
    planner = here.planner(fake.machine(), V2)
    for _ in planner.prepare(here.known, here.running, here.originals):
        here.pod(1, 500)
    assert [one.uid for one in planner.plans()] == [UIDS[0]]
    assert list(here.plans(planner)) == UIDS[:2]


def test_everything_is_read_again_now_and_then(fake: Fake) -> None:
    here = Here("")
    start(fake, path := here.pod(0, 0))
    planner = here.planner(fake.machine(), V2)
    here.plans(planner)
    fake.group("unified", path, cpu_weight="77")
    weights = []
    for now in (REREAD_SECONDS - 1, REREAD_SECONDS):
        here.now = now
        [one] = here.plans(planner).values()
        weights.append(one.containers[0].facts.levels[-2].weight)
    assert weights == [4, 77]


def test_what_is_said_to_have_changed_is_read_again(fake: Fake) -> None:
    here = Here("")
    start(fake, path := here.pod(0, 0))
    planner = here.planner(fake.machine(), V2)
    here.plans(planner)
    for weight, changed in (("77", path), ("78", UIDS[0]), ("79", f"{path}/c1")):
        fake.group("unified", path, cpu_weight=weight)
        planner.changed(changed)
        [one] = here.plans(planner).values()
        assert one.containers[0].facts.levels[-2].weight == int(weight)


# --- who else takes CPU: nodes as systemd and kubelet make them ---

MOUNTS = ("dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount")


def systemd_node(root: Path, version: str, pods: Mapping[str, int]) -> Fake:
    """8 CPUs; busy system.slice, mount units without processes; a pod of each name with this weight."""
    unified = version == V2
    fake = Fake(root, v1=not unified, unified=unified)
    fake.write("sys/devices/system/cpu/online", "0-7\n")
    fake.write("proc/meminfo", "MemTotal:  33554432 kB\n")
    plain = {"system.slice": True, "init.scope": True, "user.slice": False} | dict.fromkeys(MOUNTS, False)
    groups = {path: (100 if unified else 1024, populated) for path, populated in plain.items()}
    groups["kubepods"] = groups["kubepods/burstable"] = (313 if unified else 8192, True)
    groups["kubepods/besteffort"] = (1 if unified else 2, False)
    for uid, weight in pods.items():
        groups[f"kubepods/burstable/pod{uid}"] = (weight, True)
        groups[f"kubepods/burstable/pod{uid}/c1"] = (weight, True)
    for path, (weight, populated) in groups.items():
        if unified:
            protected = {} if path.endswith((".mount", ".scope")) else {"memory_min": "0", "memory_low": "0"}
            events = f"populated {int(populated)}\n"
            fake.group("unified", path, cpu_weight=f"{weight}", cgroup_events=events, **protected)
        else:
            fake.group("cpu", path, cpu_shares=f"{weight}", cgroup_procs="")
            fake.group("memory", path)
        if populated and not unified:  # processes are in the leaves
            leaf = path if path.endswith(("/c1", ".scope")) else f"{path}/some.service"
            fake.group("cpu", leaf, cgroup_procs="77\n") if "kubepods" not in leaf or "c1" in leaf else None
    return fake


@pytest.mark.parametrize(("version", "neighbours"), [(V1, 1024), (V2, 39)])
def test_cgroups_without_processes_are_no_rivals(tmp_path: Path, version: str, neighbours: int) -> None:
    """A systemd node has some seven mount units at its root, of default weight and without a process."""
    here = Here("")
    weights = {UIDS[0]: 2 * neighbours, **dict.fromkeys(UIDS[1:], neighbours)}
    fake = systemd_node(tmp_path, version, weights)
    here.run(0, here.pod(0, 2000))
    for number in (1, 2, 3):
        here.run(number, here.pod(number, 0))
    [container] = here.plans(here.planner(fake.machine(), version))[UIDS[0]].containers
    busy = 100 if version == V2 else 1024
    assert [one.weight for one in container.facts.levels[0].rivals if one.populated] == [busy, busy]
    file = "cpu.weight" if version == V2 else "cpu.shares"
    [weight] = [int(one.value) for one in container.plan.settings if (one.level, one.file) == (1, file)]
    assert weight < 3 * neighbours
    fake.group(
        "unified" if version == V2 else "cpu",
        "user.slice",
        cgroup_procs="88\n",
        cgroup_events="populated 1\n",
    )
    [container] = here.plans(here.planner(fake.machine(), version))[UIDS[0]].containers
    assert [one.weight for one in container.facts.levels[0].rivals if one.populated] == [busy] * 3


def test_a_pod_that_requests_little_takes_no_more_than_that_for_its_floor(tmp_path: Path) -> None:
    """10m under a floor of 16 CPUs took 6.95 of 8, and a TiB was protected on a node of 32 GiB."""
    here = Here("")
    fake = systemd_node(tmp_path, V2, dict.fromkeys(UIDS, 39))
    here.run(0, path := here.pod(0, 16_000, 2**40))
    one = here.known.pods[UIDS[0]]
    small = replace(one.pod, containers=(Container("web", 10, memory_request=64 * MI),))
    here.known.pods[UIDS[0]] = replace(one, pod=small)
    for number in (1, 2, 3):
        here.run(number, here.pod(number, 0))
    [container] = here.plans(here.planner(fake.machine(), V2))[UIDS[0]].containers
    of_pod = {one.file: one.value for one in container.plan.settings if one.group == path}
    assert (of_pod["cpu.weight"], of_pod["memory.low"]) == ("39", str(64 * MI))
    assert {one.resource: (one.kept, one.promised) for one in container.plan.shortfalls} == {
        "cpu": (10, 16_000),
        "memory": (64 * MI, 2**40),
    }
    assert container.plan.shortfalls[0].why == (
        "the pod requests 10m, so no more of its floor of 16 counts: request the floor"
    )


# --- on this machine's cgroups ---


@pytest.fixture
def real(tmp_path: Path) -> Iterator[tuple[Scratch, ThisMachine]]:
    """Cgroups of our own, and a machine that has no others: its hierarchies begin there."""
    with scratch("planner") as made:
        if is_v2(made.mounts):
            pytest.skip("this machine has cgroup v2: the node of tests/kernel is planned there")
        for parts in (("kubepods",), ("kubepods", "burstable"), ("other",)):
            made.make(*parts)
        proc = tmp_path / "proc"
        (proc / "self").mkdir(parents=True)
        lines = [f"1 1 0:1 / {made.folder(one)} rw - cgroup cgroup rw,{one}" for one in ("cpu", "memory")]
        (proc / "self" / "mountinfo").write_text("\n".join(lines))
        (proc / "meminfo").write_text(Path("/proc/meminfo").read_text())
        yield made, ThisMachine(str(proc))


def apply_all(here: Here, machine: ThisMachine, planned) -> int:
    """Write the plans as the agent does, with what was there before kept; the number of writes."""
    written = 0
    for uid, one in planned.items():
        for container in one.containers:
            path = here.running[ContainerKey(uid, container.name)].cgroup
            with Target(machine.mounts, dict.fromkeys(machine.mounts, path)) as target:
                outcome = apply(target, [each.entry for each in container.plan.settings])
            assert outcome.applied, [str(each) for each in outcome.refusals]
            written += len(outcome.written)
            for group, file, before, _ in outcome.written:
                here.originals.setdefault((group, file), before)
    return written


@pytest.mark.runtime
def test_plans_stay_as_they_are_when_they_were_applied_and_fall_back(
    real: tuple[Scratch, ThisMachine],
) -> None:
    made, machine = real
    here = Here("")
    for number, cpu in enumerate((100, 40, 0)):
        path = here.pod(number, cpu)
        made.make("kubepods", "burstable", f"pod{UIDS[number]}", "pause")
        made.make("kubepods", "burstable", f"pod{UIDS[number]}", "c1")
        here.run(number, path)
    planner = here.planner(machine, V1)
    alone = Here("")
    alone.known, alone.running = replace(here.known), here.running
    alone.known.policies = {key: one for key, one in here.known.policies.items() if key != "shop/a0"}
    without = entries(alone.plans(alone.planner(machine, V1)))

    first = here.plans(planner)
    assert apply_all(here, machine, first) > 0
    planner.changed(here.running[ContainerKey(UIDS[0], "web")].cgroup)
    again = here.plans(planner)
    assert entries(again) == entries(first)
    assert entries(here.plans(here.planner(machine, V1))) == entries(first)
    assert apply_all(here, machine, again) == 0
    del here.known.policies["shop/a0"]
    assert entries(here.plans(here.planner(machine, V1))) == without
