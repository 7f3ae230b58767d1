"""The judge of Reservations: by what is seen of the API server, with its own arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from lab.changes import Change
from lab.checker import Kind, Terms, Verdict, check
from qos.cluster.objects import Node, NodePredicate, Pod, Selector
from qos.cluster.policy import Policy
from qos.cluster.reservation import PodOwner, Reservation

TERMS = Terms(grace=3.0, cap_percent=100)
ONCE = Reservation(
    "once",
    "uid-once",
    1,
    "1",
    0.0,
    {"cpu": 3000, "pods": 1},
    NodePredicate(),
    (PodOwner(selector=Selector()),),
    phase="Available",
    node="n0",
)
SHARED = replace(ONCE, name="pool", uid="uid-pool", once=False)
NODE = Node("n0", "n0", {"cpu": 4000, "memory": 1 << 34, "pods": 110})


def pod(name: str, cpu: int, **others: Any) -> Pod:
    return Pod(name, "default", name, {"cpu": cpu, "pods": 1}, **others)


def judged(*things: tuple[float, Any]) -> Verdict:
    changes: Iterable[Change] = (
        Change(number, at, thing) for number, (at, thing) in enumerate([(0.0, NODE), *things], start=1)
    )
    return check(changes, TERMS)


def bound(at: float, name: str, cpu: int, by: str = "") -> list[tuple[float, Pod]]:
    waits = pod(name, cpu)
    return [(at, waits), (at, replace(waits, node_name="n0", reserved_by=by))]


def kinds(verdict: Verdict) -> list[Kind]:
    return [finding.kind for finding in verdict.violations]


def test_what_is_reserved_must_be_there() -> None:
    assert kinds(judged((0.0, ONCE), *bound(10.0, "other", 2000))) == [Kind.FLOOR_BROKEN]
    assert kinds(judged((0.0, ONCE), *bound(10.0, "other", 1000))) == []


def test_who_was_only_to_be_bound_has_not_used_it() -> None:
    decided, waits = bound(10.0, "web", 2000, "uid-once")[::-1]
    web = [(10.0, waits[1]), decided, (11.0, waits[1])]
    assert kinds(judged((0.0, ONCE), *web, *bound(12.0, "web2", 1000, "uid-once"))) == []
    assert kinds(judged((0.0, ONCE), *web, *bound(20.0, "other", 2000))) == [Kind.FLOOR_BROKEN]


def test_its_owner_uses_it_up() -> None:
    used = (0.0, ONCE), *bound(10.0, "web", 2000, "uid-once")
    assert kinds(judged(*used)) == []
    assert kinds(judged(*used, *bound(20.0, "other", 2000))) == [], "what it left is anybody's"
    assert kinds(judged(*used, *bound(20.0, "web2", 1000, "uid-once"))) == [Kind.MISUSED]


def test_its_owner_fills_no_slot_of_a_policy_that_selects_it_too() -> None:
    older = Policy("default/a", "default", "a", "a", 1, "1", -1.0, Selector(), {"cpu": 1000}, count=1)
    low = replace(ONCE, priority=0)
    assert kinds(judged((0.0, older), (0.0, low), *bound(10.0, "web", 3000, "uid-once"))) == []


def test_what_pods_leave_of_a_shared_one_must_be_there() -> None:
    used = (0.0, SHARED), *bound(10.0, "job", 1000, "uid-pool")
    assert kinds(judged(*used, *bound(20.0, "other", 1000))) == []
    assert kinds(judged(*used, *bound(20.0, "other", 2000))) == [Kind.FLOOR_BROKEN]
    assert kinds(judged(*used, *bound(20.0, "job2", 2000, "uid-pool"))) == []


def test_restricted_gives_no_more_than_it_has() -> None:
    one = replace(SHARED, restricted=True)
    assert kinds(judged((0.0, one), *bound(10.0, "job", 3500, "uid-pool"))) == [Kind.MISUSED]


def test_one_that_has_ended_promises_nothing() -> None:
    assert kinds(judged((0.0, replace(ONCE, expires=5.0)), *bound(10.0, "other", 4000))) == []
    failed = replace(ONCE, phase="Failed")
    assert kinds(judged((0.0, ONCE), (9.0, failed), *bound(10.0, "other", 4000))) == []
