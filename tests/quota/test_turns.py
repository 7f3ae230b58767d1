"""Who takes whose place where pods of a quota take turns."""

from __future__ import annotations

import pytest

from qos.cluster.objects import OwnerReference, Pod
from quota import turns
from quota.account import Account
from quota.returning import Place, Return
from quota.taking import Taking
from tests.quota.builders import account, amounts, pod, quota

NOW = 10_000.0
TURN = 600
ITS_OWNER = OwnerReference("ReplicaSet", "web", "uid-rs", "apps/v1")


def used_up(turn: int = TURN) -> Account:
    """A quota of 4 in a cluster of 10."""
    return account(amounts(10), [quota("web", amounts(4), amounts(4), turn_seconds=turn)])


def running(one: Account, name: str, ran: float, cpu: int = 1, **others: object) -> Pod:
    made = pod(
        name, amounts(cpu), of="web", node="n", scheduled=NOW - ran, **({"controller": ITS_OWNER} | others)
    )
    one.count(made)
    return made


def waiting(one: Account, waits: float = TURN, cpu: int = 1, **others: object) -> Pod:
    made = pod("waits", amounts(cpu), of="web", created=NOW - waits, **others)
    one.count(made)
    return made


def found(one: Account, who: Pod, *pods: Pod, left: int = 0) -> Return | None:
    return turns.plan(Taking(one, who), [Place(each.name, amounts(left), (each,)) for each in pods], NOW)


def test_the_one_that_ran_longest_gives_its_place() -> None:
    one = used_up()
    there = [running(one, f"p{ran}", ran) for ran in (700, 900, 800, 100)]
    assert found(one, waiting(one), *there) == Return("p900", (there[1],))


@pytest.mark.parametrize(("waits", "ran"), [(TURN - 1, 5000), (5000, TURN - 1)])
def test_not_before_both_had_a_turn(waits: float, ran: float) -> None:
    one = used_up()
    there = [running(one, f"p{number}", ran) for number in range(4)]
    assert found(one, waiting(one, waits), *there) is None


def test_no_turns_unless_the_quota_says_so() -> None:
    one = used_up(0)
    there = [running(one, f"p{number}", 5000) for number in range(4)]
    assert found(one, waiting(one, 5000), *there) is None


@pytest.mark.parametrize("others", [{"priority": 1}, {"priority": -1}, {"firm": True}, {"controller": None}])
def test_who_keeps_its_place(others: dict[str, object]) -> None:
    """Another priority, nobody may evict it, nobody makes it again."""
    one = used_up()
    there = [running(one, f"p{number}", 5000, **others) for number in range(4)]
    assert found(one, waiting(one), *there) is None


def test_one_of_another_quota_keeps_its_place() -> None:
    one = used_up()
    there = [running(one, f"p{number}", 100) for number in range(4)]
    other = pod("other", amounts(1), of="data", node="n", scheduled=1.0, controller=ITS_OWNER)
    one.count(other)
    assert found(one, waiting(one), *there, other) is None


def test_nobody_ends_where_the_quota_has_room() -> None:
    one = used_up()
    there = [running(one, f"p{number}", 5000) for number in range(3)]
    assert found(one, waiting(one), *there) is None


def test_one_that_is_too_small_keeps_its_place() -> None:
    one = used_up()
    small, large = running(one, "small", 5000, 1), running(one, "large", 900, 3)
    assert found(one, waiting(one, cpu=2), small, large) == Return("large", (large,))
    assert found(one, waiting(one, cpu=2), small, left=5) is None, "the node has room, the quota has not"
