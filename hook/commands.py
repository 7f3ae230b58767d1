"""`j10ce hook`: install, uninstall, status, check."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from adapters.output import Output, OutputOption
from hook.installation import check as checking
from hook.installation import containerd, entry, record, runtimes
from hook.installation import install as installing
from hook.installation import status as reporting
from hook.installation import uninstall as removing
from hook.installation.check import Attempt
from hook.installation.install import Installed, Wishes
from hook.installation.places import HOOKS_DIRS, Places
from hook.installation.status import Severity

app = typer.Typer(no_args_is_help=True, help="The OCI hook of this node: floors before a container's start.")


class When(Enum):
    """For which containers the runtime starts the hook."""

    ALWAYS = "always"
    FLOOR = "floor"


class Stage(Enum):
    """When in a container's life."""

    CREATE_RUNTIME = entry.CREATE_RUNTIME
    PRESTART = entry.PRESTART


RootOption = Annotated[
    Path, typer.Option("--root", help="Put everything below this folder instead of /, to try it out.")
]

_COLOURS = {Severity.GOOD: "green", Severity.NOTE: "yellow", Severity.WRONG: "red"}


@app.command()
def install(
    root: RootOption = Path("/"),
    hooks_dir: Annotated[
        str, typer.Option("--hooks-dir", help="The runtimes' hooks.d folder.", show_default=HOOKS_DIRS[0])
    ] = "",
    python: Annotated[
        Path | None,
        typer.Option("--python", help="Interpreter of the hook; by default the system's own python3."),
    ] = None,
    when: Annotated[
        When | None,
        typer.Option(
            "--when",
            help="For all containers, or those with annotation j10ce.io/floor.",
            show_default="always",
        ),
    ] = None,
    stage: Annotated[
        Stage | None, typer.Option("--stage", help="By default createRuntime, or prestart for old runtimes.")
    ] = None,
    with_containerd: Annotated[
        bool | None,
        typer.Option(
            "--containerd/--no-containerd",
            help="Write a base runtime spec for containerd, too; or remove it.",
            show_default="no",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Install the hook on this node; again to upgrade or repair. Running containers are not touched.

    What is not chosen stays as it was at the last installation. Exit code 1 when it cannot be installed: what
    was installed before then still works.
    """
    places = _places(root, hooks_dir)
    wishes = Wishes(python, when.value if when else "", stage.value if stage else "", with_containerd)
    done = installing.install(places, wishes)
    snippet = _snippet(places) if done.record.containerd else ""
    if output is Output.JSON:
        _print_json(_document(done) | {"containerdConfiguration": snippet})
        return
    _show_installed(done)
    if snippet:
        typer.echo(f"\nPut this into containerd's configuration, then restart containerd:\n\n{snippet}")


@app.command()
def uninstall(root: RootOption = Path("/"), output: OutputOption = Output.TABLE) -> None:
    """Take the hook off this node; files of others stay, and running containers keep what they were given.

    Exit code 1 when containerd's configuration still needs a file, or a hook does not end.
    """
    done = removing.uninstall(_places(root))
    if output is Output.JSON:
        _print_json({"removed": list(done.paths), "kept": list(done.kept)})
        return
    for path in done.paths:
        typer.echo(f"removed {path}")
    for reason in done.kept:
        typer.echo(f"kept {reason}")
    if not done.paths:
        typer.echo("The hook is not installed here: nothing to remove.")


@app.command()
def status(root: RootOption = Path("/"), output: OutputOption = Output.TABLE) -> None:
    """Say what is installed and whether it is sound. Exit code 1 when something is wrong or missing."""
    facts = reporting.status(_places(root))
    if output is Output.JSON:
        _print_json(
            {
                "facts": [
                    {"name": fact.name, "level": fact.severity.value, "text": fact.text} for fact in facts
                ]
            }
        )
    else:
        table = Table("what", "", "found", box=None)
        for fact in facts:
            table.add_row(fact.name, f"[{_COLOURS[fact.severity]}]{fact.severity.value}[/]", fact.text)
        Console().print(table)
    raise typer.Exit(int(any(fact.severity is Severity.WRONG for fact in facts)))


@app.command()
def check(
    root: RootOption = Path("/"),
    runtime: Annotated[str, typer.Option("--runtime", help="Only this one: podman, runc or crun.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Start real containers with the installed hook and a test floor, and say what works.

    Exit code 1 when a runtime that starts containers here did not have the floor in place, or none does.
    """
    if runtime and runtime not in checking.ABLE:
        raise typer.BadParameter(f"is one of {', '.join(checking.ABLE)}", param_hint="--runtime")
    places = _places(root)
    progress = Console(stderr=True)
    with progress.status("looking for runtimes") as line:
        attempts = checking.check(places, runtime or None, line.update)
    if output is Output.JSON:
        found = [asdict(attempt) | {"works": attempt.works} for attempt in attempts]
        _print_json({"runtimes": found, "notTried": checking.untried()})
    else:
        for attempt in attempts:
            typer.echo(sentence(attempt))
        for name, why in checking.untried().items():
            typer.echo(f"{name}: NOT TRIED: {why}")
    able = [attempt for attempt in attempts if attempt.able]
    raise typer.Exit(int(not able or not all(attempt.works for attempt in able)))


def sentence(attempt: Attempt) -> str:
    """What became of one runtime, in plain words."""
    if not attempt.able:
        return f"{attempt.runtime}: starts no container here, with or without the hook: {attempt.why}"
    if attempt.works:
        values = ", ".join(f"{reading.file} was {reading.found}" for reading in attempt.readings)
        return f"{attempt.runtime}: works: {values} before the container's first instruction"
    wrong = ", ".join(
        f"{reading.file} was {reading.found or 'not there'} instead of {reading.wanted}"
        for reading in attempt.readings
        if not reading.right
    )
    return f"{attempt.runtime}: DOES NOT WORK: {'; '.join(part for part in (wrong, attempt.why) if part)}"


def _places(root: Path, hooks_dir: str = "") -> Places:
    """hooks_dir: "" for the one that is installed into, or podman's default."""
    if hooks_dir and not hooks_dir.startswith("/"):
        raise typer.BadParameter(f"{hooks_dir} is no absolute path", param_hint="--hooks-dir")
    places = Places(root.resolve())
    known = None if hooks_dir else record.read(places)
    return Places(places.root, hooks_dir or (known.hooks_dir if known else places.hooks_dir))


def _snippet(places: Places) -> str:
    found = runtimes.find(("containerd",))
    return containerd.snippet(places, found[0].version if found else ())


def _document(done: Installed) -> dict[str, Any]:
    return {
        "tree": done.record.tree,
        "python": done.record.python,
        "stage": done.record.stage,
        "definition": str(done.definition),
        "runtimes": [str(runtime) for runtime in done.runtimes],
        "changed": list(done.changed),
        "removed": list(done.removed),
    }


def _show_installed(done: Installed) -> None:
    typer.echo(f"code         {done.record.tree}")
    typer.echo(f"interpreter  {done.record.python}")
    typer.echo(f"stage        {done.record.stage}")
    for path in done.changed:
        typer.echo(f"wrote        {path}")
    for path in done.removed:
        typer.echo(f"removed      {path}")
    if not done.changed:
        typer.echo("Nothing was changed: this version is installed already.")
    typer.echo(f"runtimes     {', '.join(map(str, done.runtimes)) or 'none found'}")
    typer.echo("\nNext: j10ce hook check")


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2))
