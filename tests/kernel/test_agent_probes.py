"""What the agent finds that a node with cgroup v2 enforces."""

from __future__ import annotations

from pathlib import Path

from adapters.machine import ThisMachine
from agent.probes import Node, promises

KEPT = {
    "floor (cpu)": "cpu.weight",
    "cpu_idle": "cpu.idle",
    "cpu_burst_percent": "cpu.max.burst",
    "io_limit": "io.max",
    "memory_min_percent": "memory.min",
    "memory_low_percent": "memory.low",
    "memory_high_percent": "memory.high",
    "memory_oom_group": "memory.oom.group",
    "oom_score_adj": "oom_score_adj",
    "pids_max": "pids.max",
}


def test_every_promise_but_own_cpus_is_enforced() -> None:
    machine = ThisMachine()
    node = Node(machine.mounts, unified=True, devices=machine.size(frozenset()).devices)
    found = {state.promise: state for state in promises(node)}
    assert {promise: found[promise].file for promise in KEPT} == KEPT
    assert all(found[promise].enforced for promise in KEPT)
    assert not found["cpus"].enforced
    assert not list(Path("/sys/fs/cgroup").glob("j10ce-probe*"))
