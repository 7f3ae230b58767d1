"""The files that the hook reads and leaves: damaged, missing, expired; and no room for a marker."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.hook.outcomes import FLOOR, Floor, of_pod, outcome

if TYPE_CHECKING:
    from conftest import Containers, Node, Untouched

pytestmark = pytest.mark.runtime


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
