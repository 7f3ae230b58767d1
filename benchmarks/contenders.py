"""Who is compared in a flood (control_plane.py), and what is made of their rounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.figures import measured

NONE, GO, PYTHON, OURS = "no extender", "Go that accepts all", "Python that accepts all", "ours"
PLACEHOLDERS = "placeholders"
WATCHER = "a watch alone"
"""No floors, and somebody reads what the API server says of all pods."""
ALL_SCORED, FEW_SCORED = 0, 5
"""percentageOfNodesToScore: upstream's own rule, 420 of 1,000 nodes; and its least, 100 nodes."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Who is asked in a round, and for what; `nodes`: on how many nodes its placeholders stand."""

    kind: str
    binds: bool
    percent: int = FEW_SCORED
    nodes: int = 0

    @property
    def asked(self) -> bool:
        """Whether kube-scheduler asks it."""
        return self.kind not in (NONE, WATCHER, PLACEHOLDERS)

    @property
    def verbs(self) -> str:
        """What kube-scheduler asks for."""
        return "filter and bind" if self.binds else "filter only"

    @property
    def scheduler(self) -> str:
        """The component's name."""
        return f"scheduler-{self._who}-{self.percent}"

    @property
    def extender(self) -> str:
        """Likewise, one for all percentages; empty where there is none."""
        return "" if self.kind in (NONE, WATCHER) else f"extender-{self._who}"

    @property
    def _who(self) -> str:
        return f"{self.kind.lower().replace(' ', '-')}-{'bind' if self.binds else 'filter'}"

    @property
    def flood(self) -> str:
        """What its figures are called."""
        if self.kind == WATCHER:
            return f"flood, {self.kind}"
        if self.nodes:
            return f"flood, {self.kind} on {self.nodes:,} nodes"
        verbs = f", {self.verbs}" if self.extender else ""
        return f"flood, {self.kind}{verbs}, score {self.percent}"


CONTENDERS: Final = (
    # Beside each other what is compared: the machine is faster in one minute than in the next.
    *(Contender(PLACEHOLDERS, False, ALL_SCORED, nodes) for nodes in (32, 1_000)),
    Contender(NONE, False, ALL_SCORED),
    Contender(WATCHER, False, ALL_SCORED),
    Contender(NONE, False, FEW_SCORED),
    *(Contender(GO, True, percent) for percent in (ALL_SCORED, FEW_SCORED)),
    *(Contender(OURS, True, percent) for percent in (ALL_SCORED, FEW_SCORED)),
    Contender(PYTHON, True),
    Contender(GO, False),
    Contender(OURS, False),
)
OWNING: Final = (
    Contender(NONE, False, ALL_SCORED),
    Contender(OURS, True, ALL_SCORED),
    Contender(PLACEHOLDERS, False, ALL_SCORED, 32),
)
"""Who binds an ordinary pod, and an owner with either keeper, in an idle cluster."""


@dataclass(slots=True)
class Found:
    """What was measured of one contender, a value a round: pods a second, CPU seconds a pod by process, the
    seconds from creation to bind; `failed`: why rounds have none.
    """

    rates: list[float] = field(default_factory=list)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The median."""
        return statistics.median(self.rates)

    @property
    def wait(self) -> float:
        """Likewise."""
        return statistics.median(self.waits)

    def cpu_of(self, process: str) -> float:
        """Seconds a pod, likewise."""
        return statistics.median(self.cpu[process])


def figures(found: Mapping[Contender, Found]) -> dict[str, Any]:
    """Pods a second, beside others; milliseconds of CPU a pod, by process; how soon pods are bound."""
    lines: dict[str, Any] = {}
    raced = {contender: one for contender, one in found.items() if one.rates}
    for contender, one in raced.items():
        lines[f"{contender.flood}, pods/s"] = measured(one.rate, "pods/s")
        others = [Contender(NONE, False, contender.percent)]
        if contender.kind == OURS:
            others += [Contender(kind, contender.binds, contender.percent) for kind in (GO, PYTHON)]
        if contender.kind == PLACEHOLDERS:
            others.append(Contender(WATCHER, False, contender.percent))
        for other in others if contender.kind != NONE else ():
            if other in raced:
                name = _ratio(contender, other)
                lines[name] = measured(one.rate, "pods/s", raced[other].rate, other.kind)
        for name in one.cpu:
            lines[f"{contender.flood}, CPU of {name}"] = measured(1_000 * one.cpu_of(name), "ms a pod")
    ordinary, *owners = (found.get(one, Found()) for one in OWNING)
    for keeper, owner in zip(("", ", placeholders"), owners, strict=True):
        if ordinary.waits and owner.waits:
            beside = "an ordinary pod without us"
            waits = measured(1_000 * owner.wait, "ms", 1_000 * ordinary.wait, beside)
            lines[f"owner, creation to bind, p50{keeper} (x ordinary without us)"] = waits
    return lines


def _ratio(contender: Contender, other: Contender) -> str:
    if contender.kind in (PLACEHOLDERS, WATCHER):
        return f"{contender.flood} (x {'no floors' if other.kind == NONE else other.kind})"
    if contender.kind == OURS and other.kind != NONE:
        return f"flood, {contender.verbs} (x {other.kind}), score {contender.percent}"
    return f"{contender.flood} (x {other.kind})"
