"""Quotas: how long it takes to count a pod, to make shares anew, and to ask whether a pod fits.

`python -P -m benchmarks.quota [--quotas N --pods N --rounds N]`; 1 when a goal is missed. Two shapes of 1,000
quotas: ten departments of ten teams of ten, and all beneath the root, where one change concerns all.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.figures import p99
from qos import keys
from qos.cluster.objects import Pod
from qos.cluster.quota import ElasticQuota
from quota.account import Account
from quota.fitting import refusal

GIB: Final = 1 << 30
CORES: Final = 100_000
NODES: Final = 5_000
SIZES: Final = ((250, GIB // 2), (500, GIB), (1_000, 2 * GIB), (2_000, 3 * GIB + 1))
GOALS: Final = {"recompute": 5e-3, "check": 20e-6}


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds, sorted."""

    name: str
    seconds: Sequence[float]
    goal: float | None = None

    @property
    def kept(self) -> bool:
        return self.goal is None or p99(self.seconds) <= self.goal


def deep(count: int) -> Iterator[ElasticQuota]:
    """Departments, their teams, and the teams' projects, ten of each; `count` projects."""
    tens = max(1, count // 100)
    for department in range(tens):
        yield _quota(f"d{department}", "", 100, count)
        for team in range(10):
            yield _quota(f"d{department}-t{team}", f"d{department}", 10, count)
            for project in range(10):
                yield _quota(f"d{department}-t{team}-p{project}", f"d{department}-t{team}", 1, count)


def flat(count: int) -> Iterator[ElasticQuota]:
    """All of them beneath the root."""
    return (_quota(f"p{number}", "", 1, count) for number in range(count))


def _quota(name: str, parent: str, parts: int, count: int) -> ElasticQuota:
    """Mins come to half of all there is; max is the fourfold, and an odd number of bytes."""
    cpu, memory = CORES * 1000 * parts // (2 * count), NODES * 64 * GIB * parts // (2 * count)
    most = {"cpu": cpu * 4, "memory": memory * 4 + 1, "pods": 110 * NODES * parts // count}
    least = {"cpu": cpu, "memory": memory, "pods": 10 * parts}
    return ElasticQuota("quotas", name, min=least, max=most, weight=most, parent=parent, is_parent=parts > 1)


def filled(quotas: Sequence[ElasticQuota], pods: int, draw: random.Random) -> tuple[Account, list[Pod]]:
    """An account in which more is wanted than there is: every second pod has a node."""
    account = Account()
    account.set_cluster({"cpu": CORES * 1000, "memory": NODES * 64 * GIB, "pods": 110 * NODES})
    account.change(quotas)
    leaves = [one.name for one in quotas if not one.is_parent]
    made = [pod(number, draw.choice(leaves), draw) for number in range(pods)]
    for one in made:
        account.count(one)
    account.tree.refresh()
    gc.collect()
    gc.freeze()  # as the extender does
    return account, made


def pod(number: int, of: str, draw: random.Random) -> Pod:
    cpu, memory = draw.choice(SIZES)
    requests = {"cpu": cpu * 4, "memory": memory * 4, "pods": 1}
    node = f"n{number % NODES}" if number % 2 else ""
    return Pod(f"u{number}", "pods", f"p{number}", requests, {keys.QUOTA_NAME_LABEL: of}, node_name=node)


def times(rounds: int, prepare: Callable[[int], None], act: Callable[[int], object]) -> list[float]:
    """CPU time that `act` takes, each time after `prepare`; sorted. Seconds."""
    found = []
    for number in range(rounds):
        prepare(number)
        start = time.thread_time()
        act(number)
        found.append(time.thread_time() - start)
    return sorted(found)


def least(rounds: int, act: Callable[[int], object], repeats: int = 5) -> list[float]:
    """CPU time that `act` takes at the least, of so many times for each number; sorted. Left out is what the
    machine does beside, which meets no number every time.
    """
    found = [float("inf")] * rounds
    for _ in range(repeats):
        for number in range(rounds):
            start = time.thread_time()
            act(number)
            found[number] = min(found[number], time.thread_time() - start)
    return sorted(found)


def measure(shape: str, quotas: Sequence[ElasticQuota], pods: int, rounds: int) -> Iterator[Timed]:
    """Each figure of one shape."""
    draw = random.Random(7)
    account, made = filled(quotas, pods, draw)
    leaves = [one for one in quotas if not one.is_parent]
    total = {"cpu": CORES * 1000, "memory": NODES * 64 * GIB, "pods": 110 * NODES}
    waiting = [one for one in made if not one.node_name]

    def nothing(_: int) -> None:
        pass

    def node_gone(number: int) -> None:
        left = NODES - 1 - number % 7
        account.set_cluster({name: amount * left // NODES for name, amount in total.items()})

    def arrives(number: int) -> None:
        account.count(pod(pods + number, draw.choice(leaves).name, draw))

    def checked(number: int) -> object:
        return refusal(account, waiting[number % len(waiting)])

    def one_asked(number: int) -> object:
        return account.tree.runtime(account.tree.nodes[leaves[number % len(leaves)].key], "cpu")

    def refreshed(_: int) -> None:
        account.tree.refresh()

    yield Timed(f"{shape}: count a pod that arrives", times(rounds, nothing, arrives))
    refreshed(0)
    yield Timed(
        f"{shape}: recompute all shares after the cluster changed",
        times(rounds, node_gone, refreshed),
        GOALS["recompute"],
    )
    yield Timed(
        f"{shape}: recompute after a pod arrived", times(rounds, arrives, refreshed), GOALS["recompute"]
    )
    yield Timed(f"{shape}: one runtime after a pod arrived", times(rounds, arrives, one_asked))
    refreshed(0)
    yield Timed(f"{shape}: a filter's check", times(10 * rounds, nothing, checked), GOALS["check"])
    yield Timed(
        f"{shape}: a filter's check, the least of five for each pod",
        least(10 * rounds, checked),
        GOALS["check"],
    )
    yield Timed(f"{shape}: a filter's check after a pod arrived", times(rounds, arrives, checked))
    spare = quotas[-1]

    def amended(number: int) -> None:
        account.change(
            [
                ElasticQuota(
                    "quotas",
                    spare.name,
                    min={"cpu": number},
                    max=spare.max,
                    weight=spare.weight,
                    parent=spare.parent,
                )
            ]
        )

    yield Timed(f"{shape}: a quota changes", times(rounds // 10, nothing, amended))


def memory(quotas: Sequence[ElasticQuota], pods: int) -> float:
    """Bytes a pod that counting takes, the pod itself left out."""
    draw = random.Random(7)
    leaves = [one.name for one in quotas if not one.is_parent]
    made = [pod(number, draw.choice(leaves), draw) for number in range(pods)]
    account = Account()
    account.change(quotas)
    gc.collect()
    tracemalloc.start()
    for one in made:
        account.count(one)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken / pods


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quotas", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1_000)
    options = parser.parse_args()
    table = Table(f"{options.quotas} quotas, {options.pods} pods", "median", "p99", "goal", "", box=None)
    missed = False
    for shape, made in (("deep", deep), ("flat", flat)):
        for one in measure(shape, list(made(options.quotas)), options.pods, options.rounds):
            middle = one.seconds[len(one.seconds) // 2]
            goal = _shown(one.goal) if one.goal else ""
            table.add_row(
                one.name, _shown(middle), _shown(p99(one.seconds)), goal, "" if one.kept else "missed"
            )
            missed = missed or not one.kept
    Console(width=110).print(table)
    print(f"memory: {memory(list(deep(options.quotas)), options.pods // 10):.0f} bytes a counted pod")
    return 1 if missed else 0


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


if __name__ == "__main__":
    sys.exit(main())
