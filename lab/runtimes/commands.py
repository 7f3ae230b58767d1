"""`j10ce lab runtimes`: the container runtimes that tests start containers with."""

from __future__ import annotations

import json
import os

import typer

from adapters.output import Output, OutputOption
from lab import node_programs
from lab.progress import build_progress
from lab.runtimes import programs

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.command()
def packages() -> None:
    """Print the commands this needs with their Debian packages, as .ci/packages takes them."""
    typer.echo(" ".join(f"{name}={package}" for name, package in programs.PACKAGES.items()))


@app.command()
def prepare(
    output: OutputOption = Output.TABLE,
) -> None:
    """Find containerd, crictl and kubelet, or build them (about 3 minutes); say where they are."""
    with build_progress(introduction=node_programs.INTRODUCTION) as report:
        sets = (node_programs.RUNTIME, node_programs.KUBELET)
        folders = dict.fromkeys(node_programs.provide(os.environ, report, one) for one in sets)
    versions = {str(folder): node_programs.versions(folder) for folder in folders}
    if output is Output.JSON:
        document = [{"folder": one, "versions": found} for one, found in versions.items()]
        typer.echo(json.dumps(document, indent=2))
    else:
        for one, found in versions.items():
            typer.echo(f"{one}: {', '.join(f'{name} {version}' for name, version in found.items())}")
