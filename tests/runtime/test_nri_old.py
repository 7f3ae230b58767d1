"""The NRI plugin with containerd 1.7, which tells of pods and of starts by StateChange."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab import node_programs
from lab.node_programs import Programs
from lab.runtimes import containerd as rig
from lab.runtimes import images
from lab.runtimes.cgroups import Scratch
from lab.runtimes.containerd import Containerd, Options
from lab.runtimes.cri import Cri
from lab.runtimes.programs import require
from tests.runtime.nri_node import Node, from_birth_to_its_end

OLD = Programs(
    "oldnode",
    Path(rig.__file__).parents[1] / "oldnodemodule",
    ("containerd", "containerd-shim-runc-v2"),
    {"github.com/containerd/containerd": "github.com/containerd/containerd/version.Version"},
)
CONFIG = """\
version = 2
root = '{folder}/root'
state = '{folder}/state'
imports = []
[grpc]
address = '{folder}/containerd.sock'
[ttrpc]
address = '{folder}/containerd.sock.ttrpc'
[plugins."io.containerd.internal.v1.opt"]
path = '{folder}/opt'
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = '{pause}'
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = '{folder}/cni'
conf_dir = '{folder}/cni'
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = 'native'
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = '{runc}'
[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = '{folder}/nri.sock'
plugin_path = '{folder}/nri/plugins'
plugin_config_path = '{folder}/nri/conf.d'
plugin_registration_timeout = '60s'
plugin_request_timeout = '30s'
"""

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]  # builds that containerd: two minutes, once


@pytest.fixture(scope="module")
def old_programs(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """containerd 1.7 and its shim, with the tools that go with either."""
    environ = {key: value for key, value in os.environ.items() if key != "J10CE_NODE_BIN"}
    built = node_programs.provide(environ, lambda _what, _done, _total: None, OLD)
    folder = tmp_path_factory.mktemp("old")
    for file in [*(built / name for name in OLD.names), programs / "ctr", programs / "crictl"]:
        (folder / file.name).symlink_to(file)
    return folder


async def test_from_birth_to_its_end(old_programs: Path, scratch: Scratch, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    text = CONFIG.format(folder=folder, pause=images.PAUSE, runc=require("runc"))
    (folder / "config.toml").write_text(text)
    with rig._running(old_programs, folder):
        cri = Cri(old_programs / "crictl", folder / "containerd.sock", folder / "pods")
        containerd = Containerd(folder, old_programs, cri)
        rig._wait_ready(containerd)
        rig._import(containerd, Options())
        node = Node(containerd, scratch, tmp_path)
        try:
            await from_birth_to_its_end(node, "containerd 1.7")
        finally:
            cri.remove_all()
