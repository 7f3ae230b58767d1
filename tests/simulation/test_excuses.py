"""What the watcher excuses is no more than its reason says: a mistake beside it is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import ledger.headcount
from extender import wire
from qos.cluster.selectors import matches
from simulation.generator import history
from simulation.history import History, World, load
from simulation.mutations import MUTATIONS
from simulation.play import play

FLOOR = {"floor": {"resources": {"cpu": "500m"}}}
PREEMPTS = History(
    World(1, mode="Guard", binds=False, dying=0.5, latency=0.01, lag=0.002),
    (
        (0.0, "node", ("n0", 2000, 8192, 20)),
        (0.0, "node", ("n1", 250, 8192, 20)),
        (0.0, "static", ("p1", 1500, 64, "n0")),
        (0.3, "policy", ("a", {**FLOOR, "slots": {"count": 3}, "priorityClassName": "high"})),
        (4.0, "pod", ("p2", 1000, 64, 10)),
    ),
)
"""A pod evicts another on n0, where a hold would take the room that is not kept for it."""


def test_a_preemption_leads_to_a_bind() -> None:
    outcome = play(PREEMPTS, story=True)
    assert not outcome.broken
    assert [line for line in outcome.story if "p2 preempts p1 on n0" in line]


def test_a_node_that_is_not_ready_excuses_no_preemption_of_pods_that_have_no_policy_there() -> None:
    larger = (0.05, "pod", ("p2", 1750, 64, 10))
    lost = replace(PREEMPTS, steps=(*PREEMPTS.steps[:-1], (4.0, "node-ready", ("n1", False)), larger))
    assert not play(lost).broken
    keeps_all = next(one for one in MUTATIONS if one.about == "preempt keeps hopeless candidates")
    with keeps_all.planted():
        assert play(lost).rules == {"evictions lead to binds"}


def test_an_answer_to_preempt_that_names_others_is_no_missing_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    right = wire.preemption_result
    monkeypatch.setattr(
        wire, "preemption_result", lambda kept: right({node: (["nobody"], 0) for node in kept})
    )
    assert "protocol" in play(PREEMPTS).rules


def test_who_was_shown_a_sample_and_is_not_woken_for_others_waits_in_vain() -> None:
    one = history(94)
    assert one.world.sample
    wakes_nobody = next(one for one in MUTATIONS if one.about == "who was shown a sample is not woken")
    with wakes_nobody.planted():
        assert play(one).rules == {"nobody waits for ever"}


UNHEARD = load(Path(__file__).parent / "histories" / "end-of-an-owner-not-heard-of.json")
*_BEFORE, _POD, _ENDS = UNHEARD.steps
_ENDS_LONG_BEFORE = ((_POD[0], *_ENDS[1:]), (0.1, *_POD[1:]))


def _who_ends_counts_for_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger.headcount, "_counts", lambda pod, kind: matches(kind[0], pod.labels))


def test_that_an_owner_ends_is_no_excuse_once_the_extender_has_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = replace(UNHEARD, steps=(*_BEFORE, *_ENDS_LONG_BEFORE))
    assert not play(heard).broken
    _who_ends_counts_for_spread(monkeypatch)
    assert play(heard).rules == {"FloorBroken"}


def test_the_end_of_a_pod_that_no_spread_of_the_policy_counts_is_no_excuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unheard = (_ENDS[0], "crash", ("a", 0, 1.0))
    other = replace(UNHEARD, steps=(*_BEFORE, *_ENDS_LONG_BEFORE, unheard))
    assert not play(other).broken
    _who_ends_counts_for_spread(monkeypatch)
    assert play(other).rules == {"FloorBroken"}
