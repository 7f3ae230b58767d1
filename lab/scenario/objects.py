"""From a scenario to Kubernetes objects, as the API server takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ruamel.yaml import YAML

from adapters.api import (
    BUDGETS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    PROFILES,
    STATEFUL_SETS,
    Resource,
)
from lab import nodes
from lab.scenario.models import Budget, PodGroup, Policy, PriorityClass, Profile, Quota, Reservation
from lab.scenario.steps import NodeGroup, Taint, Workload
from qos.keys import API_VERSION, SCENARIO_LABEL, SCENARIO_WORKLOAD_LABEL, ZONE_LABEL

JOBS = Resource("batch", "v1", "jobs", "Job")
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
WORKLOAD_RESOURCES = {
    "Pods": PODS,
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFUL_SETS,
    "Job": JOBS,
    "DaemonSet": DAEMON_SETS,
}

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """What sets one run's objects apart: their namespace, their label, and whether to keep to our own
    nodes.
    """

    namespace: str
    label: str
    own_nodes_only: bool = False

    @property
    def labels(self) -> dict[str, str]:
        """The label of everything that the run creates."""
        return {SCENARIO_LABEL: self.label}

    def node_selector(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """A node selector; in somebody's cluster it also keeps pods and holds off their nodes."""
        return {**wanted, **(self.labels if self.own_nodes_only else {})}


def namespace(scope: Scope) -> Manifest:
    """The run's namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": scope.namespace, "labels": scope.labels},
    }


def node(group: NodeGroup, name: str, scope: Scope) -> Manifest:
    """A node that KWOK keeps alive."""
    amounts = {key: str(value) for key, value in group.allocatable.items()}
    taints = [taint(t) for t in group.taints]
    made = nodes.node(name, amounts, labels={**scope.labels, **group.labels}, taints=taints)
    # Ready from the start; KWOK would make it so one by one, and keeps it so.
    made["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return made


def taint(wanted: Taint) -> Manifest:
    """A node's taint."""
    return {"key": wanted.key, "value": wanted.value, "effect": wanted.effect}


def priority_class(wanted: PriorityClass, scope: Scope) -> Manifest:
    """A PriorityClass."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": wanted.name, "labels": scope.labels},
        "value": wanted.value,
        "globalDefault": wanted.global_default,
        "preemptionPolicy": wanted.preemption_policy,
    }


def profile(wanted: Profile, scope: Scope) -> Manifest:
    """A QoSProfile."""
    return {
        "apiVersion": API_VERSION,
        "kind": "QoSProfile",
        "metadata": {"name": wanted.name, "labels": scope.labels},
        "spec": wanted.spec.to_json(),
    }


def budget(wanted: Budget, scope: Scope) -> Manifest:
    """A ReservationBudget for the scenario's namespace."""
    spec = wanted.spec.to_json()
    selector = spec["namespaceSelector"]
    spec["namespaceSelector"] = {
        **selector,
        "matchLabels": {**selector.get("matchLabels", {}), **scope.labels},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "ReservationBudget",
        "metadata": {"name": wanted.name, "labels": scope.labels},
        "spec": spec,
    }


def reservation(wanted: Reservation, scope: Scope) -> Manifest:
    """Koordinator's Reservation."""
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": wanted.name, "labels": {**wanted.labels, **scope.labels}},
        "spec": wanted.spec,
    }


def quota(wanted: Quota, scope: Scope) -> Manifest:
    """An ElasticQuota."""
    metadata = {
        "name": wanted.name,
        "namespace": scope.namespace,
        "labels": {**wanted.labels, **scope.labels},
        "annotations": wanted.annotations,
    }
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": metadata,
        "spec": wanted.spec,
    }


def pod_group(wanted: PodGroup, scope: Scope) -> Manifest:
    """A PodGroup."""
    metadata = {
        "name": wanted.name,
        "namespace": scope.namespace,
        "labels": scope.labels,
        "annotations": wanted.annotations,
    }
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": wanted.spec,
    }


def definition(kind: str) -> Manifest:
    """The definition of Reservations, ElasticQuotas or PodGroups, by their plural, as theirs."""
    text = (resources.files("lab") / f"{kind}.yaml").read_text(encoding="utf-8")
    made: Manifest = YAML(typ="safe", pure=True).load(text)
    return made


def policy(wanted: Policy, scope: Scope) -> Manifest:
    """A MinimalReservationPolicy."""
    spec = wanted.spec.to_json()
    placement = spec.setdefault("placement", {})
    if not wanted.spec.inherits and (selector := scope.node_selector(placement.get("nodeSelector", {}))):
        placement["nodeSelector"] = selector
    labels = wanted.metadata.labels if wanted.metadata else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "MinimalReservationPolicy",
        "metadata": {
            "name": wanted.called,
            "namespace": scope.namespace,
            "labels": {**labels, **scope.labels},
        },
        "spec": spec,
    }


def pod(wanted: Workload, number: int, scope: Scope, *, node_name: str = "") -> Manifest:
    """The pod of that number of a workload of kind Pods."""
    template = _template(wanted, scope, wanted.shapes[number % len(wanted.shapes)] if wanted.shapes else None)
    template["metadata"] |= {"name": f"{wanted.name}-{number}", "namespace": scope.namespace}
    if node_name:
        template["spec"]["nodeName"] = node_name
    return {"apiVersion": "v1", "kind": "Pod", **template}


def controller(wanted: Workload, scope: Scope) -> Manifest:
    """The Deployment, StatefulSet, Job or DaemonSet of a workload."""
    spec: Manifest = {"template": _template(wanted, scope, None)}
    if wanted.kind == "Job":
        spec |= {"completions": wanted.count, "parallelism": wanted.count, "backoffLimit": 1000}
        spec["template"]["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": {"app": wanted.name}}
    if wanted.kind in ("Deployment", "StatefulSet"):
        spec["replicas"] = wanted.count
    if wanted.kind == "StatefulSet":
        spec |= {"serviceName": wanted.name, "podManagementPolicy": "Parallel"}
    if wanted.volume_zones:
        spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": _claim("")}]
    if wanted.max_surge is not None:
        spec["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": wanted.max_surge}}
    resource = WORKLOAD_RESOURCES[wanted.kind]
    return {
        "apiVersion": f"{resource.group}/{resource.version}",
        "kind": wanted.kind,
        "metadata": {"name": wanted.name, "namespace": scope.namespace, "labels": scope.labels},
        "spec": spec,
    }


def volumes(wanted: Workload, scope: Scope) -> Iterable[tuple[Manifest, Manifest]]:
    """A PersistentVolume in each of the workload's zones, and the claim of that ordinal, for each other."""
    for ordinal, zone in enumerate(wanted.volume_zones):
        name, claim = f"{scope.namespace}-{wanted.name}-{ordinal}", f"data-{wanted.name}-{ordinal}"
        term = {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": scope.namespace, "name": claim},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "csi": {"driver": "volumes.lab.j10ce.io", "volumeHandle": name},
        }
        yield (
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name, "labels": scope.labels},
                "spec": spec,
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": scope.namespace, "labels": scope.labels},
                "spec": _claim(name),
            },
        )


def _claim(volume: str) -> Manifest:
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "",
    }
    return spec | {"volumeName": volume} if volume else spec


def _template(wanted: Workload, scope: Scope, shape: Mapping[str, int | str] | None) -> Manifest:
    requests = {name: str(value) for name, value in (shape or wanted.requests).items()}
    resources: Manifest = {"requests": requests}
    # Extended resources and huge pages cannot be overcommitted: the API server wants limit = request.
    whole = {r: v for r, v in requests.items() if "/" in r or r.startswith("hugepages-")}
    if whole:
        resources["limits"] = whole
    spec: Manifest = {
        "containers": [{"name": "main", "image": "fake", "resources": resources}],
        "terminationGracePeriodSeconds": wanted.grace_seconds,
    }
    optional = {
        "nodeSelector": scope.node_selector(wanted.node_selector),
        "tolerations": [toleration.to_json() for toleration in wanted.tolerations],
        "topologySpreadConstraints": [one.to_json() for one in wanted.topology_spread_constraints],
        "priorityClassName": wanted.priority_class_name,
        "schedulerName": wanted.scheduler_name,
    }
    spec |= {name: value for name, value in optional.items() if value}
    labels = {"app": wanted.name, **wanted.labels, **scope.labels, SCENARIO_WORKLOAD_LABEL: wanted.name}
    metadata: Manifest = {"labels": labels}
    if wanted.annotations:
        metadata["annotations"] = wanted.annotations
    return {"metadata": metadata, "spec": spec}


RESOURCES = {
    "Policy": POLICIES,
    "Budget": BUDGETS,
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFUL_SETS,
    "Pod": PODS,
    "Node": NODES,
    "PriorityClass": PRIORITY_CLASSES,
    "Profile": PROFILES,
}
