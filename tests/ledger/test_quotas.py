"""Quotas in filter, bind and what waits: the ledger with a real account of quotas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.decisions import Mode
from ledger.ledger import Ledger
from ledger.offers import EVICTION_SECONDS
from qos import keys
from qos.cluster.objects import Pod, Requirement, Selector
from qos.cluster.quota import ElasticQuota
from quota.account import Account
from quota.limits import Limits
from tests.ledger.builders import demand, go, ledger, names, nodes, pod
from tests.quota.builders import quota

CORE = 1000


def of(name: str, who: Pod, *, firm: bool = False) -> Pod:
    labels = {**who.labels, keys.QUOTA_NAME_LABEL: name}
    if firm:
        labels[keys.QUOTA_PREEMPTIBLE_LABEL] = "false"
    return replace(who, labels=labels)


def team(name: str, least: int, most: int, **others: Any) -> ElasticQuota:
    return quota(name, {"cpu": most * CORE}, {"cpu": least * CORE}, **others)


def made(*things: Any, quotas: tuple[ElasticQuota, ...], mode: Mode = Mode.STRICT) -> tuple[Ledger, Limits]:
    limits = Limits()
    one = ledger(*things, mode=mode, quotas=limits)
    for each in quotas:
        one.set_quota(each)
    return one, limits


def used(limits: Limits, name: str) -> int:
    limits.settle()
    return limits.account.stands(f"quotas/{name}", "cpu").used // CORE


def test_filter_refuses_beyond_runtime_and_says_why() -> None:
    one, limits = made(*nodes(2), quotas=(team("web", 2, 3),))
    assert go(one, of("web", pod("a", 2)), names(2))
    said = one.filter(of("web", pod("b", 2)), names(2), 0.0)
    assert not said.nodes
    assert said.message == "quota quotas/web: cpu: 2 asked, 2 of 3 taken, 1 left: 3 is its max"
    assert not said.resolvable, "no node lacks room: kube-scheduler would find no victim there"
    assert go(one, of("web", pod("c", 1)), names(2))
    assert used(limits, "web") == 3
    assert go(one, pod("d", 4), names(2)), "another's pod is not concerned"


def test_what_a_sibling_wants_of_its_min_is_not_given_away() -> None:
    one, _ = made(*nodes(1), quotas=(team("web", 4, 8), team("data", 4, 8)))
    one.set_pod(of("web", pod("waits", 4)))
    assert go(one, of("data", pod("a", 4)), names(1))
    assert "4 is what it may use now" in one.filter(of("data", pod("b", 1)), names(1), 0.0).message


def test_a_parent_refuses_as_well() -> None:
    above = team("all", 4, 4, is_parent=True)
    one, _ = made(
        *nodes(2), quotas=(above, team("left", 0, 4, parent="all"), team("right", 0, 4, parent="all"))
    )
    assert go(one, of("left", pod("a", 3)), names(2))
    assert "2 asked" in one.filter(of("right", pod("b", 2)), names(2), 0.0).message
    one.set_quota(replace(above, max={"cpu": 8 * CORE}, min={"cpu": 8 * CORE}))
    assert go(one, of("right", pod("b", 2)), names(2))


def test_what_nobody_may_evict_is_within_min() -> None:
    one, _ = made(*nodes(1), quotas=(team("web", 2, 8),))
    assert go(one, of("web", pod("a", 2), firm=True), names(1))
    assert "its min" in one.filter(of("web", pod("b", 1), firm=True), names(1), 0.0).message
    assert go(one, of("web", pod("c", 1)), names(1))


def test_two_that_both_passed_filter_are_told_apart_in_bind() -> None:
    one, limits = made(*nodes(2), quotas=(team("web", 0, 2),))
    a, b = (of("web", pod(name, 2)) for name in "ab")
    assert one.filter(a, names(2), 0.0).nodes
    assert one.filter(b, names(2), 0.0).nodes
    assert not one.bind(a, "n0", 0.0).refusal
    assert "its max" in one.bind(b, "n1", 0.0).refusal
    one.release("a")
    assert used(limits, "web") == 0
    assert not one.bind(b, "n1", 0.0).refusal


def test_where_bind_cannot_refuse_a_pod_in_flight_is_counted() -> None:
    one, limits = made(*nodes(2), quotas=(team("web", 0, 2),), mode=Mode.GUARD)
    assert one.filter(of("web", pod("a", 2)), names(2), 0.0).nodes
    assert not one.filter(of("web", pod("b", 2)), names(2), 0.0).nodes
    assert used(limits, "web") == 2
    one.remove_pod("a")
    assert used(limits, "web") == 0


def test_observe_counts_and_refuses_nothing() -> None:
    one, limits = made(*nodes(2), quotas=(team("web", 0, 2),), mode=Mode.OBSERVE)
    for name in "ab":
        assert go(one, of("web", pod(name, 2)), names(2))
    assert used(limits, "web") == 4
    assert one.filter(of("web", pod("c", 1)), names(2), 0.0).withheld == 2


def test_who_is_exempt_passes_and_is_counted() -> None:
    one, limits = made(*nodes(1), quotas=(team("web", 0, 2),))
    assert go(one, of("web", pod("a", 3, priority=2_000_000_000)), names(1))
    assert used(limits, "web") == 3


def test_holds_are_taken_and_their_owner_gets_in() -> None:
    selector = Selector(
        (Requirement("app", "In", ("shop",)), Requirement(keys.QUOTA_NAME_LABEL, "In", ("web",)))
    )
    one, limits = made(*nodes(2), demand("shop", 2, 2, selector=selector), quotas=(team("web", 4, 5),))
    one.report()
    assert "4 of 5 taken" in one.filter(of("web", pod("b", 2)), names(2), 0.0).message
    assert limits.account.stands("quotas/web", "cpu").held == 4 * CORE
    owner = of("web", pod("a", 2, app="shop"))
    assert go(one, owner, names(2))
    one.filter(of("web", pod("b", 2)), names(2), 0.0)
    stands = limits.account.stands("quotas/web", "cpu")
    assert (stands.used, stands.held) == (2 * CORE, 2 * CORE)


def test_a_floor_beyond_max_lets_its_owner_in_all_the_same() -> None:
    selector = Selector(
        (Requirement("app", "In", ("shop",)), Requirement(keys.QUOTA_NAME_LABEL, "In", ("web",)))
    )
    one, _ = made(*nodes(2), demand("shop", 4, 2, selector=selector), quotas=(team("web", 1, 2),))
    one.report()
    assert go(one, of("web", pod("a", 2, app="shop")), names(2))
    assert not go(one, of("web", pod("b", 1)), names(2))


def test_t21_a_pod_is_woken_when_its_quota_has_room() -> None:
    one, _ = made(*nodes(2), quotas=(team("web", 0, 2), team("data", 0, 2)))
    assert go(one, of("web", pod("a", 2)), names(2))
    for name in ("b", "c", "d"):
        assert not one.filter(of("web", pod(name, 1)), names(2), 0.0).nodes
    assert one.waiting(1.0) == []
    assert go(one, of("data", pod("e", 2)), names(2))
    assert one.waiting(2.0) == []
    one.remove_pod("a")
    assert [who.uid for who in one.waiting(3.0)] == ["b", "c"], "as many as there is room for"


def test_t21_a_pod_is_woken_when_a_sibling_asks_for_less() -> None:
    one, _ = made(*nodes(1), quotas=(team("web", 4, 8), team("data", 4, 8)))
    one.set_pod(of("web", pod("waits", 4)))
    assert not one.filter(of("data", pod("a", 8)), names(1), 0.0).nodes
    assert one.waiting(1.0) == []
    one.remove_pod("waits")
    assert [who.uid for who in one.waiting(2.0)] == ["a"]


def test_t14_what_victims_leave_of_a_quota_is_their_preemptors() -> None:
    one, _ = made(*nodes(2), quotas=(team("web", 0, 2),))
    assert go(one, of("web", pod("victim", 2, priority=1)), names(2))
    high = of("web", pod("high", 2, priority=10))
    one.set_pod(replace(high, nominated_node_name="n0"))
    one.remove_pod("victim")
    assert not one.filter(of("web", pod("low", 2, priority=1)), names(2), 0.0).nodes
    assert go(one, high, ["n0"])


def test_a_pod_asked_about_before_the_watch_shows_it_is_counted_once() -> None:
    one, limits = made(*nodes(1), quotas=(team("web", 0, 4),))
    a = of("web", pod("a", 2))
    assert go(one, a, names(1))
    one.set_pod(a)
    one.set_pod(replace(a, node_name="n0"))
    assert used(limits, "web") == 2
    one.set_pod(replace(a, node_name="n0", phase="Succeeded"))
    assert used(limits, "web") == 0


def test_a_status_that_changes_is_no_news() -> None:
    limits, one = Limits(), team("web", 1, 2)
    assert limits.set(one)
    assert not limits.set(replace(one, resource_version="7"))
    limits.settle()
    assert not limits.set(replace(one, resource_version="8"))
    assert limits.set(replace(one, max={"cpu": 1}))


def test_only_nodes_that_are_ready_count() -> None:
    one, limits = made(*nodes(2), quotas=(team("web", 0, 100),))
    one.filter(of("web", pod("a", 1)), names(2), 0.0)
    assert limits.account.whole("")["cpu"].runtime == 16 * CORE
    one.set_node(replace(nodes(1)[0], ready=False))
    one.filter(of("web", pod("a", 1)), names(2), 0.0)
    assert limits.account.whole("")["cpu"].runtime == 8 * CORE


def recounted(one: Ledger, limits: Limits) -> Account:
    """An account made anew, from what the ledger knows."""
    state = one._state
    limits.settle()
    fresh = Account()
    fresh.change(limits.account.book)
    charged = [*state.claims.by_uid.values(), *state.flights.by_uid.values()]
    known = {each.pod.uid: each.pod for each in charged} | state.asked | state.pods
    for uid, who in known.items():
        taken = uid in state.claims.by_uid or uid in state.flights.by_uid or bool(who.node_name)
        fresh.count(who, bound=taken)  # one that has ended is not counted
    return fresh


@settings(max_examples=60, deadline=None)
@given(data=st.data(), mode=st.sampled_from(list(Mode)), binds=st.booleans())
def test_the_account_follows_whatever_happens(data: st.DataObject, mode: Mode, binds: bool) -> None:
    limits = Limits()
    one = ledger(*nodes(3), demand("shop", 2, 1), mode=mode, binds=binds, quotas=limits)
    for each in (team("web", 4, 8), team("data", 2, 8)):
        one.set_quota(each)
    who = {f"p{i}": of("web" if i % 2 else "data", pod(f"p{i}", 1 + i % 3)) for i in range(6)}
    for now in range(data.draw(st.integers(1, 25))):
        name = data.draw(st.sampled_from(sorted(who)))
        match data.draw(
            st.sampled_from(["filter", "bind", "bound", "release", "set", "seen", "ended", "remove", "node"])
        ):
            case "filter":
                one.filter(who[name], names(3), float(now))
            case "bind":
                one.bind(who[name], "n1", float(now))
            case "bound":
                one.bound(name, "n1")
            case "release":
                one.release(name)
            case "set":
                one.set_pod(who[name])
            case "seen":
                one.set_pod(replace(who[name], node_name="n2"))
            case "ended":
                one.set_pod(replace(who[name], node_name="n2", phase="Failed"))
            case "remove":
                one.remove_pod(name)
            case "node":
                one.remove_node("n2")
    fresh = recounted(one, limits)
    for key in ("quotas/web", "quotas/data"):
        real, anew = limits.account.stands(key, "cpu"), fresh.stands(key, "cpu")
        assert (real.used, real.request) == (anew.used, anew.request)


@pytest.mark.parametrize("mode", list(Mode))
def test_no_quota_is_ever_overdrawn_where_pods_may_be_refused(mode: Mode) -> None:
    one, limits = made(*nodes(4), quotas=(team("web", 2, 5), team("data", 2, 5)), mode=mode)
    for i in range(20):
        go(one, of("web" if i % 2 else "data", pod(f"p{i}", 1)), names(4), float(i))
    assert used(limits, "web") == used(limits, "data") == (10 if mode is Mode.OBSERVE else 5)


def evicting(one: Ledger, who: Pod, **victims: str) -> list[str]:
    return one.preempt(who, {node: [uid] for node, uid in victims.items()}, 0.0)


def test_t23_preempt_keeps_victims_of_the_same_quota_alone() -> None:
    one, _ = made(
        of("web", pod("a", 8, node="n0")),
        of("data", pod("b", 8, node="n1")),
        pod("c", 8, node="n2"),
        *nodes(3),
        quotas=(team("web", 8, 8), team("data", 8, 16)),
    )
    high = of("web", pod("high", 8, priority=10))
    assert evicting(one, high, n0="a", n1="b", n2="c") == ["n0"]
    assert evicting(one, pod("other", 8, priority=10), n0="a", n1="b", n2="c") == ["n2"]
    daemon = pod("system", 8, priority=2_000_000_000)
    assert evicting(one, daemon, n0="a", n1="b", n2="c") == ["n0", "n1", "n2"]


def test_t23_preempt_drops_what_frees_nothing_of_the_quota() -> None:
    """A pod that its quota refuses all the same would have others evicted without end."""
    one, _ = made(
        of("web", pod("a", 2, node="n0")),
        of("web", pod("firm", 6, node="n1", priority=20)),
        *nodes(2),
        quotas=(team("web", 8, 8),),
    )
    assert evicting(one, of("web", pod("small", 2, priority=10)), n0="a") == ["n0"]
    assert evicting(one, of("web", pod("large", 4, priority=10)), n0="a") == []


def test_preempt_takes_back_what_is_owed() -> None:
    one, _ = made(
        of("data", pod("a", 4, node="n0")),
        of("data", pod("b", 4, node="n0")),
        *nodes(1),
        quotas=(team("web", 4, 8), team("data", 4, 8)),
    )
    who = of("web", pod("high", 4, priority=10))
    assert one.preempt(who, {"n0": ["a", "b"]}, 0.0) == [], "more than is owed"
    assert evicting(one, who, n0="a") == ["n0"]


def test_a_victim_whose_eviction_failed_counts_for_its_quota() -> None:
    """kube-scheduler knows no quotas: it finds room on the node once another pod has ended there."""
    there = (of("web", pod("victim", 3, node="n0")), pod("stays", 1, node="n0"), pod("ends", 3, node="n0"))
    one, _ = made(*there, *nodes(1), quotas=(team("web", 6, 6),), mode=Mode.GUARD)
    who = of("web", pod("high", 4, priority=10))
    one.set_pod(who)
    assert evicting(one, who, n0="victim") == ["n0"]
    who = replace(who, nominated_node_name="n0")
    one.set_pod(who)
    one.remove_pod("ends")
    assert one.filter(who, ["n0"], EVICTION_SECONDS - 1).nodes == ["n0"]
    assert not one.filter(who, ["n0"], EVICTION_SECONDS + 1).nodes
    one.set_pod(replace(there[0], deleting=True))
    assert one.filter(who, ["n0"], EVICTION_SECONDS + 2).nodes == ["n0"]
