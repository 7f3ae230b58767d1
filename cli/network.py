"""`j10ce network`: the network of this node, looked at and left."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from adapters.atomic_file import Untrusted
from adapters.output import Output, OutputOption
from agent.config import RUN
from agent.network import counting, dump, seen
from agent.network.bpf.pins import MOUNTED_AT
from agent.network.leaving import leave, remaining
from agent.network.netlink import Netlink
from agent.network.showing import Flow, Kernel, ShownNetwork, ShownPod, ShownTree, shown
from agent.nri.instance import is_held, only_instance
from qos.quantity import render

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

RunOption = Annotated[Path, typer.Option(help="The agent's folder of what a boot empties.")]
BpfOption = Annotated[str, typer.Option(help="Where the BPF file system is mounted.")]

_SECONDS: Final = 2.0
"""For an agent that is just ending."""
_BUSY: Final = (
    "an agent shapes this node's network: start it without --network-floors, then it takes all of it away by "
    "itself; or end it first"
)


@app.callback()
def network() -> None:
    """The network of this node: what is shaped, and how to leave it as it was found."""


@app.command()
def status(
    run: RunOption = RUN,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=60.0, help="How long to count for the rates of now.")
    ] = 1.0,
    bpf: BpfOption = MOUNTED_AT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the node's link, its classes, and what each pod is promised, has, and is not kept.

    Counted by the kernel, while an agent is at work or none is; changes nothing. Needs root's rights to read
    what the agent wrote. Exit code 1 when a floor or a limit is not kept, 2 when nothing can be read.
    """
    try:
        said = _read(run)
        found = shown(said, _kernel(seconds, bpf), shaping=is_held(run / seen.LOCK))
    except (OSError, ValueError, Untrusted) as error:
        typer.echo(f"j10ce: {error}", err=True)
        raise typer.Exit(2) from error
    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        _show(found)
    raise typer.Exit(int(bool(_unkept(found))))


@app.command()
def uninstall(run: RunOption = RUN, bpf: BpfOption = MOUNTED_AT) -> None:
    """Take away all that was made at this node's interfaces and in its BPF file system; look what is left.

    What others put there stays. No agent may shape here meanwhile; on all nodes `j10ce install --agent
    --no-network-floors` does the same. Exit code 1 when something is left, which is named; try it again then.
    """
    try:
        left = asyncio.run(_left(run, bpf)) if run.is_dir() else _taken(run, bpf)
    except (OSError, TimeoutError) as error:
        text = _BUSY if isinstance(error, TimeoutError) else str(error)
        typer.echo(f"j10ce: {text}", err=True)
        raise typer.Exit(1) from error
    for one in left:
        typer.echo(f"left: {one}", err=True)
    if not left:
        typer.echo("Nothing of ours is at this node's interfaces or in its BPF file system.")
    raise typer.Exit(int(bool(left)))


async def _left(run: Path, bpf: str) -> list[str]:
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(_SECONDS):
            await stack.enter_async_context(only_instance(run / seen.LOCK))
        return _taken(run, bpf)


def _taken(run: Path, bpf: str) -> list[str]:
    return [*leave(run, bpf, unnoted=True), *remaining(bpf)]


def _read(run: Path) -> seen.SeenNetwork | None:
    try:
        return seen.read(run)
    except FileNotFoundError:
        return None


def _kernel(seconds: float, bpf: str) -> Kernel:
    with Netlink() as netlink:
        before, began = counting.read(netlink, bpf), time.monotonic()
        time.sleep(seconds)
        after, took = counting.read(netlink, bpf), time.monotonic() - began
        names = {one.index: one.name for one in dump.devices(netlink).values()}
        classes = tuple(one for interface in after.classes for one in dump.classes(netlink, interface))
    return Kernel(names, classes, before, after, took)


def _unkept(found: ShownNetwork) -> bool:
    said = found.seen
    obstacles = said is not None and (said.floors is not None or said.limits is not None)
    return obstacles or any(pod.problems for pod in found.pods)


def _show(found: ShownNetwork) -> None:
    said = found.seen
    if said is None:
        typer.echo("No agent has shaped this node's network since its last boot.")
    else:
        for line in _head(found, said):
            typer.echo(line)
    console = Console()
    console = console if console.is_terminal else Console(width=200)
    for tree in found.trees:
        console.print(_tree(tree))
    if found.pods:
        console.print(_pods(found.pods))
    for pod in found.pods:
        for problem in pod.problems:
            typer.echo(f"not kept: pod {pod.namespace}/{pod.pod}: {problem}")


def _head(found: ShownNetwork, said: seen.SeenNetwork) -> list[str]:
    link = said.link
    lines = [f"agent: {'shapes' if found.shaping else 'none shapes now; what it made goes on'}"]
    if link is None:
        lines.append(f"link: not known: {said.link_problem}")
    else:
        ways = (
            ("sends", link.egress, link.egress_source),
            ("receives", link.ingress, link.ingress_source),
        )
        speeds = [f"{word} {_bits(rate)} ({by})" for word, rate, by in ways if rate]
        lines.append(f"link: {link.interface} {', '.join(speeds)}, bits/s that pods may have together")
    lines += [
        f"{one.traffic}: {one.technique}{f' ({one.message})' if one.message else ''}"
        for one in said.techniques
    ]
    lines += [
        f"not kept: {what}: {why}"
        for what, why in (("floors", said.floors), ("limits", said.limits))
        if why is not None
    ]
    return [*lines, *(f"contradiction: {one}" for one in said.contradictions)]


def _tree(tree: ShownTree) -> Table:
    title = f"{tree.interface} ({tree.direction}), bits/s"
    table = Table("class", "whose", "rate", "ceil", "now", "dropped", "waiting", title=title, box=None)
    for one in tree.classes:
        named = one.class_id, escape(one.of), _bits(one.rate), _bits(one.ceil)
        table.add_row(*named, *_flow(one.flow))
    return table


def _pods(pods: tuple[ShownPod, ...]) -> Table:
    columns = ("pod", "band", "", "floor", "has", "limit", "now", "dropped", "waiting", "where")
    table = Table(*columns, title="pods, bits/s", box=None)
    for pod in pods:
        named = escape(f"{pod.namespace}/{pod.pod}"), pod.band
        for word, way in (("egress", pod.egress), ("ingress", pod.ingress)):
            bounds = way.bounds
            limit = "" if bounds.limit is None else _bits(bounds.limit)
            floor, has = (_bits(one) if bounds.floor else "" for one in (bounds.floor, bounds.granted))
            where = way.place or "shared"
            table.add_row(*named, word, floor, has, limit, *_flow(way.flow), where)
            named = "", ""
    return table


def _flow(flow: Flow | None) -> tuple[str, str, str]:
    if flow is None:
        return "", "", ""
    return _bits(flow.now), f"{flow.dropped} (+{flow.dropped_now})", f"{flow.waiting} B"


def _bits(rate: int) -> str:
    """Whole amounts as they were written, measured ones to three digits."""
    written = render("", rate)
    if len(written) <= 5:
        return written
    digits = 10 ** (len(str(rate)) - 3)
    return render("", rate // digits * digits)
