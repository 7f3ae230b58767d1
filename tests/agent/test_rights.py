"""A capability that is given up is gone: of the process, of its threads, and of what it executes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.rights import SYS_PTRACE
from lab.agent_process import AgentProcess

PROGRAM = """\
import subprocess, sys, threading
from pathlib import Path
from agent.rights import give_up
def shown(where):
    print(*[line.split()[1] for line in Path(where).read_text().splitlines() if line[:6] in SETS])
SETS = ("CapInh", "CapPrm", "CapEff")
shown("/proc/self/status")
give_up(int(sys.argv[1]))
give_up(int(sys.argv[1]))
shown("/proc/self/status")
thread = threading.Thread(target=shown, args=["/proc/thread-self/status"])
thread.start()
thread.join()
sys.stdout.flush()
subprocess.run(["grep", "-E", "CapPrm", "/proc/self/status"], check=True)
"""


def has(sets: str) -> list[bool]:
    return [bool(int(one, 16) >> SYS_PTRACE & 1) for one in sets.split()]


def effective(pid: int | str) -> bool:
    (line,) = [
        one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("CapEff")
    ]
    return has(line.split()[1])[0]


@pytest.fixture(autouse=True)
def _able() -> None:
    if not effective("self"):
        pytest.skip("this process has no CAP_SYS_PTRACE to give up: be root")


def test_it_is_gone_and_nothing_else() -> None:
    argv = ["setpriv", "--no-new-privs", sys.executable, "-c", PROGRAM, str(SYS_PTRACE)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    before, after, thread, executed = done.stdout.splitlines()
    assert has(before) == [False, True, True]
    assert has(after) == has(thread) == [False] * 3
    assert thread == after
    assert has(executed.split()[1]) == [False]
    lost = [int(one, 16) ^ int(other, 16) for one, other in zip(before.split(), after.split(), strict=True)]
    assert lost == [0, 1 << SYS_PTRACE, 1 << SYS_PTRACE]


@pytest.mark.program
def test_the_agent_has_given_it_up(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    agent = AgentProcess(tmp_path, "--standalone", tmp_path / "pods", "--observe", "--nri-socket", "")
    agent.start()
    try:
        assert not effective(agent.pid)
    finally:
        agent.end()
