"""Throw-away control planes on this machine: kwokctl with its binary runtime, several side by side.

A cluster is a folder: kwokctl's own folder inside it, our records, logs and pid files. A temporary cluster
goes with the process that made it (lab/reaper.py); one made with keep=True stays until down().
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from lab import components, kwok, minors, ports, processes, scheduler_config
from lab.binaries import Binaries
from lab.reaper import Reaper, remove

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_PORT_NAMES = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok-controller",
    "extender-verbs",
    "extender",
)
_LOOK_SECONDS = 0.1
_KIND = r"{.spec.group}/{.spec.versions[0].name}/{.spec.names.plural}{'\n'}"
_reapers: dict[Path, Reaper] = {}


class LabError(Exception):
    """A cluster could not be made, found or used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A lab cluster that runs, or once ran, in its folder."""

    name: str
    folder: Path
    kubectl_argv: tuple[str, ...]
    versions: Mapping[str, str]
    ports: Mapping[str, int]
    owner: str = ""
    """pid and start time of the process it goes with; empty: it stays."""

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator."""
        return kwok.kubeconfig(self.folder)

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{ports.LOOPBACK}:{self.ports['kube-apiserver']}"

    def log(self, component: str) -> Path:
        """Log file of a component."""
        return components.find(self.folder, component).log

    def alive(self, component: str) -> bool:
        """Whether a component's process runs."""
        return components.pid(self.folder, component) is not None

    def kill(self, component: str, sig: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a component and wait until it is gone."""
        components.kill(self.folder, component, sig)

    def start(self, component: str) -> None:
        """Start a component that was killed, with the same arguments."""
        components.start(self.folder, component)

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True, seconds: float = 60) -> str:
        """Run kubectl against the cluster; return its output; LabError with its message when it fails."""
        argv = [*self.kubectl_argv, *arguments]
        environment = kwok.environment(self.folder)
        try:
            done = subprocess.run(
                argv,
                input=stdin,
                env=environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"kubectl {' '.join(arguments)}: no answer within {seconds:g} s") from None
        if check and done.returncode:
            raise LabError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout


def default_root() -> Path:
    """Folder of all lab clusters of this user: $XDG_STATE_HOME/j10ce/lab."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "j10ce" / "lab"


def reserve_ports(folder: Path, count: int) -> list[int]:
    """More ports for a cluster, its own until it is taken down. LabError."""
    try:
        return ports.reserve(folder, count)
    except OSError as error:
        raise LabError(f"no port for cluster {folder.name}: {error}") from error


def up(
    name: str,
    *,
    binaries: Binaries,
    root: Path | None = None,
    scheduler_config: Path | Mapping[str, Any] | None = None,
    verbs_url: str = "",
    verbs_scheme: str = "http",
    feature_gates: Mapping[str, bool] | None = None,
    qps_limits: bool = False,
    beta: bool | None = None,
    crds: bool = True,
    keep: bool = False,
    seconds: float = 120,
) -> Cluster:
    """Start a control plane and wait until it is ready, the custom resources of manifests/crds applied.

    scheduler_config: a KubeSchedulerConfiguration (file or content); its extenders are asked at verbs_url, by
    default where lab/extender_process.py starts one.
    beta: with MutatingAdmissionPolicy v1beta1; by default where there is no v1 of it, before Kubernetes 1.36.
    keep=False: the cluster is taken down when this process ends, even by SIGKILL. LabError: nothing is left.
    """
    folder = _new_folder(name, root or default_root())
    reaper = Reaper(folder)
    try:
        cluster = _plan(name, folder, binaries, keep=keep)
        verbs_url = verbs_url or f"{verbs_scheme}://{ports.LOOPBACK}:{cluster.ports['extender-verbs']}"
        _write_scheduler_config(cluster, scheduler_config, verbs_url, qps_limits=qps_limits)
        if beta is None:
            beta = minors.has_beta_alone(cluster.versions.get("kube-apiserver", binaries.fetched))
        _create(cluster, binaries, feature_gates or {}, beta=beta, qps_limits=qps_limits, seconds=seconds)
        _admit_pods(cluster, seconds)
        if crds:
            apply_crds(cluster)
    except BaseException:
        remove(folder)
        reaper.dismiss()
        raise
    if keep:
        reaper.dismiss()
    else:
        _reapers[folder] = reaper
    return cluster


def down(name: str, *, root: Path | None = None) -> None:
    """Kill a cluster's processes and remove its folder. LabError when there is none of that name."""
    folder = (root or default_root()) / name
    if not _NAME.fullmatch(name) or not folder.is_dir():
        known = ", ".join(sorted(c.name for c in clusters(root=root))) or "none"
        raise LabError(f"there is no lab cluster {name!r}; running: {known}")
    remove(folder)
    reaper = _reapers.pop(folder, None)
    if reaper is not None:
        reaper.dismiss()


def clusters(*, root: Path | None = None) -> list[Cluster]:
    """Every lab cluster of this user, by name; those whose owner is gone are taken down first."""
    found = []
    for record in sorted((root or default_root()).glob("*/cluster.json")):
        cluster = _read(record)
        if cluster is None:
            continue
        if cluster.owner and not _is_running(cluster.owner):
            remove(cluster.folder)
        else:
            found.append(cluster)
    return found


def _admit_pods(cluster: Cluster, seconds: float) -> None:
    """Wait for the default service account, which comes a moment later than the rest: no pod without it.

    kube-controller-manager makes it, and ends when the API server is not healthy within 10 s of its start.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        components.start(cluster.folder, "kube-controller-manager")
        if cluster.kubectl("get", "serviceaccounts", "--output=name").strip():
            return
        time.sleep(_LOOK_SECONDS)
    raise LabError(f"cluster {cluster.name}: no default service account within {seconds:g} s")


def apply_crds(cluster: Cluster) -> None:
    """Apply the project's custom resource definitions and wait until the API server can watch them."""
    folder = resources.files("manifests") / "crds"
    if not folder.is_dir():
        raise LabError("the package manifests has no folder crds: install j10ce-qos again")
    with resources.as_file(folder) as path:
        found = [str(file) for file in sorted(path.glob("*.yaml")) if file.name != "kustomization.yaml"]
        files = [f"--filename={file}" for file in found]
        cluster.kubectl("apply", "--server-side", *files)
        kinds = cluster.kubectl(
            "wait", "--for=condition=Established", "--timeout=30s", f"--output=jsonpath={_KIND}", *files
        ).split()
    _await_discovery(cluster, kinds)
    _fill_watch_caches(cluster, kinds)


def _await_discovery(cluster: Cluster, kinds: Sequence[str], seconds: float = 60) -> None:
    """Wait until the API server lists these kinds (GROUP/VERSION/PLURAL), as kubectl needs for short names.

    Established comes a moment before.
    """
    wanted = {f"{plural}.{group}" for group, _, plural in (kind.split("/") for kind in kinds)}
    deadline = time.monotonic() + seconds
    while missing := wanted - {*cluster.kubectl("api-resources", "--output=name", check=False).split()}:
        if time.monotonic() > deadline:
            raise LabError(f"cluster {cluster.name}: no {', '.join(sorted(missing))} within {seconds:g} s")
        time.sleep(_LOOK_SECONDS)


def _fill_watch_caches(cluster: Cluster, kinds: Sequence[str]) -> None:
    """Wait until the API server's watch caches have these kinds (GROUP/VERSION/PLURAL).

    The first request makes a cache. A list that is answered before the cache is filled is older than all that
    the cache knows, and the watch from there on is refused with 410 Gone: who may not miss a change is lost.
    """
    with ThreadPoolExecutor(len(kinds)) as pool:
        list(pool.map(lambda kind: _list(cluster, f"{kind}?limit=1", check=False), kinds))  # etcd answers
        list(pool.map(lambda kind: _list(cluster, f"{kind}?resourceVersion=1"), kinds))  # the cache answers


def _list(cluster: Cluster, what: str, *, check: bool = True) -> None:
    cluster.kubectl("get", "--raw", f"/apis/{what}", check=check)


def add_scheduler(
    cluster: Cluster, name: str, config: Path, *, verbs_url: str = "", qps_limits: bool = False
) -> str:
    """Start another kube-scheduler beside the cluster's own, with a configuration of its own.

    Returns the component's name, for kill() and start().
    """
    document = scheduler_config.for_lab(
        scheduler_config.load(config), verbs_url=verbs_url, qps_limits=qps_limits
    )
    document["clientConnection"]["kubeconfig"] = str(cluster.kubeconfig)
    path = cluster.folder / f"{name}.yaml"
    scheduler_config.write(document, path)
    kube_scheduler = components.find(cluster.folder, "kube-scheduler")
    (port,) = reserve_ports(cluster.folder, 1)
    argv = [
        kube_scheduler.argv[0],
        f"--config={path}",
        f"--bind-address={ports.LOOPBACK}",
        f"--secure-port={port}",
    ]
    components.add(cluster.folder, name, argv)
    components.start(cluster.folder, name)
    return name


def _new_folder(name: str, root: Path) -> Path:
    if not _NAME.fullmatch(name):
        raise LabError(f"cluster name {name!r}: at most 40 of a-z, 0-9 and '-', not first or last")
    clusters(root=root)
    folder = root.resolve() / name
    try:
        folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise LabError(
            f"lab cluster {name!r} exists: take it down first (j10ce lab down --name {name})"
        ) from None
    return folder


def _plan(name: str, folder: Path, binaries: Binaries, *, keep: bool) -> Cluster:
    ours = (str(binaries.kubectl), f"--kubeconfig={kwok.kubeconfig(folder)}")
    fetched = (
        str(binaries.kwokctl),
        "--name",
        name,
        "kubectl",
    )  # kwokctl fetches it, and knows the kubeconfig
    cluster = Cluster(
        name=name,
        folder=folder,
        kubectl_argv=ours if binaries.kubectl else fetched,
        versions=binaries.versions(),
        ports=dict(zip(_PORT_NAMES, reserve_ports(folder, len(_PORT_NAMES)), strict=True)),
        owner="" if keep else f"{os.getpid()} {processes.start_time(os.getpid())}",
    )
    record = {
        "kubectl": cluster.kubectl_argv,
        "versions": cluster.versions,
        "ports": cluster.ports,
        "owner": cluster.owner,
    }
    (folder / "cluster.json").write_text(json.dumps(record, indent=1))
    return cluster


def _read(record: Path) -> Cluster | None:
    try:
        data = json.loads(record.read_text())
    except (OSError, ValueError):  # being made or removed at this moment
        return None
    folder = record.parent.resolve()
    return Cluster(
        folder.name, folder, tuple(data["kubectl"]), data["versions"], data["ports"], data["owner"]
    )


def _is_running(owner: str) -> bool:
    pid, _, started = owner.partition(" ")
    return processes.start_time(int(pid)) == started


def _write_scheduler_config(
    cluster: Cluster, config: Path | Mapping[str, Any] | None, verbs_url: str, *, qps_limits: bool
) -> None:
    document = (
        scheduler_config.load(config) if isinstance(config, Path) else config or scheduler_config.empty()
    )
    document = scheduler_config.for_lab(document, verbs_url=verbs_url, qps_limits=qps_limits)
    scheduler_config.write(document, kwok.scheduler_config(cluster.folder))


def _create(
    cluster: Cluster,
    binaries: Binaries,
    feature_gates: Mapping[str, bool],
    *,
    beta: bool,
    qps_limits: bool,
    seconds: float,
) -> None:
    said = kwok.create(
        cluster.folder,
        cluster.ports,
        binaries,
        feature_gates,
        beta=beta,
        qps_limits=qps_limits,
        seconds=seconds,
    )
    if said:
        raise LabError(f"kwokctl could not start cluster {cluster.name}: {said}")
