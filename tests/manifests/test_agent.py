"""The agent's DaemonSet: consistent with the agent's options and paths, and no more than it says it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer.main
from ruamel.yaml import YAML

import manifests
from agent import commands
from agent.config import NRI_SOCKET, RUN, STATE
from agent.network import koordinator
from agent.network.bpf.pins import MOUNTED_AT
from qos.pods.decision import EXEMPT_NAMESPACES

DAEMONSET: dict[str, Any] = YAML(typ="safe").load(
    Path(manifests.__file__).parent / "agent" / "daemonset.yaml"
)
TERWAYS = "/var/lib/terway/qos"
POD: dict[str, Any] = DAEMONSET["spec"]["template"]["spec"]
(AGENT,) = POD["containers"]


def test_the_loader_gives_what_kustomize_needs() -> None:
    with manifests.agent() as folder:
        made = YAML(typ="safe").load(folder / "kustomization.yaml")
        assert all((folder / name).exists() for name in made["resources"])
        assert "../base" in made["resources"]


def test_every_variable_is_one_that_the_agent_reads() -> None:
    known = {parameter.envvar for parameter in typer.main.get_command(commands.app).params}
    names = {one["name"] for one in AGENT["env"]}
    assert names - known == {"NODE_IP"}, "which is for another one's value"


def test_probes_ask_where_it_answers() -> None:
    values = {one["name"]: one.get("value") for one in AGENT["env"]}
    port, metrics = AGENT["ports"]
    assert values["J10CE_AGENT_ADDRESS"] == f"$(NODE_IP):{port['containerPort']}"
    assert values["J10CE_AGENT_METRICS_ADDRESS"] == f"$(NODE_IP):{metrics['containerPort']}"
    annotations = DAEMONSET["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(metrics["containerPort"])
    assert annotations["prometheus.io/scheme"] == "https"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = AGENT[probe]["httpGet"]
        assert "host" not in asked, "kubelet takes the pod's address, which is the node's"
        assert asked["port"] == port["name"]
        assert asked["path"] == ("/healthz" if probe == "livenessProbe" else "/readyz")


def test_host_paths_are_those_of_the_code() -> None:
    paths = {one["name"]: one["hostPath"]["path"] for one in POD["volumes"]}
    assert set(paths.values()) == {"/sys/fs/cgroup", str(RUN), str(STATE), str(NRI_SOCKET.parent)}
    mounted = {one["name"]: one["mountPath"] for one in AGENT["volumeMounts"]}
    assert mounted == paths, "the same inside as outside"


def test_who_shapes_networks_gets_what_that_needs_and_no_more() -> None:
    """Which capability that is, tests/network/test_rights.py tries."""
    folder = Path(manifests.__file__).parent / "agent-network"
    (patch,) = YAML(typ="safe").load_all(folder / "daemonset.yaml")
    assert patch["metadata"] == DAEMONSET["metadata"]
    pod = patch["spec"]["template"]["spec"]
    (agent,) = pod["containers"]
    assert agent.keys() == {"name", "env", "volumeMounts"}
    assert {one["name"]: one["value"] for one in agent["env"]} == {
        "J10CE_NETWORK_FLOORS": "1",
        "J10CE_NETWORK_FILES": TERWAYS,
    }
    assert {"name": "J10CE_NETWORK_FLOORS", "value": "0"} in AGENT["env"]
    paths = {one["name"]: one["hostPath"]["path"] for one in pod["volumes"]}
    mounts = {one["name"]: one for one in agent["volumeMounts"]}
    assert {name: one["mountPath"] for name, one in mounts.items()} == paths
    assert paths == {"bpf": MOUNTED_AT, "terway": TERWAYS}
    assert mounts["bpf"]["mountPropagation"] == "HostToContainer", (
        "never back: the pod mounts nothing on its node"
    )
    assert mounts["terway"]["readOnly"]


def test_who_shapes_networks_may_read_one_configmap() -> None:
    folder = Path(manifests.__file__).parent / "agent-network"
    patches = YAML(typ="safe").load(folder / "kustomization.yaml")["patches"]
    (patch,) = [one["patch"] for one in patches if one.get("target", {}).get("kind") == "ClusterRole"]
    ((operation),) = YAML(typ="safe").load(patch)
    assert operation["value"] == {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [koordinator.DEFAULT.partition("/")[2]],
        "verbs": ["list", "watch"],
    }


def test_it_is_locked_down_as_far_as_it_goes() -> None:
    context = AGENT["securityContext"]
    assert context["privileged"] is False
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"]["drop"] == ["ALL"]
    assert len(context["capabilities"]["add"]) == 4
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostIPC"} & POD.keys()


def test_there_are_never_two_on_a_node() -> None:
    update = DAEMONSET["spec"]["updateStrategy"]
    assert update["type"] == "RollingUpdate"
    assert update["rollingUpdate"]["maxSurge"] == 0


def test_it_runs_everywhere_and_is_never_throttled() -> None:
    assert POD["tolerations"] == [{"operator": "Exists"}]
    assert POD["priorityClassName"] == "system-node-critical"
    assert {"cpu", "memory"} <= AGENT["resources"]["requests"].keys()
    assert AGENT["resources"]["limits"].keys() == {"memory"}
    assert DAEMONSET["metadata"]["namespace"] in EXEMPT_NAMESPACES, "no class has settings for it"


@pytest.mark.parametrize("verb", ["delete", "update", "deletecollection", "patch"])
def test_it_changes_nothing_but_its_report_and_its_bandwidth(verb: str) -> None:
    path = Path(manifests.__file__).parent / "agent" / "rights.yaml"
    role = next(YAML(typ="safe").load_all(path))
    resources = {name for rule in role["rules"] if verb in rule["verbs"] for name in rule["resources"]}
    assert resources == ({"nodeqoses/status", "nodes/status"} if verb == "patch" else set())
