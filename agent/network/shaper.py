"""Keeps the node's network as its pods need it: plans when something changed, and has the kernel made so."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, Protocol

from adapters.loops import Changes
from agent.network.classifier import Ports
from agent.network.contested import Contested, GivenUp
from agent.network.shaping import Shaped
from agent.network.unkept import Problem, unkept
from qos.network.bands import Configuration
from qos.network.planning import plan
from qos.network.recovered import Left, recovered
from qos.network.wanted import Link, PodTraffic, Wanted

CHECK_SECONDS: Final = 30.0
"""TCX tells nobody that a program was taken off; who asks, finds it."""
GATHER_SECONDS: Final = 0.05
"""Changes seldom come alone."""
SHARE: Final = 10
"""From a round to the next nine times what it took go by: 250 pods that come and go cost a tenth of a CPU."""
LONGEST_REST: Final = 1.0
RETRY_SECONDS: Final = 5.0

Pods = Callable[[], Awaitable[tuple[PodTraffic, ...]]]

log = logging.getLogger(__name__)


class Kernel(Protocol):
    """agent.network.shaping.Shaping."""

    def settle(self, wanted: Wanted, ports: Ports, given_up: GivenUp, *, hasty: bool) -> Shaped:
        """Make it so, but what is given up."""
        ...

    def left(self) -> Left:
        """What is there of an agent before."""
        ...


class Round(NamedTuple):
    """The last round: what was wanted, and what came of it. seconds: how long it took.

    pods: by uid, those that it was planned for; link: the node's as it was then; unkept: by uid, of those
    of which something is not kept.
    """

    wanted: Wanted
    shaped: Shaped
    seconds: float
    pods: Mapping[str, PodTraffic]
    link: Link | None
    configuration: Configuration
    unkept: Mapping[str, tuple[Problem, ...]]


class Shaper:
    """pods: those that are to be shaped now. link: the node's, None: not known, then
    limits alone are kept, at pods' veths.

    known_all: whether pods that are not known are not there; no round is made before.
    configuration: the administrator's as it is now, with the leaf that this kernel has. `last`: None before
    the first round; `failure`: why the one after it could not be made, "" where it could.
    """

    def __init__(
        self,
        kernel: Kernel,
        pods: Pods,
        link: Callable[[], Link | None],
        configuration: Callable[[], Configuration],
        *,
        known_all: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._kernel, self._pods, self._link = kernel, pods, link
        self._configuration, self._known_all = configuration, known_all
        self._clock, self._sleep = clock, sleep
        self._due = Changes(CHECK_SECONDS)
        self._due.note()
        self._one_round = asyncio.Lock()
        self._coming: asyncio.Future[Round] | None = None
        self._looks: Pods | None = None
        """How the pods of the coming round are looked up; None: as those of a whole one."""
        self.contested = Contested()
        self._touched: frozenset[int] = frozenset()
        self._ended = float("-inf")
        self.last: Round | None = None
        self.failure = ""

    def changed(self) -> None:
        """A pod came, went, or is promised something else; the link changed; or somebody else wrote."""
        self._due.note()

    def is_ours(self, interfaces: AbstractSet[int]) -> bool:
        """Whether something was made at one of these, or is being made."""
        return not self._touched.isdisjoint(interfaces)

    async def run(self) -> None:
        """Rounds, until cancelled. What raises is logged, and tried again."""
        while True:
            try:
                await self.run_once()
            except Exception:
                log.exception("the node's network was not settled")
                await self._sleep(RETRY_SECONDS)

    async def run_once(self) -> None:
        """Wait until a round is due, and make it. What raises is due again."""
        await self._due.wait()
        rested = self._clock() - self._ended
        rest = (SHARE - 1) * self.last.seconds if self.last else 0.0
        await self._sleep(max(GATHER_SECONDS, min(rest, LONGEST_REST) - rested))
        self._due.clear()
        if self._known_all():  # who knows it says that something changed
            await self._next_round()

    async def at_once(self, pods: Pods | None = None) -> Round | None:
        """A round for what is there now, once the one under way has ended; None: none may be made yet.

        All that ask before it begins share it. pods: another look at them than that of whole rounds; it
        counts where nobody asks for a whole one. Raises what a round raises, and it is due again then.
        """
        if not self._known_all():
            self._due.note()
            return None
        return await self._next_round(pods)

    def _next_round(self, pods: Pods | None = None) -> asyncio.Future[Round]:
        """The one that has not begun: it sees all that is there now."""
        if self._coming is None:
            self._coming, self._looks = asyncio.ensure_future(self._make_round()), pods
        elif pods is None:
            self._looks = None
        return self._coming

    async def _make_round(self) -> Round:
        async with self._one_round:
            pods = self._looks
            self._coming = None  # what changes from now on this one may not see
            try:
                made = await self.settle(pods)
            except Exception as error:
                self.failure = str(error) or type(error).__name__
                self._due.note()
                raise
            else:
                self.failure = ""
                return made
            finally:
                self._ended = self._clock()

    async def settle(self, looked_up: Pods | None = None) -> Round:
        """One round; the kernel's part in a thread. looked_up: as at_once has it."""
        began = self._clock()
        pods, link = await (looked_up or self._pods)(), self._link()
        before = self.last.wanted if self.last else await self._recovered(pods, link)
        configuration = self._configuration()
        wanted = plan([link] if link else [], pods, configuration, before)
        ports = Ports(
            frozenset({link.index} if link else ()),
            frozenset(pod.interface for pod in pods if pod.interface),
            {link.index: link.ifb} if link and link.ifb else {},
        )
        self._touched |= _interfaces(wanted, ports)  # others may write while we do
        given_up = self.contested.given_up(began)
        shaped = await asyncio.to_thread(
            self._kernel.settle, wanted, ports, given_up, hasty=looked_up is not None
        )
        self.contested.keep(_interfaces(wanted, ports))
        made = shaped.made - given_up.qdiscs - given_up.filters
        self.contested.made(made, before, wanted, self._clock())
        self.contested.hung_again(shaped.hung_again, self._clock())
        self._touched = _interfaces(wanted, ports)
        problems = unkept(pods, wanted, shaped, link)
        self._tell(problems)
        seconds, by_uid = self._clock() - began, {pod.uid: pod for pod in pods}
        self.last = Round(wanted, shaped, seconds, by_uid, link, configuration, problems)
        return self.last

    async def _recovered(self, pods: tuple[PodTraffic, ...], link: Link | None) -> Wanted:
        left = await asyncio.to_thread(self._kernel.left)
        return recovered(left, pods, link.index if link else 0)

    def _tell(self, problems: Mapping[str, tuple[Problem, ...]]) -> None:
        before = self.last.unkept if self.last else {}
        for uid, all_of_it in problems.items():
            if before.get(uid) != all_of_it:
                log.warning("network of pod not as promised uid=%s why=%r", uid, str(all_of_it[0]))


def _interfaces(wanted: Wanted, ports: Ports) -> frozenset[int]:
    trees, buckets = wanted.trees, wanted.buckets
    return ports.pods.union((tree.interface for tree in trees), (bucket.interface for bucket in buckets))
