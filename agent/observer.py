"""In the place of enforcer and watch for drift: what would be written, found by reading. Writes nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from agent.enforcement.enforcer import Report
from agent.enforcement.fights import Fight
from agent.enforcement.places import Place, Wanted, controller
from agent.enforcement.writing import Differs, Writing
from agent.state import ContainerKey, Running
from kernel.apply import Refusal
from qos.plan.settings import Entry, Plan

SLICE_SECONDS: Final = 0.005
"""Seconds for which a look at everything works before others have their turn."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Observed:
    """A container, the settings it would get, and those of them that its files do not have now."""

    running: Running
    entries: tuple[Entry, ...]
    differ: tuple[Differs, ...] = ()


class Observer:
    """Looks where the enforcer would write, again every check_seconds; nothing is put back either.

    writing: only ever asked to look. `applied`: by container, as the enforcer has it; a setting that its file
    does not have is a refusal. `of_all_pods`: what would be written into the cgroup of all pods.
    `checked_at`: on the clock: when everything was last looked at.
    """

    def __init__(
        self, writing: Writing, check_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.writing = writing
        self._seconds = check_seconds
        self._clock = clock
        self._seen: dict[str, Observed] = {}
        self.of_all_pods: tuple[Differs, ...] = ()
        self.reports: dict[ContainerKey, Report] = {}
        self.checked_at = clock()

    def observed(self) -> tuple[Observed, ...]:
        """The containers that settings are planned for."""
        return tuple(one for one in self._seen.values() if one.entries)

    def pending(self) -> Mapping[str, int]:
        """How many settings would be written now, by kernel controller."""
        differ = chain(self.of_all_pods, *(one.differ for one in self._seen.values()))
        return Counter(controller(each.place.file) for each in differ)

    # --- what the reconciler asks of an enforcer ---

    def ids(self) -> tuple[str, ...]:
        """The containers that are looked at."""
        return tuple(self._seen)

    def kept(self, container_id: str) -> Observed | None:
        """What is known of one."""
        return self._seen.get(container_id)

    def apply(self, running: Running, plan: Plan, *, take_back: bool = True) -> Report:  # noqa: ARG002
        """Look, if another plan was looked at last."""
        entries = tuple(setting.entry for setting in plan.settings)
        seen = self._seen.get(running.container_id)
        if seen is not None and seen.entries == entries and running.key in self.reports:
            seen.running = running
            return self.reports[running.key]
        seen = self._seen[running.container_id] = Observed(running, entries)
        report = self._look(seen)
        if seen.differ:
            log.info("would write pod=%s container=%s: %s", *running.key, told(seen.differ))
        return report

    def forget(self, container_id: str) -> None:
        """The container is gone."""
        seen = self._seen.pop(container_id, None)
        if seen is not None:
            self.reports.pop(seen.running.key, None)

    def release(self, container_id: str) -> None:
        """It is not looked at any more."""
        self.forget(container_id)

    def refused(self) -> bool:
        """Nothing is to be tried again."""
        return False

    def keep_node(self, wanted: Mapping[Place, Wanted]) -> None:
        """What would be written into the cgroup of all pods."""
        looks = [self.writing.look_at(place.path, {place: want}).differ for place, want in wanted.items()]
        differ = tuple(chain.from_iterable(looks))
        if differ and differ != self.of_all_pods:
            log.info("would write for all pods: %s", told(differ))
        self.of_all_pods = differ

    def shared(self, *, take_back: bool = True, awaited: Collection[str] = ()) -> list[Report]:  # noqa: ARG002
        """What is shared is looked at with each container."""
        return []

    def sweep(
        self,
        unsettled: Collection[str] = (),  # noqa: ARG002
        awaited: Collection[str] = (),  # noqa: ARG002
    ) -> Iterator[str]:
        """What an enforcing agent left is not taken back: `j10ce node restore` does."""
        return iter(())

    def keep_notes(self, uids: Collection[str]) -> None:
        """The hook's notes stay."""

    # --- what the program asks of a watch for drift ---

    async def run(self) -> None:
        """Look at everything again and again, until cancelled: others change what is missing."""
        loop = asyncio.get_running_loop()
        while True:
            turn = loop.time()
            for container_id in self.ids():
                if (seen := self._seen.get(container_id)) is not None:
                    self._look(seen)
                if loop.time() - turn > SLICE_SECONDS:
                    await asyncio.sleep(0)
                    turn = loop.time()
            self.checked_at = self._clock()
            await asyncio.sleep(self._seconds)

    def expect(self, cgroup: str) -> None:
        """Whoever writes does so undisturbed."""

    def fights(self) -> tuple[Fight, ...]:
        """None: nothing is changed back."""
        return ()

    def _look(self, seen: Observed) -> Report:
        looked = self.writing.look(seen.running, seen.entries)
        seen.differ = looked.differ
        missing = [Refusal(one.place.path, one.place.key, one.want, 0, _MISSING) for one in looked.differ]
        refusals = (*missing, *looked.outcome.refusals)
        report = Report(
            seen.running.key, not refusals, self._clock(), refusals, written=0, gone=looked.outcome.gone
        )
        if report.gone:
            self.forget(seen.running.container_id)
        else:
            self.reports[seen.running.key] = report
        return report


_MISSING: Final = "it would be written; the agent only observes"


def told(differ: tuple[Differs, ...]) -> str:
    """What would be written, for people."""
    return ", ".join(f"{path}/{key} {have} -> {want}" for (path, key), have, want in differ)
