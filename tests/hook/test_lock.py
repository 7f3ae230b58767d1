"""Hooks that raise what their containers share: one at a time, and none waits longer than its budget."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.hook.outcomes import Floor, of_pod, outcome
from tests.waiting import until

if TYPE_CHECKING:
    from conftest import Container, Containers, Node, Untouched

pytestmark = pytest.mark.runtime


def test_hooks_at_once_raise_what_they_share_to_the_highest(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, uid: str
) -> None:
    """Eight containers of one pod; each wants another value of the pod's file."""
    file = floor[-1][2]
    numbers = [(index + 1) * 4096 * 1024 for index in range(8)]
    made = [containers.pod(uid) for _ in numbers]
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


def has_open(hook: subprocess.Popen[str], name: str) -> bool:
    """Whether a hook, which still runs, has a file of that name open."""
    assert hook.poll() is None, f"it did not wait for {name}"
    found = []
    for link in Path(f"/proc/{hook.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(link.readlink().name)
    return name in found


def test_a_hook_reads_what_is_shared_after_it_has_the_lock(
    node: Node, containers: Containers, floor: Floor, untouched: Untouched, uid: str
) -> None:
    """Another holds the lock and has not written yet; then it has raised it higher."""
    file = floor[-1][2]
    highest, lower = 2**30, 2**29
    container = containers.pod(uid)
    shared = container.file(file, level=1)
    shared.write_text("0")
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
            until(lambda: has_open(waiting, "hook.lock"), "the hook waits for the lock")
            assert shared.read_text().strip() == "0"
            shared.write_text(str(highest))
            os.lockf(lock, os.F_ULOCK, 0)
            assert waiting.wait(60) == 0
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

    def waits() -> bool:
        done = node.run(of_pod(container, uid))
        outcome(done, fail, "the budget")
        return "held by another hook until the budget" in done.stderr

    lock = os.open(node.places.run / "hook.lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.lockf(lock, os.F_LOCK, 0)
        until(waits, "a hook comes to the lock before its budget is used up")
    finally:
        os.close(lock)
    untouched.check()
