"""Who fills slots, and what outlives: pods that nobody has seen end are asked for, and seats are no more."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from adapters.api import PODS, Unreachable
from adapters.kubernetes import decode
from extender.lives import Lives
from ledger.bind import NO_SLOT
from ledger.seats import gather_untrue
from qos.cluster.objects import Demand
from qos.cluster.remembered import Outliving, Remembered
from tests.ledger.builders import demand, ledger, nodes
from tests.qos.builders import policy

KEY = "default/web"
NOW = 1_800_000_000.0
POLICY = policy(key=KEY, namespace="default", name="web", once=True, delay=30.0)


def known(*uids: str, gone: int = 0) -> Remembered:
    return Remembered(gone, dict.fromkeys(uids, "n0"))


@pytest.fixture
def desk(api, make_pod):
    """(names, slots, used by) -> the ledger of pods that run, and the demand; a pod's UID is uid-NAME."""

    def make(names: str, slots: int = 3, used_by: str = "") -> tuple[object, Demand]:
        asked = replace(demand("web", slots, cpu=0), asked=3, used_by=frozenset(used_by.split()))
        made = ledger(*nodes(1, pods=10_000), asked)
        for name in names.split():
            made.set_pod(
                decode.pod(orjson.dumps(api.put(PODS, make_pod(name, cpu="0", app="web", node="n0"))))
            )
        return made, asked

    return make


def uid(api, name: str) -> str:
    return str(api.get_object(PODS, "default", name)["metadata"]["uid"])


async def test_a_pod_that_was_seen_to_end_is_not_asked_for(api, desk):
    made, asked = desk("a b")
    a, b = uid(api, "a"), uid(api, "b")
    made.remove_pod(a)
    api.fail("list_page")
    told = await Lives(api, made).advanced(replace(POLICY, remembered=known(a, b)), asked, NOW)
    assert told == Remembered(0, {b: "n0"}, (Outliving(a, "n0", NOW + 30),))


async def test_a_pod_that_nobody_has_seen_is_asked_for_once(api, desk):
    made, asked = desk("b")
    lives, was = Lives(api, made), replace(POLICY, remembered=known("old", uid(api, "b")))
    for _ in range(2):  # the second time there is no answer
        told = await lives.advanced(was, asked, NOW)
        assert told == Remembered(0, {uid(api, "b"): "n0"}, (Outliving("old", "n0", NOW + 30),))
        api.fail("list_page")


async def test_a_pod_that_no_watch_has_shown_yet_fills_its_slot(api, desk, make_pod):
    made, asked = desk("b")
    api.put(PODS, make_pod("late", cpu="0", app="web", node="n0"))
    was = known(uid(api, "late"), uid(api, "b"))
    assert await Lives(api, made).advanced(replace(POLICY, remembered=was), asked, NOW) == was


async def test_what_cannot_be_read_has_not_ended(api, desk):
    made, asked = desk("b")
    was = known("old", uid(api, "b"))
    api.fail("list_page", Unreachable("no answer"))
    assert await Lives(api, made).advanced(replace(POLICY, remembered=was), asked, NOW) == was


def test_a_slot_whose_pod_has_just_ended_is_nobodys(api, desk):
    """Its end is not written yet: who comes now has no floor on the node."""
    made, _ = desk("b", slots=2, used_by="a")
    made.set_pod(replace(made.known(uid(api, "b")), slot=KEY))
    coming = replace(made.known(uid(api, "b")), uid="c", name="c", node_name="", slot=None)
    decided = made.bind(coming, "n0", 1.0)
    assert (decided.refusal, decided.policy, decided.slot) == ("", KEY, False)
    made.set_pod(replace(coming, node_name="n0", slot=NO_SLOT))
    untrue = [one for one in gather_untrue(made._state) if one is not None]
    assert [one.wanted for one in untrue] == [()]
