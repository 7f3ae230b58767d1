"""Leaves the node's network as it was found: nothing of ours at its interfaces or in the BPF file system."""

from __future__ import annotations

import contextlib
from pathlib import Path

from agent.network.bpf import installed
from agent.network.bpf.pins import MOUNTED_AT, schemas
from agent.network.bpf.system import BpfError
from agent.network.netlink import Netlink
from agent.network.originals import NAME, Originals
from agent.network.removing import remove


def leave(run: Path, bpf_root: str = MOUNTED_AT) -> list[str]:
    """What could not be taken away, and why; [] where all is. Where no agent shaped, nothing is looked at."""
    noted, pinned = (run / NAME).exists(), bool(schemas(bpf_root))
    if not noted and not pinned:
        return []
    try:
        with Netlink() as netlink:
            left = remove(netlink, Originals(run))
        left += installed.uninstall(bpf_root)
    except (OSError, BpfError) as error:
        return [f"the node's network: {error}"]
    if not left:
        with contextlib.suppress(FileNotFoundError):
            (run / NAME).unlink()
    return left
