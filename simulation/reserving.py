"""Reservations drawn into a history: they, the pods that may use them, and what disturbs their watch and
writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

from simulation.history import Step

RESERVED = 0.15
"""Of so many histories Reservations come, are used and go beside everything else."""
KINDS = ("x", "y")
"""Of pods, by the label `use` and by controllers' names."""
_NAMES = ("r0", "r1", "r2", "r3")
_MOST = 6
"""Pods that are there at once; before others come, the oldest end."""
_TAINT = {"key": "kept", "value": "", "effect": "NoSchedule"}

What = tuple[str, tuple[Any, ...]]


class Reserving:
    """One history's Reservations in the making, by a chance of their own."""

    def __init__(self, seed: int, apps: Sequence[str]) -> None:
        self._random = Random(f"koordinator {seed}")  # noqa: S311 - chance, not secrecy
        self.drawn = self._random.random() < RESERVED
        self._apps = apps
        self._users: list[str] = []
        self._numbers = 0

    def woven(self, steps: Iterable[Step]) -> Iterator[Step]:
        """The steps, and others between them. No clock jumps: ends are by the extender's."""
        random, begun = self._random, False
        for step in steps:
            if step[1] == "jump":
                continue
            yield step
            begun = begun or step[0] > 0
            if begun and random.random() < 0.35:
                for number, (name, args) in enumerate(self._some()):
                    pause = random.choice((0.0, 0.0, 0.05, 0.4)) if number == 0 else 0.0
                    yield pause, name, args
                    if name == "reservation" and random.random() < 0.6:
                        yield 1.5, "nothing", ()

    def _some(self) -> list[What]:
        random = self._random
        draws = (self._reservation, self._user, self._end, self._change, self._disturb)
        (draw,) = random.choices(draws, (4, 8, 3, 2, 3))
        return draw()

    def _reservation(self) -> list[What]:
        random = self._random
        spec: dict[str, Any] = {
            "cpu": random.choice((500, 1000, 1000, 2000)),
            "memory": random.choice((0, 64, 64, 256)),
            "owners": [self._owner() for _ in range(random.choice((1, 1, 2)))],
            "allocateOnce": random.random() < 0.5,
        }
        if random.random() < 0.5:
            spec["allocatePolicy"] = random.choice(("Aligned", "Restricted", "Restricted"))
        if random.random() < 0.5:
            spec["priority"] = random.choice((0, 10, 100))
        if random.random() < 0.3:
            spec["order"] = random.choice((1, 2))
        if random.random() < 0.15:
            spec["taints"] = [_TAINT]
        ends = random.random()
        if ends < 0.15:
            spec["ttl"] = random.choice(("4s", "12s", "0s"))
        elif ends < 0.3:
            spec["endsIn"] = random.choice((3, 10))
        return [("reservation", (random.choice(_NAMES), spec))]

    def _owner(self) -> dict[str, Any]:
        random, kind = self._random, self._random.choice(KINDS)
        draw = random.random()
        if draw < 0.5:
            return {"labelSelector": {"matchLabels": {"use": kind}}}
        if draw < 0.7:
            return {"controller": {"kind": "Job", "name": kind}}
        if draw < 0.8:
            return {"object": {"name": f"u{self._numbers + random.randint(1, 3)}", "namespace": "default"}}
        if draw < 0.95:
            return {"labelSelector": {"matchLabels": {"app": random.choice(self._apps)}}}
        return {"object": {"namespace": "default"}}

    def _user(self) -> list[What]:
        random = self._random
        self._numbers += 1
        name = f"u{self._numbers}"
        steps: list[What] = []
        if len(self._users) >= _MOST:
            steps.append(("delete", (self._users.pop(0), 0.0)))
        self._users.append(name)
        how: dict[str, Any] = {"use": random.choice(KINDS)}
        if random.random() < 0.3:
            how["controller"] = random.choice(KINDS)
        if random.random() < 0.15:
            how["app"] = random.choice(self._apps)
        draw = random.random()
        if draw < 0.35:
            how["affinity"] = random.choice(({}, {}, {"name": random.choice(_NAMES)}))
            if random.random() < 0.3:
                how["affinity"] = {**how["affinity"], "tolerations": [{"operator": "Exists"}]}
        elif draw < 0.4:
            how["ignored"] = True
        cpu, memory = random.choice((250, 500, 500, 1000, 1500)), random.choice((16, 64, 64))
        return [*steps, ("user", (name, cpu, memory, random.choice((0, 0, 10)), how))]

    def _end(self) -> list[What]:
        random = self._random
        if not self._users:
            return self._user()
        name = self._users.pop(random.randrange(len(self._users)))
        return (
            [("finish", (name,))]
            if random.random() < 0.3
            else [("delete", (name, random.choice((0.0, 1.0))))]
        )

    def _change(self) -> list[What]:
        random, name = self._random, self._random.choice(_NAMES)
        if random.random() < 0.5:
            return [("reservation-gone", (name,))]
        return [("reservation-closed", (name, random.random() < 0.6))]

    def _disturb(self) -> list[What]:
        random, draw = self._random, self._random.random()
        if draw < 0.2:
            return [("standby", (random.choice((0.5, 3.0)),))]
        if draw < 0.4:
            kind = random.choice(("conflict", "error", "unanswered", "late", "slow"))
            return [("fault", ("extender", random.choice(("patch", "patch", "bind")), kind, 2.0))]
        if draw < 0.6:
            return [("restart-extender", (random.choice((0.0, 0.1, 1.0)),))]
        if draw < 0.8:
            return [("stall", ("extender", "reservations", random.choice((0.3, 2.0))))]
        return [(random.choice(("cut", "expire", "repeat")), ("extender", "reservations"))]
