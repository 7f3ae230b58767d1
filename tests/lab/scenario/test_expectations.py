"""Checks judged against observations that were made up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.api import EVENTS, NODES, PODS, POLICIES
from lab.checker import Finding, Kind, Verdict
from lab.scenario.checks import Check
from lab.scenario.expectations import Facts, in_words, judge
from lab.scenario.observation import Observation
from lab.scenario.results import bound_requests, workload_result
from qos.keys import SCENARIO_WORKLOAD_LABEL


def pod(name: str, *, node: str = "", evicted: bool = False, phase: str = "Pending") -> bytes:
    """A pod of workload batch as the API server sends it."""
    conditions = [{"type": "DisruptionTarget", "status": "True"}] if evicted else []
    body: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "scenario",
            "uid": name,
            "resourceVersion": "1",
            "labels": {SCENARIO_WORKLOAD_LABEL: "batch"},
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}]},
        "status": {"phase": phase, "conditions": conditions},
    }
    if node:
        body["spec"]["nodeName"] = node
    return json.dumps(body).encode()


def policy(**status: Any) -> bytes:
    """A policy named checkout."""
    body = {"metadata": {"name": "checkout", "namespace": "scenario", "uid": "c"}, "status": status}
    return json.dumps(body).encode()


@pytest.fixture
def seen() -> Observation:
    """Three pods: bound after 2 s, waiting, evicted and gone; a policy; an event that was repeated."""
    observation = Observation("scenario")
    observation.see(PODS, pod("p1"), 100.0, deleted=False)
    observation.see(PODS, pod("p1", node="node-1"), 102.0, deleted=False)
    observation.see(PODS, pod("p2"), 101.0, deleted=False)
    observation.see(PODS, pod("p3", node="other-1"), 101.0, deleted=False)
    observation.see(PODS, pod("p3", node="other-1", evicted=True), 103.0, deleted=True)
    status = {
        "slots": {"desired": 5, "filled": 1, "held": 3, "unplaced": 1},
        "unplaced": [{"count": 1, "reason": "Insufficient", "resource": "memory", "missing": "4Gi"}],
        "holds": [{"nodeName": "node-1", "slots": 3}],
        "conditions": [
            {"type": "Held", "status": "False", "reason": "SlotsUnplaced", "message": "1 of 5 slots"}
        ],
    }
    observation.see(POLICIES, policy(**status), 103.0, deleted=False)
    event = {
        "metadata": {"name": "e", "uid": "e"},
        "reason": "SlotsUnplaced",
        "regarding": {"name": "checkout"},
        "series": {"count": 4},
    }
    observation.see(EVENTS, json.dumps(event).encode(), 103.0, deleted=False)
    node = {"metadata": {"name": "node-1", "uid": "n"}, "status": {}}
    observation.see(NODES, json.dumps(node).encode(), 100.0, deleted=False)
    return observation


TRUE: list[dict[str, Any]] = [
    {"pods": {"workload": "batch", "created": 3, "bound": 1, "pending": 1, "everBound": 2}},
    {"pods": {"workload": "batch", "boundWithin": "2s", "onNodes": "node-"}},
    {
        "policy": {
            "name": "checkout",
            "desired": 5,
            "filled": 1,
            "held": {"atLeast": 2, "atMost": 3},
            "unplaced": 1,
        }
    },
    {"policy": {"name": "checkout", "why": [{"reason": "Insufficient", "count": 1, "missing": "4Gi"}]}},
    {"policy": {"name": "checkout", "heldOn": "node-", "notHeldOn": "other"}},
    {
        "policy": {
            "name": "checkout",
            "conditions": [{"type": "Held", "status": "False", "message": "1 of 5"}],
        }
    },
    {"event": {"reason": "SlotsUnplaced", "about": "check", "count": 4}},
    {"event": {"reason": "SlotsUnplaced"}},
    {"evictions": 1},
    {"refusedAlthoughTheyFit": ["batch"]},
]
FALSE: list[tuple[dict[str, Any], str]] = [
    ({"pods": {"workload": "batch", "bound": 2}}, "bound 1"),
    ({"pods": {"workload": "batch", "boundWithin": "1s"}}, "slowest bind 2.00 s"),
    ({"pods": {"workload": "batch", "onNodes": "other"}}, "scenario/p1 is on node-1"),
    ({"policy": {"name": "checkout", "held": 4}}, "held 3"),
    (
        {"policy": {"name": "checkout", "why": [{"reason": "Fragmented"}]}},
        "unplaced 1 Insufficient memory 4Gi",
    ),
    ({"policy": {"name": "checkout", "heldOn": "other"}}, "held on node-1"),
    ({"policy": {"name": "checkout", "notHeldOn": "node"}}, "held on node-1"),
    ({"policy": {"name": "checkout", "heldWhereRemembered": True}}, "held on node-1, before on "),
    (
        {"policy": {"name": "checkout", "conditions": [{"type": "Held", "status": "True"}]}},
        "Held is False, SlotsUnplaced: 1 of 5 slots",
    ),
    (
        {"policy": {"name": "checkout", "conditions": [{"type": "Gone", "status": "True"}]}},
        "no condition Gone",
    ),
    ({"policy": {"name": "unknown", "held": 0}}, "has no status"),
    ({"event": {"reason": "Nothing"}}, "events 0"),
    ({"evictions": {"atMost": 0}}, "evictions 1"),
    ({"floors": {"lapsed": 0}}, "no verdict before the end"),
]


@pytest.mark.parametrize("check", TRUE, ids=str)
def test_what_is_true(check: dict[str, Any], seen: Observation) -> None:
    answer = judge(Check.model_validate(check), Facts(seen))
    assert answer.true, answer.saw


@pytest.mark.parametrize(("check", "saw"), FALSE, ids=str)
def test_what_is_not_says_what_was_seen(check: dict[str, Any], saw: str, seen: Observation) -> None:
    answer = judge(Check.model_validate(check), Facts(seen))
    assert not answer.true
    assert saw in answer.saw


def test_a_remembered_place(seen: Observation) -> None:
    seen.remember("checkout")
    check = Check.model_validate({"policy": {"name": "checkout", "heldWhereRemembered": True}})
    assert judge(check, Facts(seen)).true
    seen.see(POLICIES, policy(slots={}, holds=[{"nodeName": "node-2", "slots": 1}]), 104.0, deleted=False)
    assert not judge(check, Facts(seen)).true


def test_pods_that_were_refused_although_they_fit(seen: Observation) -> None:
    check = Check.model_validate({"refusedAlthoughTheyFit": ["batch"]})
    answer = judge(check, Facts(seen, {"batch": ["scenario/p2 fits on node-1"]}))
    assert (answer.true, answer.saw) == (False, "scenario/p2 fits on node-1")


def test_the_checkers_notes_can_be_expected(seen: Observation) -> None:
    verdict = Verdict((Finding(Kind.LAPSED, 1.0, "lapsed"),), binds=3, bypasses=2)
    facts = Facts(seen, verdict=verdict)
    assert judge(Check.model_validate({"floors": {"lapsed": 1, "bypassed": 2, "outranked": 0}}), facts).true
    assert judge(Check.model_validate({"floors": {"bypassed": 0}}), facts).saw == "bypassed 2"


def test_slots_are_promised_when_the_checker_says_so_whatever_the_status() -> None:
    unwritten = Observation("scenario")
    check = Check.model_validate({"policy": {"name": "checkout", "promised": 3}})
    assert judge(check, Facts(unwritten)).saw == "promised 0"
    assert judge(check, Facts(unwritten, promised={"scenario/checkout": 3})).true
    both = Check.model_validate({"policy": {"name": "checkout", "promised": 3, "held": 3}})
    assert not judge(both, Facts(unwritten, promised={"scenario/checkout": 3})).true


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ({"pods": {"workload": "batch", "bound": {"atLeast": 2}}}, "pods of batch: bound at least 2"),
        ({"policy": {"name": "checkout", "held": 3}}, "policy checkout: held 3"),
        ({"evictions": 2}, "evictions: 2"),
        ({"event": {"reason": "SlotsHeld"}}, "event SlotsHeld: at least 1"),
        ({"evictions": 0, "says": "nobody is evicted"}, "nobody is evicted"),
    ],
)
def test_checks_in_words(check: dict[str, Any], words: str) -> None:
    assert in_words(Check.model_validate(check)) == words


def test_other_namespaces_are_not_seen(seen: Observation) -> None:
    other = pod("p9").replace(b'"scenario"', b'"default"')
    seen.see(PODS, other, 105.0, deleted=False)
    assert "p9" not in seen.pods


def test_the_account_of_a_workload(seen: Observation) -> None:
    result = workload_result("batch", seen.workload("batch"))
    assert (result.created, result.bound, result.waiting, result.ever_bound) == (3, 1, 1, 2)
    assert (result.median_seconds, result.slowest_seconds) == (1.0, 2.0)
    assert bound_requests(seen) == {"cpu": 500, "pods": 1}
