"""With the capabilities that the manifests add, and no others, a node's network is shaped and left again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.runtime.test_agent_capabilities import added, limited, ours

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "manifests" / "agent-network"
GIVEN_UP = "SYS_PTRACE"
"""Before anything is shaped."""


def more() -> set[str]:
    """What manifests/agent-network adds to manifests/agent."""
    yaml = YAML(typ="safe")
    patches = yaml.load(FOLDER / "kustomization.yaml")["patches"]
    (patch,) = [one["patch"] for one in patches if one.get("target", {}).get("kind") == "DaemonSet"]
    return {one["value"] for one in yaml.load(patch)}


def shaped(tmp_path: Path, bpffs: str, names: set[str]) -> dict[str, Any]:
    argv = [*limited(names), sys.executable, "-P", "-m", "tests.network.shaping_program"]
    done = subprocess.run(
        [*argv, str(tmp_path), bpffs],
        capture_output=True, text=True, timeout=120, check=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_they_suffice(tmp_path: Path, bpffs: str) -> None:
    names = (set(added()) | more()) - {GIVEN_UP}
    said = shaped(tmp_path, bpffs, names)
    assert "error" not in said
    assert int(said["limits"]["CapBnd"], 16).bit_count() == len(names & ours()), "no more than these"
    working = {name for name, why in said["probes"].items() if not why}
    assert {"htb", "tbf", "bfifo", "bpf", "tcx", "clsact", "redirect"} <= working
    for means in ("HTB_TCX", "HTB_CLSACT"):
        done = said[means]
        assert (done["unshaped"], done["unclassified"], done["left"]) == ({}, "", [])
        assert done["changes"] > 10
        assert done["again"] == 0
        assert done["unlike before"] == []
    assert said["HTB_TCX"]["pinned"] == ["classify-tcx_egress"], "marks are filters of clsact"


@pytest.mark.parametrize(
    ("name", "why"), [("NET_ADMIN", "install the agent with --network-floors"), ("SYS_ADMIN", "unshare")]
)
def test_without_it_nothing_is_shaped(tmp_path: Path, bpffs: str, name: str, why: str) -> None:
    said = shaped(tmp_path, bpffs, (set(added()) | more()) - {GIVEN_UP, name})
    assert all(why in reason for reason in said["probes"].values())


def test_more_than_is_needed_is_not_added() -> None:
    """SYS_ADMIN is BPF and PERFMON, too; without it those two do not suffice, see the next."""
    assert more() == {"NET_ADMIN"}


def test_the_narrow_ones_do_not_do_in_its_place(tmp_path: Path, bpffs: str) -> None:
    """Of programs and links the kernel hands out descriptors by number to SYS_ADMIN alone."""
    said = shaped(tmp_path, bpffs, {"NET_ADMIN", "BPF", "PERFMON", "DAC_OVERRIDE", "SYS_RESOURCE"})
    assert all("CAP_SYS_ADMIN" in reason for reason in said["probes"].values())
