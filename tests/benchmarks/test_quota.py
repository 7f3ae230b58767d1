"""`make bench-quota` measures an account in which more is asked for than there is."""

from __future__ import annotations

import random

import pytest

from benchmarks.quota import CORES, Timed, deep, filled, flat, least, measure
from qos.cluster.quota import BESIDE


@pytest.mark.parametrize(("shape", "levels"), [(deep, 3), (flat, 1)])
def test_its_quotas_and_pods_are_what_they_should_be(shape: object, levels: int) -> None:
    quotas = list(shape(100))  # type: ignore[operator]
    account, pods = filled(quotas, 40_000, random.Random(1))
    leaves = [one for one in quotas if not one.is_parent]
    assert len(leaves) == 100
    assert max(len(node.path()) - 1 for node in account.tree.nodes.values()) == levels
    standings = [account.standing(one.key)["cpu"] for one in leaves]
    assert sum(one.request for one in standings) > CORES * 1000, "it is scarce"
    assert sum(one.runtime or 0 for one in standings) == pytest.approx(CORES * 1000, rel=1e-6)
    assert len(pods) == 40_000
    assert all(not account.standing(f"/{name}") for name in BESIDE)


def test_a_goal_is_missed_by_its_p99() -> None:
    assert Timed("x", [1.0] * 99 + [9.0], goal=1.0).kept
    assert not Timed("x", [1.0] * 98 + [9.0] * 2, goal=1.0).kept


def test_what_takes_long_but_once_is_left_out() -> None:
    taken = iter([200_000, 200_000, 100, 200_000, 100, 200_000])  # loops: the second takes long each time
    first, second = least(2, lambda _: sum(range(next(taken))), repeats=3)
    assert first * 20 < second


def test_it_measures_what_it_says() -> None:
    names = [one.name for one in measure("deep", list(deep(100)), 100, 10)]
    assert [name for name in names if "check" in name] == [
        "deep: a filter's check",
        "deep: a filter's check, the least of five for each pod",
        "deep: a filter's check after a pod arrived",
    ]
    assert len(names) == 8
