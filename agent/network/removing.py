"""Takes away all that the agent has put at interfaces, and leaves what others put there: for uninstalling."""

from __future__ import annotations

from agent.network import dump, ingress, messages
from agent.network.netlink import Netlink, Request
from agent.network.originals import Originals
from agent.network.records import (
    CLSACT,
    CLSACT_HANDLE,
    EGRESS,
    HANDLE,
    INGRESS,
    NAME,
    PRIORITY,
    ROOT,
    Filter,
    Found,
    is_ours,
    roots,
)


def remove(netlink: Netlink, originals: Originals) -> list[str]:
    """Qdiscs, filters, clsact and IFBs of ours go; what could not be removed, or is not as it was before.

    The kernel puts its own root qdisc back by itself. Programs at TCX are not touched. Raises NetlinkError
    where nothing can be read.
    """
    with_filters = {qdisc.interface for qdisc in dump.qdiscs(netlink) if qdisc.kind in ("clsact", "ingress")}
    found = dump.found(netlink, sorted(with_filters))
    requests = _requests(found, originals)
    outcomes = netlink.apply([request for request, _ in requests])
    troubles = [
        f"{what}: {refused.strerror}"
        for (_, what), refused in zip(requests, outcomes, strict=True)
        if refused is not None
    ]
    if not troubles:
        troubles = _unlike(netlink, found, originals)
        originals.forget([root.interface for root in roots(found).values()])
    return troubles


def is_ours_filter(one: Filter, found: Found) -> bool:
    """Whether we put it at clsact."""
    classifier = one.priority == PRIORITY and one.kind == "bpf" and one.name.startswith(NAME)
    return classifier or ingress.is_redirect(one, found)


def _requests(found: Found, originals: Originals) -> list[tuple[Request, str]]:
    """What is removed and in words, in order: filters before what they lead to."""
    requests: list[tuple[Request, str]] = []
    others: set[int] = set()
    for one in found.filters:
        if is_ours_filter(one, found):
            requests.append((ingress.without(one, found), f"filter {one.kind} at interface {one.interface}"))
        elif one.parent in (INGRESS, EGRESS):
            others.add(one.interface)
    requests += [
        (messages.no_qdisc(interface, CLSACT, CLSACT_HANDLE), f"clsact at interface {interface}")
        for interface in sorted(originals.clsacts(found.devices) - others)
        if any(one.interface == interface and one.kind == "clsact" for one in found.qdiscs)
    ]
    ifbs = [device for device in found.devices.values() if ingress.is_our_ifb(device)]
    shapers = {one.interface: one for one in found.qdiscs if is_ours(one)}
    requests += [
        (messages.no_qdisc(interface, ROOT, HANDLE), f"{one.kind} 10ce: at interface {interface}")
        for interface, one in shapers.items()
        if interface not in {device.index for device in ifbs}
    ]
    requests += [(messages.no_link(device.index), f"interface {device.name}") for device in ifbs]
    return requests


def _unlike(netlink: Netlink, before: Found, originals: Originals) -> list[str]:
    """Interfaces whose root qdisc is another kind than it was before ours."""
    now = {qdisc.interface: qdisc.kind for qdisc in dump.qdiscs(netlink) if qdisc.parent == ROOT}
    return [
        f"{device.name} had the qdisc {was}, and has {now[device.index]}: net.core.default_qdisc was changed"
        for device in before.devices.values()
        if (was := originals.kind(device)) and device.index in now and now[device.index] != was
    ]
