"""What the network's floors cost a node of 250 pods, on real interfaces of network namespaces.

In one run: what a packet costs beyond one without a qdisc, with no, 50 and 250 pods that have classes of
their own, beside the same tree with a u32 filter for each pod; how exact a limit is; making all of it for 250
pods, looking at it unchanged, and how soon a class that another deletes is back.

Bounds are ratios to work of the same run, because machines differ: a packet to one by u32, rounds to a fixed
work (fixed_work.py), a repair to a process that sleeps as long as a repair waits for more changes and then
works a little.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.progress import track

from agent.network import applying, drift, dump, messages, sources
from agent.network.classifier import Classifier, Ports
from agent.network.contested import Contested
from agent.network.difference import difference
from agent.network.ladder import choose
from agent.network.namespaces import inside
from agent.network.netlink import Netlink
from agent.network.originals import Originals
from agent.network.probes import probe
from agent.network.shaper import GATHER_SECONDS, SHARE, Pods, Shaper
from agent.network.shaping import Shaping
from benchmarks.figures import Figure, p99, show
from benchmarks.fixed_work import work
from benchmarks.packets import Packets
from lab.processes import exit_on_sigterm
from qos.bandwidth import Band, Bounds
from qos.network.bands import Configuration, divide
from qos.network.minors import FIRST
from qos.network.tree import Member, banded
from qos.network.wanted import HtbTree, Link, PodTraffic, Wanted, class_id, mapped

MEGABIT: Final = 125_000
GIGABIT: Final = 1000 * MEGABIT
LINK: Final = 100 * GIGABIT
"""So fast that no packet waits for its turn."""
LIMIT: Final = 100 * MEGABIT
UNITS: Final = 50
"""Of fixed work, that rounds are compared with."""
NONE, NONE_OF_PODS, TREE, NO_POD, SOME, ALL, U32 = (
    "no qdisc", "no qdisc, of pods", "the tree alone", "0 pods", "50 pods", "250 pods", "u32",
)  # fmt: skip
KINDS: Final = {NONE: 0, NONE_OF_PODS: 0, TREE: 0, NO_POD: 0, SOME: 50, ALL: 250, U32: 250}
"""Pods with a class of their own, of each kind of interface."""


@dataclass
class Node:
    """A namespace with NICs (veths) to a second one. device: index of one by its name."""

    name: str
    netlink: Netlink
    folder: Path

    def device(self, name: str) -> int:
        return next(one.index for one in dump.devices(self.netlink).values() if one.name == name)

    def do(self, work_: Callable[[], Any]) -> Any:
        """Its result, in a thread of this namespace."""
        return inside(Path("/run/netns") / self.name, work_)


@contextlib.contextmanager
def node() -> Iterator[Node]:
    """One with an interface for each kind, and a BPF file system of its own."""
    name = f"j10ce-bench-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="j10ce-bench-") as folder, contextlib.ExitStack() as undo:
        for one in (name, f"{name}-world"):
            _run("ip", "netns", "add", one)
            undo.callback(_run, "ip", "netns", "del", one)
        bpf = Path(folder) / "bpf"
        bpf.mkdir()
        _run("mount", "-t", "bpf", "bpf", str(bpf))
        undo.callback(_run, "umount", str(bpf))
        for at in range(len(KINDS) + 1):
            peer = ("peer", "name", f"nic{at}", "netns", f"{name}-world")
            _run("ip", "-n", name, "link", "add", f"nic{at}", "type", "veth", *peer)
            for side in (name, f"{name}-world"):
                _run("ip", "-n", side, "link", "set", f"nic{at}", "up")
        netlink = inside(Path("/run/netns") / name, Netlink)
        with netlink:
            yield Node(name, netlink, Path(folder))


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def address(pod: int) -> bytes:
    """Of the pod with this number."""
    return bytes([10, 201, pod // 250, 1 + pod % 250])


def tree(interface: int, pods: int, limit: int | None = None) -> HtbTree:
    """As the agent makes it, with a floor, or a limit, for each of these pods."""
    division = divide(Configuration().egress, LINK)
    floor = 0 if limit else division.promisable // 300
    members = [Member(FIRST + pod, Band.L1, floor, limit) for pod in range(pods)]
    return banded(interface, division, members, {}, "bfifo")


def packet_costs(here: Node, rounds: int) -> Mapping[str, float]:
    """Nanoseconds of a packet through each kind of qdisc; interleaved, the least of each."""
    indexes = {kind: here.device(f"nic{at}") for at, kind in enumerate(KINDS)}
    trees = [tree(indexes[kind], pods) for kind, pods in KINDS.items() if kind not in (NONE, NONE_OF_PODS)]
    _apply(here, trees)
    known = {mapped(address(pod)): class_id(FIRST + pod) for pod in range(250)}
    _classify(here, frozenset(indexes[kind] for kind in (NO_POD, SOME, ALL)), known)
    requests = sources.changes(indexes[U32], known, dump.found(here.netlink, [indexes[U32]])).after
    assert not any(here.netlink.apply(requests))
    found = dict.fromkeys(KINDS, float("inf"))
    with contextlib.ExitStack() as opened:
        sending = {
            kind: opened.enter_context(here.do(partial(_packets, at, kind))) for at, kind in enumerate(KINDS)
        }
        for _ in track(range(rounds), description="packets", transient=True):
            for kind, packets in sending.items():
                found[kind] = min(found[kind], packets.nanoseconds(20_000))
    return found


def _packets(at: int, kind: str) -> Packets:
    """Of pods in turn; of the host where no pod has a class."""
    pods = 250 if kind == NONE_OF_PODS else KINDS[kind]
    return Packets(f"nic{at}", [address(pod) for pod in range(pods)] or [bytes([10, 200, 0, 2])])


def _apply(here: Node, trees: Sequence[HtbTree]) -> None:
    found = dump.found(here.netlink, [one.interface for one in trees])
    failures = applying.apply(here.netlink, difference(tuple(trees), (), found).operations)
    if failures:
        raise SystemExit(f"the kernel refuses it: {failures[0].message}")


def _classify(here: Node, nics: frozenset[int], by_address: Mapping[bytes, int]) -> None:
    def settle() -> None:
        classifier = Classifier(
            here.netlink, Originals(here.folder), tcx=True, bpf_root=str(here.folder / "bpf")
        )
        wanted = Wanted(by_address=by_address)
        classifier.settle(wanted, Ports(nics, frozenset()), dump.found(here.netlink, []))
        classifier.close()

    here.do(settle)


def rate_error(here: Node, seconds: float) -> float:
    """Percent by which more, or less, arrives than a class's limit, of a pod that sends all it can."""
    name, at = f"nic{len(KINDS)}", here.device(f"nic{len(KINDS)}")
    _apply(here, [tree(at, 1, LIMIT)])
    request = messages.from_source(at, mapped(address(0)), class_id(FIRST))
    here.netlink.one(request)

    def sent() -> int:
        [counted] = [
            one.counters for one in dump.classes(here.netlink, at) if one.class_id == class_id(FIRST)
        ]
        return counted.bytes if counted else 0

    with here.do(lambda: Packets(name, [address(0)], 1514)) as packets:
        _send(packets, 0.5)
        began, before = time.monotonic(), sent()
        _send(packets, seconds)
        rate = (sent() - before) / (time.monotonic() - began)
    return 100 * abs(rate / LIMIT - 1)


def _send(packets: Packets, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not packets.send():
            time.sleep(0.0005)


@dataclass
class Crowd:
    """250 pods with a veth each on one node, and what keeps their network."""

    here: Node
    known: Pods
    shaper: Shaper
    shaping: Shaping
    port: int
    nic: int
    listening: drift.Listening


@contextlib.contextmanager
def crowd(here: Node, count: int) -> Iterator[Crowd]:
    """Each pod with a floor of what it sends and a limit of what it receives; nothing is made yet."""
    with tempfile.NamedTemporaryFile("w", suffix=".ip") as lines:
        for at in range(count):
            lines.write(f"link add p{at} type veth peer name q{at}\nlink set p{at} up\n")
        lines.flush()
        _run("ip", "-n", here.name, "-batch", lines.name)
    names = {one.name: one.index for one in dump.devices(here.netlink).values()}
    nic = names["nic0"]
    pods = tuple(
        PodTraffic(
            f"uid-{at:03}", Band.L1, Bounds(floor=MEGABIT), Bounds(limit=100 * MEGABIT),
            (address(at),), (), names[f"p{at}"],
        )
        for at in range(count)
    )  # fmt: skip

    async def known() -> tuple[PodTraffic, ...]:
        return pods

    def made() -> Crowd:
        choices = choose(probe())
        netlink = Netlink()
        shaping = Shaping(netlink, Originals(here.folder), choices, str(here.folder / "bpf"))
        link = Link(nic, "nic0", 10 * GIGABIT, 10 * GIGABIT)
        shaper = Shaper(shaping, known, lambda: link, lambda: Configuration(leaf=choices.leaf))
        return Crowd(here, known, shaper, shaping, netlink.port, nic, drift.Listening())

    one = here.do(made)
    try:
        yield one
    finally:
        one.listening.close()
        one.shaping.close()


def rounds(one: Crowd, repeats: int) -> tuple[float, float, float]:
    """Milliseconds of the first round, by the clock and of CPU; and of CPU of one where nothing changed."""
    began, used = time.monotonic(), time.process_time()
    _settle(one)
    cold, cpu = time.monotonic() - began, time.process_time() - used
    if one.shaper.last is None or one.shaper.last.unkept:
        raise SystemExit(f"not all is kept: {one.shaper.last and one.shaper.last.unkept}")
    least = float("inf")
    for _ in range(repeats):
        used = time.process_time()
        _settle(one)
        least = min(least, time.process_time() - used)
        if one.shaper.last.shaped.changes:
            raise SystemExit(f"changed without a reason: {one.shaper.last.shaped}")
    return 1000 * cold, 1000 * cpu, 1000 * least


def starts(one: Crowd, repeats: int) -> float:
    """Milliseconds of CPU of a round as a pod's start makes it, without what looking that pod up takes."""
    least = float("inf")
    for _ in range(repeats):
        used = time.process_time()
        one.here.do(lambda: asyncio.run(one.shaper.settle(one.known)))
        least = min(least, time.process_time() - used)
    return 1000 * least


def _settle(one: Crowd) -> None:
    one.here.do(lambda: asyncio.run(one.shaper.settle()))


def repairs(one: Crowd, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds from the deletion of a class to its return, and of as many plain turns; sorted."""
    took: list[float] = one.here.do(lambda: asyncio.run(_repairs(one, count)))
    turns = []
    for _ in range(count):
        began = time.monotonic()
        time.sleep(GATHER_SECONDS)
        works(10)
        turns.append(1000 * (time.monotonic() - began))
    return sorted(took), sorted(turns)


async def _repairs(one: Crowd, count: int) -> list[float]:
    took: list[float] = []

    def changed(_: object) -> None:
        one.shaper.changed()

    watching = asyncio.create_task(drift.watch(one.listening, (one.port,), changed, one.shaper.changed))
    running = asyncio.create_task(one.shaper.run())
    with Netlink() as other:
        for at in track(range(count), description="repairs", transient=True):
            while one.shaper.last is None:  # noqa: ASYNC110 - the shaper tells nobody
                await asyncio.sleep(0.001)
            await asyncio.sleep(1.5 * SHARE * one.shaper.last.seconds)  # so long an agent rests
            one.shaper.contested = Contested()  # six in a minute would be a fight, which we give up
            last, began = one.shaper.last, time.monotonic()
            other.one(messages.no_class(one.nic, class_id(FIRST + at % 200)))
            while one.shaper.last is last or not one.shaper.last.shaped.changes:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            took.append(1000 * (time.monotonic() - began))
    for task in (running, watching):
        task.cancel()
    await asyncio.gather(running, watching, return_exceptions=True)
    return took


def works(units: int) -> float:
    """Milliseconds of CPU that so many units of the fixed work take."""
    began = time.process_time()
    for _ in range(units):
        work()
    return 1000 * (time.process_time() - began)


def measure(count: int, packet_rounds: int, seconds: float, repair_count: int) -> list[Figure]:
    """Everything, one after the other."""
    with node() as here:
        costs = packet_costs(here, packet_rounds)
        error = rate_error(here, seconds)
    with node() as here, crowd(here, count) as one:
        cold, cpu, unchanged = rounds(one, 5)
        start = starts(one, 5)
        plain = works(UNITS)
        took, turns = repairs(one, repair_count)
    beside = f"x a plain turn; medians {took[len(took) // 2]:.0f}, {turns[len(turns) // 2]:.0f}"
    return [
        *packet_figures(costs),
        Figure("a limit of 100 Mbit/s, error", error, 1.0, 2, "%", "plain"),
        *round_figures(count, cold, cpu, unchanged, plain),
        Figure(f"a start among {count} pods, CPU", start, unchanged, 0.9, "ms", "x a whole round"),
        Figure("repair of a class, p99", p99(took), p99(turns), 5, "ms", beside),
    ]


def packet_figures(costs: Mapping[str, float]) -> Iterator[Figure]:
    """What a packet costs beyond one that meets no qdisc."""
    by_u32 = costs[U32] - costs[NONE_OF_PODS]
    beside = (
        f"x one by 250 u32 filters; {costs[NONE]:.0f} without, {costs[TREE] - costs[NONE]:.0f} the tree alone"
    )
    for kind in (NO_POD, SOME, ALL):
        more = costs[kind] - costs[NONE_OF_PODS if KINDS[kind] else NONE]
        yield Figure(f"a packet, {kind}: more than without", more, by_u32, 0.9, "ns", beside)
        beside = ""


def round_figures(count: int, cold: float, cpu: float, unchanged: float, plain: float) -> Iterator[Figure]:
    """Rounds against the fixed work."""
    beside = f"x {UNITS} units of fixed work"
    yield Figure(f"{count} pods shaped, by the clock", cold, plain, 20, "ms", beside)
    yield Figure(f"{count} pods shaped, CPU", cpu, plain, 4, "ms", beside)
    yield Figure(f"{count} pods found as wanted, CPU", unchanged, plain, 2, "ms", beside)


def main() -> None:
    """Print the figures; exit code 1 when one is out of its bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=40, help="of 20,000 packets through each qdisc")
    parser.add_argument("--seconds", type=float, default=5, help="for which a limit is measured")
    parser.add_argument("--repairs", type=int, default=30)
    given: Any = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench-network: needs root: BPF, network namespaces")
    exit_on_sigterm()
    sys.exit(show(measure(given.pods, given.rounds, given.seconds, given.repairs)))


if __name__ == "__main__":
    main()
