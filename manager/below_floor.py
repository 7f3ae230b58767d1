"""Says which pods request less than their policy's floor although they run: they were made before the policy,
or by an API server that raises nothing. Admission looks at new pods only.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from adapters.api import PODS, POLICIES, APIError, ClusterAPI, Unreachable
from adapters.kubernetes import decode
from adapters.kubernetes.events import EventWriter, Regarding
from qos import keys
from qos.cluster.lacking import Lack, lacks
from qos.cluster.objects import Pod
from qos.cluster.policy import Policy
from qos.cluster.selectors import matches

log = logging.getLogger(__name__)

REASON: Final = "RequestsBelowFloor"


class BelowFloor:
    """Lists the pods of namespaces that have policies, one namespace after another: nothing is kept of them.

    policies: by key, as the watch has them. seconds: between two rounds, by `clock`. skipped(resource) hears
    of pods that cannot be read. `counts`: by policy, how many pods lack something; what was seen last of a
    namespace that cannot be listed.
    """

    def __init__(
        self,
        api: ClusterAPI,
        policies: Mapping[str, Policy],
        events: EventWriter,
        *,
        seconds: float,
        skipped: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._policies = policies
        self._events = events
        self._seconds = seconds
        self._skipped = skipped
        self._clock = clock
        self._due = clock()
        self.counts: dict[str, int] = {}

    async def run_when_due(self) -> None:
        """Look, if the last round is long enough ago."""
        if self._clock() >= self._due:
            await self.run_once()
            self._due = self._clock() + self._seconds

    async def run_once(self) -> None:
        """Look at every namespace once."""
        policies: dict[str, list[Policy]] = defaultdict(list)
        for policy in self._policies.values():
            policies[policy.namespace].append(policy)
        self.counts = {key: count for key, count in self.counts.items() if key in self._policies}
        for namespace, own in sorted(policies.items()):
            try:
                await self._look(namespace, own)
            except (APIError, Unreachable) as error:
                log.warning("pods not listed namespace=%s error=%s", namespace, error)

    def forget(self) -> None:
        """Another one leads, and shows it; who leads again looks at once."""
        self.counts = {}
        self._due = self._clock()

    async def _look(self, namespace: str, policies: Iterable[Policy]) -> None:
        found: dict[str, tuple[int, str]] = {policy.key: (0, "") for policy in policies}
        token = ""
        while True:
            page = await self._api.list_page(PODS, namespace=namespace, continue_token=token)
            for pod in filter(None, map(self._read, page.items)):
                for policy in policies:
                    if missing := _lacking(pod, policy):
                        count, first = found[policy.key]
                        found[policy.key] = count + 1, min(filter(None, (first, _text(pod, missing))))
            token = page.continue_token
            if not token:
                break
        for policy in policies:
            self._say(policy, *found[policy.key])

    def _read(self, raw: bytes) -> Pod | None:
        try:
            return decode.pod(raw)
        except decode.DecodeError as error:
            self._skipped(PODS.plural)
            log.warning("pod not readable error=%s", error)
            return None

    def _say(self, policy: Policy, count: int, first: str) -> None:
        before = self.counts.get(policy.key, 0)
        self.counts[policy.key] = count
        if count <= before:
            return  # it gets better by itself: nobody need do anything
        pods = "1 pod requests" if count == 1 else f"{count} pods request"
        note = f"{pods} less than the floor: {first}; make them anew, or resize them in place"
        about = Regarding(keys.API_VERSION, POLICIES.kind, policy.namespace, policy.name, policy.uid)
        self._events.say(about, "Warning", REASON, note)


def _lacking(pod: Pod, policy: Policy) -> list[Lack]:
    if pod.terminal or pod.deleting or pod.mirror or not matches(policy.selector, pod.labels):
        return []
    return lacks(pod.requests, policy.floor)


def _text(pod: Pod, missing: Iterable[Lack]) -> str:
    return f"{pod.name} has {' and '.join(map(str, missing))}"
