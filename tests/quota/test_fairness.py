"""A long run of teams that lend and give back: each has its share, nobody starves, nobody ends in vain."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from qos.cluster.objects import Pod
from quota import fitting
from quota.account import Account
from quota.returning import Place, plan, worth
from quota.taking import Taking
from tests.quota.builders import NAMESPACE, account, amounts, pod, quota

NODES, CPUS = 10, 8
GRACE = 5
WAITING = 12
"""Pods that each quota that wants any has waiting."""


@dataclass
class Team:
    """`wants`: whether it has work at a tick."""

    least: int
    weight: int
    wants: Callable[[int], bool] = lambda _: True


@dataclass
class World:
    """First fit on nodes, quotas asked as by the extender, giving back as by its leader; a tick a second."""

    teams: Mapping[str, Team]
    chance: random.Random
    sizes: tuple[int, ...] = (1, 1, 2)
    account: Account = field(init=False)
    running: dict[str, tuple[Pod, int, int]] = field(default_factory=dict)
    queue: list[tuple[Pod, int]] = field(default_factory=list)
    free: list[int] = field(default_factory=lambda: [CPUS] * NODES)
    taken: dict[str, list[int]] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    longest: Counter[str] = field(default_factory=Counter)
    ended: list[int] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        most = amounts(NODES * CPUS)
        quotas = [
            quota(name, most, amounts(team.least), weight=amounts(team.weight))
            for name, team in self.teams.items()
        ]
        self.account = account(most, quotas)
        self.taken = {name: [] for name in self.teams}

    def tick(self, now: int) -> None:
        for uid, (_, node, end) in list(self.running.items()):
            if end <= now:
                self._stop(uid, node)
        self._arrive(now)
        self.queue = [(one, lasts) for one, lasts in self.queue if not self._start(one, lasts, now)]
        self._give_back(now)
        for name in self.teams:
            self.taken[name].append(self.account.stands(f"{NAMESPACE}/{name}", "cpu").used)

    def _arrive(self, now: int) -> None:
        waiting = Counter(one.name.partition("-")[0] for one, _ in self.queue)
        for name, team in self.teams.items():
            while team.wants(now) and waiting[name] < WAITING:
                self.made += 1
                one = pod(
                    f"{name}-{self.made}",
                    amounts(self.chance.choice(self.sizes)),
                    of=name,
                    priority=self.made % 3,
                )
                self.account.count(one)
                self.queue.append((one, self.chance.randint(5, 60)))
                waiting[name] += 1
        self.queue.sort(key=lambda each: -each[0].priority)

    def _start(self, one: Pod, lasts: int, now: int) -> bool:
        asked = one.requests["cpu"]
        node = next((number for number, left in enumerate(self.free) if left >= asked), None)
        if node is None or fitting.refusal(self.account, one) is not None:
            return False
        self._run(one, node, now + lasts)
        return True

    def _run(self, one: Pod, node: int, end: int) -> None:
        self.account.count(one, bound=True)
        self.free[node] -= one.requests["cpu"]
        self.running[one.uid] = one, node, end

    def _stop(self, uid: str, node: int) -> Pod:
        one, _, _ = self.running.pop(uid)
        self.account.forget(uid)
        self.free[node] += one.requests["cpu"]
        return one

    def _give_back(self, now: int) -> None:
        owed = set()
        for one, lasts in list(self.queue):
            taking = Taking(self.account, one)
            name = one.name.partition("-")[0]
            if not taking.owed:
                continue
            owed.add(name)
            waits = now - self.since.setdefault(name, now)
            self.longest[name] = max(self.longest[name], waits)
            if waits >= GRACE:
                self._make_room(taking, one, lasts, now)
        self.since = {name: at for name, at in self.since.items() if name in owed}

    def _make_room(self, taking: Taking, one: Pod, lasts: int, now: int) -> None:
        there: dict[int, list[Pod]] = {node: [] for node in range(NODES)}
        for other, node, _ in self.running.values():
            if worth(taking, other):
                there[node].append(other)
        places = [Place(str(node), amounts(self.free[node]), tuple(pods)) for node, pods in there.items()]
        found = plan(taking, places)
        if found is None:
            return
        for victim in found.victims:
            self._stop(victim.uid, self.running[victim.uid][1])
            self.ended.append(now)
        self.queue = [each for each in self.queue if each[0] is not one]
        assert fitting.refusal(self.account, one) is None
        assert self.free[int(found.node)] >= one.requests["cpu"], "nobody ended in vain"
        self._run(one, int(found.node), now + lasts)

    def share(self, name: str, begin: int, end: int) -> float:
        return sum(self.taken[name][begin:end]) / (end - begin)


def played(teams: Mapping[str, Team], ticks: int, seed: int, *sizes: int) -> World:
    world = World(teams, random.Random(seed), sizes)
    for now in range(ticks):
        world.tick(now)
    return world


@pytest.mark.parametrize("seed", range(3))
def test_each_gets_its_weighted_share_and_nobody_starves(seed: int) -> None:
    """web comes late and goes early: until then, and after that, others have what it leaves."""
    teams = {
        "web": Team(20, 2, lambda now: 300 <= now < 1500),
        "data": Team(20, 1),
        "more": Team(0, 1),
    }
    world = played(teams, 2000, seed, 1, 1, 2)
    # 80: min 20 and 20, and of the other 40 by weight 2, 1, 1; without web 20 and half of 60 each.
    for name, fair in {"web": 40, "data": 30, "more": 10}.items():
        assert world.share(name, 500, 1500) == pytest.approx(fair, rel=0.05)
    for begin, end in ((100, 300), (1600, 2000)):
        assert world.share("data", begin, end) == pytest.approx(50, rel=0.05)
        assert world.share("more", begin, end) == pytest.approx(30, rel=0.05)
    assert max(world.longest.values()) <= 30, "what is left in parts is room, and ends a while later"
    assert world.ended, "what was lent was taken back"
    assert all(300 <= now < 330 for now in world.ended), "and after that nobody ends for another"


def test_with_demand_that_comes_and_goes_everybody_has_what_is_guaranteed() -> None:
    teams = {
        "web": Team(30, 1, lambda now: now // 40 % 2 == 0),
        "data": Team(30, 1, lambda now: now // 70 % 2 == 0),
        "more": Team(0, 4),
    }
    world = played(teams, 1500, 7, 1)
    assert max(world.longest.values()) <= GRACE + 3, "30 of them, of which 12 wait at a time"
    assert world.share("more", 100, 1500) > 0
    total = sum(world.share(name, 100, 1500) for name in teams)
    assert total > 0.9 * NODES * CPUS, "what is idle is lent"
