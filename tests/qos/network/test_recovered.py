from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from qos.network.planning import plan
from qos.network.recovered import NOTHING_LEFT, Left, recovered
from qos.network.wanted import Bounds, Link, PodTraffic, Wanted, class_id
from tests.qos.network.nodes import MBIT, pod, pods

ETH = Link(2, "eth0", egress=940 * MBIT, ingress=900 * MBIT)


def left_by(wanted: Wanted) -> Left:
    """What the kernel has of a plan."""
    rates: Mapping[int, Mapping[int, int]] = {
        tree.interface: {one.minor: one.rate for one in tree.classes} for tree in wanted.trees
    }
    return Left(wanted.by_address, wanted.by_cgroup, rates)


@given(st.data())
def test_the_next_agent_plans_what_the_one_before_did(data: st.DataObject) -> None:
    """Whatever the order in which pods came: an agent that starts anew changes no class."""
    one = data.draw(pods())
    earlier = data.draw(st.sets(st.sampled_from([pod.uid for pod in one]))) if one else set()
    wanted = plan([ETH], [pod for pod in one if pod.uid in earlier])
    wanted = plan([ETH], one, before=wanted)
    again = plan([ETH], one, before=recovered(left_by(wanted), one, ETH.index))
    identified = {uid for uid in wanted.standing if uid not in _unidentified(wanted, one)}
    for uid in identified:
        assert again.standing[uid] == wanted.standing[uid]


def _unidentified(wanted: Wanted, ones: list[PodTraffic]) -> set[str]:
    """Those whose addresses are, or were before, another's: no packet of theirs is told by them."""
    counts: dict[bytes | int, int] = {}
    for one in ones:
        for key in (*one.addresses, *one.cgroup_ids):
            counts[key] = counts.get(key, 0) + 1
    return {
        one.uid
        for one in ones
        if not (one.addresses or one.cgroup_ids)
        or any(counts[key] > 1 for key in (*one.addresses, *one.cgroup_ids))
    }


def test_nothing_left_is_no_plan() -> None:
    assert recovered(NOTHING_LEFT, [pod("1", Bounds(MBIT))], ETH.index) == Wanted()


def test_what_is_left_of_a_pod_that_is_gone_is_nobodys() -> None:
    wanted = plan([ETH], [pod("1", Bounds(MBIT)), pod("2", Bounds(MBIT))])
    again = recovered(left_by(wanted), [pod("2", Bounds(MBIT))], ETH.index)
    assert again.standing == {"2": wanted.standing["2"]}


def test_an_address_that_another_program_wrote_leads_nowhere() -> None:
    one = pod("1", Bounds(MBIT))
    wanted = plan([ETH], [one])
    for foreign in (0x10000 | wanted.standing["1"].minor, class_id(6), class_id(0xFFF0)):
        left = Left(dict.fromkeys(wanted.by_address, foreign), {}, left_by(wanted).rates)
        assert recovered(left, [one], ETH.index).standing == {}


def test_one_class_is_not_given_to_two() -> None:
    first, second = pod("1", Bounds(MBIT)), pod("2", Bounds(MBIT))
    wanted = plan([ETH], [first, second])
    left = Left(
        dict.fromkeys(wanted.by_address, class_id(wanted.standing["2"].minor)), {}, left_by(wanted).rates
    )
    assert list(recovered(left, [second, first], ETH.index).standing) == ["1"]
