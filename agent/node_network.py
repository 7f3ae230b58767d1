"""The node's network while the agent runs: what this kernel can do, whose packets are whose, and rounds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from agent.containers import Containers
from agent.network import drift, identity, ingress, ladder
from agent.network.bpf.pins import MOUNTED_AT, unusable_root
from agent.network.configured import Configured
from agent.network.ladder import Choices, Means
from agent.network.leaving import leave
from agent.network.netlink import Netlink, NetlinkError
from agent.network.originals import Originals
from agent.network.probes import probe
from agent.network.seen import LOCK
from agent.network.shaper import Round, Shaper
from agent.network.shaping import Shaping
from agent.network.standing import Standing
from agent.network.starting import SHAPED, TOO_EARLY, UNKEPT, Starts, is_awaited
from agent.network.traffic import pod_traffic
from agent.network.unkept import Problem
from agent.nri.instance import only_instance
from agent.nri.records import NriPod
from agent.planner import PlannedPod
from agent.state import Known, KnownPod
from qos.network.wanted import Direction, Link, PodTraffic
from qos.pods.decision import Decided
from qos.pods.traffic import Traffic, traffic

log = logging.getLogger(__name__)


class Parts(NamedTuple):
    """What the agent knows of its pods. planned: by uid; sandboxes: as the runtime tells them, by uid.

    decided: what a pod may expect that is not planned yet. cgroup_of: a pod's cgroup, "" unknown.
    """

    known: Known
    containers: Containers
    planned: Callable[[], Mapping[str, PlannedPod]]
    decided: Callable[[KnownPod], Decided]
    sandboxes: Callable[[], Mapping[str, NriPod]]
    cgroup_of: Callable[[str], str]


class NodeNetwork:
    """link: as it is known now. mounts: cgroup hierarchies, as kernel.facts has them. proc, bpf_root: where
    those are mounted. `choices`: None until this kernel was tried.

    received: called with the IFB through which the node's link receives from now on; None: what it receives
    is not shaped. known_all: whether what is not known is not there; before, nothing is touched, so that a
    restart takes no floor away.
    """

    def __init__(
        self,
        parts: Parts,
        link: Callable[[], Link | None],
        known_all: Callable[[], bool],
        run: Path,
        mounts: Mapping[str, str],
        *,
        proc: str = "/proc",
        bpf_root: str = MOUNTED_AT,
        registry: CollectorRegistry | None = None,
        configured: Configured | None = None,
        received: Callable[[int], None] | None = None,
    ) -> None:
        self._received = received
        self._ifb_problem = ""
        self._configured = configured or Configured()
        self._starts = Starts(registry or CollectorRegistry())
        self._started: dict[str, KnownPod] = {}
        """By uid, those that run and are not planned yet."""
        self._parts, self._link, self._mounts, self._proc = parts, link, mounts, proc
        self._known_all = known_all
        self._run, self._bpf_root = run, bpf_root
        self._shaper: Shaper | None = None
        self._failure = ""
        self.choices: Choices | None = None

    def changed(self) -> None:
        """Pods, what they are promised, or the link are others than before."""
        if self._shaper is not None:
            self._shaper.changed()

    async def started(self, pod: KnownPod) -> None:
        """It has its network, and no container of it runs yet: shape it now, or give up after a while."""
        self._started = {**self._still_starting(), pod.pod.uid: pod}
        if is_awaited(self._expected(self._parts.decided(pod))):
            await self._starts.wait(pod.pod.uid, lambda: self._at_once(pod.pod.uid))
        else:
            self.changed()

    def _still_starting(self) -> dict[str, KnownPod]:
        planned, sandboxes = self._parts.planned(), self._parts.sandboxes()
        return {uid: one for uid, one in self._started.items() if uid in sandboxes and uid not in planned}

    async def _at_once(self, uid: str) -> str:
        if self._shaper is None or (made := await self._shaper.at_once()) is None:
            return TOO_EARLY
        return SHAPED if uid in made.pods and not made.unkept.get(uid) else UNKEPT

    @property
    def fights(self) -> int:
        """Interfaces at which somebody undoes what is made, again and again."""
        return len(self._shaper.contested) if self._shaper else 0

    def _expected(self, decided: Decided) -> Traffic:
        return traffic(decided, self._configured.of_pod(decided.pod.uid))

    def unkept(self, decided: Decided) -> tuple[Problem, ...] | None:
        """What is not kept of a pod of which this is decided; None: no round was made for it yet."""
        uid, expected = decided.pod.uid, self._expected(decided)
        last = self.last
        pod = last.pods.get(uid) if last else None
        if last is None or pod is None or (pod.egress, pod.ingress) != (expected.egress, expected.ingress):
            return None
        return last.unkept.get(uid, ())

    @property
    def last(self) -> Round | None:
        """The last round; None: there was none."""
        return self._shaper.last if self._shaper else None

    def standing(self, link: Link | None, link_problem: str, sources: Mapping[Direction, str]) -> Standing:
        """What is known of the node's network now; of its link as Uplink has it."""
        last = self.last
        failure = self._failure or (self._shaper.failure if self._shaper else "")
        pins = unusable_root(self._bpf_root)
        return Standing(self.choices, link, link_problem, sources, pins, last, failure)

    async def run(self) -> None:
        """Until cancelled. Raises OSError where the kernel lets nobody look, or change anything."""
        try:
            await self._rounds()
        except OSError as error:
            self._failure = str(error)
            raise

    async def _rounds(self) -> None:
        choices = await asyncio.to_thread(lambda: ladder.choose(probe()))
        if choices != self.choices:
            self.choices = choices
            _tell(choices)
        async with contextlib.AsyncExitStack() as opened:
            await opened.enter_async_context(only_instance(self._run / LOCK))
            netlink = opened.enter_context(Netlink())
            listening = opened.enter_context(drift.Listening())
            shaping = Shaping(netlink, Originals(self._run), choices, self._bpf_root)
            opened.callback(shaping.close)
            shaper = Shaper(
                shaping,
                lambda: self._pods(netlink),
                lambda: self._linked(netlink, choices),
                lambda: replace(self._configured.configuration, leaf=choices.leaf, policed=choices.policed),
                known_all=self._known_all,
            )
            self._shaper, self._failure = shaper, ""

            def changed(interfaces: AbstractSet[int]) -> None:
                if shaper.is_ours(interfaces):
                    shaper.changed()

            async with asyncio.TaskGroup() as group:
                group.create_task(drift.watch(listening, (netlink.port,), changed, shaper.changed))
                group.create_task(shaper.run())

    def _linked(self, netlink: Netlink, choices: Choices) -> Link | None:
        """The link, with an IFB that is there, where what it receives is shaped."""
        link = self._link()
        if link is None or self._received is None or choices.receiving.means is not Means.IFB:
            return link
        try:
            ifb = ingress.ifb_of(netlink, link.index)
        except NetlinkError as error:
            if str(error) != self._ifb_problem:
                self._ifb_problem = str(error)
                log.warning("what the link receives is not shaped why=%r", self._ifb_problem)
            return replace(link, ifb=0)
        self._ifb_problem = ""
        if link.ifb != ifb:
            self._received(ifb)
        return replace(link, ifb=ifb)

    async def _pods(self, netlink: Netlink) -> tuple[PodTraffic, ...]:
        """Those of which something is expected, with what they are known by."""
        parts = self._parts
        planned, sandboxes = parts.planned(), dict(parts.sandboxes())
        self._started = self._still_starting()
        pods = {**self._started, **parts.known.pods}
        running = list(parts.containers.all().values())
        cgroups = {uid: parts.cgroup_of(uid) for uid in pods}
        expected = {uid: self._expected(parts.decided(pods[uid])) for uid in self._started}
        expected |= {uid: self._expected(one.decided) for uid, one in planned.items()}
        found = await asyncio.to_thread(
            identity.find,
            netlink, pods, sandboxes, running, lambda uid: cgroups[uid], self._mounts, self._proc,
        )  # fmt: skip
        by_cgroup = self.choices is not None and self.choices.sending.means is not Means.HTB_U32
        return pod_traffic(pods, expected, sandboxes, found.ends, found.cgroup_ids if by_cgroup else {})


class LeftNetwork:
    """What an agent that shaped this node's network left behind, taken away by one that does not."""

    def __init__(self, run: Path, bpf_root: str = MOUNTED_AT) -> None:
        self._run, self._bpf_root = run, bpf_root
        self._told: list[str] = []

    async def take_away(self) -> None:
        """All of it that can be; what cannot is logged once. Where nothing is left it costs a look."""
        left = await asyncio.to_thread(leave, self._run, self._bpf_root)
        if left and left != self._told:
            log.warning(
                "the network is still shaped as an agent before this one left it: %s", "; ".join(left)
            )
        self._told = left


def _tell(choices: Choices) -> None:
    log.info("network sending=%r pods=%r", choices.sending.means.value, choices.pods.means.value)
    for what, choice in (("sends", choices.sending), ("pods receive", choices.pods)):
        if choice.means is Means.NONE:
            log.warning("what %s is not shaped why=%r", what, "; ".join(choice.reasons))
