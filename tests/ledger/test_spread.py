"""Topology spread constraints: where holds lie and move, and what is said of those that are unplaced."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Node, NodePredicate, NodeSelectorTerm, Requirement, Spread, Taint
from qos.cluster.spreading import apart, counting, labels_of, together, with_keys
from tests.ledger.builders import demand, go, holds, labelled, ledger, node, pod
from tests.ledger.recount import check_columns

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def zoned(zones: str, cpu: int = 8, **others: Any) -> list[Node]:
    """Nodes n0, n1 .. of these zones, a letter each; "-": without the label."""
    return [
        node(f"n{i}", cpu, labels={HOST: f"n{i}"} | ({ZONE: zone} if zone != "-" else {}), **others)
        for i, zone in enumerate(zones)
    ]


def even(key: str = ZONE, skew: int = 1, app: str = "a", **others: Any) -> Spread:
    return Spread(key, skew, labelled(app), **others)


def spread(app: str, desired: int, *constraints: Spread, **others: Any) -> Any:
    where = with_keys(others.pop("where", NodePredicate()), [c.key for c in constraints if c.keyed])
    return demand(app, desired, spread=constraints, where=where, **others)


def zones(made: Ledger, app: str, names: str) -> dict[str, int]:
    counts = dict.fromkeys(names.replace("-", ""), 0)
    for name, count in holds(made, app).items():
        counts[names[int(name[1:])]] += count
    return counts


def reasons(made: Ledger, app: str) -> list[tuple[str, int, str]]:
    return [(one.reason, one.count, one.detail) for one in made.report()[f"default/{app}"].unplaced]


def test_holds_are_spread_over_zones_as_pods_must_be() -> None:
    made = ledger(*zoned("aab"), spread("a", 4, even()))
    assert zones(made, "a", "aab") == {"a": 2, "b": 2}
    check_columns(made)


def test_what_room_there_is_in_one_zone_does_not_help_beyond_its_skew() -> None:
    made = ledger(*zoned("aabb"), node("n4", 2, labels={ZONE: "c"}), spread("a", 9, even(), cpu=2))
    assert zones(made, "a", "aabbc") == {"a": 2, "b": 2, "c": 1}
    assert reasons(made, "a") == [("Spread", 4, f"{ZONE}, maxSkew 1: c 1, a 2, b 2")]


def test_pods_that_the_selector_matches_count_whosever_they_are() -> None:
    there = [pod(f"p{i}", 1, app="other", node="n0") for i in range(2)]
    counted = even(app="other", itself=False)
    made = ledger(*zoned("ab"), *there, spread("a", 2, counted))
    assert zones(made, "a", "ab") == {"a": 0, "b": 2}
    made.remove_pod("p0")
    made.remove_pod("p1")
    made.set_pod(pod("p2", 1, app="other", node="n1"))
    made.set_pod(pod("p3", 1, app="other", node="n1"))
    assert zones(made, "a", "ab") == {"a": 2, "b": 0}
    check_columns(made)


def test_a_pod_that_is_being_deleted_does_not_count_and_its_slot_follows() -> None:
    there = [pod("p0", 2, app="a", node="n0"), pod("p1", 2, app="a", node="n1")]
    made = ledger(*zoned("ab", 4), *there, spread("a", 3, even()))
    assert sum(zones(made, "a", "ab").values()) == 1
    made.set_pod(pod("p1", 2, app="a", node="n1", deleting=True))
    assert zones(made, "a", "ab") == {"a": 0, "b": 1}
    made.remove_pod("p1")
    assert zones(made, "a", "ab") == {"a": 0, "b": 2}
    check_columns(made)


def test_nothing_is_held_where_the_label_is_missing() -> None:
    made = ledger(*zoned("a-"), spread("a", 9, even(), cpu=2))
    assert zones(made, "a", "a-") == {"a": 4}
    assert holds(made, "a") == {"n0": 4}


def test_a_lost_node_is_made_up_for_in_its_zone_and_a_lost_zone_is_reported() -> None:
    made = ledger(*zoned("aabbcc"), spread("a", 6, even(), cpu=2))
    assert zones(made, "a", "aabbcc") == {"a": 2, "b": 2, "c": 2}
    made.remove_node("n4")
    assert zones(made, "a", "aabbcc") == {"a": 2, "b": 2, "c": 2}
    gone = zoned("aabbcc")[5]
    # Its zone is still one that kube-scheduler counts: it would let no third pod into the others.
    made.set_node(Node(gone.name, gone.uid, gone.allocatable, gone.labels, ready=False))
    assert zones(made, "a", "aabbcc") == {"a": 1, "b": 1, "c": 0}
    assert reasons(made, "a") == [("Spread", 4, f"{ZONE}, maxSkew 1: c 0, a 1, b 1")]
    made.remove_node("n5")
    assert zones(made, "a", "aabbcc") == {"a": 3, "b": 3, "c": 0}


def test_min_domains_counts_the_missing_ones_as_empty() -> None:
    made = ledger(*zoned("ab"), spread("a", 6, even(min_domains=3)))
    assert zones(made, "a", "ab") == {"a": 1, "b": 1}
    assert reasons(made, "a") == [("Spread", 4, f"{ZONE}, maxSkew 1, minDomains 3: a 1, b 1")]
    made.set_node(node("n2", 8, labels={ZONE: "c"}))
    assert zones(made, "a", "abc") == {"a": 2, "b": 2, "c": 2}


def test_node_affinity_and_taints_leave_nodes_out_of_the_domains_as_honoured() -> None:
    pool = NodePredicate(affinity=(NodeSelectorTerm((Requirement("pool", "In", ("x",)),)),))
    here = [node(f"n{i}", 8, labels={ZONE: z, "pool": "x"}) for i, z in enumerate("ab")]
    other = node("n2", 8, labels={ZONE: "c"})
    made = ledger(*here, other, spread("a", 4, even(), where=pool))
    assert zones(made, "a", "abc") == {"a": 2, "b": 2, "c": 0}
    made.set_demand(spread("a", 4, even(honor_affinity=False), where=pool))
    assert zones(made, "a", "abc") == {"a": 1, "b": 1, "c": 0}
    tainted = node("n2", 8, labels={ZONE: "c"}, taints=(Taint("k", "", "NoSchedule"),))
    made = ledger(*zoned("ab"), tainted, spread("a", 4, even()))
    assert zones(made, "a", "abc") == {"a": 1, "b": 1, "c": 0}
    made.set_demand(spread("a", 4, even(honor_taints=True)))
    assert zones(made, "a", "abc") == {"a": 2, "b": 2, "c": 0}


def test_two_constraints_are_both_kept() -> None:
    made = ledger(*zoned("aaabb"), spread("a", 5, even(), even(HOST), cpu=2))
    found = holds(made, "a")
    assert zones(made, "a", "aaabb") == {"a": 3, "b": 2}
    assert max(found.values()) - min(found.get(f"n{i}", 0) for i in range(5)) <= 1


def test_schedule_anyway_is_a_preference() -> None:
    soft = even(required=False)
    made = ledger(*zoned("aab"), spread("a", 4, soft, cpu=2))
    assert zones(made, "a", "aab") == {"a": 2, "b": 2}
    made = ledger(*zoned("aa", 8), node("n2", 2, labels={ZONE: "b"}), spread("a", 6, soft, cpu=2))
    assert zones(made, "a", "aab") == {"a": 5, "b": 1}
    made = ledger(*zoned("a-", 4), spread("a", 4, soft, cpu=2))
    assert holds(made, "a") == {"n0": 2, "n1": 2}


def test_a_hold_moves_within_its_zone_or_not_at_all() -> None:
    made = ledger(*zoned("aab", 4), spread("a", 2, even(), cpu=4))
    (there,) = (name for name in holds(made, "a") if name != "n2")
    assert go(made, pod("p", 4), [there]) == there
    assert zones(made, "a", "aab") == {"a": 1, "b": 1}
    assert made.filter(pod("q", 4), ["n2"], 0.0).nodes == []


def test_a_hold_moves_to_another_zone_as_far_as_the_skew_permits() -> None:
    made = ledger(*zoned("aab", 4), spread("a", 3, even(skew=3), cpu=4))
    made.set_demand(spread("a", 2, even(skew=2), cpu=4))
    for name in ("n0", "n1", "n2"):
        found = holds(made, "a")
        if name in found:
            assert go(made, pod(f"p-{name}", 4), [name]) == name
            break
    assert sum(holds(made, "a").values()) == 2


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.GUARD])
def test_owners_find_all_their_holds_in_the_order_in_which_kube_scheduler_lets_them(mode: Mode) -> None:
    names = "aaabbc"
    made = ledger(*zoned(names), spread("a", 6, even(), cpu=4), mode=mode)
    counts = dict.fromkeys("abc", 0)
    for number in range(6):
        low = min(counts.values())
        shown = [f"n{i}" for i, zone in enumerate(names) if counts[zone] + 1 - low <= 1]
        on = go(made, pod(f"p{number}", 4, app="a"), shown)
        counts[names[int(on[1:])]] += 1
    assert counts == {"a": 2, "b": 2, "c": 2}
    assert holds(made, "a") == {}


def test_too_many_holds_leave_the_fullest_zone_first() -> None:
    made = ledger(*zoned("ab"), pod("p0", 1, app="a", node="n0"), spread("a", 6, even()))
    assert zones(made, "a", "ab") in ({"a": 2, "b": 3}, {"a": 3, "b": 2})
    made.set_demand(spread("a", 3, even()))
    assert zones(made, "a", "ab") in ({"a": 0, "b": 2}, {"a": 1, "b": 1})
    check_columns(made)


def test_a_label_that_changes_moves_a_node_to_another_zone() -> None:
    made = ledger(*zoned("aab"), spread("a", 6, even(), cpu=2))
    made.set_node(node("n2", 8, labels={ZONE: "a", HOST: "n2"}))
    assert sum(holds(made, "a").values()) == 6
    made.set_node(node("n1", 2, labels={ZONE: "b", HOST: "n1"}))
    assert zones(made, "a", "aba") == {"a": 2, "b": 1}
    check_columns(made)


def test_constraints_that_go_are_counted_no_more() -> None:
    made = ledger(*zoned("ab"), spread("a", 2, even()))
    assert made._state.headcount._columns
    made.set_demand(demand("a", 2))
    assert not made._state.headcount._columns
    made.set_demand(spread("a", 2, even()))
    made.remove_demand("default/a")
    assert not made._state.headcount._columns


def test_what_constraints_come_to() -> None:
    keyed = with_keys(NodePredicate(), ["k"])
    assert keyed.affinity == (NodeSelectorTerm((Requirement("k", "Exists"),)),)
    assert with_keys(NodePredicate(affinity=()), ["k"]).affinity == ()
    assert with_keys(NodePredicate(), []) == NodePredicate()
    assert labels_of(labelled("a")) == {"app": "a"}
    assert [one.itself for one in counting([even(), even(app="b")], {"app": "a"})] == [True, False]


def test_anti_affinity_to_itself_is_one_a_domain() -> None:
    made = ledger(
        *zoned("aabbc"), pod("p0", 1, app="a", node="n4"), spread("a", 5, apart(ZONE, labelled("a")))
    )
    assert zones(made, "a", "aabbc") == {"a": 1, "b": 1, "c": 0}
    assert reasons(made, "a") == [("Spread", 2, f"{ZONE}, anti-affinity: a 1, b 1, c 1")]
    made.set_pod(pod("p0", 1, app="a", node="n4", deleting=True))
    assert zones(made, "a", "aabbc") == {"a": 1, "b": 1, "c": 0}, "it is there until it is gone"
    made.remove_pod("p0")
    assert zones(made, "a", "aabbc") == {"a": 1, "b": 1, "c": 1}
    check_columns(made)


def test_anti_affinity_to_others_keeps_off_their_domains() -> None:
    (one,) = counting([apart(ZONE, labelled("other"))], {"app": "a"})
    made = ledger(*zoned("aab-"), pod("p0", 1, app="other", node="n0"), spread("a", 9, one, cpu=2))
    assert holds(made, "a") == {"n2": 4, "n3": 4}
    made.set_pod(pod("p1", 1, app="other", node="n2"))
    assert holds(made, "a") == {"n3": 4}
    made.remove_pod("p0")
    assert sum(holds(made, "a").values()) == 9


def test_affinity_to_others_is_held_beside_them() -> None:
    (one,) = counting([together(ZONE, labelled("other"))], {"app": "a"})
    made = ledger(*zoned("abc-"), spread("a", 3, one, cpu=2))
    assert holds(made, "a") == {}
    assert reasons(made, "a") == [("Spread", 3, f"{ZONE}, affinity: a 0, b 0, c 0")]
    made.set_pod(pod("p0", 1, app="other", node="n1"))
    assert zones(made, "a", "abc") == {"a": 0, "b": 3, "c": 0}
    made.set_pod(pod("p1", 1, app="other", node="n2"))
    made.remove_pod("p0")
    assert zones(made, "a", "abc") == {"a": 0, "b": 0, "c": 3}
    check_columns(made)


def test_affinity_to_itself_begins_where_most_fit_and_stays_with_the_first() -> None:
    made = ledger(*zoned("a", 4), *zoned("abb")[1:], spread("a", 6, together(ZONE, labelled("a")), cpu=2))
    assert zones(made, "a", "abb") == {"a": 0, "b": 6}
    made.set_pod(pod("p0", 1, app="a", node="n0"))
    assert zones(made, "a", "abb")["b"] == 0
    check_columns(made)


def test_a_hold_with_affinity_moves_within_its_zone_alone() -> None:
    made = ledger(*zoned("aab", 4), spread("a", 1, together(ZONE, labelled("a")), cpu=4))
    (on,) = holds(made, "a")
    assert go(made, pod("p", 4), [on]) == on
    (on,) = holds(made, "a")
    assert on != "n2"
    assert made.filter(pod("q", 4), [on], 0.0).nodes == []
