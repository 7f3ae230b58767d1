"""What the leader writes into the status of PodGroups: upstream's phase and counts, when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from adapters.api import POD_GROUPS, APIError, ClusterAPI, NotFound, Unreachable
from adapters.kubernetes.kept_status import patch_status
from adapters.pace import Pace
from extender.gang_book import GangBook
from extender.metrics import Metrics
from qos.cluster.gangs import Muster

log = logging.getLogger(__name__)

PER_SECOND: Final = 10


class GangStatus:
    """At most ten a second. `starting`: whether a gang has places that are not all taken."""

    def __init__(
        self,
        api: ClusterAPI,
        book: GangBook,
        metrics: Metrics,
        starting: Callable[[str], bool],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._api, self._book, self._metrics, self._starting = api, book, metrics, starting
        self._pace = Pace(PER_SECOND, PER_SECOND, clock)
        self._written: dict[str, tuple[str, dict[str, Any]]] = {}

    async def run_once(self) -> None:
        """Write those that changed, as the rate allows; what was written is looked at once more."""
        for key in list(self._book.unwritten):
            group = self._book.groups.get(key)
            if group is None:
                self._forget(key)
                continue
            said = group.uid, self._status(key)
            if said == self._written.get(key):
                self._book.unwritten.pop(key, None)
                continue
            if not self._pace.take():
                return
            self._book.unwritten[key] = self._book.unwritten.pop(key, None)  # behind all others from now on
            try:
                await patch_status(self._api, POD_GROUPS, group.namespace, group.name, *said)
            except NotFound:
                self._forget(key)
                continue
            except (APIError, Unreachable) as error:
                self._metrics.gang("unwritten")
                log.info("status of a PodGroup not written gang=%s error=%s", key, error)
                if isinstance(error, Unreachable):
                    return
                continue  # it is the object's fault
            self._written[key] = said

    def _forget(self, key: str) -> None:
        self._written.pop(key, None)
        self._book.unwritten.pop(key, None)

    def _status(self, key: str) -> dict[str, Any]:
        pods = [one.pod for one in self._book.members(key).values() if not one.pod.deleting]
        counts = {
            "scheduled": sum(bool(pod.node_name) for pod in pods),
            "running": sum(pod.phase == "Running" for pod in pods),
            "succeeded": sum(pod.phase == "Succeeded" for pod in pods),
            "failed": sum(pod.phase == "Failed" for pod in pods),
        }
        return {"phase": _phase(self._book.muster(key), counts, self._starting(key)), **counts}


def _phase(there: Muster, counts: dict[str, int], starting: bool) -> str:
    """By upstream's words: PreScheduling is for pods that wait, Scheduling for those that have places."""
    least = there.rules.least
    if counts["succeeded"] >= least:
        return "Finished"
    if counts["running"] + counts["succeeded"] >= least:
        return "Running"
    if counts["scheduled"] >= least:
        return "Scheduled"
    if starting:
        return "Scheduling"
    if counts["failed"] and not there.gated:
        return "Failed"
    return "PreScheduling" if there.gated and not there.absent else "Pending"
