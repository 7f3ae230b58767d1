"""Real traffic between namespaces, judged by what the receiver got, by its clock.

What limits count is frames, headers and all: `frames` makes them of the payload that was received.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.network import messages
from agent.network.namespaces import inside
from agent.network.netlink import Netlink, attributes, string

FRAME, ETHERNET, IPV4, IPV6, TCP, UDP = 1514, 14, 20, 40, 32, 8
_CHUNK = 1 << 18
_SEGMENT = 1400
_UDP_SEGMENT = 103
_CONGESTION = 13
_SECONDS = 20.0
_LOST_SECONDS = 10.0
_LAST = b"last"


def frames(payload: float, version: int = 4) -> float:
    """Bytes of frames that carried a TCP payload: an MTU of 1500, with time stamps."""
    headers = (IPV4 if version == 4 else IPV6) + TCP
    return payload * FRAME / (FRAME - ETHERNET - headers)


@dataclass
class Flows:
    """Some TCP connections in the same direction. times, sizes: of each read, in the order of time."""

    version: int
    times: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    started: float = 0.0
    threads: list[threading.Thread] = field(default_factory=list)

    def waited(self) -> float:
        """Seconds for which a thread of these, the one that did so most, was ready to run and got no CPU."""
        return max(_waited(thread.native_id or 0) for thread in self.threads)

    def rate(self, start: float, end: float) -> float:
        """Bytes of frames a second that programs were given between these two times."""
        first, last = bisect_left(self.times, start), bisect_left(self.times, end)
        return frames(sum(self.sizes[first:last]), self.version) / (end - start)


@dataclass
class Arrivals:
    """What came in at an interface: (time, packets, bytes); a packet of several segments counts as one."""

    seen: list[tuple[float, int, int]]
    version: int

    def rate(self, start: float, end: float) -> float:
        """Bytes of frames a second between these two times, what was sent again and came twice, too."""
        (first, packets, size), (last, packets_then, size_then) = (
            self.seen[min(bisect_left(self.seen, (when,)), len(self.seen) - 1)] for when in (start, end)
        )
        headers = ETHERNET + (IPV4 if self.version == 4 else IPV6) + TCP
        payload = size_then - size - (packets_then - packets) * headers
        return frames(payload, self.version) / (last - first)


@contextlib.contextmanager
def arriving(namespace: str, version: int = 4, device: str = "eth0") -> Iterator[Arrivals]:
    """What comes in there during the block."""
    arrivals = Arrivals([], version)
    over = threading.Event()

    def look(netlink: Netlink) -> None:
        while True:
            arrivals.seen.append((time.monotonic(), *received(netlink, device)))
            if over.wait(0.01):
                return

    with inside(Path("/run/netns") / namespace, Netlink) as netlink:
        thread = threading.Thread(target=look, args=(netlink,))
        thread.start()
        try:
            yield arrivals
        finally:
            over.set()
            thread.join()


def received(netlink: Netlink, device: str) -> tuple[int, int]:
    """Packets and bytes that an interface has received (IFLA_STATS64)."""
    for body in netlink.dump(messages.GET_LINK, messages.link()):
        fields = attributes(body, 16)
        if string(fields[3]) == device:
            packets, _, size = struct.unpack_from("=QQQ", fields[23])
            return packets, size
    raise AssertionError(f"no interface {device}")


@contextlib.contextmanager
def flowing(
    sender: str, receiver: str, address: str, *, count: int = 1, congestion: str = "cubic", port: int = 5001
) -> Iterator[Flows]:
    """Connections that send all they can for the time of the block. sender, receiver: names of namespaces."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = in_namespace(receiver, family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", port))
    listener.listen(count)
    senders = [in_namespace(sender, family, socket.SOCK_STREAM) for _ in range(count)]
    flows = Flows(6 if family == socket.AF_INET6 else 4)
    receivers: list[socket.socket] = []
    for one in senders:
        one.setsockopt(socket.IPPROTO_TCP, _CONGESTION, congestion.encode())
        one.settimeout(_SECONDS)
        one.connect((address, port))
        receivers.append(listener.accept()[0])
    lock, over = threading.Lock(), threading.Event()
    work = [threading.Thread(target=_send, args=(one, over)) for one in senders]
    work += [threading.Thread(target=_receive, args=(one, flows, lock)) for one in receivers]
    flows.threads = work
    flows.started = time.monotonic()
    for thread in work:
        thread.start()
    try:
        yield flows
    finally:
        over.set()
        for one in (*senders, *receivers):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in work:
            thread.join()
        for one in (listener, *senders, *receivers):
            one.close()


@contextlib.contextmanager
def flood(sender: str, address: str, rate: int) -> Iterator[None]:
    """UDP at so many bytes a second for the time of the block, heeding nobody."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one = in_namespace(sender, family, socket.SOCK_DGRAM)
    one.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, _SEGMENT)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
    one.setblocking(False)
    packet = bytes(40 * _SEGMENT)
    over = threading.Event()

    def send() -> None:
        sent, started = 0, time.monotonic()
        while not over.wait(0.001):
            due = int((time.monotonic() - started) * rate)
            while sent < due:
                sent += len(packet)
                with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                    one.sendto(packet, (address, 9))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        one.close()


@dataclass
class Numbered:
    """Datagrams by their numbers. sent: how many; came: those that did, in their order."""

    sent: int = 0
    came: list[int] = field(default_factory=list)


@contextlib.contextmanager
def numbered(sender: str, receiver: str, address: str, port: int = 7000) -> Iterator[Numbered]:
    """A datagram each millisecond for the time of the block; all that are under way have come at its end."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one, other = (in_namespace(name, family, socket.SOCK_DGRAM) for name in (sender, receiver))
    other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    other.bind(("", port))
    other.settimeout(_LOST_SECONDS)
    made, over = Numbered(), threading.Event()

    def send() -> None:
        while not over.wait(0.001):
            one.sendto(made.sent.to_bytes(4, "big"), (address, port))
            made.sent += 1
        one.sendto(_LAST, (address, port))

    def receive() -> None:
        with contextlib.suppress(TimeoutError):  # the last one is lost: who counts sees it
            while (data := other.recv(100)) != _LAST:
                made.came.append(int.from_bytes(data, "big"))

    work = [threading.Thread(target=send), threading.Thread(target=receive)]
    for thread in work:
        thread.start()
    try:
        yield made
    finally:
        over.set()
        for thread in work:
            thread.join()
        one.close()
        other.close()


def in_namespace(name: str, family: int, kind: int) -> socket.socket:
    """A socket there."""
    return inside(Path("/run/netns") / name, lambda: socket.socket(family, kind))


def _send(one: socket.socket, over: threading.Event) -> None:
    data = memoryview(bytes(_CHUNK))
    with contextlib.suppress(OSError):  # shut down at the end
        while not over.is_set():
            one.send(data)


def _receive(one: socket.socket, flows: Flows, lock: threading.Lock) -> None:
    buffer = bytearray(_CHUNK)
    with contextlib.suppress(OSError):
        while size := one.recv_into(buffer):
            with lock:
                flows.times.append(time.monotonic())
                flows.sizes.append(size)


def _waited(thread: int) -> float:
    text = Path(f"/proc/self/task/{thread}/schedstat").read_text()
    return int(text.split()[1]) / 1e9
