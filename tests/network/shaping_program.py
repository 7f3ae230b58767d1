"""An agent's work on a node's network, with the rights that whoever starts this has left to it.

Run as `python -P -m tests.network.shaping_program RUN BPF_ROOT`: in a network namespace of its own it tries
what the kernel can do, sets a tree up in each way, and takes all away. It prints what it met, as JSON: with
`error` where it did not come to its end.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from agent.network import dump, messages, namespaces
from agent.network.classifier import Ports
from agent.network.drift import Listening
from agent.network.ladder import Choice, Choices, Means
from agent.network.leaving import leave
from agent.network.netlink import Netlink
from agent.network.originals import Originals
from agent.network.probes import probe
from agent.network.shaping import Shaping
from qos.network.bands import Configuration
from qos.network.planning import plan
from qos.network.wanted import Band, Bounds, Link, PodTraffic

_RATE = 10**6
_ADDRESS = bytes((10, 201, 1, 2))


def main() -> None:
    """Work, and say what came of it."""
    run, bpf_root = Path(sys.argv[1]), sys.argv[2]
    run.mkdir(exist_ok=True)
    said: dict[str, Any] = {"limits": _capabilities()}
    try:
        said["probes"] = {one.technique.value: one.reason for one in probe()}
        for means in (Means.HTB_TCX, Means.HTB_CLSACT):
            said[means.name] = namespaces.in_new(lambda means=means: _shaped(means, run, bpf_root))
    except Exception:
        said["error"] = traceback.format_exc()
    sys.stdout.write(json.dumps(said, default=str))


def _capabilities() -> dict[str, str]:
    status = Path("/proc/self/status").read_text().splitlines()
    return dict(line.split(":\t") for line in status if line.startswith("Cap"))


def _shaped(means: Means, run: Path, bpf_root: str) -> dict[str, Any]:
    with Netlink() as netlink, Listening():
        netlink.one(messages.new_veth("eth0", "world"))
        netlink.one(messages.new_veth("pod", "inside"))
        index = {one.name: one.index for one in dump.devices(netlink).values()}
        before = [(one.interface, one.kind, one.handle) for one in dump.qdiscs(netlink)]
        leaf = Configuration(leaf="bfifo")
        choices = Choices(Choice(means), Choice(Means.NONE), Choice(Means.TBF), leaf.leaf)
        link = Link(index["eth0"], "eth0", 100 * _RATE, 100 * _RATE)
        pod = PodTraffic("one", Band.L1, Bounds(_RATE), Bounds(0, _RATE), (_ADDRESS,), interface=index["pod"])
        wanted = plan([link], [pod], leaf)
        shaping = Shaping(netlink, Originals(run), choices, bpf_root)
        first = shaping.settle(wanted, Ports(frozenset({link.index}), frozenset({pod.interface})))
        again = shaping.settle(wanted, Ports(frozenset({link.index}), frozenset({pod.interface})))
        pinned = sorted(one.name.rpartition("-")[0] for one in Path(bpf_root, "j10ce/v1/links").iterdir())
        left = leave(run, bpf_root)
        after = [(one.interface, one.kind, one.handle) for one in dump.qdiscs(netlink)]
        return {
            "changes": first.changes,
            "unshaped": {**first.unshaped, **again.unshaped},
            "unclassified": first.unclassified or again.unclassified,
            "again": again.changes,
            "pinned": pinned,
            "left": left,
            "unlike before": [one for one in after if one not in before] + list(Path(bpf_root).glob("j10ce")),
        }


if __name__ == "__main__":
    main()
