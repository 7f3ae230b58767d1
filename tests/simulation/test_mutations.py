"""The simulation is shown to find mistakes; `make simulate MUTATIONS=1` tries all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.generator import history
from simulation.history import load
from simulation.mutations import MUTATIONS, caught
from simulation.placeholder_mutations import OF_PLACEHOLDERS
from simulation.play import play


def test_every_mistake_is_about_something_that_is_there() -> None:
    assert len(MUTATIONS) >= 12
    for mutation in (*MUTATIONS, *OF_PLACEHOLDERS):
        right = getattr(mutation.where, mutation.name)
        with mutation.planted():
            assert getattr(mutation.where, mutation.name) is not right
        assert getattr(mutation.where, mutation.name) is right


@pytest.mark.parametrize(
    "about",
    ["a pod that is gone keeps its claim", "holds in excess are not lifted", "holds are placed in any zone"],
)
def test_a_mistake_is_found_within_a_few_seeds(about: str) -> None:
    mutation = next(one for one in MUTATIONS if one.about == about)
    assert caught(mutation, 5)[0]


@pytest.mark.parametrize(
    "about",
    ["owners are not nominated", "owners are not gated", "gates are not lifted"],
)
def test_a_mistake_in_keeping_placeholders_is_found_within_a_few_seeds(about: str) -> None:
    mutation = next(one for one in OF_PLACEHOLDERS if one.about == about)
    assert caught(mutation, 6)[0]


OF_ONE_SEED = [
    (11, "nobody makes room for who waits"),
    (13, "no hold moves for who was refused"),
    (56, "a hand-over that failed keeps its claim"),
    (50, "the answer to a create counts more than the watch"),
    (47, "a hold's room is lost to whom it moved for"),
    (55, "placeholders go before kubelet refuses"),
    (369, "placeholders go by what was decided before"),
    (426, "owners come beside placeholders that are to go"),
]


@pytest.mark.parametrize(("seed", "about"), OF_ONE_SEED, ids=[about for _, about in OF_ONE_SEED])
def test_a_seed_shows_a_mistake_in_keeping_placeholders(seed: int, about: str) -> None:
    mutation = next(one for one in OF_PLACEHOLDERS if one.about == about)
    assert caught(mutation, 1, seed)[0]


def test_a_history_shows_that_places_are_handed_over_where_others_stand() -> None:
    mutation = next(
        one for one in OF_PLACEHOLDERS if one.about == "places where others stand are handed over"
    )
    made = load(Path(__file__).parent / "histories" / "scaled-up-beside-who-stands-by.json")
    with mutation.planted():
        assert play(made).rules == {"nobody is evicted"}


NARROW = [
    (25, "slow binds", "what pods in flight may take counts as taken"),
    (22, "late binds", "bind does not check again"),
    (21, "late binds", "a Binding without an answer is taken for lost"),
    (8, "victims that linger", "bind waits for no victims"),
    (1, "lost nodes", "holds stay on lost nodes"),
]


@pytest.mark.parametrize(("seed", "theme", "about"), NARROW, ids=[about for *_, about in NARROW])
def test_a_narrow_theme_finds_what_it_is_for(seed: int, theme: str, about: str) -> None:
    mutation = next(one for one in MUTATIONS if one.about == about)
    assert history(seed).about.endswith(theme)
    assert caught(mutation, 1, seed)[0]
