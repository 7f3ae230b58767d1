"""On v2 a container has a cgroup namespace of its own; the agent, with its capabilities, sees the node's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from lab.runtimes import cgroups
from lab.runtimes.cgroups import Scratch

LIMITED = "-all,+sys_admin,+sys_ptrace,+dac_override,+sys_resource"
"""As manifests/agent/daemonset.yaml has them."""
PROGRAM = """\
import sys
from pathlib import Path
from adapters.machine import ThisMachine
from agent.host_cgroups import enter
name = sys.argv[1]
def seen():
    return Path("/proc/self/cgroup").read_text().strip(), ThisMachine().has(name)
print(*seen(), enter(), *seen(), enter())
"""


@pytest.fixture
def inside() -> Iterator[Scratch]:
    with cgroups.scratch("pod") as made:
        yield made.make("kubepods", "agent")


@pytest.mark.parametrize("missing", ["", "sys_admin", "sys_ptrace"])
def test_the_nodes_cgroups_are_seen(inside: Scratch, missing: str) -> None:
    (folder,) = inside.folders()
    kept = LIMITED.replace(f",+{missing}", "") if missing else LIMITED
    script = f'set -e; echo $$ > {folder}/cgroup.procs; unshare --cgroup "$@"; exit'
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh"]
    argv += ["setpriv", f"--bounding-set={kept}", f"--inh-caps={kept}", "--no-new-privs"]
    argv += [sys.executable, "-c", PROGRAM, inside.name]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    if missing:
        assert "the node's cgroup namespace cannot be entered" in done.stderr
    else:
        assert done.stdout.split() == ["0::/", "False", "True", f"0::{inside.name}", "True", "False"], (
            done.stderr
        )
