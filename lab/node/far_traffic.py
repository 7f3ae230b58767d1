"""The far end of a real node's link, as a program that ends with its standard input (far_end.py).

`python -m lab.node.far_traffic NODE BITS NETWORK NAME...`: address of the node, speed of the wire to it, the
pods' network. For each name it listens on two ports: on one it reads what it is sent, on the other it sends.
It does neither until it is told to, so connections wait without any work.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import selectors
import socket
import struct
import sys
import termios
import time
from typing import Any, Final, TextIO

from lab.node.wire import wire
from lab.runtimes.programs import require, run

WAYS: Final = ("egress", "ingress")
"""As the pod sees it."""
_HEARD: Final = 0.5
"""Seconds in which pods hear that they are read from again; that takes a round trip."""
_CHUNK = bytes(1 << 18)
_FRAME, _PAYLOAD = 1514, 1448
"""Bytes of a full Ethernet frame, and of TCP's payload in it."""


class Port:
    """Connections of one name in one direction, and what their receivers got."""

    def __init__(self, address: str, device: str, way: str) -> None:
        self.way = way
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        self.listener.bind((address, 0))
        self.listener.listen(64)
        self.connections: set[socket.socket] = set()
        self._moved = 0
        self._buffer = bytearray(len(_CHUNK))

    @property
    def events(self) -> int:
        """What the selector has to wait for."""
        return selectors.EVENT_READ if self.way == "egress" else selectors.EVENT_WRITE

    def accept(self) -> socket.socket:
        """One more."""
        connection, _ = self.listener.accept()
        connection.setblocking(False)
        self.connections.add(connection)
        return connection

    def move(self, connection: socket.socket) -> bool:
        """Read or send once; False: it has ended."""
        try:
            moved = connection.recv_into(self._buffer) if self.way == "egress" else connection.send(_CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            moved = 0
        self._moved += moved
        if not moved:
            self._moved -= self._unacknowledged(connection)
            self.connections.discard(connection)
        return moved > 0

    def carried(self) -> int:
        """Bytes of frames that receivers have got so far."""
        payload = self._moved - sum(map(self._unacknowledged, self.connections))
        return payload * _FRAME // _PAYLOAD

    def _unacknowledged(self, connection: socket.socket) -> int:
        if self.way == "egress":
            return 0
        with contextlib.suppress(OSError):
            return int(struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0])
        return 0


class Traffic:
    """All ports, and whether anything moves. commands: a file that is waited for, too."""

    def __init__(self, ports: dict[str, list[Port]], commands: TextIO) -> None:
        self._ports, self._goes = ports, False
        self._selector = selectors.DefaultSelector()
        self._selector.register(commands, selectors.EVENT_READ)
        for port in self._all():
            self._selector.register(port.listener, selectors.EVENT_READ, port)

    def serve(self, seconds: float | None = None) -> bool:
        """What can be done now, or first within that time; True: there is a command."""
        ready = [key for key, _ in self._selector.select(seconds)]
        for key in ready:
            if key.data is not None:
                self._serve(key.data, key.fileobj)
        return any(key.data is None for key in ready)

    def rates(self, seconds: float) -> dict[str, dict[str, float]]:
        """Name -> way -> bits/s of frames."""
        begun, before = time.monotonic(), self._carried()
        while (left := begun + seconds - time.monotonic()) > 0:
            self.serve(left)
        after, took = self._carried(), time.monotonic() - begun
        return {
            name: {way: (after[name][way] - had) * 8 / took for way, had in ways.items()}
            for name, ways in before.items()
        }

    def go(self) -> None:
        """Read and send from now on.

        Read first: a pod that was not read from asks ever more seldom whether it may send again, and what
        tells it that it may could be lost in the flood.
        """
        self._goes = True
        self._register("egress")
        until = time.monotonic() + _HEARD
        while (left := until - time.monotonic()) > 0 and not self.serve(left):
            pass
        self._register("ingress")

    def stop(self) -> None:
        """Neither any more."""
        self._goes = False
        for port in self._all():
            for connection in port.connections:
                self._selector.unregister(connection)

    def _register(self, way: str) -> None:
        for port in self._all():
            for connection in port.connections if port.way == way else ():
                if connection not in self._selector.get_map():
                    self._selector.register(connection, port.events, port)

    def _serve(self, port: Port, ready: Any) -> None:
        if ready is port.listener:
            connection = port.accept()
            if self._goes:
                self._selector.register(connection, port.events, port)
        elif not port.move(ready):
            self._selector.unregister(ready)
            ready.close()

    def _carried(self) -> dict[str, dict[str, int]]:
        return {name: {one.way: one.carried() for one in ports} for name, ports in self._ports.items()}

    def _all(self) -> list[Port]:
        return [port for ports in self._ports.values() for port in ports]


def main() -> None:
    """Make the wire, listen, do as told."""
    node, bits, network, *names = sys.argv[1:]
    ip = require("ip")
    (route,) = json.loads(run([ip, "-json", "route", "get", node]).succeeded().stdout)
    address, device = route["prefsrc"], route["dev"]
    # A metric of its own, and sockets that are bound to the device: another node may have the same network.
    metric = str(socket.if_nametoindex(device))
    run([ip, "route", "add", network, "via", node, "dev", device, "metric", metric]).succeeded()
    ports = {name: [Port(address, device, way) for way in WAYS] for name in names}
    with wire(device, int(bits)):
        _obey(Traffic(ports, sys.stdin), address, ports)


def _obey(traffic: Traffic, address: str, ports: dict[str, list[Port]]) -> None:
    while True:
        if not traffic.serve():
            continue
        if not (line := sys.stdin.readline()):
            return
        answer: object = None
        match json.loads(line):
            case ["where"]:
                numbers = {
                    name: [one.listener.getsockname()[1] for one in two] for name, two in ports.items()
                }
                answer = {"address": address, "ports": numbers}
            case ["rates", seconds]:
                answer = traffic.rates(seconds)
            case ["go"]:
                traffic.go()
            case ["stop"]:
                traffic.stop()
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
