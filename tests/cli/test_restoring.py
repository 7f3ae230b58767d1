"""uninstall has the nodes left as they were found first; a script plays kubectl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli import app as application
from cli import installation, restoring

pytestmark = pytest.mark.program

KUBECTL = r"""#!/bin/sh
here=${0%/*}
echo "$*" >>"$here/log"
case "$*" in
"get --raw "*) echo '{"versions": []}' ;;
kustomize*) cat "$here/kustomized.yaml" ;;
rollout*) [ ! -e "$here/late" ] || { echo "timed out" >&2; exit 1; } ;;
"get pods --namespace"*component*) cat "$here/pods.json" ;;
apply*) tee "$here/applied" ;;
get*" -f "*) cat >/dev/null; cat "$here/there.json" ;;
get*) echo '{"kind": "List", "items": []}' ;;
*) cat >/dev/null ;;
esac
"""


def pod(node: str, *, restores: bool, ready: bool) -> dict[str, Any]:
    container = {"name": "agent", "args": ["--restore"]} if restores else {"name": "agent"}
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"j10ce-agent-{node}"},
        "spec": {"nodeName": node, "containers": [container]},
        "status": status,
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    (tmp_path / "kustomized.yaml").write_text(json.dumps(installation.agent_itself()))
    containers = [{"name": "agent", "image": "example.com/a:1"}, {"name": "injected", "args": ["-x"]}]
    agent = installation.agent_itself() | {"spec": {"template": {"spec": {"containers": containers}}}}
    agent |= {"status": {"numberReady": 3}}
    (tmp_path / "there.json").write_text(json.dumps({"kind": "List", "items": [agent]}))
    monkeypatch.setenv("J10CE_BIN", str(tmp_path))
    return tmp_path


def uninstall(*words: str) -> Result:
    return CliRunner().invoke(application.app, ["uninstall", "--yes", *words])


def asked(folder: Path, verb: str) -> list[str]:
    return [line for line in (folder / "log").read_text().splitlines() if line.startswith(verb)]


def test_all_nodes_are_restored_before_anything_is_removed(folder: Path) -> None:
    assert uninstall().exit_code == 0
    lines = (folder / "log").read_text().splitlines()
    verbs = [line.split()[0] for line in lines]
    assert verbs.index("apply") < verbs.index("rollout") < verbs.index("delete")
    [made] = json.loads((folder / "applied").read_text())["items"]
    agent, injected = made["spec"]["template"]["spec"]["containers"]
    assert agent == {"name": "agent", "image": "example.com/a:1", "args": ["--restore"]}
    assert injected["args"] == ["-x"]
    assert made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%"
    assert "status" not in made


def test_it_says_which_could_not_and_removes_nothing(folder: Path) -> None:
    (folder / "late").touch()
    pods = [
        pod("done", restores=True, ready=True),
        pod("tries", restores=True, ready=False),
        pod("away", restores=False, ready=True),
    ]
    (folder / "pods.json").write_text(json.dumps({"kind": "List", "items": pods}))
    done = uninstall("--restore-seconds", "1")
    assert done.exit_code == 1
    assert "node away is not as it was: its agent was not exchanged" in done.output
    assert "node tries is not as it was: see `kubectl -n j10ce-system logs j10ce-agent-tries`" in done.output
    assert "node done" not in done.output
    assert asked(folder, "delete") == []
    assert uninstall("--restore-seconds", "1", "--force").exit_code == 0
    assert asked(folder, "delete")


def test_settings_may_be_kept(folder: Path) -> None:
    assert uninstall("--keep-settings").exit_code == 0
    assert asked(folder, "apply") == []


def test_without_an_agent_nobody_waits(folder: Path) -> None:
    (folder / "there.json").write_text('{"kind": "List", "items": []}')
    assert uninstall().exit_code == 0
    assert asked(folder, "rollout") == []


def test_it_knows_the_daemon_set() -> None:
    made = (Path(__file__).parents[2] / "manifests" / "agent" / "daemonset.yaml").read_text()
    assert f"- name: {restoring.CONTAINER}\n          image: j10ce-qos" in made
    assert f"app.kubernetes.io/component: {restoring.AGENT}" in made
