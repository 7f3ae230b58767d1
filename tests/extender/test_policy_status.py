"""Status is written when it changed, not too often, and never over someone else's write."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import orjson
import pytest

from adapters.api import EVENTS, POLICIES, APIError, Unreachable
from adapters.kubernetes import decode
from adapters.kubernetes.events import EventWriter
from adapters.kubernetes.node_qos import NodeNews
from extender import status
from extender.catalog import Catalog
from extender.guarding import Guarding
from extender.node_reports import NodeReports
from extender.owners import Owners
from extender.policy_status import PolicyStatus
from extender.view import View
from ledger.decisions import Mode
from qos import keys
from qos.cluster.needs import Enforcement
from qos.cluster.node_report import PolicyState
from tests.extender.accounts import Account, calls


class Desk:
    """A status writer over an API server in memory with some policies."""

    def __init__(self, api, clock, metrics, make_policy, *names):
        self.api, self.clock, self.account = api, clock, Account()
        self.view = View()
        self.reports = NodeReports(self.account, clock=clock, changed=lambda: None)
        self.catalog = Catalog(self.account, lambda: None, Owners(), clock=clock, wall=clock, grace=0.0)
        self.guarding = Guarding(Mode.GUARD, binds=True, schedulers=["default-scheduler"], window=300)
        self.guarding.installed = 0.0
        self.events = EventWriter(api, metrics.event, identity="me", clock=clock, wall=clock)
        self.writer = PolicyStatus(
            api,
            self.account,
            self.catalog,
            self.view,
            self.guarding,
            self.events,
            metrics,
            reports=self.reports,
            owner_wait=15.0,
            clock=clock,
            wall=clock,
        )
        for name in names:
            self.watch(api.put(POLICIES, make_policy(name)))
        self.catalog.open()

    def watch(self, policy):
        """The watch shows it."""
        self.catalog.set_policy(decode.policy(orjson.dumps(policy)))

    def stored(self, name="a"):
        return self.api.get_object(POLICIES, "default", name)

    def change(self, name="a", **fields):
        key = f"default/{name}"
        self.account.reports[key] = replace(self.account.reports[key], **fields)

    def condition(self, kind, name="a"):
        return next(one for one in self.stored(name)["status"]["conditions"] if one["type"] == kind)


@pytest.fixture
def desk(api, clock, metrics, make_policy):
    return lambda *names: Desk(api, clock, metrics, make_policy, *(names or ("a",)))


async def test_status_is_written_once_and_then_only_when_it_changes(desk, api):
    desk = desk()
    assert await desk.writer.run_once() == 0
    assert desk.stored()["status"]["slots"] == {
        "desired": 2,
        "spare": 0,
        "filled": 0,
        "held": 2,
        "unplaced": 0,
        "consumed": 0,
    }
    assert desk.stored()["status"]["observedGeneration"] == 1
    for _ in range(5):
        desk.clock.advance(10)
        await desk.writer.run_once()
    assert len(calls(api, "patch")) == 1


async def test_a_status_that_is_written_is_computed_again_only_when_it_may_change(desk, monkeypatch):
    desk, computed, really = desk("a", "b"), [], status.compute

    def compute(facts, now):
        computed.append(facts.policy.name)
        return really(facts, now)

    monkeypatch.setattr(status, "compute", compute)
    for _ in range(3):
        desk.clock.advance(10)
        await desk.writer.run_once()
    del computed[:]
    for _ in range(3):
        desk.clock.advance(10)
        await desk.writer.run_once()
    assert computed == []
    desk.change("b", filled=1)
    desk.clock.advance(10)
    await desk.writer.run_once()
    assert set(computed) == {"b"}
    assert desk.stored("b")["status"]["slots"]["filled"] == 1
    desk.change("b", filled=0)
    desk.clock.advance(10)
    await desk.writer.run_once()
    assert desk.stored("b")["status"]["slots"]["filled"] == 0


async def test_a_policy_says_that_its_end_has_come_though_nothing_else_changes(
    api, clock, metrics, make_policy
):
    desk = Desk(api, clock, metrics, lambda name: make_policy(name, ttlSeconds=60), "a")
    for _ in range(20):
        await desk.writer.run_once()
        clock.advance(10)
    assert desk.condition(keys.EXPIRED)["status"] == "True"


async def test_one_policy_is_written_at_most_twice_a_second_and_the_last_state_wins(desk, api):
    desk = desk()
    for filled in range(100):
        desk.change(filled=filled)
        await desk.writer.run_once()
        desk.clock.advance(0.125)
    assert len(calls(api, "patch")) <= 2 * 12.5
    desk.clock.advance(0.5)
    await desk.writer.run_once()
    assert desk.stored()["status"]["slots"]["filled"] == 99


async def test_all_policies_together_are_written_at_most_ten_times_a_second(desk, api):
    names = [f"p{i:02d}" for i in range(30)]
    desk = desk(*names)
    assert await desk.writer.run_once() == 27
    seconds = [len(calls(api, "patch"))]
    for _ in range(40):
        desk.clock.advance(0.125)
        await desk.writer.run_once()
        seconds.append(len(calls(api, "patch")))
    written = Counter(calls(api, "patch"))
    assert set(written) == set(names)
    assert sum(written.values()) == 30
    assert max(late - early for early, late in zip(seconds, seconds[8:], strict=False)) <= 10


async def test_a_busy_policy_does_not_starve_the_others(desk, api):
    desk = desk("busy1", "busy2", "busy3", "busy4", "quiet")
    for filled in range(8):
        for name in ("busy1", "busy2", "busy3", "busy4"):
            desk.change(name, filled=filled)
        await desk.writer.run_once()
        desk.clock.advance(0.25)
    assert "quiet" in calls(api, "patch")


async def test_t13_a_stale_resource_version_conflicts_and_is_tried_again(desk, api):
    desk = desk()
    api.patch_policy = api.put(POLICIES, desk.stored() | {"spec": desk.stored()["spec"]})
    await desk.writer.run_once()
    assert "status" not in desk.stored(), "someone else wrote meanwhile: nothing is overwritten"
    desk.clock.advance(1)
    await desk.writer.run_once()
    assert desk.condition(keys.READY)["status"] == "True"


async def test_status_is_not_written_twice_while_the_watch_lags(desk, api):
    desk = desk()
    await desk.writer.run_once()
    desk.change(filled=1)
    desk.clock.advance(1)
    await desk.writer.run_once()
    assert desk.stored()["status"]["slots"]["filled"] == 1
    assert calls(api, "patch") == ["a", "a"]
    desk.watch(desk.stored())
    desk.clock.advance(1)
    await desk.writer.run_once()
    assert calls(api, "patch") == ["a", "a"]


async def test_a_change_that_the_watch_shows_before_our_write_is_answered_is_not_forgotten(desk, api):
    desk, patch = desk(), api.patch

    async def slow(resource, namespace, name, body, **how):
        written = await patch(resource, namespace, name, body, **how)
        changed = desk.stored()
        changed["spec"]["placement"] = {"maxSlotsPerNode": 9}
        desk.watch(api.put(POLICIES, changed))
        api.patch = patch
        return written

    api.patch = slow
    await desk.writer.run_once()
    desk.clock.advance(1)
    await desk.writer.run_once()
    assert desk.stored()["status"]["observedGeneration"] == 2


@pytest.mark.parametrize("error", [Unreachable("cut"), APIError(403, "Forbidden", "no")])
async def test_a_write_that_fails_is_tried_again_later(desk, api, error):
    desk = desk()
    api.fail("patch", error)
    await desk.writer.run_once()
    desk.clock.advance(1)
    await desk.writer.run_once()
    assert len(calls(api, "patch")) == 1
    desk.clock.advance(1.5)
    await desk.writer.run_once()
    assert desk.condition(keys.HELD)["status"] == "True"


async def test_a_policy_that_is_gone_is_no_error(desk, api):
    desk = desk()
    api.remove(POLICIES, "default", "a")
    await desk.writer.run_once()
    desk.catalog.remove_policy("default/a")
    desk.writer.forget("default/a")
    assert await desk.writer.run_once() == 0


async def test_owners_that_wait_long_make_slots_unusable(desk, make_pod, clock):
    desk = desk()
    pod = decode.pod(orjson.dumps(make_pod("web") | {"metadata": {"uid": "u", "name": "web"}}))
    desk.view.set_pod(replace(pod, unschedulable_since=clock() - 14))
    await desk.writer.run_once()
    assert desk.condition(keys.SLOTS_USABLE)["status"] == "True"
    clock.advance(2)
    desk.account.policy_of = lambda pod: "default/a"
    await desk.writer.run_once()
    assert desk.condition(keys.SLOTS_USABLE)["reason"] == "OwnersWait"


async def test_a_user_is_told_by_an_event_when_slots_are_lost_and_held_again(desk, api):
    from ledger.decisions import Unplaced

    desk = desk()
    await desk.writer.run_once()
    desk.change(held=1, unplaced=(Unplaced(1, "Insufficient", "cpu", 2000),))
    desk.clock.advance(1)
    await desk.writer.run_once()
    desk.change(held=2, unplaced=())
    desk.clock.advance(1)
    await desk.writer.run_once()
    await desk.events.run_once()
    said = {one["reason"]: one for one in api.objects(EVENTS)}
    assert set(said) == {"SlotsUnplaced", "SlotsHeld"}
    assert "cpu: 2 missing for 1 slot" in said["SlotsUnplaced"]["note"]
    assert said["SlotsUnplaced"]["regarding"]["name"] == "a"
    assert said["SlotsUnplaced"]["type"] == "Warning"


async def test_overlaps_are_computed_seldom_but_for_a_new_policy_at_once(desk, make_policy):
    desk, computed = desk("a", "b"), []

    def overlaps():
        computed.append(desk.clock())
        yield {}
        yield {"default/b": "default/a"}

    desk.account.gather_overlaps = overlaps
    for _ in range(20):
        await desk.writer.run_once()
        desk.clock.advance(0.5)
    assert len(computed) == 2
    assert desk.condition(keys.OVERLAPPING, "b")["status"] == "True"
    desk.watch(desk.api.put(POLICIES, make_policy("c")))
    await desk.writer.run_once()
    assert len(computed) == 3


async def test_whatever_the_nodes_report_all_statuses_together_are_written_ten_times_a_second(desk, api):
    """A policy's edit touches every node: each report changes the sums of every policy."""
    names = [f"p{number}" for number in range(30)]
    desk = desk(*names)
    uids = {name: desk.stored(name)["metadata"]["uid"] for name in names}
    written = []
    for turn in range(1, 101):
        states = tuple(PolicyState(f"default/{name}", uids[name], turn, turn - 1, 0) for name in names)
        desk.reports.set(NodeNews("n1", str(turn), Enforcement(), states))
        before = len(calls(api, "patch"))
        await desk.writer.run_once()
        written.append(len(calls(api, "patch")) - before)
        desk.clock.advance(0.1)
    assert max(sum(written[start : start + 10]) for start in range(90)) <= 10
    assert {desk.condition(keys.APPLIED, name)["reason"] for name in names} == {"InProgress"}


async def test_a_field_that_an_older_crd_drops_is_not_written_for_ever(desk, api, monkeypatch):
    desk, patch = desk(), api.patch

    async def pruning(resource, namespace, name, body, *, subresource=""):
        status = {field: value for field, value in body["status"].items() if field != "slot"}
        return await patch(resource, namespace, name, {**body, "status": status}, subresource=subresource)

    monkeypatch.setattr(api, "patch", pruning)
    for _ in range(10):
        await desk.writer.run_once()
        desk.clock.advance(1.0)
    assert "slot" not in desk.stored()["status"]
    assert len(calls(api, "patch")) == 1
    desk.watch(desk.stored())
    for _ in range(10):
        await desk.writer.run_once()
        desk.clock.advance(1.0)
    assert len(calls(api, "patch")) == 2
