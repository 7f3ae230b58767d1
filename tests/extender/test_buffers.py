"""Buffers from an extender that runs to an API server in memory: made, corrected, told of, taken away."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from adapters.api import CAPACITY_BUFFERS, NODES, POD_TEMPLATES, POLICIES, APIError, NotFound
from adapters.kubernetes import buffers
from adapters.kubernetes.buffers import Owner
from extender.buffers import AGAIN_SECONDS, CHANGED_SECONDS, OBJECT_SECONDS, PER_SECOND, Account, Buffers
from extender.config import Autoscaling
from extender.unasking import Unasking
from ledger.decisions import DemandReport
from qos import keys
from qos.cluster.objects import Demand
from qos.cluster.precedence import Problem
from tests.extender.accounts import calls
from tests.qos.builders import CHECKOUT, policy

BETA, ALPHA = CAPACITY_BUFFERS
ON = {"autoscaling": Autoscaling(buffers=True), "warmup_seconds": 0.0, "lease": "kube-system/test"}
POLICY = policy(uid="u-1")
OWNER = Owner(POLICY.namespace, POLICY.name, "u-1")
DEMAND = Demand(POLICY.key, POLICY.namespace, CHECKOUT, {"cpu": 2000, "pods": 1}, 4)
REPORT = DemandReport(POLICY.key, desired=4, filled=1, held=3)


class Kept:
    """Buffers beside an API server that serves them in `version`."""

    def __init__(self, api, clock, metrics, version=BETA, *, asking=True) -> None:
        self.api, self.clock, self.changes = api, clock, 0
        self.version = version
        self.buffers = Buffers(api, metrics, asking=asking, changed=self.note, clock=clock)
        if version is not None:
            api.kinds[version] = False

    def note(self) -> None:
        self.changes += 1

    @contextlib.asynccontextmanager
    async def watching(self):
        task = asyncio.create_task(self.buffers.watch())
        try:
            await settle()
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def keep(self, *accounts, rounds=1):
        """Follow these accounts for some rounds, far enough apart."""
        await self.buffers.follow(accounts)
        for _ in range(rounds):
            await self.buffers.run_once()
            await settle()
            self.clock.advance(OBJECT_SECONDS)

    def replicas(self):
        return {body["metadata"]["name"]: body["spec"]["replicas"] for body in self.api.objects(self.version)}

    def said(self):
        found = self.buffers.condition(POLICY)
        return found.status, found.reason


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def account(held=3, resolved=DEMAND, waiting=0, one=POLICY) -> Account:
    report = replace(REPORT, key=one.key, held=held)
    return Account(one, resolved, None if isinstance(resolved, Problem) else report, waiting, 0)


@pytest.fixture
def kept(api, clock, metrics) -> Kept:
    return Kept(api, clock, metrics)


async def test_a_policy_has_a_template_and_then_a_buffer_that_it_owns(kept):
    async with kept.watching():
        assert kept.said() == ("Unknown", "ToBeMade")
        await kept.keep(account(), rounds=2)
        (template,), (buffer,) = kept.api.objects(POD_TEMPLATES), kept.api.objects(BETA)
        assert buffer["spec"] == buffers.buffer_content(OWNER, 3)
        assert template["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}
        for one in (template, buffer):
            assert one["metadata"]["ownerReferences"][0]["uid"] == "u-1"
        assert kept.said() == ("Unknown", "NoAnswer")
        assert kept.changes, "the status is to say it"


async def test_writes_only_what_changed_and_not_too_often(kept):
    async with kept.watching():
        await kept.keep(account(), rounds=5)
        assert len(calls(kept.api, "create")) == 2
        assert not calls(kept.api, "replace")
        await kept.buffers.follow([account(held=2)])
        await kept.buffers.run_once()
        await kept.buffers.follow([account(held=1)])
        await kept.buffers.run_once()
        assert kept.replicas() == {"j10ce-checkout": 2}, "not yet"
        kept.clock.advance(OBJECT_SECONDS)
        await kept.buffers.run_once()
        assert kept.replicas() == {"j10ce-checkout": 1}


async def test_nothing_is_compared_while_nothing_changes(kept, monkeypatch):
    async with kept.watching():
        await kept.keep(account(), rounds=3)
        monkeypatch.setattr("extender.buffers.steps", lambda *_: pytest.fail("nothing has changed"))
        await kept.keep(account(), rounds=3)


async def test_all_policies_share_a_rate(kept):
    many = [
        account(one=replace(POLICY, name=f"p{n}", key=f"{POLICY.namespace}/p{n}", uid=f"u-{n}"))
        for n in range(PER_SECOND + 3)
    ]
    async with kept.watching():
        await kept.buffers.follow(many)
        await kept.buffers.run_once()
        assert len(calls(kept.api, "create")) == PER_SECOND
        await kept.keep(*many, rounds=5)
        assert len(kept.replicas()) == len(many)


async def test_a_policy_that_asks_no_more_leaves_nothing(kept):
    async with kept.watching():
        await kept.keep(account(), rounds=2)
        await kept.keep(account(held=0), rounds=2)
        assert not kept.api.objects(BETA)
        assert not kept.api.objects(POD_TEMPLATES)
        assert kept.said() == ("True", "NothingAsked")
        await kept.keep(account(), rounds=2)
        await kept.keep(account(resolved=Problem("ProfileNotFound", "")), rounds=2)
        assert not kept.api.objects(BETA)


async def test_what_the_ledger_is_about_to_place_keeps_its_buffer(kept):
    async with kept.watching():
        await kept.keep(account(), rounds=2)
        await kept.keep(Account(POLICY, DEMAND, None, 0, 0), rounds=2)
        assert kept.replicas() == {"j10ce-checkout": 3}


async def test_what_somebody_edits_is_put_back(kept):
    async with kept.watching():
        await kept.keep(account(), rounds=2)
        body = kept.api.get_object(BETA, POLICY.namespace, "j10ce-checkout")
        kept.api.put(BETA, body | {"spec": body["spec"] | {"replicas": 99}})
        kept.api.remove(POD_TEMPLATES, POLICY.namespace, "j10ce-checkout")
        await settle()
        await kept.keep(account(), rounds=2)
        assert kept.replicas() == {"j10ce-checkout": 3}
        assert len(kept.api.objects(POD_TEMPLATES)) == 1


async def test_an_admission_that_changes_what_is_written_is_not_fought(kept, monkeypatch):
    written = kept.api._store

    def changing(resource, body, before):
        if resource == BETA:
            body["spec"]["replicas"] = 1
        return written(resource, body, before)

    monkeypatch.setattr(kept.api, "_store", changing)
    async with kept.watching():
        await kept.keep(account(), rounds=20)
        assert len([one for one in kept.api.calls if one[0] in ("create", "replace") and one[1] == BETA]) == 1
        kept.clock.advance(CHANGED_SECONDS)
        await kept.buffers.run_once()
        assert len(calls(kept.api, "replace")) == 1


async def test_a_name_that_is_taken_is_left_alone_and_said(kept):
    theirs = {"metadata": {"namespace": POLICY.namespace, "name": "j10ce-checkout"}, "template": {"spec": {}}}
    kept.api.put(POD_TEMPLATES, theirs)
    async with kept.watching():
        await kept.keep(account(), rounds=3)
        assert kept.said() == ("False", "NotWritten")
        assert "not the extender's" in kept.buffers.condition(POLICY).message
        assert not kept.api.objects(BETA)
        kept.api.remove(POD_TEMPLATES, POLICY.namespace, "j10ce-checkout")
        kept.clock.advance(AGAIN_SECONDS)
        await kept.keep(account(), rounds=2)
        assert kept.replicas() == {"j10ce-checkout": 3}
        assert kept.said() == ("Unknown", "NoAnswer")


async def test_a_refusal_is_said_and_stops_nobody_else(kept):
    kept.api.fail("create", APIError(422, "Invalid", "spec: no"), times=1)
    other = replace(POLICY, name="other", key=f"{POLICY.namespace}/other", uid="u-2")
    async with kept.watching():
        await kept.keep(account(), account(one=other), rounds=3)
        assert kept.said() == ("False", "NotWritten")
        assert "422 Invalid" in kept.buffers.condition(POLICY).message
        assert kept.replicas() == {"j10ce-other": 3}


async def test_a_policy_made_anew_under_its_name_gets_objects_of_its_own(kept):
    async with kept.watching():
        await kept.keep(account(), rounds=2)
        await kept.keep(account(one=replace(POLICY, uid="u-2")), rounds=4)
        for one in (*kept.api.objects(BETA), *kept.api.objects(POD_TEMPLATES)):
            assert one["metadata"]["ownerReferences"][0]["uid"] == "u-2"
        assert kept.replicas() == {"j10ce-checkout": 3}


async def test_what_the_autoscaler_answers_is_told(kept):
    async with kept.watching():
        await kept.keep(account(), rounds=2)
        body = kept.api.get_object(BETA, POLICY.namespace, "j10ce-checkout")
        told = {
            "type": "Provisioning",
            "status": "True",
            "reason": "FitsExistingCapacity",
            "message": "All 3",
        }
        before = kept.changes
        kept.api.put(BETA, body | {"status": {"conditions": [told]}})
        await settle()
        assert kept.said() == ("True", "FitsExistingCapacity")
        assert kept.changes > before
        assert not calls(kept.api, "replace"), "a status is no edit"


async def test_the_older_version_where_the_newer_is_not_served(api, clock, metrics):
    kept = Kept(api, clock, metrics, ALPHA)
    async with kept.watching():
        await kept.keep(account(), rounds=2)
        (buffer,) = api.objects(ALPHA)
        assert buffer["apiVersion"] == "autoscaling.x-k8s.io/v1alpha1"


async def test_another_kind_of_the_newer_version_is_not_taken_for_it(api, clock, metrics):
    """cluster-autoscaler's ProvisioningRequests are in the same group, and were in v1beta1 first."""
    kept = Kept(api, clock, metrics, ALPHA)
    serve_requests(api)
    async with kept.watching():
        await kept.keep(account(), rounds=2)
        assert kept.replicas() == {"j10ce-checkout": 3}
    unasking = Unasking(api, count=lambda _outcome: None)
    await unasking.run_once()
    assert not api.objects(ALPHA)


def serve_requests(api) -> None:
    api.kinds[replace(BETA, plural="provisioningrequests", kind="ProvisioningRequest")] = False
    api.fail("list_page", NotFound(404, "NotFound", "no such kind"), resource=BETA, times=10**6)


async def test_a_definition_that_comes_later_is_noticed_and_one_that_goes_too(api, clock, metrics):
    kept = Kept(api, clock, metrics, None)
    looked: list[float] = []

    async def sleep(seconds: float) -> None:
        looked.append(seconds)
        if len(looked) == 3:
            api.kinds[BETA] = False
        await asyncio.sleep(0)

    kept.buffers._sleep = sleep
    assert kept.said() == ("Unknown", "NotServed")
    async with kept.watching():
        assert len(looked) >= 3
        kept.version = BETA
        await kept.keep(account(), rounds=2)
        assert kept.replicas() == {"j10ce-checkout": 3}
        api.fail("list_page", NotFound(404, "NotFound", "no such kind"), resource=BETA, times=10**6)
        api.expire(BETA)
        await settle()
        assert kept.said()[1] == "NotServed"
        assert not kept.buffers.heard


async def test_a_definition_that_is_made_anew_gets_all_buffers_again(kept):
    async with kept.watching():
        await kept.keep(account(), rounds=3)
    for resource in (BETA, POD_TEMPLATES):
        kept.api.remove(resource, POLICY.namespace, "j10ce-checkout")
    async with kept.watching():
        await kept.keep(account(), rounds=2)
        assert kept.replicas() == {"j10ce-checkout": 3}


async def test_a_right_that_is_missing_is_named(kept):
    kept.api.fail("list_page", APIError(403, "Forbidden", "no"), resource=BETA, times=10**6)
    async with kept.watching():
        await kept.keep(account())
        assert kept.said() == ("Unknown", "NotServed")
        assert "may not list capacitybuffers.autoscaling.x-k8s.io" in kept.buffers.condition(POLICY).message
        assert not calls(kept.api, "create")


async def test_observe_asks_nobody_and_takes_away_what_was_asked(api, clock, metrics):
    guard = Kept(api, clock, metrics)
    async with guard.watching():
        await guard.keep(account(), rounds=2)
    observing = Kept(api, clock, metrics, asking=False)
    async with observing.watching():
        await observing.keep(account(), rounds=3)
        assert not observing.replicas()
        assert observing.said() == ("Unknown", "ObserveMode")


# --- an extender that runs ---


async def test_a_whole_extender_asks_and_says_so(api, running, eventually, make_node, make_policy):
    api.kinds[BETA] = False
    api.put(NODES, make_node("n1", cpu="4"))
    api.put(POLICIES, make_policy(count=3, cpu="2"))
    async with running(api, **ON) as program:

        def spec():
            return [one["spec"]["replicas"] for one in api.objects(BETA)]

        def reasons():
            body = api.get_object(POLICIES, "default", "checkout")
            conditions = body.get("status", {}).get("conditions", [])
            return {one["type"]: one["reason"] for one in conditions}

        await eventually(lambda: spec() == [3], 30)
        await eventually(lambda: reasons().get("Provisioned") == "NoAnswer", 30)
        assert program.ledger is not None
        api.remove(POLICIES, "default", "checkout")
        await eventually(lambda: not api.objects(BETA) and not api.objects(POD_TEMPLATES), 30)


async def test_without_it_nothing_is_asked_and_what_was_is_taken_away(
    api, running, eventually, make_node, make_policy
):
    api.kinds[BETA] = False
    api.put(NODES, make_node("n1", cpu="4"))
    made = api.put(POLICIES, make_policy(count=3, cpu="2"))
    owner = Owner("default", "checkout", made["metadata"]["uid"])
    slot = buffers.slot_content(DEMAND)
    assert slot is not None
    api.put(POD_TEMPLATES, buffers.pod_template(owner, slot))
    api.put(BETA, buffers.buffer(owner, BETA, 7))
    theirs = {"metadata": {"namespace": "default", "name": "theirs"}, "spec": {}}
    api.put(BETA, theirs)
    async with running(api, **(ON | {"autoscaling": Autoscaling()})):
        await eventually(lambda: [one["metadata"]["name"] for one in api.objects(BETA)] == ["theirs"], 30)
        await eventually(lambda: not api.objects(POD_TEMPLATES), 30)
        body = api.get_object(POLICIES, "default", "checkout")
        assert keys.PROVISIONED not in str(body.get("status", {}))


@pytest.mark.parametrize("status", [403, 404])
async def test_who_never_might_ask_has_nothing_to_take_away(api, status):
    api.kinds[BETA] = False
    api.fail("list_page", APIError(status, "No", "no"), times=10**6)
    unasking = Unasking(api, count=lambda _outcome: None)
    await unasking.run_once()
    assert unasking.done


async def test_taking_away_goes_on_after_an_answer_that_did_not_come(api):
    api.kinds[BETA] = False
    api.put(BETA, buffers.buffer(OWNER, BETA, 7))
    api.fail("delete", times=1)
    unasking = Unasking(api, count=lambda _outcome: None)
    await unasking.run_once()
    assert not unasking.done
    await unasking.run_once()
    assert unasking.done
    assert not api.objects(BETA)
