"""The command line: j10ce-extender."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
from extender.config import ExtenderConfig, load
from extender.ingest import IN_PROTOBUF
from extender.program import Program
from ledger.decisions import Mode

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def serve(
    config: Annotated[
        Path | None, typer.Option(help="Configuration file, YAML; see docs/extender.md. Flags override it.")
    ] = None,
    kubeconfig: KubeconfigFlag = None,
    context: ContextFlag = None,
    mode: Annotated[
        Mode | None, typer.Option(help="How far it goes. Default: Guard.", case_sensitive=False)
    ] = None,
    verbs_address: Annotated[
        str | None, typer.Option(help="HOST:PORT that kube-scheduler calls. Default: 127.0.0.1:10260.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of health, metrics, holds. Default: 127.0.0.1:10261."),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option(help="Name on bound pods and on the Lease. Default: host and verbs' port."),
    ] = None,
    lease: Annotated[
        str | None, typer.Option(help="NAMESPACE/NAME of the Lease. Default: kube-system/j10ce-extender.")
    ] = None,
    cap_percent: Annotated[
        int | None, typer.Option(help="The most of allocatable that holds may take, in percent. Default: 40.")
    ] = None,
    no_bind: Annotated[
        bool, typer.Option("--no-bind", help="kube-scheduler does not bind through this extender.")
    ] = False,
    tls_cert_file: Annotated[Path | None, typer.Option(help="Certificate of the verbs' port, PEM.")] = None,
    tls_key_file: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    client_ca_file: Annotated[
        Path | None, typer.Option(help="Authority whose client certificates may call the verbs, PEM.")
    ] = None,
    log_level: LogLevelFlag = "info",
) -> None:
    """Keep floors: answer kube-scheduler's filter, prioritize, preempt and bind."""
    given: dict[str, Any] = {
        "kubeconfig": kubeconfig,
        "context": context,
        "mode": mode,
        "verbsAddress": verbs_address,
        "address": address,
        "identity": identity,
        "lease": lease,
        "capPercent": cap_percent,
        "binds": False if no_bind else None,
    }
    try:
        set_up_logs(log_level)
        given["tls"] = tls_from(tls_cert_file, tls_key_file, client_ca_file)
        settings = load(config, {name: value for name, value in given.items() if value is not None}).named()
        check_files(settings)
        failed = uvloop.run(run(settings))
    except (ConfigError, OSError) as error:
        typer.echo(f"j10ce-extender: {error}", err=True)
        raise typer.Exit(1) from error
    if failed:
        raise typer.Exit(1)


def tls_from(cert: Path | None, key: Path | None, client_ca: Path | None) -> dict[str, Path | None] | None:
    """The tls section from its three flags; ConfigError when only some are given."""
    files = {"certFile": cert, "keyFile": key, "clientCaFile": client_ca}
    missing = [name for name, path in files.items() if path is None]
    if len(missing) == len(files):
        return None
    if missing:
        raise ConfigError(f"command line: tls: {', '.join(missing)} missing: all three are needed")
    return files


def check_files(settings: ExtenderConfig) -> None:
    """ConfigError for a file that cannot be read, before anything is started."""
    files = {"kubeconfig": settings.kubeconfig}
    if settings.tls is not None:
        tls = settings.tls
        files["tls.certFile"] = tls.cert_file
        files["tls.keyFile"] = tls.key_file
        files["tls.clientCaFile"] = tls.client_ca_file
    require_files(files)


async def run(settings: ExtenderConfig) -> bool:
    """Serve until SIGTERM or SIGINT; True when it had to stop by itself."""
    stop = until_signalled()
    api = connect(settings.kubeconfig, settings.context, IN_PROTOBUF)
    try:
        program = Program(settings, api)
        await program.run(stop)
        return program.failed
    finally:
        await api.aclose()


def main() -> None:
    """Console script."""
    app()
