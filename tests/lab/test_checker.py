"""The checker against streams of changes that were made up: faults are planted, and honest streams must
pass.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.changes import Change, PriorityClass, Watched
from lab.checker import Kind, Terms, Verdict, check, replay
from qos.cluster.objects import (
    DaemonSet,
    Node,
    OwnerFit,
    OwnerReference,
    PlacementMode,
    Pod,
    Requirement,
    Selector,
)
from qos.cluster.policy import Policy, ScaleTarget, Workload


class Stream:
    """Changes in order; time passes by `later`."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.now = 1000.0
        self._revisions = count(1)
        self._uids = count(1)

    def put(self, thing: Watched, *, deleted: bool = False) -> None:
        self.changes.append(Change(next(self._revisions), self.now, thing, deleted))

    def later(self, seconds: float = 10.0) -> None:
        self.now += seconds

    def node(self, name: str, cpu: int = 4000, **more: Any) -> Node:
        made = Node(name, f"uid-{name}", {"cpu": cpu, "memory": 8 << 30, "pods": 10}, **more)
        self.put(made)
        return made

    def policy(self, name: str, cpu: int, slots: int, *, priority: str = "", **more: Any) -> Policy:
        made = Policy(
            key=f"default/{name}",
            namespace="default",
            name=name,
            uid=name,
            generation=1,
            resource_version="1",
            created=self.now,
            selector=Selector((Requirement("app", "In", (name,)),)),
            floor={"cpu": cpu},
            priority_class_name=priority,
            count=slots,
            mode=PlacementMode.FLOATING,
        )
        made = replace(made, **more)
        self.put(made)
        return made

    def pod(self, app: str, cpu: int, node: str, **more: Any) -> Pod:
        """A pod that is created and then bound."""
        uid = f"{app}-{next(self._uids)}"
        pending = Pod(uid, "default", uid, {"cpu": cpu, "pods": 1}, {"app": app}, **more)
        self.put(pending)
        return self.bind(pending, node)

    def bind(self, pod: Pod, node: str) -> Pod:
        bound = replace(pod, node_name=node)
        self.put(bound)
        return bound

    def verdict(self, **terms: Any) -> Verdict:
        return check(self.changes, Terms(cap_percent=100, **terms))


@pytest.fixture
def held() -> Stream:
    """Two nodes of 4 CPU, two slots of 2 CPU, long enough ago to count as promised."""
    stream = Stream()
    stream.node("n1")
    stream.node("n2")
    stream.policy("checkout", 2000, 2)
    stream.later()
    return stream


def kinds(verdict: Verdict) -> list[Kind]:
    return [finding.kind for finding in verdict.findings]


def test_a_bind_into_capacity_that_a_slot_needed_is_named(held: Stream) -> None:
    held.pod("batch", 4000, "n1")
    held.pod("batch", 1000, "n2")
    verdict = held.verdict()
    assert kinds(verdict) == [Kind.FLOOR_BROKEN]
    finding = verdict.violations[0]
    assert finding.at == held.now
    assert (finding.policy, finding.pod, finding.node) == ("default/checkout", "default/batch-2", "n2")
    assert finding.message == "pod default/batch-2 was bound to n2: 2 slots kept before, 1 after"


def test_slots_are_promised_once_they_were_kept_for_the_time_of_grace(held: Stream) -> None:
    late = held.node("n3")
    held.policy("late", 2000, 4)
    checker = replay(held.changes, Terms(cap_percent=100))
    assert checker.promised(held.now + 2.9) == {"default/checkout": 2, "default/late": 0}
    assert checker.promised(held.now + 3.0) == {"default/checkout": 2, "default/late": 4}
    held.put(late, deleted=True)
    checker = replay(held.changes, Terms(cap_percent=100))
    assert checker.promised(held.now) == {"default/checkout": 2, "default/late": 0}
    assert checker.promised(held.now + 60.0) == {"default/checkout": 2, "default/late": 2}


def test_binds_that_leave_room_somewhere_are_no_finding(held: Stream) -> None:
    held.pod("batch", 2000, "n1")
    held.pod("batch", 2000, "n1")
    assert not held.verdict().findings
    assert held.verdict().kept == {"default/checkout": 2}


def test_owners_fill_their_slots_anywhere(held: Stream) -> None:
    held.pod("batch", 4000, "n1")
    held.pod("checkout", 2000, "n2")
    held.pod("checkout", 2000, "n2")
    assert not held.verdict().findings


def test_a_pod_that_asks_for_more_than_the_slot_fills_none_where_that_is_restricted() -> None:
    said = {}
    for fit in OwnerFit:
        stream = Stream()
        stream.node("n1")
        stream.policy("checkout", 2000, 2, owner_fit=fit)
        stream.later()
        stream.pod("checkout", 2500, "n1")
        stream.later()
        said[fit] = kinds(stream.verdict()), stream.verdict().kept
    assert said[OwnerFit.RESTRICTED] == ([Kind.FLOOR_BROKEN], {"default/checkout": 0})
    assert said[OwnerFit.ALIGNED] == ([Kind.FLOOR_BROKEN], {"default/checkout": 1})


def test_an_owner_beyond_its_slots_may_not_take_anothers(held: Stream) -> None:
    held.policy("other", 2000, 2)
    held.later()
    for node in ("n1", "n1", "n2"):
        held.pod("checkout", 2000, node)
    verdict = held.verdict()
    assert [(f.kind, f.policy) for f in verdict.findings] == [(Kind.FLOOR_BROKEN, "default/other")]


def test_a_slot_whose_owner_ended_is_kept_again(held: Stream) -> None:
    held.pod("batch", 4000, "n1")
    owners = [held.pod("checkout", 2000, "n2") for _ in range(2)]
    held.put(owners[0], deleted=True)
    held.later()
    held.pod("batch", 2000, "n2")
    assert kinds(held.verdict()) == [Kind.FLOOR_BROKEN]


def test_a_finished_pod_occupies_nothing(held: Stream) -> None:
    done = held.pod("batch", 4000, "n1")
    held.put(replace(done, phase="Succeeded"))
    held.later()
    held.pod("batch", 4000, "n2")
    assert not held.verdict().findings


def test_a_policy_counts_only_after_the_grace() -> None:
    stream = Stream()
    stream.node("n1")
    stream.policy("checkout", 2000, 2)
    stream.later(1.0)
    stream.pod("batch", 1000, "n1")
    assert not stream.verdict(grace=3.0).findings
    assert kinds(stream.verdict(grace=0.5)) == [Kind.FLOOR_BROKEN]


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"priority": 10}, Kind.OUTRANKED),
        ({"priority": 2_000_000_000}, Kind.OUTRANKED),
        ({"controller": OwnerReference("DaemonSet", "logs", "d1")}, Kind.OUTRANKED),
        ({"scheduler_name": "other"}, Kind.BYPASSED),
        ({"mirror": True}, Kind.BYPASSED),
    ],
)
def test_pods_that_may_are_noted_not_blamed(held: Stream, more: dict[str, object], kind: Kind) -> None:
    held.pod("batch", 4000, "n1", **more)
    held.pod("batch", 1000, "n2", **more)
    verdict = held.verdict()
    assert kinds(verdict) == [kind]
    assert not verdict.violations
    assert verdict.bypasses == (2 if kind is Kind.BYPASSED else 0)


def test_priority_is_compared_with_the_policys(held: Stream) -> None:
    held.put(PriorityClass("floor-high", 100))
    held.policy("payment", 4000, 1, priority="floor-high")
    held.later()
    held.pod("batch", 1000, "n1", priority=50)
    held.pod("batch", 1000, "n2", priority=50)
    verdict = held.verdict()
    # payment can have one node at first, the two of checkout the other: the first bind outranks one of
    # checkout's,
    # the second leaves no whole node for payment.
    assert [(f.kind, f.policy) for f in verdict.findings if f.kind is not Kind.OUTRANKED] == [
        (Kind.FLOOR_BROKEN, "default/payment")
    ]


def test_a_pod_created_with_a_node_bypasses(held: Stream) -> None:
    held.pod("batch", 4000, "n1")
    held.put(Pod("static", "default", "static", {"cpu": 1000, "pods": 1}, node_name="n2"))
    assert kinds(held.verdict()) == [Kind.BYPASSED]


def test_a_lost_node_is_noted(held: Stream) -> None:
    held.pod("batch", 2000, "n2")
    held.put(Node("n1", "uid-n1", {}), deleted=True)
    verdict = held.verdict()
    assert kinds(verdict) == [Kind.NODE_LOST]
    assert verdict.kept == {"default/checkout": 1}


def test_while_nobody_guards_floors_lapse(held: Stream) -> None:
    held.pod("batch", 4000, "n1")
    held.pod("batch", 1000, "n2")
    assert kinds(held.verdict(unguarded=((held.now - 1, held.now + 1),))) == [Kind.LAPSED]


DAEMON = OwnerReference("DaemonSet", "logs", "d1")
FIRST: list[dict[str, object]] = [
    {"controller": DAEMON},
    {"priority": 10},
    {"scheduler_name": "other"},
]
"""Pods to whom slots yield, or who ask nobody."""


@pytest.mark.parametrize("more", FIRST)
def test_a_bind_decided_before_another_took_the_room_is_undecided(more: dict[str, object]) -> None:
    """A slot fits on both nodes: the bind takes one of them, while a pod that goes before takes the other."""
    stream = Stream()
    stream.node("n1")
    stream.node("n2")
    stream.policy("checkout", 3000, 1)
    stream.later()
    stream.pod("first", 2000, "n1", **more)
    stream.later(2.0)
    stream.pod("batch", 2000, "n2")
    assert kinds(stream.verdict()) == [Kind.UNDECIDED]
    assert stream.verdict().undecided == 1
    assert kinds(stream.verdict(grace=1.0)) == [Kind.FLOOR_BROKEN]


@pytest.mark.parametrize("more", FIRST)
def test_a_disturbance_elsewhere_excuses_nobody(more: dict[str, object]) -> None:
    """A node where no slot fits, or where one fits all the same, has nothing to do with a floor broken."""
    stream = Stream()
    stream.node("n1")
    stream.node("n2")
    stream.node("small", cpu=1000)
    stream.policy("checkout", 3000, 2)
    stream.later()
    stream.pod("first", 500, "small", **more)
    stream.pod("first", 500, "n1", **more)
    stream.pod("batch", 2000, "n2")
    assert kinds(stream.verdict()) == [Kind.FLOOR_BROKEN]


def test_who_is_gone_again_excuses_nobody() -> None:
    stream = Stream()
    stream.node("n1")
    stream.node("n2")
    stream.policy("checkout", 3000, 1)
    stream.later()
    first = stream.pod("first", 2000, "n1", priority=10)
    stream.put(first, deleted=True)
    stream.pod("batch", 2000, "n1")
    stream.pod("batch", 2000, "n2")
    assert kinds(stream.verdict()) == [Kind.FLOOR_BROKEN]


def test_a_pod_of_higher_priority_disturbs_only_floors_below_it() -> None:
    """`high` keeps one node, `low` the other; only `low` yields to the first pod."""
    stream = Stream()
    stream.put(PriorityClass("floor-high", 100))
    for node in ("n1", "n2"):
        stream.node(node)
    stream.policy("high", 3000, 1, priority="floor-high")
    stream.later()
    stream.pod("first", 2000, "n1", priority=50)
    stream.pod("batch", 2000, "n2")
    assert kinds(stream.verdict()) == [Kind.FLOOR_BROKEN]


@pytest.mark.parametrize(
    "change",
    [{"allocatable": {"cpu": 2000, "memory": 8 << 30, "pods": 10}}, {"ready": False}, {"deleted": True}],
)
def test_a_bind_decided_before_a_node_was_lost_is_undecided(change: dict[str, Any]) -> None:
    stream = Stream()
    nodes = [stream.node("n1"), stream.node("n2")]
    stream.policy("checkout", 3000, 1)
    stream.later()
    deleted = bool(change.get("deleted"))
    stream.put(nodes[0] if deleted else replace(nodes[0], **change), deleted=deleted)
    stream.later(2.0)
    stream.pod("batch", 2000, "n2")
    assert kinds(stream.verdict()) == [Kind.UNDECIDED]
    assert kinds(stream.verdict(grace=1.0)) == [Kind.FLOOR_BROKEN]


def test_a_bypass_excuses_only_its_own_share_of_an_over_committed_node() -> None:
    stream = Stream()
    stream.node("n1")
    stream.pod("first", 500, "n1", scheduler_name="other")
    stream.pod("batch", 4000, "n1")
    assert kinds(stream.verdict()) == [Kind.BYPASSED]
    stream.pod("batch", 500, "n1")
    assert kinds(stream.verdict()) == [Kind.BYPASSED, Kind.OVER_COMMITTED]


def test_an_over_committed_node_is_named() -> None:
    stream = Stream()
    stream.node("n1")
    stream.pod("batch", 3000, "n1")
    stream.pod("batch", 2000, "n1")
    verdict = stream.verdict()
    assert kinds(verdict) == [Kind.OVER_COMMITTED]
    assert "cpu by 1000" in verdict.violations[0].message


def test_pods_bound_before_the_watching_began_are_not_judged(held: Stream) -> None:
    stream = Stream()
    stream.node("n1", cpu=1000)
    bound = Pod("old", "default", "old", {"cpu": 2000, "pods": 1}, node_name="n1")
    stream.changes.append(Change(99, stream.now, bound, listed=True))
    assert not stream.verdict().findings


def test_the_order_is_that_of_revisions(held: Stream) -> None:
    held.pod("batch", 4000, "n1")
    held.pod("batch", 1000, "n2")
    held.changes.reverse()
    assert kinds(held.verdict()) == [Kind.FLOOR_BROKEN]


def test_replicas_with_surge_and_template_make_the_slots() -> None:
    stream = Stream()
    stream.node("n1", cpu=8000)
    target = ScaleTarget("apps/v1", "Deployment", "web")
    stream.policy("web", 1000, 0, count=None, scale_target=target)
    stream.put(Workload("default", "Deployment", "web", 3, {"cpu": 2000}))
    assert stream.verdict().kept == {"default/web": 3}


def test_expected_daemon_set_pods_keep_their_room() -> None:
    stream = Stream()
    stream.node("n1", cpu=2000)
    stream.put(DaemonSet("d1", "kube-system/logs", {"cpu": 500, "pods": 1}))
    stream.policy("checkout", 2000, 1)
    assert stream.verdict().kept == {"default/checkout": 0}


def test_a_daemon_set_pod_that_fits_nowhere_is_not_expected() -> None:
    stream = Stream()
    stream.node("n1", cpu=2000)
    stream.put(DaemonSet("d1", "kube-system/typo", {"cpu": 1_000_000, "pods": 1}))
    stream.policy("checkout", 2000, 1)
    assert stream.verdict().kept == {"default/checkout": 1}


def test_at_most_so_many_on_a_node() -> None:
    stream = Stream()
    stream.node("n1")
    stream.node("n2")
    stream.policy("checkout", 500, 8, max_slots_per_node=2)
    stream.pod("checkout", 500, "n1")
    assert stream.verdict().kept == {"default/checkout": 4}


def test_the_cap_bounds_what_is_promised() -> None:
    stream = Stream()
    stream.node("n1", cpu=10_000)
    stream.policy("checkout", 1000, 8)
    assert check(stream.changes, Terms(cap_percent=40)).kept == {"default/checkout": 4}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_careful_scheduler_is_never_blamed(data: st.DataObject) -> None:
    """Binds only where a from-scratch packing still keeps every slot: no finding may arise."""
    stream = Stream()
    for name in ("n1", "n2", "n3"):
        stream.node(name, cpu=data.draw(st.integers(2, 8)) * 1000)
    stream.policy("big", 3000, data.draw(st.integers(0, 2)))
    stream.policy("small", 1000, data.draw(st.integers(0, 3)))
    stream.later()
    before = stream.verdict().kept
    for _ in range(12):
        cpu, node = data.draw(st.integers(1, 4)) * 500, data.draw(st.sampled_from(["n1", "n2", "n3"]))
        keep = list(stream.changes)
        stream.pod("batch", cpu, node)
        after = stream.verdict()
        if any(after.kept[key] < before[key] for key in before) or after.count(Kind.OVER_COMMITTED):
            stream.changes = keep
    assert not stream.verdict().violations


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_floor_broken_for_one_shape_is_seen(data: st.DataObject) -> None:
    """One shape: the number of slots is a sum of divisions, so what must be found is known exactly."""
    stream = Stream()
    left = {name: data.draw(st.integers(1, 4)) * 1000 for name in ("n1", "n2", "n3")}
    for name, cpu in left.items():
        stream.node(name, cpu=cpu)
    slot = data.draw(st.sampled_from([500, 1000, 1500]))
    slots = data.draw(st.integers(1, 4))
    stream.policy("checkout", slot, slots)
    stream.later()
    able = min(slots, sum(cpu // slot for cpu in left.values()))
    broken = 0
    for _ in range(8):
        cpu, node = data.draw(st.integers(1, 4)) * 250, data.draw(st.sampled_from(list(left)))
        if left[node] < cpu:
            continue
        left[node] -= cpu
        stream.pod("batch", cpu, node)
        now = min(able, sum(free // slot for free in left.values()))
        broken += now < able
        able = now
    assert len(stream.verdict().violations) == broken


def test_slots_that_grew_are_not_thought_to_lie_where_the_smaller_ones_did(held: Stream) -> None:
    """The first in rank leaves 2 CPU on each node; slots of 3 CPU no longer fit there."""
    held.policy("first", 2000, 2, created=0.0, max_slots_per_node=1)
    held.later()
    held.policy("checkout", 3000, 2)
    held.later()
    held.pod("batch", 1000, "n1")
    assert not held.verdict().violations


EGRESS = "j10ce.io/egress-bandwidth"


@pytest.fixture
def linked() -> Stream:
    """Two nodes of 4 CPU and 1000 Mbit/s, a third without a published link, and 6 slots of 300 Mbit/s."""
    stream = Stream()
    for name in ("n1", "n2"):
        stream.put(replace(stream.node(name), allocatable={"cpu": 4000, "pods": 10, EGRESS: 1_000_000_000}))
    stream.node("bare")
    stream.policy("checkout", 100, 6, floor={EGRESS: 300_000_000})
    stream.later()
    return stream


def wanting(stream: Stream, bandwidth: int, node: str, **more: Any) -> Pod:
    """An ordinary pod that requests bandwidth."""
    pending = stream.pod("batch", 100, "", **more)
    return stream.bind(replace(pending, requests={**pending.requests, EGRESS: bandwidth}), node)


def test_bandwidth_that_a_slot_needed_is_named(linked: Stream) -> None:
    wanting(linked, 100_000_000, "n1")
    assert kinds(linked.verdict()) == []
    wanting(linked, 100_000_000, "n1")
    verdict = linked.verdict()
    assert kinds(verdict) == [Kind.FLOOR_BROKEN]
    assert verdict.kept == {"default/checkout": 5}


def test_an_owner_counts_at_its_floor_and_not_at_its_request(linked: Stream) -> None:
    for node in ("n1", "n1", "n1", "n2", "n2", "n2"):
        linked.pod("checkout", 100, node)
    verdict = linked.verdict()
    assert (kinds(verdict), verdict.kept) == ([], {"default/checkout": 6})
    wanting(linked, 200_000_000, "n1")
    verdict = linked.verdict()
    assert kinds(verdict) == [Kind.OVER_COMMITTED]
    assert f"over-committed: {EGRESS} by 100000000" in verdict.violations[0].message


def test_a_pod_without_bandwidth_over_commits_no_link(linked: Stream) -> None:
    for node in ("n1", "n1", "n1", "n1"):
        linked.pod("checkout", 100, node, scheduler_name="other")
    linked.later()
    linked.pod("batch", 100, "n1")
    assert Kind.OVER_COMMITTED not in kinds(linked.verdict())


def test_an_owner_may_run_where_no_link_is_published(linked: Stream) -> None:
    linked.pod("checkout", 100, "bare")
    assert linked.verdict().violations == ()


def test_an_owner_that_is_said_to_fill_no_slot_counts_at_its_request(linked: Stream) -> None:
    for node in ("n1", "n1", "n1"):
        linked.pod("checkout", 100, node, slot="")
    linked.pod("checkout", 100, "n1", slot="default/checkout")
    wanting(linked, 700_000_000, "n1")
    assert Kind.OVER_COMMITTED not in kinds(linked.verdict())


def test_a_floor_that_is_made_for_pods_that_run_counts_for_them() -> None:
    stream = Stream()
    stream.put(replace(stream.node("n1"), allocatable={"cpu": 4000, "pods": 10, EGRESS: 1_000_000_000}))
    stream.pod("checkout", 100, "n1")
    policy = stream.policy("checkout", 100, 4, floor={EGRESS: 300_000_000})
    stream.later()
    assert stream.verdict().kept == {"default/checkout": 3}
    stream.put(policy, deleted=True)
    stream.policy("late", 100, 4, floor={EGRESS: 300_000_000})
    assert stream.verdict().kept == {"default/late": 3}


def test_a_policy_that_has_come_to_its_end_promises_nothing(held: Stream) -> None:
    held.policy("brief", 2000, 2, expires=held.now + 20)
    held.later(19)
    assert held.verdict().kept == {"default/checkout": 2, "default/brief": 2}
    early = held.now
    waits = Pod("batch", "default", "batch", {"cpu": 2000, "pods": 1}, {"app": "batch"})
    held.put(waits)
    held.later(1)
    held.bind(waits, "n1")
    assert not held.verdict().violations
    held.changes[-2:] = [replace(one, at=early) for one in held.changes[-2:]]
    assert kinds(held.verdict()) == [Kind.FLOOR_BROKEN]
    held.now = early + 1
    held.pod("batch", 2000, "n1")
    assert held.verdict().kept == {"default/checkout": 2, "default/brief": 0}
