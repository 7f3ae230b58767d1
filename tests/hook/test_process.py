"""The hook's process on real cgroups: what it writes, and that it writes nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hook.installation import imports, tree
from hook.process import KILLED_AFTER
from kernel.cache import Entry
from lab.runtimes.installed_hook import patient
from tests.waiting import until

if TYPE_CHECKING:
    from conftest import Container, Containers, Node, Untouched

pytestmark = pytest.mark.runtime

Floor = list[Entry]


def values(container: Container, floor: Floor) -> list[str]:
    return [container.read(file) for _, _, file, _ in floor]


def wanted(floor: Floor) -> list[str]:
    return [value for _, _, _, value in floor]


def groups(container: Container, floor: Floor) -> list[Path]:
    return [container.file(file).parent for _, _, file, _ in floor]


def of_pod(container: Container, uid: str, **more: str) -> str:
    annotations = {"io.kubernetes.cri.container-name": "app", "io.kubernetes.cri.sandbox-uid": uid}
    annotations["io.kubernetes.cri.container-type"] = "container"
    return container.state(annotations=annotations | more)


def test_a_named_floor(
    python: Path, node: Node, containers: Containers, floor: Floor, untouched: Untouched
) -> None:
    """On every Python, of which one alone has bytecode made for it: as after an upgrade."""
    container = containers.plain()
    node.entries("floors", "web", {"*": floor})
    done = node.run(container.state(annotations={"j10ce.io/floor": "web"}), python)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert values(container, floor) == wanted(floor)
    untouched.check(*groups(container, floor))
    with pytest.raises(AssertionError):  # it would notice
        untouched.check()
    assert node.missed() == {}


def test_code_compiled_for_each_python(
    python: Path, node: Node, containers: Containers, floor: Floor, tmp_path: Path
) -> None:
    """Installed with --python: loaded from that interpreter's bundle alone, whose sources are gone."""
    node.code = tree.put(tmp_path, patient(imports.sources()), python)
    for path in (*node.code.rglob("kernel/*"), node.code / "hook" / "program.py"):
        path.unlink() if path.is_file() else shutil.rmtree(path)
    container = containers.plain()
    node.entries("floors", "web", {"*": floor})
    done = node.run(container.state(annotations={"j10ce.io/floor": "web"}), python)
    assert (done.returncode, done.stderr) == (0, "")
    assert values(container, floor) == wanted(floor)


def test_a_pods_container(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, uid: str
) -> None:
    container = containers.pod(uid)
    node.entries("pods", uid, {"app": floor, "*": []})
    done = node.run(of_pod(container, uid))
    assert (done.returncode, done.stderr) == (0, "")
    assert values(container, floor) == wanted(floor)
    untouched.check(*groups(container, floor))


def test_a_process_below_its_container(node: Node, containers: Containers, floor: Floor) -> None:
    """As crun leaves it with systemd."""
    container = containers.plain()
    below = containers.scratch.make(*container.parts, "container")
    for folder in below.folders():
        (folder / "cgroup.procs").write_text(str(container.pid))
    node.entries("floors", "web", {"*": floor})
    assert node.run(container.state(annotations={"j10ce.io/floor": "web"})).returncode == 0
    assert values(container, floor) == wanted(floor)


def test_a_pods_container_without_a_name(node: Node, containers: Containers, floor: Floor, uid: str) -> None:
    """A runtime that does not say which container it is: what is for any."""
    container = containers.pod(uid)
    node.entries("pods", uid, {"app": [], "*": floor})
    done = node.run(container.state())
    assert (done.returncode, done.stderr) == (0, "")
    assert values(container, floor) == wanted(floor)


def test_the_default_of_its_class_on_a_miss(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, uid: str
) -> None:
    container = containers.pod(uid, "besteffort")
    node.entries("defaults", "BestEffort", {"*": floor})
    node.entries("defaults", "Burstable", {"*": [(0, "set", floor[0][2], "2")]})
    done = node.run(of_pod(container, uid))
    assert (done.returncode, done.stderr) == (0, "")
    assert values(container, floor) == wanted(floor)
    assert "no such file" in node.missed()[container.id]
    untouched.check(*groups(container, floor))


def test_no_default_where_the_namespace_opts_out(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, uid: str
) -> None:
    container = containers.pod(uid, "besteffort")
    node.entries("defaults", "BestEffort", {"*": floor})
    (node.places.run / "opted-out").mkdir()
    (node.places.run / "opted-out" / "legacy").touch()
    done = node.run(of_pod(container, uid, **{"io.kubernetes.cri.sandbox-namespace": "legacy"}))
    assert (done.returncode, done.stderr) == (0, "")
    untouched.check()
    node.run(of_pod(container, uid, **{"io.kubernetes.cri.sandbox-namespace": "../opted-out/legacy"}))
    assert values(container, floor) == wanted(floor), "no name of a namespace"


def test_a_container_without_a_policy(node: Node, containers: Containers, untouched: Untouched) -> None:
    container = containers.plain()
    done = node.run(container.state())
    assert (done.returncode, done.stderr, node.missed()) == (0, "", {})
    untouched.check()


def test_a_sandbox_is_left_alone(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, uid: str
) -> None:
    container = containers.pod(uid)
    node.entries("pods", uid, {"*": floor})
    done = node.run(of_pod(container, uid, **{"io.kubernetes.cri.container-type": "sandbox"}))
    assert (done.returncode, done.stderr, node.missed()) == (0, "", {})
    untouched.check()


def test_one_refused_setting_undoes_all(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched
) -> None:
    container = containers.plain()
    before = values(container, floor)
    parent = container.scratch.path(*container.parts[:-1])
    node.entries("floors", "web", {"*": [*floor, (9, "set", floor[0][2], "77")]}, parent=parent)
    done = node.run(container.state(annotations={"j10ce.io/floor": "web"}))
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "level 9 is not below the root" in done.stderr
    assert "it starts all the same (fail open)" in done.stderr
    assert values(container, floor) == before
    assert "level 9" in node.missed()[container.id]
    untouched.check()


@pytest.mark.parametrize("fail", ["open", "closed"])
@pytest.mark.parametrize("what", ["garbage", "empty", "huge", "no pid"])
def test_a_state_that_is_none(
    node: Node, containers: Containers, untouched: Untouched, what: str, fail: str
) -> None:
    node.config(f"fail {fail}\n")
    state = {"garbage": "\0\x7f{{", "empty": "", "no pid": '{"id": "c1"}'}.get(what, " " * 3_000_000)
    done = node.run(state)
    assert done.returncode == (fail == "closed")
    assert done.stderr.count("\n") == 1
    assert "the state on stdin" in done.stderr
    assert ("must not start" in done.stderr) == (fail == "closed")
    untouched.check()


@pytest.mark.parametrize("fail", ["open", "closed"])
def test_a_stdin_that_never_ends(node: Node, untouched: Untouched, fail: str) -> None:
    node.config(f"fail {fail}\nbudget-ms 100\n")
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stdin, os.fdopen(writer, "wb"):

        def in_time() -> bool:
            begun = time.monotonic()
            done = node.run(stdin)
            assert done.returncode == (fail == "closed")
            assert "no end within the budget" in done.stderr
            return time.monotonic() - begun < KILLED_AFTER

        until(in_time, "the hook ends before the runtime would kill it")  # unless the machine stood still
    untouched.check()


@pytest.mark.parametrize("closed", [0, 2], ids=["stdin", "stderr"])
def test_a_closed_descriptor(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, closed: int
) -> None:
    container = containers.plain()
    argv = ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *node.argv()]
    state = container.state(annotations={"j10ce.io/floor": "../x"})
    done = subprocess.run(argv, input=state, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0
    assert ("the state on stdin" in done.stderr) == (closed == 0)
    assert ("is no floor's name" in "".join(node.missed().values())) == (closed == 2)
    untouched.check()


def test_signals_that_are_blocked(node: Node, containers: Containers, floor: Floor) -> None:
    """As crun starts its hooks: the work is done all the same."""
    container = containers.plain()
    node.entries("floors", "web", {"*": floor})

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    state = container.state(annotations={"j10ce.io/floor": "web"})
    assert node.run(state, preexec_fn=block).returncode == 0
    assert values(container, floor) == wanted(floor)


@pytest.mark.parametrize("damage", ["bundle", "module", "package", "all"])
def test_a_damaged_installation_starts_containers(
    node: Node, containers: Containers, floor: Floor, damage: str, tmp_path: Path, untouched: Untouched
) -> None:
    container = containers.plain()
    node.config("fail closed\n")
    node.entries("floors", "web", {"*": floor})
    node.code = shutil.copytree(node.code, tmp_path / "copy")
    bundle = next(node.code.glob("*.bundle"))
    if damage == "bundle":
        bundle.write_bytes(bundle.read_bytes()[:1000])
    elif damage == "module":
        bundle.unlink()
        (node.code / "kernel" / "apply.py").unlink()
        next((node.code / "kernel" / "__pycache__").glob("apply.*")).write_bytes(b"")
    elif damage == "package":
        bundle.unlink()
        shutil.rmtree(node.code / "hook")
    else:
        shutil.rmtree(node.code)
    done = node.run(container.state(annotations={"j10ce.io/floor": "web"}))
    assert done.returncode == 0
    if damage == "bundle":  # the modules are still there, each by itself
        assert (values(container, floor), done.stderr) == (wanted(floor), "")
    else:
        assert "it starts all the same" in done.stderr
        untouched.check()


def test_settings_of_others_than_root_are_not_heeded(
    node: Node, containers: Containers, untouched: Untouched
) -> None:
    node.config("fail closed\n")
    node.places.config.chmod(0o666)
    done = node.run("garbage")
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "not a file that root alone may write" in done.stderr
    assert "the state on stdin is not JSON" in done.stderr
    untouched.check()


def test_the_process_leaves_no_child(node: Node, containers: Containers, floor: Floor) -> None:
    container = containers.plain()
    node.entries("floors", "web", {"*": floor})
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: it would show the hook's system calls")
    argv = [strace, "-f", "-qq", "-e", "trace=process", *node.argv()]
    state = container.state(annotations={"j10ce.io/floor": "web"})
    done = subprocess.run(argv, input=state, capture_output=True, text=True, check=True, timeout=60)
    assert "execve(" in done.stderr
    assert not [line for line in done.stderr.splitlines() if line.startswith(("clone", "fork", "vfork"))]
    assert values(container, floor) == wanted(floor)
