"""`j10ce dev`: for developers of j10ce-qos, in a clone of the repository."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cli import cache

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
app.add_typer(cache.app, name="cache")


@app.callback()
def dev() -> None:
    """For developers of j10ce-qos: generated files, and the hook's files by hand."""


@app.command()
def generate(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 when a file is not as generated.")
    ] = False,
    root: Annotated[Path, typer.Option(help="The repository.", file_okay=False, exists=True)] = Path(),
) -> None:
    """Write the files made from code: resource definitions and their page, schemas, kernel files, NRI."""
    stale = out_of_date(generated(), root)
    for name, wanted in stale.items():
        path = root / name
        if check:
            sys.stderr.writelines(_difference(path, wanted))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted)
            sys.stderr.write(f"wrote {name}\n")
    if check and stale:
        sys.stderr.write(f"not as generated: {', '.join(stale)}; run `j10ce dev generate`\n")
        raise typer.Exit(1)


@app.command()
def bpf(
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Compile nothing; exit with 1 when a source or object is not as recorded."
        ),
    ] = False,
    root: Annotated[Path, typer.Option(help="The repository.", file_okay=False, exists=True)] = Path(),
) -> None:
    """Compile the agent's eBPF programs, and record what from. Needs clang, llvm and libbpf's headers."""
    from agent.network.bpf import objects
    from cli.bpf import write

    folder = root / "agent/network/bpf"
    if not check:
        write(folder)
        return
    stale = objects.differing(objects.record(folder), objects.sums(folder))
    if stale:
        sys.stderr.write(f"not as {objects.RECORD} says: {', '.join(stale)}; run `make bpf`\n")
        raise typer.Exit(1)


def generated() -> dict[str, str]:
    """Path in the repository to content, for every generated file."""
    files: dict[str, str] = {}
    for folder, source in _sources().items():
        files |= {f"{folder}/{name}": content for name, content in source().items()}
    return files


def out_of_date(files: Mapping[str, str], root: Path) -> dict[str, str]:
    """The files that are missing under root, or differ."""
    return {name: wanted for name, wanted in files.items() if _text(root / name) != wanted}


def _sources() -> dict[str, Callable[[], Mapping[str, str]]]:
    import manifests
    from cli.chart import templates
    from cli.protobuf import FOLDERS, messages
    from lab.scenario.source import schema  # imported on use: pydantic models take a while
    from qos.api.reference import page
    from qos.api.schema import files
    from qos.plan.kernel_table import allowed, table

    return {
        "manifests/crds": files,
        templates.CHART: lambda: templates.files(Path(manifests.__file__).parent, files()),
        "kwok-scenarios": lambda: {"scenario.schema.json": schema()},
        "kernel": lambda: {"allowed.py": allowed()},
        "docs": lambda: {"api.md": page(), "kernel-table.md": table()},
        **{folder: partial(messages, folder) for folder in FOLDERS},
    }


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def _difference(path: Path, wanted: str) -> list[str]:
    have = (_text(path) or "").splitlines(keepends=True)
    return list(difflib.unified_diff(have, wanted.splitlines(keepends=True), str(path), "generated", n=1))[
        :40
    ]
