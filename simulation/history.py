"""A history: the world it plays in and what happens, step by step; data to be saved, replayed, shortened."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Step: TypeAlias = tuple[float, str, tuple[Any, ...]]
"""Seconds after the step before, what happens (a function of simulation.actions), and its arguments."""


@dataclass(frozen=True, slots=True)
class World:
    """What stays as it is in one history. Times in seconds.

    `mode`: Guard or Strict; `binds`: bind goes through the extender; `cap`: percent of allocatable that may
    be held. `latency`: the longest usual way to the API server and back; `lag`: of every watch. `sample`: how
    many fitting nodes kube-scheduler shows, `named`: how many of them filter answers at the most, 0 for all.
    `spread`: it scores by what is left, else at random.
    `eager`: it tries pods that back off when no other waits (SchedulerPopFromBackoffQ).
    `status`: the policies' status is written. `crowd`: how many ordinary pods wait for a node at most, 0 for
    any number; of more, the least important that waits longest is deleted. `prebind`: the share of pods for
    which kube-scheduler waits, up to 2 s, before it binds them (for volumes, say); `dying`: the longest time
    that pods take to end when nothing else is said. `settle`, `warmup`, `reference_grace`, `not_ready`: the
    extender's settings; `grace`: the checker's. `skew`: workloads' pods, and policies' slots, are spread over
    three zones with this maxSkew; 0: they are not. `reservations`: Koordinator's are held, and their status
    is written. `keeper`: Extender or Placeholders. `refuses`: the longest time until kubelet has said that it
    refuses a pod; 0: kubelets take any.
    """

    seed: int
    mode: str = "Strict"
    binds: bool = True
    cap: int = 100
    latency: float = 0.01
    lag: float = 0.005
    sample: int = 0
    spread: bool = True
    eager: bool = True
    named: int = 0
    status: bool = False
    crowd: int = 0
    prebind: float = 0.05
    dying: float = 2.5
    settle: float = 600.0
    warmup: float = 2.0
    grace: float = 1.0
    reference_grace: float = 1.0
    not_ready: float = 3.0
    skew: int = 0
    reservations: bool = False
    keeper: str = "Extender"
    refuses: float = 0.0

    @property
    def standing(self) -> bool:
        """Whether placeholders keep holds, and kube-scheduler asks nobody."""
        return self.keeper == "Placeholders"


@dataclass(frozen=True, slots=True)
class History:
    """The world, and its steps in order."""

    world: World
    steps: tuple[Step, ...] = ()
    about: str = field(default="", compare=False)

    def text(self) -> str:
        """As JSON, a step a line."""
        steps = ",\n".join(f"  {json.dumps([seconds, name, *args])}" for seconds, name, args in self.steps)
        head = json.dumps({"about": self.about, "world": asdict(self.world)}, indent=1)[:-2]
        return f'{head},\n "steps": [\n{steps}\n]}}\n'

    def save(self, path: Path) -> None:
        """Write it."""
        path.write_text(self.text(), encoding="utf-8")


def load(path: Path) -> History:
    """A saved history."""
    data = json.loads(path.read_text(encoding="utf-8"))
    steps = tuple((step[0], step[1], tuple(_frozen(arg) for arg in step[2:])) for step in data["steps"])
    return History(World(**data["world"]), steps, data.get("about", ""))


def _frozen(arg: Any) -> Any:
    return tuple(_frozen(one) for one in arg) if isinstance(arg, list) else arg
