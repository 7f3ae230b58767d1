"""A pod made from what the runtime reports, for as long as the API server has not reported it. Pure."""

from __future__ import annotations

from dataclasses import replace

from agent.nri.records import LinuxResources, NriPod
from agent.state import KnownPod
from kernel import membership
from qos import keys
from qos.plan.layout import LEAST_SHARES
from qos.pods.containers import BEST_EFFORT, Container, NodePod

_PERIOD = 100_000


def pod_of(sandbox: NriPod) -> KnownPod:
    """The pod without containers; its QoS class is the one its cgroup is in."""
    tier = membership.qos_class("/" + sandbox.cgroup_parent.lstrip("/"))
    pod = NodePod(
        uid=sandbox.uid,
        namespace=sandbox.namespace,
        name=sandbox.name,
        containers=(),
        qos=BEST_EFFORT if tier == membership.PLAIN else tier,
        labels=dict(sandbox.labels),
        annotations=dict(sandbox.annotations),
    )
    annotated = sandbox.annotations.get(keys.POLICY_ANNOTATION)
    return KnownPod(pod, policy=annotated, provisional=True)


def named(written: KnownPod, sandbox: NriPod) -> KnownPod:
    """A pod of a folder, which has no uid there, as the runtime runs it."""
    pod = replace(written.pod, uid=sandbox.uid, qos=pod_of(sandbox).pod.qos)
    return replace(written, pod=pod, provisional=True)


def with_container(known: KnownPod, name: str, limits: LinuxResources) -> KnownPod:
    """The pod with one more container; what it requests is inferred from its shares.

    A memory request cannot be told from what a runtime knows: none is assumed.
    """
    period = limits.cpu_period or _PERIOD
    quota = limits.cpu_quota or 0
    shares = limits.cpu_shares or LEAST_SHARES
    one = Container(
        name,
        cpu_request=-(-shares * 1000 // 1024) if shares > LEAST_SHARES else 0,
        cpu_limit=quota * 1000 // period if quota > 0 else 0,
        memory_limit=max(limits.memory_limit or 0, 0),
    )
    others = tuple(other for other in known.pod.containers if other.name != name)
    return replace(known, pod=replace(known.pod, containers=(*others, one)))
