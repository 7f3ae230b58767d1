"""Whether checks are true of an observation, and what was seen instead. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.checker import Kind, Verdict
from lab.scenario.checks import (
    Check,
    ConditionCheck,
    FloorsCheck,
    PodsCheck,
    PolicyCheck,
    ReservationCheck,
    UnplacedCheck,
)
from lab.scenario.fields import Number, Range, admits
from lab.scenario.observation import Observation
from lab.scenario.utilization import utilization


@dataclass(frozen=True, slots=True)
class Facts:
    """What checks are judged by, beside the observation.

    `refused`: workload -> plans by which waiting pods of it could have been let in. `verdict`: the
    checker's, at the end. `promised`: policy -> slots that the checker judges binds by now.
    """

    observation: Observation
    refused: Mapping[str, Sequence[str]] = field(default_factory=dict)
    promised: Mapping[str, int] = field(default_factory=dict)
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a check is true, and what was seen."""

    true: bool
    saw: str


def judge(check: Check, facts: Facts) -> Answer:
    """Judge one check."""
    answers = list(_answers(check, facts))
    wrong = [answer.saw for answer in answers if not answer.true]
    return Answer(not wrong, "; ".join(wrong or [answer.saw for answer in answers]))


def in_words(check: Check) -> str:
    """A check as people read it."""
    if check.says:
        return check.says
    if check.pods:
        return f"pods of {check.pods.workload}: {_wanted(check.pods, 'workload')}"
    if check.policy:
        return f"policy {check.policy.name}: {_wanted(check.policy, 'name')}"
    if check.reservation:
        return f"reservation {check.reservation.name}: {_wanted(check.reservation, 'name')}"
    if check.event:
        count = check.event.count
        return f"event {check.event.reason}: {'at least 1' if count is None else count}"
    if check.floors:
        return f"floors: {_wanted(check.floors, '')}"
    if check.refused_although_they_fit is not None:
        names = ", ".join(check.refused_although_they_fit)
        return f"no pod of {names} is refused that eight moves would let in"
    if check.utilization:
        return f"{check.utilization.resource} in use, percent of what could be: {check.utilization.percent}"
    return f"evictions: {check.evictions}"


def _wanted(part: PodsCheck | PolicyCheck | ReservationCheck | FloorsCheck, leave_out: str) -> str:
    fields = part.model_dump(by_alias=True, exclude_none=True, mode="python")
    return ", ".join(f"{name} {_value(value)}" for name, value in fields.items() if name != leave_out)


def _value(value: Any) -> str:
    if isinstance(value, dict) and value.keys() <= {"atLeast", "atMost"}:
        return str(Range.model_validate(value))
    if isinstance(value, list):
        return ", ".join(_value(one) for one in value)
    if isinstance(value, dict):
        return " ".join(str(one) for one in value.values())
    return str(value)


def _answers(check: Check, facts: Facts) -> Iterator[Answer]:
    seen = facts.observation
    if check.pods:
        yield from _pods(check.pods, seen)
    if check.policy:
        yield from _policy(check.policy, facts)
    if check.reservation:
        yield from _reservation(check.reservation, seen.reservations.get(check.reservation.name, {}))
    if check.event:
        event = check.event
        about = event.about or ""
        same = [e for e in seen.events.values() if e.reason == event.reason and e.about.startswith(about)]
        wanted = Range(at_least=1) if event.count is None else event.count
        yield _number("events", wanted, sum(e.count for e in same))
    if check.evictions is not None:
        yield _number("evictions", check.evictions, seen.evictions())
    if check.utilization:
        percent = int(100 * utilization(seen, check.utilization.resource))
        yield _number("percent", check.utilization.percent, percent)
    for name in check.refused_although_they_fit or ():
        plans = facts.refused.get(name, ())
        yield Answer(not plans, "; ".join(plans[:3]) if plans else f"none of {name}")
    if check.floors:
        yield from _floors(check.floors, facts.verdict)


def _reservation(check: ReservationCheck, status: Mapping[str, Any]) -> Iterator[Answer]:
    if check.phase is not None:
        phase = status.get("phase") or "Pending"
        yield Answer(phase == check.phase, f"phase {phase}")
    if check.owners is not None:
        yield _number("owners", check.owners, len(status.get("currentOwners") or ()))
    if check.allocated is not None:
        allocated = status.get("allocated") or {}
        yield Answer(allocated == check.allocated, f"allocated {allocated}")


def _pods(check: PodsCheck, seen: Observation) -> Iterator[Answer]:
    records = seen.workload(check.workload)
    counts = {
        "created": len(records),
        "bound": sum(r.runs for r in records),
        "pending": sum(r.waits for r in records),
        "ever_bound": sum(r.bound is not None for r in records),
    }
    for name, count in counts.items():
        wanted = getattr(check, name)
        if wanted is not None:
            yield _number(name.replace("_", " "), wanted, count)
    if check.bound_within is not None:
        slowest = max((r.took for r in records if r.took is not None), default=0.0)
        yield Answer(slowest <= check.bound_within, f"slowest bind {slowest:.2f} s")
    if check.on_nodes is not None:
        astray = [r.pod for r in records if r.runs and not r.pod.node_name.startswith(check.on_nodes)]
        text = f"{astray[0].key} is on {astray[0].node_name}" if astray else f"all on {check.on_nodes}"
        yield Answer(not astray, text)


def _policy(check: PolicyCheck, facts: Facts) -> Iterator[Answer]:
    seen = facts.observation
    if check.promised is not None:
        yield _number("promised", check.promised, facts.promised.get(f"{seen.namespace}/{check.name}", 0))
        if check.model_fields_set == {
            "name",
            "promised",
        }:  # asks nothing of the status, which no extender may write
            return
    status = seen.policies.get(check.name, {})
    slots = status.get("slots")
    if slots is None:
        yield Answer(False, f"policy {check.name} has no status")
        return
    for name in ("desired", "spare", "filled", "held", "unplaced", "consumed"):
        wanted = getattr(check, name)
        if wanted is not None:
            yield _number(name, wanted, slots.get(name, 0))
    if check.survives is not None:
        yield _number("survives", check.survives, status.get("survivesNodeFailures", 0))
    if check.outliving is not None:
        yield _number("outliving", check.outliving, len(status.get("outliving") or []))
    for entry in check.why or ():
        yield _unplaced(entry, status.get("unplaced") or [])
    for condition in check.conditions or ():
        yield _condition(condition, status.get("conditions") or [])
    yield from _where(check, seen)


def _where(check: PolicyCheck, seen: Observation) -> Iterator[Answer]:
    nodes = sorted(seen.held_on(check.name))
    if check.held_on is not None:
        astray = [node for node in nodes if not node.startswith(check.held_on)]
        yield Answer(not astray, f"held on {', '.join(nodes) or 'no node'}")
    if check.held_where_remembered is not None:
        before = seen.remembered.get(check.name, set())
        same = set(nodes) == before
        yield Answer(
            same == check.held_where_remembered,
            f"held on {', '.join(nodes)}, before on {', '.join(sorted(before))}",
        )
    if check.not_held_on is not None:
        inside = [node for node in nodes if node.startswith(check.not_held_on)]
        yield Answer(not inside, f"held on {', '.join(nodes) or 'no node'}")


def _unplaced(check: UnplacedCheck, entries: Sequence[Mapping[str, Any]]) -> Answer:
    for entry in entries:
        same = entry["reason"] == check.reason
        same &= check.count is None or admits(check.count, entry["count"])
        same &= check.resource in (None, entry.get("resource"))
        same &= check.missing in (None, entry.get("missing"))
        if same:
            return Answer(True, f"unplaced {_value(entry)}")
    return Answer(False, f"unplaced {'; '.join(_value(entry) for entry in entries) or 'none'}")


def _condition(check: ConditionCheck, conditions: Sequence[Mapping[str, Any]]) -> Answer:
    found = next((c for c in conditions if c["type"] == check.type), None)
    if found is None:
        return Answer(False, f"there is no condition {check.type}")
    same = found["status"] == check.status and check.reason in (None, found["reason"])
    same &= check.message is None or check.message in found["message"]
    return Answer(same, f"{check.type} is {found['status']}, {found['reason']}: {found['message']}")


def _floors(check: FloorsCheck, verdict: Verdict | None) -> Iterator[Answer]:
    if verdict is None:
        yield Answer(False, "the checker has no verdict before the end")
        return
    counts = {
        "lapsed": verdict.count(Kind.LAPSED),
        "bypassed": verdict.bypasses,
        "outranked": verdict.count(Kind.OUTRANKED),
    }
    for name, count in counts.items():
        wanted = getattr(check, name)
        if wanted is not None:
            yield _number(name, wanted, count)


def _number(name: str, wanted: Number, value: int) -> Answer:
    return Answer(admits(wanted, value), f"{name} {value}")
