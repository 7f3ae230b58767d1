"""What a scenario can wait for and expect: one vocabulary for both."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from lab.scenario.fields import Model, Name, Number, Seconds


class PodsCheck(Model):
    """Pods of one workload of this scenario."""

    workload: Name
    """The workload's name, as a create step gave it."""
    created: Number | None = None
    """Pods there ever were."""
    bound: Number | None = None
    """Pods that are on a node now, terminal and terminating ones not counted."""
    pending: Number | None = None
    """Pods that wait for a node now."""
    ever_bound: Number | None = None
    """Pods that were ever bound, whatever became of them."""
    bound_within: Seconds | None = None
    """No pod that was bound took longer than this from its creation to its bind."""
    on_nodes: str | None = None
    """All bound pods are on nodes whose name begins so."""


class UnplacedCheck(Model):
    """An entry of status.unplaced."""

    reason: Literal[
        "Insufficient",
        "NoNode",
        "CapReached",
        "PoolCapReached",
        "MaxSlotsPerNode",
        "Fragmented",
        "Spread",
        "VolumeNodeAffinity",
        "BudgetExceeded",
        "BudgetForbids",
    ]
    count: Number | None = None
    resource: str | None = None
    missing: str | None = None
    """The amount that is missing, as status gives it."""


class ConditionCheck(Model):
    """A condition of a policy's status."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str | None = None
    message: str | None = None
    """Text that the message contains."""


class PolicyCheck(Model):
    """A policy's status."""

    name: Name
    desired: Number | None = None
    spare: Number | None = None
    survives: Number | None = None
    """status.survivesNodeFailures."""
    filled: Number | None = None
    held: Number | None = None
    unplaced: Number | None = None
    consumed: Number | None = None
    outliving: Number | None = None
    """How many slots are held although their pods have ended."""
    why: list[UnplacedCheck] | None = None
    """Each of these is in status.unplaced."""
    conditions: list[ConditionCheck] | None = None
    promised: Number | None = None
    """Slots that the checker found kept for 3 seconds on end: binds are judged by them from now on."""
    held_on: str | None = None
    """All holds are on nodes whose name begins so."""
    held_where_remembered: bool | None = None
    """Whether the nodes with holds are those that a remember step saw; false: at least one is another."""
    not_held_on: str | None = None
    """No hold is on a node whose name begins so."""


class ReservationCheck(Model):
    """A Reservation's status."""

    name: Name
    phase: Literal["Pending", "Available", "Succeeded", "Failed"] | None = None
    owners: Number | None = None
    """How many status.currentOwners has."""
    allocated: dict[str, str] | None = None
    """status.allocated, the same."""


class EventCheck(Model):
    """Events about a policy, a pod or a node."""

    reason: str
    about: str | None = None
    """The object's name begins so."""
    count: Number | None = None
    """How many; at least one unless given. A repeated event counts as often as it says."""


class FloorsCheck(Model):
    """What the checker noted beside violations, of which there must never be any."""

    lapsed: Number | None = None
    """Floors that broke while no extender guarded (mode Guard)."""
    bypassed: Number | None = None
    """Binds that the extender never saw: nodeName at creation, another scheduler."""
    outranked: Number | None = None
    """Slots given up to pods of higher priority."""


class UtilizationCheck(Model):
    """How much of what could be in use was in use, from the first pod until now."""

    resource: str = "cpu"
    percent: Number
    """The requests of pods on nodes, of what was asked for and there, summed up over time; rounded down."""


_KINDS = (
    "pods", "policy", "reservation", "event", "evictions", "refused_although_they_fit", "floors",
    "utilization",
)  # fmt: skip


class Check(Model):
    """One check; exactly one kind of it."""

    pods: PodsCheck | None = None
    policy: PolicyCheck | None = None
    reservation: ReservationCheck | None = None
    event: EventCheck | None = None
    evictions: Number | None = None
    """Pods that kube-scheduler evicted to make room (condition DisruptionTarget)."""
    refused_although_they_fit: list[Name] | None = None
    """No pod of these workloads waits although at most eight moves of holds, one hop each, would let it in;
    found by the checker's own search on the holds that the extender reports."""
    floors: FloorsCheck | None = None
    """Checked at the end only."""
    utilization: UtilizationCheck | None = None
    says: str | None = None
    """What this shows, in words; shown in place of the check itself."""

    @model_validator(mode="after")
    def _one_kind(self) -> Check:
        if len(self.kinds) != 1:
            given = ", ".join(self.kinds) or "none"
            raise ValueError(
                "give exactly one of pods, policy, reservation, event, evictions, refusedAlthoughTheyFit, "
                f"floors, utilization (given: {given})"
            )
        return self

    @property
    def kinds(self) -> list[str]:
        """The kinds that are given."""
        return [name for name in _KINDS if getattr(self, name) is not None]


class Expectation(Check):
    """A check of the end: it must come true within a time after the last step, and `stays` true for some."""

    within: Seconds = 60.0
    """How long to wait for it; at least ten times what is typical."""
    stays: Seconds = Field(default=0.0)
    """How long it must then stay true."""
