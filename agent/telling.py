"""What the container runtime is told of a container, and what others are taken to want there instead."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final

from agent.enforcement.originals import Originals
from agent.enforcement.places import Place
from agent.nri.adjustment import PERIOD, adjustment_of, told_of
from agent.nri.records import Adjustment, LinuxResources
from agent.nri.rpc import NriError
from agent.state import ContainerKey, Running
from agent.told import NOBODY, Told
from kernel.allowed import IN_USE
from qos.plan.layout import CONVERSIONS, LEAST_SHARES, conversion_of, shares_for
from qos.plan.settings import Plan

_WEIGHT: Final = "cpu.weight"
Update = Callable[[Mapping[str, Adjustment]], Awaitable[None]]
"""Has containers updated, by id. NriError: not all could be."""

log = logging.getLogger(__name__)


class Telling:
    """Makes of plans what a container's spec shall say, and notes that in `told`.

    plan_of: the newest plan of a container. read: what a container's cgroup has in a file, "" where that
    cannot be read. reclaims: as RuntimeEvents has it. unified: the node has cgroup v2.
    """

    def __init__(
        self,
        told: Told,
        originals: Originals,
        plan_of: Callable[[ContainerKey], Plan | None],
        read: Callable[[str, str], str],
        reclaims: Callable[[str, str, str], bool],
        *,
        unified: bool,
    ) -> None:
        self._told, self._originals, self._plan_of = told, originals, plan_of
        self._read, self._reclaims, self._unified = read, reclaims, unified
        self._refused: set[str] = set()
        self._convert = CONVERSIONS[0]
        """How this node's runtime makes a weight of shares: the newer way, until it has shown another."""

    def adjustment(
        self, running: Running, spec: LinuxResources, asked: LinuxResources = NOBODY
    ) -> Adjustment | None:
        """What its spec shall say by its plan. spec: what it says; asked: what somebody wants it to say.

        Not what the kernel would have to reclaim for: the runtime would wait for that.
        """
        plan = self._plan_of(running.key)
        if plan is None:
            return None
        path = running.cgroup
        entries = [one.entry for one in plan.settings]
        entries = [one for one in entries if not (one[2] in IN_USE and self._reclaims(path, *one[2:]))]
        told = told_of(entries, self._unified, lambda weight: shares_for(weight, self._convert))
        if path and told:
            self._told.note(path, told, spec, asked)
        return adjustment_of(told) if told else None

    def learn(self, path: str, spec: LinuxResources, *, written: bool) -> None:
        """See by a container how its runtime makes a weight of shares.

        written: the runtime has just written its cgroup, and nobody since. Else only one of which we said
        nothing shows that.
        """
        if not (self._unified and path and spec.cpu_shares) or not (written or self._is_untouched(path)):
            return
        weight = self._read(path, _WEIGHT)
        if weight.isdecimal():
            self._convert = conversion_of(spec.cpu_shares, int(weight)) or self._convert

    def asked(self, resources: LinuxResources) -> dict[str, str]:
        """What kubelet asks of the runtime, as the kernel's files will hold it: a container's originals."""
        period = resources.cpu_period or PERIOD
        found: dict[str, str] = {}
        if resources.cpu_shares and self._unified:
            found[_WEIGHT] = str(self._convert(max(resources.cpu_shares, LEAST_SHARES)))
        elif resources.cpu_shares:
            found["cpu.shares"] = str(max(resources.cpu_shares, LEAST_SHARES))
        if resources.cpu_quota is not None and self._unified:
            found["cpu.max"] = f"{resources.cpu_quota if resources.cpu_quota > 0 else 'max'} {period}"
        elif resources.cpu_quota is not None:
            found["cpu.cfs_quota_us"] = str(max(resources.cpu_quota, -1) or -1)
        return found

    async def take_back(self, running: Iterable[Running], update: Update) -> None:
        """Have the runtime say again what others want, where it was told what no plan wants any more.

        One that is refused is left to a restore, or to the container's end.
        """
        told = self._told.paths()
        for one in running:
            if one.cgroup not in told or one.container_id in self._refused:
                continue
            await asyncio.sleep(0)  # a thousand of them are 10 ms
            plan = self._plan_of(one.key)
            if plan is None:
                continue
            wanted = {setting.file for setting in plan.settings if not setting.level}
            back = self._told.to_take_back(one.cgroup, None, wanted)
            texts = {file: text for file, text in back.items() if text is not None}
            if not texts:
                continue
            try:
                await update({one.container_id: adjustment_of(texts)})
            except NriError as error:
                log.warning("not taken back from the runtime container=%s why=%r", one.cgroup, str(error))
                self._refused.add(one.container_id)
            else:
                log.info("taken back from the runtime container=%s files=%d", one.cgroup, len(texts))
                self._told.taken_back(one.cgroup, texts)

    def ended(self, path: str) -> None:
        """The container is gone."""
        self._told.ended(path)

    def ended_but(self, paths: Collection[str]) -> None:
        """No others run."""
        for path in self._told.paths().difference(paths):
            self._told.ended(path)

    def _is_untouched(self, path: str) -> bool:
        place = Place(path, _WEIGHT)
        return self._originals.record(place) is None and not self._told.knows(place)
