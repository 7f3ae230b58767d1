"""An agent beside a crowd of pods: real cgroups, a real API server, an account with few rights."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import select
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters.api import PODS
from adapters.kubernetes.client import KubernetesAPI
from agent.enforcement.fanotify import Fanotify, Written
from kernel.allowed import ALLOWED
from lab.agent_process import AgentProcess, Part
from lab.cluster import Cluster
from lab.crowd import Crowd, CrowdPod
from lab.nodes import REAL
from tests.waiting import until

RIGHTS = [
    {"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["list", "watch"]},
    {
        "apiGroups": ["j10ce.io"],
        "resources": ["minimalreservationpolicies", "qosprofiles"],
        "verbs": ["list", "watch"],
    },
    {"apiGroups": ["j10ce.io"], "resources": ["nodeqoses"], "verbs": ["get", "create"]},
    {"apiGroups": ["j10ce.io"], "resources": ["nodeqoses/status"], "verbs": ["patch"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
]
"""All that the agent asks of an API server: nothing that could remove or evict a pod."""


def policy(name: str, cpu: str = "16m", memory: str = "48Mi") -> dict[str, Any]:
    return {
        "apiVersion": "j10ce.io/v1alpha1",
        "kind": "MinimalReservationPolicy",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "floor": {"resources": {"cpu": cpu, "memory": memory}},
            "slots": {"count": 1},
        },
    }


@dataclass
class Place:
    """A node that only the API server knows, its pods in a crowd, and what an agent of it is started with."""

    cluster: Cluster
    part: Part
    crowd: Crowd
    folder: Path
    namespace: str
    kubeconfig: Path
    made: int = 0
    pods_that_stay: list[CrowdPod] = field(default_factory=list)

    @property
    def node(self) -> str:
        return self.namespace

    def kubectl(self, *arguments: str, document: Any = None) -> str:
        stdin = "" if document is None else json.dumps(document)
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def apply(self, document: Any) -> None:
        self.kubectl("apply", "--filename=-", document=document)

    def pods(self, app: str, count: int, cpu: int = 8, *, empty: bool = False) -> list[CrowdPod]:
        """So many more, with cgroups of the uids of the API server's. cpu: millicores a container."""
        return asyncio.run(self._pods(app, count, cpu, empty=empty))

    async def _pods(self, app: str, count: int, cpu: int, *, empty: bool) -> list[CrowdPod]:
        first, self.made = self.made, self.made + count
        labels = {"app": app, "batch": f"from-{first}"}
        draft = CrowdPod("", "", {"c0": "", "c1": ""}, labels=labels, cpu=cpu)
        async with KubernetesAPI.from_kubeconfig(self.cluster.kubeconfig) as api:
            bodies = [draft.manifest(self.node, self.namespace) for _ in range(count)]
            for index, body in enumerate(bodies):
                body["metadata"]["name"] = f"crowd-{first + index}"
                body["spec"]["tolerations"] = [{"operator": "Exists"}]  # nobody says that the node is well
            made = await asyncio.gather(*(api.create(PODS, self.namespace, body) for body in bodies))
            uids = [json.loads(raw)["metadata"]["uid"] for raw in made]
            names = [body["metadata"]["name"] for body in bodies]
            pods = self.crowd.add(count, uids=uids, names=names, labels=labels, cpu=cpu, empty=empty)
            status = [{"status": pod.status()} for pod in pods]
            await asyncio.gather(
                *(
                    api.patch(PODS, self.namespace, pod.name, body, subresource="status")
                    for pod, body in zip(pods, status, strict=True)
                )
            )
        return pods

    @contextlib.contextmanager
    def more(self, app: str, count: int, cpu: int = 8, *, empty: bool = False) -> Iterator[list[CrowdPod]]:
        """The same for the time of the block; those whose cgroups are still there then are removed."""
        pods = self.pods(app, count, cpu, empty=empty)
        try:
            yield pods
        finally:
            self.forget(pods)
            for pod in pods:
                if pod in self.crowd.pods:
                    self.crowd.remove(pod)

    def forget(self, pods: list[CrowdPod]) -> None:
        """Remove pods that were made together from the API server; their cgroups stay."""
        batch = pods[0].labels["batch"]
        query = f"labelSelector=batch%3D{batch}&gracePeriodSeconds=0"
        self.cluster.kubectl("delete", "--raw", f"/api/v1/namespaces/{self.namespace}/pods?{query}")

    def agent(self, name: str, *arguments: str | Path, **options: Any) -> AgentProcess:
        given = ("--node", self.node, "--kubeconfig", self.kubeconfig, *arguments)
        if "--nri-socket" not in arguments:
            given = (*given, "--nri-socket", "")
        return AgentProcess(self.folder / name, *given, **{"wrap": self.part.argv} | options)

    def settings(self, pods: list[CrowdPod] | None = None) -> dict[str, str]:
        """Every file that an agent may write, of these pods (or all that stay) and above: path -> value."""
        pods = self.pods_that_stay if pods is None else pods
        groups = ["/kubepods", "/kubepods/burstable", *(pod.path() for pod in pods)]
        groups += [pod.path(name) for pod in pods for name in pod.containers]
        found = {}
        for hierarchy, file in {(one[0], file) for file, one in ALLOWED.items()}:
            mount = self.crowd.mounts.get(hierarchy)
            for group in groups if mount else ():
                path = Path(f"{mount}{group}/{file}")
                with contextlib.suppress(OSError):
                    found[str(path)] = path.read_text().strip()
        return found

    def alive(self) -> dict[str, str]:
        """The namespace's pods: name -> uid, without those that are being deleted."""
        items = json.loads(self.kubectl("get", "pods", "--output=json"))["items"]
        return {
            one["metadata"]["name"]: one["metadata"]["uid"]
            for one in items
            if "deletionTimestamp" not in one["metadata"]
        }


@contextlib.contextmanager
def place(cluster: Cluster, part: Part, crowd: Crowd, folder: Path) -> Iterator[Place]:
    """A node and a namespace of one name, an account with the agent's rights."""
    name = f"static-{secrets.token_hex(3)}"
    cluster.kubectl("create", "namespace", name)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {REAL: "true"}}}
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(node))
    here = Place(cluster, part, crowd, folder, name, folder / "kubeconfig")
    account = ("serviceaccount/default", f"--namespace={name}")  # no pod is admitted without
    cluster.kubectl("wait", "--for=create", *account, "--timeout=110s", seconds=120)
    here.kubectl("create", "serviceaccount", "agent")
    here.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": RIGHTS,
        }
    )
    subject = f"--serviceaccount={name}:agent"
    here.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", subject)
    document = json.loads(here.kubectl("config", "view", "--raw", "--minify", "--output=json"))
    asked = (
        "auth",
        "can-i",
        "patch",
        "nodeqoses",
        "--subresource=status",
        f"--as=system:serviceaccount:{name}:agent",
    )
    until(lambda: here.cluster.kubectl(*asked, check=False) == "yes\n", "the account has its rights")
    token = here.kubectl("create", "token", "agent").strip()
    document["users"] = [{"name": one["name"], "user": {"token": token}} for one in document["users"]]
    here.kubeconfig.write_text(json.dumps(document))
    try:
        yield here
    finally:
        for what in ("node", "nodeqos", "clusterrole", "clusterrolebinding"):
            cluster.kubectl("delete", what, name, "--ignore-not-found")
        cluster.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", f"--namespace={name}")
        cluster.kubectl("delete", "namespace", name, "--wait=false")


class Witness:
    """Sees every write into a cgroup file of the machine, and the writer's pid."""

    def __init__(self, mounts: Mapping[str, Path]) -> None:
        wanted = {hierarchy for hierarchy, *_ in ALLOWED.values()}
        self._source = Fanotify(sorted({str(mount) for name, mount in mounts.items() if name in wanted}))
        self._untold: list[Written] = []

    def writes(self, pid: int, files: Iterable[str]) -> list[str]:
        """Which of these files this process wrote, since this was asked last of it."""
        names = {(status.st_dev, status.st_ino): file for file in files if (status := _status(file))}
        while select.select([self._source.fd], [], [], 0)[0]:  # a turn may bring only what has ended
            self._untold += self._source.read()
        assert not self._source.lost
        found = [one.identity for one in self._untold if one.pid == pid]
        self._untold = [one for one in self._untold if one.pid != pid]
        return [names[identity] for identity in found if identity in names]

    def close(self) -> None:
        self._source.close()


def _status(file: str) -> os.stat_result | None:
    try:
        return os.stat(file)  # noqa: PTH116 - a string
    except FileNotFoundError:
        return None
