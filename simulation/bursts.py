"""Histories for the keeper Placeholders: owners come in bursts, crash and are rolled out on nodes that are
full of others, of which more wait in most of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from simulation.history import History, Step, World
from simulation.objects import PRIORITIES

_KINDS = {
    "owners": 8,
    "crash": 6,
    "rollout": 2,
    "flood": 3,
    "room": 4,
    "wide": 4,
    "node": 2,
    "policy": 2,
    "important": 1,
    "nothing": 2,
}
_DISTURBANCES: tuple[dict[str, int], ...] = (
    {},
    {"service": 4},
    {"scheduler": 2},
    {"fault": 8, "answer": 2},
    {"watch": 4},
    {"answer": 6},
    {"service": 2, "scheduler": 1, "fault": 3, "watch": 2, "taken": 2, "answer": 2},
)
_MOVED, _ANEW = 0.3, 0.2
"""In so many histories a pod comes last that nobody who waits is before; all placeholders are made anew."""
_FAULTS = ("lost", "unanswered", "late", "error", "conflict", "forbidden", "slow")

_What = tuple[str, tuple[Any, ...]]


class Bursts:
    """One history in the making."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(f"bursts {seed}")  # noqa: S311 - chance, not secrecy
        self._seed = seed
        self._nodes = [f"n{number}" for number in range(random.randint(3, 6))]
        self._cpu = random.choice((4, 4, 8))
        self._class = {app: random.choice(("middle", "high", "high", "low")) for app in ("a", "b")}
        self._apps = random.choice(("a", "ab"))
        self._slots = {app: random.randint(1, len(self._nodes) * self._cpu // 3) for app in self._apps}
        self._tolerated = 0
        self._floods = 0
        self._filled: list[str] = []

    def made(self) -> History:
        """World and steps."""
        random = self._random
        world = World(
            seed=self._seed,
            mode="Guard",
            latency=random.choice((0.005, 0.01, 0.05, 0.3)),
            lag=random.choice((0.002, 0.02, 0.1)),
            spread=random.random() < 0.6,
            eager=random.random() < 0.4,
            crowd=24,
            settle=10.0,
            keeper="Placeholders",
        )
        return History(world, tuple(self._steps()), f"seed {self._seed}: bursts of owners, with placeholders")

    def _steps(self) -> Iterator[Step]:
        random = self._random
        yield from ((0.0, *self._came(name)) for name in self._nodes)
        yield from ((0.0, *self._policy(app)) for app in self._apps)
        yield from (
            (0.2, *self._app(app, random.choice((0, 0, self._slots[app] // 2)))) for app in self._apps
        )
        yield 1.5, *self._flooded(len(self._nodes) * self._cpu * random.choice((1, 2, 2)) // 2 + 8)
        yield 3.0, "nothing", ()
        weights = {**_KINDS, **random.choice(_DISTURBANCES)}
        pace = random.choice((0.3, 1.0, 3.0))
        for kind in random.choices(list(weights), list(weights.values()), k=random.randint(10, 35)):
            what: Callable[[], list[_What]] = getattr(self, f"_draw_{kind}")
            for number, step in enumerate(what()):
                yield 0.0 if number else round(random.expovariate(1 / pace), 3), *step
        last = random.random()
        if last < _MOVED:
            yield from self._with_a_little_room()
        elif last < _MOVED + _ANEW:
            yield from self._made_anew()

    def _with_a_little_room(self) -> Iterator[Step]:
        """A pod comes last for which there is room once holds have moved, perhaps."""
        yield from self._full()
        yield 4.0, "a-little-room", ()
        yield 0.0, "pod", ("last", self._random.choice((2000, 2000, 3000)), 64, 0)

    def _made_anew(self) -> Iterator[Step]:
        """Where there is no room beside those that stand."""
        yield from self._full()
        yield 4.0, "nothing", ()
        self._tolerated += 1
        yield from ((0.0, *self._policy(app)) for app in self._apps)

    def _full(self) -> Iterator[Step]:
        yield from ((0.0, *self._app(app, self._slots[app] // 2)) for app in self._apps)
        yield 1.0, *self._flooded(len(self._nodes) * self._cpu)

    def _some(self) -> str:
        return self._random.choice(self._apps)

    def _came(self, name: str) -> _What:
        return "node", (name, self._cpu * 1000, 65536, 110)

    def _policy(self, app: str) -> _What:
        floor = {"resources": {"cpu": "1"}}
        slots = {"count": self._slots[app]}
        spec = {"floor": floor, "slots": slots, "priorityClassName": self._class[app]}
        if self._tolerated:
            taint = {"key": f"taint-{self._tolerated}", "operator": "Exists"}
            spec["placement"] = {"tolerations": [taint]}
        return "policy", (app, spec)

    def _app(self, app: str, replicas: int) -> _What:
        return "app", (app, replicas, 1000, 64, PRIORITIES[self._class[app]])

    def _flooded(self, count: int) -> _What:
        self._floods += 1
        name = f"f{self._floods}"
        self._filled += [f"{name}-{number}" for number in range(count)]
        return "flood", (name, count, 1000, 64, 0)

    def _draw_owners(self) -> list[_What]:
        app = self._some()
        most = self._slots[app]
        return [self._app(app, self._random.choice((most, most, most // 2, most + 1, 0)))]

    def _draw_crash(self) -> list[_What]:
        count = self._random.choice((1, 1, 3))
        return [("crash", (self._some(), self._random.randint(0, 9), 0.0)) for _ in range(count)]

    def _draw_rollout(self) -> list[_What]:
        """All of a workload's pods end at once, and are made anew."""
        app = self._some()
        return [("crash", (app, 0, self._random.choice((0.0, 1.0)))) for _ in range(self._slots[app])]

    def _draw_flood(self) -> list[_What]:
        return [self._flooded(self._random.randint(3, 12))]

    def _draw_room(self) -> list[_What]:
        """Pods end, perhaps as many as make room where no hold moves."""
        random, there = self._random, self._filled
        gone = [there.pop(random.randrange(len(there))) for _ in range(min(len(there), random.randint(1, 6)))]
        return [("delete", (name, random.choice((0.0, 0.0, 1.0)))) for name in gone]

    def _draw_wide(self) -> list[_What]:
        """A pod for which there is room once holds have moved, perhaps."""
        self._floods += 1
        cpu = self._random.choice((1500, 2000, 2000, 3000))
        return [*self._draw_room(), ("pod", (f"w{self._floods}", cpu, 64, self._random.choice((0, 0, 10))))]

    def _draw_node(self) -> list[_What]:
        random, name = self._random, self._random.choice(self._nodes)
        gone: list[_What] = [("node-gone", (name,)), ("node-ready", (name, False)), ("cordon", (name, True))]
        back: list[_What] = [self._came(name), ("node-ready", (name, True)), ("cordon", (name, False))]
        return back if random.random() < 0.6 else [random.choice(gone)]

    def _draw_policy(self) -> list[_What]:
        app, random = self._some(), self._random
        if random.random() < 0.2:
            return [("policy-gone", (app,))]
        if random.random() < 0.3:
            self._tolerated += 1  # its placeholders are made anew
        else:
            self._slots[app] = max(1, self._slots[app] + random.choice((-2, -1, 1, 2)))
        return [self._policy(app)]

    def _draw_important(self) -> list[_What]:
        self._floods += 1
        return [("pod", (f"p{self._floods}", 1000, 64, self._random.choice((10, 100))))]

    def _draw_nothing(self) -> list[_What]:
        return [("nothing", ()), ("nothing", ())]

    # --- disturbance ---

    def _draw_service(self) -> list[_What]:
        random = self._random
        if random.random() < 0.3:
            return [("hang", (round(random.uniform(0.1, 2.0), 2),))]
        return [("restart-extender", (random.choice((0.0, 0.1, 1.0, 12.0)),))]

    def _draw_scheduler(self) -> list[_What]:
        return [("restart-scheduler", (self._random.choice((0.0, 0.2, 1.0)),))]

    def _draw_fault(self) -> list[_What]:
        random = self._random
        if random.random() < 0.15:
            return [("slow", ("extender", random.choice((0.01, 0.5, 1.5))))]
        verb, kind = random.choice(("create", "delete", "patch", "patch")), random.choice(_FAULTS)
        seconds = random.uniform(0.5, 15.0) if kind == "late" else random.uniform(0.1, 5.0)
        return [("fault", ("extender", verb, kind, round(seconds, 2)))]

    def _draw_answer(self) -> list[_What]:
        """Answers that come after the watch has shown what was done."""
        random = self._random
        verb = random.choice(("create", "create", "delete", "patch"))
        seconds = round(random.uniform(0.2, 3.0), 2)
        return [("fault", ("extender", verb, "overtaken", seconds)) for _ in range(random.randint(1, 3))]

    def _draw_watch(self) -> list[_What]:
        random = self._random
        who, plural = (
            random.choice(("extender", "extender", "scheduler")),
            random.choice(("pods", "pods", "nodes")),
        )
        if random.random() < 0.4:
            return [("stall", (who, plural, round(random.uniform(0.1, 3.0), 2)))]
        if random.random() < 0.4:
            return [("lag", (who, plural, random.choice((0.0, 0.05, 0.5))))]
        return [(random.choice(("cut", "expire", "repeat")), (who, plural))]

    def _draw_taken(self) -> list[_What]:
        return [("placeholder-gone", (self._random.randint(0, 20),))]
