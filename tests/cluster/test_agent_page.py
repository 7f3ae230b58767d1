"""docs/agent.md: its commands for a node with systemd make a kubeconfig with which an agent can work."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.api import NODE_QOS, NODES, PODS, NotFound
from adapters.kubernetes.client import KubernetesAPI
from adapters.kubernetes.kubeconfig import from_file
from lab.cluster import Cluster
from lab.nodes import REAL
from tests.waiting import until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
ACCOUNT = "system:serviceaccount:j10ce-system:j10ce-agent"
ELSEWHERE = {
    "j10ce install --agent": "test_install.py",
    "kubectl -n j10ce-system rollout": "test_installed_agent.py",
    "kubectl -n j10ce-system exec": "test_installed_agent.py",
    "python3 -m venv": "tests/test_dockerfile.py, the same steps",
    "/opt/j10ce/bin/pip": "tests/test_dockerfile.py, the same steps",
    "systemctl": "tests/runtime/test_agent_unit.py, without systemctl",
    "j10ce node doctor": "tests/runtime/test_doctor_page.py",
    "j10ce node restore": "tests/agent/test_restoring.py",
    "j10ce uninstall": "test_install.py and tests/cli/test_restoring.py",
}
"""Where a command of the page is run, if not here."""


def commands() -> list[str]:
    page = (ROOT / "docs" / "agent.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    name = f"node-{secrets.token_hex(3)}"
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {REAL: "true"}}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(made))
    for namespace in (f"{name}-a", f"{name}-b"):
        cluster.kubectl("create", "namespace", namespace)
    yield name
    cluster.kubectl("delete", "node", name)
    cluster.kubectl("delete", "namespace", f"{name}-a", f"{name}-b", "--wait=false")
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
    cluster.kubectl("delete", kinds, "-l", "app.kubernetes.io/part-of=j10ce-qos")
    cluster.kubectl("delete", "-f", str(ROOT / "manifests" / "agent" / "rights.yaml"))


@pytest.fixture
def etc(cluster: Cluster, node: str, tmp_path: Path) -> Path:
    """The folder that stands for /etc, once the page's commands were run for the node."""
    view = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    where = view["clusters"][0]["cluster"]
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(where["certificate-authority-data"]))
    instead = {
        "https://10.0.0.1:6443": where["server"],
        "/etc/kubernetes/pki/ca.crt": str(tmp_path / "ca.crt"),
        "/etc/": f"{tmp_path}/etc/",
        "--bound-object-name n1": f"--bound-object-name {node}",
        "namespace legacy": f"namespace {node}-a",
        "namespace shop": f"namespace {node}-b",
        "kubectl apply --server-side": "kubectl apply --server-side --force-conflicts",
    }
    script = "\n".join(line for line in commands() if not line.startswith(tuple(ELSEWHERE)))
    for word, other in instead.items():
        assert word in script
        script = script.replace(word, other)
    path = f"{Path(cluster.kubectl_argv[0]).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return tmp_path / "etc"


async def test_its_commands_make_an_account_for_a_node(cluster: Cluster, node: str, etc: Path) -> None:
    assert (etc / "systemd" / "system" / "j10ce-agent.service").is_file()
    for verb, what in (("get", "nodes"), ("list", "pods"), ("get", "nodeqoses")):
        asked = ("auth", "can-i", verb, what, f"--as={ACCOUNT}")
        until(lambda: cluster.kubectl(*asked, check=False) == "yes\n", f"its right to {verb} {what}")  # noqa: B023
    async with KubernetesAPI(from_file(etc / "j10ce" / "agent.kubeconfig")) as api:
        assert json.loads(await api.get(NODES, "", node))["metadata"]["name"] == node
        await api.list_page(PODS, field_selector=f"spec.nodeName={node}")
        with pytest.raises(NotFound):
            await api.get(NODE_QOS, "", node)


def test_every_other_command_is_run_elsewhere() -> None:
    unused = [start for start in ELSEWHERE if not any(line.startswith(start) for line in commands())]
    assert unused == []
