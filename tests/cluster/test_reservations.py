"""Koordinator's Reservations on a real control plane: their definition, our extender, an unmodified
kube-scheduler.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import extender_process, nodes
from lab.cluster import Cluster
from lab.extender_process import ExtenderProcess

pytestmark = [pytest.mark.cluster, pytest.mark.full]

ROOT = Path(__file__).parents[2]
STRICT = ROOT / "scheduler-config" / "strict.yaml"
DEFINITION = ROOT / "lab" / "reservations.yaml"
DEADLINE = 120.0

Object = dict[str, Any]


def template(cpu: str, **spec: Any) -> Object:
    container = {"name": "main", "image": "registry.invalid/none", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0} | spec}


def pod(name: str, cpu: str, app: str, **annotations: str) -> Object:
    metadata = {"name": name, "namespace": "default", "labels": {"app": app}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **template(cpu)}


def reservation(name: str, cpu: str, app: str, **spec: Any) -> Object:
    owners = [{"labelSelector": {"matchLabels": {"app": app}}}]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"template": template(cpu, **spec.pop("pod", {})), "owners": owners} | spec,
    }


class Rig:
    """The cluster, the extender, and what they say."""

    def __init__(self, cluster: Cluster, extender: ExtenderProcess) -> None:
        self.cluster, self.extender = cluster, extender

    def create(self, *objects: Object) -> None:
        self.cluster.kubectl("create", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))

    def get(self, *what: str) -> Any:
        return json.loads(self.cluster.kubectl("get", *what, "-o", "json"))

    def status(self, name: str) -> Object:
        found: Object = self.get("reservation", name).get("status", {})
        return found

    def node_of(self, name: str) -> str:
        return str(self.get("pod", name)["spec"].get("nodeName", ""))

    def used(self, name: str) -> str:
        """The Reservation that a pod says it uses."""
        said = self.get("pod", name)["metadata"]["annotations"]
        return str(json.loads(said["scheduling.koordinator.sh/reservation-allocated"])["name"])

    def wait(self, ready: Callable[[], Any]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not ready():
            assert time.monotonic() < deadline, f"not within {DEADLINE} s; {self.extender.last_words()}"
            time.sleep(0.05)

    def in_phase(self, name: str, phase: str) -> None:
        self.wait(lambda: self.status(name).get("phase") == phase)


def test_reservations_from_a_missing_definition_to_their_end(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(STRICT)
    extender = extender_process.start(
        cluster,
        mode="Strict",
        config={"koordinator": {"reservations": True}},
        extra=["--cap-percent", "100"],
    )
    extender.wait_ready()
    rig = Rig(cluster, extender)
    assert "reservations.scheduling.koordinator.sh not listed" in extender.log.read_text()
    rig.create(*nodes.nodes("node", 2, {"cpu": "4"}))
    cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
    cluster.kubectl("create", "-f", str(DEFINITION))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(DEFINITION))

    # Held against everybody, and used up by the first owner.
    rig.create(reservation("once", "3", "web"), reservation("pool", "3", "job", allocateOnce=False))
    for name in ("once", "pool"):
        rig.in_phase(name, "Available")
    kept = rig.status("once")
    assert kept["allocatable"] == {"cpu": "3"}
    assert kept["nodeName"] != rig.status("pool")["nodeName"]
    rig.create(pod("large", "2", "other"), pod("web-0", "2", "web"))
    rig.in_phase("once", "Succeeded")
    assert (rig.node_of("web-0"), rig.used("web-0")) == (kept["nodeName"], "once")
    done = rig.status("once")
    assert [one["name"] for one in done["currentOwners"]] == ["web-0"]
    assert done["allocated"] == {"cpu": "2"}
    rig.wait(lambda: rig.node_of("large") == kept["nodeName"])  # what the owner did not need is free

    # Shared: what its pods leave is held, over a kill -9, and given back when one ends.
    pool = rig.status("pool")["nodeName"]
    rig.create(pod("job-0", "2", "job"))
    rig.wait(lambda: rig.status("pool").get("allocated") == {"cpu": "2"})
    extender.kill(signal.SIGKILL)
    extender.restart()
    extender.wait_ready()
    must = json.dumps({"name": "pool"})
    affinity = {"scheduling.koordinator.sh/reservation-affinity": must}
    rig.create(pod("other-0", "2", "other"), pod("job-1", "1", "job", **affinity))
    rig.wait(lambda: rig.node_of("job-1") == pool)
    rig.wait(lambda: rig.status("pool").get("allocated") == {"cpu": "3"})
    assert rig.node_of("other-0") == ""
    cluster.kubectl("delete", "pod", "job-0", "--wait=false")
    rig.wait(lambda: rig.status("pool").get("allocated") == {"cpu": "1"})

    # Its time is over: what it held is free.
    soon = {"spec": {"ttl": "1s"}}
    cluster.kubectl("patch", "reservation", "pool", "--type=merge", "-p", json.dumps(soon))
    rig.in_phase("pool", "Failed")
    rig.wait(lambda: rig.node_of("other-0") == pool)

    # What is not honoured is said, and a node that is lost ends it.
    rig.create(reservation("tiny", "10m", "nobody", preAllocation=True, pod={"nodeName": pool}))
    rig.in_phase("tiny", "Available")
    conditions = {one["type"]: one for one in rig.status("tiny")["conditions"]}
    assert "spec.preAllocation" in conditions["Honoured"]["message"]
    cluster.kubectl("delete", "node", pool)
    rig.in_phase("tiny", "Failed")
