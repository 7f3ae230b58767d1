"""What a pod may expect of its node's network: its band, floors and limits, and who said each. Pure.

The band, highest first: the QoSProfile of the pod's policy; annotation k8s.aliyun.com/qos-class; terway-qos'
pod.json; the pod's class. Floors are its policy's alone. A limit is the least of all that are stated, whoever
states it: a profile's stays, whatever a pod's author writes, and an author may limit a pod further. What has
no effect because another has is a Misread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from qos import keys
from qos.bandwidth import BITS, NO_BOUNDS, Band, Bounds, BytesPerSecond, Limits, from_bits
from qos.classes import CLASSES
from qos.pods.decision import Decided
from qos.pods.peers.asked import Asked
from qos.pods.peers.bandwidth import ANNOTATIONS as _READERS
from qos.pods.peers.reading import Misread
from qos.promises import Unsupported
from qos.quantity import render

ANNOTATIONS: Final = frozenset(_READERS)
"""All annotations that are read; whoever stores pods keeps them."""
_LONGEST: Final = 4096
"""Characters of one that is read: all pods' are read in each round, and 200 kB take 17 ms."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """A pod's band and bounds, bytes a second.

    `sources`: who said what is not simply the class's: band, egress limit, ingress limit. `misread`: what had
    no effect, and why; `unsupported`: what was understood and is not done.
    """

    band: Band
    egress: Bounds = NO_BOUNDS
    ingress: Bounds = NO_BOUNDS
    sources: Mapping[str, str] = field(default_factory=dict)
    misread: tuple[Misread, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()

    def stated(self) -> Iterator[str]:
        """What somebody stated, a line each, in bits a second: "egress limit 10M bits/s (policy web)"."""
        if "band" in self.sources:
            yield f"band {self.band.name} ({self.sources['band']})"
        for way, bounds in (("egress", self.egress), ("ingress", self.ingress)):
            if bounds.floor:
                yield f"{way} floor {_shown(bounds.floor)}"
            if bounds.limit is not None:
                yield f"{way} limit {_shown(bounds.limit)} ({self.sources[f'{way} limit']})"


class _Saying(NamedTuple):
    """One who says something of the pod's traffic; `value`: how it is written."""

    source: str
    value: str
    asked: Asked


def traffic(one: Decided, files: Mapping[str, Asked] | None = None) -> Traffic:
    """What the pod may expect. Nothing on a pod raises.

    `files`: what files on the node say of it (qos.pods.peers.terway), by the file's name. A pod that is opted
    out has the host's band and no bounds; one that is left alone has the host's band instead of its class's.
    """
    if one.opted_out:
        return Traffic(Band.L0)
    collected = _Collected(one)
    sayings = [*_of_rules(one), *collected.annotations(), *_of_files(files)]
    band, source = collected.band(sayings)
    egress, ingress = (collected.limit(sayings, direction) for direction in keys.BANDWIDTHS)
    floors = one.kept
    return Traffic(
        band,
        Bounds(from_bits(floors.get(keys.EGRESS_BANDWIDTH, 0)), egress),
        Bounds(from_bits(floors.get(keys.INGRESS_BANDWIDTH, 0)), ingress),
        collected.sources | ({"band": source} if source else {}),
        tuple(collected.misread),
        tuple(note for saying in sayings for note in saying.asked.unsupported),
    )


def _of_rules(one: Decided) -> Iterator[_Saying]:
    """What the pod's profile and policy say."""
    if one.profile:
        yield _Saying(f"QoSProfile {one.profile.name}", "", Asked(one.profile.band, one.profile.limits))
    if one.policy and one.policy.limit:
        egress, ingress = (one.policy.limit.get(name) for name in keys.BANDWIDTHS.values())
        limits = Limits(egress and from_bits(egress), ingress and from_bits(ingress))
        yield _Saying(f"policy {one.policy.name}", "", Asked(limits=limits))


def _of_files(files: Mapping[str, Asked] | None) -> Iterator[_Saying]:
    for name, asked in (files or {}).items():
        yield _Saying(f"file {name}", "", asked)


class _Collected:
    def __init__(self, one: Decided) -> None:
        self._one = one
        self.misread: list[Misread] = []
        self.sources: dict[str, str] = {}

    def _without_effect(self, source: str, value: str, why: str) -> None:
        pod = self._one.pod
        self.misread.append(Misread(f"{pod.namespace}/{pod.name}", source, value, why))

    def annotations(self) -> Iterator[_Saying]:
        """What the pod itself says."""
        for key, reader in _READERS.items():
            text = self._one.pod.annotations.get(key)
            if text is None:
                continue
            source = f"annotation {key}"
            if len(text) > _LONGEST:
                why = f"has {len(text)} characters: no more than {_LONGEST} are read"
                self._without_effect(source, text[:_LONGEST], why)
                continue
            try:
                asked = reader(text)
            except ValueError as error:
                self._without_effect(source, text, str(error))
                continue
            for name in asked.unknown:
                self._without_effect(source, name, "is no field of this annotation")
            yield _Saying(source, text, asked)

    def band(self, sayings: Sequence[_Saying]) -> tuple[Band, str]:
        """The band, and who said so; "": its class."""
        stated = [(saying, saying.asked.band) for saying in sayings if saying.asked.band is not None]
        if not stated:
            return (Band.L0 if self._one.exempt else CLASSES[self._one.expected.class_name].band), ""
        (first, band), *others = stated
        for saying, other in others:
            if other is not band:
                value = saying.value or other.name
                self._without_effect(saying.source, value, f"has no effect: {first.source} says {band.name}")
        return band, first.source

    def limit(self, sayings: Sequence[_Saying], direction: str) -> BytesPerSecond | None:
        """The least that is stated; the first of equals."""
        amounts = [(one.asked.limits.of(direction), one) for one in sayings]
        stated = [(amount, one) for amount, one in amounts if amount is not None]
        if not stated:
            return None
        least, by = min(stated, key=lambda pair: pair[0])
        for amount, saying in stated:
            if amount > least:
                value = saying.value or _shown(amount)
                why = f"has no effect on {direction}: {by.source} has {_shown(least)}, which is less"
                self._without_effect(saying.source, value, why)
        self.sources[f"{direction} limit"] = by.source
        return least


def _shown(amount: BytesPerSecond) -> str:
    return f"{render('', amount * BITS)} bits/s"
