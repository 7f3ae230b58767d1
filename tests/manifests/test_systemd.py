"""The systemd unit of the agent: what systemd makes of it, and that it agrees with DaemonSet and code."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from agent.config import RUN, STATE

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "manifests" / "systemd" / "j10ce-agent.service"
NETWORK = UNIT.with_name("network-floors.conf")
PROGRAM = "/opt/j10ce/bin/j10ce-agent"


def settings(path: Path = UNIT) -> dict[str, list[str]]:
    found = defaultdict(list)
    for line in path.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found[name].append(value)
    return found


def capabilities() -> set[str]:
    path = ROOT / "manifests" / "agent" / "daemonset.yaml"
    (container,) = YAML(typ="safe").load(path)["spec"]["template"]["spec"]["containers"]
    return {f"CAP_{name}" for name in container["securityContext"]["capabilities"]["add"]}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_takes_it(tmp_path: Path) -> None:
    """It warns of words it does not know, and of a program that is not there: so here is another."""
    unit = tmp_path / UNIT.name
    drop_ins = tmp_path / f"{UNIT.name}.d"
    drop_ins.mkdir()
    shutil.copy(NETWORK, drop_ins)
    program = str(Path(sys.executable).with_name("j10ce-agent"))
    for text, problem in (("", ""), ("Restrat=always\n", "Restrat")):
        unit.write_text(
            UNIT.read_text().replace(PROGRAM, program).replace("[Service]\n", f"[Service]\n{text}")
        )
        done = subprocess.run(
            ["systemd-analyze", "--man=no", "verify", unit],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0
        assert problem in done.stderr if problem else not done.stderr


def test_it_has_the_daemonsets_capabilities_and_no_more() -> None:
    """Without the one that shows the namespaces of process 1: it is in them."""
    (bounding,) = settings()["CapabilityBoundingSet"]
    assert set(bounding.split()) == capabilities() - {"CAP_SYS_PTRACE"}
    assert settings()["NoNewPrivileges"] == ["yes"]


def test_who_shapes_networks_gets_what_that_needs() -> None:
    """As in the DaemonSet; and the system calls that a pod with CAP_SYS_ADMIN has anyway."""
    added = (ROOT / "manifests" / "agent-network" / "kustomization.yaml").read_text()
    (capability,) = settings(NETWORK)["CapabilityBoundingSet"]
    assert f"value: {capability.removeprefix('CAP_')}\n" in added
    assert settings(NETWORK) == {
        "Environment": ["J10CE_NETWORK_FLOORS=1"],
        "CapabilityBoundingSet": ["CAP_NET_ADMIN"],
        "SystemCallFilter": ["bpf"],
        "RestrictNamespaces": ["", "net"],
    }


def test_it_may_write_where_the_agent_writes() -> None:
    """And into /proc, which ProtectSystem=strict leaves alone."""
    found = settings()
    assert found["ProtectSystem"] == ["strict"]
    assert found["ReadWritePaths"] == ["/sys/fs/cgroup"]
    assert [f"/run/{found['RuntimeDirectory'][0]}", f"/var/lib/{found['StateDirectory'][0]}"] == [
        str(RUN),
        str(STATE),
    ]
    assert found["RuntimeDirectoryPreserve"] == ["yes"], "the hook reads it while there is no agent"
    assert (found["ProtectControlGroups"], found["ProtectKernelTunables"]) == (["no"], ["no"])


def test_it_comes_back_and_is_no_pod() -> None:
    found = settings()
    assert (found["Restart"], found["StartLimitIntervalSec"]) == (["always"], ["0"])
    assert found["Slice"] == ["system.slice"]
    assert found["Delegate"] == ["no"]
    assert found["ExecStart"] == [f"{PROGRAM} $J10CE_AGENT_OPTIONS"]
