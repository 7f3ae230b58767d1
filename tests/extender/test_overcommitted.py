"""Pods that come past the scheduler: kubelet refuses them, and placeholders stay until it has had time to."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import pytest

from adapters.api import NODES, PODS, POLICIES, PRIORITY_CLASSES
from extender.hand_over import UNPLACED_SECONDS
from extender.overcommitted import REFUSES_SECONDS, Overcommitted
from extender.standing import Standing
from ledger.decisions import Mode
from qos import keys
from qos.cluster.placeholders import Placeholder
from tests.extender import placeholder_cluster
from tests.extender.placeholder_cluster import condition, gated, nodes_of, ours, stand
from tests.ledger.builders import demand, ledger, node, pod


def names(api) -> set[str]:
    return {one["metadata"]["name"] for one in ours(api)}


def slots(api) -> dict[str, int]:
    said = api.objects(POLICIES)[0].get("status", {}).get("slots", {})
    return {name: said[name] for name in ("held", "unplaced") if said.get(name)}


def slowly(later=lambda: 0.0):
    """A clock on which next to no time passes but what is said."""
    began = time.monotonic()
    return lambda: began + (time.monotonic() - began) / 100 + later()


def full(api, make_node, make_pod, make_policy) -> None:
    """A node of four CPUs, two of them for slots, two used."""
    api.put(NODES, make_node("n1"))
    api.put(PODS, make_pod("there", cpu="2", node="n1"))
    api.put(POLICIES, make_policy(count=2, cpu="1"))


async def test_no_slot_is_lost_to_pods_that_kubelet_will_refuse(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    full(api, make_node, make_pod, make_policy)
    async with keeping() as program:
        await eventually(lambda: stand(api) == {"n1": 2})
        before = names(api)
        api.put(PODS, make_pod("waits", cpu="1"))
        past = [make_pod(f"past-{number}", cpu="1", node="n1") for number in range(3)]
        for turn in range(3):  # it may go on all day
            for one in past:
                api.put(PODS, one)
            await eventually(lambda: slots(api) == {"unplaced": 2}, f"turn {turn}")
            for one in past:
                api.put(PODS, one | {"status": {"phase": "Failed", "reason": "OutOfcpu"}})
            await eventually(lambda: dict(program.ledger.report()["default/checkout"].holds) == {"n1": 2})
            for one in past:
                api.remove(PODS, "default", one["metadata"]["name"])
            assert names(api) == before
        assert nodes_of(api, "waits") == {}


async def test_a_stream_of_such_pods_of_which_one_is_always_there_takes_none_either(
    api, keeping, make_node, make_pod, make_policy, eventually, monkeypatch
):
    full(api, make_node, make_pod, make_policy)
    later, told = 0.0, [0.0]
    async with keeping(clock=lambda: time.monotonic() + later) as program:
        advance = program.ledger.advance
        monkeypatch.setattr(program.ledger, "advance", lambda now: told.append(now) or advance(now))
        await eventually(lambda: stand(api) == {"n1": 2})
        before, last = names(api), None
        while later < 2 * REFUSES_SECONDS:
            one = make_pod(f"past-{later:g}", cpu="2", node="n1")
            uid = api.put(PODS, one)["metadata"]["uid"]
            await eventually(lambda uid=uid: program.ledger.known(uid) is not None)
            await eventually(lambda: slots(api) == {"unplaced": 2})
            if last is not None:
                api.remove(PODS, "default", last)
            last = one["metadata"]["name"]
            later += 0.4 * REFUSES_SECONDS
            now = time.monotonic() + later
            await eventually(lambda now=now: told[-1] >= now)  # the ledger knows how late it is
        assert names(api) == before


async def test_an_owner_waits_for_its_slot_until_they_are_refused(
    api, keeping, make_node, make_pod, make_policy, eventually, monkeypatch
):
    """It would evict somebody else."""
    full(api, make_node, make_pod, make_policy)
    later, looked = 0.0, 0
    async with keeping(clock=slowly(lambda: later)) as program:
        policy_of = program.ledger.policy_of

        def looks(pod):
            nonlocal looked
            looked += 1
            return policy_of(pod)

        monkeypatch.setattr(program.ledger, "policy_of", looks)
        await eventually(lambda: stand(api) == {"n1": 2})
        past = make_pod("past", cpu="2", node="n1")
        api.put(PODS, past)
        await eventually(lambda: slots(api) == {"unplaced": 2})
        api.put(PODS, gated(make_pod("checkout-1", cpu="1", app="checkout")))
        await eventually(lambda: looked >= 4)  # two rounds
        later, looked = UNPLACED_SECONDS, 0
        await eventually(lambda: looked >= 8)
        assert nodes_of(api, "checkout") == {}
        assert len(program.keeper.standing.gated) == 1
        api.remove(PODS, "default", "past")
        await eventually(lambda: nodes_of(api, "checkout") == {"checkout-1": "n1"})
        await eventually(lambda: stand(api) == {"n1": 1})


@pytest.mark.parametrize("refused", [True, False])
async def test_no_owner_is_sent_where_nobody_fits_meanwhile(
    api, keeping, make_node, make_pod, make_policy, eventually, monkeypatch, refused
):
    """One hold is left there: kube-scheduler would find no room beside the placeholder that stays."""
    full(api, make_node, make_pod, make_policy)
    later, tried = 0.0, set()
    monkeypatch.setattr(placeholder_cluster, "refuse", lambda _, pod: tried.add(pod["metadata"]["name"]))
    async with keeping(clock=slowly(lambda: later)):
        await eventually(lambda: stand(api) == {"n1": 2})
        api.put(PODS, make_pod("past", cpu="1", node="n1"))
        await eventually(lambda: slots(api) == {"held": 1, "unplaced": 1})
        api.put(PODS, gated(make_pod("checkout-1", cpu="1", app="checkout")))
        await eventually(lambda: condition(api, keys.GUARDED)[0] == "True")
        if refused:
            api.remove(PODS, "default", "past")
        else:
            later = REFUSES_SECONDS
        await eventually(lambda: nodes_of(api, "checkout") == {"checkout-1": "n1"})
        assert "checkout-1" not in tried
        await eventually(lambda: stand(api) == Counter({"n1": 1} if refused else {}))


async def test_beside_a_hold_of_the_other_keeper_they_stay_as_well(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    full(api, make_node, make_pod, make_policy)
    api.put(POLICIES, make_policy(count=1, cpu="1", keeper="Placeholders"))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    api.put(POLICIES, make_policy("asked", count=1, cpu="1", keeper="Extender", priorityClassName="high"))
    async with keeping(bothKeepers=True, warmup_seconds=0) as program:
        await eventually(lambda: stand(api) == {"n1": 1})
        await eventually(lambda: all(one.held for one in program.ledger.report().values()))
        before = names(api)
        api.put(PODS, make_pod("past", cpu="1", node="n1"))
        await eventually(lambda: slots(api) == {"unplaced": 1})
        api.remove(PODS, "default", "past")
        await eventually(lambda: slots(api) == {"held": 1})
        assert names(api) == before


async def test_after_a_restart_they_stay_as_well(api, keeping, make_node, make_pod, make_policy, eventually):
    full(api, make_node, make_pod, make_policy)
    async with keeping():
        await eventually(lambda: stand(api) == {"n1": 2})
    before, past = names(api), make_pod("past", cpu="1", node="n1")
    api.put(PODS, past)
    api.put(PODS, make_pod("waits", cpu="1"))
    async with keeping() as program:
        await eventually(lambda: slots(api) == {"held": 1, "unplaced": 1})
        api.put(PODS, past | {"status": {"phase": "Failed", "reason": "OutOfcpu"}})
        await eventually(lambda: program.ledger.report()["default/checkout"].held == 2)
        await eventually(lambda: slots(api) == {"held": 2})
    assert names(api) == before
    assert nodes_of(api, "waits") == {}


async def test_of_pods_that_stay_all_the_same_the_slots_do_not_keep_others_waiting(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    """One CPU past the scheduler for good: one slot of two is lost, and only after kubelet had its time."""
    full(api, make_node, make_pod, make_policy)
    later = 0.0
    async with keeping(clock=lambda: time.monotonic() + later):
        await eventually(lambda: stand(api) == {"n1": 2})
        before = names(api)
        api.put(PODS, make_pod("past", cpu="1", node="n1"))
        await eventually(lambda: slots(api) == {"held": 1, "unplaced": 1})
        assert names(api) == before
        later = REFUSES_SECONDS
        await eventually(lambda: len(names(api)) == 1)
        assert names(api) < before


async def test_what_makes_room_for_another_hold_goes_at_once(
    api, keeping, make_node, make_pod, make_policy, eventually
):
    full(api, make_node, make_pod, make_policy)
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    async with keeping(clock=slowly()):  # else it would be over
        await eventually(lambda: stand(api) == {"n1": 2})
        first = names(api)
        api.put(POLICIES, make_policy("higher", count=2, cpu="1", priorityClassName="high"))
        await eventually(lambda: stand(api) == {"n1": 2} and not names(api) & first)


class Looked:
    """A node of two CPUs where a slot of both of them lies, and its placeholder stands."""

    def __init__(self) -> None:
        slot = replace(demand("a", 1), vector={"cpu": 2_000, "pods": 1})
        self.account = ledger(node("n1", 2), slot, mode=Mode.GUARD, answers=False)
        self.account.advance(10.0)
        self.standing = Standing("holds", lambda: None, lambda: 10.0)
        self.over = Overcommitted(self.account, self.standing, lambda _: True)

    def stand(self, *, bound: bool) -> None:
        self.standing.put(Placeholder("p", "p", "default/a", "form", "n1", bound=bound))

    def late(self) -> None:
        self.account.set_pod(pod("late", 2, node="n1"))


def test_a_hold_that_had_moved_keeps_its_placeholder_once_its_new_place_is_lost() -> None:
    there = Looked()
    there.stand(bound=True)
    assert not there.over.look("default/a", ["n1"], [])
    there.late()
    assert there.over.look("default/a", ["n2"], ["n1"]) == {"n1"}
    assert there.over.look("default/a", [], ["n1"]) == {"n1"}


def test_so_does_one_whose_placeholder_was_about_to_be_bound() -> None:
    there = Looked()
    there.stand(bound=False)
    assert not there.over.look("default/a", ["n1"], [], ["n1"])
    there.late()
    assert not there.over.look("default/a", [], [], ["n1"])
    there.stand(bound=True)
    assert there.over.look("default/a", [], ["n1"]) == {"n1"}
