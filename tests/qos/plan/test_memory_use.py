"""memory.min above pods: never more than they use of their claims, because the kernel hands on the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from lab.kernel_rules import protection
from qos.cluster.policy import Profile
from qos.plan.node import V2
from qos.plan.protection import used_part, whole_pages
from qos.pods.containers import BURSTABLE, GUARANTEED, Container, NodePod
from qos.pods.decision import Decided
from qos.pods.expectation import expectation
from qos.promises import Overrides
from tests.qos.kubelet_nodes import PAGE, TIERS, Node, kernel_tree, written

GI = 2**30
MI = 2**20
MEMORY = 64 * GI
AMOUNTS = st.one_of(st.integers(1, 4 * GI), st.integers(1, 4096).map(lambda mib: mib * MI))
USED = st.one_of(st.just(0), AMOUNTS).map(lambda amount: amount // PAGE * PAGE)
TIER_PATHS = tuple(TIERS.values())


@st.composite
def opted_in(draw):
    """Pods whose profile asks for memory.min beside pods that ask for nothing, each with what it uses."""
    node = Node(V2, 8000, MEMORY)
    for path in ("/system.slice", *TIER_PATHS):
        node.add(path, 100)
    for number in range(draw(st.integers(1, 5))):
        uid = f"{number:08x}-0000-4000-8000-000000000000"
        qos = draw(st.sampled_from([GUARANTEED, BURSTABLE]))
        pod = NodePod(uid, "shop", f"p{number}", (Container("c0", 10), Container("c1", 10)), qos)
        percent = draw(st.sampled_from([0, 50, 100]))
        profile = Profile("p", "LS", overrides=Overrides(memory_min_percent=percent))
        floor = {"memory": draw(AMOUNTS)}
        node.add_pod(Decided(pod, expectation(pod, profile, floor=True), profile=profile, floor=floor))
        node.used[uid] = draw(USED)
    node.add("/kubepods/besteffort/podx", 1)
    node.add("/kubepods/besteffort/podx/c", 1)
    return node


def leasts(plans):
    """memory.min of each cgroup that has one."""
    return Counter(
        {path: int(value) for (path, file), value in written(plans).items() if file == "memory.min"}
    )


def steps(least, node, uids):
    return sum(whole_pages(least[node.path(uid)] // 64, PAGE) for uid in uids)


def effective(node, plans):
    """What the kernel protects when the root is short of memory, with memory_recursiveprot."""
    running = {path for paths in node.running.values() for path in paths.values()}
    return protection(kernel_tree(node, plans, running, "memory.min"), recursive=True, memory=MEMORY)


@settings(max_examples=40, deadline=None)
@given(opted_in())
def test_no_ancestor_protects_more_than_those_below_use_or_claim(node):
    least = leasts(node.plans())
    for tier in TIER_PATHS:
        below = [uid for uid in node.decided if node.path(uid).startswith(f"{tier}/")]
        useful = sum(min(least[node.path(uid)], node.used[uid]) for uid in below)
        assert least[tier] <= useful
        assert useful - least[tier] <= steps(least, node, below)


@settings(max_examples=40, deadline=None)
@given(opted_in())
def test_nothing_of_it_is_handed_on_and_those_who_use_it_have_it(node):
    plans = node.plans()
    least, protected = leasts(plans), effective(node, plans)
    assert protected["/kubepods/besteffort"] == protected["/kubepods/besteffort/podx"] == 0
    missing = steps(least, node, node.decided) + PAGE * len(node.decided)
    for uid in node.decided:
        useful = min(least[node.path(uid)], node.used[uid])
        assert useful >= protected[node.path(uid)] >= useful - missing


@settings(max_examples=25, deadline=None)
@given(opted_in(), st.data())
def test_all_of_a_claim_is_protected_last_whatever_is_used(node, data):
    """By memory.low; and what is used changes nothing but memory.min of what is shared."""
    before = written(node.plans())
    node.used = {uid: data.draw(USED) for uid in node.used}
    after = written(node.plans())
    shared = {(tier, "memory.min") for tier in TIER_PATHS}
    assert {key: before.get(key) for key in before.keys() - shared} == {
        key: after.get(key) for key in after.keys() - shared
    }


@given(st.integers(1, 2**40), st.integers(0, 2**41))
def test_a_part_in_use_is_whole_pages_and_at_most_a_64th_short(claim, used):
    claim = whole_pages(claim, PAGE)
    part = used_part(claim, used, PAGE)
    assert part % PAGE == 0
    assert 0 <= min(claim, used) - part < whole_pages(max(claim // 64, 1), PAGE) + PAGE
    assert used_part(claim, None, PAGE) == claim


def test_twenty_gibibytes_of_floors_of_which_five_are_used_protect_five():
    node = Node(V2, 8000, MEMORY)
    for path in TIER_PATHS:
        node.add(path, 100)
    node.add("/kubepods/besteffort/podx", 1)
    uid = "00000000-0000-4000-8000-000000000000"
    pod = NodePod(uid, "shop", "p", (Container("c0", 10),), BURSTABLE)
    profile = Profile("p", "LS", overrides=Overrides(memory_min_percent=100))
    decided = Decided(pod, expectation(pod, profile, floor=True), profile=profile, floor={"memory": 20 * GI})
    node.add_pod(decided)
    unknown, node.used[uid] = node.plans(), 5 * GI
    assert effective(node, unknown)["/kubepods/besteffort/podx"] > 14 * GI, "what this rule is against"
    plans = node.plans()
    least = leasts(plans)
    assert [least[path] // GI for path in (*TIER_PATHS[:2], node.path(uid))] == [5, 5, 20]
    assert effective(node, plans)["/kubepods/besteffort/podx"] == 0
    node.decided[uid] = replace(decided, expected=expectation(pod, None, floor=True), profile=None)
    assert leasts(node.plans()) == {}
