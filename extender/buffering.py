"""Which CapacityBuffers are to be there, and what has to be written for that. Pure.

Autoscalers count a node's allocatable less what its pods request, and bring nodes for what then does not fit:
pods that no scheduler finds a node for, and the pods of buffers, which exist in their arithmetic alone. The
extender counts as claimed what pods request, too; beyond that it keeps room for each slot that is held, and
lacks room for each that is unplaced. So with a pod in a buffer for each slot held or unplaced both have the
same picture: what an autoscaler sees as free is what the extender may give to others.

- A filled slot is a pod that both count: none in the buffer.
- An owner that waits, unschedulable, is counted by the autoscaler itself, and the slot that it is to fill
  once more by the buffer: one less in the buffer for each.
- A placeholder is a pod, too: with that keeper held slots are none in the buffer, and an owner that waits
  takes a held slot first. Where a placeholder may wait for the slots that are unplaced, there is no buffer.
- What a budget or a cap does not give is not to be held anywhere: no node is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from adapters.kubernetes.buffers import (
    PROVISIONING,
    READY,
    Owner,
    Seen,
    buffer_content,
    slot_content,
)
from adapters.kubernetes.conditions import Condition
from ledger.decisions import DemandReport
from ledger.unplaced import CAP_REACHED, POOL_CAP_REACHED
from qos import keys
from qos.cluster.budget import BUDGET_EXCEEDED, BUDGET_FORBIDS
from qos.cluster.objects import Demand
from qos.cluster.policy import Policy
from qos.cluster.precedence import Problem

BRINGS_NO_NODES: Final = frozenset({BUDGET_EXCEEDED, BUDGET_FORBIDS, CAP_REACHED, POOL_CAP_REACHED})
"""Reasons of unplaced slots that are limits: they are not to be held, on whatever nodes."""
LONGEST_MESSAGE: Final = 1024


@dataclass(frozen=True, slots=True)
class Account:
    """What a policy's buffer follows from. waiting: its owners that are unschedulable now. lacking: for how
    many of its slots a node is to come; what the cap gives, all policies have together.
    """

    policy: Policy
    resolved: Demand | Problem
    report: DemandReport | None
    waiting: int
    lacking: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """The buffer of one policy: so many pods like `content` (buffers.slot_content)."""

    owner: Owner
    replicas: int
    content: Mapping[str, Any]


class Kind(Enum):
    """The two objects of a policy."""

    TEMPLATE = "PodTemplate"
    BUFFER = "CapacityBuffer"


class Action(Enum):
    """What is to be done with one."""

    CREATE = "create"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Step:
    """One call. `wanted`: what is to be there, None for a deletion. `seen`: what is there, None to create."""

    action: Action
    kind: Kind
    key: str
    wanted: Wanted | None = None
    seen: Seen | None = None


@dataclass(frozen=True, slots=True)
class There:
    """What is there of ours, by namespace/name."""

    templates: Mapping[str, Seen] = field(default_factory=dict)
    buffers: Mapping[str, Seen] = field(default_factory=dict)


def lacks(report: DemandReport) -> int:
    """For how many slots of a policy a node might come, as if there were no other policy."""
    return sum(one.count for one in report.unplaced if one.reason not in BRINGS_NO_NODES)


def replicas(held: int, lacking: int, waiting: int, *, standing: bool = False) -> int:
    """How many pods a policy's buffer has. lacking, waiting: Account's. standing: a placeholder stands where
    each hold lies.
    """
    if standing:
        return max(0, lacking - max(0, waiting - held))
    return max(0, held + lacking - waiting)


def wanted_of(
    one: Account,
    content_of: Callable[[Demand], Mapping[str, Any] | None] = slot_content,
    *,
    standing: bool = False,
) -> Wanted | None:
    """The buffer that a policy is to have; None: it asks for no node."""
    if isinstance(one.resolved, Problem) or one.report is None:
        return None
    count = replicas(one.report.held, one.lacking, one.waiting, standing=standing)
    content = content_of(one.resolved) if count else None
    if content is None:
        return None
    return Wanted(owner_of(one.policy), count, content)


def owner_of(policy: Policy) -> Owner:
    """The policy as the owner of its objects."""
    return Owner(policy.namespace, policy.name, policy.uid)


def steps(wanted: Mapping[str, Wanted], there: There) -> Iterator[Step]:
    """What makes `there` as it is to be; each may be taken whenever those before it are done.

    wanted: by the key of the objects. A template comes before the buffer that names it, and goes after it.
    """
    for key, seen in there.buffers.items():
        if not _belongs(seen, wanted.get(key)):
            yield Step(Action.DELETE, Kind.BUFFER, key, seen=seen)
    for key, seen in there.templates.items():
        buffer, one = there.buffers.get(key), wanted.get(key)
        if not _belongs(seen, one) and (buffer is None or _belongs(buffer, one)):
            yield Step(Action.DELETE, Kind.TEMPLATE, key, seen=seen)
    for key, one in wanted.items():
        template, buffer = there.templates.get(key), there.buffers.get(key)
        yield from _step(Kind.TEMPLATE, key, one, template, one.content)
        if _belongs(template, one):
            yield from _step(Kind.BUFFER, key, one, buffer, buffer_content(one.owner, one.replicas))


def _step(kind: Kind, key: str, one: Wanted, seen: Seen | None, content: Mapping[str, Any]) -> Iterator[Step]:
    """Nothing while an object of the same name is still to be deleted."""
    if seen is None:
        yield Step(Action.CREATE, kind, key, one)
    elif _belongs(seen, one) and seen.content != content:
        yield Step(Action.REPLACE, kind, key, one, seen)


def _belongs(seen: Seen | None, one: Wanted | None) -> bool:
    """Whether it is the object of this policy, and not of one of the same name that is gone."""
    return seen is not None and one is not None and seen.owner == one.owner.uid


def provisioned(
    wanted: Wanted | None, buffer: Seen | None, refused: str, report: DemandReport | None
) -> Condition:
    """The policy's condition. refused: why its objects are not written, "" where they are."""
    if wanted is None:
        return _nothing_asked(report)
    if refused:
        return Condition(keys.PROVISIONED, "False", "NotWritten", refused[:LONGEST_MESSAGE])
    if buffer is None:
        text = f"CapacityBuffer {wanted.owner.object_name} is still to be made"
        return Condition(keys.PROVISIONED, "Unknown", "ToBeMade", text)
    ready, told = buffer.conditions.get(READY), buffer.conditions.get(PROVISIONING)
    if ready is not None and ready.status == "False":
        told = ready
    if told is None or told.status not in ("True", "False"):
        text = f"no autoscaler has answered CapacityBuffer {wanted.owner.object_name} yet"
        return Condition(keys.PROVISIONED, "Unknown", "NoAnswer", text)
    reason = told.reason or "NoReason"
    return Condition(keys.PROVISIONED, told.status, reason, told.message[:LONGEST_MESSAGE])


def waited_for(placeholders: int, report: DemandReport | None) -> Condition:
    """The same of a policy for whose unplaced slots so many placeholders wait: no autoscaler answers them."""
    if not placeholders:
        return _nothing_asked(report)
    text = f"placeholders wait for nodes, as pods that autoscalers see; {placeholders} slots lack a node"
    return Condition(keys.PROVISIONED, "Unknown", "PlaceholdersWait", text)


def _nothing_asked(report: DemandReport | None) -> Condition:
    missing = report.missing if report is not None else 0
    text = "no slot is held, or unplaced for want of nodes: no autoscaler is asked for any"
    if missing:
        text = f"{missing} slots are unplaced and ask for no node: none would change that, as Feasible says, "
        text += "or policies that come first ask for all that the cap still gives"
    return Condition(keys.PROVISIONED, "True", "NothingAsked", text)
