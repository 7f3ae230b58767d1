"""The tables at the end: what happened in each run, and whether it was as expected."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.scenario.results import Outcome, RunResult, ScenarioResult, WorkloadResult
from qos import quantity

_SHOWN_RESOURCES = ("cpu", "memory")


def show(result: ScenarioResult, console: Console) -> None:
    """Print a scenario's result."""
    console.print()
    console.print(f"[bold]{result.name}[/bold]: {escape(result.description.strip())}", highlight=False)
    console.print(happened(result))
    console.print(expected(result))
    verdict = "[bold green]passed[/]" if result.passed else "[bold red]FAILED[/]"
    seconds = sum(run.seconds for run in result.runs)
    console.print(f"{verdict}: {result.name}, {seconds:.1f} s\n", highlight=False)


def happened(result: ScenarioResult) -> Table:
    """One column a run; a row for each workload, policy and sum."""
    table = Table(title="what happened", title_justify="left")
    table.add_column("")
    for run in result.runs:
        table.add_column(escape(run.says or run.name), max_width=44)
    for name in dict.fromkeys(w.name for run in result.runs for w in run.workloads):
        table.add_row(f"pods of {name}", *(_workload(run, name) for run in result.runs))
    for name in dict.fromkeys(n for run in result.runs for n in run.policies):
        table.add_row(f"slots of {name}", *(_policy(run, name) for run in result.runs))
    for resource in _SHOWN_RESOURCES:
        amounts = (quantity.render(resource, run.bound_requests.get(resource, 0)) for run in result.runs)
        table.add_row(f"{resource} given to pods", *amounts)
    if any(run.evictions for run in result.runs):
        table.add_row("evictions", *(str(run.evictions) for run in result.runs))
    table.add_row("floors broken, nodes over-committed", *(_violations(run) for run in result.runs))
    return table


def _workload(run: RunResult, name: str) -> str:
    found = next((w for w in run.workloads if w.name == name), None)
    return _account(found) if found else "none"


def _account(workload: WorkloadResult) -> str:
    if workload.bound == workload.created:
        text = f"all {workload.created} run"
    elif workload.bound == 0 and workload.waiting == workload.created:
        return f"none runs, all {workload.created} wait"
    else:
        gone = workload.created - workload.bound - workload.waiting
        text = f"{workload.bound} of {workload.created} run, {workload.waiting} wait"
        text += f", {gone} ended" if gone else ""
    if workload.slowest_seconds is not None:
        text += f"; bound after {workload.median_seconds:.2f} s, the slowest {workload.slowest_seconds:.2f} s"
    return text


def _policy(run: RunResult, name: str) -> str:
    slots = run.policies.get(name)
    if not slots:
        return "no policy"
    return ", ".join(f"{slots.get(part, 0)} {part}" for part in ("desired", "filled", "held", "unplaced"))


def _violations(run: RunResult) -> str:
    if run.verdict is None:
        return "not judged"
    notes = [f for f in run.verdict.findings if not f.violation]
    text = str(len(run.verdict.violations)) if run.verdict.violations else "none"
    kinds = dict.fromkeys(f.kind.value for f in notes)
    counted = ", ".join(f"{kind} {sum(f.kind.value == kind for f in notes)}" for kind in kinds)
    return f"{text} ({counted})" if counted else text


def expected(result: ScenarioResult) -> Table:
    """A row for each expectation."""
    table = Table(title="what was expected", title_justify="left")
    table.add_column("")
    if len(result.runs) > 1:
        table.add_column("run")
    table.add_column("expected")
    table.add_column("seen", max_width=70)
    for run in result.runs:
        for outcome in run.outcomes:
            _row(table, outcome, [escape(run.says or run.name)] if len(result.runs) > 1 else [])
    for outcome in result.comparisons:
        _row(table, outcome, ["all"] if len(result.runs) > 1 else [])
    return table


def _row(table: Table, outcome: Outcome, run: list[str]) -> None:
    mark = "[green]ok[/]" if outcome.met else "[yellow]--[/]" if outcome.differs else "[red]NO[/]"
    says = f"{outcome.says} (need not be met: {outcome.differs})" if outcome.differs else outcome.says
    table.add_row(mark, *run, escape(says), escape(outcome.saw))
