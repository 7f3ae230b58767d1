from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qos.network.bands import DEFAULT, TRICKLE, Amount, Bands, Configuration, Share, promisable
from qos.network.minors import BANDS, FIRST, HOST, ROOT, SHARED
from qos.network.planning import plan
from qos.network.wanted import (
    Band,
    Bounds,
    Direction,
    HtbClass,
    HtbTree,
    Link,
    PodTraffic,
    Policer,
    Shortfall,
    Standing,
    Unkept,
    UnkeptLimit,
    Wanted,
    class_id,
    mapped,
)
from tests.qos.network.nodes import CONFIGURATIONS, GBIT, MBIT, links, pod, pods

ETH = Link(2, "eth0", egress=940 * MBIT, ingress=900 * MBIT)
BOTH_WAYS = replace(ETH, ifb=52)


def only_tree(wanted: Wanted) -> HtbTree:
    (tree,) = wanted.trees
    return tree


def of(tree: HtbTree, minor: int) -> HtbClass:
    return next(one for one in tree.classes if one.minor == minor)


def egress_class(wanted: Wanted, uid: str) -> HtbClass:
    return of(wanted.trees[0], wanted.standing[uid].minor)


def bounds_of(one: PodTraffic, direction: Direction) -> Bounds:
    return one.egress if direction is Direction.EGRESS else one.ingress


# Examples.


def test_nothing_is_shaped_where_nobody_asks() -> None:
    assert plan([ETH], [pod("1"), pod("2")]) == Wanted()


def test_a_floor_is_the_rate_of_the_pods_own_class_which_borrows_up_to_the_link() -> None:
    wanted = plan([ETH], [pod("1", Bounds(100 * MBIT))])
    one = egress_class(wanted, "1")
    assert (one.rate, one.ceil, one.parent, one.priority) == (100 * MBIT, 940 * MBIT, BANDS[Band.L0], 0)
    assert wanted.by_address == {bytes(10) + b"\xff\xff" + bytes([0, 0, 0, 1]): class_id(one.minor)}
    assert wanted.standing == {"1": Standing(FIRST, 100 * MBIT, 0)}
    assert not wanted.shortfalls


def test_l0_has_what_the_minima_of_the_others_leave() -> None:
    bands = Bands(Amount(10), {Band.L1: Share(Amount(30)), Band.L2: Share(Amount(20), Amount(50))})
    link = Link(2, "eth0", GBIT, 0)
    tree = only_tree(plan([link], [pod("1", Bounds(MBIT))], Configuration(egress=bands)))
    assert [of(tree, BANDS[band]).rate // MBIT for band in Band] == [400, 300, 200]
    assert [of(tree, BANDS[band]).ceil // MBIT for band in Band] == [1000, 1000, 500]
    assert [of(tree, BANDS[band]).priority for band in Band] == [0, 1, 2]
    assert of(tree, HOST).rate == 100 * MBIT
    assert of(tree, HOST).parent == ROOT


def test_a_band_keeps_its_minimum_beside_the_floors_in_it() -> None:
    wanted = plan([ETH], [pod("1", Bounds(500 * MBIT), band=Band.L2), pod("2", band=Band.L2)])
    minimum = 940 * MBIT * 2 // 100
    assert of(only_tree(wanted), BANDS[Band.L2]).rate == 500 * MBIT + minimum
    assert wanted.by_address[bytes(10) + b"\xff\xff\0\0\0\2"] == class_id(SHARED[Band.L2])


def test_a_4_mbit_limit_is_exact_from_the_first_second() -> None:
    one = egress_class(plan([ETH], [pod("1", Bounds(limit=4 * MBIT))]), "1")
    assert one.ceil == 4 * MBIT
    assert one.ceil_burst <= one.ceil // 100
    assert one.rate == TRICKLE


def test_a_link_of_unknown_speed_keeps_limits_and_says_that_it_keeps_no_floor() -> None:
    wanted = plan([Link(2, "eth0", 0, 0)], [pod("1", Bounds(MBIT, 2 * MBIT))])
    assert wanted.shortfalls == (Shortfall("1", Direction.EGRESS, MBIT, Unkept.LINK_UNKNOWN),)
    assert egress_class(wanted, "1").ceil == 2 * MBIT
    assert wanted.unkept_limits == ()


def test_on_a_link_of_unknown_speed_no_band_goes_first_and_bands_alone_make_no_tree() -> None:
    link = Link(2, "eth0", 0, 0)
    low = pod("2", band=Band.L2)
    assert plan([link], [low]).trees == ()
    tree = only_tree(plan([link], [pod("1", Bounds(limit=MBIT)), low]))
    assert {one.priority for one in tree.classes} == {0}
    assert of(tree, BANDS[Band.L2]).rate > 100 * GBIT // 100, "it never has to wait for the others' rates"


def test_a_limit_is_policed_where_no_link_is_known() -> None:
    configuration = Configuration(policed=frozenset({Direction.EGRESS}))
    limited, other = pod("1", Bounds(limit=MBIT)), pod("2", band=Band.L2)
    wanted = plan([], [limited, other], configuration)
    assert wanted.policers == (Policer(1001, class_id(FIRST), Direction.EGRESS, MBIT),)
    assert wanted.by_address == {bytes(10) + b"\xff\xff" + bytes([0, 0, 0, 1]): class_id(FIRST)}
    assert (wanted.trees, wanted.unkept_limits) == ((), ())
    host = PodTraffic("3", Band.L0, Bounds(limit=MBIT), Bounds(), cgroup_ids=(7,))
    assert plan([], [host], configuration).unkept_limits == (
        UnkeptLimit("3", Direction.EGRESS, Unkept.LINK_UNKNOWN),
    )
    assert plan([], [limited]).unkept_limits == (UnkeptLimit("1", Direction.EGRESS, Unkept.LINK_UNKNOWN),)


def test_floors_beyond_the_link_are_granted_by_priority_then_uid_and_the_last_in_part() -> None:
    room = promisable([ETH], Direction.EGRESS)
    first, second, third = (pod(uid, Bounds(400 * MBIT)) for uid in "123")
    wanted = plan([ETH], [first, second, replace(third, priority=1)])
    granted = {uid: one.egress for uid, one in wanted.standing.items()}
    assert granted == {"3": 400 * MBIT, "1": 400 * MBIT, "2": room - 800 * MBIT}
    missing = 1200 * MBIT - room
    assert wanted.shortfalls == (Shortfall("2", Direction.EGRESS, missing, Unkept.LINK_EXCEEDED),)


def test_who_was_granted_a_floor_keeps_it_though_one_of_higher_priority_comes() -> None:
    old, new = pod("1", Bounds(700 * MBIT)), replace(pod("2", Bounds(700 * MBIT)), priority=9)
    before = plan([ETH], [old])
    wanted = plan([ETH], [old, new], before=before)
    assert wanted.standing["1"] == before.standing["1"]
    assert wanted.standing["2"].egress == promisable([ETH], Direction.EGRESS) - 700 * MBIT


def test_a_band_with_a_maximum_cannot_promise_more() -> None:
    bands = Bands(shares={Band.L2: Share(Amount(10), Amount(20))})
    wanted = plan([ETH], [pod("1", Bounds(188 * MBIT), band=Band.L2)], Configuration(egress=bands))
    assert wanted.standing["1"].egress == 94 * MBIT
    assert wanted.shortfalls == (Shortfall("1", Direction.EGRESS, 94 * MBIT, Unkept.BAND_EXCEEDED),)


def test_a_floor_above_the_pods_own_limit_is_kept_up_to_the_limit() -> None:
    wanted = plan([ETH], [pod("1", Bounds(100 * MBIT, 30 * MBIT))])
    assert (egress_class(wanted, "1").rate, egress_class(wanted, "1").ceil) == (30 * MBIT, 30 * MBIT)
    assert wanted.shortfalls == (Shortfall("1", Direction.EGRESS, 70 * MBIT, Unkept.LIMITED),)


def test_a_floor_of_what_a_pod_receives_needs_the_ifb() -> None:
    one = pod("1", ingress=Bounds(100 * MBIT))
    assert plan([ETH], [one]).shortfalls == (
        Shortfall("1", Direction.INGRESS, 100 * MBIT, Unkept.RECEIVING_NOT_SHAPED),
    )
    assert not plan([ETH], [one]).trees
    tree = only_tree(plan([BOTH_WAYS], [one]))
    assert tree.interface == 52
    assert of(tree, FIRST).rate == 100 * MBIT
    assert of(tree, ROOT).rate == ETH.ingress


def test_a_pods_class_has_one_minor_in_every_tree() -> None:
    wanted = plan([BOTH_WAYS], [pod("1", Bounds(MBIT)), pod("2", ingress=Bounds(MBIT))])
    assert [tree.interface for tree in wanted.trees] == [2, 52]
    sent, received = wanted.trees
    assert (of(sent, FIRST).rate, of(received, FIRST).rate) == (MBIT, TRICKLE)
    assert (of(sent, FIRST + 1).rate, of(received, FIRST + 1).rate) == (TRICKLE, MBIT)


def test_a_limit_of_what_a_pod_receives_is_a_bucket_at_its_veth_and_needs_no_tree() -> None:
    wanted = plan([ETH], [pod("1", ingress=Bounds(limit=10 * MBIT))])
    (bucket,) = wanted.buckets
    assert (bucket.interface, bucket.rate) == (1001, 10 * MBIT)
    assert bucket.burst >= 9216
    assert bucket.queue >= bucket.burst
    assert not wanted.trees


def test_what_comes_by_a_pods_veth_is_the_pods() -> None:
    host = PodTraffic("3", Band.L2, Bounds(), Bounds(), cgroup_ids=(77,))
    wanted = plan([ETH], [pod("1", Bounds(MBIT)), pod("2", band=Band.L2), host])
    assert wanted.by_interface == {1001: class_id(FIRST), 1002: class_id(SHARED[Band.L2])}


def test_pods_on_the_hosts_network_are_known_by_their_cgroup_and_only_when_they_send() -> None:
    one = PodTraffic("1", Band.L2, Bounds(MBIT, 2 * MBIT), Bounds(MBIT, 2 * MBIT), cgroup_ids=(77, 78))
    wanted = plan([BOTH_WAYS], [one])
    assert wanted.by_cgroup == {77: class_id(FIRST), 78: class_id(FIRST)}
    assert wanted.shortfalls == (Shortfall("1", Direction.INGRESS, MBIT, Unkept.HOST_NETWORK),)
    assert wanted.unkept_limits == (UnkeptLimit("1", Direction.INGRESS, Unkept.HOST_NETWORK),)


def test_a_tree_stays_after_the_last_pod_that_needed_it() -> None:
    before = plan([ETH], [pod("1", Bounds(MBIT))])
    assert [one.minor for one in only_tree(plan([ETH], [], before=before)).classes] == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
    ]


def test_the_minor_of_a_pod_that_is_gone_is_free_one_plan_later() -> None:
    before = plan([ETH], [pod("1", Bounds(MBIT)), pod("2", Bounds(MBIT))])
    wanted = plan([ETH], [pod("2", Bounds(MBIT)), pod("3", Bounds(MBIT))], before=before)
    assert {uid: one.minor for uid, one in wanted.standing.items()} == {"2": FIRST + 1, "3": FIRST + 2}
    later = plan([ETH], [pod("2", Bounds(MBIT)), pod("4", Bounds(MBIT))], before=wanted)
    assert later.standing["4"].minor == FIRST


def test_the_shared_leaf_takes_turns_for_all_its_pods() -> None:
    tree = only_tree(plan([ETH], [pod("1", Bounds(MBIT)), *(pod(str(n)) for n in range(2, 9))]))
    assert of(tree, SHARED[Band.L0]).quantum == 7 * of(tree, FIRST).quantum


def test_who_finds_no_class_is_told_so() -> None:
    crowd = [pod(str(n), Bounds(limit=MBIT), band=Band.L2) for n in range(1, 12)]
    tiny = Link(2, "eth0", 16_000, 0)
    wanted = plan([tiny], crowd)
    assert len(wanted.standing) == 16_000 // 16 // TRICKLE - 1
    assert {one.reason for one in wanted.unkept_limits} == {Unkept.NO_CLASS_FREE}
    assert len(wanted.unkept_limits) == len(crowd) - len(wanted.standing)


def test_a_pod_whose_packets_nobody_can_tell_is_named() -> None:
    wanted = plan([ETH], [replace(pod("1", Bounds(MBIT, 2 * MBIT)), addresses=())])
    assert wanted.shortfalls == (Shortfall("1", Direction.EGRESS, MBIT, Unkept.NOT_IDENTIFIED),)
    assert wanted.unkept_limits == (UnkeptLimit("1", Direction.EGRESS, Unkept.NOT_IDENTIFIED),)


# Properties.

NODES = (links(), pods(), CONFIGURATIONS)
SOME = settings(max_examples=40)


@SOME
@given(*NODES)
def test_parents_have_what_their_children_have_and_htb_can_take_every_number(
    nics: list[Link], here: list[PodTraffic], configuration: Configuration
) -> None:
    for tree in plan(nics, here, configuration).trees:
        known = {one.minor: one for one in tree.classes}
        assert len(known) == len(tree.classes)
        assert tree.default in known
        for one in tree.classes:
            children = [child for child in tree.classes if child.parent == one.minor]
            assert 0 < one.rate <= one.ceil
            assert sum(child.rate for child in children) <= one.rate or not children
            assert all(child.ceil <= one.ceil for child in children)
            assert bool(one.leaf) is not bool(children) or one.minor == ROOT
            assert one.parent < one.minor
            assert one.quantum >= 65536 + 44 * 66, "a GSO packet with all headers"
            for size, rate in ((one.burst, one.rate), (one.ceil_burst, one.ceil)):
                assert rate // 250 <= size <= max(rate // 20, 1)
                assert size * 10**9 // rate // 64 < 2**32  # ticks of 64 ns, as the kernel takes it


@SOME
@given(*NODES)
def test_granted_floors_are_rates_limits_are_ceilings_and_the_rest_is_said(
    nics: list[Link], here: list[PodTraffic], configuration: Configuration
) -> None:
    wanted = plan(nics, here, configuration)
    short = {(one.uid, one.direction): one for one in wanted.shortfalls}
    assert len(short) == len(wanted.shortfalls)
    unkept = {(one.uid, one.direction) for one in wanted.unkept_limits}
    for one in here:
        standing = wanted.standing.get(one.uid, Standing(0, 0, 0))
        for direction, granted in zip(Direction, (standing.egress, standing.ingress), strict=True):
            bounds = bounds_of(one, direction)
            gap = short.get((one.uid, direction))
            missing = gap.missing if gap else 0
            assert granted + missing >= bounds.floor
            assert granted <= bounds.floor
            if gap and gap.reason not in (Unkept.NOT_IDENTIFIED, Unkept.NO_CLASS_FREE):
                assert granted + missing == bounds.floor
            at = [nic.index if direction is Direction.EGRESS else nic.ifb for nic in nics]
            for tree in (tree for tree in wanted.trees if tree.interface in at and standing.minor):
                own = of(tree, standing.minor)
                assert own.rate >= granted
                assert own.ceil <= (bounds.limit or own.ceil)
        if one.egress.limit is not None and (one.uid, Direction.EGRESS) not in unkept:
            assert standing.minor
        if one.ingress.limit is not None and (one.uid, Direction.INGRESS) not in unkept:
            assert [b.rate for b in wanted.buckets if b.interface == one.interface] == [
                one.ingress.limit
            ] or policed(wanted, one, Direction.INGRESS) == [one.ingress.limit]
        if one.egress.limit is not None and Direction.EGRESS in configuration.policed and not nics:
            assert policed(wanted, one, Direction.EGRESS) == (
                [] if (one.uid, Direction.EGRESS) in unkept else [one.egress.limit]
            )


def policed(wanted: Wanted, one: PodTraffic, direction: Direction) -> list[int]:
    """Rates of the pod's policers, of the class that its packets have."""
    ids = {wanted.by_address.get(mapped(address)) for address in one.addresses}
    return [
        policer.rate
        for policer in wanted.policers
        if (policer.interface, policer.direction) == (one.interface, direction) and policer.class_id in ids
    ]


@SOME
@given(*NODES)
def test_no_minimum_is_given_to_a_floor(
    nics: list[Link], here: list[PodTraffic], configuration: Configuration
) -> None:
    """A band's rate less its floors is as much as without any pod's floor, L0's down to its minimum."""
    wanted = plan(nics, here, configuration)
    nobody = [replace(one, egress=Bounds(limit=one.egress.limit), ingress=Bounds()) for one in here]
    without = plan(nics, nobody, configuration, before=wanted)
    for tree, bare in zip(wanted.trees, without.trees, strict=True):
        sent = tree.interface in {nic.index for nic in nics}
        for band in Band:
            floors = sum(
                wanted.standing[one.uid].egress if sent else wanted.standing[one.uid].ingress
                for one in here
                if one.band is band and one.uid in wanted.standing
            )
            left = of(tree, BANDS[band]).rate - floors
            assert left == of(bare, BANDS[band]).rate or band is Band.L0
            assert left >= 0
        assert of(tree, HOST) == of(bare, HOST)
    for direction in Direction:
        granted = sum(
            one.egress if direction is Direction.EGRESS else one.ingress for one in wanted.standing.values()
        )
        assert granted <= promisable(nics, direction, configuration)


@SOME
@given(*NODES, st.randoms(use_true_random=False))
def test_the_order_of_pods_and_addresses_makes_no_difference(
    nics: list[Link], here: list[PodTraffic], configuration: Configuration, random: st.DataObject
) -> None:
    shuffled = list(here)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert plan(nics, shuffled, configuration) == plan(nics, here, configuration)


@SOME
@given(*NODES)
def test_the_same_again_changes_nothing(
    nics: list[Link], here: list[PodTraffic], configuration: Configuration
) -> None:
    first = plan(nics, here, configuration)
    assert plan(nics, here, configuration, before=first) == first


@SOME
@given(links(), pods(least=1), CONFIGURATIONS)
@example([ETH], [pod("2", Bounds(940 * MBIT)), pod("1", Bounds(940 * MBIT))], DEFAULT)
def test_who_was_there_keeps_class_and_floor_when_another_comes(
    nics: list[Link], here: list[PodTraffic], configuration: Configuration
) -> None:
    *stay, comes = here
    before = plan(nics, stay, configuration)
    after = plan(nics, here, configuration, before=before)
    for uid, standing in before.standing.items():
        assert after.standing[uid] == standing
    later = {tree.interface: tree for tree in after.trees}
    shared = {*SHARED.values(), BANDS[comes.band], BANDS[Band.L0]}
    for tree in before.trees:
        for one in tree.classes:
            if one.minor not in shared:
                assert of(later[tree.interface], one.minor) == one
    for address, minor in before.by_address.items():
        if after.by_address[address] != minor:
            assert address[-4:] in comes.addresses or address in comes.addresses  # claimed twice


@SOME
@given(*NODES)
def test_minors_are_unique_and_outlive_who_leaves(
    nics: list[Link], here: list[PodTraffic], configuration: Configuration
) -> None:
    before = plan(nics, here, configuration)
    minors = [one.minor for one in before.standing.values()]
    assert len(set(minors)) == len(minors)
    assert all(minor >= FIRST for minor in minors)
    left = here[::2]
    after = plan(nics, left, configuration, before=before)
    for uid in after.standing.keys() & before.standing.keys():
        assert after.standing[uid].minor == before.standing[uid].minor


@SOME
@given(*NODES)
def test_every_class_that_a_packet_is_sent_to_is_in_every_tree(
    nics: list[Link], here: list[PodTraffic], configuration: Configuration
) -> None:
    wanted = plan(nics, here, configuration)
    for ids in (wanted.by_address, wanted.by_cgroup, wanted.by_interface):
        for identity in ids.values():
            for tree in wanted.trees:
                assert of(tree, identity & 0xFFFF).leaf


def test_250_pods_are_planned_within_20_milliseconds() -> None:
    here = [pod(str(n), Bounds(MBIT, 10 * MBIT), Bounds(MBIT, 9 * MBIT), Band(n % 3)) for n in range(250)]
    before = plan([BOTH_WAYS], here)
    assert len(before.standing) == 250
    took = []
    for _ in range(5):
        start = time.thread_time()
        plan([BOTH_WAYS], here, before=before)
        took.append(time.thread_time() - start)
    assert min(took) < 0.02


@pytest.mark.parametrize("share", [Share(Amount(60)), Share(Amount(90), Amount(10))])
def test_minima_beyond_the_link_are_made_less_and_no_floor_is_promised(share: Share) -> None:
    much = Configuration(egress=Bands(Amount(50), dict.fromkeys(Band, share)))
    wanted = plan([ETH], [pod("1", Bounds(MBIT))], much)
    assert (promisable([ETH], Direction.EGRESS, much) <= 3) is (share.maximum == Amount(100))
    tree = only_tree(wanted)
    assert sum(one.rate for one in tree.classes if one.parent == ROOT) <= ETH.egress
