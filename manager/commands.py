"""The command line: j10ce-manager."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from adapters import logs
from adapters.configuration import ConfigError
from adapters.kubernetes.client import KubernetesAPI
from manager.config import ManagerConfig, load
from manager.program import Program

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def serve(
    config: Annotated[
        Path | None, typer.Option(help="Configuration file, YAML; see docs/manager.md. Flags override it.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the API server. Default: as the pod's service account.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="The kubeconfig's context. Default: the current one.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="HOST:PORT of health and metrics. Default: 127.0.0.1:10265.")
    ] = None,
    identity: Annotated[
        str | None, typer.Option(help="Holder of the Lease. Default: the host's name.")
    ] = None,
    lease: Annotated[
        str | None, typer.Option(help="NAMESPACE/NAME of the Lease. Default: j10ce-system/j10ce-manager.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Look after what is not on kube-scheduler's path: say which pods request less than their floor."""
    given = {
        "kubeconfig": kubeconfig,
        "context": context,
        "address": address,
        "identity": identity,
        "lease": lease,
    }
    try:
        set_up_logs(log_level)
        settings = load(config, {name: value for name, value in given.items() if value is not None}).named()
        if settings.kubeconfig is not None and not settings.kubeconfig.is_file():
            raise ConfigError(f"kubeconfig: {settings.kubeconfig} is not a file")
        uvloop.run(run(settings))
    except (ConfigError, OSError) as error:
        typer.echo(f"j10ce-manager: {error}", err=True)
        raise typer.Exit(1) from error


def set_up_logs(level: str) -> None:
    """key=value lines on stderr; uvicorn's own only from warnings on."""
    try:
        logs.set_up(level)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--log-level") from None
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


async def run(settings: ManagerConfig) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    api = (
        KubernetesAPI.in_cluster()
        if settings.kubeconfig is None
        else KubernetesAPI.from_kubeconfig(settings.kubeconfig, settings.context)
    )
    try:
        await Program(settings, api).run(stop)
    finally:
        await api.aclose()


def main() -> None:
    """Console script."""
    app()
