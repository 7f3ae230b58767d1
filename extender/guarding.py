"""Guarded: whether pods really come through us, derived from what lasts (design: Modes of an installation).

Every pod that we bind carries BOUND_BY_ANNOTATION. So pods say by themselves who bound them: to an extender
that was restarted, and to a standby that leads while the one that kube-scheduler calls is dead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from ledger.decisions import Mode
from qos.cluster.objects import Pod


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
    """A pod that was bound without us, and where."""

    breach: Breach
    node: str


class Recent(NamedTuple):
    """What happened lately: pods bound while no extender answered, and the nodes that others bound to."""

    away: bool
    bypassed: Collection[str]


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


class Guards(Protocol):
    """What a keeper knows of whether its holds are respected; `installed` as Guarding has it."""

    installed: float | None

    def see(self, pod: Pod) -> None:
        """Take a pod as the watch shows it."""
        ...

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        ...

    def recent(self, now: float, /) -> Recent:
        """What happened lately."""
        ...

    def count(self, now: float, /) -> int:
        """How many pods that was."""
        ...

    def judge(self, key: str, recent: Recent, exposed: Collection[str], /) -> Guard:
        """The condition for one policy; `exposed`: keys of those that may hold slots on bypassed nodes."""
        ...


class NobodyBypasses:
    """Guards of a keeper that no pod goes by, whoever binds it; `judged`: the condition of one policy."""

    def __init__(self, judged: Callable[[str], Guard]) -> None:
        self.installed: float | None = None
        self._judged = judged

    def see(self, pod: Pod) -> None:
        """Nothing follows from how it came to its node."""

    def forget(self, uid: str) -> None:
        """Likewise."""

    def recent(self, _now: float) -> Recent:
        """Nothing."""
        return Recent(away=False, bypassed=frozenset())

    def count(self, _now: float) -> int:
        """None."""
        return 0

    def judge(self, key: str, _recent: Recent, _exposed: Collection[str]) -> Guard:
        """The condition for one policy."""
        return self._judged(key)


class EachByItsKeeper:
    """Guards where both keepers run: `placeholders` judges the policies that they keep, `verbs` the others.

    `kept`: whether placeholders keep a policy.
    """

    def __init__(
        self, verbs: Guarding, placeholders: Callable[[str], Guard], kept: Callable[[str], bool]
    ) -> None:
        self._verbs, self._placeholders, self._kept = verbs, placeholders, kept
        self.see, self.forget, self.recent, self.count = verbs.see, verbs.forget, verbs.recent, verbs.count

    @property
    def installed(self) -> float | None:
        """As Guarding has it."""
        return self._verbs.installed

    @installed.setter
    def installed(self, at: float | None) -> None:
        self._verbs.installed = at

    def judge(self, key: str, recent: Recent, exposed: Collection[str]) -> Guard:
        """The condition for one policy."""
        return self._placeholders(key) if self._kept(key) else self._verbs.judge(key, recent, exposed)


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
        self._by_age: list[tuple[float, str]] = []
        self._count: Counter[Breach] = Counter()
        self._bypassed: Counter[str] = Counter()
        self._newest = float("-inf")

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
            self._newest = max(self._newest, at)
            if at < self._newest - self._window:
                return  # a start lists pods of months: most are known to be too old at once
            self._breaches[pod.uid] = _Sighting(breach, pod.node_name)
            heappush(self._by_age, (at, pod.uid))
            self._count[breach] += 1
            if breach is Breach.BYPASS:
                self._bypassed[pod.node_name] += 1
            self._prune(self._newest)  # where nobody asks: a standby that is not scraped

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

    def recent(self, now: float) -> Recent:
        """Breaches within the window and since the installation.

        None until it is known when the installation was; what is seen until then is not lost.
        """
        self._prune(now)
        if self.installed is None:
            return Recent(away=False, bypassed=frozenset())
        return Recent(self._count[Breach.AWAY] > 0, self._bypassed.keys())

    def count(self, now: float) -> int:
        """How many these are."""
        self._prune(now)
        return 0 if self.installed is None else len(self._breaches)

    def _prune(self, now: float) -> None:
        """Forget what is older than the window or the installation, by what it costs: oldest first."""
        since = now - self._window if self.installed is None else max(now - self._window, self.installed)
        while self._by_age and self._by_age[0][0] < since:
            _, uid = heappop(self._by_age)
            one = self._breaches.pop(uid)
            self._count[one.breach] -= 1
            if one.breach is Breach.BYPASS:
                self._bypassed[one.node] -= 1
                if not self._bypassed[one.node]:
                    del self._bypassed[one.node]

    def judge(self, key: str, recent: Recent, exposed: Collection[str]) -> Guard:
        """The condition for one policy: an absent extender concerns all, a bypass who may hold there.

        `exposed`: keys of those that may hold slots on the bypassed nodes.
        """
        if self._mode is Mode.OBSERVE:
            return _OBSERVE
        if self._binds and recent.away:
            return _AWAY
        if key in exposed:
            return _BYPASS
        return GUARDED if self._binds else _NO_BIND
