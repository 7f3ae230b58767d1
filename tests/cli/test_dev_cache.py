"""`j10ce dev cache`: the hook's files, whole or not at all, as the hook reads them."""

from __future__ import annotations

import json
import subprocess
import sysconfig
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from adapters.machine import ThisMachine
from adapters.pod_files import read_objects
from cli import cache as command
from cli import floors, plan_table, promised
from cli.plan import container_json
from cli.plan_node import PlanNode
from cli.planning import plans
from kernel import cache, facts
from kernel.apply import apply
from kernel.target import Target
from lab.runtimes.cgroups import scratch
from qos.classes import promises_of
from qos.plan.node import Rival
from qos.pods.containers import BURSTABLE, Container, NodePod
from tests.adapters.fake_machine import Fake

J10CE = Path(sysconfig.get_path("scripts")) / "j10ce"
UID = "3c0f1d2e-aaaa-4bbb-8ccc-0123456789ab"
POD = f"""\
kind: Pod
metadata: {{name: web, namespace: shop, uid: {UID}, labels: {{app: web}}}}
spec:
  initContainers:
    - {{name: init, resources: {{requests: {{cpu: 200m}}}}}}
  containers:
    - {{name: web, resources: {{requests: {{cpu: 200m, memory: 64Mi}}}}}}
---
apiVersion: j10ce.io/v1alpha1
kind: MinimalReservationPolicy
metadata: {{name: web, namespace: shop}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  floor: {{resources: {{cpu: 200m, memory: 64Mi}}}}
  slots: {{count: 1}}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(command.app, [*map(str, arguments)])


def write(run: Path, *arguments: object) -> list[dict[str, Any]]:
    done = invoke("write", *arguments, "--run", run, "-o", "json")
    assert done.exit_code == 0, done.output or done.exception
    documents: list[dict[str, Any]] = json.loads(done.stdout)
    return documents


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_named_floor_is_what_the_hook_reads(run: Path) -> None:
    (document,) = write(run, "--floor", "gold", "--cpu", "200m", "--memory", "64Mi")
    _, entries = cache.read(str(run / "floors"), "gold", "whatever-it-is-called", now())
    planned = document["containers"][0]["settings"]
    assert entries == [(one["level"], one["mode"], one["file"], one["value"]) for one in planned]
    assert {file for _, _, file, _ in entries} & {"cpu.weight", "cpu.shares"}
    assert document["file"] == str(run / "floors" / "gold")


def test_only_root_reads_and_writes_there(run: Path) -> None:
    write(run, "--floor", "gold", "--cpu", "200m")
    modes = {
        path.name: oct(path.stat().st_mode & 0o777) for path in (run, run / "floors", run / "floors/gold")
    }
    assert modes == {"run": "0o700", "floors": "0o700", "gold": "0o600"}


def test_it_expires(run: Path) -> None:
    (document,) = write(run, "--floor", "gold", "--cpu", "200m", "--ttl", 60)
    assert now() < document["until"] <= now() + 60
    with pytest.raises(cache.CacheMiss):
        cache.read(str(run / "floors"), "gold", "x", document["until"] + 1)


def test_a_pod_is_found_by_its_uid_and_containers_by_name(run: Path, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    (document,) = write(run, tmp_path / "pod.yaml")
    assert [one["name"] for one in document["containers"]] == ["init", "web"]
    parent, entries = cache.read(str(run / "pods"), UID, "web", now())
    assert (parent, bool(entries)) == ("", True)
    with pytest.raises(cache.CacheMiss):
        cache.read(str(run / "pods"), UID, "other", now())


def test_a_parent_of_ones_own(run: Path) -> None:
    (document,) = write(run, "--floor", "g", "--cpu", "1m", "--runtime", "plain", "--parent", "/a/b")
    assert document["containers"][0]["cgroup"] == "/a/b/ID"
    parent, _ = cache.read(str(run / "floors"), "g", "x", now())
    assert parent == "/a/b"


@pytest.mark.parametrize(
    ("arguments", "parent"),
    [
        (("--runtime", "podman", "--driver", "cgroupfs"), "/libpod_parent"),
        (("--runtime", "podman", "--driver", "systemd"), "/machine.slice"),
        (("--runtime", "podman", "--driver", "cgroupfs", "--parent", "mine"), "/mine"),
        (("--runtime", "plain"), ""),
    ],
)
def test_a_floors_file_names_the_parent_that_it_was_planned_for(
    run: Path, arguments: tuple[str, ...], parent: str
) -> None:
    write(run, "--floor", "gold", "--cpu", "100m", *arguments)
    found, entries = cache.read(str(run / "floors"), "gold", "x", now())
    assert found == parent
    assert parent or all(level <= 0 for level, _, _, _ in entries)


@pytest.fixture
def unified(tmp_path: Path) -> PlanNode:
    """A machine of cgroup v2 made of plain files, where podman runs one container without a floor."""
    texts = {
        "proc/self/mountinfo": f"1 1 0:1 / {tmp_path}/cgroup rw - cgroup2 cgroup2 rw,memory_recursiveprot\n",
        "proc/meminfo": "MemTotal: 4194304 kB\n",
        "sys/devices/system/cpu/online": "0-3\n",
        "cgroup/libpod_parent/cpu.weight": "100\n",
        "cgroup/libpod_parent/libpod-a/cpu.weight": "100\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    here = ThisMachine(f"{tmp_path}/proc", f"{tmp_path}/sys", tmp_path / "run")
    return PlanNode(here.size(frozenset()), "a test's machine", here)


def floor(node: PlanNode, folder: Path, **more: Any) -> dict[tuple[int, str], int]:
    """(level, file) to value of a floor of 64 MiB and 1 CPU."""
    files = frozenset({"cpu.weight", "memory.min", "memory.low"})
    node = replace(node, machine=replace(node.machine, files=files))
    wanted = floors.Floor("gold", {"cpu": 1000, "memory": 2**26}, promises_of("LS"), floors.Runtime.PODMAN)
    assert node.here is not None
    made = floors.floor_plan(replace(wanted, **more), node, node.here, folder)
    assert not made.plan.shortfalls
    return {(one.level, one.file): int(one.value) for one in made.plan.settings}


def test_a_floor_is_protected_on_every_ancestor(unified: PlanNode, tmp_path: Path) -> None:
    made = floor(unified, tmp_path / "none")
    assert made[0, "memory.low"] == made[1, "memory.low"] == 2**26
    # A quarter of four CPUs, against the one that runs and four that may come.
    assert made[0, "cpu.weight"] >= 167


def test_threads_in_no_group_are_named(unified: PlanNode, tmp_path: Path) -> None:
    assert unified.here is not None
    wanted = floors.Floor("gold", {"cpu": 1}, promises_of("LS"), floors.Runtime.PODMAN)
    none = floors.floor_plan(wanted, unified, unified.here, tmp_path / "none")
    assert not list(plan_table.notes(none.facts))
    (tmp_path / "cgroup" / "cgroup.procs").write_text("7\n")
    (tmp_path / "proc" / "7").mkdir()
    (tmp_path / "proc" / "7" / "stat").write_text("7 (a) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 30 0 0\n")
    made = floors.floor_plan(wanted, unified, unified.here, tmp_path / "none")
    (note,) = plan_table.notes(made.facts)
    assert note.startswith("30 threads are in / itself, in no group of their own: ")
    assert note.endswith("; 4, one a CPU, are counted against the floor")
    assert container_json(made)["notes"] == [note]
    console = Console(width=300, record=True)
    plan_table.show_container(made, console, read=True)
    assert "- note: 30 threads are in / itself" in console.export_text()


def test_more_containers_beside_it_weigh_more(unified: PlanNode, tmp_path: Path) -> None:
    few, many = (floor(unified, tmp_path / "none", beside=beside) for beside in (20, 40))
    assert many[0, "cpu.weight"] > few[0, "cpu.weight"]


def test_containers_with_the_same_floor_are_protected_together(unified: PlanNode, tmp_path: Path) -> None:
    made = floor(unified, tmp_path / "none", count=3)
    assert (made[0, "memory.low"], made[1, "memory.low"]) == (2**26, 3 * 2**26)


def test_other_named_floors_are_counted_unless_they_run_already(unified: PlanNode, tmp_path: Path) -> None:
    folder = tmp_path / "floors"
    folder.mkdir()
    entries = [
        (1, "raise", "memory.low", "4096"),
        (0, "set", "memory.low", "4096"),
        (0, "set", "cpu.weight", "300"),
    ]
    cache.write(str(folder), "silver", 0, {cache.ANY: entries})
    (folder / "bad").write_text("not a floor's file")
    made = floor(unified, folder)
    assert made[1, "memory.low"] == 2**26 + 4096
    assert made[0, "cpu.weight"] > floor(unified, tmp_path / "none")[0, "cpu.weight"]
    running = tmp_path / "cgroup" / "libpod_parent" / "libpod-b"
    running.mkdir()
    (running / "cpu.weight").write_text("300\n")
    (running / "memory.low").write_text("4096\n")
    assert floor(unified, folder) == made


def test_two_floors_that_are_more_than_the_machine_are_not_both_promised(
    unified: PlanNode, tmp_path: Path
) -> None:
    folder = tmp_path / "floors"
    folder.mkdir()

    def missing(name: str, cpu: int, parent: str = "") -> list[int]:
        assert unified.here is not None
        wanted = floors.Floor(
            name, {"cpu": cpu}, promises_of("LS"), floors.Runtime.PODMAN, parent=parent, beside=0
        )
        node = replace(unified, machine=replace(unified.machine, files=frozenset({"cpu.weight"})))
        made = floors.floor_plan(wanted, node, unified.here, folder)
        entries = [setting.entry for setting in made.plan.settings]
        cache.write(str(folder), name, 0, {cache.ANY: entries}, floors.parent_of(made), cpu)
        return [short.missing for short in made.plan.shortfalls]

    assert missing("gold", 3000) == []
    (silver,) = missing("silver", 3000)
    assert silver == 2000
    assert missing("gold", 3000), "silver is counted now"
    assert missing("bronze", 1, "elsewhere") == [], "they are no siblings of it"


def test_a_file_says_what_it_promises(run: Path) -> None:
    write(run, "--floor", "gold", "--cpu", "200m")
    write(run, "--floor", "silver", "--memory", "64Mi")
    files = {name: (run / "floors" / name).read_bytes() for name in ("gold", "silver")}
    assert {name: cache.promised(data, name) for name, data in files.items()} == {"gold": 200, "silver": 0}


def test_a_floor_that_runs_is_known_by_what_it_was_given(unified: PlanNode, tmp_path: Path) -> None:
    folder = tmp_path / "floors"
    folder.mkdir()
    entries = [(0, "set", "memory.low", "4096"), (0, "set", "cpu.weight", "300")]
    cache.write(str(folder), "silver", 0, {cache.ANY: entries}, promised=700)
    running = tmp_path / "cgroup" / "libpod_parent" / "libpod-b"
    running.mkdir()
    (running / "cpu.weight").write_text("300\n")
    (running / "memory.low").write_text("4096\n")
    assert unified.here is not None
    wanted = floors.Floor("gold", {"cpu": 1000}, promises_of("LS"), floors.Runtime.PODMAN, beside=0)
    own = floors.floor_plan(wanted, unified, unified.here, folder).facts.levels[-1]
    assert own.rivals == (Rival(100), Rival(300, cpu_floor=700, memory_low=4096))


def test_a_floor_without_a_weight_weighs_what_a_new_cgroup_does(tmp_path: Path) -> None:
    """On cgroup v1 that is not the number that it is on v2."""
    fake = Fake(tmp_path, v1=True, unified=False)
    fake.group("cpu", "libpod_parent", cpu_shares="1024")
    folder = tmp_path / "floors"
    folder.mkdir()
    cache.write(str(folder), "silver", 0, {cache.ANY: [(0, "set", "memory.low", "4096")]})
    here = fake.machine()
    node = PlanNode(here.size(frozenset()), "a test's machine", here)
    wanted = floors.Floor("gold", {"cpu": 1000}, promises_of("LS"), floors.Runtime.PODMAN, beside=0)
    own = floors.floor_plan(wanted, node, here, folder).facts.levels[-1]
    assert own.rivals == (Rival(1024, memory_low=4096),)


OTHER_UID = UID.replace("3c0f", "4d1f")


def test_pods_that_are_planned_together_do_not_get_the_same_cpus(unified: PlanNode, tmp_path: Path) -> None:
    for group in ("kubepods", "kubepods/burstable"):
        (tmp_path / "cgroup" / group).mkdir()
        (tmp_path / "cgroup" / group / "cpu.weight").write_text("10000\n")
    node = replace(unified, machine=replace(unified.machine, files=frozenset({"cpu.weight"})))
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(POD.replace("cpu: 200m", "cpu: 2400m"))
    two.write_text(one.read_text().partition("---")[0].replace(UID, OTHER_UID))

    def missing(*files: Path) -> list[int]:
        found = [each.plan for made in plans(read_objects(files), node) for each in made.containers]
        return [short.missing for made in found for short in made.shortfalls if short.resource == "cpu"]

    assert missing(one) == []
    assert missing(one, two) == [800] * 4, "each in favour of the other: the worst case"


def test_a_pods_file_says_what_the_pod_is_promised(run: Path, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    write(run, tmp_path / "pod.yaml")
    assert cache.promised((run / "pods" / UID).read_bytes(), UID) == 200


def test_pods_that_have_a_file_are_counted_where_they_run(unified: PlanNode, tmp_path: Path) -> None:
    folder = tmp_path / "pods"
    folder.mkdir()
    cache.write(str(folder), UID, 0, {"web": []}, promised=700)
    (folder / "bad").write_text("not a pod's file")
    group = tmp_path / "cgroup" / "kubepods" / "burstable" / f"pod{UID}"
    group.mkdir(parents=True)
    (group / "cpu.weight").write_text("8\n")
    node = replace(unified, promised=promised.read(folder))
    other = NodePod(OTHER_UID, "shop", "other", (Container("web", 100),), BURSTABLE)
    assert node.facts(other, "web").levels[-2].rivals == (Rival(8, cpu_floor=700, cpu_guard=182),)
    itself = replace(other, uid=UID)
    assert all(not one.cpu_floor for level in node.facts(itself, "web").levels for one in level.rivals)
    assert promised.read(tmp_path / "none") == ()


def test_what_is_there_is_listed_and_removed(run: Path) -> None:
    write(run, "--floor", "gold", "--cpu", "200m", "--ttl", 60)
    write(run, "--floor", "silver", "--cpu", "200m")
    (run / "floors" / "bad").write_text("j10ce\t1\tbad\n")
    shown = {
        Path(one["file"]).name: one for one in json.loads(invoke("show", "--run", run, "-o", "json").stdout)
    }
    assert list(shown) == ["bad", "gold", "silver"]
    assert "truncated" in shown["bad"]["problem"] or "size" in shown["bad"]["problem"]
    assert 0 < shown["gold"]["left"] <= 60
    assert shown["silver"]["left"] is None
    assert "for ever" in invoke("show", "--run", run).stdout
    assert invoke("remove", "--floor", "gold", "--run", run).exit_code == 0
    assert not (run / "floors" / "gold").exists()
    assert isinstance(invoke("remove", "--floor", "gold", "--run", run).exception, command.CacheFolderError)


def test_the_default_of_best_effort_pods(run: Path) -> None:
    assert invoke("defaults", "--run", run).exit_code == 0
    _, entries = cache.read(str(run / "defaults"), "BestEffort", cache.ANY, now())
    assert (1, "set", "cpu.idle", "1") in entries
    assert (-1, "set", "oom_score_adj", "1000") in entries


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--floor", "gold", "pod.yaml"],
        ["--floor", "gold", "--cpu", "much"],
        ["--floor", "gold", "--cpu", "-1"],
        ["--floor", "gold", "--class", "XL"],
        ["--floor", "gold", "--class", "BE", "--cpu", "1"],
        ["--floor", "gold", "--count", "0"],
        ["--floor", "gold", "--ttl", "-1"],
    ],
)
def test_wrong_usage_writes_nothing(run: Path, arguments: list[str]) -> None:
    assert invoke("write", *arguments, "--run", run).exit_code == 2
    assert not run.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--floor", "../../etc/x", "--cpu", "1"], "--floor '../../etc/x': a name is a DNS label"),
        (["--floor", "Gold", "--cpu", "1"], "--floor 'Gold': a name is a DNS label"),
        (["--floor", "gold", "--cpu", "1", "--parent", "/a/../b"], "--parent '/a/../b': a path"),
        (["none.yaml"], "none.yaml: cannot be read"),
    ],
)
def test_bad_names_are_refused_in_one_line(run: Path, arguments: list[str], message: str) -> None:
    argv = [str(J10CE), "dev", "cache", "write", *arguments, "--run", str(run)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not run.exists()


@pytest.mark.parametrize("uid", ["", "../../x"])
def test_a_pod_without_a_uid_is_refused(run: Path, tmp_path: Path, uid: str) -> None:
    (tmp_path / "pod.yaml").write_text(POD.replace(UID, repr(uid)))
    done = invoke("write", tmp_path / "pod.yaml", "--run", run)
    assert f"pod.yaml:2: metadata.uid: Pod shop/web: {uid!r} is no uid" in str(done.exception)
    assert not run.exists()


def test_a_folder_that_others_may_write_is_refused(run: Path, tmp_path: Path) -> None:
    run.mkdir(mode=0o700)
    run.chmod(0o777)
    done = invoke("write", "--floor", "gold", "--cpu", "1m", "--run", run)
    assert "mode 0777" in str(done.exception)
    run.chmod(0o700)
    (run / "floors").symlink_to(tmp_path)
    done = invoke("write", "--floor", "gold", "--cpu", "1m", "--run", run)
    assert "is not a folder itself" in str(done.exception)
    assert not (tmp_path / "gold").exists()


@pytest.mark.runtime
def test_the_kernel_takes_what_is_written(run: Path) -> None:
    with scratch("floor") as here:
        here.make("c1")
        (document,) = write(
            run,
            "--floor",
            "gold",
            "--cpu",
            "500m",
            "--runtime",
            "plain",
            "--parent",
            here.name,
            "--beside",
            9,
        )
        _, entries = cache.read(str(run / "floors"), "gold", "c1", now())
        mounts = facts.mounts()
        target = Target(mounts, dict.fromkeys(mounts, here.path("c1")))
        with target:
            outcome = apply(target, entries)
        assert not outcome.refusals
        name, wanted = next((file, value) for _, _, file, value in entries if file.startswith("cpu."))
        assert (here.folder("cpu", "c1") / name).read_text().strip() == wanted
        assert int(wanted) > {"cpu.shares": 1024, "cpu.weight": 100}[name]
        assert document["containers"][0]["cgroup"] == here.path("ID")
