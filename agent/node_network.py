"""The node's network while the agent runs: what this kernel can do, whose packets are whose, and rounds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry

from agent.network import drift, ladder
from agent.network.bpf.pins import MOUNTED_AT, unusable_root
from agent.network.configured import Configured
from agent.network.ladder import Choices, Means
from agent.network.netlink import Netlink
from agent.network.originals import Originals
from agent.network.probes import probe
from agent.network.seen import LOCK
from agent.network.shaper import Round, Shaper
from agent.network.shaping import Shaping
from agent.network.standing import Standing
from agent.network.starting import SHAPED, TOO_EARLY, UNKEPT, Starts, is_awaited
from agent.network.unkept import Problem
from agent.network_rounds.link import ShapedLink
from agent.network_rounds.pods import NetworkPods, Parts
from agent.nri.instance import only_instance
from agent.state import KnownPod
from qos.network.wanted import Direction, Link, PodTraffic
from qos.pods.decision import Decided

log = logging.getLogger(__name__)


class NodeNetwork:
    """link: as it is known now. mounts: cgroup hierarchies, as kernel.facts has them. proc, bpf_root: where
    those are mounted. `choices`: None until this kernel was tried.

    received: as ShapedLink has it. known_all: whether what is not known is not there; before, nothing is
    touched, so that a restart takes no floor away.
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
        self._configured = configured or Configured()
        self._starts = Starts(registry or CollectorRegistry())
        self._pods = NetworkPods(parts, self._configured, mounts, proc)
        self._link = ShapedLink(link, received)
        self._known_all = known_all
        self._run, self._bpf_root = run, bpf_root
        self._shaper: Shaper | None = None
        self._netlink: Netlink | None = None
        self._failure = ""
        self.choices: Choices | None = None

    def changed(self) -> None:
        """Pods, what they are promised, or the link are others than before."""
        if self._shaper is not None:
            self._shaper.changed()

    async def started(self, pod: KnownPod) -> None:
        """It has its network, and no container of it runs yet: shape it now, or give up after a while."""
        if is_awaited(self._pods.expected(self._pods.started(pod))):
            await self._starts.wait(pod.pod.uid, lambda: self._at_once(pod.pod.uid))
        else:
            self.changed()

    async def _at_once(self, uid: str) -> str:
        if self._shaper is None or (made := await self._shaper.at_once(self._with_started)) is None:
            return TOO_EARLY
        return SHAPED if uid in made.pods and not made.unkept.get(uid) else UNKEPT

    @property
    def fights(self) -> int:
        """Interfaces at which somebody undoes what is made, again and again."""
        return len(self._shaper.contested) if self._shaper else 0

    def unkept(self, decided: Decided) -> tuple[Problem, ...] | None:
        """What is not kept of a pod of which this is decided; None: no round was made for it yet."""
        uid, expected = decided.pod.uid, self._pods.expected(decided)
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

    @property
    def _by_cgroup(self) -> bool:
        return self.choices is not None and self.choices.sending.means is not Means.HTB_U32

    async def _with_started(self) -> tuple[PodTraffic, ...]:
        assert self._netlink is not None  # a shaper is there
        return await self._pods.with_started(self._netlink, by_cgroup=self._by_cgroup)

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
                lambda: self._pods.all(netlink, by_cgroup=self._by_cgroup),
                lambda: self._link.now(netlink, choices),
                lambda: replace(self._configured.configuration, leaf=choices.leaf, policed=choices.policed),
                known_all=self._known_all,
            )
            self._shaper, self._netlink, self._failure = shaper, netlink, ""

            def changed(interfaces: AbstractSet[int]) -> None:
                if shaper.is_ours(interfaces):
                    shaper.changed()

            async with asyncio.TaskGroup() as group:
                group.create_task(drift.watch(listening, (netlink.port,), changed, shaper.changed))
                group.create_task(shaper.run())


def _tell(choices: Choices) -> None:
    log.info("network sending=%r pods=%r", choices.sending.means.value, choices.pods.means.value)
    for what, choice in (("sends", choices.sending), ("pods receive", choices.pods)):
        if choice.means is Means.NONE:
            log.warning("what %s is not shaped why=%r", what, "; ".join(choice.reasons))
