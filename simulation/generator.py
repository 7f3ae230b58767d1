"""Histories made from a seed: a world, a workload of some theme, and what disturbs it.

Only here are random numbers drawn in a row; what is made is data, and playing it draws by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from simulation.bursts import Bursts
from simulation.bypassing import with_bypassers
from simulation.history import History, Step, World
from simulation.objects import PRIORITIES
from simulation.reserving import Reserving
from simulation.with_placeholders import WithPlaceholders

EXTENDER = "Extender"
APPS = ("a", "b", "c")
CLASSES = tuple(PRIORITIES)
FAULTS = ("lost", "unanswered", "late", "late", "error", "conflict", "forbidden", "slow")
WATCHED = ("pods", "pods", "pods", "nodes", "minimalreservationpolicies", "priorityclasses", "daemonsets")

LOAD = 1.15
"""What ordinary pods may ask for together, as a part of the CPU there is; then the oldest end before others
come. A larger crowd would wait for ever, be tried again at each event, and find nothing more.
"""

LINKED = 0.3
"""Of so many histories some nodes publish the bandwidth of their link, and some floors name it."""

MORTAL = 0.15
"""Of so many histories some policies come to an end."""
BUDGETED = 0.3
"""Of so many histories that are not narrow, budgets come, change and go beside everything else."""
BUDGETS = {"all": {}, "gold": {"matchLabels": {"tier": "gold"}}, "rest": {}}
"""Their namespaceSelector, by name; `rest` is a default one."""

NAMED = 0.3
"""Of so many histories filter answers two or three nodes at the most."""
ZONED = 0.2
"""Of so many histories workloads' pods are spread over three zones."""

LASTING = 0.2
"""Of so many histories some policies' slots are used up by their first pods, or outlive them."""

RESTRICTED = 0.2
"""Of so many histories some policies have no pod for an owner that asks for more than a slot."""

What = tuple[str, tuple[Any, ...]]
"""A step without its time."""

THEMES: dict[str, dict[str, int]] = {
    "quiet": {"workload": 10, "policies": 2, "churn": 1},
    "flood": {"workload": 6, "flood": 4, "crash": 6, "policies": 1},
    "preemption": {"workload": 4, "flood": 2, "important": 6, "crash": 1, "policies": 1, "churn": 1},
    "churn": {"workload": 6, "churn": 6, "policies": 2, "crash": 2, "daemons": 1},
    "tenants": {"workload": 5, "policies": 8, "crash": 2, "important": 1},
    "bypass": {"workload": 5, "bypass": 4, "resize": 3, "crash": 2, "policies": 1},
    "mixed": {
        "workload": 8,
        "flood": 2,
        "crash": 3,
        "important": 2,
        "policies": 2,
        "churn": 2,
        "bypass": 1,
        "resize": 1,
        "daemons": 1,
    },
}


@dataclass(frozen=True, slots=True)
class Narrow:
    """A theme apart: pods of 1 CPU, owners among them, on nodes that are nearly full of them.

    `pace`: seconds between steps, on average; `small`: at most 4 nodes of at most 4 CPUs, full from the
    start, and slots for which there are no owners; `slow`: the longest time that requests take, by client;
    `world`: what else differs.
    """

    about: str
    weights: dict[str, int]
    pace: float = 1.0
    small: bool = True
    slow: dict[str, float] = field(default_factory=dict)
    world: dict[str, Any] = field(default_factory=dict)


NARROW = (
    Narrow(
        "slow binds",
        {"burst": 5, "room": 6, "crash": 8},
        small=False,
        slow={"extender": 12.0, "scheduler": 12.0},
        world={"mode": "Guard", "settle": 16.0},  # longer than any Binding takes, as in a cluster
    ),
    Narrow(
        "late binds",
        {"burst": 1, "room": 5, "one": 8, "count": 5, "crash": 2, "unanswered": 3},
        pace=0.3,
        world={"mode": "Strict", "binds": True, "prebind": 0.8, "grace": 0.3, "latency": 0.01, "lag": 0.005},
    ),
    Narrow(
        "victims that linger",
        {"room": 3, "one": 4, "preemptor": 4},
        pace=0.5,
        slow={"extender": 5.0},
        world={"mode": "Strict", "binds": True, "dying": 8.0, "latency": 0.01, "lag": 0.005},
    ),
    Narrow("lost nodes", {"burst": 2, "room": 3, "crash": 3, "lost": 6}),
)
"""Four histories in ten. Slow binds: what pods in flight may take is no room. Late binds: much happens
between kube-scheduler's choice and bind, which looks again; and Bindings land when nobody waits for them any
more. Victims that linger: a preemptor may be tried before they are gone, as pods beside them whose Binding
was given up may still land. Lost nodes: holds leave them.
"""
DISTURBANCES: tuple[dict[str, int], ...] = (
    {},
    {"watches": 3},
    {"faults": 4},
    {"restarts": 2},
    {"faults": 2, "watches": 2, "restarts": 1},
)


def history(seed: int, *, mode: str = "", binds: bool | None = None, keeper: str = EXTENDER) -> History:
    """The history of a seed; `mode` and `binds` where they are not to be drawn."""
    if keeper == EXTENDER:
        return Maker(seed, mode, binds).make()
    made = Bursts(seed).made() if seed % 2 else WithPlaceholders(Maker(seed, mode, binds).plain()).made()
    return with_bypassers(made)


class Maker:
    """One history in the making."""

    def __init__(self, seed: int, mode: str, binds: bool | None) -> None:
        self._random = random = Random(seed)  # noqa: S311 - chance, not secrecy
        self._theme = random.choice(sorted(THEMES))
        self._weights = {**THEMES[self._theme], **random.choice(DISTURBANCES)}
        self._nodes = [f"n{i}" for i in range(random.randint(3, 8))]
        self._cpu = random.choice((2000, 4000, 4000, 8000))
        self._pods: dict[str, int] = {}
        self._numbers = 0
        self._pace = random.choice((0.02, 0.1, 0.3))
        self._apart = Random(f"apart {seed}")  # noqa: S311
        self._links = Random(f"links {seed}")  # noqa: S311
        self._linked = self._links.random() < LINKED
        self._ends = Random(f"ends {seed}")  # noqa: S311
        self._mortal = self._ends.random() < MORTAL
        self._lives = Random(f"lives {seed}")  # noqa: S311
        self._lasting = self._lives.random() < LASTING
        self._fits = Random(f"fits {seed}")  # noqa: S311
        self._restricted = self._fits.random() < RESTRICTED
        self._budgets = Random(f"budgets {seed}")  # noqa: S311
        self._reserving = Reserving(seed, APPS)
        drawn = random.choice(("Guard", "Strict"))
        binding = random.random() < 0.75
        self._world = World(
            seed=seed,
            mode=mode or drawn,
            binds=binding if binds is None else binds,
            cap=random.choice((100, 100, 60)),
            latency=random.choice((0.01, 0.05, 0.3)),
            lag=random.choice((0.002, 0.02, 0.1)),
            spread=random.random() < 0.6,
            eager=random.random() < 0.4,
            status=random.random() < 0.15,
            settle=10.0,
            crowd=random.choice((4, 8, 12)),
        )

    def make(self) -> History:
        """World and steps."""
        one = self.plain()
        if not self._reserving.drawn:
            return one
        # Which Reservation a pod uses is said by its Binding, and who may use one by the status.
        world = replace(one.world, reservations=True, status=True, binds=True)
        return History(world, tuple(self._reserving.woven(one.steps)), f"{one.about}, with Reservations")

    def plain(self) -> History:
        """Without Reservations."""
        if self._apart.random() < 0.2:
            self._world = replace(self._world, sample=self._apart.choice((1, 2, 4)))
        if self._lasting:
            self._world = replace(self._world, status=True)
        zones = Random(f"zones {self._world.seed}")  # noqa: S311
        if zones.random() < ZONED:
            self._world = replace(self._world, skew=zones.choice((1, 1, 2)))
        named = Random(f"named {self._world.seed}")  # noqa: S311
        if named.random() < NAMED:
            self._world = replace(self._world, named=named.choice((2, 3)))
        if self._apart.random() < 0.4:
            return self._narrow(self._apart.choice(NARROW))
        steps = [self._at(0.0, self._node(name)) for name in self._nodes]
        for name in APPS[: self._random.randint(1, len(APPS))]:
            steps.append(self._at(0.0, ("policy", (name, self._spec()))))
            steps.append(self._at(0.3, self._app(name)))
        kinds = list(self._weights)
        weights = list(self._weights.values())
        for kind in self._random.choices(kinds, weights, k=self._random.randint(30, 90)):
            steps += self._apart_by(self._pause(), kind)
        if self._random.random() < 0.3:
            # What frees capacity and is no event to kube-scheduler, when no pod backs off any more.
            steps.append(self._at(15.0, ("nothing", ())))
            steps += [self._at(0.0, ("policy-gone", (name,))) for name in APPS]
        about = f"seed {self._world.seed}: {self._theme}"
        if self._budgets.random() < BUDGETED:
            about, steps = f"{about}, with budgets", [*self._with_budgets(steps)]
        return History(self._world, tuple(steps), about)

    def _with_budgets(self, steps: Iterable[Step]) -> Iterator[Step]:
        for step in steps:
            yield step
            if self._budgets.random() < 0.12:
                yield self._at(0.0, self._budget())

    def _narrow(self, theme: Narrow) -> History:
        """A history of this theme."""
        random = self._random
        self._world = replace(self._world, spread=True, cap=100, crowd=40, **theme.world)
        if theme.small:
            self._nodes, self._cpu = self._nodes[:4], min(self._cpu, 4000)
        steps = [self._at(0.0, ("node", (name, self._cpu, 8192, 110))) for name in self._nodes]
        steps += [self._at(0.0, one) for one in self._count()]
        replicas = random.randint(0, 2) if theme.small else random.randint(2, 4)
        steps.append(self._at(0.3, ("app", ("a", replicas, 1000, 64, 0, False))))
        if theme.small:
            size = len(self._nodes) * self._cpu // 1000
            steps += [self._at(1.0, one) for one in self._alike(size, 1000)]
        steps.append(self._at(4.0, ("nothing", ())))
        steps += [self._at(0.0, ("slow", (who, seconds))) for who, seconds in theme.slow.items()]
        kinds, weights = list(theme.weights), list(theme.weights.values())
        for kind in random.choices(kinds, weights, k=random.randint(15, 40)):
            steps += self._apart_by(random.expovariate(1 / theme.pace), kind)
        return History(self._world, tuple(steps), f"seed {self._world.seed}: {theme.about}")

    def _apart_by(self, seconds: float, kind: str) -> list[Step]:
        """What one draw comes to: its first step so long after the one before, the others at once."""
        what: list[What] = getattr(self, f"_{kind}")()
        return [self._at(0.0 if number else seconds, one) for number, one in enumerate(what)]

    def _at(self, seconds: float, what: What) -> Step:
        return round(seconds, 3), *what

    def _pause(self) -> float:
        longer = self._random.random() < 0.05
        return self._random.expovariate(1 / self._pace) + (self._random.uniform(0, 6) if longer else 0.0)

    def _mbits(self, *choices: int) -> tuple[int, ...]:
        """One of these, in a history with links."""
        return (self._links.choice(choices),) if self._linked else ()

    def _slot(self) -> int:
        return self._random.choice((250, 500, 500, 1000, 1000, 1500, 2000))

    def _memory(self) -> int:
        return self._random.choice((64, 64, 256, 1024))

    def _new(self, kind: str, *rest: Any) -> list[What]:
        """An ordinary pod, and what ends before it comes."""
        self._numbers += 1
        name, cpu = f"p{self._numbers}", self._slot()
        return [*self._ending([name], cpu), (kind, (name, cpu, self._memory(), *rest))]

    def _alike(self, count: int, cpu: int) -> list[What]:
        """Many ordinary pods, and what ends before they come."""
        self._numbers += 1
        name = f"f{self._numbers}"
        ending = self._ending([f"{name}-{i}" for i in range(count)], cpu)
        return [*ending, ("flood", (name, count, cpu, 64, 0))]

    def _ending(self, coming: list[str], cpu: int) -> list[What]:
        """The oldest pods, as many as make room for those that come."""
        steps: list[What] = []
        most = LOAD * self._cpu * len(self._nodes)
        while self._pods and sum(self._pods.values()) + cpu * len(coming) > most:
            oldest = next(iter(self._pods))
            del self._pods[oldest]
            steps.append(("delete", (oldest, 0.0)))
        self._pods.update(dict.fromkeys(coming, cpu))
        return steps

    def _taken(self) -> str:
        """Some pod, which is not chosen again."""
        name = self._random.choice(list(self._pods))
        del self._pods[name]
        return name

    # --- workload ---

    def _node(self, name: str) -> What:
        cpu = self._cpu * self._random.choice((1, 1, 1, 2)) // self._random.choice((1, 1, 1, 2))
        memory, pods = self._random.choice((2048, 8192)), self._random.choice((6, 20, 110))
        return "node", (name, cpu, memory, pods, *self._mbits(1000, 1000, 2500, 0))

    def _app(self, name: str) -> What:
        random = self._random
        priority = random.choice(tuple(PRIORITIES.values()))
        return "app", (
            name,
            random.randint(0, 5),
            self._slot(),
            self._memory(),
            priority,
            random.random() < 0.3,
        )

    def _spec(self) -> dict[str, Any]:
        random = self._random
        spec: dict[str, Any] = {
            "floor": {"resources": {"cpu": f"{self._slot()}m"}},
            "slots": {"count": random.randint(1, 6)},
        }
        if random.random() < 0.3:
            spec["floor"]["resources"]["memory"] = f"{self._memory()}Mi"
        for mbits in self._mbits(0, 100, 300, 300, 600):
            if mbits:
                spec["floor"]["network"] = {self._links.choice(("egress", "ingress")): f"{mbits}M"}
        if random.random() < 0.5:
            spec["priorityClassName"] = random.choice(CLASSES)
        if random.random() < 0.1:
            spec["suspend"] = True
        spec |= self._fit()
        spec |= self._life()
        placement: dict[str, Any] = {}
        if random.random() < 0.15:
            placement["mode"] = "Pinned"
        if random.random() < 0.2:
            placement["maxSlotsPerNode"] = random.randint(1, 2)
            if self._lives.random() < 0.3:
                placement["surviveNodeFailures"] = self._lives.choice((1, 1, 2))
        if placement:
            spec["placement"] = placement
        return spec

    def _fit(self) -> dict[str, Any]:
        """Which of the pods it selects a policy has for owners."""
        restricted = self._restricted and self._fits.random() < 0.6
        return {"ownerFit": "Restricted"} if restricted else {}

    def _life(self) -> dict[str, Any]:
        """How long a policy's slots live."""
        spec: dict[str, Any] = {}
        if self._lasting and self._lives.random() < 0.7:
            spec["consumePolicy"] = self._lives.choice(("Once", "Once", "Reuse"))
            spec["releaseDelaySeconds"] = self._lives.choice((0, 2, 5, 15))
        if self._mortal and self._ends.random() < 0.4:
            spec[self._ends.choice(("ttlSeconds", "endsIn"))] = self._ends.randint(2, 20)
        return spec

    def _workload(self) -> list[What]:
        random = self._random
        draw = random.random()
        if draw < 0.55 or not self._pods:
            return self._new("pod", random.choice((0, 0, 0, 10)), *self._mbits(0, 0, 200, 500))
        if draw < 0.8:
            return [("delete", (self._taken(), random.choice((0.0, 0.5, 3.0))))]
        if draw < 0.9:
            return [("finish", (self._taken(),))]
        return [self._app(random.choice(APPS))]

    def _flood(self) -> list[What]:
        return self._alike(self._random.randint(4, 14), self._slot())

    def _burst(self) -> list[What]:
        """As many pods of 1 CPU as fill a part of the nodes."""
        return self._alike(len(self._nodes) * self._cpu // 1000 // self._random.choice((1, 2, 4)), 1000)

    def _count(self) -> list[What]:
        """A policy of so many slots of 1 CPU."""
        spec = {"floor": {"resources": {"cpu": "1"}}, "slots": {"count": self._random.randint(2, 4)}}
        return [("policy", ("a", {**spec, "priorityClassName": "high"}))]

    def _one(self) -> list[What]:
        """A pod of 1 CPU."""
        self._numbers += 1
        name = f"p{self._numbers}"
        return [*self._ending([name], 1000), ("pod", (name, 1000, 64, 0))]

    def _preemptor(self) -> list[What]:
        """A more important one, for which no other ends before it comes."""
        self._numbers += 1
        name = f"p{self._numbers}"
        self._pods[name] = 1000
        return [("pod", (name, 1000, 64, 10))]

    def _lost(self) -> list[What]:
        """A node goes, or takes no pods; or it comes back."""
        random, name = self._random, self._random.choice(self._nodes)
        back: What = ("node", (name, self._cpu, 8192, 110))
        gone: list[What] = [("node-gone", (name,)), ("node-ready", (name, False)), ("cordon", (name, True))]
        return [back, ("node-ready", (name, True))] if random.random() < 0.6 else [random.choice(gone)]

    def _unanswered(self) -> list[What]:
        """The next Binding lands later than the extender waits for its answer."""
        return [("fault", ("extender", "bind", "late", round(self._random.uniform(1.0, 10.0), 1)))]

    def _room(self) -> list[What]:
        """Some pods end."""
        count = min(len(self._pods), self._random.randint(1, 4))
        return [("delete", (self._taken(), 0.0)) for _ in range(count)]

    def _important(self) -> list[What]:
        return self._new("pod", self._random.choice((10, 100, 100)))

    def _crash(self) -> list[What]:
        random = self._random
        return [("crash", (random.choice(APPS), random.randint(0, 4), random.choice((0.0, 0.0, 1.0))))]

    def _policies(self) -> list[What]:
        random = self._random
        draw, name = random.random(), random.choice(APPS)
        if draw < 0.7:
            return [("policy", (name, self._spec()))]
        if draw < 0.85:
            return [("policy-gone", (name,))]
        chosen = random.choice(CLASSES)
        if draw < 0.9:
            return [("priority-gone", (chosen,)), ("priority", (chosen, PRIORITIES[chosen]))]
        return [("priority", (chosen, random.choice((0, 10, 50, 100))))]

    def _churn(self) -> list[What]:
        draw, name = self._random.random(), self._random.choice(self._nodes)
        if draw < 0.25:
            return [("node-gone", (name,))]
        if draw < 0.5:
            return [self._node(name)]
        if draw < 0.75:
            return [("node-ready", (name, self._random.random() < 0.6))]
        return [("cordon", (name, self._random.random() < 0.4))]

    def _bypass(self) -> list[What]:
        if self._random.random() < 0.5:
            return self._new("other", 0)
        return self._new("static", self._random.choice(self._nodes))

    def _resize(self) -> list[What]:
        return [("resize", (self._random.choice([*APPS, *self._pods]), self._slot()))]

    def _daemons(self) -> list[What]:
        if self._random.random() < 0.7:
            return [("daemon", ("d", self._random.choice((100, 500, 100_000)), 16))]
        return [("daemon-gone", ("d",))]

    def _budget(self) -> What:
        """A budget comes, changes or goes, or the namespace gets another label."""
        random = self._budgets
        draw, name = random.random(), random.choice(sorted(BUDGETS))
        if draw < 0.2:
            return "budget-gone", (name,)
        if draw < 0.4:
            return "tier", (random.choice(("", "gold", "tin")),)
        spec: dict[str, Any] = {"namespaceSelector": BUDGETS[name], "default": name == "rest"}
        amounts = {"slots": random.randint(0, 12), "cpu": f"{random.choice((500, 2000, 4000, 9000))}m"}
        for scope in random.sample(("perNamespace", "total"), random.randint(1, 2)):
            spec[scope] = dict(random.sample(sorted(amounts.items()), random.randint(1, 2)))
        if random.random() < 0.1:
            spec["priorityClassNames"] = random.sample(CLASSES, random.randint(1, 2))
        return "budget", (name, spec)

    # --- disturbance ---

    def _watches(self) -> list[What]:
        random = self._random
        who, plural = random.choice(("extender", "extender", "scheduler")), random.choice(WATCHED)
        if who == "scheduler":
            plural = "pods" if random.random() < 0.7 else "nodes"
        draw = random.random()
        if draw < 0.3:
            return [("stall", (who, plural, round(random.uniform(0.1, 4.0), 2)))]
        if draw < 0.5:
            return [("lag", (who, plural, random.choice((0.0, 0.05, 0.5, 2.0))))]
        return [(random.choice(("cut", "expire", "repeat")), (who, plural))]

    def _faults(self) -> list[What]:
        random = self._random
        draw = random.random()
        if draw < 0.1:
            return [("hang", (round(random.uniform(0.05, 2.0), 2),))]
        if draw < 0.2:
            return [("slow", (random.choice(("extender", "scheduler")), random.choice((0.01, 0.5, 1.5))))]
        who = random.choice(("extender", "extender", "scheduler"))
        verb = random.choice(("bind", "bind", "bind", "patch", "get", "list"))
        seconds = round(random.uniform(0.1, 5.0), 2)
        kind = random.choice(FAULTS)
        if kind == "late":
            seconds = round(random.uniform(0.5, 50.0), 1)
        return [("fault", (who, verb, kind, seconds))]

    def _restarts(self) -> list[What]:
        random = self._random
        draw = random.random()
        if draw < 0.6:
            return [("restart-extender", (random.choice((0.0, 0.1, 1.0)),))]
        if draw < 0.9:
            return [("restart-scheduler", (random.choice((0.0, 0.2, 1.0)),))]
        jump = random.choice((-3600.0, 60.0, 3600.0))
        timed = self._mortal or self._lasting
        return [] if timed else [("jump", (jump,))]  # ends and delays are by the extender's clock
