"""What the agent knows: the node's pods, the rules that touch them, the containers that run. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from qos.cluster.policy import Policy, Profile
from qos.cluster.precedence import PriorityClass
from qos.pods.containers import NodePod


@dataclass(frozen=True, slots=True)
class KnownPod:
    """A pod of this node, as the API server, a folder or the runtime tells it.

    `ids`: container name -> id of its present container, where a status says it. `policy`: namespace/name of
    the policy whose slot it fills (annotation j10ce.io/policy); "": it fills none; None: nobody has counted.
    `finished`: it has ended or is a mere record; nothing is kept for it. `provisional`: made from what the
    runtime tells, because the API server has not told of it yet: requests are inferred, containers still to
    come are missing. `addresses`: as its status has them (podIPs), which for one with the host's network
    (`host_network`) are the node's.
    """

    pod: NodePod
    ids: Mapping[str, str] = field(default_factory=dict)
    policy: str | None = None
    finished: bool = False
    provisional: bool = False
    addresses: tuple[str, ...] = ()
    host_network: bool = False


@dataclass(slots=True)
class Known:
    """Everything that plans are made from; one truth, kept in the agent's local cache as well.

    `pods` by uid, `policies` by namespace/name, `profiles` and `priority_classes` by name.
    `opt_outs`: namespace -> its label keys.OPT_OUT_LABEL, where it has one.
    `node_labels`: the Node's. `network_config`: what of Koordinator's ConfigMap says something of networks.
    """

    pods: dict[str, KnownPod] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    profiles: dict[str, Profile] = field(default_factory=dict)
    priority_classes: dict[str, PriorityClass] = field(default_factory=dict)
    opt_outs: dict[str, str] = field(default_factory=dict)
    node_labels: dict[str, str] = field(default_factory=dict)
    network_config: dict[str, str] = field(default_factory=dict)


class ContainerKey(NamedTuple):
    """Which container of which pod: the same through restarts."""

    pod_uid: str
    name: str


@dataclass(frozen=True, slots=True)
class Running:
    """A container that there is. `cgroup`: its path from the root, the same in all its hierarchies.

    `pid`: of its first process; 0: not known, or not started yet.
    """

    key: ContainerKey
    container_id: str
    cgroup: str
    pid: int = 0
