"""How a link is divided: what each band and the host keep of it, and what is left for pods' floors.

A minimum is never given to a floor: whatever policies promise, pods without one keep their band's minimum.
So a node can promise floors up to the link less all minima (`promisable`), and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from qos.bandwidth import Band, BytesPerSecond
from qos.network.wanted import Direction, Link

TRICKLE: Final = 100
"""The rate of a class that is promised nothing, bytes a second: HTB has none without a rate."""
HOST_PERCENT: Final = 3
"""Of a link, what the host itself keeps where nobody says otherwise."""
UNLIMITED: Final = 125_000_000_000
"""Stands for a link whose speed nobody knows, bytes a second: a terabit, which no NIC has."""

_LEAST: Final = 32_000
"""Of each band, bytes a second: the trickles of 320 classes."""
_LEAST_PART: Final = 16
"""Of a link on which that would be much: at most one part in so many."""


@dataclass(frozen=True, slots=True)
class Amount:
    """So much of a link: a percentage of it (0 to 100), and bytes a second besides."""

    percent: int = 0
    rate: BytesPerSecond = 0

    def of(self, link: BytesPerSecond) -> BytesPerSecond:
        """Of this link; at most all of it."""
        return min(link * self.percent // 100 + self.rate, link)


NOTHING: Final = Amount()
WHOLE: Final = Amount(percent=100)


@dataclass(frozen=True, slots=True)
class Share:
    """What a band keeps while others want more, and what it may use of what is idle."""

    minimum: Amount = NOTHING
    maximum: Amount = WHOLE


@dataclass(frozen=True, slots=True)
class Bands:
    """One direction of a link: what the host itself keeps, and each band's share; left out: the default.

    The defaults leave 90 % of the link for floors. host: the kubelet's heartbeats, the runtime and ssh must
    answer on a node whose pods send all they can. L0 and L1: enough for a request and its answer. L2: its TCP
    connections stay alive, and what it is allowed to finish does so.
    """

    host: Amount = Amount(percent=HOST_PERCENT)
    shares: Mapping[Band, Share] = field(default_factory=dict)

    def share(self, band: Band) -> Share:
        """What a band has."""
        return self.shares.get(band, _DEFAULTS[band])


_DEFAULTS: Final = {
    Band.L0: Share(Amount(percent=3)),
    Band.L1: Share(Amount(percent=2)),
    Band.L2: Share(Amount(percent=2)),
}


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a node's administrator says of its network.

    total: what the NIC can do, bytes a second, headroom taken off, where it is not the link's own speed; 0:
    the link's. leaf: the qdisc of classes without children. policed: directions whose limits can be policed:
    egress where no tree keeps them, ingress in the place of buckets.
    """

    egress: Bands = Bands()
    ingress: Bands = Bands()
    total_egress: BytesPerSecond = 0
    total_ingress: BytesPerSecond = 0
    leaf: str = "fq_codel"
    policed: frozenset[Direction] = frozenset()

    def bands(self, direction: Direction) -> Bands:
        """Of one direction."""
        return self.egress if direction is Direction.EGRESS else self.ingress

    def speed(self, link: Link, direction: Direction) -> BytesPerSecond:
        """What all may send, or receive, through this NIC; 0: nobody knows."""
        if direction is Direction.EGRESS:
            return self.total_egress or link.egress
        return self.total_ingress or link.ingress


DEFAULT: Final = Configuration()


@dataclass(frozen=True, slots=True)
class Division:
    """One direction of one link, divided; bytes a second. minima and maxima by band.

    host + sum(minima) <= total; minimum <= maximum <= total; promisable: what is left for floors.
    """

    total: BytesPerSecond
    host: BytesPerSecond
    minima: tuple[BytesPerSecond, ...]
    maxima: tuple[BytesPerSecond, ...]

    @property
    def promisable(self) -> BytesPerSecond:
        """What floors may have together."""
        return self.total - self.host - sum(self.minima)

    def room(self, band: Band) -> BytesPerSecond:
        """What the floors of one band may have together, whatever the others have."""
        return self.maxima[band] - self.minima[band]

    def classes(self, band: Band) -> int:
        """How many pods of a band may have classes of their own."""
        return self.minima[band] // TRICKLE - 1


def divide(bands: Bands, total: BytesPerSecond) -> Division:
    """A link of this speed (> 0). Minima that are together more than it has are less, in proportion."""
    least = min(_LEAST, total // _LEAST_PART)
    shares = [bands.share(band) for band in Band]
    maxima = tuple(max(share.maximum.of(total), least) for share in shares)
    minima = [max(min(share.minimum.of(total), maxima[band]), least) for band, share in enumerate(shares)]
    host = max(bands.host.of(total), least)
    asked = host + sum(minima)
    if asked > total:
        spare, above = total - least * (1 + len(minima)), asked - least * (1 + len(minima))
        host, *minima = (least + (one - least) * spare // above for one in (host, *minima))
    return Division(total, host, tuple(minima), maxima)


def contradictions(bands: Bands, total: BytesPerSecond) -> Iterator[str]:
    """What of a configuration a link of this speed cannot keep, for people."""
    for band in Band:
        share = bands.share(band)
        minimum, maximum = share.minimum.of(total), share.maximum.of(total)
        if minimum > maximum:
            yield f"band {band.name}: minimum {minimum} is above maximum {maximum} bytes/s: the maximum holds"
    asked = bands.host.of(total) + sum(bands.share(band).minimum.of(total) for band in Band)
    if asked > total:
        yield (
            f"the minima of host and bands are together {asked} bytes/s, the link has {total}:"
            " each gets less, in proportion, and no floor is promised"
        )


def promisable(
    links: Sequence[Link], direction: Direction, configuration: Configuration = DEFAULT
) -> BytesPerSecond:
    """What a node can promise to floors, for the extended resource that it publishes; 0: nothing.

    A pod may send through any of the node's NICs, so that the slowest counts. What is received is promised
    only where it is shaped.
    """
    speeds = [configuration.speed(link, direction) for link in links]
    shaped = direction is Direction.EGRESS or all(link.ifb for link in links)
    if not links or not shaped or not all(speeds):
        return 0
    return min(divide(configuration.bands(direction), speed).promisable for speed in speeds)
