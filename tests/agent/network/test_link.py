"""Which interface is the link and what it can promise: decided, and looked at in real namespaces."""

from __future__ import annotations

import os
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.network.interfaces import LOOPBACK, UP, DefaultRoute, Interface
from agent.network.link import Unknown, choose, look, promised
from agent.network.told import NOTHING_TOLD, Told
from qos import keys
from qos.network.wanted import Link
from tests.agent.network.namespaces import ip, namespaces, netlink

LO = Interface(1, "lo", UP | LOOPBACK)
ETH0, ETH1, BOND = Interface(2, "eth0"), Interface(3, "eth1"), Interface(4, "bond0", kind="bond")
ALL = (LO, ETH0, ETH1, BOND)
TEN_GIGABIT = 10_000_000_000 // 8


def why(found: object) -> str:
    assert isinstance(found, Unknown)
    return found.why


def test_the_default_route_names_the_interface_and_ipv4_before_ipv6() -> None:
    assert choose("", ALL, [DefaultRoute(6, 1, (3,)), DefaultRoute(4, 100, (2,))]) == ETH0
    assert choose("", ALL, [DefaultRoute(6, 1024, (3,))]) == ETH1


def test_the_lowest_metric_counts() -> None:
    assert choose("", ALL, [DefaultRoute(4, 200, (2,)), DefaultRoute(4, 100, (4,))]) == BOND


def test_several_interfaces_at_once_are_nobodys_choice() -> None:
    for routes in ([DefaultRoute(4, 0, (2, 3))], [DefaultRoute(4, 0, (3,)), DefaultRoute(4, 0, (2,))]):
        said = why(choose("", ALL, routes))
        assert "eth0, eth1 at once" in said
        assert "--link-interface" in said
        assert keys.LINK_INTERFACE_LABEL in said
    twice = [DefaultRoute(4, 0, (2, 2))]
    assert choose("", ALL, twice) == ETH0, "two gateways behind one interface are one link"


def test_without_a_route_it_may_know_in_a_moment() -> None:
    found = choose("", ALL, [])
    assert isinstance(found, Unknown)
    assert found.passing
    assert choose("", ALL, [DefaultRoute(4, 0, (99,))]) == found, "an interface that has just gone"


def test_a_name_counts_before_routes() -> None:
    assert choose("eth1", ALL, [DefaultRoute(4, 0, (2,))]) == ETH1
    assert why(choose("eth7", ALL, [])) == "the node has no interface eth7: name another one"


def test_headroom_is_taken_off() -> None:
    assert promised(ETH0, TEN_GIGABIT, NOTHING_TOLD) == Link(
        2, "eth0", egress=9_400_000_000 // 8, ingress=9_000_000_000 // 8
    )
    whole = Told(egress_share=Fraction(1), ingress_share=Fraction(1, 2))
    assert promised(ETH0, TEN_GIGABIT, whole) == Link(2, "eth0", TEN_GIGABIT, TEN_GIGABIT // 2)


@given(measured=st.integers(1, 10**12), egress=st.fractions(0, 1), ingress=st.fractions(0, 1))
def test_never_more_than_the_link_and_less_by_a_byte_at_most(
    measured: int, egress: Fraction, ingress: Fraction
) -> None:
    found = promised(ETH0, measured, Told(egress_share=egress, ingress_share=ingress))
    assert isinstance(found, Link)
    assert found.egress <= measured * egress < found.egress + 1
    assert found.ingress <= measured * ingress < found.ingress + 1


def test_what_is_said_counts_before_what_is_measured_each_direction_by_itself() -> None:
    half = Told(egress=1000, egress_share=Fraction(1), ingress_share=Fraction(1))
    assert promised(ETH0, 5000, half) == Link(2, "eth0", 1000, 5000)
    assert promised(ETH0, None, half) == Link(2, "eth0", 1000, 0), "nobody knows what it can receive"
    passing = promised(replace(ETH0, flags=UP), None, half)
    assert isinstance(passing, Unknown), "a carrier will bring it back"
    assert passing.passing
    veth = Interface(5, "eth0", kind="veth")
    said = Told("", 1000, 2000, Fraction(1), Fraction(1))
    assert promised(veth, TEN_GIGABIT, said) == Link(5, "eth0", 1000, 2000)


@pytest.mark.parametrize("kind", ["", "bond", "vlan", "team"])
def test_speeds_that_are_hardwares(kind: str) -> None:
    assert isinstance(promised(Interface(5, "x", kind=kind), 1000, NOTHING_TOLD), Link)


@pytest.mark.parametrize("kind", ["veth", "tun", "bridge", "wireguard"])
def test_speeds_that_are_made_up(kind: str) -> None:
    found = promised(Interface(5, "x", kind=kind), TEN_GIGABIT, NOTHING_TOLD)
    assert why(found).startswith(f"x is a {kind}, whose speed is made up: label the node")
    assert isinstance(found, Unknown)
    assert not found.passing
    assert found.link == Link(5, "x", 0, 0), "limits are kept there all the same"


def test_only_a_missing_carrier_passes() -> None:
    silent = promised(ETH0, None, NOTHING_TOLD)
    assert why(silent).startswith("eth0 does not say how fast it is")
    assert isinstance(silent, Unknown)
    assert not silent.passing
    down = promised(replace(ETH0, flags=UP), None, NOTHING_TOLD)
    assert why(down).startswith("eth0 has no carrier")
    assert isinstance(down, Unknown)
    assert down.passing


def test_the_loopback_is_no_link() -> None:
    assert "loopback" in why(promised(LO, None, Told("lo", 1000, 1000)))


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_it_is_looked_at_in_a_real_namespace() -> None:
    with namespaces() as here:
        host, beyond = here.add("host", "beyond")
        here.batch(
            host,
            [
                "link set lo up",
                f"link add uplink type veth peer name eth0 netns {beyond}",
                f"link add second type veth peer name eth1 netns {beyond}",
                "link set uplink up",
                "link set second up",
                "addr add 192.0.2.1/24 dev uplink",
                "addr add 198.51.100.1/24 dev second",
            ],
        )
        here.batch(beyond, ["link set eth0 up", "link set eth1 up"])
        with netlink(host) as asked:
            assert "no default route" in why(look(asked, NOTHING_TOLD))
            ip("-netns", host, "route", "add", "default", "via", "192.0.2.2")
            said = why(look(asked, NOTHING_TOLD))
            assert said.startswith("uplink is a veth, whose speed is made up"), "it says 10 Gbit/s"
            told = Told(egress=1000, ingress=1000, egress_share=Fraction(1), ingress_share=Fraction(1))
            link = look(asked, told)
            assert isinstance(link, Link)
            assert (link.name, link.egress, link.ingress) == ("uplink", 1000, 1000)
            two = ["nexthop", "via", "192.0.2.2", "nexthop", "via", "198.51.100.2"]
            ip("-netns", host, "route", "replace", "default", *two)
            assert "second, uplink at once" in why(look(asked, told))
            ip("-netns", host, "route", "delete", "default")
            ip("-netns", host, "-6", "route", "add", "default", "dev", "second")
            link = look(asked, told)
            assert isinstance(link, Link)
            assert link.name == "second"
