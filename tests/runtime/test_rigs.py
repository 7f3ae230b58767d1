"""The rigs themselves: what they set up is gone after them, and what is missing is said."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from lab.runtimes import bundle, cgroups, oci
from lab.runtimes import containerd as containerd_rig
from lab.runtimes.bundle import Spec
from lab.runtimes.cri import Container, Pod
from lab.runtimes.podman import Podman
from lab.runtimes.programs import RuntimesError
from tests.waiting import until

UID = "0a1b2c3d-0000-4000-8000-000000000009"


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that name a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found += [line] if str(folder) in line else []
    return found


def leftovers(name: str) -> list[Path]:
    """cgroups of that name in any hierarchy."""
    mounts = cgroups.hierarchies(Path("/proc/self/mountinfo").read_text())
    return [found for mount in mounts.values() if (found := Path(f"{mount}{name}")).exists()]


def test_a_scratch_cgroup_ends_what_runs_in_it(
    runtimes: dict[str, oci.Runtime], busybox: Path, tmp_path: Path
) -> None:
    runc = runtimes["runc"]
    with cgroups.scratch("rig") as scratch:
        made = bundle.make(tmp_path, busybox, Spec(("sleep", "1000"), cgroups_path=scratch.path("a", "b")))
        runc.create(made, "rig", tmp_path / "log").succeeded()
        runc.start("rig").succeeded()
        assert runc.state("rig")["status"] == "running"
        assert scratch.below() == ["a", "a/b"]
    assert leftovers(scratch.name) == []
    runc.delete("rig")
    assert runc.containers() == []


def test_a_runtimes_own_words_are_kept(runtime: oci.Runtime, busybox: Path, tmp_path: Path) -> None:
    made = bundle.make(tmp_path, busybox, Spec(("no-such-program",)))
    done = runtime.run(made, "rig")
    with pytest.raises(RuntimesError, match="no-such-program"):
        done.succeeded()


def test_the_v1_view_ends_with_its_block(tmp_path: Path) -> None:
    with oci.crun(tmp_path) as crun:
        if not crun.prefix:
            pytest.skip("this machine is not hybrid: crun needs no view")
        holder = Path(crun.prefix[1].removeprefix("--mount=")).parents[1]
        assert holder.exists()
    assert not holder.exists()


def test_podman_leaves_no_container(podman: Podman) -> None:
    with cgroups.scratch("rig") as scratch:
        options = ("--detach", "--name", "stays")
        podman.run(("sleep", "1000"), cgroup_parent=scratch.name, options=options).succeeded()
        assert [path for path in scratch.below() if "libpod-" in path]
        podman.remove_all()
        until(lambda: not [path for path in scratch.below() if "libpod-" in path], "no container is left")
    assert leftovers(scratch.name) == []


def test_containerd_leaves_nothing(programs: Path) -> None:
    with cgroups.scratch("rig") as scratch:
        with containerd_rig.containerd(programs) as running:
            parent = scratch.make(f"pod{UID}")
            pod = Pod("stays", UID, parent.name)
            container = Container("app", ("sleep", "1000"))
            identity = running.cri.create(running.cri.run_pod(pod), pod, container)
            running.cri.start(identity).succeeded()
            assert len(scratch.below()) == 3  # the pod, its sandbox, its container
        until(lambda: not processes_of(running.folder), "a killed process may take a moment")
        assert str(running.folder) not in Path("/proc/self/mountinfo").read_text()
        assert not running.folder.exists()
    assert leftovers(scratch.name) == []


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimesError, match=r"has no containerd, .*crictl: `make runtimes` builds"),
        containerd_rig.containerd(tmp_path),
    ):
        pass
