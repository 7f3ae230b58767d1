"""`j10ce scenario`: run, validate, schema."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from adapters.documents import Problem
from adapters.kubernetes.credentials import CredentialsError
from adapters.output import Output, OutputOption
from lab import binaries as lab_binaries
from lab import karpenter
from lab.binaries import Binaries, BinariesError
from lab.cluster import LabError
from lab.node_programs import NodeProgramsError
from lab.progress import build_progress
from lab.scenario import source, table
from lab.scenario.models import Run, Scenario
from lab.scenario.progress import LiveProgress
from lab.scenario.results import ScenarioResult, without
from lab.scenario.runner import run_scenario
from lab.scenario.targets import Keeper, Target, TargetError, lab_target, own_target

app = typer.Typer(
    no_args_is_help=True, help="Scenarios: a cluster, what happens in it, and what is expected."
)

_BAD_INPUT = 2
_WIDTH = 120


Files = Annotated[list[Path], typer.Argument(help="Scenario files.", metavar="FILE...", show_default=False)]


@app.command()
def run(
    files: Files,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Run in this KWOK cluster of yours, beside an extender that is configured there. "
            "Default: a fresh lab cluster for each run.",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
    keeper: Annotated[
        Keeper, typer.Option(help="What makes kube-scheduler respect the holds.", case_sensitive=False)
    ] = Keeper.EXTENDER,
    keep: Annotated[bool, typer.Option(help="Leave the lab clusters running afterwards.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run scenarios. Ends with 1 when an expectation is not met, with 2 on bad input."""
    if kubeconfig is not None and keep:
        _fail("--keep has no meaning with --kubeconfig: that cluster is yours")
    if kubeconfig is not None and keeper is not Keeper.EXTENDER:
        _fail(
            "--keeper has no meaning with --kubeconfig: what keeps holds in that cluster is yours to set up"
        )
    scenarios = _load(files)
    console = _console(stderr=output is Output.JSON)
    results = []
    try:
        binaries = None if kubeconfig else _binaries()
        if binaries is not None and any(one.cluster.autoscaler for _, one in scenarios):
            _build_autoscaler()
        for file, scenario in scenarios:
            done = _run_one(scenario, file, binaries, kubeconfig, keeper, keep=keep, console=console)
            results.append(done)
            if output is Output.TABLE:
                table.show(results[-1], console)
    except (TargetError, LabError, BinariesError, NodeProgramsError, CredentialsError) as error:
        _fail(str(error))
    if output is Output.JSON:
        sys.stdout.write(json.dumps([result.to_json() for result in results], indent=2) + "\n")
    elif len(results) > 1:
        _summary(results, console)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


@app.command()
def validate(files: Files) -> None:
    """Check scenario files; each error names file, line, field and value."""
    for file, scenario in _load(files):
        sys.stdout.write(f"{file}: {scenario.name}: ok\n")


@app.command()
def schema() -> None:
    """Print the JSON schema of scenario files, for editors."""
    sys.stdout.write(source.schema())


def _run_one(
    scenario: Scenario,
    file: Path,
    binaries: Binaries | None,
    kubeconfig: Path | None,
    keeper: Keeper,
    *,
    keep: bool,
    console: Console,
) -> ScenarioResult:
    def targets(one: Run) -> AbstractAsyncContextManager[Target]:
        if binaries is None:
            return own_target(scenario, one, kubeconfig)
        return lab_target(scenario, one, file, binaries, keeper=keeper, keep=keep)

    difference = scenario.with_placeholders if keeper is Keeper.PLACEHOLDERS else None
    if difference is not None and not difference.runs:
        console.print(f"{scenario.name}: not with placeholders: {difference.says}", highlight=False)
        return ScenarioResult(scenario.name, scenario.description, str(file), (), ())
    progress = LiveProgress(console)
    try:
        result = asyncio.run(run_scenario(scenario, file, targets, progress))
    finally:
        progress.close()
    return result if difference is None else without(result, difference)


def _load(files: list[Path]) -> list[tuple[Path, Scenario]]:
    """All files, or all their errors."""
    loaded: list[tuple[Path, Scenario]] = []
    problems: list[Problem] = []
    for file in files:
        try:
            loaded.append((file, source.load(file)))
        except source.ScenarioError as error:
            problems += error.problems
    if problems:
        _fail("\n".join(str(problem) for problem in problems))
    return loaded


def _console(*, stderr: bool) -> Console:
    """Where there is no terminal to ask, wide enough for the tables."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_WIDTH)


def _binaries() -> Binaries:
    with build_progress() as report:
        return lab_binaries.provide(os.environ, report=report)


def _build_autoscaler() -> None:
    with build_progress(introduction=karpenter.INTRODUCTION) as report:
        karpenter.programs(os.environ, report)


def _summary(results: list[ScenarioResult], console: Console) -> None:
    failed = [result.name for result in results if not result.passed]
    text = f"FAILED: {', '.join(failed)}" if failed else f"all {len(results)} scenarios passed"
    console.print(text, style="bold red" if failed else "bold green", highlight=False)


def _fail(message: str) -> None:
    sys.stderr.write(f"error: {message}\n" if "\n" not in message else f"{message}\n")
    raise typer.Exit(_BAD_INPUT)
