"""Which address is whose. Pure.

An address goes from pod to pod: a pod's status keeps it after the pod has ended, and a pod that is being
deleted may still be listed when the next one has it. One that two pods claim with the same right is nobody's,
so that none is counted for the other.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """What is said of one pod. stated: by its status; told: by the runtime, of its present sandbox.

    alive: whether a process of it is known to run. host: it has the host's network, so its addresses are the
    node's.
    """

    uid: str
    stated: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    alive: bool = False
    host: bool = False


def owned(claims: Iterable[Claim]) -> dict[str, tuple[bytes, ...]]:
    """The addresses of each pod, packed, 4 or 16 bytes, in the order in which they are said; by uid.

    What the runtime tells counts before a status, and a pod that runs before one that may not.
    """
    said = {claim.uid: claim for claim in claims}
    rights: defaultdict[bytes, list[tuple[bool, bool, str]]] = defaultdict(list)
    of_the_node = set[bytes]()
    packed: dict[str, tuple[bytes, ...]] = {}
    for uid, claim in said.items():
        addresses = _packed(claim.told or claim.stated)
        if claim.host:
            of_the_node.update(addresses)
            continue
        packed[uid] = addresses
        for address in addresses:
            rights[address].append((bool(claim.told), claim.alive, uid))
    owner = {address: _owner(all_of_it) for address, all_of_it in rights.items()}
    return {
        uid: tuple(one for one in addresses if owner[one] == uid and one not in of_the_node)
        for uid, addresses in packed.items()
    }


def _owner(rights: list[tuple[bool, bool, str]]) -> str:
    *_, best = sorted(rights)
    rivals = [one for one in rights if one[:2] == best[:2]]
    return best[2] if len(rivals) == 1 else ""


def _packed(texts: Iterable[str]) -> tuple[bytes, ...]:
    """Each once; without what is no address, and without those that many have at the same time."""
    found: dict[bytes, None] = {}
    for text in texts:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        if not (
            address.is_loopback or address.is_unspecified or address.is_link_local or address.is_multicast
        ):
            found[address.packed] = None
    return tuple(found)
