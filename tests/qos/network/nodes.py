"""Links, configurations and pods for property tests: small numbers, so that floors meet their limits."""

from __future__ import annotations

from hypothesis import strategies as st

from qos.network.bands import WHOLE, Amount, Bands, Configuration, Share
from qos.network.wanted import Band, Bounds, Direction, Link, PodTraffic

MBIT = 125_000
GBIT = 1000 * MBIT

NONE = Bounds()

RATES = st.sampled_from([1, 99, 125, 4 * MBIT, 10 * MBIT, 100 * MBIT, 300 * MBIT, GBIT, 10 * GBIT])
SPEEDS = st.sampled_from([0, 10 * MBIT, 117_500_000, 112_500_001, 10 * GBIT])


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    return Bounds(draw(st.just(0) | RATES), draw(st.none() | RATES))


def pod(uid: str, egress: Bounds = NONE, ingress: Bounds = NONE, band: Band = Band.L0) -> PodTraffic:
    """A pod with an address and a veth of its own, by its uid."""
    number = int(uid)
    return PodTraffic(uid, band, egress, ingress, (number.to_bytes(4, "big"),), interface=1000 + number)


@st.composite
def pods(draw: st.DrawFn, least: int = 0) -> list[PodTraffic]:
    """Pods with and without addresses, veths and cgroups; some addresses are claimed twice."""
    found = []
    for number in draw(st.lists(st.integers(0, 40), unique=True, min_size=least, max_size=8)):
        on_host = draw(st.booleans())
        addresses = st.lists(
            st.sampled_from([bytes([10, 0, 0, number]), bytes(16), bytes([10, 0, 0, 99])]), max_size=3
        )
        found.append(
            PodTraffic(
                uid=str(number),
                band=draw(st.sampled_from(Band)),
                egress=draw(bounds()),
                ingress=draw(bounds()),
                addresses=() if on_host else tuple(draw(addresses)),
                cgroup_ids=(number + 5000,) if on_host else (),
                interface=0 if on_host else draw(st.sampled_from([0, 1000 + number])),
                priority=draw(st.integers(0, 2)),
            )
        )
    return found


AMOUNTS = st.builds(Amount, st.integers(0, 100), st.sampled_from([0, 1000, 10 * MBIT]))
SHARES = st.builds(Share, AMOUNTS, st.just(WHOLE) | AMOUNTS)
BANDS = st.builds(Bands, AMOUNTS, st.dictionaries(st.sampled_from(Band), SHARES))
CONFIGURATIONS = st.builds(
    Configuration,
    egress=st.just(Bands()) | BANDS,
    ingress=st.just(Bands()) | BANDS,
    leaf=st.sampled_from(["fq_codel", "bfifo"]),
    policed=st.frozensets(st.sampled_from(Direction)),
)


@st.composite
def links(draw: st.DrawFn) -> list[Link]:
    return [
        Link(index, f"eth{index}", draw(SPEEDS), draw(SPEEDS), draw(st.sampled_from([0, 50 + index])))
        for index in range(2, 2 + draw(st.integers(0, 2)))
    ]
