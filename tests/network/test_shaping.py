"""A plan in the kernel: pods' packets find their classes, a restart changes nothing, others' qdiscs stay."""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from agent.network import classifier, classifying, dump, messages, probes
from agent.network.bpf import links, programs
from agent.network.bpf.elf import ObjectProgram
from agent.network.bpf.system import BpfError
from agent.network.classifier import Ports
from agent.network.contested import NOTHING_GIVEN_UP, GivenUp
from agent.network.ladder import Choice, Choices, Means, choose
from agent.network.namespaces import inside
from agent.network.netlink import Netlink
from agent.network.originals import Originals
from agent.network.records import INGRESS
from agent.network.shaping import Shaped, Shaping
from qos.network.bands import Configuration
from qos.network.planning import NOTHING_YET, plan
from qos.network.recovered import recovered
from qos.network.wanted import Band, Bounds, Link, PodTraffic, Wanted
from tests.network.node import WORLD_4, WORLD_6, Node, Pod

MEGABIT = 125_000
T = TypeVar("T")


@dataclass
class Shaper:
    """What an agent is to one node: plans for its pods, and has the kernel made so."""

    node: Node
    run: Path
    bpf_root: str
    choices: Choices
    link: Link | None
    before: Wanted = NOTHING_YET
    opened: list[Shaping] = field(default_factory=list)

    def _do(self, work: Callable[[], T]) -> T:
        return inside(Path("/run/netns") / self.node.name, work)

    def start(self) -> Shaping:
        """An agent, or the next one."""
        shaping = self._do(lambda: Shaping(Netlink(), Originals(self.run), self.choices, self.bpf_root))
        self.opened.append(shaping)
        return shaping

    def settle(
        self, shaping: Shaping, *pods: PodTraffic, given_up: GivenUp = NOTHING_GIVEN_UP, hasty: bool = False
    ) -> Shaped:
        links = [self.link] if self.link else []
        configuration = Configuration(leaf=self.choices.leaf, policed=self.choices.policed)
        self.before = plan(links, pods, configuration, self.before)
        nics = frozenset(link.index for link in links)
        ifbs = {link.index: link.ifb for link in links if link.ifb}
        ports = Ports(nics, frozenset(pod.interface for pod in pods), ifbs)
        return self._do(lambda: shaping.settle(self.before, ports, given_up, hasty=hasty))

    def recover(self, shaping: Shaping, *pods: PodTraffic) -> None:
        """As an agent that was started anew."""
        self.before = recovered(self._do(shaping.left), pods, self.node.nic)


@pytest.fixture(name="shaper", params=[Means.HTB_TCX, Means.HTB_CLSACT], ids=["tcx", "clsact"])
def _shaper(request: pytest.FixtureRequest, node: Node, tmp_path: Path, bpffs: str) -> Iterator[Shaper]:
    found = choose(probes.probe())
    choices = Choices(Choice(request.param), found.receiving, found.pods, found.leaf)
    with shaping_node(node, tmp_path, bpffs, choices) as made:
        yield made


@contextmanager
def shaping_node(node: Node, run: Path, bpf_root: str, choices: Choices) -> Iterator[Shaper]:
    """With a link of a gigabit a second."""
    link = Link(node.nic, "eth0", 1000 * MEGABIT, 1000 * MEGABIT)
    shaper = Shaper(node, run, bpf_root, choices, link)
    try:
        yield shaper
    finally:
        for one in shaper.opened:
            one.close()


def traffic(uid: str, pod: Pod, **bounds: Bounds) -> PodTraffic:
    return PodTraffic(
        uid,
        Band.L1,
        bounds.get("egress", Bounds()),
        bounds.get("ingress", Bounds()),
        tuple(
            socket.inet_pton(family, address)
            for family, address in ((socket.AF_INET, pod.address), (socket.AF_INET6, pod.address6))
        ),
        interface=pod.host,
    )


def sent(shaper: Shaper, uid: str) -> int:
    """Packets that went through a pod's own class."""
    class_id = 0x10CE << 16 | shaper.before.standing[uid].minor
    return next(
        one.counters.packets
        for one in dump.classes(shaper.node.netlink, shaper.node.nic)
        if one.class_id == class_id and one.counters
    )


def shown(node: Node) -> tuple[str, str]:
    """Of the NIC."""
    qdiscs = re.sub(r" direct_packets_stat \d+", "", node.run("tc", "qdisc", "show", "dev", "eth0"))
    return qdiscs, node.run("tc", "filter", "show", "dev", "eth0")


def ping(shaper: Shaper, pod: Pod, *where: str) -> None:
    for one in where:
        shaper.node.run("ping", "-c", "5", "-i", "0.01", "-W", "5", one, namespace=pod.namespace)


def test_packets_of_each_pod_go_to_its_own_class(shaper: Shaper) -> None:
    shaping = shaper.start()
    one, two = shaper.node.pod(), shaper.node.pod()
    pods = [
        traffic("one", one, egress=Bounds(floor=100 * MEGABIT)),
        traffic("two", two, egress=Bounds(limit=10 * MEGABIT), ingress=Bounds(limit=20 * MEGABIT)),
    ]
    done = shaper.settle(shaping, *pods)
    assert (done.unshaped, done.unclassified) == ({}, "")
    before = sent(shaper, "one"), sent(shaper, "two")
    ping(shaper, one, WORLD_4, WORLD_6)
    assert sent(shaper, "one") >= before[0] + 10
    assert sent(shaper, "two") < before[1] + 5, "that was the other pod's"
    ping(shaper, two, WORLD_4)
    assert sent(shaper, "two") >= before[1] + 5
    assert shaper.settle(shaping, *pods) == Shaped(0, {})


def forge(node: Node, sender: Pod, source: str, count: int) -> None:
    """Datagrams to the world that say they come from another address, as whoever has CAP_NET_RAW can send."""

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            addresses = socket.inet_aton(source) + socket.inet_aton(WORLD_4)
            packet = struct.pack("!BBHHHBBH", 0x45, 0, 0, 0, 0, 64, 17, 0) + addresses + bytes(8)
            for _ in range(count):
                raw.sendto(packet, (WORLD_4, 0))

    node.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
    inside(Path("/run/netns") / sender.namespace, send)


def test_a_pod_with_anothers_address_is_not_taken_for_it(shaper: Shaper) -> None:
    """Where the node does not look at sources (rp_filter 0, the kernel's default) its packets go on."""
    shaping = shaper.start()
    one, two = shaper.node.pod(), shaper.node.pod()
    floor = Bounds(floor=100 * MEGABIT)
    shaper.settle(shaping, traffic("one", one, egress=floor), traffic("two", two, egress=floor))
    before = sent(shaper, "one"), sent(shaper, "two")
    forge(shaper.node, one, two.address, 20)
    assert sent(shaper, "one") - before[0] >= 20
    assert sent(shaper, "two") - before[1] < 5


def test_the_next_agent_finds_all_as_it_wants_it(shaper: Shaper) -> None:
    first = shaper.start()
    names = ["c", "a", "b"]
    pods = []
    for name in names:  # in the order of their coming, which their uids do not tell
        pods.append(traffic(name, shaper.node.pod(), egress=Bounds(floor=50 * MEGABIT)))
        shaper.settle(first, *pods)
    given = shaper.before.standing
    first.close()
    shaper.opened.clear()
    second = shaper.start()
    shaper.recover(second, *pods)
    assert shaper.settle(second, *pods) == Shaped(0, {})
    assert shaper.before.standing == given


def test_where_nobody_asks_for_anything_nothing_is_left(shaper: Shaper) -> None:
    before = shaper.node.everything()
    shaping = shaper.start()
    assert shaper.settle(shaping) == Shaped(0, {})
    assert shaper.node.everything() == before
    pod = shaper.node.pod()
    with_pod = shaper.node.everything()
    shaper.settle(shaping, traffic("one", pod, ingress=Bounds(limit=20 * MEGABIT)))
    assert shaper.node.everything() != with_pod
    shaper.before = NOTHING_YET  # a NIC's tree stays until the agent begins anew
    shaper.settle(shaping)
    left = [one for one in shaper.node.everything()["qdiscs"] if one["kind"] != "clsact"]
    assert left == with_pod["qdiscs"], "a clsact of ours goes when all is taken away"
    assert not (Path(shaper.bpf_root) / "j10ce").exists()


def test_a_nic_whose_qdisc_is_anothers_is_left_alone(shaper: Shaper) -> None:
    node = shaper.node
    node.run("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb")
    pod = node.pod()
    before = shown(node)
    both = Bounds(limit=20 * MEGABIT)
    done = shaper.settle(shaper.start(), traffic("one", pod, egress=both, ingress=both))
    assert list(done.unshaped) == [node.nic]
    assert "put there by another" in done.unshaped[node.nic]
    assert shown(node) == before
    assert "tbf 10ce:" in node.run("tc", "qdisc", "show"), "what it receives is limited all the same"
    assert not (Path(shaper.bpf_root) / "j10ce").exists()


def test_two_programs_never_meet_a_packet(shaper: Shaper) -> None:
    """An agent with another kernel's way finds the filter of the one before, and takes it out."""
    pod = traffic("one", shaper.node.pod(), egress=Bounds(floor=MEGABIT))
    with closing(shaper.start()) as first:
        shaper.settle(first, pod)
    means = {Means.HTB_TCX: Means.HTB_CLSACT, Means.HTB_CLSACT: Means.HTB_TCX}[shaper.choices.sending.means]
    shaper.choices = Choices(
        Choice(means), shaper.choices.receiving, shaper.choices.pods, shaper.choices.leaf
    )
    shaper.opened.clear()
    second = shaper.start()
    shaper.settle(second, pod)
    shown = shaper.node.run("tc", "filter", "show", "dev", "eth0", "egress")
    assert ("bpf" in shown) == (means is Means.HTB_CLSACT)


@pytest.mark.parametrize("others", ["tcx", "clsact"])
def test_where_anothers_program_is_at_a_pod_no_pod_is_marked(shaper: Shaper, others: str) -> None:
    """It may read what ours would write: Cilium does. By their addresses pods are told all the same."""
    shaping = shaper.start()
    one, two = shaper.node.pod(), shaper.node.pod()
    floor = Bounds(floor=100 * MEGABIT)
    pods = [traffic("one", one, egress=floor), traffic("two", two, egress=floor)]
    shaper.settle(shaping, *pods)
    with foreign(shaper.node, two.host, others):
        done = shaper.settle(shaping, *pods)
        assert done.unclassified == ""
        assert done.changes > 0
        for pod in (one, two):
            device = f"pod{shaper.node.pods.index(pod) + 1}"
            assert "j10ce" not in shaper.node.run("tc", "filter", "show", "dev", device, "ingress")
            assert ours_at_tcx(shaper.node, pod.host) == []
        before = sent(shaper, "two")
        ping(shaper, two, WORLD_4)
        assert sent(shaper, "two") >= before + 5
        assert shaper.settle(shaping, *pods) == Shaped(0, {})
    assert shaper.settle(shaping, *pods).changes > 0


def test_a_mark_is_a_filter_unless_anothers_would_come_before_it(shaper: Shaper) -> None:
    """A filter takes a hundredth of the time that TCX takes; the plugin bandwidth's steals what it sees."""
    shaping = shaper.start()
    node, pod = shaper.node, shaper.node.pod()
    one = traffic("one", pod, egress=Bounds(floor=MEGABIT))

    def shown_filters() -> str:
        return node.run("tc", "filter", "show", "dev", "pod1", "ingress")

    shaper.settle(shaping, one)
    assert ("j10ce_mark" in shown_filters(), ours_at_tcx(node, pod.host)) == (True, [])
    match = ("u32", "match", "u32", "0", "0", "flowid", "1:1")
    node.run("tc", "filter", "add", "dev", "pod1", "ingress", "protocol", "ip", "pref", "9", *match)
    tcx = shaper.choices.sending.means is Means.HTB_TCX
    assert (shaper.settle(shaping, one).changes > 0) is tcx
    assert ("j10ce_mark" in shown_filters()) is not tcx
    assert ours_at_tcx(node, pod.host) == (["j10ce_mark"] if tcx else [])
    assert "u32" in shown_filters(), "another's stays"
    assert shaper.settle(shaping, one) == Shaped(0, {})
    node.run("tc", "filter", "del", "dev", "pod1", "ingress", "pref", "9")
    shaper.settle(shaping, one)
    assert ("j10ce_mark" in shown_filters(), ours_at_tcx(node, pod.host)) == (True, [])


def ours_at_tcx(node: Node, interface: int) -> list[str]:
    def names() -> list[str]:
        there = links.at_interface(interface, links.Hook.TCX_INGRESS)
        return [programs.running(one.program).name for one in there]

    return [name for name in inside(Path("/run/netns") / node.name, names) if name.startswith("j10ce_")]


@contextmanager
def foreign(node: Node, interface: int, how: str) -> Iterator[None]:
    """Another's program at the ingress of an interface, which lets all go on."""
    goes_on = bytes([0xB7, 0, 0, 0]) + struct.pack("=i", -1) + bytes([0x95, 0, 0, 0, 0, 0, 0, 0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "kernel_name", lambda name: name.encode())
        program = programs.load(ObjectProgram("cil_from_pod", "tc", goes_on, {}), {}, "GPL")

    def attach() -> int:
        if how == "tcx":
            return links.attach(program, interface, links.Hook.TCX_INGRESS, "a pod")
        with closing(Netlink()) as netlink, pytest.MonkeyPatch.context() as patch:
            patch.setattr(messages, "PRIORITY", 7)
            classifying.attach(netlink, interface, program, "cil_from_pod", INGRESS)
        return os.dup(program)

    link = inside(Path("/run/netns") / node.name, attach)
    try:
        yield
    finally:
        os.close(link)
        os.close(program)
        if how == "clsact":
            name = dump.devices(node.netlink)[interface].name
            node.run("tc", "filter", "del", "dev", name, "ingress", "pref", "7")


def test_programs_that_do_not_load_leave_no_file_open(
    shaper: Shaper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round tries again."""

    def refused(*_: object) -> None:
        raise BpfError(errno.EINVAL, "program classify")

    monkeypatch.setattr(classifier, "Installed", refused)
    shaping = shaper.start()
    pod = traffic("one", shaper.node.pod(), egress=Bounds(floor=MEGABIT))
    assert "program classify" in shaper.settle(shaping, pod).unclassified
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        shaper.settle(shaping, pod)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_in_haste_for_one_pod_the_others_are_believed_to_be_as_they_were(shaper: Shaper, node: Node) -> None:
    """A pod that starts has all that is its own; what another took from others comes with a whole round."""
    shaping, old, new = shaper.start(), node.pod(), node.pod()
    pods = [
        traffic("old", old, egress=Bounds(limit=20 * MEGABIT)),
        traffic("new", new, egress=Bounds(limit=10 * MEGABIT), ingress=Bounds(limit=10 * MEGABIT)),
    ]
    shaper.settle(shaping, pods[0])

    def marked(host: str) -> bool:
        return "j10ce_mark" in node.run("tc", "filter", "show", "dev", host, "ingress")

    assert marked("pod1")
    node.run("tc", "filter", "del", "dev", "pod1", "ingress")
    done = shaper.settle(shaping, *pods, hasty=True)
    assert (done.unshaped, done.unclassified, done.hung_again) == ({}, "", frozenset())
    assert (marked("pod1"), marked("pod2")) == (False, True)
    before = sent(shaper, "new")
    ping(shaper, new, WORLD_4, WORLD_6)
    assert sent(shaper, "new") >= before + 10
    assert shaper.settle(shaping, *pods, hasty=True) == Shaped(0, {})
    assert shaper.settle(shaping, *pods).hung_again == frozenset({old.host})
    assert (marked("pod1"), marked("pod2")) == (True, True)
    assert shaper.settle(shaping, pods[1], hasty=True).unclassified == ""
    assert (marked("pod1"), marked("pod2")) == (False, True), "what goes, goes"
