"""Runs a scenario: sets up, takes the steps, waits for what is expected, asks the checker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from adapters.api import APIError, Resource, Unreachable
from lab import refusals, scheduler_config
from lab.checker import Checker, Terms, Verdict, replay
from lab.recorder import Recorder, RecordingLostError
from lab.scenario.actions import Actions, StepError
from lab.scenario.checks import Check
from lab.scenario.expectations import Answer, Facts, in_words, judge
from lab.scenario.models import Extender, Run, Scenario
from lab.scenario.observation import Observation
from lab.scenario.progress import Progress
from lab.scenario.results import (
    Outcome,
    RunResult,
    ScenarioResult,
    always,
    bound_requests,
    compare,
    workload_result,
)
from lab.scenario.steps import Step, Wait
from lab.scenario.targets import Target, TargetError, schedulers_of
from lab.situation import Situation
from qos.cluster.objects import NodePredicate, Toleration

Targets = Callable[[Run], AbstractAsyncContextManager[Target]]

_LOOK_SECONDS = 0.05
"""Seconds between two judgements of the checks, at the least."""
_SETTLE_SECONDS = 3.0
"""Seconds for which floors may lapse after the extender is back: decisions taken without it are still under
way.
"""
_SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


async def run_scenario(
    scenario: Scenario, file: Path, targets: Targets, progress: Progress
) -> ScenarioResult:
    """All runs of a scenario, one after the other. TargetError, LabError: it could not be tried."""
    results = []
    for run in scenario.all_runs():
        progress.step(f"{scenario.name}: {run.says or run.name}" if scenario.runs else f"{scenario.name}")
        async with targets(run) as target:
            results.append(await _Run(scenario, run, target, progress, _schedulers(scenario, file)).result())
    comparisons = tuple(compare(wanted, results) for wanted in scenario.comparisons)
    return ScenarioResult(scenario.name, scenario.description, str(file), tuple(results), comparisons)


def _schedulers(scenario: Scenario, file: Path) -> frozenset[str]:
    """Names under which pods are scheduled through the extender."""
    document = scheduler_config.load(file.parent / scenario.cluster.scheduler_config)
    return schedulers_of(document)


@dataclass(slots=True)
class _Run:
    scenario: Scenario
    run: Run
    target: Target
    progress: Progress
    schedulers: frozenset[str]
    outcomes: list[Outcome] = field(default_factory=list)
    _observation: Observation = field(init=False)
    _recorder: Recorder = field(init=False)
    _actions: Actions = field(init=False)

    @property
    def _extender(self) -> Extender:
        return self.run.extender or self.scenario.cluster.extender

    async def result(self) -> RunResult:
        """The whole run."""
        began = time.monotonic()
        self._observation = Observation(self.target.scope.namespace)
        self._actions = Actions(self.scenario, self.target, self._observation)
        await self._actions.define()
        reserving = bool(self.scenario.reservations)
        self._recorder = Recorder(self.target.api, self._observation, reservations=reserving)
        recording = asyncio.create_task(self._recorder.run())
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait([recording, work], return_when=asyncio.FIRST_COMPLETED)
            if recording.done() and not work.done():
                self.outcomes.append(
                    Outcome("the lab sees every change", False, _first(recording.exception()))
                )
            else:
                await work
        finally:
            for task in (work, recording):
                task.cancel()
            await asyncio.gather(work, recording, return_exceptions=True)
            await self._actions.cancel()
        return self._result(time.monotonic() - began)

    def _result(self, seconds: float) -> RunResult:
        verdict = self._verdict()
        self.outcomes += [
            self._judged(c, Facts(self._observation, verdict=verdict)) for c in self._final() if c.floors
        ]
        self.outcomes += always(verdict, self.scenario.undecided_at_most_percent)
        seen = self._observation
        return RunResult(
            name=self.run.name,
            says=self.run.says or "",
            seconds=seconds,
            workloads=tuple(workload_result(name, seen.workload(name)) for name in seen.workloads()),
            policies={
                name: dict(status.get("slots") or {}) for name, status in sorted(seen.policies.items())
            },
            bound_requests=bound_requests(seen),
            evictions=seen.evictions(),
            verdict=verdict,
            outcomes=tuple(self.outcomes),
        )

    def _verdict(self) -> Verdict:
        return self._replay().verdict()

    def _replay(self) -> Checker:
        """The checker, having seen all that was recorded until now."""
        spans = [(start, end + _SETTLE_SECONDS) for start, end in self.target.unguarded]
        if self._extender.mode == "Observe":
            spans = [(0.0, float("inf"))]
        terms = Terms(
            cap_percent=self._extender.cap_percent, schedulers=self.schedulers, unguarded=tuple(spans)
        )
        return replay(self._recorder.changes, terms)

    async def _work(self) -> None:
        await self._recorder.synced.wait()
        try:
            await self._set_up()
            in_time = await self._take_steps()
            await self._actions.finish()
        except (StepError, TargetError, APIError, Unreachable) as error:
            self.outcomes.append(Outcome("every step can be taken", False, str(error)))
            in_time = False
        await self._expect_all(patient=in_time)

    async def _set_up(self) -> None:
        policies = [p for p in self.scenario.policies if self._exists(p.called)]
        later = {name for step in self.scenario.steps for name in step.creates_policies}
        self.progress.step(f"{sum(g.count for g in self.scenario.nodes)} nodes, {len(policies)} policies")
        await self._actions.set_up([p for p in policies if p.called not in later])
        await self._nodes_ready()
        await self._service_account()

    def _exists(self, policy: str) -> bool:
        return self.run.policies is None or policy in self.run.policies

    async def _service_account(self) -> None:
        """Pods are refused until their namespace has its default service account."""
        deadline = time.monotonic() + 30
        while True:
            try:
                await self.target.api.get(_SERVICE_ACCOUNTS, self.target.scope.namespace, "default")
            except APIError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return

    async def _take_steps(self) -> bool:
        """All steps in order; False when one was not in time, and the rest was left out."""
        for number, step in enumerate(self.scenario.steps):
            self.progress.step(step.says or describe(step))
            if not await self._take(step, number):
                return False
        return True

    async def _take(self, step: Step, number: int) -> bool:
        action = step.action
        if action == "pause":
            await asyncio.sleep(step.pause or 0.0)
        elif step.delay_answers is not None:
            self.target.delay_answers(step.delay_answers)
        elif step.expect is not None:
            self.outcomes += [await self._judge(check) for check in step.expect]
        elif step.wait is not None:
            return await self._wait(step.wait, step.says or f"step {number + 1}")
        elif step.remember is not None:
            self._observation.remember(step.remember)
        elif step.apply_policies is not None:
            wanted = [p for p in self.scenario.policies if p.called in step.apply_policies]
            await self._actions.apply_policies(p for p in wanted if self._exists(p.called))
        else:
            await getattr(self._actions, action)(getattr(step, action))
            if action == "add_nodes":
                await self._nodes_ready()
        return True

    async def _wait(self, wait: Wait, says: str) -> bool:
        outcomes = await self._until_true([c for c in wait.until if self._applies(c)], wait.within)
        if all(outcome.met for outcome in outcomes):
            return True
        missed = "; ".join(f"{o.says}: {o.saw}" for o in outcomes if not o.met)
        self.outcomes.append(Outcome(f"{says}: within {wait.within:g} s", False, missed))
        return False

    def _applies(self, check: Check) -> bool:
        """A variant without a policy does not wait for that policy."""
        return check.policy is None or self._exists(check.policy.name)

    def _final(self) -> list[Check]:
        return [c for c in (*self.scenario.expectations, *self.run.expectations) if self._applies(c)]

    async def _expect_all(self, *, patient: bool) -> None:
        began = time.monotonic()
        for wanted in (*self.scenario.expectations, *self.run.expectations):
            if wanted.floors or not self._applies(wanted):
                continue
            self.progress.step(f"expect {in_words(wanted)}")
            left = max(0.0, began + wanted.within - time.monotonic()) if patient else 0.0
            outcome = (await self._until_true([wanted], left))[0]
            if outcome.met and wanted.stays:
                outcome = await self._stays(wanted, wanted.stays)
            self.outcomes.append(outcome)

    async def _stays(self, check: Check, seconds: float) -> Outcome:
        deadline = time.monotonic() + seconds
        while True:
            outcome = await self._judge(check)
            if not outcome.met or time.monotonic() >= deadline:
                return outcome
            await self._change(min(1.0, max(0.0, deadline - time.monotonic())))

    async def _until_true(self, checks: Sequence[Check], within: float) -> list[Outcome]:
        """Judge until all are true at once, or time is over."""
        deadline = time.monotonic() + within
        while True:
            outcomes = [await self._judge(check) for check in checks]
            missed = [outcome for outcome in outcomes if not outcome.met]
            if not missed or time.monotonic() >= deadline:
                return outcomes
            self.progress.waiting(f"waiting for {missed[0].says}: {missed[0].saw}")
            await self._change(min(1.0, max(0.0, deadline - time.monotonic())))

    async def _nodes_ready(self) -> None:
        within = 60.0 + len(self._observation.nodes) / 5
        deadline = time.monotonic() + within
        while not self._actions.ready():
            if time.monotonic() > deadline:
                raise StepError(f"the nodes are not Ready after {within:g} s")
            self.progress.waiting("waiting until the nodes are Ready")
            await self._change(1.0)

    async def _change(self, seconds: float) -> None:
        """Until something is seen, but not longer; and never so short that judging is all we do."""
        self._observation.changed.clear()
        await asyncio.sleep(min(_LOOK_SECONDS, seconds))
        try:
            await asyncio.wait_for(self._observation.changed.wait(), seconds)
        except TimeoutError:
            return

    async def _judge(self, check: Check) -> Outcome:
        refused = {}
        if check.refused_although_they_fit:
            holds = await self._holds()
            refused = {name: self._plans(name, holds) for name in check.refused_although_they_fit}
        promised = {}
        if check.policy and check.policy.promised is not None:
            promised = self._replay().promised(time.time())
        return self._judged(check, Facts(self._observation, refused, promised))

    def _judged(self, check: Check, facts: Facts) -> Outcome:
        answer: Answer = judge(check, facts)
        return Outcome(in_words(check), answer.true, answer.saw)

    async def _holds(self) -> Mapping[str, Mapping[str, int]]:
        asked = await self.target.holds()
        if asked:
            return asked
        return {
            f"{self._observation.namespace}/{name}": {
                h["nodeName"]: h["slots"] for h in status.get("holds") or ()
            }
            for name, status in self._observation.policies.items()
        }

    def _plans(self, workload: str, holds: Mapping[str, Mapping[str, int]]) -> list[str]:
        situation = Situation(self._recorder.changes)
        where = self._where(workload)
        waiting = {
            tuple(sorted(r.pod.requests.items())): r.pod
            for r in self._observation.workload(workload)
            if r.waits
        }
        plans = (refusals.plan_for(situation, holds, pod, where) for pod in waiting.values())
        return [plan for plan in plans if plan]

    def _where(self, workload: str) -> NodePredicate:
        wanted = next(s.create for s in self.scenario.steps if s.create and s.create.name == workload)
        selector = self.target.scope.node_selector(wanted.node_selector)
        tolerations = tuple(
            Toleration(t.key or "", t.operator, t.value or "", t.effect or "") for t in wanted.tolerations
        )
        return NodePredicate(tuple(sorted(selector.items())), None, tolerations)


def describe(step: Step) -> str:
    """A step in words, where the file has none."""
    value = getattr(step, step.action)
    name = step.action.replace("_", " ")
    if isinstance(value, Wait):
        return f"wait for {'; '.join(in_words(check) for check in value.until)}"
    if step.expect is not None:
        return f"expect {'; '.join(in_words(check) for check in step.expect)}"
    if hasattr(value, "model_dump"):
        fields = value.model_dump(exclude_defaults=True, by_alias=True, mode="json")
        return f"{name} {', '.join(f'{k} {v}' for k, v in fields.items())}"
    return f"{name} {value}"


def _first(error: BaseException | None) -> str:
    """The message of an error out of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


__all__ = ["RecordingLostError", "Targets", "describe", "run_scenario"]
