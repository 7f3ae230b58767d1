"""The programs, run by the kernel on packets that no network carries."""

from __future__ import annotations

import collections
import contextlib
import ipaddress
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.network.bpf import elf, objects, programs
from agent.network.bpf.difference import address_entries, cgroup_entries, limit_entries, settings_entry
from agent.network.bpf.installed import Installed
from agent.network.bpf.pins import Pins
from agent.network.bpf.system import BpfError
from cli.bpf import CompileError, compile_all, compiler, write
from qos.network.wanted import Direction, class_id
from tests.network.bpf.rig import own_cgroup

NEXT, DROP = -1, 2
ETHERNET = bytes(12)
VLAN, SERVICE_VLAN, IPV4, IPV6, ARP = 0x8100, 0x88A8, 0x0800, 0x86DD, 0x0806
MAPPED = bytes(10) + b"\xff\xff"
POD4, POD6 = ipaddress.ip_address("10.0.0.7").packed, ipaddress.ip_address("fd00::7").packed
OTHER4, OTHER6 = ipaddress.ip_address("10.0.0.8").packed, ipaddress.ip_address("fd00::8").packed
KNOWN = {MAPPED + POD4: class_id(5), POD6: class_id(6)}
FOREIGN = 0x0001_0003
STOLEN = class_id(9)


def ipv4(source: bytes, destination: bytes = OTHER4, payload: bytes = b"", protocol: int = 17) -> bytes:
    return (
        struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0)
        + source
        + destination
        + payload
    )


def ipv6(source: bytes, destination: bytes = OTHER6, payload: bytes = b"", following: int = 17) -> bytes:
    return struct.pack(">IHBB", 6 << 28, len(payload), following, 64) + source + destination + payload


def frame(protocol: int, network: bytes, tags: tuple[int, ...] = ()) -> bytes:
    types = [*tags, protocol]
    return (
        ETHERNET
        + b"".join(struct.pack(">HH", kind, 42) for kind in types[:-1])
        + struct.pack(">H", protocol)
        + network
    )


def expected(packet: bytes, before: int) -> int:
    """What classify shall make of a packet: written again, from what the wire's formats say."""
    at, protocol = 14, int.from_bytes(packet[12:14], "big")
    for _ in range(2):
        if protocol in (VLAN, SERVICE_VLAN) and len(packet) >= at + 4:
            protocol, at = int.from_bytes(packet[at + 2 : at + 4], "big"), at + 4
    key = b""
    if protocol == IPV4 and len(packet) >= at + 16:
        key = MAPPED + packet[at + 12 : at + 16]
    elif protocol == IPV6 and len(packet) >= at + 24 and not packet[at + 8 :].startswith(MAPPED):
        key = packet[at + 8 : at + 24]
    return KNOWN.get(key, 0 if before >> 16 == 0x10CE else before)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """All our objects, with KNOWN pods; shared, because properties are tried a hundred times."""
    folder = tmp_path_factory.mktemp("bpffs")
    assert os.system(f"mount -t bpf bpf {folder}") == 0
    try:
        with Pins(str(folder)) as pins, Installed(pins, ["classify", "mark", "police", "count"]) as installed:
            installed.fill("by_address", address_entries(KNOWN))
            yield installed
    finally:
        assert os.system(f"umount {folder}") == 0


@pytest.mark.parametrize("tags", [(), (VLAN,), (SERVICE_VLAN, VLAN)])
@pytest.mark.parametrize(
    ("protocol", "network", "class_"),
    [
        (IPV4, ipv4(POD4), class_id(5)),
        (IPV6, ipv6(POD6), class_id(6)),
        (IPV6, ipv6(POD6, payload=bytes([59]) + bytes(7), following=0), class_id(6)),  # hop-by-hop options
        (IPV4, ipv4(OTHER4, POD4), 0),
        (IPV6, ipv6(MAPPED + POD4), 0),  # no wire may carry it
        (ARP, bytes(28), 0),
    ],
)
def test_the_class_is_the_senders(
    loaded: Installed, tags: tuple[int, ...], protocol: int, network: bytes, class_: int
) -> None:
    packet = frame(protocol, network, tags)
    assert expected(packet, 0) == class_
    ran = programs.run(loaded.programs["classify"], packet)
    assert (ran.returned, ran.priority) == (NEXT, class_)


@pytest.mark.parametrize("before", [0, 6, FOREIGN])
def test_a_priority_that_is_not_ours_stays_without_an_entry(loaded: Installed, before: int) -> None:
    packet = frame(IPV4, ipv4(OTHER4))
    assert programs.run(loaded.programs["classify"], packet, priority=before).priority == before


@pytest.mark.parametrize("stolen", [STOLEN, class_id(5), 0x10CE0000])
def test_nobody_names_a_class_of_ours_himself(loaded: Installed, stolen: int) -> None:
    """10ce:0 would be worse than another's class: HTB sends it past all of them."""
    run = loaded.programs["classify"]
    assert programs.run(run, frame(IPV4, ipv4(OTHER4)), priority=stolen).priority == 0
    assert programs.run(run, frame(IPV4, ipv4(POD4)), priority=stolen).priority == class_id(5)


PROTOCOLS = st.sampled_from([IPV4, IPV6, VLAN, SERVICE_VLAN, ARP, 0, 0x0600])
TAGS = st.lists(st.sampled_from([VLAN, SERVICE_VLAN]), max_size=3).map(tuple)
ADDRESSES4, ADDRESSES6 = st.sampled_from([POD4, OTHER4]), st.sampled_from([POD6, OTHER6, MAPPED + POD4])
WELL_FORMED = st.one_of(
    st.builds(frame, st.just(IPV4), st.builds(ipv4, ADDRESSES4, ADDRESSES4, st.binary(max_size=40)), TAGS),
    st.builds(frame, st.just(IPV6), st.builds(ipv6, ADDRESSES6, ADDRESSES6, st.binary(max_size=40)), TAGS),
)
PACKETS = st.one_of(
    WELL_FORMED,
    st.builds(lambda packet, length: packet[: max(14, length)], WELL_FORMED, st.integers(14, 60)),
    st.builds(frame, PROTOCOLS, st.binary(max_size=80), TAGS),
)


SHORTEST = collections.defaultdict(lambda: 15, {IPV4: 14 + 20, IPV6: 14 + 40})
"""What the kernel's trial takes no shorter, by protocol; below tags it takes anything."""


@given(PACKETS, st.sampled_from([0, 6, FOREIGN, STOLEN]))
@example(frame(IPV4, ipv4(POD4)[:15], (VLAN,)), 0)
@example(frame(IPV4, ipv4(POD4)[:16], (VLAN,)), 0)
@example(frame(IPV6, ipv6(POD6)[:23], (VLAN,)), STOLEN)
@example(frame(IPV6, ipv6(POD6)[:24], (VLAN,)), STOLEN)
def test_any_packet_gets_its_class_and_goes_on(loaded: Installed, packet: bytes, before: int) -> None:
    if len(packet) < SHORTEST[int.from_bytes(packet[12:14], "big")]:
        return
    ran = programs.run(loaded.programs["classify"], packet, priority=before)
    assert (ran.returned, ran.priority) == (NEXT, expected(packet, before))


@given(PACKETS, st.integers(0, 45))
def test_no_packet_of_nobodys_is_policed(loaded: Installed, packet: bytes, segments: int) -> None:
    for name in ("police_tx", "police_rx"):
        with contextlib.suppress(BpfError):
            assert programs.run(loaded.programs[name], packet, segments=segments).returned == NEXT


def test_a_socket_is_known_by_its_cgroup_and_those_above_it(loaded: Installed) -> None:
    packet = frame(IPV4, ipv4(OTHER4))
    run = loaded.programs["classify"]
    with own_cgroup("pod", "container") as (pod, container):
        loaded.fill("by_cgroup", cgroup_entries({pod.stat().st_ino: class_id(7)}))
        loaded.fill("settings", settings_entry(cgroups=True, marks=False))
        assert container.parent == pod
        assert programs.run(run, packet).priority == class_id(7)
        assert programs.run(run, frame(IPV4, ipv4(POD4))).priority == class_id(5)  # its address says more
        loaded.fill("settings", settings_entry(cgroups=False, marks=False))
        assert programs.run(run, packet).priority == 0
    loaded.fill("by_cgroup", {})
    loaded.fill("settings", settings_entry(cgroups=True, marks=False))
    assert programs.run(run, packet, priority=FOREIGN).priority == FOREIGN


def test_a_bucket_lets_through_its_rate_and_counts_what_it_drops(loaded: Installed) -> None:
    """A byte a second: the first packet overdraws the bucket, and no second one passes."""
    for name, sent, direction in (
        ("police_tx", ipv4(POD4), Direction.EGRESS),
        ("police_rx", ipv4(OTHER4, POD4), Direction.INGRESS),
    ):
        loaded.fill("buckets", {})
        loaded.fill("limits", limit_entries({(class_id(5), direction): 1}))
        packet = frame(IPV4, sent)
        assert [programs.run(loaded.programs[name], packet).returned for _ in range(3)] == [NEXT, DROP, DROP]
        (bucket,) = loaded.maps["buckets"].items().values()
        _, _, _, carry, passed, passed_bytes, dropped, dropped_bytes = struct.unpack("=IIQQQQQQ", bucket)
        assert (passed, passed_bytes, dropped, dropped_bytes) == (1, len(packet), 2, 2 * len(packet))
        assert carry == 0
        loaded.fill("limits", {})
        assert programs.run(loaded.programs[name], packet).returned == NEXT


def test_segments_count_with_their_headers(loaded: Installed) -> None:
    """Ten segments of a TCP stream have 14 + 20 + 32 bytes of headers each, whatever the NIC is handed."""
    tcp = bytes(12) + bytes([8 << 4]) + bytes(19)
    for protocol, network, headers in (
        (IPV4, ipv4(POD4, payload=tcp + bytes(1000), protocol=6), 14 + 20 + 32),
        (IPV6, ipv6(POD6, payload=tcp + bytes(1000), following=6), 14 + 40 + 32),
        (IPV4, ipv4(POD4, payload=bytes(8 + 1000)), 14 + 20 + 8),
    ):
        class_ = class_id(5 if protocol == IPV4 else 6)
        loaded.fill("buckets", {})
        loaded.fill("limits", limit_entries({(class_, Direction.EGRESS): 1}))
        packet = frame(protocol, network)
        programs.run(loaded.programs["police_tx"], packet, segments=10)
        (bucket,) = loaded.maps["buckets"].items().values()
        assert struct.unpack_from("=QQ", bucket, 24) == (10, len(packet) + 9 * headers)
    loaded.fill("limits", {})


def test_a_program_that_the_verifier_refuses_says_why(loaded: Installed) -> None:
    exits_without_an_answer = bytes([0x95, 0, 0, 0, 0, 0, 0, 0])
    broken = elf.ObjectProgram("broken", "tc", exits_without_an_answer, {})
    with pytest.raises(BpfError, match=r"program broken: .*R0 !read_ok"):
        programs.load(broken, {}, "GPL")


def test_the_objects_are_what_clang_makes_of_the_sources(tmp_path: Path) -> None:
    """The same instructions and maps; `make bpf` where they are not."""
    if compiler().split(".")[0] != objects.record()["clang"].split(".")[0]:
        pytest.skip(f"clang {compiler()} here, clang {objects.record()['clang']} made them: code may differ")
    compile_all(objects.FOLDER, tmp_path)
    names = {path.stem for path in tmp_path.glob("*.o")}
    assert {f"{name}.o" for name in names} == set(objects.record()[objects.OBJECTS])
    for name in names:
        made, shipped = elf.read((tmp_path / f"{name}.o").read_bytes()), objects.load(name)
        assert (made.programs, made.maps) == (shipped.programs, shipped.maps), name


def test_make_bpf_compiles_and_a_source_with_a_fault_leaves_the_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(objects.FOLDER / objects.SOURCES, tmp_path / objects.SOURCES)
    monkeypatch.chdir(tmp_path)
    write(Path())
    record = objects.record(tmp_path)
    assert record["clang"] == compiler()
    assert record[objects.SOURCES] == objects.record()[objects.SOURCES]
    assert objects.differing(record, objects.sums(tmp_path)) == []
    (tmp_path / objects.SOURCES / "mark.c").write_text("fault")
    with pytest.raises(CompileError, match=r"mark\.c:1:1: error"):
        write(Path())
    assert objects.differing(record, objects.sums(tmp_path)) == ["sources/mark.c"]
