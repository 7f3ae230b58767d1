"""The ladder: the best that works is used, and each better one is named with why it is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.network.ladder import SHAPES, Means, choose
from agent.network.probes import Finding, Technique
from qos.network.wanted import Direction

T = Technique
ALL = frozenset(Technique)


def findings(works: frozenset[Technique]) -> list[Finding]:
    return [Finding(one, one in works, "" if one in works else f"no {one.name}") for one in Technique]


@pytest.mark.parametrize(
    ("missing", "sending"),
    [
        (set(), Means.HTB_TCX),
        ({T.TCX}, Means.HTB_CLSACT),
        ({T.TCX, T.CLSACT}, Means.HTB_U32),
        ({T.BPF}, Means.HTB_U32),
        ({T.HTB}, Means.POLICER_TCX),
        ({T.HTB, T.TCX}, Means.POLICER_CLSACT),
        ({T.HTB, T.BPF}, Means.NONE),
        ({T.U32, T.BPF}, Means.NONE),
    ],
)
def test_sending(missing: set[Technique], sending: Means) -> None:
    assert choose(findings(ALL - missing)).sending.means is sending


@pytest.mark.parametrize(
    ("missing", "receiving", "pods"),
    [
        (set(), Means.IFB, Means.TBF),
        ({T.TCX}, Means.IFB, Means.TBF),
        ({T.REDIRECT, T.TBF}, Means.NONE, Means.POLICER_TCX),
        ({T.HTB}, Means.NONE, Means.TBF),
        ({T.BPF}, Means.NONE, Means.TBF),
        ({T.REDIRECT, T.TBF, T.TCX}, Means.NONE, Means.POLICER_CLSACT),
        ({T.REDIRECT, T.TBF, T.TCX, T.CLSACT}, Means.NONE, Means.NONE),
    ],
)
def test_receiving(missing: set[Technique], receiving: Means, pods: Means) -> None:
    choices = choose(findings(ALL - missing))
    assert (choices.receiving.means, choices.pods.means) == (receiving, pods)


@pytest.mark.parametrize(
    ("missing", "policed"),
    [
        (set(), {Direction.EGRESS}),
        ({T.TBF}, {Direction.EGRESS, Direction.INGRESS}),
        ({T.TCX}, {Direction.EGRESS}),
        ({T.BPF}, set()),
        ({T.BPF, T.TBF}, set()),
    ],
)
def test_policed(missing: set[Technique], policed: set[Direction]) -> None:
    assert choose(findings(ALL - missing)).policed == policed


def test_reasons_name_each_better_one() -> None:
    choices = choose(findings(ALL - {T.TCX, T.CLSACT, T.FQ_CODEL}))
    assert choices.sending.reasons == (
        "not htb, classified by a BPF program (TCX): tcx: no TCX",
        "not htb, classified by a BPF program (clsact): clsact: no CLSACT",
    )
    assert (choices.leaf, choices.leaf_reason) == ("bfifo", "fq_codel: no FQ_CODEL")
    everything = choose(findings(ALL))
    assert (everything.leaf, everything.leaf_reason, everything.sending.reasons) == ("fq_codel", "", ())


def test_what_was_not_tried_does_not_work() -> None:
    choices = choose([])
    assert {choices.sending.means, choices.receiving.means, choices.pods.means} == {Means.NONE}
    assert choices.sending.reasons[0].endswith("htb was not tried")
    assert choices.leaf == ""


@given(works=st.frozensets(st.sampled_from(Technique)), more=st.sampled_from(Technique))
def test_a_kernel_that_can_do_more_does_no_worse(works: frozenset[Technique], more: Technique) -> None:
    order = list(Means)
    less, rather = choose(findings(works)), choose(findings(works | {more}))
    for before, after in zip(
        (less.sending, less.receiving, less.pods),
        (rather.sending, rather.receiving, rather.pods),
        strict=True,
    ):
        assert order.index(after.means) <= order.index(before.means)
        assert len(after.reasons) <= len(before.reasons)
        assert (before.means in SHAPES) <= (after.means in SHAPES)
