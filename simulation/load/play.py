"""Histories of rescheduling: a time in which all changes and much fails, then one in which nothing does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import quantiles

from rescheduling.rescheduler import Rescheduler
from simulation.load.cluster import CPU, MEMORY, TICK, Cluster, cluster
from simulation.load.judge import BrokenError, Judge

RESTLESS_TICKS = 60
QUIET_TICKS = 180
"""So long nothing may have begun until a history is over."""
MOST_TICKS = 3600


@dataclass(frozen=True, slots=True)
class Result:
    """One history. `moves`, `minutes`: since the load stays, how many began, and until the last did.

    `hot`, `relieved`: nodes that were hot then, and of these those that are not in the end. `before`: how
    many began in the time before. `broken`: a rule that was, "" none.
    """

    seed: int
    before: int = 0
    moves: int = 0
    minutes: float = 0.0
    hot: int = 0
    relieved: int = 0
    broken: str = ""


def play(seed: int, make: type[Rescheduler] = Rescheduler) -> Result:
    """One history; `make`: what decides."""
    world = cluster(seed)
    judge = Judge(world)
    try:
        before = _run(world, judge, make, RESTLESS_TICKS, restless=True)
        world.faulty = False
        world.silent.clear()
        _run(world, judge, make, 10, restless=False)  # what is under way ends, and reports say so
        judge.hush()
        began, hot = world.now, set(_hot(world))
        for _ in range(MOST_TICKS // QUIET_TICKS):
            moves = judge.moves
            _run(world, judge, make, QUIET_TICKS, restless=False)
            if judge.moves == moves:
                break
        else:
            return Result(seed, broken="it does not end")
    except BrokenError as error:
        return Result(seed, broken=str(error))
    minutes = (judge.latest - began) / 60 if judge.moves else 0.0
    relieved = len(hot - set(_hot(world)))
    return Result(seed, before, judge.moves, minutes, len(hot), relieved)


def _hot(world: Cluster) -> Iterable[str]:
    high = world.settings.pools[0].all.high
    if world.settings.pools[0].deviation:
        return []
    return [n for n in world.nodes if any(u > high[name] for name, u in world.percent(n).items())]


def _run(world: Cluster, judge: Judge, make: type[Rescheduler], ticks: int, *, restless: bool) -> int:
    decider, count = make(world.settings), 0
    for _ in range(ticks):
        world.now += TICK
        if restless:
            _disturb(world)
        if world.chance.random() < 0.01:
            decider = make(world.settings)  # a restart
        for line, node in world.proceed():
            judge.arrives(line, node)
        world.measure()
        if restless or int(world.now / TICK) % 2:
            for one in decider.decide(world.world(), world.now).migrations:
                judge.begins(one)
                world.begin(one)
                count += 1
        judge.look()
    return count


def _disturb(world: Cluster) -> None:
    chance = world.chance
    for name in list(world.pods):
        load = world.pods[name]
        if chance.random() < 0.01:
            factor = chance.choice((0.2, 0.5, 1.5, 2.5))
            most = {CPU: 6000, MEMORY: 12 << 30}
            world.change(name, {n: min(most[n], int(a * factor) + 1) for n, a in load.uses.items()})
        elif chance.random() < 0.002:
            del world.pods[name]
            world.place(load.running, load.uses)
    for name in world.nodes:
        if chance.random() < 0.01:
            world.silent[name] = world.now + TICK * chance.randint(2, 20)


def summary(results: Iterable[Result]) -> str:
    """Figures of many histories, for docs/rescheduling.md."""
    results = list(results)
    acting = [one for one in results if one.moves]
    hot, relieved = sum(one.hot for one in results), sum(one.relieved for one in results)
    since, broken = sum(one.moves for one in results), sum(bool(one.broken) for one in results)
    all_of = sum(one.before for one in results) + since
    lines = [f"{len(results)} histories, {broken} of them broke a rule; {all_of} migrations"]
    if len(acting) > 1:
        moves = quantiles([one.moves for one in acting], n=100, method="inclusive")
        minutes = quantiles([one.minutes for one in acting], n=100, method="inclusive")
        most = max(one.moves for one in acting)
        last = max(one.minutes for one in acting)
        lines.append(
            f"{since} after the load had come to rest, in {len(acting)} histories; in each of those:"
        )
        lines.append(f"  migrations: median {moves[49]:.0f}, p99 {moves[98]:.0f}, most {most}")
        lines.append(
            f"  minutes to the last: median {minutes[49]:.0f}, p99 {minutes[98]:.0f}, most {last:.0f}"
        )
    lines.append(f"hot nodes when the load came to rest: {hot}; relieved of these: {relieved}")
    return "\n".join(lines)
