"""Each capability that manifests/agent adds is needed: the doctor finds what is missing without it.

CAP_SYS_PTRACE is in test_host_cgroups.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from ruamel.yaml import YAML

DAEMONSET = Path(__file__).parents[2] / "manifests" / "agent" / "daemonset.yaml"
DOCTOR = [sysconfig.get_path("scripts") + "/j10ce", "node", "doctor", "--address", "127.0.0.1:1"]
MISSED = {"SYS_ADMIN": "drift", "DAC_OVERRIDE": "CPU floors", "SYS_RESOURCE": "oom_score_adj"}
"""What does not work without it."""
OF_ANOTHER = "import sys; open(f'/proc/{sys.argv[1]}/oom_score_adj', 'w').write('500')"


def added() -> list[str]:
    (container,) = YAML(typ="safe").load(DAEMONSET)["spec"]["template"]["spec"]["containers"]
    names: list[str] = container["securityContext"]["capabilities"]["add"]
    return names


def ours() -> set[str]:
    """The capabilities we can hand on: a machine may be a container itself."""
    done = subprocess.run(["setpriv", "--dump"], capture_output=True, text=True, timeout=30, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Capability bounding set")]
    return {name.upper() for name in line.partition(": ")[2].split(",")}


def limited(names: set[str]) -> list[str]:
    """The beginning of a command line that runs as root with these capabilities only."""
    kept = ",".join(["-all", *(f"+{name.lower()}" for name in sorted(names & ours()))])
    return ["setpriv", f"--bounding-set={kept}", f"--inh-caps={kept}", "--no-new-privs"]


def doctor(names: set[str]) -> dict[str, str]:
    argv = [*limited(names), *DOCTOR, "-o", "json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    return {one["subject"]: one["level"] for one in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def complete(_root: None) -> dict[str, str]:
    return doctor(set(added()))


def test_each_is_tried() -> None:
    assert set(added()) == MISSED.keys() | {"SYS_PTRACE"}


@pytest.mark.parametrize("name", MISSED)
def test_without_it_something_is_missing(complete: dict[str, str], name: str) -> None:
    found = doctor(set(added()) - {name})
    assert found[MISSED[name]] != "works"
    if name in ours():
        assert complete[MISSED[name]] == "works"
        others = MISSED.keys() - {name}
        assert {MISSED[one] for one in others if found[MISSED[one]] != complete[MISSED[one]]} == set()


@pytest.mark.usefixtures("_root")
def test_oom_score_adj_is_its_users() -> None:
    """A container that does not run as root: raising it takes CAP_DAC_OVERRIDE."""
    argv = ["setpriv", "--reuid=65534", "--clear-groups", "--no-new-privs", "sleep", "600"]
    with subprocess.Popen(argv) as process:
        try:
            while "sleep" not in Path(f"/proc/{process.pid}/comm").read_text():
                assert process.poll() is None
            write = [sys.executable, "-I", "-c", OF_ANOTHER, str(process.pid)]
            for names, refused in ((set(added()), False), (set(added()) - {"DAC_OVERRIDE"}, True)):
                done = subprocess.run(
                    [*limited(names), *write], capture_output=True, text=True, timeout=60, check=False
                )
                assert ("PermissionError" in done.stderr) is refused
        finally:
            process.kill()
