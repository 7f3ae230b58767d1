"""Records what a real kube-scheduler sends to an extender, into tests/data/kube-scheduler.

Run by hand when a new Kubernetes version is taken up: python tests/cluster/record_payloads.py
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lab import binaries, nodes, scheduler_config
from lab import cluster as lab_cluster
from lab.cluster import Cluster

DATA = Path(__file__).parent.parent / "data" / "kube-scheduler"
VERBS = ("filter", "prioritize", "preempt", "bind")
NODES = 2
DEADLINE_SECONDS = 60

Body = dict[str, Any]


def answer_filter(body: Body) -> Body:
    return {"Nodes": body["Nodes"], "NodeNames": body["NodeNames"], "FailedNodes": {}, "Error": ""}


def answer_prioritize(body: Body) -> list[Body]:
    names = body["NodeNames"] or [node["metadata"]["name"] for node in body["Nodes"]["items"]]
    return [{"Host": name, "Score": 1} for name in names]


def answer_preempt(body: Body) -> Body:
    if body["NodeNameToMetaVictims"]:
        return {"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]}
    return {
        "NodeNameToMetaVictims": {
            node: {
                "Pods": [{"UID": pod["metadata"]["uid"]} for pod in victims["Pods"]],
                "NumPDBViolations": victims["NumPDBViolations"],
            }
            for node, victims in body["NodeNameToVictims"].items()
        }
    }


def answer_bind(cluster: Cluster, body: Body) -> Body:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": body["PodName"], "namespace": body["PodNamespace"], "uid": body["PodUID"]},
        "target": {"kind": "Node", "name": body["Node"]},
    }
    path = f"/api/v1/namespaces/{body['PodNamespace']}/pods/{body['PodName']}/binding"
    cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    return {"Error": ""}


def recorder(seen: dict[str, bytes], answers: dict[str, Callable[[Body], Any]]) -> ThreadingHTTPServer:
    """A server that accepts everything and keeps the first body of each verb."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            verb = self.path.strip("/")
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            answer = json.dumps(answers[verb](json.loads(raw))).encode()
            seen.setdefault(verb, raw)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def pod(name: str, priority_class: str = "") -> Body:
    """A pod that fills more than half a node."""
    resources = {"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    spec: Body = {
        "containers": [{"name": "main", "image": "registry.invalid/none", "resources": resources}],
        "initContainers": [
            {
                "name": "sidecar",
                "image": "registry.invalid/none",
                "restartPolicy": "Always",
                "resources": {"requests": {"cpu": "100m"}},
            }
        ],
    }
    if priority_class:
        spec["priorityClassName"] = priority_class
    metadata = {"name": name, "namespace": "default", "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def drive(cluster: Cluster, seen: dict[str, bytes]) -> None:
    """Fill the nodes, then let a pod of higher priority preempt."""
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }
    apply(cluster, [priority, *nodes.nodes("node", NODES, {"cpu": "4"})])
    cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
    wait(lambda: "default" in cluster.kubectl("get", "serviceaccount", "-o", "name"), "the service account")
    for number in range(NODES):
        apply(cluster, [pod(f"filler-{number}")])
    wait(lambda: cluster.kubectl("get", "pods", "-o", "wide").count("node-") == NODES, "the fillers to bind")
    apply(cluster, [pod("preemptor", "high")])
    wait(lambda: set(VERBS) <= set(seen), "every verb to be called")


def apply(cluster: Cluster, objects: list[Body]) -> None:
    cluster.kubectl("create", "-f", "-", stdin="\n---\n".join(json.dumps(one) for one in objects))


def wait(ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {DEADLINE_SECONDS} s for {what}")
        time.sleep(0.1)


def record(cache_capable: bool, folder: Path) -> None:
    """One cluster, one recording."""
    seen: dict[str, bytes] = {}
    answers: dict[str, Callable[[Body], Any]] = {
        "filter": answer_filter,
        "prioritize": answer_prioritize,
        "preempt": answer_preempt,
    }
    server = recorder(seen, answers)
    entry: Body = {f"{verb}Verb": verb for verb in VERBS}
    entry |= {"urlPrefix": "http://127.0.0.1:1", "weight": 1, "nodeCacheCapable": cache_capable}
    config = scheduler_config.empty() | {"extenders": [entry | {"httpTimeout": "5s"}]}
    cluster = lab_cluster.up(
        f"record-{secrets.token_hex(3)}",
        binaries=binaries.provide(os.environ),
        scheduler_config=config,
        verbs_url=f"http://127.0.0.1:{server.server_port}",
        crds=False,
    )
    answers["bind"] = lambda body: answer_bind(cluster, body)
    try:
        drive(cluster, seen)
        version = cluster.kubectl("version", "-o", "json")
    finally:
        server.shutdown()
        lab_cluster.down(cluster.name)
    folder.mkdir(parents=True, exist_ok=True)
    for verb in VERBS:
        text = json.dumps(json.loads(seen[verb]), indent=1, ensure_ascii=False) + "\n"
        (folder / f"{verb}.json").write_text(text)
    (folder / "version").write_text(json.loads(version)["serverVersion"]["gitVersion"] + "\n")


if __name__ == "__main__":
    for capable, name in ((True, "node-names"), (False, "full-nodes")):
        record(capable, DATA / name)
        sys.stdout.write(f"recorded {name}\n")
