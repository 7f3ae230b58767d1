"""A containerd of our own: scratch folders and sockets, private mount and process namespaces.

It ends with its rig: its namespace's first process waits for the end of its standard input, and when that
process is gone the kernel ends containerd, its shims and every container, and drops their mounts. Their
cgroups are the caller's (lab.runtimes.cgroups).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.runtimes import images
from lab.runtimes.cri import Cri
from lab.runtimes.programs import RuntimesError, require, run

NAMES = ("containerd", "containerd-shim-runc-v2", "ctr", "crictl")
_READY_SECONDS = 120.0
_FIRST = 'mount -t tmpfs -o mode=755 run /run && { "$0" --config "$1" </dev/null & } && exec cat'
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_CRI = """\
[plugins.'io.containerd.cri.v1.images']
snapshotter = '{snapshotter}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{pause}'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{plugins}']
"""
_CONFIG = """\
version = 4
root = '{folder}/root'
state = '{folder}/state'
imports = []
disabled_plugins = [{disabled}]

[plugins.'io.containerd.server.v1.grpc']
address = '{folder}/containerd.sock'
[plugins.'io.containerd.server.v1.ttrpc']
address = '{folder}/containerd.sock.ttrpc'
[plugins.'io.containerd.internal.v1.opt']
path = '{folder}/opt'
{cri}conf_dir = '{folder}/cni'
[plugins.'io.containerd.nri.v1.nri']
disable = false
socket_path = '{folder}/nri.sock'
plugin_path = '{folder}/nri/plugins'
plugin_config_path = '{folder}/nri/conf.d'
{patience}"""
_PATIENCE = """\
plugin_registration_timeout = '{seconds}s'
plugin_request_timeout = '{seconds}s'

[timeouts]
'io.containerd.timeout.shim.cleanup' = '{seconds}s'
'io.containerd.timeout.shim.load' = '{seconds}s'
'io.containerd.timeout.shim.shutdown' = '{seconds}s'
'io.containerd.timeout.task.state' = '{seconds}s'
"""
_HANDLER = """\
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}]
runtime_type = 'io.containerd.runc.v2'
base_runtime_spec = '{base}'
pod_annotations = {annotations}
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}.options]
BinaryName = '{runc}'
"""
_UNUSED = (
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.tracing.processor.v1.otlp",
)
UNUSED_PLUGINS = ", ".join(repr(name) for name in _UNUSED)
"""Of containerd, as config.toml lists them: they would only take time to start, or log what they miss."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A runtime class of containerd: the spec its containers start from, and pod annotations they may see."""

    base_spec: Path | None = None
    pod_annotations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Containerd:
    """A running containerd, its CRI, and where its NRI plugins register."""

    folder: Path
    programs: Path
    cri: Cri

    @property
    def nri_socket(self) -> Path:
        """NRI's socket."""
        return self.folder / "nri.sock"

    def log(self) -> str:
        """What containerd has said."""
        return (self.folder / "containerd.log").read_text(errors="replace")


@dataclass(frozen=True, slots=True)
class Options:
    """How a containerd is set up. handlers: by name; "runc" is the default one and always there.

    snapshotter: native copies, which works on every file system; overlayfs does not on another overlay.
    parent: where its folder is made; keep it short, a socket's path has at most 107 bytes.
    patience: seconds for what containerd itself gives 2 to 5 (NRI plugins' answers, shims'); 0 leaves it so.
    """

    handlers: Mapping[str, Handler] = field(default_factory=dict)
    snapshotter: str = "native"
    parent: Path | None = None
    patience: int = 0


@contextlib.contextmanager
def containerd(programs: Path, options: Options | None = None) -> Iterator[Containerd]:
    """A containerd with the two images imported; programs is the folder of what lab/nodemodule builds."""
    missing = [name for name in NAMES if not os.access(programs / name, os.X_OK)]
    if missing:
        raise RuntimesError(f"{programs} has no {', '.join(missing)}: `make runtimes` builds them")
    options = options or Options()
    folder = Path(tempfile.mkdtemp(prefix="j10ce-ctd-", dir=options.parent))
    try:
        (folder / "config.toml").write_text(config(folder, options))
        with _running(programs, folder):
            cri = Cri(programs / "crictl", folder / "containerd.sock", folder / "pods")
            here = Containerd(folder, programs, cri)
            _wait_ready(here)
            _import(here, options)
            yield here
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cri_settings(snapshotter: str, cni: Path) -> str:
    """The part of config.toml for CRI, up to its table of CNI; cni: the folder of its plugins."""
    return _CRI.format(snapshotter=snapshotter, pause=images.PAUSE, plugins=cni)


def config(folder: Path, options: Options) -> str:
    """containerd's config.toml."""
    cri = cri_settings(options.snapshotter, folder / "cni")
    patience = _PATIENCE.format(seconds=options.patience) if options.patience else ""
    text = _CONFIG.format(disabled=UNUSED_PLUGINS, folder=folder, cri=cri, patience=patience)
    for name, handler in ({"runc": Handler()} | dict(options.handlers)).items():
        text += _HANDLER.format(
            name=name,
            base=handler.base_spec or "",
            annotations=json.dumps(list(handler.pod_annotations)),
            runc=require("runc"),
        )
    return text


def base_spec(programs: Path, hooks: Mapping[str, list[Mapping[str, object]]]) -> dict[str, object]:
    """containerd's own default spec with hooks added: what a base_runtime_spec file holds."""
    spec: dict[str, object] = json.loads(run([programs / "ctr", "oci", "spec"]).succeeded().stdout)
    return spec | {"hooks": dict(hooks)}


@contextlib.contextmanager
def _running(programs: Path, folder: Path) -> Iterator[None]:
    argv = [str(require("unshare")), "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc"]
    argv += ["--kill-child", "sh", "-c", _FIRST, str(programs / "containerd"), str(folder / "config.toml")]
    environ = os.environ | {"PATH": f"{programs}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    with (folder / "containerd.log").open("w") as log:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environ)
    assert process.stdin is not None
    try:
        yield
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=_READY_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # --kill-child: the namespace goes with it
            process.wait()


def _wait_ready(here: Containerd) -> None:
    """First for the socket, then for an answer: asking costs more than waiting in the test VM."""
    deadline = time.monotonic() + _READY_SECONDS
    while not here.cri.socket.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    while True:
        done = here.cri.call("version")
        if done.code == 0:
            return
        if time.monotonic() > deadline:
            raise RuntimesError(f"containerd is not ready: {done.stderr.strip()}\n{here.log()[-2000:]}")
        time.sleep(0.02)


def _import(here: Containerd, options: Options) -> None:
    machine = platform.machine()
    tar = images.archive(here.folder / "images.tar", _ARCHITECTURES.get(machine, machine))
    ctr: list[str | Path] = [
        here.programs / "ctr",
        "--address",
        here.folder / "containerd.sock",
        "--namespace",
        "k8s.io",
    ]
    run([*ctr, "images", "import", "--local", "--snapshotter", options.snapshotter, tar]).succeeded()
