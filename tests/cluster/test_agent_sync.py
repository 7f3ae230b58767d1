"""The agent's source against a real API server: one node's pods, through cuts and rights taken away."""

import asyncio
import json
import secrets
import socket
from contextlib import asynccontextmanager, suppress

import pytest
from ruamel.yaml import YAML

from adapters.api import NODES, PODS, POLICIES, PROFILES, Resource
from adapters.kubernetes.client import KubernetesAPI
from adapters.kubernetes.kubeconfig import from_file
from adapters.kubernetes.node_pods import node_pod
from agent.state import Known
from agent.sync.kubernetes import KubernetesSource
from lab import ports
from qos.pods.containers import from_manifest
from tests.waiting import SECONDS, eventually, running

pytestmark = pytest.mark.cluster

ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


class Way:
    """A way to the API server that can be closed: connections are cut and refused, as when it restarts."""

    def __init__(self, kubeconfig, folder):
        document = YAML(typ="safe", pure=True).load(kubeconfig.read_text())
        self.cluster = document["clusters"][0]["cluster"]
        self.document = document
        host, _, port = self.cluster["server"].removeprefix("https://").rpartition(":")
        self.target = host, int(port)
        self.port = ports.reserve(folder)[0]  # nobody else listens there while the way is closed
        self.listener = None
        self.carried = set()

    def open(self):
        self.listener = socket.create_server((ports.LOOPBACK, self.port))
        self.listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self.listener, self._accept)

    async def close(self):
        """No connection is left, not even one whose way to the API server is just being opened."""
        asyncio.get_running_loop().remove_reader(self.listener)
        self.listener.close()
        for one in self.carried:
            one.cancel()
        await asyncio.gather(*self.carried, return_exceptions=True)

    def _accept(self):
        with suppress(BlockingIOError, ConnectionError):  # who came is gone again
            accepted, _ = self.listener.accept()
            task = asyncio.create_task(self._carry(accepted))
            self.carried.add(task)
            task.add_done_callback(self.carried.discard)
            task.add_done_callback(lambda _: accepted.close())  # one that was cancelled before it began, too

    async def _carry(self, accepted):
        """One connection, to its end or until it is cut."""
        writers = []
        try:
            reader, writer = await asyncio.open_connection(sock=accepted)
            writers.append(writer)
            there, back = await asyncio.open_connection(*self.target)
            writers.append(back)
            await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        finally:
            for one in writers:
                one.transport.abort()

    def kubeconfig(self, file, user=None):
        """One that takes this way; user: another than the administrator."""
        own = json.loads(json.dumps(self.document))
        own["clusters"][0]["cluster"] |= {"server": f"https://{ports.LOOPBACK}:{self.port}"}
        if user:
            own["users"] = [{"name": one["name"], "user": user} for one in own["users"]]
        file.write_text(json.dumps(own))
        return file


async def _pass_on(reader, writer):
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
async def way(cluster, tmp_path):
    made = Way(cluster.kubeconfig, tmp_path)
    made.open()
    yield made
    await made.close()


@pytest.fixture
async def nodes(api):
    names = [f"agent-{secrets.token_hex(3)}" for _ in range(2)]
    size = {"cpu": "32", "memory": "64Gi", "pods": "110"}
    for name in names:
        await api.create(
            NODES, "", {"metadata": {"name": name}, "status": {"capacity": size, "allocatable": size}}
        )
    yield names
    for name in names:
        await api.delete(NODES, "", name)


def pod(name, node, **spec):
    container = {"name": "app", "image": "x", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}
    tolerations = [{"operator": "Exists"}]
    return {
        "metadata": {"name": name, "annotations": {"j10ce.io/policy": "a/b", "other": "x"}},
        "spec": {"nodeName": node, "containers": [container], "tolerations": tolerations} | spec,
    }


class Following:
    def __init__(self, api, node):
        self.known = Known()
        self.source = KubernetesSource(api, node, self.known, lambda kind, key: None)

    @property
    def names(self):
        return sorted(one.pod.name for one in self.known.pods.values())

    def pods_relists(self):
        return self._pods().relists

    def pods_failures(self):
        """So often in a row the server could not be reached for pods."""
        return self._pods()._backoff.failures

    def _pods(self):
        return next(one for _, one in self.source._kinds if one.resource is PODS)


@asynccontextmanager
async def following(api, node):
    made = Following(api, node)
    async with running(made.source.run()):
        async with asyncio.timeout(SECONDS):
            await made.source.spoken.wait()
        yield made


async def test_one_nodes_pods_and_the_rules(api, namespace, nodes):
    here, there = nodes
    sidecar = {"name": "proxy", "image": "x", "restartPolicy": "Always"}
    whole = {"requests": {"cpu": "2"}, "limits": {"cpu": "3", "memory": "4Gi"}}
    await api.create(PODS, namespace, pod("web-0", here))
    await api.create(PODS, namespace, pod("web-1", here, initContainers=[sidecar], resources=whole))
    await api.create(PODS, namespace, pod("away", there))
    spec = {"selector": {"matchLabels": {"app": "web"}}, "floor": {"resources": {"cpu": "2"}}}
    rule = {"apiVersion": "j10ce.io/v1alpha1", "metadata": {"name": namespace}}
    kind = {"kind": "MinimalReservationPolicy", "spec": spec | {"slots": {"count": 1}}}
    await api.create(POLICIES, namespace, rule | kind)
    await api.create(PROFILES, "", rule | {"kind": "QoSProfile", "spec": {"class": "LSR"}})
    async with following(api, here) as agent:
        await eventually(lambda: agent.names == ["web-0", "web-1"])  # a list may be older than they are
        await eventually(lambda: f"{namespace}/{namespace}" in agent.known.policies)
        await eventually(lambda: namespace in agent.known.profiles)
        assert agent.known.policies[f"{namespace}/{namespace}"].floor == {"cpu": 2000}
        assert agent.known.profiles[namespace].class_name == "LSR"
        assert agent.known.priority_classes["system-node-critical"].value > 2_000_000_000
        for name in agent.names:
            raw = await api.get(PODS, namespace, name)
            read, whole = node_pod(raw), from_manifest(json.loads(raw))
            assert whole.annotations["other"] == "x"
            whole.annotations.pop("other")
            assert read.pod == whole
            assert (read.policy, read.node) == ("a/b", here)
        await api.create(PODS, namespace, pod("late", here))
        await api.delete(PODS, namespace, "web-0", grace_seconds=0)
        await eventually(lambda: agent.names == ["late", "web-1"])
    await api.delete(PROFILES, "", namespace)


async def test_what_is_missed_while_the_way_is_closed_is_told_after(api, way, namespace, nodes, tmp_path):
    here, _ = nodes
    await api.create(PODS, namespace, pod("web-0", here))
    async with (
        KubernetesAPI(from_file(way.kubeconfig(tmp_path / "kubeconfig"))) as own,
        following(own, here) as agent,
    ):
        await eventually(lambda: agent.names == ["web-0"])
        before = agent.pods_relists()
        await way.close()
        await api.create(PODS, namespace, pod("web-1", here))
        await api.delete(PODS, namespace, "web-0", grace_seconds=0)
        await eventually(lambda: agent.pods_failures() >= 2)
        assert agent.names == ["web-0"]
        way.open()
        await eventually(lambda: agent.names == ["web-1"])
        assert agent.pods_relists() == before


async def test_rights_that_are_taken_away_take_nothing_else(api, way, cluster, namespace, nodes, tmp_path):
    here, _ = nodes
    groups = {"apiGroups": ["", "j10ce.io", "scheduling.k8s.io"], "resources": ["*"]}
    rules = [groups | {"verbs": ["list", "watch"]}]
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    reference = {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": namespace}
    binding = {"metadata": {"name": namespace}, "roleRef": reference, "subjects": [subject]}
    await api.create(ROLES, "", {"metadata": {"name": namespace}, "rules": rules})
    await api.create(BINDINGS, "", binding)
    (tmp_path / "token").write_text(
        cluster.kubectl("create", "token", "default", "--namespace", namespace).strip()
    )
    file = way.kubeconfig(tmp_path / "kubeconfig", {"tokenFile": "token"})
    async with KubernetesAPI(from_file(file)) as own, following(own, here) as agent:
        await api.create(PODS, namespace, pod("web-0", here))
        await eventually(lambda: agent.names == ["web-0"])  # the watch is at work: it could not begin later
        await api.delete(BINDINGS, "", namespace)
        await api.delete(PODS, namespace, "web-0", grace_seconds=0)
        await eventually(lambda: agent.names == [])
        await api.create(PODS, namespace, pod("web-1", here))
        await eventually(lambda: agent.names == ["web-1"])
        before = agent.pods_relists()
        await way.close()
        way.open()
        await eventually(lambda: agent.pods_relists() > before)
        assert agent.names == ["web-1"]
        await api.create(PODS, namespace, pod("web-2", here))
        await api.create(BINDINGS, "", binding)
        await eventually(lambda: agent.names == ["web-1", "web-2"])
    await api.delete(BINDINGS, "", namespace)
    await api.delete(ROLES, "", namespace)
