"""Lies and accidents about who a container is: a clear outcome, and nothing outside its cgroup is touched."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.hook.outcomes import FLOOR, Floor, of_pod, outcome

if TYPE_CHECKING:
    from conftest import Containers, Node, Untouched

pytestmark = pytest.mark.runtime


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
