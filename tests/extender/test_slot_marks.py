"""Annotations of pods that fill a slot, or no longer do, are corrected at a bounded rate."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from adapters.api import PODS, APIError, Ended, Unreachable
from adapters.kubernetes import decode
from extender.slot_marks import TAKE_SECONDS, SlotMarks
from ledger.seats import NO_SLOT
from qos import keys
from tests.extender.accounts import calls
from tests.ledger.builders import demand, ledger, nodes
from tests.waiting import running as running_beside

KEY = "default/web"


@pytest.fixture
def running(api, make_pod):
    """(count, slots) -> the ledger of so many pods that run, and the policy's slots."""

    def make(count, slots):
        made = ledger(*nodes(1, pods=10_000), demand("web", slots, cpu=0))
        for number in range(count):
            obj = make_pod(f"p{number}", cpu="0", app="web", node="n0")
            made.set_pod(decode.pod(orjson.dumps(api.put(PODS, obj))))
        return made

    return make


def at_once(api, made, metrics, clock):
    """One that takes a floor without waiting."""
    return SlotMarks(api, made, metrics, clock=clock, take_seconds=0)


def said(api, name):
    return (
        api.get_object(PODS, "default", name)["metadata"].get("annotations", {}).get(keys.POLICY_ANNOTATION)
    )


async def test_pods_beyond_the_slots_are_marked_and_nobody_else(api, metrics, clock, running):
    made = running(5, 3)
    await at_once(api, made, metrics, clock).run_once()
    values = [said(api, f"p{number}") for number in range(5)]
    assert (values.count(None), values.count(NO_SLOT)) == (3, 2)
    assert len(calls(api, "patch")) == 2


async def test_ten_thousand_pods_are_no_burst(api, metrics, clock, running):
    marks = at_once(api, running(1000, 10), metrics, clock)
    await marks.run_once()
    assert len(calls(api, "patch")) == 20
    for _ in range(10):
        clock.advance(1)
        await marks.run_once()
    assert len(calls(api, "patch")) == 220


async def test_what_has_changed_before_its_turn_is_not_written(api, metrics, clock, running):
    made = running(100, 10)
    marks = at_once(api, made, metrics, clock)
    await marks.run_once()
    made.set_demand(demand("web", 100, cpu=0))
    clock.advance(10)
    await marks.run_once()
    assert len(calls(api, "patch")) == 20


@pytest.mark.parametrize(
    ("error", "again"), [(Unreachable("away"), True), (APIError(403, "Forbidden", "no"), False)]
)
async def test_what_was_not_answered_is_tried_again(api, metrics, clock, running, error, again):
    marks = at_once(api, running(2, 1), metrics, clock)
    real, api.patch = api.patch, failing(error)
    await marks.run_once()
    api.patch = real
    clock.advance(1)
    await marks.run_once()
    assert (NO_SLOT in (said(api, "p0"), said(api, "p1"))) is again


async def test_a_namespace_whose_pods_cannot_be_changed_holds_up_no_other(api, metrics, clock, make_pod):
    """A webhook of its own that is away makes the API server answer 500, for as long as it is away."""
    made = ledger(*nodes(1, pods=10_000), demand("broken", 1, cpu=0), demand("web", 1, cpu=0))
    for name in ("broken", "web"):
        for number in range(3):
            obj = make_pod(f"{name}{number}", cpu="0", app=name, node="n0")
            made.set_pod(decode.pod(orjson.dumps(api.put(PODS, obj))))
    real = api.patch

    async def patch(resource, namespace, name, *rest):
        if name.startswith("broken"):
            raise Ended("500 InternalError: failed calling webhook")
        await real(resource, namespace, name, *rest)

    api.patch = patch
    marks = at_once(api, made, metrics, clock)
    for _ in range(3):
        await marks.run_once()
        clock.advance(1)
    assert [said(api, f"web{number}") for number in range(3)].count(NO_SLOT) == 2
    api.patch = real
    await marks.run_once()
    assert [said(api, f"broken{number}") for number in range(3)].count(NO_SLOT) == 2


async def test_a_pod_that_gets_no_answer_holds_up_no_other(api, metrics, clock, running):
    made = running(6, 3)
    marks = at_once(api, made, metrics, clock)
    real, sent = api.patch, []

    async def patch(kind, namespace, name, body):
        sent.append(name)
        if name == sent[0]:
            raise Unreachable("500: a webhook fails for this pod")
        await real(kind, namespace, name, body)

    api.patch = patch
    for _ in range(3):
        await marks.run_once()
        clock.advance(1)
    marked = [number for number in range(6) if said(api, f"p{number}") == NO_SLOT]
    assert len(marked) == 2
    assert sent.count(sent[0]) == 3


async def test_what_was_queued_of_a_policy_that_is_gone_is_not_written(api, metrics, clock, running):
    made = running(100, 10)
    marks = at_once(api, made, metrics, clock)
    await marks.run_once()
    made.remove_demand(KEY)
    clock.advance(1)
    await marks.run_once()
    assert len(calls(api, "patch")) == 20


async def test_a_policy_of_many_pods_keeps_no_other_waiting(api, metrics, clock, make_pod):
    made = ledger(*nodes(1, pods=10_000), demand("large", 10, cpu=0), demand("web", 1, cpu=0))
    for name, count in (("large", 1000), ("web", 2)):
        for number in range(count):
            obj = make_pod(f"{name}{number}", cpu="0", app=name, node="n0")
            made.set_pod(decode.pod(orjson.dumps(api.put(PODS, obj))))
    await at_once(api, made, metrics, clock).run_once()
    assert NO_SLOT in (said(api, "web0"), said(api, "web1"))
    assert len(calls(api, "patch")) == 20


async def test_others_have_their_turn_after_each_policy(api, metrics, clock):
    """All policies are looked at when one begins to lead: 150,000 pods, 500 of each, were 50 ms in one go."""
    made = ledger(*nodes(1), *(demand(f"p{number}", 1) for number in range(30)))
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with running_beside(others()):
        await SlotMarks(api, made, metrics, clock=clock).run_once()
    assert turns >= 30


async def test_a_scale_down_takes_the_floor_of_no_pod_that_stays(api, metrics, clock, running):
    """The workload has fewer replicas first; which of its pods are deleted is not known yet."""
    made = running(10, 10)
    marks = SlotMarks(api, made, metrics, clock=clock)
    await marks.run_once()
    made.set_demand(demand("web", 5, cpu=0))
    for number in range(5):  # the first to come, who would keep theirs
        await marks.run_once()
        clock.advance(10)
        made.remove_pod(decode.pod(orjson.dumps(api.get_object(PODS, "default", f"p{number}"))).uid)
    for _ in range(10):
        await marks.run_once()
        clock.advance(10)
    assert calls(api, "patch") == []


async def test_a_pod_that_stays_beyond_the_slots_loses_its_floor(api, metrics, clock, running):
    made = running(10, 10)
    marks = SlotMarks(api, made, metrics, clock=clock)
    made.set_demand(demand("web", 5, cpu=0))
    await marks.run_once()
    clock.advance(TAKE_SECONDS / 2)
    made.set_demand(demand("web", 4, cpu=0))
    await marks.run_once()
    clock.advance(TAKE_SECONDS / 2)
    await marks.run_once()
    assert len(calls(api, "patch")) == 5, "the time of those who were beyond already goes on"
    clock.advance(TAKE_SECONDS / 2)
    await marks.run_once()
    assert [said(api, f"p{number}") for number in range(10)].count(NO_SLOT) == 6


async def test_a_slot_that_came_free_is_given_at_once(api, metrics, clock, make_pod):
    made = ledger(*nodes(1, pods=10_000), demand("web", 1, cpu=0))
    obj = make_pod("p0", cpu="0", app="web", node="n0")
    obj["metadata"]["annotations"] = {keys.POLICY_ANNOTATION: NO_SLOT}
    made.set_pod(decode.pod(orjson.dumps(api.put(PODS, obj))))
    await SlotMarks(api, made, metrics, clock=clock).run_once()
    assert said(api, "p0") == KEY


def failing(error):
    async def patch(*_):
        raise error

    return patch
