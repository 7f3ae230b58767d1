"""From a cgroup namespace of its own, as a container has it, the agent sees the node's cgroups again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lab.runtimes.cgroups import Scratch

PROGRAM = """\
from agent.host_cgroups import enter
from pathlib import Path
def shown() -> int:
    return Path("/proc/self/cgroup").read_text().count({name!r})
print(shown(), enter(), shown(), enter())
"""


def as_in_a_pod(inside: Scratch, program: str, *before: str) -> subprocess.CompletedProcess[str]:
    """In a container's cgroup and a namespace that begins there; process 1 is not in that namespace."""
    joins = "; ".join(f"echo $$ > {folder}/cgroup.procs" for folder in inside.folders())
    script = f'set -e; {joins}; unshare --cgroup "$@"; exit'
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh", *before]
    argv += [sys.executable, "-P", "-c", program]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_the_nodes_paths_are_seen(scratch: Scratch) -> None:
    inside = scratch.make("kubepods", "pod", "agent")
    done = as_in_a_pod(inside, PROGRAM.format(name=inside.name))
    assert done.returncode == 0, done.stderr
    hidden, entered, seen, again = done.stdout.split()
    assert (hidden, entered, again) == ("0", "True", "False")
    assert int(seen) > 0


@pytest.mark.parametrize("missing", ["sys_admin", "sys_ptrace"])
def test_it_takes_two_capabilities(scratch: Scratch, missing: str) -> None:
    """manifests/agent/daemonset.yaml adds both."""
    without = ("setpriv", "--bounding-set", f"-{missing}", "--inh-caps", f"-{missing}")
    done = as_in_a_pod(scratch.make("pod", "agent"), PROGRAM.format(name="/"), *without)
    assert "the node's cgroup namespace cannot be entered" in done.stderr
    assert "CAP_SYS_PTRACE and CAP_SYS_ADMIN" in done.stderr
