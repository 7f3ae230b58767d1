"""The hook under runc, crun and podman: the floor is there from birth, and contention shows it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from adapters.machine import ThisMachine
from lab.contention import measures, work
from lab.contention.groups import Group, Tree
from lab.contention.node import Node, best_effort, container_id, path, pod, small
from lab.contention.work import Load
from lab.runtimes import bundle, oci, rootfs
from lab.runtimes.bundle import Spec
from lab.runtimes.installed_hook import InstalledHook, from_sources
from lab.runtimes.podman import podman
from qos.classes import promises_of
from qos.keys import CPU, MEMORY
from qos.plan import layout
from qos.plan.assumed import standalone_facts
from qos.plan.planning import plan
from qos.plan.settings import Plan
from qos.pods.containers import BURSTABLE, GUARANTEED, Container

CPUS = 2
FLOOR = {CPU: 200, MEMORY: 32 << 20}
NEARLY = 0.95
SHOW_AND_SPIN = """
cat /sys/fs/cgroup/cpu.weight /sys/fs/cgroup/memory.low
for cpu in 0 1; do busybox taskset -c $cpu sh -c "while :; do :; done" & done
wait
"""


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> InstalledHook:
    return from_sources(tmp_path_factory.mktemp("hook"), Path("/work"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def at_birth(planned: Plan) -> list[str]:
    """What the container's own files must say."""
    values = {setting.file: setting.value for setting in planned.settings if setting.level == 0}
    return [values["cpu.weight"], values["memory.low"]]


def first_numbers(log: Path) -> list[str]:
    """What the container has printed (podman's log has more on each line)."""

    def numbers() -> list[str]:
        return [word for word in log.read_text().split() if word.isdigit()] if log.exists() else []

    work.wait_until(lambda: len(numbers()) >= 2, f"the container prints ({log})")
    return numbers()


def keeps_its_floor(app: Group, rivals: list[Group]) -> bool:
    least = NEARLY * FLOOR[CPU] / 1000
    return measures.cpus_used([app, *rivals], CPUS, lambda used: used[0] >= least)[0] >= least


@pytest.mark.parametrize("name", ["runc", "crun"])
def test_a_pods_container(
    name: str, hook: InstalledHook, stack: ExitStack, tmp_path: Path, node: Node, tree: Tree, load: Load
) -> None:
    ours = pod("ours", BURSTABLE, Container("app", cpu_request=200, memory_request=32 << 20))
    neighbours = [best_effort("batch"), *small(BURSTABLE, 24)]
    rivals = [*node.slices(), *(node.start(one)["app"] for one in neighbours)]
    for group in rivals:
        load.spin(group, CPUS)
    node.admit(ours)
    planned = plan(ours, "app", promises_of("LS"), FLOOR, node.facts(ours, "app"))
    hook.pod(ours.uid, {"app": [setting.entry for setting in planned.settings]})

    own = container_id(ours, "app")
    spec = Spec(
        args=("sh", "-c", SHOW_AND_SPIN),
        hooks={"createRuntime": [hook.entry]},
        annotations={
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.container-name": "app",
            "io.kubernetes.cri.sandbox-uid": ours.uid,
        },
        cgroups_path=path(ours, "app"),
        resources={"cpu": {"shares": layout.shares(200)}},
    )
    runtime = (
        oci.runc(tmp_path / "state") if name == "runc" else stack.enter_context(oci.crun(tmp_path / "state"))
    )
    where = bundle.make(tmp_path / "bundle", rootfs.make(tmp_path / "rootfs"), spec)
    runtime.create(where, own, tmp_path / "log").succeeded()
    stack.callback(runtime.delete, own)
    runtime.start(own).succeeded()

    assert hook.missed() == {}
    assert first_numbers(tmp_path / "log") == at_birth(planned)
    app = tree.make(path(ours, "app"))
    above = [app.folder.parent, app.folder.parent.parent, app.folder.parent.parent.parent]
    assert all(int((folder / "memory.low").read_text()) >= FLOOR[MEMORY] for folder in above)
    assert keeps_its_floor(app, rivals)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name is short enough for podman."""
    with tempfile.TemporaryDirectory(prefix="p-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def test_podman(
    hook: InstalledHook, short: Path, stack: ExitStack, tmp_path: Path, tree: Tree, load: Load
) -> None:
    web = pod("web", GUARANTEED, Container("web", cpu_request=200, memory_request=32 << 20))
    rivals = [tree.make(name) for name in ("system.slice", "user.slice", "floors/rival")]
    for group in rivals:
        load.spin(group, CPUS)
    machine = ThisMachine()
    expected = standalone_facts(
        machine.size(frozenset()), layout.podman_paths("ID", layout.Driver.CGROUPFS, "/floors"), 0
    )
    planned = plan(web, "web", promises_of("LS"), FLOOR, machine.observed(expected))
    assert planned.shortfalls == ()
    hook.floor("web", [setting.entry for setting in planned.settings], "/floors")

    engine = stack.enter_context(podman(short))
    started = engine.run(
        ("sh", "-c", SHOW_AND_SPIN),
        cgroup_parent="/floors",
        hooks=hook.hooks_dir,
        annotations={"j10ce.io/floor": "web"},
        options=(
            "--detach",
            "--name",
            "web",
            "--log-driver",
            "k8s-file",
            "--log-opt",
            f"path={tmp_path}/log",
        ),
    ).succeeded()
    identity = started.stdout.strip()

    assert hook.missed() == {}
    assert first_numbers(tmp_path / "log") == at_birth(planned)
    assert keeps_its_floor(tree.make(f"floors/libpod-{identity}"), rivals)
