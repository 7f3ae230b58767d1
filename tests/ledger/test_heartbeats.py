"""Events of running pods that tell nothing new: most of what a large cluster's watch brings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.decisions import Mode
from tests.ledger.builders import demand, holds, ledger, nodes, pod

RUNS = pod("p", 4, node="n0", phase="Running")


def test_a_heartbeat_changes_nothing() -> None:
    made = ledger(*nodes(2), demand("a", 2, 4))
    assert made.set_pod(RUNS)
    assert not made.set_pod(replace(RUNS, labels=dict(RUNS.labels)))
    assert made.gauges()["claimed/cpu"] == 4000


@pytest.mark.parametrize(
    "change",
    [
        {"requests": {"cpu": 2000, "pods": 1}},
        {"labels": {"app": "other"}},
        {"deleting": True},
        {"phase": "Succeeded"},
    ],
)
def test_a_change_is_one(change: dict[str, object]) -> None:
    made = ledger(*nodes(2), RUNS)
    assert made.set_pod(replace(RUNS, **change))
    assert not made.set_pod(replace(RUNS, **change))


def test_a_pod_that_ended_is_known_to_have_ended() -> None:
    made = ledger(*nodes(1), RUNS)
    ended = replace(RUNS, phase="Succeeded")
    assert made.set_pod(ended)
    assert made.gauges()["claims"] == 0
    assert not made.set_pod(ended)
    assert made.set_pod(RUNS), "a list that is older: the last word wins"
    assert made.gauges()["claims"] == 1


def test_t06_a_confirmed_binding_is_news_until_the_watch_shows_it() -> None:
    made = ledger(*nodes(1), demand("a", 1, 4))
    made.set_pod(pod("p", 4))
    made.bind(pod("p", 4), "n0", 0.0)
    made.bound("p", "n0")
    assert made.gauges()["claims_unseen"] == 1
    assert made.set_pod(pod("p", 4, node="n0"))
    assert made.gauges()["claims_unseen"] == 0
    assert not made.set_pod(pod("p", 4, node="n0"))


def test_t09_a_late_answer_for_a_pod_that_runs_charges_nothing_that_a_heartbeat_would_have_to_settle() -> (
    None
):
    made = ledger(*nodes(2), demand("a", 4, 4), RUNS, binds=False)
    made.filter(replace(RUNS, node_name="", phase="Pending"), ["n1"], 0.0)
    assert made.gauges()["in_flight"] == 0
    assert not made.set_pod(RUNS)
    assert holds(made, "a")


@pytest.mark.parametrize("binds", [True, False])
def test_a_late_answer_for_a_pod_that_has_ended_is_settled_by_the_next_word_of_it(binds: bool) -> None:
    ended = replace(RUNS, phase="Succeeded")
    made = ledger(*nodes(2), ended, binds=binds, mode=Mode.GUARD)
    made.filter(replace(RUNS, node_name="", phase="Pending"), ["n1"], 0.0)
    assert made.gauges()["in_flight"] == 1
    assert made.set_pod(ended)
    assert made.gauges()["in_flight"] == 0
