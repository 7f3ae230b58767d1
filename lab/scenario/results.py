"""What a scenario came to: plain records, printed as a table or as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from lab.checker import Finding, Verdict
from lab.scenario.models import Comparison, Difference
from lab.scenario.observation import Observation, PodRecord
from qos import quantity


@dataclass(frozen=True, slots=True)
class Outcome:
    """One expectation: whether it was met, and what was seen. `differs`: why it need not be met."""

    says: str
    met: bool
    saw: str
    differs: str = ""

    @property
    def passed(self) -> bool:
        """Whether the scenario may pass."""
        return self.met or bool(self.differs)


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """What became of a workload's pods. Times in seconds from creation to bind; None when none was bound."""

    name: str
    created: int
    bound: int
    waiting: int
    ever_bound: int
    median_seconds: float | None
    slowest_seconds: float | None


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run. `bound_requests`: the sum of the requests of all pods bound at its end, in canonical units."""

    name: str
    says: str
    seconds: float
    workloads: tuple[WorkloadResult, ...]
    policies: Mapping[str, Mapping[str, int]]
    bound_requests: Mapping[str, int]
    evictions: int
    verdict: Verdict | None
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Whether every expectation was met that must be."""
        return all(outcome.passed for outcome in self.outcomes)


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """All runs of a scenario, and how they compare."""

    name: str
    description: str
    file: str
    runs: tuple[RunResult, ...]
    comparisons: tuple[Outcome, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every expectation of every run was met, and every comparison."""
        return all(run.passed for run in self.runs) and all(outcome.passed for outcome in self.comparisons)

    def to_json(self) -> dict[str, Any]:
        """For -o json."""
        return {
            "name": self.name,
            "file": self.file,
            "passed": self.passed,
            "runs": [_run_json(run) for run in self.runs],
            "comparisons": [asdict(outcome) for outcome in self.comparisons],
        }


def _run_json(run: RunResult) -> dict[str, Any]:
    verdict = run.verdict
    return {
        "name": run.name,
        "passed": run.passed,
        "seconds": round(run.seconds, 3),
        "workloads": [asdict(workload) for workload in run.workloads],
        "policies": {name: dict(slots) for name, slots in run.policies.items()},
        "boundRequests": {name: quantity.render(name, amount) for name, amount in run.bound_requests.items()},
        "evictions": run.evictions,
        "checker": None if verdict is None else _verdict_json(verdict),
        "expectations": [asdict(outcome) for outcome in run.outcomes],
    }


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "bindsJudged": verdict.binds,
        "bypasses": verdict.bypasses,
        "undecided": verdict.undecided,
        "violations": [_finding_json(finding) for finding in verdict.violations],
        "notes": [_finding_json(finding) for finding in verdict.findings if not finding.violation],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    return asdict(finding) | {"kind": finding.kind.value}


def workload_result(name: str, records: Sequence[PodRecord]) -> WorkloadResult:
    """The account of one workload."""
    times = [record.took for record in records if record.took is not None]
    return WorkloadResult(
        name=name,
        created=len(records),
        bound=sum(record.runs for record in records),
        waiting=sum(record.waits for record in records),
        ever_bound=sum(record.bound is not None for record in records),
        median_seconds=median(times) if times else None,
        slowest_seconds=max(times, default=None),
    )


def bound_requests(observation: Observation) -> dict[str, int]:
    """The sum of the requests of all pods that are bound."""
    total: dict[str, int] = {}
    for record in observation.pods.values():
        for name, amount in record.pod.requests.items() if record.runs else ():
            total[name] = total.get(name, 0) + amount
    return total


def without(result: ScenarioResult, difference: Difference) -> ScenarioResult:
    """The result, where some expectations need not be met."""

    def judged(one: Outcome) -> Outcome:
        excused = not one.met and one.says.startswith(tuple(difference.unmet))
        return replace(one, differs=difference.says) if excused else one

    runs = [replace(run, outcomes=tuple(map(judged, run.outcomes))) for run in result.runs]
    return replace(result, runs=tuple(runs), comparisons=tuple(map(judged, result.comparisons)))


def always(verdict: Verdict, undecided_at_most_percent: float) -> list[Outcome]:
    """What every run must show: no violation, and few undecided binds."""
    found = [
        f"{finding.policy}: {finding.message}" if finding.policy else finding.message
        for finding in verdict.violations
    ]
    saw = "; ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    percent = 100 * verdict.undecided / (verdict.binds or 1)
    return [
        Outcome(
            "no floor broken, no node over-committed, at any moment",
            not found,
            saw or f"{verdict.binds} binds judged",
        ),
        Outcome(
            f"the checker can decide: at most {undecided_at_most_percent:g} % of the binds are undecided",
            percent <= undecided_at_most_percent,
            f"{verdict.undecided} of {verdict.binds} binds: {percent:.1f} %",
        ),
    ]


def compare(wanted: Comparison, runs: Sequence[RunResult]) -> Outcome:
    """Whether the runs bound the same amount, within the percentage."""
    chosen = [run for run in runs if run.name in wanted.runs]
    worst, parts = 0.0, []
    for resource in wanted.resources:
        amounts = [run.bound_requests.get(resource, 0) for run in chosen]
        percent = 100 * (max(amounts) - min(amounts)) / (max(amounts) or 1)
        worst = max(worst, percent)
        shown = ", ".join(
            f"{quantity.render(resource, a)} ({r.name})" for a, r in zip(amounts, chosen, strict=True)
        )
        parts.append(f"{resource} {shown}: {percent:.2f} %")
    says = (
        wanted.says or f"bound requests differ by at most {wanted.bound_requests_differ_at_most_percent:g} %"
    )
    return Outcome(says, worst <= wanted.bound_requests_differ_at_most_percent, "; ".join(parts))
