"""runc and crun with the hook in a bundle's config.json: the floor is there before the first instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lab.runtimes import bundle
from lab.runtimes.bundle import Spec
from lab.runtimes.cgroups import Scratch
from lab.runtimes.installed_hook import InstalledHook
from lab.runtimes.oci import Runtime
from lab.runtimes.programs import Finished

SOFT = "/sys/fs/cgroup/memory/memory.soft_limit_in_bytes"
SHARES = "/sys/fs/cgroup/cpu/cpu.shares"
UNLIMITED = "9223372036854771712"
FLOOR = ((0, "set", "cpu.shares", "777"), (0, "set", "memory.soft_limit_in_bytes", "33554432"))
UID = "0a1b2c3d-0000-4000-8000-000000000001"
OTHER = "0a1b2c3d-0000-4000-8000-000000000002"

Start = Callable[..., Finished]


@pytest.fixture
def start(runtime: Runtime, hook: InstalledHook, scratch: Scratch, busybox: Path, tmp_path: Path) -> Start:
    """Run a container that prints, as its first act, what its cgroup says: start(annotations, *parents)."""

    def run(annotations: Mapping[str, str], *parents: str) -> Finished:
        spec = Spec(
            args=("cat", SHARES, SOFT),
            hooks={"createRuntime": [hook.entry]},
            annotations=annotations,
            cgroups_path=scratch.path(*parents, "c1"),
        )
        return runtime.run(bundle.make(tmp_path / "bundle", busybox, spec), "c1")

    return run


def of_pod(uid: str = UID, **more: str) -> dict[str, str]:
    """What containerd says of a container."""
    return {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": "app",
        "io.kubernetes.cri.sandbox-uid": uid,
        "io.kubernetes.cri.sandbox-namespace": "default",
    } | more


def test_a_named_floor(hook: InstalledHook, start: Start, scratch: Scratch, runtime: Runtime) -> None:
    hook.floor("web", FLOOR)
    done = start({"j10ce.io/floor": "web"})
    assert (done.code, done.stdout.split()) == (0, ["777", "33554432"])
    assert hook.missed() == {}
    assert scratch.below() == []
    assert runtime.containers() == []


def test_the_floor_of_a_pods_container(hook: InstalledHook, start: Start) -> None:
    hook.pod(UID, {"app": FLOOR, "sidecar": [(0, "set", "cpu.shares", "2")]})
    done = start(of_pod(), "kubepods", "burstable", f"pod{UID}")
    assert (done.code, done.stdout.split()) == (0, ["777", "33554432"])


def test_the_pods_own_cgroup_is_raised(hook: InstalledHook, start: Start, scratch: Scratch) -> None:
    pod = scratch.make("kubepods", "burstable", f"pod{UID}")
    hook.pod(UID, {"app": [(1, "set", "cpu.shares", "555"), (2, "raise", "cpu.shares", "4096"), *FLOOR]})
    done = start(of_pod(), "kubepods", "burstable", f"pod{UID}")
    assert (done.code, done.stdout.split()) == (0, ["777", "33554432"])
    assert (pod.folder("cpu") / "cpu.shares").read_text() == "555\n"
    assert (scratch.folder("cpu", "kubepods", "burstable") / "cpu.shares").read_text() == "4096\n"


def test_without_an_entry_the_class_counts(hook: InstalledHook, start: Start) -> None:
    hook.default("Burstable", FLOOR)
    done = start(of_pod(), "kubepods", "burstable", f"pod{UID}")
    assert (done.code, done.stdout.split()) == (0, ["777", "33554432"])
    assert f"pod\t{UID}\ncontainer\tapp\n" in hook.missed()["c1"]


def test_the_sandbox_is_skipped(hook: InstalledHook, start: Start) -> None:
    hook.pod(UID, {"*": FLOOR})
    hook.fail("closed")
    sandbox = of_pod() | {"io.kubernetes.cri.container-type": "sandbox"}
    done = start(sandbox, "kubepods", "burstable", f"pod{UID}")
    assert (done.code, done.stdout.split()) == (0, ["1024", UNLIMITED])
    assert hook.missed() == {}


def test_fail_open(hook: InstalledHook, start: Start) -> None:
    hook.floor("web", FLOOR)
    (hook.run / "floors" / "web").chmod(0o644)
    done = start({"j10ce.io/floor": "web"})
    assert (done.code, done.stdout.split()) == (0, ["1024", UNLIMITED])
    assert "mode 0600" in hook.missed()["c1"]


def test_fail_closed(hook: InstalledHook, start: Start, scratch: Scratch, runtime: Runtime) -> None:
    hook.floor("web", FLOOR)
    (hook.run / "floors" / "web").chmod(0o644)
    hook.fail("closed")
    done = start({"j10ce.io/floor": "web"})
    assert (done.code != 0, done.stdout) == (True, "")
    if runtime.name == "runc":  # crun says only that a hook failed
        assert "mode 0600" in done.stderr
    assert scratch.below() == []
    assert runtime.containers() == []


@pytest.mark.parametrize("key", ["io.kubernetes.pod.uid", "io.kubernetes.cri.sandbox-uid"])
def test_the_uid_of_another_pod(key: str, hook: InstalledHook, start: Start, scratch: Scratch) -> None:
    """It gets what is for any container of its own pod, and the other pod's cgroups stay as they are."""
    scratch.make("kubepods", "burstable", f"pod{OTHER}", "neighbour")
    hook.pod(OTHER, {"*": [(1, "set", "cpu.shares", "9999"), *FLOOR]})
    hook.pod(UID, {"*": FLOOR})
    before = scratch.snapshot()
    done = start(of_pod() | {key: OTHER}, "kubepods", "burstable", f"pod{UID}")
    assert (done.code, done.stdout.split()) == (0, ["777", "33554432"])
    assert [key in text for text in hook.missed().values()] == ([True] if "cri" in key else [])
    assert before.items() <= scratch.snapshot().items()


def test_a_floor_for_plain_containers_is_not_for_pods(hook: InstalledHook, start: Start) -> None:
    hook.floor("web", FLOOR)
    done = start(of_pod() | {"j10ce.io/floor": "web"}, "kubepods", "besteffort", f"pod{UID}")
    assert (done.code, done.stdout.split()) == (0, ["1024", UNLIMITED])


@pytest.mark.parametrize("name", ["../pods/" + UID, "/etc/passwd", "", "UPPER", "a" * 64])
def test_an_annotation_is_no_path(name: str, hook: InstalledHook, start: Start) -> None:
    hook.pod(UID, {"*": FLOOR})
    done = start({"j10ce.io/floor": name})
    assert (done.code, done.stdout.split()) == (0, ["1024", UNLIMITED])
    assert "no floor's name" in hook.missed()["c1"]


def test_huge_annotations(hook: InstalledHook, start: Start) -> None:
    """Four times what Kubernetes allows."""
    hook.pod(UID, {"*": FLOOR})
    done = start(of_pod(big="x" * 1_000_000), "kubepods", "burstable", f"pod{UID}")
    assert (done.code, done.stdout.split()) == (0, ["777", "33554432"])


@pytest.mark.parametrize("length", [1, 1_000_000])
def test_a_hook_that_is_gone(
    length: int, runtime: Runtime, hook: InstalledHook, busybox: Path, tmp_path: Path
) -> None:
    """Who calls the runtime may name it still."""
    entry = hook.entry
    entry["args"][5] = str(tmp_path / "nowhere")
    spec = Spec(("echo", "ran"), {"createRuntime": [entry]}, {"big": "x" * length})
    done = runtime.run(bundle.make(tmp_path / "bundle", busybox, spec), "gone")
    assert (done.code, done.stdout) == (0, "ran\n")


def test_a_state_longer_than_the_hook_takes(hook: InstalledHook, start: Start) -> None:
    """crun would die of SIGPIPE if the hook ended before it has read the whole state."""
    hook.pod(UID, {"*": FLOOR})
    done = start(of_pod(big="x" * 3_000_000), "kubepods", "burstable", f"pod{UID}")
    assert (done.code, done.stdout.split()) == (0, ["1024", UNLIMITED])
