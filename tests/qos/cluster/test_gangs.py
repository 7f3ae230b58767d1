"""Who of a gang is there, who must have a place, and in which order gangs come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qos.cluster.gangs import Band, Line, Match, Member, Rules, in_order_of_need, muster, one_ask
from qos.cluster.objects import Pod
from qos.keys import QUOTA_NAME_LABEL

GATE = "gate"


def pod(name: str, cpu: int = 1, **others: object) -> Pod:
    return Pod(name, "default", name, {"cpu": cpu}, **others)  # type: ignore[arg-type]


def waits(name: str, *gates: str, **others: object) -> Member:
    return Member(pod(name, **others), "default/gang", gates or (GATE,))


def runs(name: str, **others: object) -> Member:
    return Member(pod(name, node_name="n1", phase="Running", **others), "default/gang")


def count(rules: Rules, *members: Member, satisfied: bool = False) -> tuple[int, int, int]:
    """How many must have a place, wait, and are missing."""
    found = muster("default/gang", rules, members, GATE, satisfied=satisfied)
    return found.lacks, len(found.gated), found.absent


def test_only_pods_that_wait_for_our_gate_alone_are_there() -> None:
    three = Rules(3)
    assert count(three, waits("a"), waits("b"), waits("c", GATE, "theirs")) == (3, 2, 1)
    assert count(three, waits("a"), waits("b", deleting=True), waits("c", phase="Failed")) == (3, 1, 2)
    found = muster("g", three, [waits("a", GATE, "theirs")], GATE, satisfied=False)
    assert Band((found,)).obstacle == "3 of 3 pods wait for schedulingGate theirs"


@pytest.mark.parametrize(
    ("match", "satisfied", "lacks"),
    [
        (Match.ONCE, False, 1),
        (Match.ONCE, True, 0),
        (Match.RUNNING, True, 1),
        (Match.WAITING, False, 3),
    ],
)
def test_who_counts_besides(match: Match, satisfied: bool, lacks: int) -> None:
    rules = Rules(3, match=match)
    assert count(rules, runs("a"), runs("b"), waits("c"), satisfied=satisfied)[0] == lacks


def test_the_most_important_and_oldest_are_chosen() -> None:
    members = [waits("a", created=2.0), waits("b", created=1.0), waits("c", created=3.0, priority=1)]
    band = Band((muster("g", Rules(2), members, GATE, satisfied=False),))
    assert [one.pod.name for one in band.chosen] == ["c", "b"]
    assert band.obstacle == ""


def test_order_and_what_keeps_a_band_back() -> None:
    def band(key: str, *members: Member, rules: Rules = Rules(2)) -> Band:  # noqa: B008 - it is frozen
        return Band((muster(key, rules, members, GATE, satisfied=False),))

    young = band("young", waits("a", created=9.0), waits("b", created=9.0))
    old = band("old", waits("a", created=1.0), waits("b", created=8.0))
    urgent = band("urgent", waits("a", created=9.0, priority=1), waits("b", created=9.0))
    begun = band("begun", runs("a"), waits("b", created=9.5))
    assert [one.key for one in sorted((young, old, urgent, begun), key=lambda one: one.order)] == [
        ("begun",),
        ("urgent",),
        ("old",),
        ("young",),
    ]
    assert band("bad", rules=Rules(1, problem="why")).obstacle == "gang bad: why"
    assert replace(old, absent=("other",)).obstacle.startswith("gang other of its group has no pods")


def test_the_line_closes_and_opens_again() -> None:
    line = Line()
    assert [line.closes("nodes", "a", 0.0, 10.0, now) for now in (0, 9.9, 10, 19.9, 20, 29.9, 40)] == [
        False,
        False,
        True,
        True,
        False,
        False,
        True,
    ]
    assert not line.closes("nodes", "b", 0.0, 0.0, 100.0)


def test_several_that_wait_do_not_keep_the_line_closed_in_turn() -> None:
    """Whoever they are: it is open for half of the time, and each of them has its turn."""
    line, waiting = Line(), [("a", 0.0), ("b", 10.0), ("c", 3.0)]
    closed, turns = 0, set[str]()
    for now in range(10, 310):
        by = {who for who, since in waiting if line.closes("nodes", who, since, 10.0, float(now))}
        assert len(by) <= 1
        closed += bool(by)
        turns |= by
    assert closed <= 150
    assert turns == {"a", "b", "c"}
    assert line.closes("quota", "c", 0.0, 10.0, 305.0), "another line"


def test_who_fits_on_few_nodes_is_placed_first_then_the_largest() -> None:
    members = [waits("small"), waits("large", cpu=4), waits("picky")]
    ordered = in_order_of_need(members, [3, 3, 1])
    assert [one.pod.name for one in ordered] == ["picky", "large", "small"]


def test_those_of_one_quota_are_one_ask() -> None:
    pods = [pod("a"), pod("b", 2), pod("c", 4, labels={QUOTA_NAME_LABEL: "q"})]
    assert [one.requests for one in one_ask(pods)] == [{"cpu": 3}, {"cpu": 4}]
