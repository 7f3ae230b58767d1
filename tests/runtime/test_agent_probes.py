"""What a node enforces is found out by doing it, in a cgroup that is gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from adapters.machine import ThisMachine
from agent.probes import Node, promises
from lab.runtimes.cgroups import Scratch
from qos.plan.controller import all_controllers

PROGRAM = """\
from adapters.machine import ThisMachine
from agent.probes import Node, promises
machine = ThisMachine()
node = Node(machine.mounts, unified=machine.cgroup == "v2", devices=())
for state in promises(node):
    print(state.promise, state.enforced, state.message, sep="|")
"""


def left(node: Node) -> list[Path]:
    """Its groups; those of others come and go meanwhile."""
    return [folder for mount in node.mounts.values() for folder in Path(mount).glob(f"*{node.name}*")]


def test_every_promise_is_tried_and_nothing_is_left(scratch: Scratch) -> None:
    machine = ThisMachine()
    node = Node(machine.mounts, unified=False, devices=machine.size(frozenset()).devices)
    found = {state.promise: state for state in promises(node)}
    assert found.keys() == {keeps.promise for one in all_controllers() for keeps in one.KEEPS}
    for promise in ("floor (cpu)", "cpu_idle", "cpu_quota", "pids_max"):
        assert found[promise].enforced, found[promise]
        assert found[promise].file
    assert not found["memory_min_percent"].enforced
    assert "cgroup v1 has no memory.min" in found["memory_min_percent"].message
    assert left(node) == []


def test_a_node_whose_cgroups_are_read_only_enforces_nothing(scratch: Scratch) -> None:
    """As in a container without the right mount; the reason names the kernel's error."""
    remount = (
        "for one in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts); do mount -o remount,bind,ro $one; done"
    )
    argv = ["unshare", "--mount", "sh", "-c", f'{remount}; exec "$0" -P -c "$1"', sys.executable, PROGRAM]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    lines = {line.split("|")[0]: line.split("|")[1:] for line in done.stdout.splitlines()}
    enforced, why = lines["floor (cpu)"]
    assert enforced == "False"
    assert "EROFS" in why
    assert {state for name, (state, _) in lines.items() if name != "oom_score_adj"} == {"False"}


@pytest.mark.usefixtures("scratch")
def test_one_that_was_left_behind_is_taken_over() -> None:
    machine = ThisMachine()
    node = Node(machine.mounts, unified=False, devices=())
    left = Path(machine.mounts["cpu"]) / node.name
    left.mkdir()
    promises(node)
    assert not left.exists()
