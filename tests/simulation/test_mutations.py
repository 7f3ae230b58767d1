"""The simulation is shown to find mistakes; `make simulate MUTATIONS=1` tries all of them."""

from __future__ import annotations

import pytest

from simulation.generator import history
from simulation.mutations import MUTATIONS, caught


def test_every_mistake_is_about_something_that_is_there() -> None:
    assert len(MUTATIONS) >= 12
    for mutation in MUTATIONS:
        right = getattr(mutation.where, mutation.name)
        with mutation.planted():
            assert getattr(mutation.where, mutation.name) is not right
        assert getattr(mutation.where, mutation.name) is right


@pytest.mark.parametrize("about", ["a pod that is gone keeps its claim", "holds in excess are not lifted"])
def test_a_mistake_is_found_within_a_few_seeds(about: str) -> None:
    mutation = next(one for one in MUTATIONS if one.about == about)
    assert caught(mutation, 5)[0]


def test_what_may_be_taken_is_not_taken() -> None:
    """Issue 10, 2.1: binds are slow, many pods are in flight, owners crash."""
    mutation = next(one for one in MUTATIONS if one.about == "what pods in flight may take counts as taken")
    assert history(19).about.endswith("slow binds")
    assert caught(mutation, 1, 19) == (1, "FloorBroken")
