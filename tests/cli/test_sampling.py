"""How many nodes kube-scheduler names to an extender, and what is recommended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import sampling


@pytest.mark.parametrize(
    ("nodes", "percentage", "names"),
    [(50, 0, 50), (99, 5, 99), (100, 0, 100), (1_000, 0, 420), (1_000, 5, 100), (5_000, 0, 500),
     (5_000, 2, 100), (15_000, 0, 750), (15_000, 2, 300), (15_000, 100, 15_000)],
)  # fmt: skip
def test_as_kube_scheduler_counts(nodes: int, percentage: int, names: int) -> None:
    assert sampling.names(nodes, percentage) == names


@given(st.integers(0, 20_000))
def test_what_is_recommended_never_names_more(nodes: int) -> None:
    wanted = sampling.recommended(nodes)
    assert sampling.names(nodes, wanted) <= sampling.names(nodes, 0)
    assert sampling.names(nodes, wanted) <= 430


def test_it_says_what_to_change_only_where_that_helps() -> None:
    assert "--percentage-of-nodes-to-score=5 makes that 100" in sampling.said(1_000, 0)
    assert "--percentage-of-nodes-to-score=2 makes that 100" in sampling.said(5_000, 5)
    for nodes, percentage in ((999, 0), (1_000, 5), (5_000, 2), (1_000, 3), (50, 40)):
        assert "--percentage" not in sampling.said(nodes, percentage)
