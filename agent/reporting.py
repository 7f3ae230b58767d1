"""What the node's report says of its policies: from plans and what became of them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from agent.enforcement.enforcer import Report
from agent.planner import PlannedPod
from agent.state import ContainerKey
from qos.cluster.node_report import PolicyState
from qos.keys import CPU
from qos.plan.node_share import NodeShare
from qos.plan.settings import Shortfall
from qos.plan.weights import misses
from qos.pods.decision import Decided
from qos.quantity import render

IN_VM: Final = (
    "pods whose containers' cgroups cannot be seen (VMs) have the settings of their own cgroup alone"
)


class Identity(NamedTuple):
    """The reporter: the agent's version, and the kernel it runs on."""

    version: str
    kernel: str


def policy_states(
    planned: Iterable[PlannedPod],
    running: Iterable[ContainerKey],
    reports: Mapping[ContainerKey, Report],
    verified_since: float,
    deficit_seconds: Callable[[str], float],
    lost: Iterable[ContainerKey] = (),
    unseen: Iterable[ContainerKey] = (),
    network: Callable[[Decided], str | None] = lambda _: "",
) -> tuple[PolicyState, ...]:
    """Each policy with pods here that run, by key.

    verified_since: on the enforcer's clock; what was read back later is verified. lost: containers that run
    by their pods' statuses and whose cgroups are not found. unseen: those of pods in VMs. network: why what
    is promised of a pod's network is not kept; None: that is under way.
    """
    runs: defaultdict[str, list[ContainerKey]] = defaultdict(list)
    in_vms = {key.pod_uid for key in unseen}
    for key in {**dict.fromkeys(running), **dict.fromkeys(unseen)}:
        runs[key.pod_uid].append(key)
    unfound = {key.pod_uid: f"container {key.name}: its cgroup is not found" for key in lost}
    found: dict[str, PolicyState] = {}
    for one in planned:
        policy = one.decided.policy
        if policy is None or (one.uid not in runs and one.uid not in unfound):
            continue
        before = found.get(policy.key) or PolicyState(policy.key, policy.uid)
        of_network = network(one.decided)
        problem = _problem(one) or unfound.get(one.uid, "") or of_network or ""
        states = [reports.get(key) for key in runs[one.uid]]
        whole = all(state is not None and state.whole for state in states)
        applied = whole and of_network is not None and not problem
        verified = applied and all(state and state.verified_at >= verified_since for state in states)
        refused = next(
            (str(why) for state in states if state for why in (*state.refusals, *state.partly)), ""
        )
        found[policy.key] = PolicyState(
            policy.key,
            policy.uid,
            pods=before.pods + 1,
            applied=before.applied + applied,
            verified=before.verified + verified,
            message=_message(before.message, _of_pod(one, problem or refused), one.uid in in_vms),
            deficit_seconds=deficit_seconds(policy.key),
        )
    return tuple(found[key] for key in sorted(found))


def _message(before: str, of_pod: str, in_vm: bool) -> str:
    """The first problem; where there is none, that some pods are in VMs."""
    problem = (before if before != IN_VM else "") or of_pod
    return problem or before or (IN_VM if in_vm else "")


def allocatable_lack(share: NodeShare | None) -> str | None:
    """What all pods, or what runs beside them, lack of what is theirs; "" nothing, None: it is not known."""
    if share is None:
        return None
    reaching, due, beside, reserved = (render(CPU, amount) for amount in share)
    if share.pods_lack:
        return f"{reaching} of {due} CPU reach all pods by the weight of their cgroup beside all others"
    return f"{beside} of {reserved} CPU reach what runs beside all pods" if share.beside_lacks else ""


def _problem(one: PlannedPod) -> str:
    """Why its floor is not kept whatever is applied; "" if it can be."""
    if one.decided.problem:
        return one.decided.problem
    return next(_shortfalls(one), "")


def _shortfalls(one: PlannedPod) -> Iterator[str]:
    for container in one.containers:
        for short in container.plan.shortfalls:
            if short.resource == CPU and not misses(short.kept, short.promised):
                continue
            yield f"container {container.name}: {_words(short)}"


def _words(short: Shortfall) -> str:
    kept, promised = render(short.resource, short.kept), render(short.resource, short.promised)
    return f"{kept} of the floor's {promised} {short.resource} can be kept: {short.why}"


def _of_pod(one: PlannedPod, why: str) -> str:
    return f"pod {one.decided.pod.name}: {why}" if why else ""
