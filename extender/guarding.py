"""Guarded: whether pods really come through us, derived from what lasts (design: Modes of an installation).

Every pod that we bind carries BOUND_BY_ANNOTATION. So pods say by themselves who bound them: to an extender
that was restarted, and to a standby that leads while the one that kube-scheduler calls is dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ledger.decisions import Mode
from qos.cluster.objects import Demand, Node, Pod
from qos.cluster.selectors import admits

_FEW: Final = 1_000
"""The number of breaches that are remembered without a look at their age."""


class Breach(Enum):
    """How a pod came to its node without us."""

    AWAY = "ExtenderAway"
    BYPASS = "PodsBypass"


@dataclass(frozen=True, slots=True)
class Guard:
    """The condition Guarded: True, False or, where nothing lasting tells, Unknown."""

    guarded: bool
    reason: str
    message: str
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class _Sighting:
    """A pod that was bound without us, where and when."""

    breach: Breach
    node: str
    at: float


GUARDED = Guard(True, "Guarded", "pods are bound through the extender")
_OBSERVE = Guard(False, "ObserveMode", "the extender observes: it refuses nothing")
_NO_BIND = Guard(
    False,
    "NotBinding",
    "kube-scheduler does not bind through the extender: pods do not show who was asked",
    True,
)
_AWAY = Guard(False, Breach.AWAY.value, "pods were bound while no extender answered")
_BYPASS = Guard(
    False,
    Breach.BYPASS.value,
    "pods of other schedulers, or with nodeName set, took capacity on nodes where slots may be held",
)


class Guarding:
    """Remembers pods that were bound without us for one window; fed with each pod as it is seen."""

    def __init__(self, mode: Mode, *, binds: bool, schedulers: Iterable[str], window: float) -> None:
        self._mode = mode
        self._binds = binds
        self._schedulers = frozenset(schedulers)
        self._window = window
        self.installed: float | None = None
        """When this installation began; None until that is known, and then there is no verdict yet."""
        self._breaches: dict[str, _Sighting] = {}
        self._pending: set[str] = set()
        self._prune_above = _FEW

    def see(self, pod: Pod) -> None:
        """Take a pod as the watch shows it."""
        if not pod.node_name:
            self._pending.add(pod.uid)
            return
        if pod.uid in self._breaches:
            return
        breach = self._judge(pod)
        self._pending.discard(pod.uid)
        if breach is not None:
            at = pod.scheduled or pod.created
            self._breaches[pod.uid] = _Sighting(breach, pod.node_name, at)
            if len(self._breaches) > self._prune_above:  # where nobody asks: a standby that is not scraped
                self._prune(at)
                self._prune_above = max(_FEW, 2 * len(self._breaches))

    def forget(self, uid: str) -> None:
        """The pod is gone. That it was bound without us stays true for the window."""
        self._pending.discard(uid)

    def _judge(self, pod: Pod) -> Breach | None:
        """None for what came through us, and for DaemonSet and static pods: they are counted, no alarm."""
        daemon = pod.controller is not None and pod.controller.kind in ("DaemonSet", "Node")
        if pod.bound_by or pod.mirror or daemon:
            return None
        if pod.scheduler_name not in self._schedulers:
            return Breach.BYPASS
        # A Binding sets the condition PodScheduled; a pod made with nodeName has none when it is first seen.
        created_bound = pod.uid not in self._pending and not pod.scheduled
        return Breach.BYPASS if created_bound else Breach.AWAY

    def recent(self, now: float) -> list[tuple[Breach, str]]:
        """Breaches within the window and since the installation: how, and on which node.

        Empty until it is known when the installation was; what is seen until then is not lost.
        """
        self._prune(now)
        if self.installed is None:
            return []
        since = max(now - self._window, self.installed)
        return [(one.breach, one.node) for one in self._breaches.values() if one.at >= since]

    def _prune(self, now: float) -> None:
        """Forget what is older than the window."""
        self._breaches = {uid: one for uid, one in self._breaches.items() if one.at >= now - self._window}

    def judge(
        self, demand: Demand | None, recent: list[tuple[Breach, str]], nodes: Mapping[str, Node]
    ) -> Guard:
        """The condition for one policy: an absent extender concerns all, a bypass who may hold there."""
        if self._mode is Mode.OBSERVE:
            return _OBSERVE
        if self._binds and any(breach is Breach.AWAY for breach, _ in recent):
            return _AWAY
        bypassed = {node for breach, node in recent if breach is Breach.BYPASS}
        if demand is not None and any(
            name in nodes and admits(demand.where, nodes[name]) for name in bypassed
        ):
            return _BYPASS
        return GUARDED if self._binds else _NO_BIND
