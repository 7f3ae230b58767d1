"""`j10ce lab`: throw-away control planes on this machine."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from adapters.output import Output, OutputOption
from lab import binaries as lab_binaries
from lab import cluster as lab_cluster
from lab import components, extender_process, karpenter, minors, node_programs
from lab import helm as helm_program
from lab.binaries import Binaries
from lab.cluster import Cluster, LabError
from lab.node import demo, demo_place, demo_table, rig
from lab.node.node import DAEMONS, RealNode
from lab.node.node import nodes as real_nodes
from lab.node.settings import Programs as NodePrograms
from lab.nodes import nodes as make_nodes
from lab.processes import exit_on_sigterm
from lab.progress import build_progress
from lab.runtimes.commands import app as runtimes_app
from lab.scheduler_config import with_extender
from lab.vm.commands import app as vm_app

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
app.add_typer(runtimes_app, name="runtimes", help="runc, crun, podman and containerd, for tests.")
app.add_typer(vm_app, name="vm", help="A machine with a real cgroup v2 kernel, for tests.")


class Extender(StrEnum):
    """Which extender stands beside the cluster's kube-scheduler."""

    GUARD = "guard"
    STRICT = "strict"
    OBSERVE = "observe"
    NONE = "none"


Name = Annotated[str, typer.Option("--name", "-n", help="Name of the cluster.")]


@app.command()
def up(
    name: Name = "lab",
    extender: Annotated[
        Extender, typer.Option(help="Mode of the extender beside kube-scheduler.")
    ] = Extender.GUARD,
    scheduler_config: Annotated[
        Path | None,
        typer.Option(
            help="KubeSchedulerConfiguration; its extenders are asked at the lab's extender.", dir_okay=False
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(help="KWOK nodes of 32 CPU and 128 Gi.", min=0, max=10_000)] = 10,
    real_node: Annotated[
        bool, typer.Option("--real-node", help="Add a node with a kubelet and a containerd (as root).")
    ] = False,
    autoscaler: Annotated[
        bool,
        typer.Option(
            "--autoscaler", help="With Karpenter, which makes KWOK nodes of 4 CPU for pods that wait."
        ),
    ] = False,
    qps_limits: Annotated[bool, typer.Option(help="Keep the rate limits of upstream's clients.")] = False,
    download: Annotated[
        bool, typer.Option(help="Let kwokctl fetch the official programs; build nothing but kwokctl.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start a control plane: seconds, once its programs are built (the first use: about 5 minutes)."""
    exit_on_sigterm()
    node = _node_programs() if real_node else None
    scaling = _autoscaler() if autoscaler else None
    found = _programs(download=download)
    started = _start(name, found, extender, scheduler_config, nodes, node, scaling, qps_limits=qps_limits)
    _print_started(started, output)


@app.command()
def down(
    name: Name = "lab",
    every: Annotated[bool, typer.Option("--all", help="Every lab cluster of this user.")] = False,
) -> None:
    """End a control plane and remove all it left: processes, data, certificates, logs."""
    names = [cluster.name for cluster in lab_cluster.clusters()] if every else [name]
    for one in names:
        lab_cluster.down(one)
        sys.stderr.write(f"cluster {one} is gone\n")


@app.command()
def env(name: Name = "lab") -> None:
    """Print what a shell needs to use a lab cluster. Use: eval "$(j10ce lab env)"."""
    typer.echo("\n".join(exports(_find(name))))


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    argv: Annotated[list[str], typer.Argument(help="The program and its arguments.")],
    name: Name = "lab",
    node: Annotated[str, typer.Option(help="Name of the real node.")] = rig.NAME,
) -> None:
    """Run a program inside a real node, such as a shell: j10ce lab run sh."""
    found = {one.name: one for one in real_nodes(_find(name))}
    if node not in found:
        raise LabError(f"cluster {name} has no real node {node!r}; start one: j10ce lab up --real-node")
    command = found[node].command(argv)
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


@app.command()
def demo_node(
    crowded: Annotated[
        bool, typer.Option(help="This machine has other work, too: a repair may take longer.")
    ] = False,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="In the test VM: systemd, cgroup v2, the agent by its unit.")
    ] = False,
) -> None:
    """One floor on a real node, from the policy to the kernel, through what breaks it (about 40 s)."""
    exit_on_sigterm()
    node, found, begun = _node_programs(), _programs(download=False), time.monotonic()
    placing = demo_place.in_the_vm(lab_binaries.silent) if systemd else demo_place.namespaced(node)

    def say(what: str) -> None:
        sys.stderr.write(f"{time.monotonic() - begun:5.1f} s  {what}\n")

    if not demo_table.show(demo.run(found, placing, say, crowded=crowded or systemd), Console()):
        raise typer.Exit(1)


@app.command()
def status(output: OutputOption = Output.TABLE) -> None:
    """List the control planes that run on this machine."""
    found = [describe(cluster) for cluster in lab_cluster.clusters()]
    if output is Output.JSON:
        typer.echo(json.dumps(found, indent=2))
        return
    table = Table("name", "server", "kubernetes", "components", "real nodes", "kubeconfig", box=None)
    for entry in found:
        stopped = [part for part, pid in entry["components"].items() if pid is None]
        parts = f"{len(entry['components'])} run" if not stopped else f"stopped: {', '.join(stopped)}"
        version = entry["versions"].get("kube-apiserver", "official")
        real = ", ".join(entry["realNodes"]) or "-"
        table.add_row(entry["name"], entry["server"], version, parts, real, entry["kubeconfig"])
    Console().print(table if found else "no lab cluster runs; start one: j10ce lab up")


@app.command()
def programs(
    download: Annotated[bool, typer.Option(help="Build nothing but kwokctl.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the control plane's programs, or build them (about 5 minutes); say where they are."""
    found = _programs(download=download)
    versions = found.versions()
    if output is Output.JSON:
        files = {name: {"path": str(path), "version": versions[name]} for name, path in found.files.items()}
        typer.echo(json.dumps({"source": found.source, "files": files}, indent=2))
    else:
        typer.echo(f"{found.source}: {', '.join(f'{name} {version}' for name, version in versions.items())}")


@app.command()
def helm() -> None:
    """Find Helm, or build it (a minute); say where it is."""
    with build_progress(
        introduction="Building helm from its Go module: about a minute on 2 cores, once. "
    ) as report:
        typer.echo(helm_program.helm(os.environ, report))


def describe(cluster: Cluster) -> dict[str, Any]:
    """What `-o json` says of a cluster."""
    known = components.components(cluster.folder)
    return {
        "name": cluster.name,
        "server": cluster.server,
        "kubeconfig": str(cluster.kubeconfig),
        "folder": str(cluster.folder),
        "versions": dict(cluster.versions),
        "ports": dict(cluster.ports),
        "components": {part: components.pid(cluster.folder, part) for part in known},
        "realNodes": {node.name: describe_node(node) for node in real_nodes(cluster)},
        "logs": {part: str(component.log) for part, component in known.items()},
    }


def describe_node(node: RealNode) -> dict[str, Any]:
    """What `-o json` says of a real node."""
    return {
        "address": node.address,
        "cgroup": node.cgroup.name,
        "daemons": {daemon: node.pid(daemon) for daemon in DAEMONS},
        "logs": str(node.folder / "logs"),
    }


def exports(cluster: Cluster) -> list[str]:
    """Lines for a shell: the kubeconfig, kubectl on PATH, and where the extender's REST port is."""
    lines = [f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}"]
    kubectl = Path(cluster.kubectl_argv[0])
    if kubectl.name == "kubectl":
        lines.append(f"export PATH={shlex.quote(str(kubectl.parent))}:$PATH")
    extender = components.components(cluster.folder).get(extender_process.COMPONENT)
    if extender is not None:
        address = extender.argv[extender.argv.index("--address") + 1]
        lines.append(f"export J10CE_EXTENDER=http://{address}")
    return lines


def create_nodes(cluster: Cluster, count: int) -> None:
    """Create KWOK nodes node-0 .. and wait until the API server has them."""
    body = {"apiVersion": "v1", "kind": "List", "items": make_nodes("node", count)}
    cluster.kubectl("create", "--filename", "-", stdin=json.dumps(body), seconds=60 + count / 10)


def _find(name: str) -> Cluster:
    found = {cluster.name: cluster for cluster in lab_cluster.clusters()}
    if name not in found:
        known = ", ".join(found) or "none runs; start one: j10ce lab up"
        raise LabError(f"no lab cluster is named {name!r}; there are: {known}")
    return found[name]


def _node_programs() -> NodePrograms:
    """LabError where the control plane is to be older than the kubelet that the lab has."""
    newest = next(iter(minors.known()))
    if (asked := lab_binaries.asked(os.environ) or newest) != newest:
        raise LabError(f"a real node's kubelet is {newest}, and {minors.VARIABLE}={asked} older: unset that")
    with build_progress(introduction=node_programs.INTRODUCTION) as report:
        return rig.provide(report)


def _autoscaler() -> Path:
    with build_progress(introduction=karpenter.INTRODUCTION) as report:
        return karpenter.programs(os.environ, report)


def _programs(*, download: bool) -> Binaries:
    with build_progress() as report:
        found = lab_binaries.provide(os.environ, download=download, report=report)
    for note in found.notes:
        sys.stderr.write(f"note: {note}\n")
    return found


def _start(
    name: str,
    binaries: Binaries,
    mode: Extender,
    config: Path | None,
    nodes: int,
    real: NodePrograms | None,
    scaling: Path | None,
    *,
    qps_limits: bool,
) -> Cluster:
    """A cluster with its extender and nodes; nothing is left when one of them fails."""
    document = None if mode is Extender.NONE else with_extender(mode.value)
    started = lab_cluster.up(
        name,
        binaries=binaries,
        scheduler_config=config or document,
        qps_limits=qps_limits,
        keep=True,
    )
    try:
        more: dict[str, Any] = {}
        if scaling is not None:
            karpenter.start(started, scaling)
            more = {"autoscaling": {"buffers": True}}
        if mode is not Extender.NONE:
            extender_process.start(started, mode=mode.value, config=more).wait_ready()
        if nodes:
            create_nodes(started, nodes)
        if real is not None:
            rig.start(started, programs=real)
    except BaseException:
        lab_cluster.down(name)
        raise
    return started


def _print_started(cluster: Cluster, output: Output) -> None:
    entry = describe(cluster)
    if output is Output.JSON:
        typer.echo(json.dumps(entry, indent=2))
        return
    versions = ", ".join(f"{name} {version}" for name, version in entry["versions"].items())
    ports = ", ".join(f"{name} {port}" for name, port in entry["ports"].items())
    sys.stderr.write(
        f"cluster {cluster.name} is up: {cluster.server}\nversions: {versions}\nports: {ports}\n"
    )
    sys.stderr.write(f"logs: {cluster.folder}; end it with: j10ce lab down --name {cluster.name}\n")
    sys.stderr.write(f'use it: eval "$(j10ce lab env --name {cluster.name})"\n')
    typer.echo("\n".join(exports(cluster)))
