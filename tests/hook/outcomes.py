"""What a container is started with, and what must come of it where something is wrong."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from kernel.cache import Entry

if TYPE_CHECKING:
    from conftest import Container

Floor = list[Entry]
FLOOR = {"j10ce.io/floor": "web"}


def outcome(done: subprocess.CompletedProcess[str], fail: str, why: str) -> None:
    """One line that says why, and the exit code that the administrator chose."""
    assert done.returncode == (fail == "closed"), done.stderr
    assert done.stderr.count("\n") == 1
    assert why in done.stderr
    assert ("must not start" in done.stderr) == (fail == "closed")


def of_pod(container: Container, uid: str, **more: str) -> str:
    """The state of a pod's container, as containerd has it."""
    annotations = {"io.kubernetes.cri.container-name": "app", "io.kubernetes.cri.sandbox-uid": uid}
    return container.state(annotations=annotations | more)
