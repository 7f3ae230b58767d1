"""What preemptors were answered: whose eviction makes room for them, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from qos.cluster.objects import Pod

EVICTION_SECONDS: Final = 5.0
"""A deletion shows within; one that takes longer may have failed, and another node may do better."""


@dataclass(slots=True)
class Offer:
    """What a preemptor was answered last: the UIDs of its victims, by node.

    `node`: where the scheduler has nominated it since, "" while that is not known. Only there are victims to
    be evicted; those of the other nodes live. `since`: when it was answered so.
    """

    victims: dict[str, tuple[str, ...]]
    since: float
    node: str = ""


class Offers:
    """Offers by the preemptor's UID, the latest last."""

    def __init__(self) -> None:
        self.by_uid: dict[str, Offer] = {}

    def put(self, uid: str, offer: Offer) -> None:
        """A preemptor was answered (again)."""
        self.by_uid.pop(uid, None)
        self.by_uid[uid] = offer

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
