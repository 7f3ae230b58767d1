"""A systemd node of two CPUs with pods as people have them, of which docs/plan.md tells what each receives.

tests/qos/plan computes it by the kernel's rules, tests/cluster measures it on a real kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED

CPUS: Final = 2000
RESERVED: Final = 500
"""Millicores that kubelet is told to leave to the system: the rest is allocatable."""
BESIDE: Final = ("system.slice", "user.slice")
"""What is busy at the root, beside all pods."""
FLOOR: Final = 700
FLOORED: Final = "checkout"


class Kind(NamedTuple):
    """Pods that are alike: what each requests in millicores; a Guaranteed one is limited to that, too."""

    name: str
    qos: str
    cpu: int
    namespace: str = "default"
    count: int = 1

    @property
    def names(self) -> list[str]:
        """One a pod."""
        return [self.name] if self.count == 1 else [f"{self.name}-{one}" for one in range(self.count)]


KINDS: Final = (
    Kind(FLOORED, BURSTABLE, FLOOR),
    Kind("payments", GUARANTEED, 400),
    Kind("dns", BURSTABLE, 30, "kube-system"),
    Kind("cni", BURSTABLE, 30, "kube-system"),
    Kind("small", BURSTABLE, 10, count=14),
    Kind("batch", BEST_EFFORT, 0),
)
COLUMNS: Final = ("kubelet alone", "`--node-shares Allocatable`", "and the floor")
_HEAD: Final = f"| | requests | {' | '.join(COLUMNS)} |"
_PAGE: Final = Path(__file__).parents[2] / "docs" / "plan.md"

Received: TypeAlias = Mapping[str, Sequence[int]]
"""Millicores in each column, by kind or by what is beside all pods."""


def table(received: Received) -> str:
    """As docs/plan.md has it."""
    lines = [_HEAD, "|" + "---|" * (2 + len(COLUMNS))]
    requests = {one.name: f"{one.cpu}m" for one in KINDS}
    for name, got in received.items():
        figures = " | ".join(f"{one}m" for one in got)
        lines.append(f"| {_label(name)} | {requests.get(name, '-')} | {figures} |")
    return "\n".join(lines)


def on_the_page() -> dict[str, list[int]]:
    """What docs/plan.md says that each receives."""
    shown = _PAGE.read_text().partition(_HEAD)[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines()]
    figures = {first: [int(one.removesuffix("m")) for one in more] for first, _, *more in cells[2:]}
    return {name: figures[_label(name)] for name in (*(one.name for one in KINDS), *BESIDE)}


def _label(name: str) -> str:
    kinds = {one.name: one for one in KINDS}
    if name not in kinds:
        return f"`{name}`"
    one = kinds[name]
    many = f"each of {one.count} {name} ones" if one.count > 1 else name
    return f"{many}, a floor of {FLOOR}m" if name == FLOORED else many
