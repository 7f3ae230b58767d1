"""A systemd node that runs: commands and files in it, from the machine outside, and its start and end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from lab import components
from lab.cluster import Cluster, LabError
from lab.node import network, relay
from lab.node.network import Link
from lab.node.node import is_ready
from lab.node.systemd import files, programs
from lab.node.systemd.files import Wanted
from lab.only_one import Report, only_one
from lab.runtimes import images
from lab.runtimes.programs import Finished, require, run
from lab.vm import image, payload, recipe
from lab.vm.machine import Machine, Patience
from lab.vm.recipe import System

NAME = "systemd-1"
_PLACE = ".guest"
_SECONDS = 600.0
_SOURCES = ("adapters", "agent", "cli", "extender", "hook", "kernel", "lab", "ledger", "manifests", "qos")
_PKI = ("ca.crt", "admin.crt", "admin.key")
_DISTRIBUTION = "j10ce-qos"
_UNIT = payload.REPOSITORY / "manifests" / "systemd" / "j10ce-agent.service"
_NETWORK_FLOORS = _UNIT.with_name("network-floors.conf")


@dataclass(frozen=True, slots=True)
class SystemdNode:
    """A node of a lab cluster in the test VM. Everything is where it is on any node."""

    name: str
    address: str
    cluster: Cluster
    machine: Machine

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        stdin: str | None = None,
        environ: Mapping[str, str] | None = None,
        seconds: float = 120.0,
    ) -> Finished:
        """Run a command in the guest to its end, as root. LabError: the guest does not answer."""
        words = [str(word) for word in argv]
        asked = {"argv": words, "stdin": stdin, "environ": dict(environ or {}), "seconds": seconds}
        begun = time.perf_counter()
        try:
            with socket.create_connection((self.address, files.HAND_PORT), timeout=seconds + 10) as there:
                there.sendall(json.dumps(asked).encode() + b"\n")
                answer = json.loads(there.makefile("rb").readline())
        except (OSError, ValueError) as error:
            raise LabError(f"node {self.name}: {' '.join(words)}: {error!r}") from error
        return Finished(tuple(words), **answer, seconds=time.perf_counter() - begun)

    def read(self, path: str | Path) -> str:
        """A file of the guest's."""
        return self.run(["cat", path]).succeeded().stdout

    def journal(self, unit: str) -> str:
        """The end of what a unit has said."""
        return self.run(["journalctl", "--no-pager", "--lines=60", f"--unit={unit}"]).stdout


@contextlib.contextmanager
def systemd_node(
    cluster: Cluster,
    report: Report,
    name: str = NAME,
    *,
    kubelet: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    network_floors: Sequence[str] | None = None,
) -> Iterator[SystemdNode]:
    """A systemd node, Ready, for the time of the block. LabError, VmError with what the guest said.

    network_floors: the agent's options beside that one, which a drop-in of its unit gives; None: no drop-in.
    """
    if os.geteuid() != 0:
        raise LabError("a systemd node needs a network device of its own: run as root")
    found = image.provide(os.environ, report)
    disk = programs.provide(found, os.environ, report)
    with (
        only_one(recipe.cache_folder(os.environ).parent / ".vm", "another test VM runs; waiting", report),
        tempfile.TemporaryDirectory(prefix="j10ce-systemd-") as scratch,
    ):
        folder, link = Path(scratch), network.free_link()
        port = cluster.ports["kube-apiserver"]
        told = None if network_floors is None else tuple(network_floors)
        wanted = Wanted(name, link.node, link.machine, port, kubelet or {}, labels or {}, told)
        _write_payload(folder, cluster, wanted, link)
        patience = Patience(6 * _SECONDS, 6 * _SECONDS)
        with Machine(
            found,
            folder,
            folder / "payload.tar",
            patience,
            system=System.SYSTEMD,
            flags=_flags(link),
            disks={"programs": disk},
        ) as machine:
            node = SystemdNode(name, link.node, cluster, machine)
            try:
                _connect(machine, link)
                with relayed(link.machine, port):
                    _wait_ready(node)
                    yield node
            finally:
                with contextlib.suppress(LabError, OSError):
                    cluster.kubectl("delete", "node", name, "--ignore-not-found", check=False, seconds=60)


def _flags(link: Link) -> tuple[str, ...]:
    nic = f"tap,ifname={link.device},script=no,downscript=no,model=virtio-net-pci"
    return ("-m", "3072", "-nic", nic)


def _write_payload(folder: Path, cluster: Cluster, wanted: Wanted, link: Link) -> None:
    machine = platform.machine()
    tar = images.archive(folder / "images.tar", {"x86_64": "amd64"}.get(machine, machine))
    pki = components.kwok_folder(cluster.folder) / "pki"
    root = f"{_PLACE}/root"
    extra = {
        f"{_PLACE}/images.tar": tar,
        f"{root}/etc/systemd/system/{_UNIT.name}": _UNIT,
        **{f"{root}{files.PKI}/{one}": pki / one for one in _PKI},
    }
    if wanted.network_floors is not None:
        extra[f"{root}/etc/systemd/system/{_UNIT.name}.d/{_NETWORK_FLOORS.name}"] = _NETWORK_FLOORS
    values = {"ADDRESS": link.node, "GATEWAY": link.machine}
    command = "".join(f"{key}={value}\n" for key, value in values.items())
    command += (Path(__file__).parent / "guest-command").read_text()
    texts = {f"{root}{path}": content for path, content in files.files(wanted).items()}
    texts[payload.COMMAND] = command
    version = metadata.version(_DISTRIBUTION)
    written = f"Metadata-Version: 2.1\nName: {_DISTRIBUTION}\nVersion: {version}\n"
    texts[f"{_DISTRIBUTION.replace('-', '_')}-{version}.dist-info/METADATA"] = written
    payload.write(folder / "payload.tar", texts, extra, parts=_SOURCES, never=payload.COMPILED)


def _connect(machine: Machine, link: Link) -> None:
    """Give the machine's end of the guest's device, which QEMU makes, its address."""
    ip, deadline = require("ip"), time.monotonic() + 60
    while run([ip, "link", "show", link.device]).code:
        if not machine.runs or time.monotonic() > deadline:
            raise LabError(f"QEMU has not made the network device {link.device}: {machine.failure()}")
        time.sleep(0.05)
    run([ip, "address", "add", f"{link.machine}/30", "dev", link.device]).succeeded()
    run([ip, "link", "set", link.device, "up"]).succeeded()


@contextlib.contextmanager
def relayed(address: str, port: int) -> Iterator[None]:
    """The API server, which listens on the loopback, on another address of this machine, too."""
    listener = socket.create_server((address, port), backlog=512)
    loop = asyncio.new_event_loop()
    serving = loop.create_task(relay.serve(listener, "127.0.0.1", port))

    def serve() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(serving)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()
        loop.run_until_complete(_cancel_all())
        loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # in which what they aborted is closed


def _wait_ready(node: SystemdNode) -> None:
    deadline = time.monotonic() + _SECONDS
    while not is_ready(node.cluster, node.name):
        if not node.machine.runs:
            said = (node.machine.results() / "output").read_text(errors="replace")
            raise LabError(f"the guest ended: {said[-3000:]}")
        if time.monotonic() > deadline:
            said = "\n".join(node.journal(unit) for unit in ("containerd", "kubelet", "j10ce-work"))
            raise LabError(f"node {node.name} is not ready after {_SECONDS:g} s: {said}")
        time.sleep(0.5)
