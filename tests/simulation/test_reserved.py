"""What a Reservation's status and a pod's use of it may not be is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from qos.cluster.objects import OwnerReference, Pod
from simulation import objects, reserved
from simulation.generator import history
from simulation.play import play
from simulation.reserved_watch import ReservedWatch
from tests.ledger.builders import pod

NOW = 1_800_000_000.0
CREATED, OVER, LATER = "2027-01-15T07:59:00Z", "2027-01-15T07:59:30Z", "2027-01-15T08:30:00Z"
USE = {"labelSelector": {"matchLabels": {"use": "x"}}}


def one(phase: str = "", node: str = "", *owners: str, allocated: str = "0", **spec: Any) -> Any:
    """Of 1 CPU, for pods with use=x."""
    body = objects.reservation("r", {"cpu": 1000, "memory": 0, "owners": [USE], **spec})
    status: dict[str, Any] = {"phase": phase} if phase else {}
    if node:
        owned = [{"uid": uid} for uid in owners]
        status |= {"nodeName": node, "currentOwners": owned, "allocated": {"cpu": allocated}}
    meta = {**body["metadata"], "uid": "r1", "creationTimestamp": CREATED}
    return {**body, "metadata": meta, "status": status}


def user(name: str, cpu: float = 1, node: str = "n1", **others: Any) -> Pod:
    made = pod(name, node=node, reserved_by="r1", bound_by="extender", **others)
    return replace(made, labels={"use": "x"}, requests={"cpu": round(cpu * 1000)})


@pytest.mark.parametrize(
    ("owner", "who", "is_for_it"),
    [
        (USE, user("a"), True),
        ({"labelSelector": {"matchLabels": {"use": "y"}}}, user("a"), False),
        ({"object": {"name": "a", "namespace": "default"}}, user("a"), True),
        ({"object": {"name": "b"}}, user("a"), False),
        ({"controller": {"kind": "Job", "name": "j"}}, user("a"), False),
        (
            {"controller": {"kind": "Job", "name": "j"}},
            user("a", controller=OwnerReference("Job", "j", "job-j", "batch/v1")),
            True,
        ),
    ],
)
def test_whose_it_is(owner: Any, who: Pod, is_for_it: bool) -> None:
    assert reserved.for_pod(one(owners=[owner]), who) is is_for_it


@pytest.mark.parametrize(
    ("body", "who", "running", "ever", "wrong"),
    [
        (one("Available", "n1"), user("a"), [], [], ""),
        (one("Available", "n1"), user("a"), [], ["a"], ""),
        (one("Available", "n1"), user("a"), [], ["b"], "did before"),
        (one("Available", "n2"), user("a"), [], [], "it is on n2"),
        (one("Available", "n1", owners=[]), user("a"), [], [], "no owner"),
        (one("Available", "n1", allocateOnce=False), user("a"), [user("b")], ["b"], ""),
        (
            one("Available", "n1", allocateOnce=False, allocatePolicy="Restricted"),
            user("a", 0.5),
            [user("a", 0.5), user("b", 0.5)],
            ["b"],
            "",
        ),
        (
            one("Available", "n1", allocateOnce=False, allocatePolicy="Restricted"),
            user("a", 0.6),
            [user("a", 0.6), user("b", 0.5)],
            ["b"],
            "its pods take",
        ),
    ],
)
def test_a_use(body: Any, who: Pod, running: list[Pod], ever: list[str], wrong: str) -> None:
    problems = reserved.wrong_use(body, who, running, ever)
    assert wrong in " ".join(problems)
    assert bool(wrong) is bool(problems)


@pytest.mark.parametrize(
    ("before", "after", "wrong"),
    [
        (one(), one("Pending"), ""),
        (one("Pending"), one("Available", "n1"), ""),
        (one("Available", "n1"), one("Succeeded", "n1", "a"), ""),
        (one("Available", "n1"), one("Available", "n2"), "moves from n1 to n2"),
        (one("Available", "n1"), one("Pending"), "nowhere"),
        (one("Available", "n1"), one("Pending", "n1"), "was Available"),
        (one("Succeeded", "n1", "a"), one("Succeeded", "n1", "b"), "status changes"),
    ],
)
def test_a_write(before: Any, after: Any, wrong: str) -> None:
    problems = reserved.wrong_write(before, after)
    assert wrong in " ".join(problems)
    assert bool(wrong) is bool(problems)


SHARED = {"allocateOnce": False}


@pytest.mark.parametrize(
    ("body", "pods", "ever", "wrong"),
    [
        (one("Pending"), [], [], ""),
        (one(), [], [], "no phase"),
        (one("Available", "n1"), [], [], ""),
        (one("Available", "gone"), [], [], "and over"),
        (one("Available", "n1", expires=OVER), [], [], "and over"),
        (one("Available", "n1", expires=OVER, ttl="0s"), [], [], ""),
        (one("Available", "n1", ttl="30s"), [], [], "and over"),
        (one("Failed", "n1", ttl="30s"), [], [], ""),
        (one("Failed", "n1", expires=LATER), [], [], "its time is not over"),
        (one("Failed", "gone"), [], [], ""),
        (one("Available", "n1"), [user("a")], ["a"], "used it"),
        (one("Available", "n1"), [], ["a"], "used it"),
        (one("Succeeded", "n1", "a"), [], ["a"], ""),
        (one("Succeeded", "n1", "b"), [], ["a"], "it says ['b']"),
        (one("Available", "n1", "a", allocated="500m", **SHARED), [user("a", 0.5)], ["a"], ""),
        (
            one("Available", "n1", "a", allocated="1", **SHARED),
            [user("a", 0.5)],
            ["a"],
            "it says {'cpu': 1000}",
        ),
        (one("Available", "n1", **SHARED), [user("a", 0.5)], ["a"], "its owners are ['a']"),
        (one("Succeeded", "n1", "a", **SHARED), [], ["a"], "for several pods"),
    ],
)
def test_at_rest(body: Any, pods: list[Pod], ever: list[str], wrong: str) -> None:
    problems = reserved.wrong_at_rest(body, pods, ever, nodes=["n1"], lost=["gone"], now=NOW)
    assert wrong in " ".join(problems)
    assert bool(wrong) is bool(problems)


def test_only_who_left_no_trace_is_forgotten() -> None:
    watch, said = ReservedWatch(lambda _: None), one("Succeeded", "n1", "b")
    list(watch.see(one("Available", "n1"), None, gone=False))
    assert not list(watch.bound(user("a"), [], ()))
    watch.ended(user("a"), heard=True)
    assert list(watch.bound(user("b"), [], ())) == ["r: b uses it, and ['a'] did before"]
    watch.forgotten()
    list(watch.see(said, one("Available", "n1"), gone=False))
    watch.ended(user("b"), heard=True)
    watch.forgotten()
    assert list(watch.bound(user("c"), [], ())) == ["r: c uses it, and ['b'] did before"]


def test_histories_have_reservations_that_are_used() -> None:
    drawn = [one for one in map(history, range(100)) if one.world.reservations]
    assert 5 <= len(drawn) <= 25
    story = [line for one in drawn for line in play(one, story=True).story]
    for what in ("is Available", "is Succeeded", "which uses"):
        assert any(what in line for line in story)
