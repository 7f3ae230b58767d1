"""Koordinator's Reservations in the ledger: who uses which, what is held, what a restart finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.decisions import Mode
from ledger.ledger import Ledger
from ledger.refusals import NOT_RESERVED
from qos.cluster.objects import (
    Demand,
    NodePredicate,
    NodeSelectorTerm,
    OwnerFit,
    OwnerReference,
    PlacementMode,
    Pod,
    Requirement,
    Selector,
    Taint,
    Toleration,
)
from qos.cluster.reservation import ControllerRef, PodOwner, Reserved
from tests.ledger.builders import EVERYWHERE, go, labelled, ledger, names, node, nodes, pod
from tests.ledger.builders import demand as policy
from tests.ledger.recount import check_columns


def owned(app: str) -> tuple[PodOwner, ...]:
    return (PodOwner(selector=labelled(app)),)


def reservation(name: str, at: str = "n0", cpu: int = 4, **others: Any) -> Demand:
    """For pods of app web, Available on `at`."""
    owners = others.pop("owners", owned("web"))
    place = NodePredicate(affinity=(NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (at,)),)),))
    vector = {"cpu": cpu * 1000, "memory": 1, "pods": 1}
    return Demand(
        f"/{name}",
        "",
        Selector(),
        vector,
        1,
        priority=others.pop("priority", 1000),
        owner_fit=others.pop("fit", OwnerFit.ALIGNED),
        created=1.0,
        mode=PlacementMode.PINNED,
        where=place if at else EVERYWHERE,
        reserved=Reserved(name, f"uid-{name}", owners, at, **others),
    )


def reserving(*things: Any, **others: Any) -> Ledger:
    return ledger(*things, reservations=True, **others)


def used(of: Ledger, *numbers: str) -> list[str]:
    """Names of those that are used up."""
    return [name for name in numbers if of.reservation(f"/{name}").used_up is not None]


def seen(through: Ledger, who: Pod, at: str, by: str = "") -> None:
    through.set_pod(replace(who, node_name=at, reserved_by=by))


def test_the_first_owner_uses_it_and_the_rest_is_let_go() -> None:
    made = reserving(*nodes(2), reservation("a", cpu=4))
    other = pod("other", cpu=6, app="other")
    assert made.filter(other, ["n0"], 0.0).message == "holds of 1 Reservation are in the way"
    web = pod("web", cpu=2, app="web", namespace="shop")
    assert made.filter(web, names(2), 0.0).nodes == ["n0"]
    decision = made.bind(web, "n0", 0.0)
    assert decision.reservation is not None
    assert decision.reservation.name == "a"
    assert (decision.policy, decision.slot) == ("", False)
    assert used(made, "a") == []  # the Binding may still fail
    made.bound("web", "n0")
    assert used(made, "a") == ["a"]
    assert made.filter(other, ["n0"], 1.0).nodes == ["n0"]
    made.remove_pod("web")
    assert made.report()["/a"].held == 0  # used up for good


def test_a_binding_that_fails_gives_it_back() -> None:
    made = reserving(*nodes(2), reservation("a"))
    web = pod("web", cpu=2, app="web")
    assert go(made, web, names(2)) == "n0"
    assert made.report()["/a"].held == 0
    made.release("web")
    assert made.report()["/a"].held == 1


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.GUARD])
def test_each_owner_has_one_of_several(mode: Mode) -> None:
    made = reserving(*nodes(3), *(reservation(f"r{i}", f"n{i}", 8) for i in range(3)), mode=mode)
    went = {go(made, pod(f"web{i}", cpu=8, app="web"), names(3)) for i in range(3)}
    assert went == {"n0", "n1", "n2"}
    assert not made.filter(pod("web3", cpu=8, app="web"), names(3), 0.0).nodes


def test_owners_in_flight_are_given_different_ones() -> None:
    made = reserving(*nodes(2), reservation("a", "n0", 8), reservation("b", "n1", 8))
    first = made.filter(pod("w0", cpu=8, app="web"), names(2), 0.0).nodes
    second = made.filter(pod("w1", cpu=8, app="web"), names(2), 0.0).nodes
    assert sorted(first + second) == ["n0", "n1"]


def test_a_pod_of_a_restart_is_known_by_its_annotation() -> None:
    web = pod("web", cpu=2, app="web")
    made = reserving(*nodes(2))
    seen(made, web, "n0", "uid-a")
    made.set_demand(reservation("a"))
    assert used(made, "a") == ["a"]
    assert made.report()["/a"].held == 0


@pytest.mark.parametrize(
    ("who", "at"), [(pod("web", app="web"), "n1"), (pod("other", app="other"), "n0")], ids=["node", "owner"]
)
def test_the_annotation_of_a_pod_that_may_not_have_it_is_nothing(who: Pod, at: str) -> None:
    made = reserving(*nodes(2), reservation("a"))
    seen(made, who, at, "uid-a")
    assert used(made, "a") == []
    assert made.report()["/a"].held == 1


def test_an_owner_that_needs_more_takes_the_rest_from_the_node() -> None:
    made = reserving(node("n0", 8), reservation("a", cpu=4))
    assert go(made, pod("web", cpu=8, app="web"), ["n0"]) == "n0"
    crowded = reserving(node("n0", 8), reservation("a", cpu=4), pod("x", cpu=2, node="n0"))
    assert go(crowded, pod("web", cpu=8, app="web"), ["n0"]) == ""


def test_restricted_gives_it_to_no_pod_that_asks_for_more() -> None:
    made = reserving(node("n0", 8), reservation("a", cpu=4, fit=OwnerFit.RESTRICTED))
    assert go(made, pod("large", cpu=5, app="web"), ["n0"]) == ""
    assert go(made, pod("other", cpu=4, app="web", extra={"gpu": 1}), ["n0"]) == "n0"


def test_it_is_used_only_where_it_is_available() -> None:
    made = reserving(*nodes(1), reservation("a", "", cpu=8))
    assert made.report()["/a"].held == 1
    assert made.filter(pod("web", app="web"), ["n0"], 0.0).nodes == []
    made.set_demand(reservation("a", "n0", cpu=8))
    assert made.filter(pod("web", app="web"), ["n0"], 1.0).nodes == ["n0"]


def test_pods_that_waited_are_woken_when_it_is_available() -> None:
    made = reserving(*nodes(1), reservation("a", "", cpu=8))
    web = pod("web", app="web")
    made.set_pod(web)
    assert made.filter(web, ["n0"], 0.0).nodes == []
    made.set_demand(reservation("a", "n0", cpu=8))
    assert made.waiting(1.0) == [web]


@pytest.mark.parametrize(
    ("rules", "usable"),
    [
        ({"unschedulable": True}, False),
        ({"taints": (Taint("k", "v", "NoSchedule"),)}, False),
        ({"owners": (PodOwner(name="web", namespace="default"),)}, True),
        ({"owners": (PodOwner(uid="another"),)}, False),
        ({"owners": (PodOwner(controller=ControllerRef("ReplicaSet", "rs", namespace="default")),)}, True),
        ({"owners": (PodOwner(controller=ControllerRef("ReplicaSet", "rs", namespace="else")),)}, False),
        ({"owners": (PodOwner(uid="another"), PodOwner(selector=labelled("web")))}, True),
        ({"owners": (PodOwner(name="web", selector=labelled("another")),)}, False),
        ({"owners": (PodOwner(),)}, True),
        ({"owners": (PodOwner(selector=Selector((Requirement("app", "Exists"),))),)}, True),
    ],
)
def test_who_may_use_it(rules: dict[str, Any], usable: bool) -> None:
    made = reserving(*nodes(1), reservation("a", cpu=8, **rules))
    web = pod("web", app="web", controller=OwnerReference("ReplicaSet", "rs", "rs-uid", "apps/v1"))
    assert bool(made.filter(web, ["n0"], 0.0).nodes) is usable


def test_the_lowest_order_is_first_and_then_the_fullest() -> None:
    rooms = [node(f"n{i}", 16) for i in range(4)]
    some = reservation("big", "n0", 8), reservation("small", "n1", 3), reservation("last", "n2", 3, order=7)
    made = reserving(*rooms, *some, reservation("first", "n3", 8, order=5))
    went = [go(made, pod(f"w{i}", cpu=2, app="web"), names(4)) for i in range(4)]
    assert went == ["n3", "n2", "n1", "n0"]


def selecting(**selector: str) -> NodePredicate:
    return NodePredicate(tuple(sorted(selector.items())))


def test_affinity_makes_it_a_must() -> None:
    made = reserving(*nodes(2), reservation("a", labels={"tier": "gold"}))
    silver = pod("s", app="web", reservation_affinity=selecting(tier="silver"))
    refused = made.filter(silver, names(2), 0.0)
    assert refused.refused(names(2)) == dict.fromkeys(names(2), NOT_RESERVED)
    assert made.bind(silver, "n1", 0.0).refusal == NOT_RESERVED
    gold = pod("g", app="web", reservation_affinity=selecting(tier="gold"))
    assert made.filter(gold, names(2), 1.0).nodes == ["n0"]
    assert made.preempt(silver, {"n0": []}, 0.0) == []


def test_taints_are_tolerated_by_the_affinity() -> None:
    made = reserving(*nodes(1), reservation("a", cpu=8, taints=(Taint("k", "v", "NoSchedule"),)))
    tolerant = NodePredicate(tolerations=(Toleration("k", "Exists"),))
    assert made.filter(pod("w", app="web", reservation_affinity=tolerant), ["n0"], 0.0).nodes == ["n0"]


def test_where_nobody_asked_for_them_pods_words_mean_nothing() -> None:
    made = ledger(*nodes(1))
    assert made.filter(pod("w", reservation_affinity=selecting(a="b")), ["n0"], 0.0).nodes == ["n0"]


def test_a_policys_pod_uses_none_unless_it_must() -> None:
    made = reserving(*nodes(2), policy("web", 1, cpu=8), reservation("a", "n0", 4))
    (held,) = dict(made.report()["default/web"].holds)
    assert held == "n1"
    assert made.filter(pod("w0", cpu=4, app="web"), names(2), 0.0).nodes == ["n1"]
    made.set_pod(pod("w1", cpu=4, app="web", reservation_affinity=NodePredicate()))
    must = pod("w1", cpu=4, app="web", reservation_affinity=NodePredicate())
    assert made.filter(must, names(2), 0.0).nodes == ["n0"]
    decision = made.bind(must, "n0", 0.0)
    assert (decision.policy, decision.slot) == ("default/web", False)


def test_a_node_that_comes_back_is_held_again() -> None:
    made = reserving(*nodes(2), reservation("a", "n0"))
    made.set_node(node("n0", ready=False))
    assert made.report()["/a"].held == 0
    made.set_node(node("n0"))
    assert dict(made.report()["/a"].holds) == {"n0": 1}


def test_a_removed_one_leaves_its_user_an_ordinary_pod() -> None:
    made = reserving(*nodes(2), reservation("a"))
    seen(made, pod("web", cpu=2, app="web"), "n0", "uid-a")
    made.remove_demand("/a")
    made.report()
    made.set_demand(policy("web", 1, cpu=2))
    assert made.report()["default/web"].filled == 1


def shared(name: str, at: str = "n0", cpu: int = 6, **others: Any) -> Demand:
    return reservation(name, at, cpu, shared={"cpu": cpu * 1000, "memory": 1, "pods": 1}, **others)


def kept(of: Ledger, name: str = "a") -> int:
    """CPU that is held of it, in millicores."""
    report = of.report()[f"/{name}"]
    number = of._state.demands.numbers[f"/{name}"]
    return report.held * of._state.demands[number].vector["cpu"]


def test_several_share_it_and_what_they_leave_is_held() -> None:
    made = reserving(node("n0", 8), shared("a"))
    assert kept(made) == 6000
    assert go(made, pod("w0", cpu=2, app="web"), ["n0"]) == "n0"
    assert kept(made) == 4000
    assert go(made, pod("w1", cpu=3, app="web"), ["n0"]) == "n0"
    assert kept(made) == 1000
    assert made.filter(pod("x", cpu=3, app="x"), ["n0"], 0.0).nodes == []
    assert made.filter(pod("x", cpu=2, app="x"), ["n0"], 1.0).nodes == ["n0"]
    made.remove_pod("x")
    assert [use.pod.name for use in made.reservation("/a").uses] == []  # no Binding is known to have happened
    for name in ("w0", "w1"):
        made.bound(name, "n0")
    assert sorted(use.pod.name for use in made.reservation("/a").uses) == ["w0", "w1"]
    made.remove_pod("w0")
    assert kept(made) == 3000


def test_owners_in_flight_share_it_too() -> None:
    made = reserving(node("n0", 8), shared("a", cpu=8))
    for number in range(3):
        assert made.filter(pod(f"w{number}", cpu=2, app="web"), ["n0"], 0.0).nodes == ["n0"]
    assert kept(made) == 2000
    assert made.filter(pod("x", cpu=1, app="x"), ["n0"], 0.0).nodes == []
    made.settle("w2")
    assert kept(made) == 4000


def test_what_an_owner_in_flight_takes_of_one_is_no_room_for_holds() -> None:
    made = reserving(node("n0", 8), shared("a", cpu=2), policy("c", 2, cpu=4))
    web = pod("web", cpu=4, app="web")  # half of it beyond what is reserved
    made.report()
    assert made.filter(web, ["n0"], 0.0).nodes == ["n0"]
    assert made.report()["default/c"].held == 1
    assert not made.bind(web, "n0", 0.0).refusal


def test_what_an_owner_in_flight_takes_of_one_stays_its_own_where_others_may_not_come() -> None:
    """kube-scheduler shows room there, so some pods in flight do not come; nothing else holds the part."""
    made = reserving(node("n0", 8), shared("a", cpu=6, priority=10), policy("c", 1, cpu=4), mode=Mode.GUARD)
    assert made.report()["default/c"].missing == 1
    assert made.filter(pod("web", cpu=6, app="web"), ["n0"], 0.0).nodes == ["n0"]
    assert made.filter(pod("above", cpu=3, priority=100), ["n0"], 1.0).nodes == ["n0"]
    made.remove_pod("above")
    assert made.report()["default/c"].missing == 1
    assert made.filter(pod("c", cpu=4, app="c"), ["n0"], 2.0).nodes == []


def test_nobody_is_evicted_for_a_share_that_is_held_again() -> None:
    made = reserving(node("n0", 4), shared("a", cpu=4))
    seen(made, pod("web", cpu=4, app="web", priority=0), "n0", "uid-a")
    assert made.preempt(pod("x", cpu=2, app="x", priority=10), {"n0": ["web"]}, 0.0) == []
    assert made.preempt(pod("above", cpu=2, app="x", priority=2000), {"n0": ["web"]}, 0.0) == ["n0"]
    assert made.preempt(pod("owner", cpu=2, app="web", priority=10), {"n0": ["web"]}, 0.0) == ["n0"]


def test_what_evictions_win_beyond_a_share_is_won() -> None:
    made = reserving(node("n0", 4), shared("a", cpu=1))
    seen(made, pod("web", cpu=4, app="web", priority=0), "n0", "uid-a")
    assert made.preempt(pod("x", cpu=3, app="x", priority=10), {"n0": ["web"]}, 0.0) == ["n0"]
    assert made.preempt(pod("y", cpu=4, app="x", priority=10), {"n0": ["web"]}, 0.0) == []


def test_a_shared_one_that_is_full_is_held_again_when_a_pod_ends() -> None:
    made = reserving(node("n0", 8), shared("a"))
    web = pod("w0", cpu=6, app="web", memory=1)
    assert go(made, web, ["n0"]) == "n0"
    seen(made, web, "n0", "uid-a")
    assert kept(made) == 0
    assert not made.reservation("/a").lacking
    made.remove_pod("w0")
    assert kept(made) == 6000


def test_restricted_and_shared_only_the_rest_is_given() -> None:
    made = reserving(node("n0", 16), shared("a", fit=OwnerFit.RESTRICTED))
    assert go(made, pod("w0", cpu=4, memory=0, app="web"), ["n0"]) == "n0"
    must = NodePredicate()
    large = pod("w1", cpu=3, memory=0, app="web", reservation_affinity=must)
    assert made.filter(large, ["n0"], 0.0).nodes == []
    assert go(made, pod("w2", cpu=2, memory=0, app="web", reservation_affinity=must), ["n0"]) == "n0"


def test_a_restart_finds_who_shares_it() -> None:
    made = reserving(node("n0", 8))
    seen(made, pod("w0", cpu=2, app="web"), "n0", "uid-a")
    made.set_demand(shared("a"))
    assert kept(made) == 4000
    made.set_demand(shared("a", order=3))
    assert kept(made) == 4000


def test_one_that_comes_to_be_shared_or_to_be_for_one_pod_counts_its_pods_anew() -> None:
    made = reserving(node("n0", 16), shared("a", cpu=4))
    for name in ("w0", "w1"):
        seen(made, pod(name, cpu=1, app="web"), "n0", "uid-a")
    assert kept(made) == 2000
    made.set_demand(reservation("a", cpu=4))
    assert kept(made) == 0, "it is used up"
    made.remove_pod("w0")
    assert kept(made) == 0
    made.set_demand(shared("a", cpu=4))
    assert kept(made) == 3000
    made.remove_pod("w1")
    assert kept(made) == 4000
    check_columns(made)


def test_the_last_part_is_given_too() -> None:
    made = reserving(node("n0", 8), shared("a", cpu=3))
    must = NodePredicate()
    for number in range(3):
        who = pod(f"w{number}", cpu=1, memory=0, app="web", reservation_affinity=must)
        assert go(made, who, ["n0"]) == "n0"
    assert kept(made) == 0
    assert go(made, pod("w3", cpu=1, memory=0, app="web", reservation_affinity=must), ["n0"]) == ""
    assert go(made, pod("w4", cpu=1, memory=0, app="web"), ["n0"]) == "n0"
    assert [claim.owner for claim in made._state.claims.by_uid.values()] == [0, 0, 0, -1]
