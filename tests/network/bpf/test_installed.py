"""Our programs on a real interface: they outlive the agent, are replaced without a gap, and leave no
trace.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.network.bpf import elf, installed, links, maps, objects, programs
from agent.network.bpf.difference import (
    address_entries,
    cgroup_entries,
    cgroup_key,
    interface_entries,
    limit_entries,
    settings_entry,
)
from agent.network.bpf.installed import CARRIED, Done, Installed, uninstall
from agent.network.bpf.links import Attached, Hook
from agent.network.bpf.pins import Pins, schemas
from agent.network.bpf.system import BpfError, close
from qos.network.wanted import Direction, class_id
from tests.network.bpf import rig
from tests.network.bpf.rig import NODE4, NODE6, POD4, POD6, Joined, inside, own_cgroup
from tests.waiting import until

MAPPED = bytes(10) + b"\xff\xff"
HERE4, HERE6 = MAPPED + ipaddress.ip_address(POD4).packed, ipaddress.ip_address(POD6).packed
DEFAULT, BY_IPV4, BY_IPV6, BY_CGROUP = 1, 5, 6, 7
EGRESS = Hook.TCX_EGRESS
_NOTHING = bytes([0xB7, 0, 0, 0, 0, 0, 0, 0])
"""r0 = 0: an instruction more makes another version of a program that does the same."""


@pytest.fixture
def shaped(pair: Joined) -> Joined:
    """The pod's namespace plays the node: its veth is the NIC."""
    rig.shaped(pair.pod, (DEFAULT, BY_IPV4, BY_IPV6, BY_CGROUP))
    return pair


@pytest.fixture
def known(classifier: Installed) -> Installed:
    classifier.fill("by_address", address_entries({HERE4: class_id(BY_IPV4), HERE6: class_id(BY_IPV6)}))
    return classifier


def attach(at: Joined, of: Installed) -> Done:
    return inside(at.pod, lambda: of.attach("classify", EGRESS, at.index(at.pod)))


def hanging(at: Joined) -> tuple[Attached, ...]:
    return inside(at.pod, lambda: links.at_interface(at.index(at.pod), EGRESS))


def names(attached: tuple[Attached, ...]) -> list[str]:
    found = []
    for one in attached:
        fd = programs.by_id(one.program)
        found.append(programs.info(fd).name)
        close(fd)
    return found


def other_version(of: Installed) -> int:
    """The descriptor of classify as another release might have it."""
    loaded = objects.load("classify")
    (program,) = loaded.programs
    shifted = {at + elf.INSTRUCTION: name for at, name in program.maps.items()}
    other = replace(program, code=_NOTHING + program.code, maps=shifted)
    return programs.load(other, {name: one.fd for name, one in of.maps.items()}, loaded.license)


def pings(at: Joined, address: str, count: int = 20) -> None:
    rig.run(at.pod, "ping", "-q", "-c", str(count), "-i", "0.002", "-W", "20", address)


def test_packets_go_to_the_class_of_their_sender(shaped: Joined, known: Installed) -> None:
    assert attach(shaped, known) is Done.ATTACHED
    before = rig.sent(shaped.pod)
    pings(shaped, NODE4)
    pings(shaped, NODE6, 30)
    after = rig.sent(shaped.pod)
    assert after[BY_IPV4] - before[BY_IPV4] == 20
    assert after[BY_IPV6] - before[BY_IPV6] >= 30  # and neighbour discovery


def test_a_socket_cannot_choose_a_class_of_ours(shaped: Joined, known: Installed) -> None:
    known.fill("by_address", {})
    attach(shaped, known)

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, class_id(BY_IPV4))
            for _ in range(10):
                sender.sendto(b"x", (NODE4, 9))

    inside(shaped.pod, send)
    assert rig.sent(shaped.pod)[BY_IPV4] == 0


def test_a_pod_with_the_hosts_network_is_known_by_its_cgroup(shaped: Joined, known: Installed) -> None:
    known.fill("by_address", {})
    attach(shaped, known)
    with own_cgroup("pod", "container") as (pod, _):
        known.fill("by_cgroup", cgroup_entries({pod.stat().st_ino: class_id(BY_CGROUP)}))
        known.fill("settings", settings_entry(cgroups=True, marks=False))
        pings(shaped, NODE4)
    assert rig.sent(shaped.pod)[BY_CGROUP] == 20


def test_frames_cut_short_go_on(shaped: Joined, known: Installed) -> None:
    """From a socket that may send anything: bytes 14 to 60 of a packet that is a pod's."""
    attach(shaped, known)
    header = bytes(6) + bytes(6)
    packets = [
        header + struct.pack(">H", kind) + (body + source + bytes(40))[:length]
        for kind, body, source in (
            (0x0800, b"\x45" + bytes(11), HERE4[12:]),
            (0x86DD, b"\x60" + bytes(7), HERE6),
        )
        for length in range(1, 46)
    ]
    before = sum(rig.sent(shaped.pod).values())

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((rig.INTERFACE, 0))
            for packet in packets:
                sender.send(packet)

    inside(shaped.pod, send)
    assert sum(rig.sent(shaped.pod).values()) - before >= len(packets)
    assert rig.sent(shaped.pod)[BY_IPV4] == 45 - 15  # as soon as the address is whole
    assert rig.sent(shaped.pod)[BY_IPV6] >= 45 - 23


def test_it_goes_on_when_the_agent_is_gone_and_is_kept_by_the_next(shaped: Joined, bpffs: str) -> None:
    with Pins(bpffs) as pins, Installed(pins, ["classify"]) as first:
        first.fill("by_address", address_entries({HERE4: class_id(BY_IPV4)}))
        attach(shaped, first)
        running = hanging(shaped)
    pings(shaped, NODE4)
    assert rig.sent(shaped.pod)[BY_IPV4] == 20
    with Pins(bpffs) as pins, Installed(pins, ["classify"]) as second:
        assert not second.fill("by_address", address_entries({HERE4: class_id(BY_IPV4)}))
        assert attach(shaped, second) is Done.KEPT
        assert hanging(shaped) == running


def test_an_upgrade_loses_no_packet_and_misses_none(shaped: Joined, known: Installed, pins: Pins) -> None:
    attach(shaped, known)
    other = other_version(known)
    pin = installed._pin_name("classify", EGRESS, shaped.index(shaped.pod))
    before = rig.sent(shaped.pod)
    swaps = 0
    with rig.start(shaped.pod, "ping", "-q", "-c", "1000", "-i", "0.001", "-W", "20", NODE4) as ping:
        while ping.poll() is None:
            link = pins.link(pin)
            assert link is not None
            links.replace(link, other)
            close(link)
            assert attach(shaped, known) is Done.REPLACED
            swaps += 1
        assert ping.stdout is not None
        assert " 0% packet loss" in ping.stdout.read()
    close(other)
    assert swaps >= 2
    assert rig.sent(shaped.pod)[BY_IPV4] - before[BY_IPV4] == 1000


def test_an_upgrade_of_the_schema_takes_the_link_over(shaped: Joined, bpffs: str) -> None:
    with Pins(bpffs, schema=0) as pins, Installed(pins, ["classify"]) as old:
        attach(shaped, old)
    (before,) = hanging(shaped)
    with Pins(bpffs) as pins, Installed(pins, ["classify"]) as new:
        new.fill("by_address", address_entries({HERE4: class_id(BY_IPV4)}))
        assert attach(shaped, new) is Done.REPLACED
        index = shaped.index(shaped.pod)
        assert new.sweep([("classify", EGRESS, index)]) == []
    (after,) = hanging(shaped)
    assert after.link == before.link
    assert after.program != before.program
    assert schemas(bpffs) == [1]
    pings(shaped, NODE4)
    assert rig.sent(shaped.pod)[BY_IPV4] == 20


def test_an_upgrade_of_the_schema_carries_over_what_others_cannot_tell(bpffs: str) -> None:
    """Whose class is whose, tokens that an idle pod has saved, and counts."""
    every = ["classify", "police", "count"]
    pod, by_egress = class_id(BY_IPV4), (class_id(BY_IPV4), Direction.EGRESS)
    saved, counted = struct.pack("=IIQQQQQQ", 0, 0, 5, 4, 3, 2, 1, 0), bytes(range(8))
    entries = {
        "by_address": address_entries({HERE4: pod}),
        "by_cgroup": cgroup_entries({7: pod}),
        "limits": limit_entries({by_egress: 1000}),
        "settings": settings_entry(cgroups=True, marks=True),
        "by_interface": interface_entries({2: pod}),
    }
    with Pins(bpffs, schema=0) as pins, Installed(pins, every) as old:
        for name, some in entries.items():
            old.fill(name, some)
        (key,) = entries["limits"]
        old.maps["buckets"].put(key, saved)
        at = cgroup_key(7)
        old.maps["traffic"].put(at, counted * (old.maps["traffic"].value_bytes // len(counted)))
        before = {name: of.items() for name, of in old.maps.items()}
    with Pins(bpffs) as pins, Installed(pins, every) as new:
        after = {name: of.items() for name, of in new.maps.items()}
    assert {name for name in before if after[name] == before[name]} == CARRIED
    assert after["settings"] != before["settings"], "what else there is says the next agent anew"


def test_what_somebody_took_off_is_hung_in_again(shaped: Joined, known: Installed, pins: Pins) -> None:
    attach(shaped, known)
    link = pins.link(pins.links()[0])
    assert link is not None
    links.detach(link)
    close(link)
    assert hanging(shaped) == ()
    assert attach(shaped, known) is Done.ATTACHED
    assert names(hanging(shaped)) == ["j10ce_classify"]


def test_whose_pin_somebody_removed_is_hung_in_again(shaped: Joined, known: Installed, bpffs: str) -> None:
    """With its last pin a link ends."""
    attach(shaped, known)
    assert attach(shaped, known) is Done.KEPT
    (pin,) = Path(bpffs).glob("j10ce/v1/links/*")
    pin.unlink()
    until(lambda: hanging(shaped) == (), "the end of the link")
    assert attach(shaped, known) is Done.ATTACHED
    assert names(hanging(shaped)) == ["j10ce_classify"]
    assert list(Path(bpffs).glob("j10ce/v1/links/*")) == [pin]


def test_pins_of_interfaces_that_are_gone_are_swept(shaped: Joined, known: Installed, pins: Pins) -> None:
    attach(shaped, known)
    (pin,) = pins.links()
    rig.ip("-n", shaped.pod, "link", "del", rig.INTERFACE)
    assert known.sweep([]) == [pin]
    assert pins.links() == []


@pytest.fixture
def foreign(shaped: Joined) -> Iterator[int]:
    """Another's program at the same place: it lets everything go on."""
    code = bytes([0xB7, 0, 0, 0]) + struct.pack("=i", -1) + bytes([0x95, 0, 0, 0, 0, 0, 0, 0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "kernel_name", lambda name: name.encode())
        fd = programs.load(elf.ObjectProgram("cil_to_netdev", "tc", code, {}), {}, "GPL")
    link = inside(shaped.pod, lambda: links.attach(fd, shaped.index(shaped.pod), EGRESS, "veth0"))
    yield programs.info(fd).id
    close(link, fd)


def state(at: Joined, bpffs: str) -> tuple[object, ...]:
    """All that we could leave behind."""
    shown = [
        rig.tc(at.pod, *what, "show", "dev", rig.INTERFACE) for what in (["qdisc"], ["class"], ["filter"])
    ]
    pinned = sorted(str(path) for path in Path(bpffs).rglob("*"))
    ingress = inside(at.pod, lambda: links.at_interface(at.index(at.pod), Hook.TCX_INGRESS))
    return shown, pinned, hanging(at), ingress


def test_others_go_first_to_last_as_before_and_uninstalling_leaves_all_as_found(
    shaped: Joined, bpffs: str, foreign: int
) -> None:
    before = state(shaped, bpffs)
    with own_cgroup("pod") as (pod,), Pins(bpffs) as pins:
        with Installed(pins, ["classify", "count", "police"]) as ours:
            attach(shaped, ours)
            index = shaped.index(shaped.pod)
            for name, hook in (("police_tx", Hook.TCX_INGRESS), ("police_rx", EGRESS)):
                inside(shaped.pod, lambda name=name, hook=hook: ours.attach(name, hook, index))
            ours.attach("count_tx", Hook.CGROUP_EGRESS, str(pod))
            ours.attach("count_rx", Hook.CGROUP_INGRESS, str(pod))
        assert names(hanging(shaped)) == ["j10ce_police_rx", "j10ce_classify", "cil_to_netdev"]
        pings(shaped, NODE4)
    assert uninstall(bpffs) == []
    assert state(shaped, bpffs) == before
    assert [one.program for one in hanging(shaped)] == [foreign]
    assert uninstall(bpffs) == []  # nothing is there, and that is no error


def test_what_others_pinned_in_our_folder_stays_and_is_named(
    shaped: Joined, known: Installed, bpffs: str, pins: Pins
) -> None:
    attach(shaped, known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maps, "kernel_name", lambda name: name.encode())
        shape = replace(objects.load("classify").maps["settings"], key_type=0, value_type=0)
        fd = maps.create("theirs", shape, 0)
    pins.keep_map("theirs", fd)
    close(fd)
    assert uninstall(bpffs) == [f"{bpffs}/j10ce/v1/maps/theirs"]
    assert hanging(shaped) == ()
    assert [path.name for path in Path(bpffs).glob("j10ce/v1/*/*")] == ["theirs"]


def test_entries_are_the_same_by_batches_and_one_by_one(bpffs: str) -> None:
    wanted = {MAPPED + os.urandom(4): class_id(1 + index) for index in range(700)}
    with Pins(bpffs) as pins:
        with Installed(pins, ["classify"]) as batched:
            batched.fill("by_address", address_entries(wanted))
            found = batched.maps["by_address"].items()
        with Installed(pins, ["classify"], batch=False) as single:
            assert single.maps["by_address"].items() == found == address_entries(wanted)
            half = address_entries(dict(list(wanted.items())[::2]))
            changes = single.fill("by_address", half)
            assert (len(changes.put), len(changes.drop)) == (0, len(wanted) - len(half))
        with Installed(pins, ["classify"]) as batched:
            assert batched.maps["by_address"].items() == half
            first = next(iter(half))
            batched.maps["by_address"].drop_all([b"\1" * 16, first, b"\2" * 16])  # some are gone already
            assert batched.maps["by_address"].items() == {key: half[key] for key in half if key != first}


def test_more_than_a_map_holds_is_refused_before_anything_is_written(known: Installed) -> None:
    before = known.maps["by_address"].items()
    wanted = {index.to_bytes(16, "big"): class_id(1) for index in range(4097)}
    with pytest.raises(ValueError, match="by_address holds 4096 entries, and 4097 are wanted"):
        known.fill("by_address", address_entries(wanted))
    assert known.maps["by_address"].items() == before


def test_a_map_of_other_measures_is_not_used(bpffs: str) -> None:
    shape = replace(objects.load("classify").maps["by_cgroup"], max_entries=7, key_type=0, value_type=0)
    with Pins(bpffs) as pins:
        old = maps.create("by_cgroup", shape, 0)
        pins.keep_map("by_cgroup", old)
        close(old)
        with Installed(pins, ["classify"]) as new:
            assert maps.info(new.maps["by_cgroup"].fd).measures[3] == 1024
            pinned = pins.map("by_cgroup")
            assert pinned is not None
            assert maps.info(pinned).id == maps.info(new.maps["by_cgroup"].fd).id
            close(pinned)


def test_what_is_no_bpf_file_system_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        BpfError, match=f"{tmp_path} is no BPF file system.*; mount it: mount -t bpf bpf {tmp_path}"
    ):
        Pins(str(tmp_path))
    with pytest.raises(BpfError, match="mount it"):
        Pins(str(tmp_path / "missing"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_others_may_write_is_refused(bpffs: str) -> None:
    folder = Path(bpffs) / "j10ce"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(BpfError, match="others may write there"):
        Pins(bpffs)
    folder.rmdir()
    folder.symlink_to(bpffs)
    with pytest.raises(BpfError, match="folder j10ce in the BPF file system"):
        Pins(bpffs)


def test_a_pin_of_another_kind_is_refused(known: Installed, pins: Pins) -> None:
    pins.keep_link("wrong", known.maps["settings"].fd)
    with pytest.raises(BpfError, match="it is anon_inode:bpf-map, not anon_inode:bpf-link"):
        pins.link("wrong")
