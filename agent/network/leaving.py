"""Leaves the node's network as it was found: nothing of ours at its interfaces or in the BPF file system."""

from __future__ import annotations

import contextlib
from pathlib import Path

from agent.network import dump, seen
from agent.network.bpf import installed
from agent.network.bpf.links import TCX, Hook
from agent.network.bpf.pins import MOUNTED_AT, schemas
from agent.network.bpf.system import BpfError
from agent.network.ingress import is_our_ifb
from agent.network.netlink import Netlink
from agent.network.originals import NAME, Originals
from agent.network.records import is_ours
from agent.network.removing import is_ours_filter, remove


def leave(run: Path, bpf_root: str = MOUNTED_AT, *, unnoted: bool = False) -> list[str]:
    """What could not be taken away, and why; [] where all is. Where no agent shaped, nothing is looked at.

    unnoted: also look where no note of an agent's is.
    """
    noted, pinned = (run / NAME).exists(), bool(schemas(bpf_root))
    if not (noted or pinned or unnoted):
        return []
    try:
        with Netlink() as netlink:
            left = remove(netlink, Originals(run))
        left += installed.uninstall(bpf_root)
    except (OSError, BpfError) as error:
        return [f"the node's network: {error}"]
    if not left:
        for name in (NAME, seen.NAME):
            (run / name).unlink(missing_ok=True)
    return left


def remaining(bpf_root: str = MOUNTED_AT) -> list[str]:
    """What of ours is still in this network namespace, and pinned, looked for without any note; [] nothing.

    Raises NetlinkError.
    """
    with Netlink() as netlink:
        qdiscs = dump.qdiscs(netlink)
        with_filters = {one.interface for one in qdiscs if one.kind in ("clsact", "ingress")}
        found = dump.found(netlink, sorted(with_filters))
    names = {index: device.name for index, device in found.devices.items()}
    left = [f"{one.kind} 10ce: at {names.get(one.interface)}" for one in qdiscs if is_ours(one)]
    left += [
        f"filter {one.kind} of priority {one.priority} at {names.get(one.interface)}"
        for one in found.filters
        if is_ours_filter(one, found)
    ]
    left += [f"interface {device.name}" for device in found.devices.values() if is_our_ifb(device)]
    left += [
        f"program {name} at {names[index]} ({hook.name})"
        for index in names
        for hook in sorted(TCX)
        for name in _at_tcx(index, hook)
    ]
    return left + [f"{bpf_root}/j10ce/v{schema}" for schema in schemas(bpf_root)]


def _at_tcx(interface: int, hook: Hook) -> list[str]:
    """Nothing where the kernel has no TCX, where we may not ask, or where the interface is gone."""
    with contextlib.suppress(BpfError):
        return installed.ours(interface, hook)
    return []
