"""A node's pods as the plan of its network takes them: what each may expect, what it is known by. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from agent.network.addresses import Claim, owned
from agent.network.veths import NO_PROCESS, HostEnd
from agent.nri.records import NriPod
from agent.state import KnownPod
from qos.network.wanted import PodTraffic
from qos.pods.traffic import Traffic


def pod_traffic(
    pods: Mapping[str, KnownPod],
    expected: Mapping[str, Traffic],
    sandboxes: Mapping[str, NriPod],
    ends: Mapping[str, HostEnd],
    cgroup_ids: Mapping[str, int],
) -> tuple[PodTraffic, ...]:
    """Of every pod that has not ended and of which something is expected; all by uid, in the pods' order.

    expected: as qos.pods.traffic has it. sandboxes: as the runtime tells them; ends: as agent.network.veths
    found them; cgroup_ids: of pods' cgroups on v2. A pod that can be told by nothing has neither addresses
    nor cgroup ids, and the plan says so. An interface that is found for two pods is nobody's.
    """
    living = {uid: one for uid, one in pods.items() if not one.finished and uid in expected}
    hosts = {uid for uid, one in pods.items() if on_host_network(one, sandboxes.get(uid))}
    addresses = owned(
        Claim(
            uid,
            one.addresses,
            sandboxes[uid].addresses if uid in sandboxes else (),
            alive=ends.get(uid, NO_PROCESS) != NO_PROCESS,
            host=uid in hosts,
        )
        for uid, one in pods.items()
        if not one.finished
    )
    found = Counter(end.index for uid, end in ends.items() if uid in living and uid not in hosts)
    return tuple(
        PodTraffic(
            uid=uid,
            band=expected[uid].band,
            egress=expected[uid].egress,
            ingress=expected[uid].ingress,
            addresses=addresses.get(uid, ()),
            cgroup_ids=_known(cgroup_ids.get(uid, 0)) if uid in hosts else (),
            interface=_alone(ends.get(uid, NO_PROCESS).index, found) if uid not in hosts else 0,
            priority=one.pod.priority or 0,
        )
        for uid, one in living.items()
    )


def on_host_network(known: KnownPod, sandbox: NriPod | None) -> bool:
    """Whether a pod has its node's network. The API server's word counts; before it has said anything the
    runtime's, where that says it.
    """
    unsaid = known.provisional and sandbox is not None and sandbox.own_network is False
    return known.host_network or unsaid


def _known(cgroup_id: int) -> tuple[int, ...]:
    return (cgroup_id,) if cgroup_id else ()


def _alone(index: int, found: Mapping[int, int]) -> int:
    return index if found[index] == 1 else 0
