"""What bound placeholder pods cost a real kubelet and containerd, by form and number; as root, 20 minutes.

    python -P -m benchmarks.placeholder_forms [FORM ...] [eviction]

Forms: `never` waits for a volume of a ConfigMap that does not exist, `pause` runs a program that sleeps,
`host` runs it in the node's network. `eviction`: whom kubelet evicts first when memory is short. One JSON
object a line; docs/decisions/placeholder-form.md is written from them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from lab import binaries, cluster, processes
from lab.cluster import Cluster
from lab.node import inside
from lab.node.node import RealNode
from lab.node.rig import real_node
from lab.runtimes.images import BUSYBOX, PAUSE

FORMS: Final = ("never", "pause", "host")
COUNTS: Final = (1, 50, 100)
WINDOW_SECONDS: Final = 60.0
LATER_SECONDS: Final = 180.0
"""After so long kubelet's pauses between two tries to mount are as long as they get: 2 min 2 s."""
_SPACE: Final = "placeholders"
_CLASS: Final = "placeholder"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def placeholder(name: str, form: str, node: str, cpu: str = "10m") -> dict[str, Any]:
    """A pod that only takes room, which kube-scheduler puts on one node."""
    container: dict[str, Any] = {
        "name": "hold",
        "image": PAUSE,
        "imagePullPolicy": "Never",
        "resources": {"requests": {"cpu": cpu, "memory": "2Mi"}},
    }
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [only]}
    spec: dict[str, Any] = {
        "priorityClassName": _CLASS,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "containers": [container],
    }
    if form == "never":
        spec["volumes"] = [{"name": "never", "configMap": {"name": "never"}}]
        container["volumeMounts"] = [{"name": "never", "mountPath": "/never"}]
    if form == "host":
        spec["hostNetwork"] = True
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": _SPACE, "labels": {"form": form}},
        "spec": spec,
    }


def classes() -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": _CLASS},
            "value": 1000,
            "preemptionPolicy": "Never",
        },
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _SPACE}},
    ]


def listed(items: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def wait(condition: Callable[[], bool], what: str, seconds: float = 300.0) -> float:
    """Seconds until it is so."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.2)
    return time.monotonic() - begun


def pods(here: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(here.kubectl("get", "pods", "-n", _SPACE, "-o", "json"))["items"]
    return found


def is_settled(pod: dict[str, Any], form: str) -> bool:
    """Taken by kubelet and, where it runs, ready."""
    status = pod.get("status", {})
    if form == "never":
        return "startTime" in status
    return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))


# What programs use.


def cpu_seconds(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS
    return 0.0


def own_bytes(pid: int) -> int:
    """Its share of the memory that it maps (PSS)."""
    with contextlib.suppress(OSError):
        found = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) * 1024 if found else 0
    return 0


def programs(node: RealNode) -> dict[str, list[int]]:
    """Pids by what they are: kubelet, containerd, its shims, and what runs in containers and sandboxes."""
    found: dict[str, list[int]] = {"kubelet": [], "containerd": [], "shims": [], "containers": []}
    for pid in inside.members(node.first):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            words = {"kubelet": "kubelet", "containerd": "containerd", "containerd-shim": "shims"}
            if kind := words.get(name):
                found[kind].append(pid)
    for file in node.cgroup.folder("memory", "kubepods").rglob("cgroup.procs"):
        with contextlib.suppress(OSError):
            found["containers"] += map(int, file.read_text().split())
    return found


def used(node: RealNode) -> dict[str, float]:
    there = programs(node)
    return {kind: sum(cpu_seconds(pid) for pid in pids) for kind, pids in there.items()}


def events(here: Cluster) -> tuple[Counter[str], int]:
    """How often each reason was told, and how many objects that are."""
    found = json.loads(here.kubectl("get", "events", "-n", _SPACE, "-o", "json"))["items"]
    told: Counter[str] = Counter()
    for one in found:
        told[one["reason"]] += (one.get("series") or {}).get("count") or one.get("count") or 1
    return told, len(found)


def cgroups_of(node: RealNode) -> int:
    return sum(1 for path in node.cgroup.folder("memory", "kubepods").rglob("*") if path.is_dir())


def crictl(node: RealNode, *words: str) -> int:
    done = node.run([node.programs.runtime / "crictl", *words, "-q"]).succeeded()
    return len(done.stdout.split())


# What is measured.


def window(here: Cluster, node: RealNode, seconds: float = WINDOW_SECONDS) -> dict[str, Any]:
    """CPU a minute and Events told, while nothing changes."""
    before, (told, _) = used(node), events(here)
    begun = time.monotonic()
    time.sleep(seconds)
    minutes = (time.monotonic() - begun) / 60
    after, (said, objects) = used(node), events(here)
    said.subtract(told)
    return {
        "cpuSecondsAMinute": {kind: round((after[kind] - before[kind]) / minutes, 2) for kind in after},
        "eventsToldAMinute": {reason: round(count / minutes, 1) for reason, count in said.items() if count},
        "eventObjects": objects,
    }


def state(here: Cluster, node: RealNode) -> dict[str, Any]:
    there, found = programs(node), pods(here)
    return {
        "sandboxes": crictl(node, "pods", "--state=ready"),
        "containers": crictl(node, "ps"),
        "cgroups": cgroups_of(node),
        "processes": {kind: len(pids) for kind, pids in there.items()},
        "megabytes": {kind: round(sum(map(own_bytes, pids)) / 1e6, 1) for kind, pids in there.items()},
        "addresses": len({one["status"].get("podIP", "") for one in found} - {"", node.address}),
        "phases": Counter(one["status"]["phase"] for one in found),
    }


def restarted(here: Cluster, node: RealNode) -> dict[str, Any]:
    """kubelet killed and started with them: what it costs, and what becomes of them."""

    def reported() -> str:
        conditions = json.loads(here.kubectl("get", "node", node.name, "-o", "json"))["status"]["conditions"]
        return str(next(one["lastHeartbeatTime"] for one in conditions if one["type"] == "Ready"))

    before, runs = reported(), {one["metadata"]["uid"] for one in pods(here)}
    node.kill("kubelet")
    time.sleep(1.1)  # heartbeats are in whole seconds
    node.start("kubelet")
    ready = wait(lambda: reported() > before, "kubelet reports")
    time.sleep(30)
    after = pods(here)
    return {
        "secondsUntilItReports": round(ready, 1),
        "cpuSecondsIn30": round(used(node)["kubelet"], 2),
        "phases": Counter(one["status"]["phase"] for one in after),
        "same": {one["metadata"]["uid"] for one in after} == runs,
    }


def placed(here: Cluster, node: RealNode, form: str, count: int) -> Iterator[dict[str, Any]]:
    """The figures of a form and a number."""
    made = [placeholder(f"{form}-{number}", form, node.name) for number in range(count)]
    before = used(node)
    begun = time.monotonic()
    here.kubectl("create", "-f", "-", stdin=listed(made), seconds=120)
    wait(lambda: all(is_settled(one, form) for one in pods(here)), f"{count} {form}")
    taken, after = time.monotonic() - begun, used(node)
    first = {
        "secondsToSettle": round(taken, 1),
        "cpuSecondsToSettle": {kind: round(after[kind] - before[kind], 2) for kind in after},
    }
    yield {"form": form, "count": count} | first | window(here, node) | state(here, node)
    if count == max(COUNTS):
        if form == "never":
            time.sleep(LATER_SECONDS - WINDOW_SECONDS)
            yield {"form": form, "count": count, "afterSeconds": LATER_SECONDS} | window(here, node, 122)
        yield {"form": form, "count": count, "restarted": restarted(here, node)}
        yield {"form": form, "count": count, "afterSeconds": "restart"} | window(here, node)
    begun = time.monotonic()
    here.kubectl("delete", "pods", "-n", _SPACE, "--all", "--wait=false", seconds=120)
    wait(lambda: not pods(here) and not crictl(node, "pods", "--state=ready"), "they are gone")
    yield {"form": form, "count": count, "secondsToRemove": round(time.monotonic() - begun, 1)}


def evicted(here: Cluster, node: RealNode) -> dict[str, Any]:
    """Whom kubelet evicts first when memory is short: placeholders, or a pod that uses more than it asked.

    Short because kubelet starts anew with a threshold above what is available.
    """
    hog = placeholder("hog", "pause", node.name)
    fill = "dd if=/dev/zero of=/dev/shm/full bs=1M count=50; exec sleep 100000"
    hog["spec"]["containers"][0] |= {"image": BUSYBOX, "command": ["/bin/sh", "-c", fill]}
    del hog["spec"]["priorityClassName"]
    made = [placeholder(f"{form}-{n}", form, node.name) for form in FORMS for n in range(3)]
    here.kubectl("create", "-f", "-", stdin=listed([hog, *made]), seconds=120)
    wait(lambda: all(is_settled(one, one["metadata"]["labels"]["form"]) for one in pods(here)), "pods")
    summary = f"/api/v1/nodes/{node.name}/proxy/stats/summary"
    told = json.loads(here.kubectl("get", "--raw", summary))
    with_stats = sorted(one["podRef"]["name"] for one in told["pods"])
    settings = node.outside("/etc/kubernetes/kubelet.yaml")
    changed = json.loads(settings.read_text())
    # Halfway between what is available and all there is: a threshold above that leaves nothing to allocate.
    memory = told["node"]["memory"]
    changed["evictionHard"]["memory.available"] = str(
        memory["availableBytes"] + memory["workingSetBytes"] // 2
    )
    settings.write_text(json.dumps(changed))
    node.kill("kubelet")
    node.start("kubelet")
    begun = time.monotonic()
    order: dict[str, float] = {}
    while len(order) < len(made) + 1 and time.monotonic() - begun < 120:
        for one in pods(here):
            if one["status"].get("reason") == "Evicted":
                order.setdefault(one["metadata"]["name"], round(time.monotonic() - begun, 1))
        time.sleep(0.2)
    return {"podsWithStatistics": with_stats, "evictedAfterSeconds": order}


def main() -> int:
    chosen = sys.argv[1:] or [*FORMS, "eviction"]
    processes.exit_on_sigterm()
    name = f"forms-{secrets.token_hex(3)}"
    here = cluster.up(name, binaries=binaries.provide(os.environ), crds=False)
    try:
        here.kubectl("create", "-f", "-", stdin=listed(classes()))
        with real_node(here) as node:
            wait(lambda: "default" in here.kubectl("get", "sa", "-n", _SPACE, "-o", "name"), "its account")
            time.sleep(10)
            print(
                json.dumps({"form": "none", "count": 0} | window(here, node) | state(here, node)), flush=True
            )
            for form in (one for one in chosen if one in FORMS):
                for count in COUNTS:
                    for figures in placed(here, node, form, count):
                        print(json.dumps(figures), flush=True)
            if "eviction" in chosen:
                print(json.dumps(evicted(here, node)), flush=True)
    finally:
        cluster.down(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
