"""What this node can keep of the network, whether a pod asks for it yet or not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.network.ladder import Choice, Choices, Means
from agent.network.shaper import Round
from agent.network.shaping import unusable
from agent.network.unkept import FOREIGN, NOT_SHAPED
from qos.bandwidth import BITS, LEAST_BITS
from qos.cluster.needs import NETWORK_FLOOR, NETWORK_LIMIT
from qos.cluster.network_state import (
    FROM_LINK,
    QUEUES,
    TO_LINK,
    TO_PODS,
    LinkState,
    NetworkState,
    Obstacle,
    Technique,
)
from qos.cluster.node_report import PromiseState
from qos.network.bands import DEFAULT, contradictions, promisable
from qos.network.wanted import Direction, Link, Unkept

NOT_YET: Final = Obstacle("NotShapedYet", "the network of the node is not shaped yet")
KERNEL_LACKS: Final = "KernelLacks"
NO_PINS: Final = "NoBPFFileSystem"
NOTHING_LEFT: Final = "NothingToPromise"
_PINNED: Final = frozenset({Means.HTB_TCX, Means.HTB_CLSACT})
"""The means whose maps are kept in the BPF file system."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of the node's network now.

    choices: None: not tried yet. link: None: not known, link_problem says why. sources: who says how fast it
    is. pins: why the BPF file system cannot be used, "" it can. last: the last round, None: there was none.
    failure: why none can be made, "" one could.
    """

    choices: Choices | None = None
    link: Link | None = None
    link_problem: str = ""
    sources: Mapping[Direction, str] = field(default_factory=dict)
    pins: str = ""
    last: Round | None = None
    failure: str = ""

    @property
    def known(self) -> bool:
        """Whether a round has shown what becomes of it, or that none can be made."""
        return (self.choices is not None and self.last is not None) or bool(self.failure)


def floor_obstacle(seen: Standing) -> Obstacle | None:
    """Why no floor of what a pod sends can be kept here; None: one can."""
    return next(_of_floors(seen), None)


def limit_obstacle(seen: Standing) -> Obstacle | None:
    """Why not every limit can be kept here; None: each can."""
    return next(_of_limits(seen), None)


def promise_states(
    floor: Obstacle | None, limit: Obstacle | None, choices: Choices | None
) -> tuple[PromiseState, ...]:
    """What NodeQoS says of both promises."""
    instead = "; ".join(choices.sending.reasons) if choices else ""
    return tuple(
        PromiseState(name, obstacle is None, message=str(obstacle) if obstacle else instead)
        for name, obstacle in ((NETWORK_FLOOR, floor), (NETWORK_LIMIT, limit))
    )


def network_state(seen: Standing, obstacle: Obstacle | None) -> NetworkState:
    """The node's part of the report; obstacle: of its floors."""
    return NetworkState(
        _link_state(seen),
        tuple(_techniques(seen.choices, seen.link)) if seen.choices else (),
        obstacle,
        tuple(_contradictions(seen)),
    )


def _of_floors(seen: Standing) -> Iterator[Obstacle]:
    yield from _of_sending(seen)
    link, last = seen.link, seen.last
    configuration = last.configuration if last is not None else DEFAULT
    if link is None or not configuration.speed(link, Direction.EGRESS):
        why = seen.link_problem or "nobody says how fast the link sends: label the Node j10ce.io/link-egress"
        yield Obstacle(Unkept.LINK_UNKNOWN.value, why)
    elif last is not None and promisable([link], Direction.EGRESS, configuration) * BITS < LEAST_BITS:
        why = "the host's and the bands' minima fill the link: lower them"
        yield Obstacle(NOTHING_LEFT, why)


def _of_limits(seen: Standing) -> Iterator[Obstacle]:
    """Without a tree, or a link, what pods send is policed at their veths."""
    if seen.choices is not None and Direction.EGRESS in seen.choices.policed:
        yield from _of_programs(seen)
        if seen.last is not None and seen.last.shaped.unclassified:
            yield Obstacle(NOT_SHAPED, seen.last.shaped.unclassified)
    else:
        yield from _of_sending(seen)
        if seen.link is None:
            yield Obstacle(Unkept.LINK_UNKNOWN.value, seen.link_problem)
    if seen.choices is not None and (why := unusable(seen.choices).buckets):
        yield Obstacle(KERNEL_LACKS, why)


def _of_programs(seen: Standing) -> Iterator[Obstacle]:
    """Of whatever is made."""
    if seen.choices is None:
        yield Obstacle(NOT_SHAPED, seen.failure) if seen.failure else NOT_YET
        return
    if seen.pins and (seen.choices.sending.means in _PINNED or seen.choices.policed):
        yield Obstacle(NO_PINS, seen.pins)
    if seen.failure:
        yield Obstacle(NOT_SHAPED, seen.failure)
    if seen.last is None:
        yield NOT_YET


def _of_sending(seen: Standing) -> Iterator[Obstacle]:
    if seen.choices is not None and (why := unusable(seen.choices).trees):
        yield Obstacle(KERNEL_LACKS, why)
    yield from _of_programs(seen)
    if seen.last is not None and seen.link is not None:
        shaped, nic = seen.last.shaped, seen.link.index
        if nic in shaped.foreign:
            yield Obstacle(FOREIGN, f"{shaped.foreign[nic]}, and is left alone")
        if why := shaped.unshaped.get(nic, shaped.unclassified):
            yield Obstacle(NOT_SHAPED, why)


def _link_state(seen: Standing) -> LinkState | None:
    link = seen.link
    if link is None:
        return None
    sent, received = (seen.sources.get(direction, "") for direction in Direction)
    return LinkState(
        link.name,
        link.egress * BITS,
        sent if link.egress else "",
        link.ingress * BITS,
        received if link.ingress else "",
    )


def _techniques(choices: Choices, link: Link | None) -> Iterator[Technique]:
    yield _technique(TO_LINK, choices.sending)
    if link is not None and link.ifb:
        yield _technique(FROM_LINK, choices.receiving)
    else:
        yield Technique(FROM_LINK, Means.NONE.value, "what the link receives is not shaped here")
    yield _technique(TO_PODS, choices.pods)
    yield Technique(QUEUES, choices.leaf or "htb's own", choices.leaf_reason)


def _technique(traffic: str, choice: Choice) -> Technique:
    return Technique(traffic, choice.means.value, "; ".join(choice.reasons))


def _contradictions(seen: Standing) -> Iterator[str]:
    if seen.last is None or seen.link is None:
        return
    for direction in Direction:
        speed = seen.last.configuration.speed(seen.link, direction)
        if speed:
            bands = seen.last.configuration.bands(direction)
            yield from (f"{direction.value}: {one}" for one in contradictions(bands, speed))
