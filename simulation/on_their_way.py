"""Pods on their way in and out, as the ledger must count them while no watch shows that yet.

Owners that kube-scheduler has sent to a hold, where bind cannot refuse: at the whole hold. Whether they come
nobody knows before, and what is held must fit all the same if they do not. Pods whose end has begun: as
before, for topology spread counts them until then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from lab.changes import Change, Watched
from lab.checker import Checker, Terms
from ledger.decisions import DemandReport
from qos.cluster.objects import Demand, Pod
from qos.cluster.selectors import matches


def with_whole_holds(
    coming: Iterable[Pod], demands: Sequence[Demand], reports: Mapping[str, DemandReport]
) -> list[Pod]:
    """The pods (with the node where they go), each as large as the hold that it goes to, if there is one.

    `demands` in the ledger's order. No more pods than the policy has holds on the node.
    """
    there = Counter({(key, node): count for key, said in reports.items() for node, count in said.holds})
    found = []
    for pod in coming:
        owned = (d for d in demands if d.namespace == pod.namespace and matches(d.selector, pod.labels))
        owner = next((d for d in owned if d.admits(pod.requests)), None)
        if owner is not None and there[owner.key, pod.node_name] > 0:
            there[owner.key, pod.node_name] -= 1
            less = {name: size for name, size in owner.vector.items() if size > pod.requests.get(name, 0)}
            pod = replace(pod, requests={**pod.requests, **less})
        found.append(pod)
    return found


def before_their_end(pods: Iterable[Pod], unheard: Collection[str]) -> list[Pod]:
    """The pods, those of these UIDs as they were before their end began."""
    return [replace(pod, deleting=False) if pod.uid in unheard else pod for pod in pods]


def costs_a_slot(terms: Terms, things: Sequence[Watched], pod: Pod, policy: str, *, now: float = 0.0) -> bool:
    """Whether the pod, bound now where all else has been as it is for long, costs this policy a slot.

    It waited until now: one that came bound would have bypassed everybody.
    """
    checker = Checker(terms)
    things = [*things, replace(pod, node_name="")]
    for number, thing in enumerate(things):
        checker.feed(Change(number, now, thing, listed=True))
    checker.feed(Change(len(things), now + 2 * terms.grace + 1.0, pod))
    return any(finding.violation and finding.policy == policy for finding in checker.findings)
