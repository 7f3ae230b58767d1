"""Has every node left as it was found: the DaemonSet's pods are exchanged for such as put everything back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from cli import installation
from cli.kubectl import Kubectl, KubectlError, Object

AGENT: Final = "j10ce-agent"
_SELECTOR: Final = f"app.kubernetes.io/component={AGENT}"
_SPARE_SECONDS: Final = 30
"""For kubectl itself, beside what it is told to wait."""
CONTAINER: Final = "agent"
_RESTORE: Final = ["--restore"]
"""An agent too old to know the option ends with an error, and its node is told."""
_ALL_AT_ONCE: Final = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 0}}
"""Nothing is kept from now on, so there is nothing to keep up."""


class NotRestored(NamedTuple):
    """A node that may have settings of ours, and why."""

    node: str
    why: str


def restore_nodes(kubectl: Kubectl, seconds: int) -> list[NotRestored]:
    """Put everything back on all nodes; which could not within that time. [] also where there is no agent."""
    there = kubectl.existing([installation.agent_itself()])
    if not there:
        return []
    scope = ("--namespace", installation.NAMESPACE)
    named = f"daemonset/{AGENT}"
    # Applied as install does, so that an install after this takes it back.
    kubectl.apply(map(that_restores, there), dry_run=False, force_conflicts=True)
    try:
        kubectl.run(
            "rollout", "status", named, *scope, f"--timeout={seconds}s", seconds=seconds + _SPARE_SECONDS
        )
    except KubectlError as error:
        pods = kubectl.objects("get", "pods", *scope, "--selector", _SELECTOR)
        left = not_restored(pods)
        return left or [NotRestored("of an agent", str(error))]
    return []


def that_restores(daemon_set: Mapping[str, Any]) -> Object:
    """The agent's DaemonSet with pods that leave their nodes as they were found, and stay."""
    made: Object = json.loads(json.dumps(installation.essence(daemon_set)))
    made["spec"]["updateStrategy"] = _ALL_AT_ONCE
    for container in made["spec"]["template"]["spec"]["containers"]:
        if container["name"] == CONTAINER:
            container["args"] = _RESTORE
    return made


def not_restored(pods: Iterable[Mapping[str, Any]]) -> list[NotRestored]:
    """Nodes whose agent's pod has not said that it has put everything back, by name."""
    found = []
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        if not any(container.get("args") == _RESTORE for container in pod["spec"]["containers"]):
            found.append(NotRestored(node, "its agent was not exchanged: is the node ready?"))
        elif not _is_ready(pod):
            logs = f"kubectl -n {installation.NAMESPACE} logs {pod['metadata']['name']}"
            found.append(NotRestored(node, f"see `{logs}`"))
    return sorted(found)


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
