"""Owners to which places are handed over, for one who sees everything: where to, and what goes for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from extender.hand_over import BIND_SECONDS
from qos.cluster.objects import Demand, Pod


@dataclass(slots=True)
class Handed:
    """An owner whose hand-over has begun.

    `demand`: its policy's, None where that is gone. `gated`: it was, then. `nominated`: it was, to `node`;
    kube-scheduler may have taken that back. `covered`: a placeholder that stands by keeps the place for it
    until then. `placeholder`: the one that goes for it, by UID, "" none so far. `overtaken`: kube-scheduler
    had given its place to another pod before, or gave it to one of higher priority, or did not heed that it
    was nominated. `until`: so long it is judged.
    """

    node: str
    policy: str
    demand: Demand | None
    gated: bool = False
    nominated: bool = False
    covered: bool = False
    placeholder: str = ""
    overtaken: bool = False
    until: float = float("inf")

    def takes_a_slot(self, pod: Pod, left: Mapping[str, int]) -> bool:
        """Whether it asks for no more than that, and what is `left` of the node besides."""
        slot = self.demand.vector if self.demand is not None else {}
        more = {name: amount - slot.get(name, 0) for name, amount in pod.requests.items()}
        return all(amount <= max(0, left.get(name, 0)) for name, amount in more.items())


class HandOvers:
    """Those that have begun, by the owner's UID, until it is bound or gone, or our service gives up."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Handed] = {}

    def __iter__(self) -> Iterator[tuple[str, Handed]]:
        yield from self._by_uid.items()

    def get(self, uid: str) -> Handed | None:
        """Of one owner."""
        return self._by_uid.get(uid)

    def begin(self, uid: str, one: Handed, pod: Pod | None) -> None:
        """Our service has claimed the place. `pod`: the owner as it is now."""
        self._by_uid[uid] = one
        if pod is not None:
            self.see(pod)

    def see(self, pod: Pod) -> None:
        """The owner changed."""
        one = self._by_uid.get(pod.uid)
        if one is not None and pod.nominated_node_name == one.node:
            one.nominated = True
        if pod.node_name:
            self.end(pod.uid)

    def end(self, uid: str) -> None:
        """The owner is bound or gone, or our service has given up."""
        self._by_uid.pop(uid, None)

    def restarted(self, now: float, there: Callable[[str], bool]) -> None:
        """Our service is another one: what it had not finished is over. `there`: whether an owner waits for
        gates, or a placeholder stands.
        """
        self._by_uid = {
            uid: one
            for uid, one in self._by_uid.items()
            if one.nominated and one.placeholder and not (there(one.placeholder) or there(uid))
        }
        for one in self._by_uid.values():
            one.until = min(one.until, now + BIND_SECONDS)

    def heir(self, node: str, policy: str, placeholder: str) -> bool:
        """Whether an owner was nominated in this placeholder's place: it is its heir, and of no other."""
        for one in self._by_uid.values():
            mine = one.nominated and (one.node, one.policy) == (node, policy)
            if mine and one.placeholder in ("", placeholder):
                one.placeholder = placeholder
                return True
        return False

    def count(self, policy: str, now: float) -> int:
        """How many owners of a policy have their place kept for them."""
        own = [one for one in self._by_uid.values() if one.policy == policy]
        return sum((one.nominated or one.covered) and now <= one.until for one in own)
