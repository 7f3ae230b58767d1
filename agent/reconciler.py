"""Brings the kernel to what the policies say: all pods in a pass, one container as it starts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Final

from adapters.kubernetes.reflector import Turn
from adapters.loops import Changes
from agent.absence import Absences
from agent.containers import Containers
from agent.enforcement.enforcer import Enforcer, Report
from agent.enforcement.originals import Originals
from agent.enforcement.places import Place, Wanted
from agent.observer import Observer
from agent.planner import PlannedPod, Planner
from agent.state import ContainerKey, Known, Running
from agent.sync.hook_files import HookFiles
from kernel.change import RAISE
from kernel.membership import pod_uid
from qos.plan.container_plan import ContainerPlan
from qos.plan.settings import Plan

log = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.2
"""Changes seldom come alone: a rollout, a list, the containers of a pod."""
LONGEST_SECONDS: Final = 300.0
"""Between two passes: cgroups that are no pods' come and go without a word."""
SHARE: Final = 30
"""From a pass to the next 29 times what it took of a CPU go by: passes take a thirtieth of one at most."""
LONGEST_REST: Final = 9.0
FOLLOW_SECONDS: Final = 30.0
"""After a pass in which plans depended on what pods use of their memory."""
FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 60.0
"""Before what failed, or was refused, is tried once more."""
_NOTHING: Final = Plan(())
_uid_of = lru_cache(maxsize=8192)(pod_uid)


class Reconciler:
    """Plans, applies, remembers. Everything on the loop; passes give the loop up every half millisecond.

    enforcer: or an observer in its place, which only looks. files: of the hook; None: they are left alone.
    complete: whether all pods have been reported, so that what is not known does not exist: before that
    nothing is taken back. listed: whether the runtime has reported all containers, so that one that is not
    known does not run. `planned`: the newest plan of each pod by uid. `passes`: how many were completed;
    `seconds`: of the last. `changes`: another number whenever plans or containers changed.
    """

    def __init__(
        self,
        known: Known,
        containers: Containers,
        planner: Planner,
        enforcer: Enforcer | Observer,
        originals: Originals,
        files: HookFiles | None,
        complete: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        listed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._known = known
        self._containers = containers
        self._planner = planner
        self._enforcer = enforcer
        self._originals = originals
        self._files = files
        self._complete, self._listed = complete, listed
        self._clock, self._sleep = clock, sleep
        self._due = Changes(LONGEST_SECONDS)
        self._one_pass = asyncio.Lock()
        self.planned: dict[str, PlannedPod] = {}
        self._newer: dict[str, PlannedPod] = {}
        """Planned alone since the pass under way began: the runtime has told of what that pass does not know.
        """
        self.passes = 0
        self.changes = 0
        self.seconds = self.first_seconds = 0.0
        self._work, self._ended = 0.0, -LONGEST_REST
        self._failures = self._refusals = 0
        self._failed = ""
        self._broken: dict[ContainerKey, str] = {}
        self._absences = Absences()
        self._unseen: set[str] = set()
        """What is kept for containers in VMs, as the enforcer has it."""
        self._again: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """Something that plans are made from is no longer what it was: a pass is due."""
        self._due.note()

    async def run_once(self) -> None:
        """Wait until a pass is due, or for long enough that what is not ours may have changed; make it."""
        await self._due.wait()
        rested = self._clock() - self._ended
        rest = max(GATHER_SECONDS, min((SHARE - 1) * self._work, LONGEST_REST) - rested)
        await self._sleep(max(rest, _pause(self._failures)))
        self._due.clear()
        try:
            await self.reconcile()
        except Exception:
            self._due.note()  # what was due still is
            raise

    async def reconcile(self) -> None:
        """Plan all pods together, apply what differs, tell the hook. One pass at a time."""
        async with self._one_pass:
            before = time.process_time()
            try:
                await self._pass()
            except Exception as error:
                self._failures += 1
                self._failed = f"the last pass over the pods failed: {error!r}"
                raise
            finally:
                self._work, self._ended = time.process_time() - before, self._clock()
            self._failures, self._failed = 0, ""

    def problem(self) -> str:
        """Why the kernel may not have what the policies say, "" when passes come to their end."""
        return self._failed

    async def _pass(self) -> None:
        began, turn = self._clock(), Turn(self._clock)
        complete = self._complete()  # before anything is planned: what is known later is not in these plans
        await self._plan(turn)
        for uid in list(self.planned):  # pods come and go while others have their turn
            for container in self.planned[uid].containers if uid in self.planned else ():
                self._apply(ContainerKey(uid, container.name), container, take_back=complete)
                await turn.breathe()
        await self._apply_to_unseen(turn, take_back=complete)
        if complete:
            await self._release(turn)
        await turn.yielded()
        unsettled, awaited = self._unsettled()
        wanted = self._node_wanted()
        self._enforcer.keep_node(wanted)
        shared = self._enforcer.shared(take_back=complete, awaited=awaited)
        if any(one.written and one.key.name == place.path for place in wanted for one in shared):
            self.changed()  # floors that were short may grow now
        await turn.yielded()
        if self._files is not None:
            self._files.keep_opt_outs(self._known.opt_outs)
            await self._files.keep(list(self.planned.values()))
        if complete:
            for _ in self._enforcer.sweep(unsettled, awaited):
                await turn.breathe()
            self._enforcer.keep_notes(self._known.pods.keys())
        self._try_again(self._enforcer.refused() or any(not (one.applied or one.gone) for one in shared))
        self._passed(self._clock() - began)

    async def _plan(self, turn: Turn) -> None:
        self._containers.found(self._known.pods)
        planned: dict[str, PlannedPod] = {}
        self._newer.clear()
        for _ in self._planner.prepare(self._known, self._containers.all(), self._originals):
            await turn.breathe()
        for one in self._planner.plans():
            planned[one.uid] = one
            await turn.breathe()
        self.planned = planned | self._newer
        if self._newer:
            self.changed()
        self.changes += 1

    async def _apply_to_unseen(self, turn: Turn, *, take_back: bool) -> None:
        """Pods in VMs get what is planned for their own cgroup and those above it."""
        unseen = self._containers.unseen
        for key, running in unseen.items():
            container = self._planned(key)
            if container is not None:
                self._enforce(running, _above_container(container.plan), take_back=take_back)
            await turn.breathe()
        gone = self._unseen - {one.container_id for one in unseen.values()}
        for container_id in gone if take_back else ():
            kept = self._enforcer.kept(container_id)
            if kept is None or self._enforcer.apply(kept.running, _NOTHING).applied:
                self._enforcer.release(container_id)
                self._unseen.discard(container_id)
        self._unseen |= {one.container_id for one in unseen.values()}

    def _node_wanted(self) -> dict[Place, Wanted]:
        found = self._planner.node_weight()
        return {Place(found[0], found[1]): Wanted(RAISE, str(found[2]))} if found else {}

    def _passed(self, seconds: float) -> None:
        self.seconds = seconds
        self._broken = {key: why for key, why in self._broken.items() if key.pod_uid in self._known.pods}
        self.passes += 1
        if self.passes == 1:
            self.first_seconds = seconds
            pods, containers = len(self.planned), len(self._containers)
            log.info("first pass pods=%d containers=%d seconds=%.3f", pods, containers, seconds)

    def _try_again(self, refused: bool) -> None:
        """What was refused may be so for a moment only: the lock was held, a file was busy. Likewise who is
        waited for.
        """
        if self._again is not None:
            self._again.cancel()
        self._refusals = self._refusals + 1 if refused else 0
        pauses = [_pause(self._refusals, 1.0), FOLLOW_SECONDS if self._planner.follows_use else 0.0]
        pauses.append(self._absences.left(self._clock()) or 0.0)
        pause = min(filter(None, pauses), default=0.0)
        self._again = asyncio.get_running_loop().call_later(pause, self.changed) if pause else None

    async def _release(self, turn: Turn) -> None:
        """Containers of pods that are no more, though their cgroups may be: they have what others want.

        Plans of the others take them for that, too.
        """
        for container_id in self._enforcer.ids():
            kept = self._enforcer.kept(container_id)
            known = self._known.pods.get(kept.running.key.pod_uid) if kept else None
            if kept is None or (known is not None and not known.finished):
                continue
            if self._enforcer.apply(kept.running, _NOTHING).applied:
                self._enforcer.forget(container_id)
            await turn.breathe()

    def _unsettled(self) -> tuple[set[str], set[str]]:
        """Uids of pods that may have containers whose plans were not tried; what was refused is not here.

        And the cgroups of those that are waited for, "" where they have none yet: one that never starts, or
        always crashes, must not keep what is shared from being lowered.
        """
        there = {_uid_of(path) for path in self._originals.paths()}
        there.update(key.pod_uid for key in self._containers.all())
        listed, pods = self._listed(), self._known.pods
        alive = [uid for uid in there if uid in pods and not pods[uid].finished]
        lacking = {uid: keys for uid in alive if (keys := self._lacking(uid, listed))}
        absent = {key for keys in lacking.values() for key in keys if self._is_absent(key)}
        now = self._clock()
        self._absences.see(absent, now)
        over = {key for key in absent if self._absences.is_over(key, now)}
        awaited = {uid for uid, keys in lacking.items() if not over.issuperset(keys)}
        return set(lacking), {self._planner.cgroup_of(uid) for uid in awaited}

    def _lacking(self, uid: str, listed: bool) -> list[ContainerKey]:
        """The containers of a pod whose plans were not tried; one without a name where it has none."""
        pod = self.planned.get(uid)
        if pod is None:
            return [ContainerKey(uid, "")]
        lacking = []
        for one in pod.containers:
            key = ContainerKey(uid, one.name)
            if key in self._containers.unseen:
                settled = self._enforcer.kept(self._containers.unseen[key].container_id) is not None
            elif key in self._containers:
                settled = self._enforcer.kept(self._containers[key].container_id) is not None
            else:
                settled = listed
            if key in self._broken or (one.plan.settings and not settled):
                lacking.append(key)
        return lacking

    def _is_absent(self, key: ContainerKey) -> bool:
        """Whether no status names it as running, where no runtime reports it either."""
        containers = self._containers
        there = key in containers or key in containers.unseen or key in containers.missing
        return bool(key.name) and not there and key not in self._broken

    def plan_now(self, uid: str) -> Mapping[str, ContainerPlan]:
        """The plans of one pod's containers, beside all others as they are; {} for an unknown pod.

        Where it cannot be planned now its last plan holds.
        """
        if uid not in self._known.pods:
            return {}
        try:
            one = self._planner.plan_pod(uid, self._known, self._containers.all(), self._originals)
        except Exception as error:
            self._stumbled(ContainerKey(uid, ""), error)
            last = self.planned.get(uid)
            return {container.name: container for container in last.containers} if last else {}
        self._broken.pop(ContainerKey(uid, ""), None)
        self.planned[uid] = self._newer[uid] = one
        self.changes += 1
        return {container.name: container for container in one.containers}

    def apply_now(self, running: Running) -> Report | None:
        """Plan one pod and apply what its one container gets. None: nothing is planned for it."""
        container = self.plan_now(running.key.pod_uid).get(running.key.name)
        return self._apply(running.key, container, take_back=self._complete()) if container else None

    def apply_planned(self, running: Running) -> Report | None:
        """Apply what was planned for a container when it was created, a moment ago."""
        container = self._planned(running.key)
        if container is None:
            return self.apply_now(running)
        return self._apply(running.key, container, take_back=self._complete())

    def plan_of(self, key: ContainerKey) -> Plan | None:
        """The newest plan of a container; None: there is none."""
        container = self._planned(key)
        return container.plan if container else None

    def _planned(self, key: ContainerKey) -> ContainerPlan | None:
        pod = self.planned.get(key.pod_uid)
        return next((one for one in pod.containers if one.name == key.name), None) if pod else None

    def cgroup_changed(self, path: str) -> None:
        """A cgroup is not what it was when it was read; "": not known which, nothing is done."""
        if path:
            self._planner.changed(path)

    def ended(self, running: Running) -> None:
        """A container is gone; what it was given went with its cgroup."""
        self._enforcer.forget(running.container_id)
        self.changes += 1
        self.changed()

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self.planned.pop(uid, None)
        self._newer.pop(uid, None)
        self._planner.forget(uid)

    def _apply(self, key: ContainerKey, container: ContainerPlan, *, take_back: bool) -> Report | None:
        """An exception that is a bug of ours, no refusal, stops no other container's settings."""
        if key not in self._containers:
            return None
        report = self._enforce(self._containers[key], container.plan, take_back=take_back)
        if report is not None and report.gone:
            self._containers.gone(self._containers[key])
        return report

    def _enforce(self, running: Running, plan: Plan, *, take_back: bool) -> Report | None:
        try:
            report = self._enforcer.apply(running, plan, take_back=take_back)
        except Exception as error:
            self._stumbled(running.key, error)
            return None
        self._broken.pop(running.key, None)
        return report

    def _stumbled(self, key: ContainerKey, error: Exception) -> None:
        """Log it once, until it goes well; for a whole pod there is no container's name."""
        if self._broken.get(key) != repr(error):
            log.error("not kept pod=%s container=%s why=%r", *key, error, exc_info=error)
        self._broken[key] = repr(error)


def _above_container(plan: Plan) -> Plan:
    """For a container without a cgroup: what its pod's gets, which is level 0 then, and those above."""
    return Plan(tuple(one._replace(level=one.level - 1) for one in plan.settings if one.level > 0))


def _pause(times: int, first: float = FIRST_PAUSE) -> float:
    """Seconds before one more try, after this many that went wrong; 0: none did."""
    return min(first * 2 ** min(times - 1, 10), LONGEST_PAUSE) if times else 0.0
