"""Lies, damage and accidents: a clear outcome each, and nothing outside the container's cgroup is touched."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel.cache import Entry

if TYPE_CHECKING:
    from conftest import Container, Containers, Node, Untouched

pytestmark = pytest.mark.runtime

Floor = list[Entry]
FLOOR = {"j10ce.io/floor": "web"}


@pytest.fixture(params=["open", "closed"])
def fail(request: pytest.FixtureRequest, node: Node) -> str:
    node.config(f"fail {request.param}\n")
    return str(request.param)


def outcome(done: subprocess.CompletedProcess[str], fail: str, why: str) -> None:
    """One line that says why, and the exit code that the administrator chose."""
    assert done.returncode == (fail == "closed"), done.stderr
    assert done.stderr.count("\n") == 1
    assert why in done.stderr
    assert ("must not start" in done.stderr) == (fail == "closed")


def of_pod(container: Container, uid: str, **more: str) -> str:
    annotations = {"io.kubernetes.cri.container-name": "app", "io.kubernetes.cri.sandbox-uid": uid}
    return container.state(annotations=annotations | more)


def test_a_runtime_that_names_another_pod(
    node: Node,
    containers: Containers,
    floor: Floor,
    untouched: Untouched,
    fail: str,
    uid: str,
    other_uid: str,
) -> None:
    """What is for any container of the pod in its path, and nothing of the other."""
    container = containers.pod(uid)
    file, before = floor[0][2], container.read(floor[0][2])
    node.entries("pods", uid, {"app": floor, "*": [(0, "set", file, "99")]})
    node.entries("pods", other_uid, {"*": floor})
    key = "io.kubernetes.cri.sandbox-uid"
    outcome(node.run(of_pod(container, other_uid)), fail, f"annotation {key} is not the pod uid")
    assert container.read(file) == ("99" if fail == "open" else before)
    assert container.id in node.missed()
    untouched.check(container.file(file).parent)


CONTAINERDS = {"sandbox-uid": "x", "container-name": "other", "container-type": "sandbox"}


@pytest.mark.parametrize("forged", CONTAINERDS)
def test_a_pod_on_crio_that_adds_annotations_of_containerd(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, fail: str, uid: str, forged: str
) -> None:
    """CRI-O passes them on: they take nothing off."""
    identity = secrets.token_hex(8)
    container = containers.at(identity, "kubepods", "besteffort", f"pod{uid}", f"crio-{identity}")
    node.entries("defaults", "BestEffort", {"*": floor})
    annotations = {"io.kubernetes.pod.uid": uid, "io.kubernetes.container.name": "app"}
    annotations |= {f"io.kubernetes.cri.{forged}": CONTAINERDS[forged]}
    done = node.run(container.state(annotations=annotations))
    assert (done.returncode, done.stderr) == (0, "")
    assert [container.read(file) for _, _, file, _ in floor] == [value for _, _, _, value in floor]
    untouched.check(*(container.file(file).parent for _, _, file, _ in floor))


@pytest.mark.parametrize(
    "forged",
    [
        {"io.kubernetes.cri.container-type": "sandbox"},
        {"io.kubernetes.cri-o.ContainerType": "sandbox"},
        {"io.kubernetes.cri.sandbox-uid": "x", "io.kubernetes.cri.sandbox-namespace": "kube-system"},
    ],
)
def test_an_image_that_says_it_is_a_pods(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, fail: str, forged: dict[str, str]
) -> None:
    """podman passes on an image's annotations: they take nothing off."""
    container = containers.plain()
    node.entries("defaults", "Plain", {"*": floor})
    done = node.run(container.state(annotations=forged))
    assert (done.returncode, done.stderr) == (0, "")
    assert [container.read(file) for _, _, file, _ in floor] == [value for _, _, _, value in floor]
    untouched.check(*(container.file(file).parent for _, _, file, _ in floor))


@pytest.mark.parametrize("name", ["../pods/x", "/etc/passwd", "a/b", "..", "", "web\0", "w" * 64])
def test_a_floor_that_is_no_name(
    node: Node, containers: Containers, untouched: Untouched, fail: str, name: str
) -> None:
    container = containers.plain()
    done = node.run(container.state(annotations={"j10ce.io/floor": name}))
    outcome(done, fail, "annotation j10ce.io/floor is no floor's name")
    untouched.check()


@pytest.mark.parametrize("planned", ["/elsewhere", ""], ids=["another parent", "no parent"])
def test_a_floor_that_was_planned_for_another_parent(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, fail: str, planned: str
) -> None:
    """As with another --cgroup-parent: what is above is not what was planned, and stays."""
    container = containers.plain()
    file, before = floor[0][2], container.read(floor[0][2])
    node.entries("floors", "web", {"*": [(1, "raise", file, "4096"), (0, "set", file, "99")]}, parent=planned)
    outcome(
        node.run(container.state(annotations=FLOOR)),
        fail,
        f"its settings are for {planned or 'no parent'}: those above its own are left out",
    )
    assert container.read(file) == ("99" if fail == "open" else before)
    assert "are left out" in node.missed()[container.id]
    untouched.check(container.file(file).parent)


def test_a_floor_with_its_parent(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, fail: str
) -> None:
    container = containers.plain()
    file, parent = floor[0][2], container.scratch.path(*container.parts[:-1])
    node.entries("floors", "web", {"*": [(1, "raise", file, "4096"), *floor]}, parent=parent)
    done = node.run(container.state(annotations=FLOOR))
    assert (done.returncode, done.stderr) == (0, "")
    assert container.file(file, level=1).read_text().strip() == "4096"
    untouched.check(
        container.file(file, level=1).parent, *(container.file(name).parent for _, _, name, _ in floor)
    )


def test_a_pod_that_names_a_floor_gets_none(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, fail: str, uid: str
) -> None:
    """A plain miss: no failure, whatever the administrator chose."""
    container = containers.pod(uid)
    node.entries("floors", "web", {"*": floor})
    done = node.run(of_pod(container, uid, **FLOOR))
    assert (done.returncode, done.stderr) == (0, "")
    assert "no such file" in node.missed()[container.id]
    untouched.check()


def test_a_pod_that_asks_to_fail_closed(
    node: Node, containers: Containers, untouched: Untouched, uid: str
) -> None:
    container = containers.pod(uid)
    done = node.run(of_pod(container, uid, **{"j10ce.io/hook-fail": "closed"}))
    outcome(done, "closed", "no such file")
    untouched.check()


def test_a_pod_cannot_ask_to_fail_open(
    node: Node, containers: Containers, untouched: Untouched, uid: str
) -> None:
    node.config("fail closed\n")
    path = node.entries("pods", uid, {"*": []})
    path.write_text("damaged")
    container = containers.pod(uid)
    done = node.run(of_pod(container, uid, **{"j10ce.io/hook-fail": "open"}))
    outcome(done, "closed", "truncated")
    untouched.check()


@pytest.mark.parametrize("namespace", ["kube-system", "ours"])
def test_an_exempt_namespace_starts_whatever_happens(
    node: Node, containers: Containers, untouched: Untouched, uid: str, namespace: str
) -> None:
    node.config("fail closed\nexempt-namespace ours\n")
    node.entries("pods", uid, {"*": []}).write_text("damaged")
    container = containers.pod(uid)
    done = node.run(of_pod(container, uid, **{"io.kubernetes.cri.sandbox-namespace": namespace}))
    outcome(done, "open", "truncated")
    untouched.check()


def test_a_static_pod_starts_whatever_happens(
    node: Node, containers: Containers, untouched: Untouched
) -> None:
    node.config("fail closed\n")
    static = secrets.token_hex(16)
    node.entries("pods", static, {"*": []}).write_text("damaged")
    outcome(node.run(of_pod(containers.pod(static), static)), "open", "truncated")
    untouched.check()


@pytest.mark.parametrize("parts", [("kubepods", "burstable", "podmy-etcd"), ("k8s.io",)], ids="/".join)
@pytest.mark.parametrize("namespace", ["kube-system", "shop"])
def test_a_pod_whose_path_does_not_show_it(
    node: Node, containers: Containers, untouched: Untouched, parts: tuple[str, ...], namespace: str
) -> None:
    """A static pod with a uid of its own; kubelet with --cgroups-per-qos=false."""
    node.config("fail closed\n")
    identity = secrets.token_hex(8)
    container = containers.at(identity, *parts, identity)
    done = node.run(of_pod(container, "my-etcd", **{"io.kubernetes.cri.sandbox-namespace": namespace}))
    outcome(done, "open" if namespace == "kube-system" else "closed", "no pod's uid is in its cgroup's path")
    untouched.check()


@pytest.mark.parametrize("namespace", ["kube-system", "shop"])
def test_a_pod_whose_cgroup_is_not_found(
    node: Node, containers: Containers, untouched: Untouched, uid: str, namespace: str
) -> None:
    node.config("fail closed\n")
    container = containers.pod(uid)
    state = of_pod(container, uid, **{"io.kubernetes.cri.sandbox-namespace": namespace})
    container.end()
    outcome(node.run(state), "open" if namespace == "kube-system" else "closed", "the process has ended")
    untouched.check()


def spoil(path: Path, way: str) -> None:
    if way == "truncated":
        path.write_bytes(path.read_bytes()[:-9])
    elif way == "foreign owner":
        os.chown(path, 65534, 65534)
    elif way == "readable by others":
        path.chmod(0o644)
    elif way == "a link":
        path.rename(path.with_name("real"))
        path.symlink_to("real")
    elif way == "another's":
        path.write_text(path.read_text().replace("\tweb\n", "\tdb\n"))
    elif way == "a file of a foreign group":
        path.write_text(path.read_text().replace("cpu.", "cgroup."))
    elif way == "a pipe":
        path.unlink()
        os.mkfifo(path)


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("truncated", "truncated"),
        ("foreign owner", "owned by root"),
        ("readable by others", "mode 0600"),
        ("a link", "web"),
        ("another's", "web"),
        ("a file of a foreign group", "web"),
        ("a pipe", "not a plain file"),
    ],
)
def test_a_file_that_cannot_be_trusted(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, fail: str, way: str, why: str
) -> None:
    """Fail open: the default of the class. Fail closed: not even that, it does not start."""
    container = containers.plain()
    spoil(node.entries("floors", "web", {"*": floor}), way)
    file = floor[0][2]
    node.entries("defaults", "Plain", {"*": [(0, "set", file, "99")]})
    before = container.read(file)
    outcome(node.run(container.state(annotations=FLOOR)), fail, why)
    assert container.read(file) == ("99" if fail == "open" else before)
    assert why in node.missed()[container.id]
    untouched.check(container.file(file).parent)


def test_an_expired_file_is_a_miss(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, fail: str, uid: str
) -> None:
    container = containers.pod(uid)
    node.entries("pods", uid, {"*": floor}, until=1)
    node.entries("defaults", "Burstable", {"*": [(0, "set", floor[0][2], "99")]})
    done = node.run(of_pod(container, uid))
    assert (done.returncode, done.stderr) == (0, "")
    assert container.read(floor[0][2]) == "99"
    assert "expired" in node.missed()[container.id]
    untouched.check(container.file(floor[0][2]).parent)


def test_a_floor_that_is_not_there(
    node: Node, containers: Containers, untouched: Untouched, fail: str
) -> None:
    """It was asked for by name: more than a miss."""
    container = containers.plain()
    outcome(node.run(container.state(annotations=FLOOR)), fail, "no such file")
    untouched.check()


def test_a_process_that_has_ended(
    node: Node, containers: Containers, untouched: Untouched, fail: str
) -> None:
    container = containers.plain()
    state = container.state()
    container.end()
    outcome(node.run(state), fail, "the process has ended")
    untouched.check()


@pytest.mark.parametrize(
    ("pid", "why"),
    [
        *[(pid, f"/proc/{pid}: not a container's process") for pid in (1, 0, -1)],
        *[(pid, f"/proc/{pid}: ENOENT: the process has ended") for pid in (2**31, 2**64)],
    ],
)
def test_a_pid_that_is_no_containers(
    node: Node, containers: Containers, untouched: Untouched, fail: str, pid: int, why: str
) -> None:
    """runc and crun say 1 and 0 at createContainer."""
    outcome(node.run(containers.plain().state(pid=pid)), fail, why)
    untouched.check()


def test_the_pid_of_another_container(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, fail: str
) -> None:
    node.entries("floors", "web", {"*": floor})
    victim, liar = containers.plain(), containers.plain()
    outcome(node.run(liar.state(pid=victim.pid, annotations=FLOOR)), fail, "holds the container's id")
    untouched.check()


def test_the_pid_of_a_process_outside(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, fail: str
) -> None:
    node.entries("floors", "web", {"*": floor})
    done = node.run(containers.plain().state(pid=os.getpid(), annotations=FLOOR))
    paths = {line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()}
    outcome(done, fail, "is in the root cgroup" if paths == {"/"} else "holds the container's id")
    untouched.check()


@pytest.fixture(params=["size=4k", "nr_inodes=1"], ids=["no bytes", "no files"])
def full(request: pytest.FixtureRequest, node: Node) -> Iterator[Node]:
    """RUN on a file system without room for a marker."""
    run = node.places.run
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=700,{request.param}", "full", run], check=True)
    try:
        if request.param.startswith("size"):
            (run / "filler").write_bytes(b"\0" * 4096)
        yield node
    finally:
        subprocess.run(["umount", run], check=True)


def test_no_room_for_the_marker(full: Node, containers: Containers, untouched: Untouched, uid: str) -> None:
    full.config("fail closed\n")
    container = containers.pod(uid)
    done = full.run(of_pod(container, uid))
    assert done.returncode == 0  # a plain miss
    assert done.stderr.count("\n") == 1
    assert "no marker" in done.stderr
    assert "No space left on device" in done.stderr
    assert full.missed() == {}
    untouched.check()


def test_a_thousand_markers_are_enough(node: Node, containers: Containers, uid: str) -> None:
    missed = node.places.run / "missed"
    missed.mkdir(mode=0o700)
    for number in range(1000):
        (missed / f"c{number}").touch()
    container = containers.pod(uid)
    done = node.run(of_pod(container, uid))
    assert (done.returncode, len(list(missed.iterdir()))) == (0, 1000)
    assert "has 1000 already" in done.stderr


def test_a_pod_that_crashes_again_and_again_has_one_marker_a_container(
    node: Node, containers: Containers, uid: str
) -> None:
    for name in ("app", "app", "sidecar", "app"):
        container = containers.pod(uid)
        node.run(of_pod(container, uid, **{"io.kubernetes.cri.container-name": name}))
    names = {path.name for path in (node.places.run / "missed").iterdir()}
    assert names == {f"{uid}.app", f"{uid}.sidecar"}
    assert container.id in node.missed()


def test_drafts_that_killed_hooks_left_count_for_nothing(
    node: Node, containers: Containers, uid: str
) -> None:
    missed = node.places.run / "missed"
    missed.mkdir(mode=0o700)
    for number in range(1000):
        (missed / f".{number}").touch()
    done = node.run(of_pod(containers.pod(uid), uid))
    assert (done.returncode, done.stderr) == (0, "")
    assert (missed / f"{uid}.app").exists()


def test_hooks_at_once_raise_what_they_share_to_the_highest(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, uid: str
) -> None:
    """Eight containers of one pod; each wants another value of the pod's file."""
    file = floor[-1][2]
    numbers = [(index + 1) * 4096 * 1024 for index in range(8)]
    made = [containers.pod(uid) for _ in numbers]
    node.config("budget-ms 1500\n")
    names = {f"c{number}": [(1, "raise", file, str(number))] for number in numbers}
    node.entries("pods", uid, names)
    made[0].file(file, level=1).write_text("0")
    codes: list[int] = []

    def hook(container: Container, number: int) -> None:
        done = node.run(of_pod(container, uid, **{"io.kubernetes.cri.container-name": f"c{number}"}))
        codes.append(done.returncode if not done.stderr else -1)

    threads = [threading.Thread(target=hook, args=pair) for pair in zip(made, numbers, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 8
    assert made[0].file(file, level=1).read_text().strip() == str(max(numbers))
    untouched.check(made[0].file(file, level=1).parent)


def until_it_waits(hook: subprocess.Popen[str]) -> None:
    """It has the lock's file open, and not the lock."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert hook.poll() is None, "it did not wait for the lock"
        for link in Path(f"/proc/{hook.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if link.readlink().name == "hook.lock":
                    return
    pytest.fail("it does not open the lock")


def test_a_hook_reads_what_is_shared_after_it_has_the_lock(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, uid: str
) -> None:
    """Another holds the lock and has not written yet; then it has raised it higher."""
    file = floor[-1][2]
    highest, lower = 2**30, 2**29
    container = containers.pod(uid)
    shared = container.file(file, level=1)
    shared.write_text("0")
    node.config("budget-ms 1500\n")
    node.entries("pods", uid, {"*": [(1, "raise", file, str(lower))]})
    lock = os.open(node.places.run / "hook.lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.lockf(lock, os.F_LOCK, 0)
        with subprocess.Popen(
            node.argv(), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as waiting:
            assert waiting.stdin is not None
            waiting.stdin.write(of_pod(container, uid))
            waiting.stdin.close()
            until_it_waits(waiting)
            assert shared.read_text().strip() == "0"
            shared.write_text(str(highest))
            os.lockf(lock, os.F_ULOCK, 0)
            assert waiting.wait(30) == 0
            assert waiting.stderr is not None
            assert waiting.stderr.read() == ""
    finally:
        os.close(lock)
    assert shared.read_text().strip() == str(highest)
    untouched.check(shared.parent)


def test_a_lock_that_another_holds(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, fail: str, uid: str
) -> None:
    """Nothing is raised without the lock, and the budget ends the wait."""
    container = containers.pod(uid)
    node.config(f"fail {fail}\nbudget-ms 100\n")
    node.entries("pods", uid, {"*": [(1, "raise", floor[-1][2], str(2**30))]})
    lock = os.open(node.places.run / "hook.lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.lockf(lock, os.F_LOCK, 0)
        outcome(node.run(of_pod(container, uid)), fail, "held by another hook until the budget")
    finally:
        os.close(lock)
    untouched.check()
