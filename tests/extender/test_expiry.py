"""Pods long in flight are settled by a read (trap T09)."""

from __future__ import annotations

import pytest

from adapters.api import PODS
from extender.expiry import Expiry
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Node, Pod
from tests.extender.accounts import Account


def settled_by_none(_uid: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("gone", [("remove_pod", "u")]),
        ("again", [("remove_pod", "u")]),
        ("bound", [("set_pod", "u")]),
        ("pending", [("release", "u"), ("settle", "u")]),
    ],
)
async def test_t09_a_pod_long_in_flight_is_settled_by_a_read(api, clock, make_pod, now, expected):
    account = Account()
    account.late = [Pod(uid="u", namespace="default", name="web", requests={})]
    if now != "gone":
        uid = "other" if now == "again" else "u"
        api.put(PODS, make_pod("web", node="n1" if now == "bound" else "", uid=uid))
    await Expiry(api, account, settles=settled_by_none, clock=clock).run_once()
    assert account.done == expected


async def test_t06_what_the_watch_settled_during_the_read_stays_settled(api, clock, make_pod):
    pod = Pod(uid="u", namespace="default", name="web", requests={"cpu": 1})
    ledger = Ledger(Mode.GUARD, binds=False)
    ledger.set_node(Node("n1", "n1", {"cpu": 2, "pods": 1}))
    ledger.filter(pod, ["n1"], clock())
    clock.advance(600)
    assert ledger.expired(clock()) == [pod]
    api.put(PODS, make_pod("web", node="n1", uid="u"))

    class Slow:
        """The pod is deleted between the read and its answer."""

        async def get(self, *args):
            read = await api.get(*args)
            ledger.remove_pod("u")
            return read

    await Expiry(Slow(), ledger, settles=settled_by_none, clock=clock).run_once()
    assert ledger.gauges()["claims"] == 0


@pytest.mark.parametrize("begins", ["before", "during the read"])
async def test_t04_a_claim_whose_binding_may_still_land_is_left_to_the_binder(api, clock, make_pod, begins):
    """A read shows the pod unbound; its Binding is late."""
    pod = Pod(uid="u", namespace="default", name="web", requests={"cpu": 1})
    ledger = Ledger(Mode.STRICT)
    ledger.set_node(Node("n1", "n1", {"cpu": 2, "pods": 1}))
    ledger.bind(pod, "n1", clock())
    clock.advance(600)
    api.put(PODS, make_pod("web", uid="u"))
    settled = {"u"} if begins == "before" else set()

    class Slow:
        """The binder tries again while the pod is read."""

        async def get(self, *args):
            settled.add("u")
            return await api.get(*args)

    expiry = Expiry(Slow(), ledger, settles=settled.__contains__, clock=clock)
    await expiry.run_once()
    assert ledger.gauges()["claims"] == 1
    settled.clear()
    expiry = Expiry(api, ledger, settles=settled.__contains__, clock=clock)
    await expiry.run_once()
    assert ledger.gauges()["claims"] == 0


async def test_t09_what_cannot_be_read_stays_charged(api, clock):
    account = Account()
    account.late = [Pod(uid="u", namespace="default", name="web", requests={})]
    api.fail("get")
    await Expiry(api, account, settles=settled_by_none, clock=clock).run_once()
    assert account.done == []
