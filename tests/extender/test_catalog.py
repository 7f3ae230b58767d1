"""What policies refer to may be deleted and made again: nothing is released before the grace is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.catalog import Catalog
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.policy import Profile, ScaleTarget, Workload
from tests.ledger.builders import node
from tests.qos.builders import policy

GRACE = 60.0
KEY = "shop/checkout"
PROFILE = Profile("gold", "LS")
TARGET = ScaleTarget("apps/v1", "Deployment", "checkout")
WORKLOAD = Workload(
    "shop", "Deployment", "checkout", 2, {"cpu": 1000, "pods": 1}, selected={"app": "checkout"}
)


class Desk:
    """A catalog before a ledger, with one policy that refers to all there is."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.ledger = Ledger(Mode.GUARD, cap_percent=100)
        self.ledger.set_node(node("n0", 64, 64))
        self.catalog = Catalog(self.ledger, lambda: None, clock=clock, grace=GRACE)
        self.catalog.set_profile(PROFILE)
        self.catalog.set_priority_class("high", 1000, False)
        self.catalog.set_workload(WORKLOAD)
        self.catalog.open()
        self.catalog.set_policy(
            replace(
                policy(),
                profile_name="gold",
                priority_class_name="high",
                count=None,
                scale_target=TARGET,
                floor={"cpu": 1000},
            )
        )

    def held(self) -> int:
        report = self.ledger.report().get(KEY)
        return report.held if report else 0

    def delete(self, what: str) -> None:
        match what:
            case "ProfileNotFound":
                self.catalog.remove_profile("gold")
            case "PriorityClassNotFound":
                self.catalog.remove_priority_class("high")
            case _:
                self.catalog.remove_workload("shop", "Deployment", "checkout")

    def make(self, what: str) -> None:
        match what:
            case "ProfileNotFound":
                self.catalog.set_profile(PROFILE)
            case "PriorityClassNotFound":
                self.catalog.set_priority_class("high", 1000, False)
            case _:
                self.catalog.set_workload(WORKLOAD)

    def problem(self) -> str:
        postponed = self.catalog.postponed.get(KEY)
        return postponed.reason if postponed else ""


@pytest.fixture
def desk(clock) -> Desk:
    return Desk(clock)


WHAT = ("ProfileNotFound", "PriorityClassNotFound", "WorkloadNotFound")


@pytest.mark.parametrize("what", WHAT)
def test_what_is_deleted_and_made_again_costs_no_hold(desk, what):
    demand = desk.catalog.resolved[KEY]
    desk.delete(what)
    assert (desk.held(), desk.problem()) == (2, what)
    desk.clock.advance(GRACE - 1)
    desk.catalog.expire()
    desk.make(what)
    assert (desk.held(), desk.problem()) == (2, "")
    desk.clock.advance(10 * GRACE)
    desk.catalog.expire()
    assert desk.held() == 2
    assert desk.catalog.resolved[KEY] is demand


@pytest.mark.parametrize("what", WHAT)
def test_when_the_grace_is_over_nothing_is_held(desk, what):
    desk.delete(what)
    desk.clock.advance(GRACE)
    desk.catalog.expire()
    assert (desk.held(), desk.problem()) == (0, "")
    assert desk.catalog.resolved[KEY].reason == what


def test_what_is_made_again_with_other_words_counts_at_once(desk):
    desk.delete("WorkloadNotFound")
    desk.catalog.set_workload(replace(WORKLOAD, replicas=5))
    assert (desk.held(), desk.problem()) == (5, "")


def test_a_policy_that_is_deleted_releases_at_once(desk):
    desk.delete("WorkloadNotFound")
    desk.catalog.remove_policy(KEY)
    assert (desk.held(), desk.problem()) == (0, "")
