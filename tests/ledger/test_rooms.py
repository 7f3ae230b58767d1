"""Either kube-scheduler or the leader makes room for a pod, whoever comes first."""

from __future__ import annotations

from dataclasses import replace

from ledger.ledger import Ledger
from ledger.offers import EVICTION_SECONDS
from ledger.refusals import WAITS_FOR_VICTIMS
from ledger.rooms import LEADER_SECONDS
from qos.cluster.objects import Pod
from tests.ledger.builders import demand, ledger, nodes, pod
from tests.ledger.test_quotas import made, of, team

HIGH = 50


def full() -> tuple[Ledger, Pod]:
    """A node that a pod of lower priority fills, and one that waits."""
    one = ledger(*nodes(1), pod("v", 8, node="n0"), demand("a", 1, 1))
    one.set_pod(who := pod("p", 8, priority=HIGH))
    return one, who


def test_nobody_is_preempted_for_a_pod_that_the_leader_makes_room_for() -> None:
    one, who = full()
    assert one.make_room(who, "n0", 0.0)
    assert one.preempt(who, {"n0": ["v"]}, 1.0) == []
    assert one.make_room(who, "n0", LEADER_SECONDS - 1), "as long as it goes on"
    assert one.preempt(who, {"n0": ["v"]}, LEADER_SECONDS + 1) == []
    assert one.preempt(who, {"n0": ["v"]}, 2 * LEADER_SECONDS) == ["n0"], "it is gone"


def test_the_leader_ends_for_nobody_whom_kube_scheduler_preempts_for() -> None:
    one, who = full()
    assert one.preempt(who, {"n0": ["v"]}, 0.0) == ["n0"]
    assert not one.make_room(who, "n0", EVICTION_SECONDS - 1), "its victims need not show yet"
    assert one.make_room(who, "n0", EVICTION_SECONDS + 1)
    assert one.preempt(who, {"n0": ["v"]}, EVICTION_SECONDS + 1) == []


def test_an_answer_without_victims_leaves_the_pod_to_the_leader() -> None:
    one, who = full()
    assert one.preempt(replace(who, priority=0), {"n9": ["v"]}, 0.0) == []
    assert one.make_room(who, "n0", 0.0)


def test_who_is_done_lets_the_other_begin_and_the_hole_go() -> None:
    one, who = full()
    assert one.make_room(who, "n0", 0.0)
    one.remove_pod("v")
    assert not one.filter(pod("other", 6), ["n0"], 0.0).nodes
    one.made_room("p")
    assert one.filter(pod("other", 6), ["n0"], 0.0).nodes


def test_nobody_makes_room_for_a_pod_that_is_about_to_be_bound() -> None:
    one = ledger(*nodes(1))
    one.set_pod(who := pod("p", 1))
    assert one.filter(who, ["n0"], 0.0).nodes
    assert not one.bind(who, "n0", 0.0).refusal
    assert not one.make_room(who, "n0", 0.0)


def test_a_hole_outlives_a_nomination_that_kube_scheduler_takes_back() -> None:
    """It does so whenever it finds nobody of lower priority, and the leader says it again."""
    one, who = full()
    assert one.make_room(who, "n0", 0.0)
    one.set_pod(replace(who, nominated_node_name="n0"))
    one.set_pod(who)
    one.remove_pod("v")
    assert not one.filter(pod("other", 6), ["n0"], 1.0).nodes
    one.filter(pod("else", 1), ["n0"], EVICTION_SECONDS + 2)
    assert one.filter(pod("other", 6), ["n0"], EVICTION_SECONDS + 2).nodes, "nobody said it again"


def test_what_was_written_before_a_nomination_does_not_take_it_back() -> None:
    one, who = full()
    assert one.preempt(who, {"n0": ["v"]}, 0.0) == ["n0"]
    one.set_pod(replace(who, labels={"changed": "just before"}))
    one.remove_pod("v")
    assert not one.filter(pod("other", 6), ["n0"], 1.0).nodes


def test_bind_waits_for_victims_whose_quota_is_full_though_the_node_has_room() -> None:
    """Else the nomination goes, those made again in their place get in, and others end for the pod again."""
    one, _ = made(*nodes(1), of("web", pod("v", 2, node="n0")), quotas=(team("web", 0, 2),))
    one.set_pod(who := of("web", pod("p", 2, priority=HIGH)))
    assert one.preempt(who, {"n0": ["v"]}, 0.0) == ["n0"]
    who = replace(who, nominated_node_name="n0")
    one.set_pod(who)
    one.set_pod(of("web", replace(pod("v", 2, node="n0"), deleting=True)))
    assert one.filter(who, ["n0"], 0.0).nodes
    said = one.bind(who, "n0", 0.0)
    assert said.refusal == WAITS_FOR_VICTIMS
    assert [victim.uid for victim in said.awaited] == ["v"]
    one.set_pod(replace(who, nominated_node_name=""))  # kube-scheduler, because of the refusal
    one.remove_pod("v")
    again = of("web", pod("v-again", 2))
    assert not one.filter(again, ["n0"], 1.0).nodes
    assert one.filter(who, ["n0"], 2.0).nodes
    assert not one.bind(who, "n0", 2.0).refusal


def test_bind_goes_on_where_the_api_server_has_the_victims_of_its_quota_no_more() -> None:
    one, _ = made(*nodes(1), of("web", pod("v", 2, node="n0")), quotas=(team("web", 0, 2),))
    one.set_pod(who := of("web", pod("p", 2, priority=HIGH)))
    one.preempt(who, {"n0": ["v"]}, 0.0)
    one.set_pod(who := replace(who, nominated_node_name="n0"))
    assert one.filter(who, ["n0"], 0.0).nodes
    assert not one.bind(who, "n0", 0.0, gone=["v"]).refusal


def test_while_enough_pods_end_where_it_is_nominated_nobody_else_does() -> None:
    """Another extender's leader evicts, or a Binding was refused because they were there still."""
    one, _ = made(
        *nodes(2),
        *(of("web", pod(name, 4, node="n0")) for name in ("v", "w")),
        of("web", pod("x", 8, node="n1")),
        quotas=(team("web", 0, 16),),
    )
    who = of("web", pod("p", 4, priority=HIGH, nominated_node_name="n0"))
    one.set_pod(who)
    candidates = {"n0": ["w"], "n1": ["x"]}
    assert one.preempt(who, candidates, 0.0) == ["n0", "n1"]
    one.set_pod(of("web", replace(pod("v", 4, node="n0"), deleting=True)))
    assert one.preempt(who, candidates, 9.0) == []
    assert one.preempt(who, {"n0": ["v"], "n1": ["x"]}, 9.0) == ["n0"], "which costs nobody"
    assert one.preempt(replace(who, requests=pod("p", 6).requests), candidates, 9.0) != []
