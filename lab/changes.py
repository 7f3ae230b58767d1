"""What the lab saw of a cluster: one change of one object, in the one order that etcd gave all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from qos.cluster.budget import ReservationBudget
from qos.cluster.objects import DaemonSet, Node, Pod
from qos.cluster.policy import Autoscaler, Policy, Profile, Workload
from qos.cluster.reservation import Reservation
from qos.cluster.volumes import StorageClass, Volume, VolumeClaim


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass: what a policy's name for its priority stands for."""

    name: str
    value: int
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace: its labels say which budgets concern it."""

    name: str
    labels: Mapping[str, str]


Watched: TypeAlias = (
    Pod
    | Node
    | Policy
    | Profile
    | Workload
    | Autoscaler
    | DaemonSet
    | PriorityClass
    | ReservationBudget
    | Namespace
    | VolumeClaim
    | Volume
    | StorageClass
    | Reservation
)


@dataclass(frozen=True, slots=True)
class Change:
    """An object as it became.

    `revision`: its metadata.resourceVersion, which for a deletion is that of the deletion. All kinds share
    one etcd, so revisions order the changes of separate watches exactly (KEP-5504 makes comparing them
    official).
    `at`: when the watch delivered it, seconds since the epoch. `deleted`: it is gone, `object` is its last
    state.
    `listed`: it was there when the watching began.
    """

    revision: int
    at: float
    object: Watched
    deleted: bool = False
    listed: bool = False
