"""The agent on a real node: killed, restarted, replaced and cut off while kubelet and containerd go on."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel import cache
from lab.agent_process import AgentProcess
from lab.cluster import Cluster
from lab.node.node import RealNode
from lab.node.rig import real_node
from lab.runtimes.images import BUSYBOX
from qos.quantity import parse
from tests.cluster.agent_rig import policy
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="a real node needs cgroups, namespaces and mounts: be root"),
]

APP = "checkout"
USAGE_DEADLINE = 1200.0
KUBELETS = {"0": 2, "200m": 204, "250m": 256}
"""Shares by what a pod requests."""


class Here:
    """The node, the agent on it, and a namespace."""

    def __init__(self, cluster: Cluster, node: RealNode, namespace: str, folder: Path) -> None:
        self.cluster, self.node, self.namespace, self.folder = cluster, node, namespace, folder
        self.token = self._reader()
        self.agent = self.an_agent("agent")

    def an_agent(self, name: str, home: Path | None = None) -> AgentProcess:
        return AgentProcess(
            *(self.folder / name, "--node", self.node.name, "--kubeconfig", self.node.kubeconfig),
            wrap=self.node.command,
            home=home,
            host=self.node.address,
            parent=True,
            token=self.token,
        )

    def _reader(self) -> str:
        """The token of an account that may read /metrics."""
        self.kubectl("create", "serviceaccount", "prometheus")
        rights = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": self.namespace},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        }
        self.kubectl("create", "--filename=-", document=rights)
        account = f"--serviceaccount={self.namespace}:prometheus"
        self.kubectl(
            "create", "clusterrolebinding", self.namespace, f"--clusterrole={self.namespace}", account
        )
        return self.kubectl("create", "token", "prometheus").strip()

    def kubectl(self, *arguments: str, document: object = None, check: bool = True) -> str:
        stdin = "" if document is None else json.dumps(document)
        own = ("--namespace", self.namespace)
        return self.cluster.kubectl(*own, *arguments, stdin=stdin, check=check, seconds=120)

    def pod(
        self,
        name: str,
        app: str = APP,
        cpu: str = "200m",
        then: str = "exec sleep 100000",
        cpu_limit: str = "",
    ) -> str:
        """A pod that runs, and first says its own shares; its uid."""
        container = {
            "name": "main",
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", f"cat /sys/fs/cgroup/cpu/cpu.shares; {then}"],
            "resources": {
                "requests": {"cpu": cpu, "memory": "32Mi"},
                "limits": {"cpu": cpu_limit} if cpu_limit else {},
            },
        }
        spec = {"nodeName": self.node.name, "terminationGracePeriodSeconds": 0, "containers": [container]}
        meta = {"name": name, "labels": {"app": app}}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        self.kubectl("create", "--filename=-", document=manifest)
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=100s")
        return self.kubectl("get", "pod", name, "--output=jsonpath={.metadata.uid}")

    def folder_of(self, uid: str) -> Path:
        return self.node.cgroup.folder("cpu", "kubepods", "burstable", f"pod{uid}")

    def shares(self, uid: str) -> int:
        return int((self.folder_of(uid) / "cpu.shares").read_text())

    def containers(self, uid: str) -> dict[str, int]:
        """Shares of the pod's containers, the sandbox left out, by id."""
        found = {}
        for one in self.folder_of(uid).glob("*/cpu.shares"):
            with contextlib.suppress(OSError):  # it goes at this moment
                found[one.parent.name] = int(one.read_text())
        return {name: shares for name, shares in found.items() if shares > 2}

    def said(self, name: str) -> int:
        """What a pod's container said first, once it has: it counts as running before."""
        until(lambda: self.kubectl("logs", name, check=False).strip(), f"what {name} said first")
        return int(self.kubectl("logs", name).split()[0])

    def connected(self) -> bool:
        """By its log: without an API server, who has not been asked for before may not read /metrics."""
        log = self.agent.last_life()
        return log.rfind("nri connected") > log.rfind("nri disconnected")


@contextlib.contextmanager
def stranger(node: RealNode) -> Iterator[None]:
    """A cgroup beside the pods' that is no pod's, with a process; it weighs as much as any can."""
    made = node.cgroup.make("kubepods", "burstable", "stranger")
    (made.folder("cpu") / "cpu.shares").write_text("262144")
    with node.popen(
        ["sleep", "2147483647"]
    ) as process:  # one of another PID namespace the agent does not see
        until(lambda: process.program, "the stranger's process")
        for folder in made.folders():
            (folder / "cgroup.procs").write_text(str(process.program))
        try:
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module")
def here(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    """A node with the agent, a policy, and a cgroup of nobody that leaves little by kubelet's weights."""
    name = f"agent-{secrets.token_hex(2)}"
    cluster.kubectl("create", "namespace", name)
    with real_node(cluster, name) as node, stranger(node):
        made = Here(cluster, node, name, tmp_path_factory.mktemp("node"))
        made.agent.start()
        made.agent.until(made.connected, "NRI")
        made.kubectl("apply", "--filename=-", document=policy(APP, cpu="300m", memory="16Mi"))
        made.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=100s")
        yield made
        made.agent.end()
        made.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    cluster.kubectl("delete", "nodeqos", name, "--ignore-not-found")
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", name, "--ignore-not-found")
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def beside(here: Here) -> str:
    """A pod without a floor; it requests no CPU, so it has nothing to keep."""
    return here.pod("beside", app="other", cpu="0")


@pytest.fixture(scope="module")
def kept(here: Here, beside: str) -> str:
    """A pod with a floor that it would not have from kubelet; it had it from its first instruction."""
    uid = here.pod("kept")
    assert here.shares(beside) == KUBELETS["0"]
    here.agent.until(lambda: here.shares(uid) > KUBELETS["200m"], "the floor")
    here.agent.until(lambda: saved(here.agent, here.containers(uid)), "its own copy of what runs")
    return uid


def saved(agent: AgentProcess, ids: Iterable[str]) -> bool:
    """Whether the agent's own copy names these containers: it is written a second after it changed."""
    text = (agent.folder / "state" / "known.json").read_text()
    return all(one in text for one in ids)


def repaired(here: Here, agent: AgentProcess, uid: str) -> None:
    """Somebody writes the pod's file; the agent puts it right: by its newest plan, as the hook has it.

    A pod without a floor, such as one that is on its way out, may keep all others at kubelet's weights: so
    first there is a plan that gives more.
    """
    agent.until(lambda: planned(agent, uid) > KUBELETS["200m"], "room for the floor")
    (here.folder_of(uid) / "cpu.shares").write_text("3")
    agent.until(lambda: here.shares(uid) == planned(agent, uid), "the repair")
    assert here.shares(uid) > KUBELETS["200m"]


def planned(agent: AgentProcess, uid: str) -> int:
    """The pod's shares as the agent plans them."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    _, entries = cache.read(str(agent.run / "pods"), uid, "main", now)
    return next(int(value) for level, _, file, value in entries if (level, file) == (1, "cpu.shares"))


def test_killed_while_pods_start_and_are_resized(here: Here, kept: str, beside: str) -> None:
    here.agent.end(signal.SIGKILL)
    before = here.shares(kept), here.containers(kept)  # not sooner: a plan may have been under way
    assert here.shares(kept) > KUBELETS["200m"]
    late = here.pod("late")  # nothing holds it up
    assert here.shares(late) == KUBELETS["200m"]
    resize = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "250m"}}}]}}
    here.kubectl("patch", "pod", "late", "--subresource=resize", "--patch", json.dumps(resize))
    until(lambda: here.shares(late) == KUBELETS["250m"], "kubelet's resize")
    assert (here.shares(kept), here.containers(kept)) == before
    assert here.shares(beside) == KUBELETS["0"]
    here.agent.start()
    here.agent.until(lambda: here.shares(late) > KUBELETS["250m"], "the floor of what started meanwhile")
    here.agent.until(here.connected, "NRI")
    repaired(here, here.agent, kept)
    here.kubectl("delete", "pod", "late", "--force", "--grace-period=0")
    until(lambda: not here.folder_of(late).exists(), "the pod's end")


def test_the_next_one_takes_over(here: Here, kept: str) -> None:
    second = here.an_agent("second", home=here.agent.folder)
    second.start(ready=False)
    try:
        second.until(lambda: "stands by" in second.get("/readyz")[1], "standing by")
        repaired(here, here.agent, kept)
        here.agent.end(signal.SIGKILL)
        second.wait_ready()
        second.until(lambda: second.metric("j10ce_agent_nri_connected"), "NRI")
        uid = here.pod("after")
        second.until(lambda: here.shares(uid) > KUBELETS["200m"], "the floor")
        assert here.said("after") in here.containers(uid).values()
        repaired(here, second, kept)
    finally:
        second.end(signal.SIGTERM)
        here.agent.end()
        here.agent.start()
        here.agent.until(here.connected, "NRI")
    here.kubectl("delete", "pod", "after", "--force", "--grace-period=0")
    until(lambda: not here.folder_of(uid).exists(), "the pod's end")


def test_no_control_plane_and_containerd_restarts(here: Here, kept: str, beside: str) -> None:
    """What kubelet starts again meanwhile has its floor from birth, by the agent's own cache."""
    (first,) = here.containers(kept)
    here.cluster.kill("kube-apiserver")
    try:
        here.agent.end(signal.SIGKILL)
        here.node.kill("containerd")
        here.agent.start()
        repaired(here, here.agent, kept)
        here.node.start("containerd")
        here.agent.until(here.connected, "NRI")
        procs = here.folder_of(kept) / first / "cgroup.procs"
        for pid in procs.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        here.agent.until(
            lambda: here.containers(kept).keys() - {first}, "kubelet has restarted the container"
        )
        until(lambda: here.containers(kept).keys().isdisjoint({first}), "the old one is gone")
        here.agent.until(lambda: here.shares(kept) > KUBELETS["200m"], "the floor")
        assert here.shares(beside) == KUBELETS["0"]
    finally:
        here.cluster.start("kube-apiserver")
    until(lambda: here.cluster.kubectl("get", "--raw=/readyz", check=False) == "ok", "the API server is back")
    assert here.said("kept") >= max(here.containers(kept).values())  # more while the old one beside it died
    repaired(here, here.agent, kept)


def test_metrics_are_for_those_whose_token_may_read_them(here: Here) -> None:
    here.agent.until(lambda: here.agent.get("/metrics", here.token)[0] == 200, "the reader's right")
    assert here.agent.get("/metrics")[0] == 403, "by HTTP, and not from the loopback"
    assert here.agent.get("/metrics", "nobodys")[0] == 401
    assert here.agent.get("/metrics", here.kubectl("create", "token", "default").strip())[0] == 403
    assert here.agent.get("/readyz")[0] == 200


@pytest.mark.full  # an agent measures each 45 s, and reports that once a minute
@pytest.mark.timeout(3 * USAGE_DEADLINE)
def test_its_report_says_what_pods_use(here: Here, kept: str, beside: str) -> None:
    here.pod("busy", app="other", cpu="100m", then="while :; do :; done", cpu_limit="200m")

    def used() -> dict[str, Any]:
        shown = here.kubectl("get", "nodeqos", here.node.name, "--output=json", check=False)
        return dict(json.loads(shown or "{}").get("status", {}).get("usage") or {})

    def of_pods() -> dict[str, Any]:
        return {one["pod"]: one for one in used().get("pods", [])}

    names = {f"{here.namespace}/{name}" for name in ("kept", "beside", "busy")}
    here.agent.until(lambda: names <= of_pods().keys(), "what all pods use", seconds=USAGE_DEADLINE)
    busy = f"{here.namespace}/busy"
    cpu = parse("cpu", of_pods()[busy]["cpu"])
    assert 150 <= cpu <= 250
    assert parse("cpu", used()["cpu"]) > cpu
    assert parse("memory", used()["memory"]) > parse("memory", of_pods()[busy]["memory"])
    here.kubectl("delete", "pod", "busy", "--force", "--grace-period=0")
    here.agent.until(lambda: busy not in of_pods(), "the pod's end", seconds=USAGE_DEADLINE)


def test_without_the_policy_kubelets_values_are_back(here: Here, kept: str, beside: str) -> None:
    here.agent.until(lambda: here.agent.metric("j10ce_agent_pods") >= 2, "both are known")
    here.kubectl("delete", "mrp", APP)
    kubelets = (KUBELETS["200m"], {KUBELETS["200m"]})
    here.agent.until(
        lambda: (here.shares(kept), set(here.containers(kept).values())) == kubelets, "kubelet's values"
    )
    assert here.shares(beside) == KUBELETS["0"]
    assert not [name for name in here.agent.metrics() if "loop_errors_total" in name]
    pods = json.loads(here.kubectl("get", "pods", "--output=json"))["items"]
    assert {one["metadata"]["uid"] for one in pods} == {kept, beside}  # nobody was evicted
