"""Conditions, one row a case; and the status they stand in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender import status
from extender.guarding import GUARDED, Guard
from extender.status import Facts
from ledger.decisions import DemandReport, Unplaced
from qos import keys
from qos.api.policy import MinimalReservationPolicyStatus
from qos.api.upstream import LabelSelector
from qos.cluster.objects import Demand, PlacementMode, Requirement, Selector
from qos.cluster.policy import ScaleTarget
from qos.cluster.precedence import Problem
from tests.qos.builders import CHECKOUT, policy

NOW = 1_800_000_000.0
STAMP = "2027-01-15T08:00:00Z"
POLICY = policy()
DEMAND = Demand("shop/checkout", "shop", CHECKOUT, {"cpu": 2000, "pods": 1}, 4)
HELD = DemandReport("shop/checkout", desired=4, filled=1, held=3, holds=(("n1", 1), ("n2", 2)))
SHORT = replace(HELD, held=1, unplaced=(Unplaced(2, "Insufficient", "memory", 8 * 2**30),))
FACTS = Facts(POLICY, DEMAND, HELD, GUARDED)
TARGET = ScaleTarget("apps/v1", "Deployment", "checkout")
UNSCALED = replace(FACTS, policy=replace(POLICY, scale_target=TARGET, headroom=True), unscaled=True)
ENDING = replace(FACTS, policy=replace(POLICY, expires=NOW + 1))
ENDED = replace(FACTS, policy=replace(POLICY, expires=NOW))
PROBLEM = Problem("ProfileNotFound", "QoSProfile gold does not exist")


def conditions(facts: Facts) -> dict[str, tuple[str, str, str]]:
    return {one.type: (one.status, one.reason, one.message) for one in status.conditions(facts, NOW)}


CASES = [
    ("all is held", FACTS, keys.READY, ("True", "AsAsked")),
    ("all is held", FACTS, keys.FEASIBLE, ("True", "EverySlotHasAPlace")),
    ("all is held", FACTS, keys.HELD, ("True", "EverySlotHeld")),
    ("all is held", FACTS, keys.GUARDED, ("True", "Guarded")),
    ("all is held", FACTS, keys.SLOTS_USABLE, ("True", "NoOwnerWaits")),
    ("all is held", FACTS, keys.OVERLAPPING, ("False", "NoOverlap")),
    ("short", replace(FACTS, report=SHORT), keys.READY, ("False", "SlotsUnplaced")),
    ("short", replace(FACTS, report=SHORT), keys.FEASIBLE, ("False", "Insufficient")),
    ("short", replace(FACTS, report=SHORT), keys.HELD, ("False", "SlotsUnplaced")),
    ("problem", replace(FACTS, resolved=PROBLEM, report=None), keys.READY, ("False", "ProfileNotFound")),
    ("problem", replace(FACTS, resolved=PROBLEM, report=None), keys.FEASIBLE, ("Unknown", "ProfileNotFound")),
    ("problem", replace(FACTS, resolved=PROBLEM, report=None), keys.HELD, ("False", "ProfileNotFound")),
    ("grace", replace(FACTS, postponed=PROBLEM), keys.READY, ("False", "HeldByGrace")),
    ("grace", replace(FACTS, postponed=PROBLEM), keys.HELD, ("True", "EverySlotHeld")),
    ("new", replace(FACTS, report=None), keys.READY, ("Unknown", "NotComputed")),
    ("new", replace(FACTS, report=None), keys.FEASIBLE, ("Unknown", "NotComputed")),
    ("new", replace(FACTS, report=None), keys.HELD, ("Unknown", "NotComputed")),
    ("suspended", replace(FACTS, policy=replace(POLICY, suspend=True)), keys.READY, ("True", "Suspended")),
    ("suspended", replace(FACTS, policy=replace(POLICY, suspend=True)), keys.HELD, ("False", "Suspended")),
    ("ends later", ENDING, keys.READY, ("True", "AsAsked")),
    ("ends later", ENDING, keys.EXPIRED, ("False", "EndToCome")),
    ("ended", ENDED, keys.EXPIRED, ("True", "EndHasCome")),
    ("ended", ENDED, keys.READY, ("True", "Expired")),
    ("ended", ENDED, keys.HELD, ("False", "Expired")),
    ("unscaled", UNSCALED, keys.READY, ("False", "AutoscalerNotFound")),
    ("unread", replace(FACTS, unread="it may not"), keys.READY, ("False", "ScaleTargetUnread")),
    ("unread", replace(FACTS, unread="it may not"), keys.HELD, ("True", "EverySlotHeld")),
    ("unscaled", UNSCALED, keys.HELD, ("True", "EverySlotHeld")),
    ("overlap", replace(FACTS, overlap="shop/a"), keys.OVERLAPPING, ("True", "SelectorOverlap")),
    ("owner waits", replace(FACTS, waiting=1), keys.SLOTS_USABLE, ("False", "OwnersWait")),
    (
        "owner waits for what is not held",
        replace(FACTS, waiting=1, report=replace(HELD, held=0, filled=4)),
        keys.SLOTS_USABLE,
        ("True", "NoOwnerWaits"),
    ),
    (
        "unguarded",
        replace(FACTS, guard=Guard(False, "ExtenderAway", "x")),
        keys.GUARDED,
        ("False", "ExtenderAway"),
    ),
    (
        "cannot tell",
        replace(FACTS, guard=Guard(False, "NotBinding", "x", unknown=True)),
        keys.GUARDED,
        ("Unknown", "NotBinding"),
    ),
]


@pytest.mark.parametrize(
    ("facts", "kind", "expected"),
    [case[1:] for case in CASES],
    ids=[f"{case[0]}-{case[2]}" for case in CASES],
)
def test_condition(facts, kind, expected):
    assert conditions(facts)[kind][:2] == expected


@pytest.mark.parametrize(
    ("unplaced", "text"),
    [
        (Unplaced(2, "Insufficient", "memory", 8 * 2**30), "memory: 8Gi missing for 2 slots"),
        (Unplaced(1, "Insufficient", "cpu", 1500), "cpu: 1500m missing for 1 slot"),
        (
            Unplaced(3, "Insufficient", "j10ce.io/egress-bandwidth", 300_000_000),
            "j10ce.io/egress-bandwidth: 300M missing for 3 slots",
        ),
        (Unplaced(2, "Fragmented", "cpu", 2000), "cpu: 2 missing for 2 slots on any single node"),
        (Unplaced(3, "NoNode"), "no node is eligible for 3 slots"),
        (Unplaced(3, "MaxSlotsPerNode"), "every eligible node is at placement.maxSlotsPerNode for 3 slots"),
        (Unplaced(1, "CapReached"), "the installation-wide cap is reached for 1 slot"),
        (
            Unplaced(1, "CapReached", "cpu", 1000),
            "cpu: 1 missing for 1 slot under the installation-wide cap",
        ),
        (Unplaced(1, "Fragmented"), "there is room in all, but on no single node for 1 slot"),
        (
            Unplaced(2, "NodeCannotEnforce", detail="n1: has no NodeQoS: no agent has reported"),
            "nodes do not enforce every promise for 2 slots: n1: has no NodeQoS: no agent has reported",
        ),
        (
            Unplaced(2, "Spread", detail="zone: a 1"),
            "spread or pod affinity lets no more go where there is room, for 2 slots: zone: a 1",
        ),
    ],
)
def test_infeasible_names_the_dimension_and_the_amount(unplaced, text):
    report = replace(HELD, held=0, unplaced=(unplaced,))
    kind, reason, message = conditions(replace(FACTS, report=report))[keys.FEASIBLE]
    assert (kind, reason, message) == ("False", unplaced.reason, text)


def test_several_reasons_are_all_named_and_the_gravest_is_the_reason():
    report = replace(
        HELD, held=0, unplaced=(Unplaced(1, "CapReached"), Unplaced(2, "Insufficient", "cpu", 1))
    )
    _, reason, message = conditions(replace(FACTS, report=report))[keys.FEASIBLE]
    assert reason == "Insufficient"
    assert message == "the installation-wide cap is reached for 1 slot; cpu: 1m missing for 2 slots"


def test_the_status_is_what_the_crd_says():
    computed = status.compute(replace(FACTS, report=SHORT), NOW)
    MinimalReservationPolicyStatus.model_validate(computed)
    assert computed["observedGeneration"] == 3
    assert computed["selector"] == "app=checkout"
    assert computed["slots"] == {
        "desired": 4,
        "spare": 0,
        "filled": 1,
        "held": 1,
        "unplaced": 2,
        "consumed": 0,
    }
    assert computed["unplaced"] == [
        {"count": 2, "reason": "Insufficient", "resource": "memory", "missing": "8Gi"}
    ]
    assert computed["holds"] == [{"nodeName": "n2", "slots": 2}, {"nodeName": "n1", "slots": 1}]
    known = set(MinimalReservationPolicyStatus.model_json_schema(by_alias=True)["properties"])
    assert set(computed) <= known


def test_what_keeps_slots_off_nodes_is_shown_and_not_longer_than_the_crd_allows():
    unplaced = Unplaced(2, "NodeCannotEnforce", detail="x" * 2000)
    computed = status.compute(replace(FACTS, report=replace(HELD, unplaced=(unplaced,))), NOW)
    MinimalReservationPolicyStatus.model_validate(computed)
    assert computed["unplaced"] == [{"count": 2, "reason": "NodeCannotEnforce", "message": "x" * 1024}]


def test_the_twenty_largest_holds_are_shown_ties_by_name():
    holds = tuple((f"n{i:02d}", 1 + (i == 30)) for i in range(40))
    shown = status.compute(replace(FACTS, report=replace(HELD, holds=holds)), NOW)["holds"]
    assert [one["nodeName"] for one in shown] == ["n30", *(f"n{i:02d}" for i in range(19))]


def test_all_holds_of_a_pinned_policy_are_shown_as_far_as_the_crd_allows():
    holds = tuple((f"n{i:04d}", 1) for i in range(1_100))
    pinned = replace(POLICY, mode=PlacementMode.PINNED)
    computed = status.compute(replace(FACTS, policy=pinned, report=replace(HELD, holds=holds)), NOW)
    MinimalReservationPolicyStatus.model_validate(computed)
    assert len(computed["holds"]) == 1_000


def test_a_condition_keeps_its_time_while_its_status_stays():
    first = status.compute(FACTS, NOW)
    assert {one["lastTransitionTime"] for one in first["conditions"]} == {STAMP}
    seen = replace(POLICY, status=first)
    later = status.compute(replace(FACTS, policy=seen, report=SHORT), NOW + 60)
    times = {one["type"]: one["lastTransitionTime"] for one in later["conditions"]}
    assert times[keys.HELD] == "2027-01-15T08:01:00Z"
    assert times[keys.GUARDED] == STAMP


def test_t19_nothing_in_a_status_changes_while_nothing_changes():
    first = status.compute(FACTS, NOW)
    assert status.compute(replace(FACTS, policy=replace(POLICY, status=first)), NOW + 3600) == first


@pytest.mark.parametrize(
    ("requirements", "text"),
    [
        ((Requirement("app", "In", ("a",)),), "app=a"),
        ((Requirement("app", "In", ("a", "b")), Requirement("x", "Exists")), "app in (a,b),x"),
        ((Requirement("app", "NotIn", ("a",)), Requirement("x", "DoesNotExist")), "app notin (a),!x"),
    ],
)
def test_the_selector_as_kubectl_writes_it(requirements, text):
    assert status.selector_text(Selector(requirements)) == text


def notices(before: Facts | None, after: Facts) -> list[tuple[Any, ...]]:
    earlier = status.compute(before, NOW) if before else {}
    return [tuple(one)[:2] for one in status.notices(earlier, status.compute(after, NOW))]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, FACTS, []),
        (FACTS, FACTS, []),
        (FACTS, replace(FACTS, report=SHORT), [("Warning", "SlotsUnplaced")]),
        (replace(FACTS, report=SHORT), FACTS, [("Normal", "SlotsHeld")]),
        (FACTS, replace(FACTS, resolved=PROBLEM), [("Warning", "ProfileNotFound")]),
        (FACTS, replace(FACTS, guard=Guard(False, "ExtenderAway", "x")), [("Warning", "ExtenderAway")]),
        (replace(FACTS, guard=Guard(False, "ExtenderAway", "x")), FACTS, [("Normal", "Guarded")]),
        (
            replace(FACTS, guard=Guard(False, "ExtenderAway", "x")),
            replace(FACTS, guard=Guard(False, "PodsBypass", "y")),
            [("Warning", "PodsBypass")],
        ),
        (FACTS, replace(FACTS, overlap="shop/a"), [("Warning", "SelectorOverlap")]),
        (FACTS, replace(FACTS, waiting=2), [("Warning", "OwnersWait")]),
    ],
)
def test_events_tell_what_changed(before, after, expected):
    assert notices(before, after) == expected


def test_the_largest_selector_that_a_spec_may_have_fits_the_status():
    key, value = "p" * 253 + "/" + "n" * 63, "v" * 63
    labels = {f"{number:02d}{key[2:]}": value for number in range(32)}
    expression = {"key": key, "operator": "NotIn", "values": [value] * 64}
    LabelSelector.model_validate({"matchLabels": labels, "matchExpressions": [expression] * 32})
    exact = [Requirement(name, "In", (value,)) for name in labels]
    largest = Selector((*exact, *[Requirement(key, "NotIn", (value,) * 64)] * 32))
    computed = status.compute(replace(FACTS, policy=replace(POLICY, selector=largest)), NOW)
    MinimalReservationPolicyStatus.model_validate(computed)


def test_spare_slots_are_beside_those_that_are_desired():
    resolved = replace(DEMAND, desired=6, asked=4, spare=2)
    placed = replace(HELD, desired=6, held=5, survives=1)
    surviving = replace(FACTS, policy=replace(POLICY, survives=1), resolved=resolved, report=placed)
    computed = status.compute(surviving, NOW)
    assert (computed["slots"]["desired"], computed["slots"]["spare"]) == (4, 2)
    assert computed["survivesNodeFailures"] == 1
    assert "survivesNodeFailures" not in status.compute(FACTS, NOW)
