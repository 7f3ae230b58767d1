"""The command line: j10ce-manager."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import uvloop

from adapters.configuration import ConfigError, require_files
from adapters.serving.process import (
    ContextFlag,
    KubeconfigFlag,
    LogLevelFlag,
    connect,
    set_up_logs,
    until_signalled,
)
from manager.config import ManagerConfig, load
from manager.program import Program

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def serve(
    config: Annotated[
        Path | None, typer.Option(help="Configuration file, YAML; see docs/manager.md. Flags override it.")
    ] = None,
    kubeconfig: KubeconfigFlag = None,
    context: ContextFlag = None,
    address: Annotated[
        str | None, typer.Option(help="HOST:PORT of health and metrics. Default: 127.0.0.1:10265.")
    ] = None,
    identity: Annotated[
        str | None, typer.Option(help="Holder of the Lease. Default: the host's name.")
    ] = None,
    lease: Annotated[
        str | None, typer.Option(help="NAMESPACE/NAME of the Lease. Default: j10ce-system/j10ce-manager.")
    ] = None,
    quotas: Annotated[
        bool | None,
        typer.Option(
            "--quotas/--no-quotas",
            envvar="J10CE_QUOTAS",
            help="Refuse ElasticQuotas that break a rule. Default: as configured.",
        ),
    ] = None,
    log_level: LogLevelFlag = "info",
) -> None:
    """Look after what is not on kube-scheduler's path: say which pods request less than their floor."""
    given = {
        "kubeconfig": kubeconfig,
        "context": context,
        "address": address,
        "identity": identity,
        "lease": lease,
        "quotas": quotas,
    }
    try:
        set_up_logs(log_level)
        settings = load(config, {name: value for name, value in given.items() if value is not None}).named()
        require_files({"kubeconfig": settings.kubeconfig})
        uvloop.run(run(settings))
    except (ConfigError, OSError) as error:
        typer.echo(f"j10ce-manager: {error}", err=True)
        raise typer.Exit(1) from error


async def run(settings: ManagerConfig) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = until_signalled()
    api = connect(settings.kubeconfig, settings.context)
    try:
        await Program(settings, api).run(stop)
    finally:
        await api.aclose()


def main() -> None:
    """Console script."""
    app()
