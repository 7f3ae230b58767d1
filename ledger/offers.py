"""What preemptors were answered: whose eviction makes room for them, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from qos.cluster.objects import Pod

EVICTION_SECONDS: Final = 5.0
"""A deletion shows within; one that takes longer may have failed, and another node may do better."""


@dataclass(slots=True)
class Offer:
    """What a preemptor was answered last: the UIDs of its victims, by node.

    `node`: where the scheduler has nominated it since, "" while that is not known. Only there are victims to
    be evicted; those of the other nodes live. `since`: when it was answered so. `begun`: since when victims
    are being evicted for it that it was answered before. `ended`: victims that were ending, or unknown, when
    they were first offered: nobody is evicted for it there.
    """

    victims: dict[str, tuple[str, ...]]
    since: float
    node: str = ""
    begun: dict[str, float] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()

    def all(self) -> set[str]:
        """The victims of all nodes."""
        return {victim for victims in self.victims.values() for victim in victims}

    def is_late(self, victim: str, now: float) -> bool:
        """Whether the victim's deletion should show by now; if it does not, the eviction has failed."""
        return now - self.begun.get(victim, self.since) >= EVICTION_SECONDS


class Offers:
    """Offers by the preemptor's UID, the latest last."""

    def __init__(self) -> None:
        self.by_uid: dict[str, Offer] = {}

    def put(self, uid: str, offer: Offer, nominated: str = "") -> None:
        """A preemptor was answered (again). `nominated`: where it says it is, as that may not have shown.

        When an eviction fails kube-scheduler asks anew at once, again and again: what it began first counts.
        """
        before = self.by_uid.pop(uid, None)
        if before is not None:
            offer.ended -= before.all() - before.ended
        if before is not None and (node := before.node or nominated):
            begun = {**dict.fromkeys(before.victims.get(node, ()), before.since), **before.begun}
            again = offer.all()
            offer.begun = {victim: since for victim, since in begun.items() if victim in again}
        self.by_uid[uid] = offer

    def evicted_for_others(self, uid: str, node: str) -> set[str]:
        """Victims on a node of other preemptors that are nominated there."""
        others = (offer for other, offer in self.by_uid.items() if other != uid and offer.node == node)
        return {victim for offer in others for victim in offer.victims[node]}

    def drop(self, uid: str) -> None:
        """It needs no victims any more."""
        self.by_uid.pop(uid, None)

    def nominated(self, pod: Pod) -> None:
        """Take note of the node to which the scheduler has nominated a pod: an offer holds there and nowhere
        else.
        """
        offer = self.by_uid.get(pod.uid)
        node = pod.nominated_node_name
        if offer is None or not node:
            return
        if node in offer.victims and offer.node in ("", node):
            offer.node = node
            offer.victims = {node: offer.victims[node]}  # thousands live elsewhere
        else:
            del self.by_uid[pod.uid]

    def awaiting(self, victim: str, node: str, now: float) -> Iterator[str]:
        """UIDs of the preemptors that were answered lately, and may be nominated where this victim was; where
        they are is not shown yet. The latest first: earlier ones need not be looked at.
        """
        for uid, offer in reversed(self.by_uid.items()):
            if now - offer.since > EVICTION_SECONDS:
                return
            if not offer.node and victim in offer.victims.get(node, ()):
                yield uid
