"""Real runtimes, and the hook installed below a folder of the session's, with what it reads and leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hook.installation import entry, imports
from hook.installation.install import Wishes, install
from hook.installation.places import Places
from lab import node_programs
from lab.runtimes import cgroups, oci, rootfs
from lab.runtimes import podman as podman_rig
from lab.runtimes.cgroups import Scratch
from lab.runtimes.installed_hook import PATIENT_SECONDS, InstalledHook, patient
from lab.runtimes.oci import Runtime
from lab.runtimes.podman import Podman


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("runtime")


@pytest.fixture(scope="session")
def _root() -> None:
    if os.geteuid() != 0:
        pytest.skip("containers of these tests are root's: run them as root")


def j10ce_hook(programs: Path, *arguments: str | Path) -> None:
    """`j10ce hook ...`, with ctr on PATH, which knows containerd's default spec."""
    environ = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    argv = [Path(sys.executable).with_name("j10ce"), "hook", *arguments]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def installed(_root: None, programs: Path, tmp_path_factory: pytest.TempPathFactory) -> InstalledHook:
    """The hook as `j10ce hook install --containerd` puts it there, with time enough on any machine."""
    root, sources = tmp_path_factory.mktemp("node"), patient(imports.sources())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(imports, "sources", lambda: sources)
        patched.setattr(entry, "TIMEOUT_SECONDS", PATIENT_SECONDS)
        patched.setenv("PATH", str(programs), prepend=os.pathsep)
        install(Places(root), Wishes(containerd=True))
    return InstalledHook(root)


@pytest.fixture
def soon_gone(programs: Path, tmp_path: Path) -> tuple[InstalledHook, Callable[[], None]]:
    """Another installation, by the command itself, and what uninstalls it."""
    j10ce_hook(programs, "install", "--root", tmp_path, "--containerd")
    hook = InstalledHook(tmp_path)
    hook.configure("budget-ms 1500\n")
    return hook, lambda: j10ce_hook(programs, "uninstall", "--root", tmp_path)


@pytest.fixture
def hook(installed: InstalledHook) -> Iterator[InstalledHook]:
    """The installed hook with nothing to read yet; it fails open."""
    installed.clear()
    yield installed
    installed.clear()


@pytest.fixture
def scratch(_root: None) -> Iterator[Scratch]:
    with cgroups.scratch("runtime") as made:
        if cgroups.is_v2(made.mounts):
            pytest.skip("these tests read files of cgroup v1; those of tests/kernel are for v2")
        yield made


@pytest.fixture(scope="session")
def busybox(_root: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system that all containers share, read-only."""
    return rootfs.make(tmp_path_factory.mktemp("rootfs"))


@pytest.fixture(scope="session")
def runtimes(_root: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Runtime]]:
    folder = tmp_path_factory.mktemp("oci")
    with oci.crun(folder / "crun") as crun:
        yield {"runc": oci.runc(folder / "runc"), "crun": crun}


@pytest.fixture(params=["runc", "crun"])
def runtime(request: pytest.FixtureRequest, runtimes: dict[str, Runtime]) -> Runtime:
    return runtimes[request.param]


@pytest.fixture(scope="session", params=["runc", "crun"])
def podman(
    request: pytest.FixtureRequest, runtimes: dict[str, Runtime], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Podman]:
    """podman with each of the two; Debian's takes crun unless it is told otherwise."""
    with podman_rig.podman(tmp_path_factory.mktemp("podman"), runtimes[request.param]) as made:
        yield made


@pytest.fixture(scope="session")
def programs(_root: None) -> Path:
    """containerd, crictl ...: `make runtimes` builds them, and so does the first test that needs them."""
    return node_programs.provide(os.environ, lambda _what, _done, _total: None)
