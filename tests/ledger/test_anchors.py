"""Pods whose volumes keep them to some nodes: where holds lie, who fills them, what has no place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.ledger import Ledger
from qos.cluster.objects import Anchor, Demand, Node, NodePredicate, NodeSelectorTerm, Requirement, Spread
from tests.ledger.builders import demand, go, holds, labelled, ledger, node, pod
from tests.ledger.recount import check_columns

ZONE = "topology.kubernetes.io/zone"


def zoned(zones: str, cpu: int = 8) -> list[Node]:
    return [node(f"n{i}", cpu, labels={ZONE: zone}) for i, zone in enumerate(zones)]


def at(zones: str) -> tuple[NodeSelectorTerm, ...]:
    return (NodeSelectorTerm((Requirement(ZONE, "In", tuple(zones)),)),)


def anchors(**by_pod: str) -> tuple[Anchor, ...]:
    """Pod -> the zones of its volume, a letter each."""
    return tuple(
        Anchor((at(zones),), {f"a-{name[1:]}": f"pv-{name[1:]}" for name, z in by_pod.items() if z == zones})
        for zones in dict.fromkeys(by_pod.values())
    )


def anchored(desired: int, cpu: float = 4, **by_pod: str) -> Demand:
    return demand("a", desired, cpu, anchors=anchors(**by_pod))


def member(ordinal: int, cpu: float = 4, **others: Any) -> Any:
    return pod(f"a-{ordinal}", cpu, app="a", **others)


def zones(made: Ledger, names: str) -> dict[str, int]:
    counts = dict.fromkeys(names, 0)
    for name, count in holds(made, "a").items():
        counts[names[int(name[1:])]] += count
    return counts


def reasons(made: Ledger) -> list[tuple[str, int, str]]:
    return [(one.reason, one.count, one.detail) for one in made.report()["default/a"].unplaced]


def test_holds_lie_where_the_volumes_are_and_the_rest_anywhere() -> None:
    made = ledger(*zoned("aabc"), anchored(4, p0="b", p1="b", p2="c"))
    found = zones(made, "aabc")
    assert found["b"] >= 2
    assert found["c"] >= 1
    assert sum(found.values()) == 4
    check_columns(made)


def test_of_a_pod_that_runs_the_volume_does_not_count() -> None:
    made = ledger(*zoned("ab"), anchored(2, p0="a", p1="b"), member(0, node="n0"))
    assert zones(made, "ab") == {"a": 0, "b": 1}
    made.remove_pod("a-0")
    assert zones(made, "ab") == {"a": 1, "b": 1}
    made.set_pod(member(1, node="n1"))
    assert zones(made, "ab") == {"a": 1, "b": 0}


def test_a_pod_returns_to_its_zone_on_a_full_cluster() -> None:
    made = ledger(*zoned("abc", 4), anchored(3, p0="a", p1="b", p2="c"))
    for ordinal, there in enumerate(["n0", "n1", "n2"]):
        assert go(made, member(ordinal), [there]) == there
    made.remove_pod("a-2")
    assert holds(made, "a") == {"n2": 1}
    assert go(made, pod("batch", 4), ["n0", "n1", "n2"]) == ""
    assert go(made, member(2), ["n2"]) == "n2"


def test_volumes_that_are_bound_later_take_their_holds_along() -> None:
    made = ledger(*zoned("ab", 4), demand("a", 1, 4))
    (before,) = holds(made, "a")
    other = "b" if before == "n0" else "a"
    made.set_demand(anchored(1, p0=other))
    assert zones(made, "ab") == {"a": 0, "b": 0} | {other: 1}
    made.set_node(node("n2", 8, labels={ZONE: "c"}))
    made.set_demand(anchored(1, p0="c"))
    assert holds(made, "a") == {"n2": 1}
    check_columns(made)


def test_a_hold_does_not_move_where_its_pod_cannot_follow() -> None:
    made = ledger(*zoned("ab", 4), anchored(1, p0="a"))
    assert made.filter(pod("p", 4), ["n0"], 0.0).nodes == []
    made.set_node(node("n2", 4, labels={ZONE: "a"}))
    assert go(made, pod("p", 4), ["n0"], 5.0) == "n0"
    assert holds(made, "a") == {"n2": 1}


def test_a_pod_that_may_run_anywhere_leaves_others_their_holds() -> None:
    made = ledger(*zoned("ab", 4), anchored(2, p0="a"))
    assert go(made, member(1), ["n0", "n1"]) == "n1"
    assert holds(made, "a") == {"n0": 1}
    assert go(made, member(0), ["n0"]) == "n0"


def test_what_has_no_room_in_its_zone_is_told_with_its_volume() -> None:
    made = ledger(
        node("n0", 8, labels={ZONE: "a"}), node("n1", 2, labels={ZONE: "b"}), anchored(2, p0="a", p1="b")
    )
    assert zones(made, "ab") == {"a": 1, "b": 0}
    assert reasons(made) == [("VolumeNodeAffinity", 1, "pod a-1: pv-1")]
    made.set_node(node("n2", 4, labels={ZONE: "b"}))
    assert holds(made, "a") == {"n0": 1, "n2": 1}


def test_volumes_that_all_pods_share_keep_all_holds_to_their_nodes() -> None:
    where = NodePredicate(volumes=(at("ab"), at("bc")))
    made = ledger(*zoned("abc"), demand("a", 2, 4, where=where, mounted="pv-0"))
    assert holds(made, "a") == {"n1": 2}
    made.set_demand(demand("a", 2, 4, where=NodePredicate(volumes=(at("x"),)), mounted="pv-0"))
    assert reasons(made) == [("VolumeNodeAffinity", 2, "pv-0")]


def test_zones_without_the_volumes_of_all_pods_are_spread_domains_all_the_same() -> None:
    """As kube-scheduler counts: nodeAffinityPolicy does not look at volumes."""
    spread = (Spread(ZONE, 1, labelled("a")),)
    where = NodePredicate(volumes=(at("a"),))
    made = ledger(*zoned("ab"), demand("a", 3, 1, where=where, spread=spread))
    assert zones(made, "ab") == {"a": 1, "b": 0}


def test_holds_are_spread_as_far_as_volumes_let_them() -> None:
    spread = (Spread(ZONE, 1, labelled("a"), required=False),)
    made = ledger(*zoned("abc"), demand("a", 6, 1, anchors=anchors(p0="a", p1="a", p2="a"), spread=spread))
    assert zones(made, "abc") == {"a": 3, "b": 2, "c": 1} or zones(made, "abc") == {"a": 3, "b": 1, "c": 2}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[str, list[int], list[str], int]:
    """The nodes' zones and slots, the zones of each bound volume, and how many more pods there are."""
    names = draw(st.text("abc", min_size=1, max_size=4))
    room = [draw(st.integers(0, 2)) for _ in names]
    volumes = [draw(st.sampled_from(["a", "b", "ab", "bc"])) for _ in range(draw(st.integers(0, 4)))]
    return names, room, volumes, draw(st.integers(0, 2))


def most_filled(names: str, room: list[int], volumes: list[str]) -> int:
    """How many of the volumes' pods can run, by trying every way."""
    if not volumes:
        return 0
    best = most_filled(names, room, volumes[1:])
    for place, zone in enumerate(names):
        if room[place] and zone in volumes[0]:
            rest = [amount - (i == place) for i, amount in enumerate(room)]
            best = max(best, 1 + most_filled(names, rest, volumes[1:]))
    return best


@given(clusters(), st.data())
@pytest.mark.filterwarnings("error")
def test_as_many_slots_are_held_as_brute_force_finds_places_for(
    case: tuple[str, list[int], list[str], int], data: st.DataObject
) -> None:
    names, room, volumes, more = case
    by_pod = {f"p{i}": zone for i, zone in enumerate(volumes)}
    made = ledger(*(node(f"n{i}", n, labels={ZONE: names[i]}) for i, n in enumerate(room)))
    made.set_demand(demand("a", len(volumes) + more, 1, anchors=anchors(**by_pod)))
    found = holds(made, "a")
    bound = most_filled(names, room, volumes)
    assert sum(found.values()) == min(sum(room), bound + more)
    # The pods come in any order, each to where its volume and a hold of its policy are: all find one.
    lie = [found.get(f"n{i}", 0) for i in range(len(names))]
    assert most_filled(names, lie, volumes) >= sum(lie) - more
    came = 0
    for ordinal in data.draw(st.permutations(range(len(volumes) + more))):
        zone = volumes[ordinal] if ordinal < len(volumes) else "abc"
        here = [f"n{i}" for i, z in enumerate(names) if z in zone]
        came += bool(here and go(made, member(ordinal, 1), here))
    assert came == sum(found.values())
    check_columns(made)


def test_a_hold_that_is_for_nobody_any_more_is_let_go() -> None:
    made = ledger(*zoned("ab", 4), anchored(2, p0="b"))
    assert go(made, member(1), ["n1"]) == "n1", "the only node it is sent to"
    assert holds(made, "a") == {}
    assert reasons(made) == [("VolumeNodeAffinity", 1, "pod a-0: pv-0")]
    made.set_node(node("n2", 4, labels={ZONE: "b"}))
    assert holds(made, "a") == {"n2": 1}


def test_a_pod_on_a_lost_node_lacks_its_slot_in_its_zone() -> None:
    made = ledger(*zoned("aba", 4), anchored(1, p0="a"), member(0, node="n0"))
    assert holds(made, "a") == {}
    made.remove_node("n0")
    assert holds(made, "a") == {"n2": 1}


def test_of_too_many_holds_those_leave_that_are_for_nobody() -> None:
    made = ledger(*zoned("abb", 4), anchored(2, p0="a", p1="b"))
    (elsewhere,) = {"n1", "n2"} - holds(made, "a").keys()
    made.set_pod(member(1, node=elsewhere))
    assert holds(made, "a") == {"n0": 1}
    check_columns(made)
