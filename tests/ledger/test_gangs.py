"""Places for pods that start together: for all of them, or none; beside others, holds and quotas."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.decisions import Mode
from ledger.gangs import Place
from ledger.ledger import Ledger
from qos.cluster.gangs import Member, in_order_of_need
from qos.cluster.objects import NodePredicate, NodeSelectorTerm, Pod, Requirement, Taint
from tests.ledger.builders import EVERYWHERE, demand, go, holds, ledger, names, node, nodes, pod
from tests.ledger.test_quotas import made, of, team, used


def at(name: str) -> NodePredicate:
    return NodePredicate(node_selector=(("name", name),))


def place_all(one: Ledger, pods: list[Pod], where: dict[str, NodePredicate] | None = None) -> dict[str, str]:
    """As the extender does: one by one, and nothing if one has no place."""
    for each in pods:
        one.set_pod(each)
    members = [Member(each, "default/gang", where=(where or {}).get(each.uid, EVERYWHERE)) for each in pods]
    open_to = [one.gangs.room(each.pod, each.where).nodes for each in members]
    found: dict[str, str] = {}
    for each in in_order_of_need(members, open_to):
        got = one.gangs.place(each.pod, each.where, 0.0)
        if not got.node:
            for uid in found:
                one.release(uid)
            return {}
        found[each.pod.uid] = got.node
    return found


def free(one: Ledger, cpu: float = 1) -> int:
    return one.gangs.room(pod("probe", cpu), EVERYWHERE).pods


def test_all_have_places_that_nobody_else_gets() -> None:
    one = ledger(*nodes(2, 3))
    assert free(one) == 6
    assert len(place_all(one, [pod(f"g{n}") for n in range(5)])) == 5
    assert go(one, pod("other", 1), names(2))
    late = one.filter(pod("late", 1), names(2), 0.0)
    assert not late.nodes, "kube-scheduler counts none of them yet, and no policy names cpu"
    assert not go(one, pod("high", 1, priority=9), names(2))


def test_none_is_kept_where_one_has_none() -> None:
    one = ledger(*nodes(2, 3))
    assert place_all(one, [pod(f"g{n}") for n in range(7)]) == {}
    assert free(one) == 6
    assert go(one, pod("other", 3), names(2)), "and others are asked as before"


def test_kube_scheduler_is_answered_its_place_and_no_other() -> None:
    one = ledger(*nodes(3, 3))
    places = place_all(one, [pod(f"g{n}") for n in range(2)])
    for uid, there in places.items():
        assert one.filter(pod(uid), names(3), 0.0).nodes == [there]
        assert not one.bind(pod(uid), there, 0.0).refusal
        one.bound(uid, there)


def test_the_promise_ends_when_they_are_seen() -> None:
    one = ledger(*nodes(1, 3))
    (there,) = place_all(one, [pod("g")]).values()
    one.set_pod(pod("g", node=there))
    assert not one._state.promised
    assert one.gangs.place(pod("g"), EVERYWHERE, 0.0) == Place(there), "a claim that it has stays"


@pytest.mark.parametrize("mode", [Mode.GUARD, Mode.STRICT])
def test_pods_in_flight_count(mode: Mode) -> None:
    one = ledger(*nodes(1, 3), demand("app", 0), mode=mode)
    assert go(one, pod("flying", 2), names(1))
    assert place_all(one, [pod("g0"), pod("g1")]) == {}
    assert place_all(one, [pod("g2")])


def test_holds_move_away_or_are_kept() -> None:
    one = ledger(node("n0", 4), node("n1", 4), demand("app", 2, 2))
    one.report()
    assert len(place_all(one, [pod("g0", 4)])) == 1
    assert sum(holds(one, "app").values()) == 2, "its holds went where there is room"
    assert place_all(one, [pod("g1", 2)]) == {}


def test_nodes_that_do_not_admit_them_are_no_room() -> None:
    tainted = node("n1", 4, taints=(Taint("gpu", "", "NoSchedule"),), labels={"name": "n1"})
    one = ledger(node("n0", 4, labels={"name": "n0"}), tainted)
    assert one.gangs.room(pod("g"), EVERYWHERE).pods == 4
    assert one.gangs.room(pod("g"), at("n1")).nodes == 0
    assert "admits" in one.gangs.place(pod("g"), at("n1"), 0.0).why


def test_the_scarcest_resource_is_named() -> None:
    one = ledger(*nodes(2, 8, memory=4))
    room = one.gangs.room(pod("g", 1, memory=3), EVERYWHERE)
    assert (room.pods, room.resource) == (2, "memory")
    one.set_pod(pod("there", 1, memory=4, node="n0"))
    one.set_pod(pod("too", 1, memory=4, node="n1"))
    assert one.gangs.place(pod("g", 1, memory=3), EVERYWHERE, 0.0).why == "no node has enough memory left"
    assert one.gangs.room(pod("g", 1, memory=3), EVERYWHERE, empty=True).pods == 2
    assert one.gangs.room(pod("g", extra={"gpu": 1}), EVERYWHERE).resource == "gpu"


def test_quotas_are_asked_for_all_together_and_one_by_one() -> None:
    one, limits = made(*nodes(2, 8), quotas=(team("web", 2, 3),))
    ask = of("web", pod("ask", 4))
    assert one.gangs.refusal(ask) == ("quota quotas/web: cpu: 4 asked, 0 of 3 taken, 3 left: 3 is its max")
    assert place_all(one, [of("web", pod(f"g{n}")) for n in range(4)]) == {}
    assert used(limits, "web") == 0
    assert len(place_all(one, [of("web", pod(f"h{n}")) for n in range(3)])) == 3
    assert used(limits, "web") == 3


def test_a_parent_counts_gangs_of_two_quotas() -> None:
    above = team("all", 4, 4, is_parent=True)
    one, _ = made(
        *nodes(2, 8), quotas=(above, team("left", 0, 4, parent="all"), team("right", 0, 4, parent="all"))
    )
    assert len(place_all(one, [of("left", pod(f"l{n}")) for n in range(3)])) == 3
    assert place_all(one, [of("right", pod(f"r{n}")) for n in range(2)]) == {}
    assert place_all(one, [of("right", pod("r9"))])


Cluster = tuple[list[tuple[int, int]], list[tuple[int, int, tuple[int, ...]]]]


def feasible(sizes: list[tuple[int, int]], pods: list[tuple[int, int, tuple[int, ...]]]) -> bool:
    """Brute force: is there any way to place them all?"""
    for choice in product(*(where for _, _, where in pods)):
        left = [list(size) for size in sizes]
        for target, (cpu, memory, _) in zip(choice, pods, strict=True):
            left[target][0] -= cpu
            left[target][1] -= memory
        if all(min(one) >= 0 for one in left):
            return True
    return False


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    count = draw(st.integers(1, 3))
    sizes = [(draw(st.integers(1, 6)), draw(st.integers(1, 6))) for _ in range(count)]
    alike = draw(st.booleans())
    size = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    pods = []
    for _ in range(draw(st.integers(1, 5))):
        asked = size if alike else (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
        where = (
            tuple(range(count))
            if alike
            else tuple(sorted(draw(st.sets(st.integers(0, count - 1), min_size=1))))
        )
        pods.append((*asked, where))
    return sizes, pods


def decided(sizes: list[tuple[int, int]], pods: list[tuple[int, int, tuple[int, ...]]]) -> bool:
    there = [node(f"n{n}", cpu, memory, labels={"name": f"n{n}"}) for n, (cpu, memory) in enumerate(sizes)]
    one = ledger(*there)
    members = [pod(f"g{n}", cpu, memory) for n, (cpu, memory, _) in enumerate(pods)]
    where = {f"g{n}": anywhere(targets) for n, (_, _, targets) in enumerate(pods)}
    places = place_all(one, members, where)
    assert not places or len(places) == len(pods)
    for number, (cpu, memory) in enumerate(sizes):
        inside = [pods[int(uid[1:])] for uid, at_node in places.items() if at_node == f"n{number}"]
        assert sum(each[0] for each in inside) <= cpu
        assert sum(each[1] for each in inside) <= memory
        assert all(number in each[2] for each in inside)
    return bool(places)


def anywhere(targets: tuple[int, ...]) -> NodePredicate:
    values = tuple(f"n{n}" for n in targets)
    return NodePredicate(affinity=(NodeSelectorTerm(labels=(Requirement("name", "In", values),)),))


@given(clusters())
@settings(max_examples=150, deadline=None)
def test_never_a_part_and_never_where_brute_force_finds_no_way(cluster: Cluster) -> None:
    sizes, pods = cluster
    found = decided(sizes, pods)
    if found:
        assert feasible(sizes, pods)
    if len({(cpu, memory, where) for cpu, memory, where in pods}) == 1:
        assert found == feasible(sizes, pods), "pods of one kind: nothing is missed"
