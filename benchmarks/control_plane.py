"""A flood of pods on a real control plane: pods a second without an extender, with one that accepts all, in
Go and in Python, and with ours; and how soon an owner is bound.

kube-apiserver, etcd and kube-scheduler are real (lab/); nodes are objects without a kubelet, and what else
runs on a control plane is ended. Ours runs as it is shipped, in Guard, and holds 1,000 slots of 1 CPU, which
lie on 32 of 1,000 nodes of 32 CPUs. Placeholders for as many lie on 32, or on 1,000, beside a kube-scheduler
that knows nothing of us. The pods wait before kube-scheduler starts; the rate is from the first
bind to the last. A figure is the median of rounds whose order alternates; before each the API server collects
its garbage, which takes as long as a third of a flood.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aiohttp
import orjson

from adapters.api import (
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    WEBHOOKS,
    NotFound,
    Resource,
)
from adapters.kubernetes import credentials, decode
from adapters.kubernetes.client import KubernetesAPI, Timeouts
from benchmarks import bound_pods, clusters, go_programs, placeholders
from benchmarks.clusters import Size
from benchmarks.contenders import (
    CONTENDERS,
    GO,
    OURS,
    OWNING,
    PLACEHOLDERS,
    WATCHER,
    Contender,
    Found,
    figures,
)
from lab import binaries, components, extender_process, scheduler_config
from lab import cluster as lab
from lab import placeholders as keeper
from lab.cluster import Cluster
from qos.keys import HELD_ANNOTATION

SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
MISSING: Final = "the control plane's programs are missing: make programs (about 5 minutes, once)"
SLOTS: Final = 1_000
"""Of 1 CPU and 1 GiB, of all policies together; fewer where there are fewer nodes."""
PRIORITY: Final = 1_000
"""Of policies and owners, of the class FLOORS; ordinary pods have 0."""
FLOORS: Final = "floors"
OWNERS: Final = 15
"""So many a round, one after the other."""
WRITERS: Final = 32
START_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 2.0
FLOOD_SECONDS: Final = 90.0
PAUSE_SECONDS: Final = 0.05
"""Between two pods in an idle cluster."""
ENDED: Final = ("kube-scheduler", "kube-controller-manager", "kwok-controller")
"""Neither is part of what is measured; a controller manager would taint nodes that no kubelet reports."""
_TICK: Final = os.sysconf("SC_CLK_TCK")


class FloodError(Exception):
    """A flood did not come to its end; the message says what is missing."""


class Arena:
    """The control plane with its nodes and policies, and the processes of the contenders."""

    def __init__(self, cluster: Cluster, api: KubernetesAPI, size: Size) -> None:
        self.cluster = cluster
        self._api = api
        self._size = size
        self._endpoint = credentials.from_kubeconfig(cluster.kubeconfig)
        self._extenders: dict[str, extender_process.ExtenderProcess] = {}
        self._ears: asyncio.Task[None] | None = None

    @property
    def _slots(self) -> int:
        return min(SLOTS, self._size.nodes)

    async def furnish(self) -> None:
        """Nodes, and policies of tenants."""
        for name in ENDED:
            self.cluster.kill(name)
        numbers = range(self._size.policies)
        namespaces = [{"metadata": {"name": clusters.namespace(number)}} for number in numbers]
        await self._create(NAMESPACES, "", namespaces)
        await self._create(NAMESPACES, "", [{"metadata": {"name": keeper.NAMESPACE}}])
        for namespace in (keeper.NAMESPACE, *map(clusters.namespace, numbers)):
            account = {"metadata": {"name": "default"}}  # else admission refuses pods there
            await self._create(SERVICE_ACCOUNTS, namespace, [account])
        floors = {"metadata": {"name": FLOORS}, "value": PRIORITY, "globalDefault": False}
        await self._create(PRIORITY_CLASSES, "", [floors, placeholders.classes(PRIORITY)])
        await self._create(NODES, "", [clusters.node_json(number) for number in range(self._size.nodes)])
        await self._untaint()
        slots = self._slots
        for number in numbers:
            count = slots // self._size.policies + (number < slots % self._size.policies)
            floor = {"resources": {"cpu": "1", "memory": "1Gi"}}
            placement = {"inheritFromWorkload": False}
            policy = clusters.policy_json(number, count, floor=floor, placement=placement)
            await self._create(POLICIES, clusters.namespace(number), [policy])

    async def _untaint(self) -> None:
        """Admission taints new nodes until a controller manager finds them ready; ours are."""
        body = {"spec": {"taints": None}}
        names = clusters.node_names(self._size.nodes)
        await _at_once([lambda name=name: self._api.patch(NODES, "", name, body) for name in names])

    async def _create(self, resource: Resource, namespace: str, bodies: Sequence[Mapping[str, Any]]) -> None:
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        kind = {"apiVersion": version, "kind": resource.kind}
        await _at_once(
            [lambda body=body: self._api.create(resource, namespace, kind | body) for body in bodies]
        )

    async def flood(self, contender: Contender, label: str, pods: int, found: Found) -> None:
        """One round."""
        await self._ready(contender)
        await self._create(PODS, "default", [_pod(label, number) for number in range(pods)])
        await self._collect_garbage()
        self._start_scheduler(contender)
        bound = bound_pods.watch(self._endpoint, label)
        first = await anext(bound)
        began, before = time.monotonic(), self._cpu(contender)
        try:
            async with asyncio.timeout(FLOOD_SECONDS):
                seen = first
                while seen < pods:
                    seen = await anext(bound)
        except TimeoutError:
            why = f"{seen} of {pods} pods in {FLOOD_SECONDS:g} s; {await self._unbound(label)}"
            raise FloodError(f"{contender.kind}, {contender.verbs}: {why}") from None
        if self._ears is not None and self._ears.done():
            raise FloodError("the watch alone ended before the flood did")
        found.rates.append((pods - first) / (time.monotonic() - began))
        await bound.aclose()
        for name, seconds in self._cpu(contender).items():
            found.cpu.setdefault(name, []).append((seconds - before[name]) / pods)
        await self.end(contender)

    async def _collect_garbage(self) -> None:
        """The API server's, so that no round pays for another's: hardly a pod is bound while it does it."""
        url = f"{self._endpoint.server}/debug/pprof/heap"
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.get(url, params={"gc": "1"}, ssl=self._endpoint.tls or True) as answer,
        ):
            await answer.read()

    async def _unbound(self, label: str) -> str:
        """How many pods of a flood really have no node, and what kube-scheduler says of most of them."""
        page = await self._api.list_page(PODS, limit=0, namespace="default", field_selector="spec.nodeName=")
        pods = [orjson.loads(raw) for raw in page.items]
        left = [one for one in pods if one["metadata"]["labels"]["flood"] == label]
        said = Counter(
            condition.get("message", "") for one in left for condition in one["status"].get("conditions", ())
        )
        return f"{len(left)} have no node: {said.most_common(1) or 'not tried yet'}"

    async def arrivals(self, contender: Contender, label: str, pods: int, found: Found) -> None:
        """One round: pods come one after the other, owners of the first policy where there are floors."""
        await self._ready(contender)
        self._start_scheduler(contender)
        owner_of = 0 if contender.kind in (OURS, PLACEHOLDERS) else None
        namespace = "default" if owner_of is None else clusters.namespace(owner_of)
        bound, waits = bound_pods.watch(self._endpoint, label, namespace), []
        try:
            async with asyncio.timeout(FLOOD_SECONDS):
                for number in range(pods + 1):
                    body = _pod(label, number, owner_of)
                    began = time.monotonic()
                    await self._create(PODS, namespace, [body])
                    while await anext(bound) <= number:
                        pass
                    waits.append(time.monotonic() - began)
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise FloodError(f"{contender.kind}: a pod was not bound in {FLOOD_SECONDS:g} s") from None
        if contender.kind == PLACEHOLDERS:
            await placeholders.handed_over(self._extenders[contender.extender], pods)
        found.waits.extend(waits[1:])  # the first one waits for kube-scheduler's start, too
        await bound.aclose()
        await self.end(contender)

    async def _ready(self, contender: Contender) -> None:
        if contender.kind == PLACEHOLDERS:
            on = min(contender.nodes, self._size.nodes)
            bodies = [*placeholders.standing(self._size, self._slots, on, PRIORITY)]
            await self._create(PODS, keeper.NAMESPACE, bodies)
        elif contender.kind == WATCHER:
            self._ears = asyncio.create_task(bound_pods.drain(self._endpoint))
        await asyncio.to_thread(self._start_extender, contender)
        if contender.kind == OURS:
            await self._settle(self._extenders[contender.extender])
        elif contender.kind == PLACEHOLDERS:
            await placeholders.settle(self._extenders[contender.extender], self._slots, START_SECONDS)

    async def end(self, contender: Contender) -> None:
        """Its processes, and all pods there are: each round begins with the same cluster."""
        self.cluster.kill(contender.scheduler)
        if self._ears is not None:
            self._ears.cancel()
            self._ears = None
        if contender.extender:
            self.cluster.kill(contender.extender, signal.SIGTERM)  # the next one leads at once
        if contender.kind == PLACEHOLDERS:  # else the API server would ask it for the next owners
            await self._delete(WEBHOOKS, "", placeholders.WEBHOOK)
        pods = (decode.metadata(raw) for raw in (await self._api.list_page(PODS, limit=0)).items)
        await _at_once([lambda pod=pod: self._delete(PODS, pod.namespace, pod.name) for pod in pods])

    async def _delete(self, resource: Resource, namespace: str, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self._api.delete(resource, namespace, name, grace_seconds=0)

    async def _settle(self, ours: extender_process.ExtenderProcess) -> None:
        """Wait until it leads, and has written at the nodes what it writes once: that is no pod's cost.

        Nodes that had a hold before keep their mark for a minute.
        """
        deadline = time.monotonic() + START_SECONDS
        mark = HELD_ANNOTATION.encode()
        last, since = -1, 0.0
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < deadline:
                async with session.get(f"{ours.url}/metrics") as answer:
                    shown = dict(line.rsplit(" ", 1) for line in (await answer.text()).splitlines() if line)
                nodes = await self._api.list_page(NODES, limit=0)
                marked = sum(mark in node for node in nodes.items)
                held = float(shown["j10ce_ledger_held_nodes"])
                if marked != last:
                    last, since = marked, time.monotonic()
                steady = time.monotonic() - since > STEADY_SECONDS
                if float(shown["j10ce_leader"]) and 0 < held <= marked and steady:
                    return
                await asyncio.sleep(0.2)
        raise FloodError(f"{ours.name} has not annotated its nodes after {START_SECONDS:g} s: {ours.log}")

    def _start_extender(self, contender: Contender) -> None:
        name = contender.extender
        if not name:
            return
        if name in self._extenders:
            self._extenders[name].restart()
        elif contender.kind in (OURS, PLACEHOLDERS):
            config: dict[str, Any] = {"capPercent": 100, "binds": contender.binds}
            if contender.kind == PLACEHOLDERS:  # nodes held in another round are not to be written to
                config |= {**keeper.config(self.cluster), "binds": True, "annotateHeldNodes": False}
            self._extenders[name] = extender_process.start(self.cluster, config=config, name=name)
        else:
            self._extenders[name] = self._accept_all(name, contender.kind)
        if contender.kind in (OURS, PLACEHOLDERS):
            self._extenders[name].wait_ready(START_SECONDS)
        else:
            go_programs.wait_for(self._extenders[name].verbs_port)

    def _accept_all(self, name: str, kind: str) -> extender_process.ExtenderProcess:
        (port,) = lab.reserve_ports(self.cluster.folder, 1)
        argv = [sys.executable, "-P", "-m", "benchmarks.accept_all", str(self.cluster.kubeconfig), str(port)]
        if kind == GO:
            config = self.cluster.folder / "kubeconfig.json"
            config.write_text(self.cluster.kubectl("config", "view", "--flatten", "--output=json"))
            argv = [
                str(go_programs.build(os.environ, binaries.silent) / "accept-all"),
                str(config),
                str(port),
            ]
        components.add(self.cluster.folder, name, argv)
        self.cluster.start(name)
        return extender_process.ExtenderProcess(self.cluster.folder, port, 0, name)

    def _start_scheduler(self, contender: Contender) -> None:
        name = contender.scheduler
        if name in components.components(self.cluster.folder):
            self.cluster.start(name)
            return
        document: dict[str, Any] = scheduler_config.empty()
        if contender.asked:
            document = scheduler_config.with_extender("guard")
            document = document if contender.binds else scheduler_config.without_bind(document)
        file = self.cluster.folder / f"{name}.written.yaml"
        scheduler_config.write(document | {"percentageOfNodesToScore": contender.percent}, file)
        asked = self._extenders[contender.extender].verbs_url if contender.asked else ""
        lab.add_scheduler(self.cluster, name, file, verbs_url=asked)

    def _cpu(self, contender: Contender) -> dict[str, float]:
        """Seconds of CPU that each process took so far."""
        processes = {"kube-apiserver": "kube-apiserver", "kube-scheduler": contender.scheduler}
        if contender.extender:
            processes["extender"] = contender.extender
        return {name: _cpu_seconds(self.cluster, component) for name, component in processes.items()}


async def _at_once(calls: Sequence[Any]) -> None:
    """All of them, WRITERS at a time."""
    left = iter(calls)

    async def write() -> None:
        for call in left:
            await call()

    await asyncio.gather(*(write() for _ in range(WRITERS)))


def _pod(label: str, number: int, owner_of: int | None = None) -> dict[str, Any]:
    pod = clusters.new_pod(f"{label}-{number}", 0.1 if owner_of is None else 1, owner_of=owner_of)
    meta = pod["metadata"]
    labels = meta["labels"] | {"flood": label}
    kept = {"name": meta["name"], "labels": labels, "ownerReferences": meta["ownerReferences"]}
    spec = {name: value for name, value in pod["spec"].items() if name != "priority"}  # admission writes it
    return {"metadata": kept, "spec": spec | ({} if owner_of is None else {"priorityClassName": FLOORS})}


def _cpu_seconds(cluster: Cluster, component: str) -> float:
    pid = components.pid(cluster.folder, component)
    if pid is None:
        raise FloodError(f"{component} ended: see {cluster.log(component)}")
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


async def run(
    found_binaries: binaries.Binaries, size: Size, pods: int, seconds: float, contenders: Sequence[Contender]
) -> dict[Contender, Found]:
    """Rounds whose order alternates, at least one, as many as fit into `seconds`."""
    began = time.monotonic()
    found = {contender: Found() for contender in contenders}
    with TemporaryDirectory() as root:
        name = f"flood-{secrets.token_hex(3)}"
        cluster = lab.up(name, binaries=found_binaries, root=Path(root))
        try:
            async with KubernetesAPI.from_kubeconfig(
                cluster.kubeconfig, timeouts=Timeouts(request=60)
            ) as api:
                arena = Arena(cluster, api, size)
                await arena.furnish()
                number, longest = 0, 0.0
                while not number or time.monotonic() - began + longest < seconds:
                    at = time.monotonic()
                    await _round(arena, number, pods, found)
                    number, longest = number + 1, max(longest, time.monotonic() - at)
        finally:
            lab.down(name, root=Path(root))
    return found


async def _round(arena: Arena, number: int, pods: int, found: Mapping[Contender, Found]) -> None:
    contenders = list(found)
    for contender in contenders if number % 2 else reversed(contenders):
        which = contenders.index(contender)
        try:
            if contender in OWNING:
                await arena.arrivals(contender, f"arrives-{number}-{which}", OWNERS, found[contender])
            await arena.flood(contender, f"round-{number}-{which}", pods, found[contender])
        except (FloodError, placeholders.StandingError) as error:
            # One that a busy machine delays must not cost all others their figures.
            found[contender].failed.append(f"round {number}: {error}")
            await arena.end(contender)


def measure(size: Size, pods: int, seconds: float) -> dict[str, Any]:
    """The figures, or `missing`: why there are none."""
    try:
        programs = binaries.find(os.environ)
    except binaries.BinariesError as error:
        return {"missing": str(error)}
    if programs is None:
        return {"missing": MISSING}
    try:
        found = asyncio.run(run(programs, size, pods, seconds, CONTENDERS))
    except lab.LabError as error:  # the other parts go on
        return {"missing": str(error)}
    return {**figures(found), "failed": [why for one in found.values() for why in one.failed]}
