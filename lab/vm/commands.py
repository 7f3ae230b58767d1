"""`j10ce lab vm`: the machine with a real cgroup v2 kernel in which tests/kernel runs."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from adapters.output import Output, OutputOption
from lab.progress import build_progress
from lab.vm import image, payload, recipe
from lab.vm.machine import Machine, Patience
from lab.vm.recipe import Image, System

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.command()
def packages() -> None:
    """Print the commands this needs with their Debian packages, as .ci/packages takes them."""
    typer.echo(" ".join(f"{name}={package}" for name, package in recipe.COMMANDS.items()))


@app.command()
def prepare(
    output: OutputOption = Output.TABLE,
) -> None:
    """Find the image, or make it from Debian's packages (about a minute, as root); say where it is."""
    found = _image()
    if output is Output.JSON:
        names = {"kernel": found.kernel, "initramfs": found.initramfs, "root": found.root}
        typer.echo(json.dumps({name: str(path) for name, path in names.items()}, indent=2))
    else:
        typer.echo(str(found.folder))


@app.command()
def run(
    script: Annotated[str, typer.Argument(help="Shell script for the guest; the repository is its folder.")],
    seconds: Annotated[float, typer.Option(help="The most it may take.", min=1.0)] = 300.0,
    systemd: Annotated[bool, typer.Option("--systemd", help="With systemd as process 1.")] = False,
) -> None:
    """Boot the machine, run a script in it, print what it printed; the exit status is the script's."""
    found = _image()
    with tempfile.TemporaryDirectory(prefix="j10ce-vm-") as name:
        folder = Path(name)
        payload.write(folder / "payload.tar", {payload.COMMAND: script}, {})
        patience, system = Patience(seconds, seconds), System.SYSTEMD if systemd else System.PLAIN
        with Machine(found, folder, folder / "payload.tar", patience, system=system) as machine:
            results = machine.results()
        sys.stdout.write((results / "output").read_text(errors="replace"))
        status = int((results / "status").read_text())
    raise typer.Exit(status)


def _image() -> Image:
    with build_progress(introduction=image.INTRODUCTION, unit="steps") as report:
        return image.provide(os.environ, report)
