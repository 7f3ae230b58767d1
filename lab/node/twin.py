"""The real node's twin on cgroup v2: in the test VM, joined to a lab cluster on this machine.

The guest reaches the API server through QEMU's user network; nothing here can reach the guest's kubelet, so
there are no logs and no exec: a container tells what it found in its termination message.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from lab import components
from lab.cluster import Cluster, LabError
from lab.node import guest, rig
from lab.node.node import is_ready
from lab.only_one import Report, only_one
from lab.vm import image, payload, recipe
from lab.vm.machine import Machine, Patience

_PLACE = ".guest"
_SECONDS = 600.0
"""QEMU emulates the processor: some fifteen times slower, and other work on this machine counts again."""
_FLAGS = ("-m", "2048", "-nic", "user,model=virtio-net-pci,restrict=no")
_COMMAND = f"""\
set -e
modprobe virtio_net
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
printf '/work\\n/work/{_PLACE}/python\\n' >/usr/lib/python3/dist-packages/j10ce.pth
exec python3 -B -m lab.node.guest /work/{_PLACE}/asked.json
"""


@contextlib.contextmanager
def v2_node(cluster: Cluster, report: Report, name: str = "real-v2") -> Iterator[Machine]:
    """A real node on cgroup v2, Ready, for the time of the block. LabError with what the guest said."""
    found = image.provide(os.environ, report)
    lock = recipe.cache_folder(os.environ).parent / ".vm"
    with (
        only_one(lock, "another test VM runs; waiting for its end", report),
        tempfile.TemporaryDirectory(prefix="j10ce-twin-") as scratch,
    ):
        folder = Path(scratch)
        _write_payload(folder / "payload.tar", cluster, name, report)
        patience = Patience(2 * _SECONDS, 2 * _SECONDS)
        with Machine(found, folder, folder / "payload.tar", patience, flags=_FLAGS) as machine:
            _wait_ready(cluster, name, machine)
            yield machine


def _write_payload(target: Path, cluster: Cluster, name: str, report: Report) -> None:
    programs = rig.provide(report)
    pki = components.kwok_folder(cluster.folder) / "pki"
    yaml = Path(import_module("ruamel.yaml").__path__[0])
    extra = {
        f"{_PLACE}/node": programs.runtime,
        f"{_PLACE}/kubelet": programs.kubelet,
        f"{_PLACE}/kubectl": Path(cluster.kubectl_argv[0]),
        f"{_PLACE}/python/ruamel": yaml.parent,
        **{f"{_PLACE}/{one}": pki / one for one in guest.PKI},
    }
    asked = {"cluster": cluster.name, "port": cluster.ports["kube-apiserver"], "node": name}
    texts = {payload.COMMAND: _COMMAND, f"{_PLACE}/asked.json": json.dumps(asked)}
    payload.write(target, texts, extra, parts=("kernel", "lab"))


def _wait_ready(cluster: Cluster, name: str, machine: Machine) -> None:
    deadline = time.monotonic() + _SECONDS
    while not is_ready(cluster, name):
        if not machine.runs:
            raise LabError(f"the guest ended: {(machine.results() / 'output').read_text(errors='replace')}")
        if time.monotonic() > deadline:
            raise LabError(f"node {name} is not ready after {_SECONDS:g} s: {machine.failure()}")
        time.sleep(0.5)
