"""The objects that play, as the API server has them: as small as they can be and still be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from qos import keys
from qos.keys import HOSTNAME_LABEL, ZONE_LABEL
from simulation.parsed import PIN_LABEL
from simulation.store import Body

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
PRIORITIES: Mapping[str, int] = {"low": 0, "middle": 10, "high": 100}
"""PriorityClasses of the world; `low` is the default."""
MEMORY = "Mi"


def zone_of(node: str) -> str:
    """One of three zones, by the number in a node's name."""
    return "abc"[int("".join(filter(str.isdigit, node)) or 0) % 3]


def spread(app: str, skew: int) -> Body:
    """A constraint that spreads a workload's pods over zones."""
    return {
        "maxSkew": skew,
        "topologyKey": ZONE_LABEL,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }


def node(name: str, cpu: int, memory: int, pods: int, link: int = 0) -> Body:
    """A node that is Ready. cpu in millicores, memory in Mi, link in Mbit/s; 0: its agent publishes none."""
    published = dict.fromkeys(keys.BANDWIDTHS.values(), f"{link}M") if link else {}
    amounts = {"cpu": f"{cpu}m", "memory": f"{memory}{MEMORY}", "pods": str(pods), **published}
    return {
        "metadata": {"name": name, "labels": {HOSTNAME_LABEL: name, ZONE_LABEL: zone_of(name)}},
        "spec": {},
        "status": {
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, cpu: int, memory: int, priority: int, labels: Mapping[str, str], **spec: Any) -> Body:
    """A pod of one container. cpu in millicores, memory in Mi; `owner` is its controller, `link` the Mbit/s
    that it asks to send.
    """
    metadata: Body = {"name": name, "namespace": "default", "labels": dict(labels)}
    if annotations := spec.pop("annotations", None):
        metadata["annotations"] = annotations
    if owner := spec.pop("owner", None):
        metadata["ownerReferences"] = [owner]
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}{MEMORY}"}
    if link := spec.pop("link", 0):
        requests[keys.EGRESS_BANDWIDTH] = f"{link}M"
    return {
        "metadata": metadata,
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": requests}}],
            "schedulerName": spec.pop("scheduler", "default-scheduler"),
            "priority": priority,
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def resized(pod: Body, cpu: int) -> Body:
    """The pod with another CPU request."""
    container = pod["spec"]["containers"][0]
    requests = {**container["resources"]["requests"], "cpu": f"{cpu}m"}
    container = {**container, "resources": {"requests": requests}}
    return {**pod, "spec": {**pod["spec"], "containers": [container]}}


def priority_class(name: str, value: int) -> Body:
    """A PriorityClass."""
    return {"metadata": {"name": name}, "value": value, "globalDefault": name == "low"}


def policy(name: str, spec: Mapping[str, Any]) -> Body:
    """A MinimalReservationPolicy for the pods labelled app=name."""
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "MinimalReservationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": selector, **spec},
    }


def budget(name: str, spec: Mapping[str, Any]) -> Body:
    """A ReservationBudget."""
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "ReservationBudget",
        "metadata": {"name": name},
        "spec": dict(spec),
    }


def user(name: str, cpu: int, memory: int, priority: int, how: Mapping[str, Any]) -> Body:
    """A pod that may use Reservations. `how`: its labels `use` and `app`, its `controller`, a Job of that
    name, its reservation-`affinity`, and whether it is to use none: `ignored`.
    """
    labels = {"plain": name} | {key: how[key] for key in ("use", "app") if key in how}
    more: Body = {}
    if how.get("ignored"):
        labels[keys.RESERVATION_IGNORED_LABEL] = "true"
    if "controller" in how:
        job = how["controller"]
        more["owner"] = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job,
            "uid": f"job-{job}",
            "controller": True,
        }
    if "affinity" in how:
        more["annotations"] = {keys.RESERVATION_AFFINITY_ANNOTATION: json.dumps(how["affinity"])}
    return pod(name, cpu, memory, priority, labels, **more)


def reservation(name: str, spec: Mapping[str, Any]) -> Body:
    """A Reservation of so much `cpu` (millicores) and `memory` (Mi), of some `priority` and `order`, none if
    not said; what else `spec` says as Koordinator has it.
    """
    own = ("cpu", "memory", "priority", "order")
    requests = {"cpu": f"{spec['cpu']}m"} | (
        {"memory": f"{spec['memory']}{MEMORY}"} if spec["memory"] else {}
    )
    template: Body = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    if "priority" in spec:
        template["priority"] = spec["priority"]
    labels = {keys.RESERVATION_ORDER_LABEL: str(spec["order"])} if "order" in spec else {}
    rest = {key: value for key, value in spec.items() if key not in own}
    return {
        "apiVersion": f"{keys.RESERVATION_GROUP}/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "labels": labels},
        "spec": {"template": {"spec": template}, **rest},
    }


def namespace(tier: str) -> Body:
    """The namespace of all policies, of some tier; "" none."""
    return {"metadata": {"name": "default", "labels": {"tier": tier} if tier else {}}}


def deployment(name: str, replicas: int, template: Body) -> Body:
    """A Deployment of these pods."""
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "template": {"metadata": template["metadata"], "spec": template["spec"]},
        },
    }


def daemon_set(name: str, cpu: int, memory: int) -> Body:
    """A DaemonSet that tolerates everything."""
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}{MEMORY}"}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "template": {
                "metadata": {"labels": {"daemon": name}},
                "spec": {
                    "containers": [{"name": "main", "resources": {"requests": requests}}],
                    "tolerations": [{"operator": "Exists"}],
                },
            }
        },
    }


def pinned(daemon: Body, node: str, number: int) -> Body:
    """A DaemonSet's pod for one node."""
    meta = daemon["metadata"]
    container = daemon["spec"]["template"]["spec"]["containers"][0]
    body = pod(f"{meta['name']}-{node}-{number}", 0, 0, 0, {"daemon": meta["name"], PIN_LABEL: node})
    owner = {"kind": "DaemonSet", "name": meta["name"], "uid": meta["uid"], "controller": True}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    body["metadata"]["ownerReferences"] = [owner]
    body["spec"]["containers"] = [container]
    body["spec"]["affinity"] = {"nodeAffinity": required}
    return body
