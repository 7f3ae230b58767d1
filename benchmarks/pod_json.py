"""A pod as the API server has it: some 5 KB, managed fields, statuses and probes included."""

from __future__ import annotations

from typing import Any, Final

MADE: Final = "2026-01-01T00:00:00Z"


def pod_json(
    name: str,
    cores: float,
    node: str = "",
    *,
    namespace: str = "batch",
    app: str = "batch",
    bound_by: str = "bench",
    scheduler: str = "default-scheduler",
    scheduled: str = MADE,
    phase: str = "",
    **meta: Any,
) -> dict[str, Any]:
    """Of two containers, pending, or running on `node` and bound by the extender; `meta`: more metadata."""
    metadata: dict[str, Any] = {
        "name": name,
        "generateName": f"{app}-7d4b9c6f5d-",
        "namespace": namespace,
        "uid": f"uid-{name}",
        "labels": {"app": app, "pod-template-hash": "7d4b9c6f5d", "tier": "backend"},
        "creationTimestamp": MADE,
        "ownerReferences": [_controller(app)],
        "managedFields": [_managed("kube-controller-manager"), _managed("kubelet")],
    }
    if node and bound_by:
        metadata["annotations"] = {"j10ce.io/bound-by": bound_by, "prometheus.io/scrape": "true"}
    spec: dict[str, Any] = {
        "containers": [_container("main", int(cores * 1_000) - 10), _container("proxy", 10)],
        "volumes": [{"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": []}}],
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "securityContext": {},
        "schedulerName": scheduler,
        "tolerations": [_toleration("not-ready"), _toleration("unreachable")],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    if node:
        spec["nodeName"] = node
    status = _running(scheduled) if node else {"phase": "Pending", "qosClass": "Burstable"}
    if phase:
        status["phase"] = phase
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | meta, "spec": spec, "status": status}


def _controller(app: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{app}-7d4b9c6f5d",
        "uid": f"replica-set-{app}",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _managed(by: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        f'k:{{"name":"{name}"}}': {".": {}, "f:image": {}, "f:env": {}} for name in ("main", "proxy")
    }
    return {
        "manager": by,
        "operation": "Update",
        "apiVersion": "v1",
        "time": MADE,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}}}, "f:spec": {"f:containers": fields}},
    }


def _container(name: str, millicores: int) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10}
    return {
        "name": name,
        "image": f"registry.example/{name}:1.2.3",
        "env": [{"name": f"VARIABLE_{i}", "value": f"the value of variable {i}"} for i in range(8)],
        "resources": {
            "requests": {"cpu": f"{millicores}m", "memory": "512Mi"},
            "limits": {"memory": "512Mi"},
        },
        "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets", "readOnly": True}],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False},
    }


def _toleration(what: str) -> dict[str, Any]:
    key = f"node.kubernetes.io/{what}"
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


def _running(scheduled: str) -> dict[str, Any]:
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "conditions": [{"type": one, "status": "True", "lastTransitionTime": scheduled} for one in types],
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}],
        "startTime": scheduled,
        "qosClass": "Burstable",
        "containerStatuses": [_container_status("main"), _container_status("proxy")],
    }


def _container_status(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": MADE}},
        "lastState": {},
        "image": f"registry.example/{name}:1.2.3",
        "imageID": f"registry.example/{name}@sha256:{'0123456789abcdef' * 4}",
        "containerID": f"containerd://{'0123456789abcdef' * 4}",
    }
