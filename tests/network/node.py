"""A node for a test: a namespace with a NIC (a veth) to the world, and pods, each one behind a veth."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.network import applying, dump
from agent.network.difference import Difference, difference
from agent.network.namespaces import inside
from agent.network.netlink import Netlink
from agent.network.records import Found
from qos.network.wanted import HtbTree, Tbf
from tests.agent.network.namespaces import Namespaces, namespaces

WORLD_4, WORLD_6 = "10.200.0.1", "fd00:200::1"


@contextlib.contextmanager
def bpf_file_system(above: Path) -> Iterator[str]:
    """A BPF file system of the test's own, below this folder; its path."""
    folder = above / "bpf"
    folder.mkdir()
    subprocess.run(["mount", "-t", "bpf", "bpf", folder], check=True)
    try:
        yield str(folder)
    finally:
        subprocess.run(["umount", folder], check=True)


@dataclass(frozen=True)
class Pod:
    """host: index of the host's end of its veth."""

    namespace: str
    host: int
    address: str
    address6: str

    @property
    def packed(self) -> bytes:
        """Its address in 16 bytes."""
        return ipaddress.IPv6Address(f"::ffff:{self.address}").packed

    @property
    def packed6(self) -> bytes:
        return ipaddress.IPv6Address(self.address6).packed


@dataclass
class Node:
    """name, world: of the namespaces. nic: index of the interface to the world."""

    made: Namespaces
    name: str
    world: str
    netlink: Netlink
    nic: int
    pods: list[Pod] = field(default_factory=list)

    def run(self, *words: str, namespace: str = "") -> str:
        """A command's output; its complaint when it fails."""
        argv = ["ip", "netns", "exec", namespace or self.name, *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout

    def index(self, device: str) -> int:
        return next(one.index for one in dump.devices(self.netlink).values() if one.name == device)

    def links(self, count: int, first: int = 0) -> list[int]:
        """So many veths, both ends here, the host's end up; their indexes."""
        lines = [
            f"link add p{first + at} type veth peer name q{first + at}\nlink set p{first + at} up"
            for at in range(count)
        ]
        self.made.batch(self.name, lines)
        names = {device.name: device.index for device in dump.devices(self.netlink).values()}
        return [names[f"p{first + at}"] for at in range(count)]

    def pod(self) -> Pod:
        """One with addresses, which reaches the world."""
        at = len(self.pods) + 1
        [name] = self.made.add(f"pod{at}")
        address, address6 = f"10.201.{at}.2", f"fd00:201:{at}::2"
        host, host6 = f"10.201.{at}.1", f"fd00:201:{at}::1"
        self.made.batch(
            self.name,
            [
                f"link add pod{at} type veth peer name eth0 netns {name}",
                f"address add {host}/24 dev pod{at}",
                f"address add {host6}/64 dev pod{at} nodad",
                f"link set pod{at} up",
            ],
        )
        self.made.batch(
            name,
            [
                "link set lo up",
                f"address add {address}/24 dev eth0",
                f"address add {address6}/64 dev eth0 nodad",
                "link set eth0 up",
                f"route add default via {host}",
                f"route add default via {host6}",
            ],
        )
        self.pods.append(Pod(name, self.index(f"pod{at}"), address, address6))
        return self.pods[-1]

    def found(self) -> Found:
        return dump.found(self.netlink, [self.nic])

    def difference(self, *wanted: HtbTree | Tbf, held: frozenset[int] = frozenset()) -> Difference:
        """What is still to be done for these."""
        trees = tuple(one for one in wanted if isinstance(one, HtbTree))
        buckets = tuple(one for one in wanted if isinstance(one, Tbf))
        found = dump.found(self.netlink, [one.interface for one in trees])
        return difference(trees, buckets, found, held)

    def reconcile(self, *wanted: HtbTree | Tbf, held: frozenset[int] = frozenset()) -> Difference:
        """Does that; nothing may be refused."""
        needed = self.difference(*wanted, held=held)
        assert applying.apply(self.netlink, needed.operations) == []
        return needed

    def everything(self) -> dict[str, Any]:
        """Each link, qdisc, class and filter as iproute2 shows it, without counters."""
        devices = json.loads(self.run("ip", "-json", "-details", "link", "show"))
        qdiscs = json.loads(self.run("tc", "-json", "qdisc"))
        for qdisc in qdiscs:
            qdisc.get("options", {}).pop("direct_packets_stat", None)
        shown: dict[str, Any] = {"links": devices, "qdiscs": qdiscs}
        for device in devices:
            name = device["ifname"]
            shown[f"classes {name}"] = self.run("tc", "class", "show", "dev", name)
            for parent in ("root", "ingress", "egress"):
                words = ("tc", "filter", "show", "dev", name, parent)
                shown[f"filters {name} {parent}"] = self.run(*words)
        return shown


@contextlib.contextmanager
def node() -> Iterator[Node]:
    """For the time of the block."""
    with namespaces() as made:
        name, world = made.add("node", "world")
        made.batch(
            name,
            [
                "link set lo up",
                f"link add eth0 type veth peer name eth0 netns {world}",
                "address add 10.200.0.2/24 dev eth0",
                "address add fd00:200::2/64 dev eth0 nodad",
                "link set eth0 up",
            ],
        )
        made.batch(
            world,
            [
                "link set lo up",
                f"address add {WORLD_4}/24 dev eth0",
                f"address add {WORLD_6}/64 dev eth0 nodad",
                "link set eth0 up",
                "route add 10.201.0.0/16 via 10.200.0.2",
                "route add fd00:201::/32 via fd00:200::2",
            ],
        )
        netlink = inside(Path("/run/netns") / name, Netlink)
        with netlink:
            nic = next(one.index for one in dump.devices(netlink).values() if one.name == "eth0")
            made_node = Node(made, name, world, netlink, nic)
            made_node.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
            yield made_node
