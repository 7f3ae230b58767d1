"""A real node's network: a pair of devices between its network namespace and the machine's.

The machine reaches the node's kubelet through it (kubectl logs, exec). Addresses are of 198.18.0.0/15, which
RFC 2544 keeps for tests of network devices: nobody routes to them.
"""

from __future__ import annotations

import ipaddress
import json
import random
import secrets
from dataclasses import dataclass
from pathlib import Path

from lab.kwok import SERVICE
from lab.runtimes.programs import RuntimesError, require, run

_POOL = ipaddress.ip_network("198.18.0.0/15")
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Link:
    """A node's end and the machine's: addresses, and the name of the machine's device."""

    node: str
    machine: str
    device: str


def connect(first: int) -> Link:
    """Give the network namespace of process `first` a device with an address and a default route.

    Its loopback has the address of Service kubernetes, where lab.node.relay listens.
    """
    ip = require("ip")
    nsenter: list[str | Path] = [require("nsenter"), "--target", str(first), "--net", "--"]
    link = free_link()
    ends = ["type", "veth", "peer", "name", "eth0", "netns", str(first)]
    run([ip, "link", "add", link.device, *ends]).succeeded()
    run([ip, "address", "add", f"{link.machine}/30", "dev", link.device]).succeeded()
    run([ip, "link", "set", link.device, "up"]).succeeded()
    run([*nsenter, ip, "link", "set", "lo", "up"]).succeeded()
    run([*nsenter, ip, "address", "add", f"{SERVICE}/32", "dev", "lo"]).succeeded()
    run([*nsenter, ip, "address", "add", f"{link.node}/30", "dev", "eth0"]).succeeded()
    run([*nsenter, ip, "link", "set", "eth0", "up"]).succeeded()
    run([*nsenter, ip, "route", "add", "default", "via", link.machine]).succeeded()
    return link


def free_link() -> Link:
    """Two addresses that nobody has here, and a name for the machine's device."""
    devices = json.loads(run([require("ip"), "-json", "address"]).succeeded().stdout)
    used = {
        ipaddress.ip_network(f"{entry['local']}/{entry['prefixlen']}", strict=False)
        for device in devices
        for entry in device.get("addr_info", [])
        if entry.get("family") == "inet"
    }
    for _ in range(_TRIES):
        start = _POOL.network_address + 4 * random.randrange(_POOL.num_addresses // 4)  # noqa: S311
        subnet = ipaddress.ip_network(f"{start}/30")
        if not any(subnet.overlaps(one) for one in used):
            return Link(str(start + 2), str(start + 1), f"j10ce{secrets.token_hex(4)}")
    raise RuntimesError(f"no free network of four addresses in {_POOL}")
