"""Scale targets of any kind: found, watched and read once a policy names them, and why not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from adapters.api import JOBS, APIError, Resource
from adapters.memory import MemoryAPI
from extender.catalog import Catalog
from extender.owners import Owners
from extender.scale_targets import LOOKUP_SECONDS, ScaleTargets
from qos.cluster.objects import Demand, Requirement, Selector
from qos.cluster.policy import Policy, ScaleTarget
from qos.cluster.precedence import Problem

ROLLOUTS = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout")
ROLLOUT = ScaleTarget("argoproj.io/v1alpha1", "Rollout", "checkout")
TEMPLATE = {"metadata": {"labels": {"app": "checkout"}}, "spec": {"containers": [{"name": "c"}]}}


class Desk:
    """A catalog with one policy, and what follows its scale target. Time passes as it is waited for."""

    def __init__(self, api: MemoryAPI, ledger: Any, clock: Any) -> None:
        self.api, self.clock = api, clock
        self.catalog = Catalog(ledger, lambda: None, Owners(), clock=clock, wall=clock, grace=0.0)
        self.catalog.open()
        self.failures: list[str] = []
        self.targets = ScaleTargets(
            api, self.catalog, failed=self.failures.append, clock=clock, sleep=self.sleep
        )

    async def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    def policy(self, target: ScaleTarget = ROLLOUT, *, inherit: bool = True, name: str = "checkout") -> None:
        self.catalog.set_policy(
            Policy(
                key=f"shop/{name}",
                namespace="shop",
                name=name,
                uid=name,
                generation=1,
                resource_version="1",
                created=1.0,
                selector=Selector((Requirement("app", "In", ("checkout",)),)),
                floor={"cpu": 1000},
                scale_target=target,
                inherit_from_workload=inherit,
            )
        )

    def rollout(self, replicas: int, **spec: Any) -> None:
        spec = {"replicas": replicas, "template": TEMPLATE, **spec}
        meta = {"namespace": "shop", "name": "checkout", "generation": replicas}
        self.api.put(ROLLOUTS, {"metadata": meta, "spec": spec})

    def said(self, name: str = "checkout") -> int | str:
        """How many slots are desired, or the reason why that is not known."""
        found = self.catalog.resolved.get(f"shop/{name}")
        if isinstance(found, Problem):
            return found.reason
        return found.desired if isinstance(found, Demand) else ""

    async def until(self, wanted: int | str, name: str = "checkout") -> None:
        for _ in range(2_000):
            if self.said(name) == wanted:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"it is {self.said(name)!r}, not {wanted!r}")

    def problem(self) -> str:
        found = self.catalog.resolved["shop/checkout"]
        assert isinstance(found, Problem)
        return found.message

    def reads(self) -> int:
        return sum(verb == "get scale" for verb, *_ in self.api.calls)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.targets.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert self.failures == []


@pytest.fixture
def desk(api: MemoryAPI, make_ledger: Callable[..., Any], clock: Any) -> Desk:
    return Desk(api, make_ledger(), clock)


async def test_replicas_are_read_from_scale_when_the_spec_changes_and_not_before_a_policy_asks(desk):
    desk.api.kinds[ROLLOUTS] = True
    desk.rollout(3)
    async with desk.following():
        for _ in range(50):
            await asyncio.sleep(0)
        assert desk.api.watchers(ROLLOUTS) == 0
        desk.policy()
        await desk.until(3)
        desk.rollout(5)
        await desk.until(5)
        reads = desk.reads()
        stored = desk.api.get_object(ROLLOUTS, "shop", "checkout")
        desk.api.put(ROLLOUTS, stored | {"status": {"phase": "Progressing"}})
        for _ in range(100):
            await asyncio.sleep(0)
        assert (desk.reads(), reads, desk.api.watchers(ROLLOUTS)) == (2, 2, 1)
        desk.catalog.remove_policy("shop/checkout")
        for _ in range(100):
            await asyncio.sleep(0)
        assert desk.api.watchers(ROLLOUTS) == 0, "nobody asks any more"


async def test_two_policies_of_a_kind_share_a_watch(desk):
    desk.api.kinds[ROLLOUTS] = True
    desk.rollout(3)
    async with desk.following():
        desk.policy()
        await desk.until(3)
        desk.policy(replace(ROLLOUT, name="cart"), name="cart")
        await desk.until("WorkloadNotFound", "cart")
        assert desk.api.watchers(ROLLOUTS) == 1


async def test_a_kind_that_is_installed_later_is_found(desk):
    desk.policy()
    async with desk.following():
        await desk.until("ScaleTargetNotServed")
        assert "Rollout (argoproj.io/v1alpha1) is not served: install" in desk.problem()
        desk.api.kinds[ROLLOUTS] = False
        await desk.until("ScaleTargetCannotScale")
        assert "has no scale subresource: use slots.count" in desk.problem()
        desk.api.kinds[ROLLOUTS] = True
        desk.rollout(4)
        await desk.until(4)


@pytest.mark.parametrize(
    ("verb", "named"), [("list_page", "list and watch rollouts"), ("get scale", "get rollouts")]
)
async def test_a_right_that_is_missing_is_named_and_used_once_it_is_given(desk, verb, named):
    desk.api.kinds[ROLLOUTS] = True
    desk.rollout(4)
    desk.api.fail(verb, APIError(403, "Forbidden", "no"), resource=ROLLOUTS, times=3)
    desk.policy()
    began = desk.clock()
    async with desk.following():
        await desk.until("ScaleTargetForbidden")
        assert f"may not {named}.argoproj.io" in desk.problem()
        assert "labelled j10ce.io/aggregate-to-scale-targets=true" in desk.problem()
        await desk.until(4)
    assert desk.clock() - began > 1.0, "tried again, and not at once"


async def test_a_right_that_is_taken_away_leaves_the_slots_and_is_said(desk):
    desk.api.kinds[ROLLOUTS] = True
    desk.rollout(4)
    desk.policy()
    policy = desk.catalog.policies["shop/checkout"]
    async with desk.following():
        await desk.until(4)
        assert desk.catalog.unread(policy) == ""
        desk.api.fail("list_page", APIError(403, "Forbidden", "no"), resource=ROLLOUTS, times=2)
        desk.api.expire(ROLLOUTS)
        for _ in range(2_000):
            if desk.catalog.unread(policy):
                break
            await asyncio.sleep(0)
        assert "may not list and watch rollouts.argoproj.io" in desk.catalog.unread(policy)
        assert desk.said() == 4
        for _ in range(2_000):
            if not desk.catalog.unread(policy):
                break
            await asyncio.sleep(0)
        assert desk.catalog.unread(policy) == ""


async def test_a_scale_that_cannot_be_read_is_said_of_its_object(desk):
    desk.api.kinds[ROLLOUTS] = True
    desk.rollout(4)
    desk.api.fail("get scale", APIError(500, "InternalError", "no .spec.replicas"), times=1)
    desk.policy()
    async with desk.following():
        await desk.until("ScaleTargetUnread")
        assert "Rollout shop/checkout cannot be read" in desk.problem()
        await desk.until(4)


async def test_without_a_template_the_policy_says_which_nodes(desk):
    desk.api.kinds[ROLLOUTS] = True
    desk.rollout(4, template=None)
    desk.policy()
    async with desk.following():
        await desk.until("TemplateNotFound")
        assert "set placement.inheritFromWorkload: false" in desk.problem()
        desk.policy(inherit=False, name="stated")
        await desk.until(4, "stated")


async def test_a_job_is_followed_without_scale_until_it_has_finished(desk):
    job = {"metadata": {"namespace": "shop", "name": "checkout"}}
    spec = {"template": TEMPLATE, "parallelism": 3, "completions": 4}
    desk.api.put(JOBS, job | {"spec": spec})
    desk.policy(ScaleTarget("batch/v1", "Job", "checkout"))
    async with desk.following():
        await asyncio.wait_for(desk.targets.heard(), 60.0)
        assert desk.said() == 3
        desk.api.put(JOBS, job | {"spec": spec, "status": {"succeeded": 2}})
        await desk.until(2)
        done = {"succeeded": 4, "conditions": [{"type": "Complete", "status": "True"}]}
        desk.api.put(JOBS, job | {"spec": spec, "status": done})
        await desk.until(0)
        desk.api.remove(JOBS, "shop", "checkout")
        for _ in range(50):
            await asyncio.sleep(0)
        desk.clock.advance(1.0)
        desk.catalog.expire()
        assert desk.said() == "WorkloadNotFound"
    assert desk.reads() == 0


async def test_a_start_waits_until_each_kind_has_said_something(desk):
    desk.api.kinds[ROLLOUTS] = True
    desk.rollout(3)
    desk.policy()
    desk.policy(ScaleTarget("example.com/v1", "Farm", "a"), name="farm")
    async with desk.following():
        await asyncio.wait_for(desk.targets.heard(), 60.0)
        assert (desk.said(), desk.said("farm")) == (3, "ScaleTargetNotServed")


async def test_kinds_that_are_made_up_are_looked_up_in_turn_and_keep_no_other_waiting_for_ever(desk):
    desk.api.kinds[ROLLOUTS] = True
    desk.rollout(3)
    for number in range(100):
        desk.policy(ScaleTarget("example.com/v1", f"Kind{number}", "a"), name=f"p{number}")
    desk.policy()
    began = desk.clock()
    async with desk.following():
        await asyncio.wait_for(desk.targets.heard(), 60.0)
        assert [desk.said(f"p{number}") for number in range(100)] == ["ScaleTargetNotServed"] * 100
        await desk.until(3)
    assert desk.clock() - began > 100 * LOOKUP_SECONDS


async def test_a_version_that_nobody_names_any_more_takes_no_slots_from_another(desk):
    desk.api.kinds[ROLLOUTS] = True
    desk.api.kinds[replace(ROLLOUTS, version="v1")] = True
    desk.rollout(3)
    async with desk.following():
        desk.policy()
        desk.policy(replace(ROLLOUT, api_version="argoproj.io/v1"), name="other")
        await desk.until(3)
        await desk.until(3, "other")
        desk.catalog.remove_policy("shop/other")
        for _ in range(100):
            await asyncio.sleep(0)
        desk.clock.advance(1.0)
        desk.catalog.expire()
        assert desk.said() == 3
