"""Plans into the kernel, container by container; what is not planned any more is put back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent.enforcement.fights import Fights
from agent.enforcement.noting import Writers
from agent.enforcement.originals import Originals
from agent.enforcement.places import PROCESS_FILES, Place, Wanted, higher, same, wanted_by
from agent.enforcement.wants import Wants
from agent.enforcement.writers import AGENT
from agent.enforcement.writing import Writing
from agent.state import ContainerKey, Running
from kernel.apply import Outcome, Refusal
from kernel.change import GATE, RAISE, SET, WEIGHTS
from kernel.membership import pod_uid
from qos.plan.settings import PROCESS, Entry, Plan

NOBODY_SEEN: Final[Writers] = {}
_NODE: Final = "the node"
"""In the place of a container's id: who wants what no container asks for."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Report:
    """What became of a container's plan; of a shared cgroup's, where the key has its path as name.

    `applied`: all of it was written; `verified_at`: when it last was seen to be in effect, on the enforcer's
    clock, -inf: it is known not to be, because somebody keeps changing it back;
    `refusals`: why not, the cause first; `written`: how many files were written; `gone`: the cgroup was
    removed, there is nothing to keep; `partly`: of what is written, what some of its processes do not have.
    """

    key: ContainerKey
    applied: bool
    verified_at: float
    refusals: tuple[Refusal, ...] = ()
    written: int = 0
    gone: bool = False
    partly: tuple[Refusal, ...] = ()

    @property
    def whole(self) -> bool:
        """All of it is in effect, in all processes."""
        return self.applied and not self.partly


@dataclass(slots=True)
class Applied:
    """A container that settings are kept for. `done`: nothing is left to do for these entries."""

    running: Running
    entries: tuple[Entry, ...]
    wanted: Mapping[Place, Wanted]
    done: bool


class Enforcer:
    """Applies plans, remembers what is in effect, and what others want there (Originals).

    mounts: v1 controller, "" for cgroup v2 -> mountpoint. run: the folder with the lock that the hook takes,
    too. Nothing raises: a Report says what is refused. Ending the agent undoes nothing.
    """

    def __init__(
        self,
        mounts: Mapping[str, str],
        originals: Originals,
        run: Path,
        proc: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.originals = originals
        self.writing = Writing(mounts, originals, run, proc)
        self.lowering = self.writing.lowering
        self.lowering.ended = self._lowered
        self.wants = Wants()
        self.fights = Fights()
        self.reports: dict[ContainerKey, Report] = {}
        self.clock = clock
        self._kept: dict[str, Applied] = {}
        self._stuck: set[str] = set()
        self._refused: dict[str, str] = {}
        """Container id -> its pod's uid, where the newest plan is not in effect."""

    def __len__(self) -> int:
        """How many containers settings are kept for."""
        return len(self._kept)

    def kept(self, container_id: str) -> Applied | None:
        """What is kept for a container."""
        return self._kept.get(container_id)

    def ids(self) -> tuple[str, ...]:
        """The containers that settings are kept for."""
        return tuple(self._kept)

    def refused(self) -> bool:
        """Whether some container's newest plan is not in effect."""
        return bool(self._refused)

    def apply(self, running: Running, plan: Plan, deadline: float = 0.0, *, take_back: bool = True) -> Report:
        """All of the plan or none; what the plan before had and this one has not is put back.

        deadline: on time.monotonic(); past it nothing more is written; 0: none. take_back: False while not
        all is known that plans are made from: then what the plan before had stays. Costs nothing where
        the same plan is in effect already: what others change meanwhile is drift's to see.
        """
        entries = tuple(setting.entry for setting in plan.settings)
        kept = self._kept.get(running.container_id)
        try:
            if kept is not None and not take_back:
                entries = _with_old(running, entries, kept.entries)
            if kept is not None and kept.done and kept.entries == entries:
                kept.running = running
                return self.reports[running.key]
            wanted = wanted_by(running, entries)
        except ValueError as error:
            return self._told(running, _refused(running, str(error)), kept)
        back = self._back(running, kept, wanted) if take_back else []
        if kept is not None and not back and self._is_in_effect(kept, entries, wanted):
            self.wants.put(running.container_id, wanted)
            self._kept[running.container_id] = Applied(running, entries, wanted, done=True)
            return self.reports[running.key]
        outcome = self._written(running, entries, back, deadline)
        if outcome.applied:
            self.wants.put(running.container_id, wanted)
            self.originals.forget(place for place in back if place not in self.lowering)
            kept = Applied(running, entries, wanted, self._is_whole(running, wanted))
        return self._told(running, outcome, kept)

    def _is_in_effect(
        self, kept: Applied, entries: tuple[Entry, ...], wanted: Mapping[Place, Wanted]
    ) -> bool:
        """Whether a new plan is in effect already: only what is shared differs, and is high enough.

        With each container that starts shared sums change in the plans of all others.
        """
        own, before = ([one for one in each if one[1] == SET] for each in (entries, kept.entries))
        changed = [(place, want) for place, want in wanted.items() if kept.wanted.get(place) != want]
        return kept.done and own == before and not any(self._is_new(*one, lower=False) for one in changed)

    def _is_whole(self, running: Running, wanted: Mapping[Place, Wanted]) -> bool:
        """Whether nothing is left to do for it."""
        whole = wanted.keys().isdisjoint(_of_process(running)) or self.writing.has_process(running)
        return whole and not any(place in self.lowering for place in self.originals.at(running.cgroup))

    def _lowered(self, place: Place) -> None:
        """A limit was lowered, or not, or written over by a step of before: what holds now is written."""
        seen = {(place.path, place.file): AGENT}
        for container_id in self.wants.wanting(place):
            kept, report = self._kept.get(container_id), None
            if kept is not None and container_id not in self._refused:
                report = self.reports.get(kept.running.key)
            if kept is None or report is None:
                continue
            entries = [entry for entry in kept.entries if place in wanted_by(kept.running, [entry])]
            outcome = self.writing.container(kept.running, entries, seen)
            late = self.late(kept)
            kept.done = outcome.applied and self._is_whole(kept.running, kept.wanted)
            report.applied, report.refusals = outcome.applied and not late, (*outcome.refusals, *late)
            report.verified_at = self.clock()

    def late(self, kept: Applied) -> tuple[Refusal, ...]:
        """What of a container's plan is not in effect yet, because the kernel has to reclaim for it."""
        why = self.lowering.why(kept.wanted)
        return tuple(Refusal(place.path, place.file, value, 0, text) for place, value, text in why)

    def forget(self, container_id: str) -> None:
        """The container is gone, and its cgroup."""
        kept = self._kept.pop(container_id, None)
        self._refused.pop(container_id, None)
        if kept is None:
            return
        path = kept.running.cgroup
        self.wants.drop(container_id)
        self.writing.notes.index.forget(path)
        self.originals.drop(path)
        self.lowering.forget(path)
        self.fights.forget(path)
        if not any(other.running.key == kept.running.key for other in self._kept.values()):
            self.reports.pop(kept.running.key, None)

    def release(self, container_id: str) -> None:
        """Nothing is kept for it any more, in a cgroup that is still there and others want something of."""
        kept = self._kept.pop(container_id, None)
        self._refused.pop(container_id, None)
        self.wants.drop(container_id)
        if kept is not None and not any(one.running.key == kept.running.key for one in self._kept.values()):
            self.reports.pop(kept.running.key, None)

    def keep_node(self, wanted: Mapping[Place, Wanted]) -> None:
        """What shared cgroups are to have that no container asks for; shared() writes it, sweep() gives back
        what is wanted no more.
        """
        if wanted:
            self.wants.put(_NODE, wanted)
        else:
            self.wants.drop(_NODE)

    def shared(self, *, take_back: bool = True, awaited: Collection[str] = ()) -> list[Report]:
        """Each shared cgroup gets what others want, or what all plans need where that is more.

        Without take_back nothing is lowered; nor is it above a container whose newest plan is refused, and
        above a pod that is awaited: given by its cgroup, "" where that is not known and may be anywhere.
        """
        reports = []
        for path in list(self.wants.shared_paths()):
            lower = take_back and self._is_quiet_below(path, awaited)
            wanted = {
                place: want if lower else Wanted(RAISE, want.value)
                for place, want in self.wanted_at(path).items()
                if self._is_new(place, want, lower)
            }
            if wanted:
                outcome = self.writing.cgroup(path, wanted, NOBODY_SEEN)
                reports.append(self._report(ContainerKey("", path), outcome))
        return reports

    def wanted_at(self, path: str) -> dict[Place, Wanted]:
        """What the shared files of a cgroup shall hold, by what is known now."""
        found = {}
        for place in self.wants.at(path):
            want = self.wants.wanted(place, self.originals.get(place))
            if want is not None and self.wants.is_shared(place):
                found[place] = want
        return found

    def sweep(self, unsettled: Collection[str] = (), awaited: Collection[str] = ()) -> Iterator[str]:
        """After all containers' plans were applied: put back what no plan has any more.

        unsettled: uids of pods that may have containers whose plans were not applied. What these pods have,
        and those of which a plan was refused, stays. awaited: as with shared().
        Yields the cgroups it was done for, or that are gone; a place to breathe.
        """
        for path in self.originals.paths():
            left = {place for place in self.originals.at(path) if place not in self.wants}
            if not left:
                continue
            if not self.writing.there(path):
                self.originals.drop(path)
                self.writing.notes.index.forget(path)
            elif self._is_settled(path, unsettled, awaited):
                self._put_back(path, self._free(path, left))
            else:
                continue
            yield path
        self._stuck.intersection_update(self.originals.paths())
        for path in [path for path, _ in self.writing.notes.index.paths() if not self.wants.at(path)]:
            self.writing.notes.index.forget(path)

    def keep_notes(self, uids: Collection[str]) -> None:
        """Remove what the hook noted of pods other than these."""
        self.writing.notes.found.keep(uids)

    def _is_settled(self, path: str, unsettled: Collection[str], awaited: Collection[str]) -> bool:
        """Whether every container that may want something of this cgroup has its plan."""
        uid, refused = pod_uid(path), self._refused.values()
        if uid:
            return uid not in unsettled and uid not in refused
        return self._is_quiet_below(path, awaited)

    def _is_quiet_below(self, path: str, awaited: Collection[str]) -> bool:
        """Whether a shared cgroup waits for no pod in it, and none in it has a plan that is refused."""
        above = f"{path.rstrip('/')}/"
        refused = (kept.running.cgroup for one in self._refused if (kept := self._kept.get(one)))
        return not any(not one or one.startswith(above) for one in (*awaited, *refused))

    def _is_new(self, place: Place, want: Wanted, lower: bool) -> bool:
        """Fights are the repairer's business."""
        if place in self.fights:
            return False
        record = self.originals.record(place)
        if record is None or lower:
            return record is None or not same(place.file, record.written, want.value)
        return higher(place.file, want.value, record.written)

    def _back(self, running: Running, kept: Applied | None, wanted: Mapping[Place, Wanted]) -> list[Place]:
        """Places of its own that this container's plan does not have any more.

        Of its own cgroup all of which something is known; of its pod's those it had, if no other has them.
        """
        left = set(self.originals.at(running.cgroup))
        if kept is not None:
            left |= {place for place, want in kept.wanted.items() if want.mode == SET}
        own = {place for place in left - wanted.keys() if self.wants.only(running.container_id, place)}
        return [place for place in own if not _is_idle(place, wanted)]

    def _free(self, path: str, places: Iterable[Place]) -> list[Place]:
        """Without the weight of a cgroup that is idle by some plan: it cannot be written."""
        gate = self.wants.wanted(Place(path, GATE), None)
        idle = gate is not None and gate.value != "0"
        return [place for place in places if not (idle and place.file in WEIGHTS)]

    def _written(
        self, running: Running, entries: tuple[Entry, ...], back: list[Place], deadline: float
    ) -> Outcome:
        """With what is put back, in one order; without it where the kernel refuses that."""
        depth = running.cgroup.count("/")
        restored: list[Entry] = []
        for place in back:
            original = self.originals.get(place)
            if original is None:
                self.lowering.drop(place)
            else:
                level = PROCESS if place.file in PROCESS_FILES else depth - place.path.count("/")
                restored.append((level, SET, place.file, original))
        outcome = self.writing.container(running, [*entries, *restored], NOBODY_SEEN, deadline)
        if not restored or outcome.applied or outcome.gone:
            return outcome
        log.warning("not put back container=%s why=%r", running.cgroup, str(outcome.refusals[0]))
        back.clear()
        return self.writing.container(running, entries, NOBODY_SEEN, deadline)

    def _put_back(self, path: str, places: list[Place]) -> None:
        known = {place: self.originals.get(place) for place in places}
        wanted = {place: Wanted(SET, value) for place, value in known.items() if value is not None}
        outcome = self.writing.cgroup(path, wanted, NOBODY_SEEN) if wanted else Outcome()
        if outcome.gone:
            self.originals.drop(path)
        elif outcome.applied:
            self._stuck.discard(path)
            self.originals.forget(place for place in places if place not in self.lowering)
            log.info("put back cgroup=%s files=%d", path, len(wanted))
        elif path not in self._stuck:  # said once
            self._stuck.add(path)
            log.warning("not put back cgroup=%s why=%r: tried again", path, str(outcome.refusals[0]))

    def _told(self, running: Running, outcome: Outcome, kept: Applied | None) -> Report:
        """The report, remembered; a container that is refused is kept as it was, and tried again."""
        report = self._report(running.key, outcome)
        if outcome.gone:
            self.forget(running.container_id)
            return report
        if not outcome.applied:
            kept = Applied(running, (), {}, done=False) if kept is None else replace(kept, done=False)
            self._refused[running.container_id] = running.key.pod_uid
        else:
            self._refused.pop(running.container_id, None)
        assert kept is not None
        self._kept[running.container_id] = kept
        if report.partly and running.key not in self.reports:
            log.warning("partly applied pod=%s container=%s why=%r", *running.key, str(report.partly[0]))
        if outcome.applied and (late := self.late(kept)):
            report.applied, report.refusals = False, late
        self.reports[running.key] = report
        return report

    def _report(self, key: ContainerKey, outcome: Outcome) -> Report:
        refusals, written = tuple(outcome.refusals), len(outcome.written)
        partly = tuple(outcome.partly)
        return Report(key, outcome.applied, self.clock(), refusals, written, outcome.gone, partly)


def _with_old(running: Running, entries: tuple[Entry, ...], old: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries, and the old ones of what they say nothing of. ValueError as wanted_by."""
    wanted = wanted_by(running, entries)
    kept = [(entry, place) for entry in old for place in wanted_by(running, [entry])]
    return (*entries, *(one for one, place in kept if place not in wanted and not _is_idle(place, wanted)))


def _is_idle(place: Place, wanted: Mapping[Place, Wanted]) -> bool:
    """Whether it is the weight of a cgroup that shall be idle: it cannot be written then."""
    gate = wanted.get(Place(place.path, GATE)) if place.file in WEIGHTS else None
    return gate is not None and gate.value != "0"


def _of_process(running: Running) -> set[Place]:
    return {Place(running.cgroup, file) for file in PROCESS_FILES}


def _refused(running: Running, why: str) -> Outcome:
    outcome = Outcome()
    outcome.refusals.append(Refusal(running.cgroup, "", "", 0, why))
    return outcome
