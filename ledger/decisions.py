"""What the ledger answers, and the modes that shape the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from qos.cluster.objects import Pod
from qos.cluster.reservation import Reserved


class Mode(Enum):
    """How far an installation goes (design: Modes of an installation)."""

    OBSERVE = "Observe"
    GUARD = "Guard"
    STRICT = "Strict"


@dataclass(frozen=True, slots=True)
class Filtered:
    """Filter's decision.

    `nodes`: names that pass, a subset of those asked, in their order unless one was chosen. Nothing passed:
    `message`, stable, is true of each name that `others` gives no message of its own; `resolvable` are those
    of `others` where an eviction, or the pod's next attempt, may help (unknown nodes, the pod's own nominated
    node). When something passes all three are empty. `withheld`: Observe only: how many of the nodes that
    pass would have been refused. `policies`: keys of those whose holds are in the way, when nothing passed.
    """

    nodes: list[str]
    message: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    resolvable: frozenset[str] = frozenset()
    withheld: int = 0
    policies: tuple[str, ...] = ()

    def refused(self, names: Iterable[str]) -> dict[str, str]:
        """The message of each of the names that were asked; none when something passed."""
        return {} if self.nodes else {name: self.others.get(name, self.message) for name in names}


@dataclass(frozen=True, slots=True)
class BindDecision:
    """Bind's decision: `refusal` is empty when the capacity is claimed; `policy` is the key of the pod's.

    `slot`: it fills one of that policy's slots; False: they are filled, and it has no floor on the node.
    `moved`: how many holds moved to make room; `unplaced`: how many lost their place (Guard only).
    `awaited`: refused only for these victims of the pod, which are not known to be gone: who reads that they
    are may ask again. `reservation`: the one that the pod uses.
    """

    refusal: str = ""
    policy: str = ""
    slot: bool = False
    moved: int = 0
    unplaced: int = 0
    awaited: tuple[Pod, ...] = ()
    reservation: Reserved | None = None


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Why slots are not held: `count` slots; `missing` of `resource`, canonical units, for all of them
    together.

    `reason`: Insufficient (the nodes lack `resource`), NoNode (no node is eligible), CapReached
    (installation-wide cap), PoolCapReached (the cap of each pool of nodes that has room), MaxSlotsPerNode
    (every eligible node is at its limit), Fragmented (enough in total, on no single node), Spread (where
    there is room a spread constraint lets no more of the pods go; `detail` names it and its domains),
    VolumeNodeAffinity (no room where the pods' volumes can be used; `detail` names pods and volumes),
    NodeCannotEnforce (nodes that would do otherwise do not enforce what the policy needs; `detail` says why,
    by node), BudgetExceeded, BudgetForbids (qos.cluster.budget; `detail` names the budget and what it
    leaves).
    """

    count: int
    reason: str
    resource: str = ""
    missing: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DemandReport:
    """One policy's account.

    desired = filled + held + sum of unplaced counts, unless more pods run than slots exist: `pods`. Of those
    held `at_risk` would have to go elsewhere if every pod in flight, and of a DaemonSet, came that may.
    `survives`: any so many nodes may be lost, and as many are filled or held as the policy asks for; only of
    a demand that has spare slots.
    """

    key: str
    desired: int
    filled: int
    held: int
    holds: tuple[tuple[str, int], ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    pods: int = 0
    at_risk: int = 0
    survives: int = 0

    @property
    def missing(self) -> int:
        """Slots neither filled nor held."""
        return sum(u.count for u in self.unplaced)
