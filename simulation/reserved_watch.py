"""The watcher's part for Koordinator's Reservations: what was seen of them, and what of that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from ledger.decisions import DemandReport
from qos.cluster.objects import Demand, Pod
from simulation import reserved
from simulation.store import Body


class ReservedWatch:
    """Reservations as the API server has them, and the pods that used them. `say`: hears the story."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._bodies: dict[str, Body] = {}
        self._ever: dict[str, dict[str, None]] = {}
        """UIDs of the pods that were ever bound with a Reservation and left a trace, by its UID."""
        self._perhaps: dict[str, set[str]] = {}
        """Likewise those of whom nobody may know any more."""
        self._untold: dict[str, str] = {}
        """Of those the ones that ended before a status named them, with their Reservation's UID."""
        self.decided: dict[str, str] = {}
        """By a pod's UID, that of the Reservation that its bind was decided to use."""
        self.lost: set[str] = set()
        """Nodes that were deleted at some time."""

    def see(self, body: Body, before: Body | None, *, gone: bool) -> Iterator[str]:
        """One as it became; what is wrong with that."""
        name = body["metadata"]["name"]
        if gone:
            self._bodies.pop(name, None)
            self._say(f"Reservation {name} is gone")
            return
        self._bodies[name] = body
        phase, node = reserved.phase_of(body), reserved.node_of(body)
        if before is None or phase != reserved.phase_of(before):
            self._say(f"Reservation {name} is {phase or 'created'} {node}")
        if before is not None:
            yield from (f"{name}: {problem}" for problem in reserved.wrong_write(before, body))

    def bound(self, pod: Pod, pods: Iterable[Pod], resized: Collection[str]) -> Iterator[str]:
        """A pod was bound that says that it uses one; what is wrong with that. `pods`: all that are there,
        `resized`: UIDs of those that may have been let in as large as they were.
        """
        body = self._bodies.get(self.name_of(pod.reserved_by))
        if body is None or not pod.bound_by:
            return
        ever = self._ever.setdefault(pod.reserved_by, {})
        running = [one for one in pods if one.node_name and not one.terminal]
        if not any(one.uid in resized and reserved.uses(body, one) for one in running):
            for problem in reserved.wrong_use(body, pod, running, ever):
                yield f"{body['metadata']['name']}: {problem}"
        ever[pod.uid] = None

    def ended(self, pod: Pod, *, heard: bool) -> None:
        """A pod has ended, or is gone. `heard`: an extender knows that it was there."""
        body = self._bodies.get(self.name_of(pod.reserved_by))
        if body is not None and pod.uid not in reserved.owners(body):
            self._untold[pod.uid] = pod.reserved_by
            if not heard:
                self.forgotten()

    def forgotten(self) -> None:
        """The extender is another one: who came and went before a status said so has left no trace."""
        for pod, uid in self._untold.items():
            self._ever.get(uid, {}).pop(pod, None)
            self._perhaps.setdefault(uid, set()).add(pod)
        self._untold.clear()

    def name_of(self, uid: str) -> str:
        """Its name; the UID of one that is gone."""
        return next((name for name, body in self._bodies.items() if reserved.uid_of(body) == uid), uid)

    def may_be_used(self, pod: Pod) -> bool:
        """Whether a pod may come to use one: which, its bind says."""
        return any(reserved.for_pod(body, pod) for body in self._bodies.values())

    def being_placed(self, key: str, demands: Iterable[Demand], reports: Mapping[str, DemandReport]) -> bool:
        """Whether one that comes before this demand is held, and its status does not say so yet. `demands`:
        in the ledger's order.
        """
        for one in demands if self._bodies else ():
            if one.key == key:
                return False
            body = self._bodies.get(one.key.removeprefix("/")) if one.reserved is not None else None
            if body is not None and reports[one.key].held and not reserved.node_of(body):
                return True
        return False

    def misplaced(self, reports: Mapping[str, DemandReport]) -> Iterator[str]:
        """Those that are held elsewhere than where they are."""
        for name, body in self._bodies.items():
            report = reports.get(f"/{name}")
            for problem in reserved.held_where_it_is(body, dict(report.holds)) if report is not None else ():
                yield f"{name}: {problem}"

    def at_rest(self, pods: Collection[Pod], nodes: Collection[str], *, now: float) -> Iterator[str]:
        """What their statuses say after quiet that is not so; as reserved.wrong_at_rest."""
        for name, body in self._bodies.items():
            uid = reserved.uid_of(body)
            ever, perhaps = self._ever.get(uid, ()), self._perhaps.get(uid, ())
            for problem in reserved.wrong_at_rest(
                body, pods, ever, perhaps=perhaps, nodes=nodes, lost=self.lost, now=now
            ):
                yield f"{name}: {problem}"
