"""`python -m simulation`: play seeds, replay and shorten histories, show what the simulation finds."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from qos.cluster.objects import Keeper
from simulation.generator import history
from simulation.history import History, load
from simulation.load.play import play as load_play
from simulation.load.play import summary
from simulation.mutations import MUTATIONS, caught
from simulation.placeholder_mutations import OF_PLACEHOLDERS
from simulation.play import play
from simulation.run import Result, run_seeds, watched
from simulation.shrink import same_failure, shrunk

app = typer.Typer(add_completion=False, rich_markup_mode="rich")


@app.callback()
def simulation(
    context: typer.Context,
    keeper: Annotated[
        Keeper, typer.Option(case_sensitive=False, help="Who keeps holds in seeds.")
    ] = Keeper.EXTENDER,
) -> None:
    """The control plane in virtual time, driven by seeds."""
    context.obj = keeper.value


@app.command()
def seeds(
    context: typer.Context,
    count: Annotated[int, typer.Argument(help="How many seeds.")] = 1000,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    processes: Annotated[int, typer.Option(help="0: one a processor.")] = 0,
    keep_going: Annotated[bool, typer.Option(help="Count all failures; shorten none.")] = False,
    save: Annotated[Path | None, typer.Option(help="Where to write the shortened history.")] = None,
) -> None:
    """Play seeds; the first failure is shortened, printed, and ends with 1."""
    began, done, failures = time.monotonic(), 0, list[Result]()
    changes = binds = 0
    for result in watched(run_seeds(range(first, first + count), processes, context.obj), _progress):
        done, changes, binds = done + 1, changes + result.changes, binds + result.binds
        if result.rule:
            failures.append(result)
            typer.echo(f"seed {result.seed}: {result.text}")
            if not keep_going:
                break
    seconds = time.monotonic() - began
    typer.echo(f"{done} seeds, {done / seconds:.1f} a second: {changes} changes, {binds} binds")
    typer.echo(f"{len(failures)} failed")
    if not failures:
        return
    if keep_going:
        for rule, number in Counter(one.rule for one in failures).most_common():
            typer.echo(f"{number:6}  {rule}")
    else:
        _show(_shortened(history(failures[0].seed, keeper=context.obj)), save)
    raise typer.Exit(1)


@app.command()
def replay(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="A seed, or a saved history's file.")],
    shorten: Annotated[bool, typer.Option(help="Make it as short as it still fails.")] = False,
    save: Annotated[Path | None, typer.Option(help="Where to write it.")] = None,
) -> None:
    """Play one history and tell its story; ends with 1 when something is broken."""
    one = history(int(what), keeper=context.obj) if what.isdecimal() else load(Path(what))
    _show(_shortened(one) if shorten else one, save)


@app.command()
def mutations(
    context: typer.Context,
    most: Annotated[int, typer.Option(help="The most seeds to try on each.")] = 500,
    about: Annotated[str, typer.Option(help="Only those whose words contain this.")] = "",
) -> None:
    """Plant mistakes, one at a time, and say how many seeds find each; ends with 1 when one is not found."""
    missed = 0
    planted = OF_PLACEHOLDERS if context.obj == Keeper.PLACEHOLDERS.value else MUTATIONS
    for mutation in (one for one in planted if about in one.about):
        count, rule = caught(mutation, most)
        missed += not count
        typer.echo(f"{count or f'> {most}':>6}  {mutation.about}  {f'({rule})' if rule else ''}")
    if missed:
        raise typer.Exit(1)


@app.command()
def rescheduling(
    count: Annotated[int, typer.Argument(help="How many histories.")] = 10_000,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
) -> None:
    """Play histories of load-aware rescheduling, and say when it ended; ends with 1 when a rule is broken."""
    results = []
    for seed in range(first, first + count):
        results.append(load_play(seed))
        if results[-1].broken:
            typer.echo(f"seed {seed}: {results[-1].broken}")
        if len(results) % 500 == 0:
            typer.echo(f"{len(results)} histories", err=True)
    typer.echo(summary(results))
    if any(one.broken for one in results):
        raise typer.Exit(1)


def _progress(done: int, seconds: float, failed: int) -> None:
    typer.echo(f"{done} seeds, {done / seconds:.1f} a second, {failed} failed", err=True)


def _shortened(one: History) -> History:
    def tell(steps: int) -> None:
        typer.echo(f"{steps} steps left", err=True)

    return shrunk(one, same_failure(one), tell)


def _show(one: History, save: Path | None) -> None:
    outcome = play(one, story=True)
    typer.echo(one.text())
    for line in outcome.story:
        typer.echo(line)
    for broken in outcome.broken:
        typer.echo(f"BROKEN {broken}")
    if save is not None:
        one.save(save)
        typer.echo(f"saved as {save}")
    if outcome.broken:
        raise typer.Exit(1)
