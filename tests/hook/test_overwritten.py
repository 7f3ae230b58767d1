"""What the hook leaves for the reconciler of what it overwrites in a pod's cgroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kernel.cache import Entry

if TYPE_CHECKING:
    from conftest import Containers, Node

pytestmark = pytest.mark.runtime


def test_what_kubelet_wrote_into_the_pods_cgroup_is_noted(
    node: Node, containers: Containers, floor: list[Entry], uid: str
) -> None:
    container = containers.pod()
    _, _, file, value = floor[0]
    path = container.file(file, 1)
    path.write_text("204")
    node.entries("pods", uid, {"*": [(1, "set", file, "99"), (0, "set", file, value)]})
    for _ in range(2):  # the second time it is ours
        assert (node.run(container.state()).returncode, path.read_text()) == (0, "99\n")
    note = node.places.run / "found" / uid
    cgroup, noted, before = note.read_text().rstrip("\n").split("\t")
    assert (cgroup.rpartition("/")[2], noted, before) == (f"pod{uid}", file, "204")
    assert str(path).endswith(f"{cgroup}/{file}")
    assert note.stat().st_mode & 0o777 == 0o600
