"""What a policy's pods really have on their nodes, summed up, and what that makes of its conditions. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Delivery:
    """Sums over the nodes whose NodeQoS is fresh; the counts are PolicyState's.

    `agents`: how many nodes that is, with or without pods of the policy. `refused`, `differing`: node and
    problem of the first node, by name, where a plan is not applied, or applied and changed back again and
    again; "" none.
    """

    agents: int = 0
    pods: int = 0
    applied: int = 0
    verified: int = 0
    refused: str = ""
    differing: str = ""


class Judgement(NamedTuple):
    """Status, reason and message of a condition."""

    status: str
    reason: str
    message: str


def applied(sums: Delivery, bound: int) -> Judgement:
    """Applied: every pod that is bound has all its settings. `bound`: the policy's pods on nodes."""
    if sums.refused:
        text = f"{sums.pods - sums.applied} of {sums.pods} pods lack settings: {sums.refused}"
        return Judgement("False", "PlanNotApplied", text)
    if not sums.agents:
        return Judgement("Unknown", "NoAgent", "no node has a fresh NodeQoS: no agent reports")
    if sums.pods < bound:
        text = f"{bound - sums.pods} of {bound} pods: no agent reports them, or none yet"
        return Judgement("Unknown", "NotReported", text)
    if sums.applied < sums.pods:
        text = f"{sums.pods - sums.applied} of {sums.pods} pods are being set up"
        return Judgement("Unknown", "InProgress", text)
    if not sums.pods:
        return Judgement("Unknown", "NoPods", "no pod of it runs")
    return Judgement("True", "AllApplied", "every pod has all its settings on its node")


def verified(sums: Delivery, bound: int) -> Judgement:
    """Verified: and all of them were read back as planned at the node's last check."""
    before = applied(sums, bound)
    if before.status == "False":
        return Judgement("Unknown", before.reason, before.message)
    if sums.differing:
        text = f"{sums.pods - sums.verified} of {sums.pods} pods read back otherwise: {sums.differing}"
        return Judgement("False", "ReadBackDiffers", text)
    if before.status != "True":
        return Judgement(*before)
    if sums.verified < sums.pods:
        text = f"{sums.pods - sums.verified} of {sums.pods} pods have not been read back yet"
        return Judgement("Unknown", "NotReadBack", text)
    return Judgement("True", "AllReadBack", "every setting was read back as planned")
