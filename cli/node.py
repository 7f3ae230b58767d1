"""`j10ce node`: this node, looked at by hand."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from adapters.api import APIError, Unreachable
from adapters.atomic_file import Untrusted
from adapters.kubernetes.client import KubernetesAPI
from adapters.kubernetes.credentials import CredentialsError
from adapters.kubernetes.wire import DecodeError
from adapters.output import Output, OutputOption
from agent import host_cgroups, inspection
from agent import observed as observed_file
from agent.config import AGENT_LOCK, NRI_SOCKET, RUN, STATE, AgentConfig, address
from agent.doctor import findings
from agent.findings import Finding, Grade
from agent.network.publishing import withdraw
from agent.nri.instance import only_instance
from agent.restoring import Restored, leave_as_found
from hook.installation import status
from hook.installation.places import Places
from kernel import facts

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

_SECONDS: Final = 2.0
"""For an agent that is just ending."""
_COLOURS: Final = {Grade.WORKS: "green", Grade.LIMITED: "yellow", Grade.BROKEN: "red"}
_OF_HOOK: Final = {
    status.Severity.GOOD: Grade.WORKS,
    status.Severity.NOTE: Grade.LIMITED,
    status.Severity.WRONG: Grade.LIMITED,
}


@app.callback()
def node() -> None:
    """This node, looked at by hand."""


@app.command()
def doctor(
    nri_socket: Annotated[Path, typer.Option(help="The container runtime's NRI socket.")] = NRI_SOCKET,
    listen: Annotated[
        str,
        typer.Option("--address", help="HOST:PORT where the agent serves.", envvar="J10CE_AGENT_ADDRESS"),
    ] = "127.0.0.1:10262",
    node_cgroups: Annotated[
        bool,
        typer.Option(
            "--node-cgroups", help="In the agent's pod: as the agent sees it.", envvar="J10CE_NODE_CGROUPS"
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say in plain words what works on this node, what does not, and why.

    Kernel files are tried in cgroups made for it and removed again; nothing else is changed. Exit code 1 when
    a floor cannot be kept here.
    """
    if node_cgroups:
        _enter()
    facts = inspection.look(AgentConfig(nri_socket=nri_socket, address=address(listen)))
    found = [*findings(facts), *_hook()]
    if output is Output.JSON:
        typer.echo(json.dumps([_json(one) for one in found], indent=2))
    else:
        _show(found)
    raise typer.Exit(int(any(one.grade is Grade.BROKEN for one in found)))


@app.command()
def restore(
    run: Annotated[Path, typer.Option(help="The agent's and the hook's folder.")] = RUN,
    state: Annotated[Path, typer.Option(help="The agent's folder.")] = STATE,
    nri_socket: Annotated[
        str, typer.Option(help="The container runtime's NRI socket; '' tells it nothing.")
    ] = str(NRI_SOCKET),
    node_cgroups: Annotated[
        bool, typer.Option("--node-cgroups", help="In a pod: see all cgroups.", envvar="J10CE_NODE_CGROUPS")
    ] = False,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig", help="Also take out of the Node's status the bandwidth that the agent published."
        ),
    ] = None,
    node_name: Annotated[
        str, typer.Option("--node", help="For that: this node's name.", envvar="NODE_NAME")
    ] = "",
) -> None:
    """Leave this node as it was found: all settings of ours back to what others want, our files removed.

    What somebody else has written since stays. The agent must not run here; `j10ce uninstall` does this on
    all nodes. Exit code 1 when something could not be put back; it can be tried again.
    """
    if config_file is not None and not node_name:
        raise typer.BadParameter("--kubeconfig needs --node: the name that this node has there")
    if node_cgroups:
        _enter()
    try:
        done = asyncio.run(_restored(run, state, nri_socket)) if run.is_dir() else Restored(0, ())
        if config_file is not None:
            asyncio.run(_withdrawn(config_file, node_name))
    except (OSError, TimeoutError, APIError, Unreachable, DecodeError, CredentialsError) as error:
        text = "an agent runs here: end it first" if isinstance(error, TimeoutError) else str(error)
        typer.echo(f"j10ce: {text}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"{done.files} kernel files have what others want again.")
    for one in done.left:
        typer.echo(f"not put back: {one}", err=True)
    raise typer.Exit(int(bool(done.left)))


async def _restored(run: Path, state: Path, nri_socket: str) -> Restored:
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(_SECONDS):
            await stack.enter_async_context(only_instance(run / AGENT_LOCK))
        socket = Path(nri_socket) if nri_socket else None
        return await asyncio.to_thread(leave_as_found, facts.mounts(), run, state, socket)


async def _withdrawn(config_file: Path, node_name: str) -> None:
    async with KubernetesAPI.from_kubeconfig(config_file) as api:
        await withdraw(api, node_name)


@app.command()
def observed(
    state: Annotated[Path, typer.Option(help="The agent's folder.")] = STATE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what the agent of this node would write, were it not started with --observe.

    What it saw some seconds ago; containers of policies whose floors were missed longest come first.
    """
    try:
        seen = observed_file.read(state)
    except (OSError, ValueError, Untrusted) as error:
        typer.echo(
            f"j10ce: {state / observed_file.NAME}: {error}: is an agent with --observe here?", err=True
        )
        raise typer.Exit(1) from error
    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(seen), indent=2).decode())
        return
    table = Table("pod", "container", "policy", "missed", "cgroup", "file", "has", "would get", box=None)
    for one in seen.containers:
        named = f"{one.namespace}/{one.pod}", one.container, one.policy, f"{one.deficit_seconds:.0f} s"
        for each in one.settings:
            table.add_row(*map(escape, (*named, each.cgroup, each.file, each.have, each.want)))
            named = "", "", "", ""
    for each in seen.of_all_pods:
        table.add_row(*map(escape, ("all pods", "", "", "", each.cgroup, each.file, each.have, each.want)))
    settings = sum(len(one.settings) for one in seen.containers)
    typer.echo(f"{settings} settings of {len(seen.containers)} containers would be written.")
    if table.row_count:
        console = Console()
        (console if console.is_terminal else Console(width=200)).print(table)


def _enter() -> None:
    try:
        host_cgroups.enter()
    except OSError as error:
        typer.echo(f"j10ce: {error.strerror}", err=True)
        raise typer.Exit(1) from error


def _hook() -> list[Finding]:
    """The OCI hook's installation; without one NRI alone has containers right from birth."""
    return [
        Finding(f"hook: {fact.name}", _OF_HOOK[fact.severity], fact.text)
        for fact in status.status(Places(Path("/")))
    ]


def _json(one: Finding) -> dict[str, str]:
    return {"subject": one.subject, "level": one.grade.value, "text": one.text, "do": one.do}


def _show(found: list[Finding]) -> None:
    table = Table("what", "", "found", box=None)
    for one in found:
        table.add_row(one.subject, f"[{_COLOURS[one.grade]}]{one.grade.value}[/]", escape(one.text))
        if one.do:
            table.add_row("", "", f"[dim]-> {escape(one.do)}[/]")
    console = Console()
    (console if console.is_terminal else Console(width=110)).print(table)
