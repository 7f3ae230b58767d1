"""What others changed is put right again, unless they keep changing it back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from agent.enforcement.enforcer import NOBODY_SEEN, Applied, Enforcer
from agent.enforcement.fights import Verdict
from agent.enforcement.noting import Writers
from agent.enforcement.places import Place, Wanted, controller, higher, wanted_by
from agent.enforcement.writers import OTHER, WRITERS
from agent.enforcement.writing import Differs, Looked
from kernel.apply import Outcome, Refusal
from kernel.change import RAISE, SET
from qos.plan.settings import Entry

log = logging.getLogger(__name__)


class Drift(NamedTuple):
    """A file that somebody else changed. `have`: what it said, `want`: what is planned.

    `writer`: one of writers.WRITERS; `repaired`: False: the kernel refused.
    """

    place: Place
    have: str
    want: str
    writer: str
    repaired: bool

    @property
    def controller(self) -> str:
        """The kernel's, as metrics name it."""
        return controller(self.place.file)


class Repairer:
    """Looks at what the enforcer keeps, and repairs it.

    told: called with each drift, after it was dealt with. escalated: with each place that is left alone from
    now on because somebody keeps changing it back, and again when that somebody undid one more try.
    """

    def __init__(
        self, enforcer: Enforcer, told: Callable[[Drift], None], escalated: Callable[[Place], None]
    ) -> None:
        self._enforcer = enforcer
        self._told = told
        self._escalated = escalated

    def mend(self, path: str, writers: Writers = NOBODY_SEEN) -> None:
        """Look at the files of one cgroup, and repair."""
        wants = self._enforcer.wants
        places = [place for place in wants.at(path) if not wants.is_shared(place)]
        for container_id in {one: None for place in places for one in wants.wanting(place)}:
            self._mend_container(container_id, writers)
        self._mend_shared(path, writers)

    def check(self) -> Iterator[str]:
        """Look at all files of all containers, and of the cgroups that they share. Nothing is written.

        Yields, a container or shared cgroup at a time, the cgroup to mend, "" where nothing differs.
        """
        for container_id in self._enforcer.ids():
            yield self._verified(container_id)
        for path in list(self._enforcer.wants.shared_paths()):
            yield path if self._shared_differ(path) else ""
        for fight in self._enforcer.fights.sweep(self._enforcer.clock()):
            log.info("fight is over cgroup=%s file=%s", *fight.place)

    def _verified(self, container_id: str) -> str:
        kept = self._enforcer.kept(container_id)
        looked = self._looked(kept) if kept is not None else None
        if kept is None or looked is None:
            return ""
        if not looked.differ:
            self._report(kept, looked.outcome, {})
            return ""
        return kept.running.cgroup

    def _looked(self, kept: Applied) -> Looked | None:
        """Its own cgroup, its pod's and its process; None where nothing is kept, or it is gone."""
        if not kept.wanted and kept.done:
            return None
        looked = self._enforcer.writing.look(kept.running, self._exact(kept))
        lowering = self._enforcer.lowering
        strange = tuple(one for one in looked.differ if not lowering.explains(one.place, one.have))
        looked = looked._replace(differ=strange)
        if looked.outcome.gone or not (kept.wanted or self._enforcer.writing.there(kept.running.cgroup)):
            log.info("cgroup is gone container=%s cgroup=%s", kept.running.container_id, kept.running.cgroup)
            self._enforcer.forget(kept.running.container_id)
            return None
        return looked if kept.wanted else None

    def _exact(self, kept: Applied) -> list[Entry]:
        """The settings that are not shared; those of the pod's cgroup as the newest plan has them.

        Containers of a pod may have plans of different passes, where the newer one was refused.
        """
        exact = []
        for level, mode, file, value in kept.entries:
            newest = None
            if mode == SET and level > 0:
                (place,) = wanted_by(kept.running, [(level, mode, file, value)])
                newest = self._enforcer.wants.wanted(place, None)
            if mode == SET:
                exact.append((level, mode, file, newest.value if newest else value))
        return exact

    def _mend_container(self, container_id: str, writers: Writers) -> None:
        """All that is not right in one go."""
        kept = self._enforcer.kept(container_id)
        looked = self._looked(kept) if kept is not None else None
        if kept is None or looked is None:
            return
        left = self._left(looked.differ, writers)
        for one in looked.differ:
            if one.place in left:
                own = one.place.path == kept.running.cgroup
                self._enforcer.writing.note(one, writers, own=own, shared=False)
        outcome = looked.outcome
        if len(left) < len(looked.differ):
            entries = [
                entry
                for entry in self._exact(kept)
                if left.keys().isdisjoint(wanted_by(kept.running, [entry]))
            ]
            outcome = self._enforcer.writing.container(kept.running, entries, writers)
            self._tell(looked.differ, left, writers, outcome)
        self._report(kept, outcome, left)

    def _shared_differ(self, path: str) -> tuple[Differs, ...]:
        wanted = self._enforcer.wanted_at(path)
        exactly = {place: Wanted(SET, want.value) for place, want in wanted.items()}
        return self._enforcer.writing.look_at(path, exactly).differ

    def _mend_shared(self, path: str, writers: Writers) -> None:
        """What others want there may have changed. Only raised: Enforcer.shared lowers.

        What is too high may be what the hook has just raised for a container that we do not know yet.
        """
        writing, differ = self._enforcer.writing, self._shared_differ(path)
        for one in differ:
            writing.note(one, writers, own=False, shared=True)
        wanted = self._enforcer.wanted_at(path) if differ else {}
        low = [one for one in differ if higher(one.place.file, wanted[one.place].value, one.have)]
        left = self._left(low, writers)
        raised = {one.place: Wanted(RAISE, wanted[one.place].value) for one in low if one.place not in left}
        if raised:
            self._tell(low, left, writers, writing.cgroup(path, raised, writers))

    def _left(self, differ: Iterable[Differs], writers: Writers) -> dict[Place, str]:
        """What is not to be repaired now, and why."""
        now, left = self._enforcer.clock(), {}
        for place, have, _ in differ:
            writer = _writer(place, writers)
            verdict = self._enforcer.fights.changed(place, writer, now)
            if verdict is Verdict.REPAIR:
                continue
            left[place] = f"{writer} keeps changing it back to {have}: left alone for a while"
            if verdict is Verdict.ESCALATE:
                log.warning("fight cgroup=%s file=%s value=%r writer=%s", *place, have, writer)
                self._escalated(place)
        return left

    def _tell(
        self, differ: Iterable[Differs], left: dict[Place, str], writers: Writers, outcome: Outcome
    ) -> None:
        for place, have, want in differ:
            if place not in left:
                writer = _writer(place, writers)
                log.info(
                    "drift cgroup=%s file=%s have=%r want=%r writer=%s repaired=%s",
                    *place,
                    have,
                    want,
                    writer,
                    outcome.applied,
                )
                self._told(Drift(place, have, want, writer, outcome.applied))

    def _report(self, kept: Applied, outcome: Outcome, left: dict[Place, str]) -> None:
        report = self._enforcer.reports.get(kept.running.key)
        if report is None:
            return
        report.partly = tuple(outcome.partly)
        if outcome.refusals:
            kept.done = report.applied = False
            report.refusals = tuple(outcome.refusals)
        elif left:  # it was written, and reads otherwise
            report.verified_at = float("-inf")
            report.refusals = tuple(
                Refusal(place.path, place.key, kept.wanted[place].value, 0, why)
                for place, why in left.items()
            )
        elif kept.done:
            report.applied, report.refusals = True, ()
            report.verified_at = self._enforcer.clock()
        if not outcome.refusals and (late := self._enforcer.late(kept)):
            kept.done = report.applied = False
            report.refusals = late


def _writer(place: Place, writers: Writers) -> str:
    writer = writers.get((place.path, place.file))
    return writer if writer in WRITERS else OTHER
