"""What a refused pod hears about policies: names where its namespace may see them, a number elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.refusals import in_the_way
from tests.ledger.builders import demand, ledger, node, pod

OTHERS = ["b/1", "c/1", "c/2", "d/1"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["a/x"], "holds of a/x are in the way"),
        (["a/y", "a/x"], "holds of a/x and a/y are in the way"),
        (["a/z", "a/y", "a/x"], "holds of a/x, a/y and a/z are in the way"),
        (["a/1", "a/2", "a/3", "a/4"], "holds of a/1, a/2, a/3 and 1 other are in the way"),
        (["a/x", "b/1"], "holds of a/x and 1 policy of another namespace are in the way"),
        (OTHERS[:1], "holds of 1 policy of another namespace are in the way"),
        (OTHERS[:3], "holds of 3 policies of other namespaces are in the way"),
        (OTHERS, "holds of more than 3 policies of other namespaces are in the way"),
    ],
)
def test_who_is_named(keys, message):
    assert in_the_way(keys, "a") == message


def test_a_pod_of_another_namespace_reads_no_name_in_filter_and_bind():
    secret = replace(demand("merger", 4), key="board/merger", namespace="board")
    made = ledger(node("n0"), secret)
    said = made.filter(pod("p", 1), ["n0"], 0.0).message, made.bind(pod("p", 1), "n0", 0.0).refusal
    assert said == ("holds of 1 policy of another namespace are in the way",) * 2
