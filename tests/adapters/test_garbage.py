"""While a cluster is listed no full collection stops the loop; afterwards all is as usual."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest

from adapters.garbage import Keeper, only_young


def full_collections(objects: int) -> int:
    """The number of full collections while so many objects are made and kept."""
    seen = 0

    def count(phase: str, info: dict[str, Any]) -> None:
        nonlocal seen
        seen += phase == "stop" and info["generation"] == 2

    gc.callbacks.append(count)
    try:
        kept = [[number] for number in range(objects)]
        assert len(kept) == objects
    finally:
        gc.callbacks.remove(count)
    return seen


def test_a_list_is_taken_without_full_collections() -> None:
    many = 600_000
    assert full_collections(many) > 0
    with only_young():
        assert full_collections(many) == 0


def test_what_is_young_is_collected_all_the_same() -> None:
    class Ring:
        made = 0

        def __init__(self) -> None:
            self.me = self
            Ring.made += 1

        def __del__(self) -> None:
            Ring.made -= 1

    with only_young():
        for _ in range(100_000):
            Ring()
        assert Ring.made < 20_000
    gc.collect()


def test_afterwards_it_is_as_before_also_when_a_start_is_cut_short() -> None:
    usual = gc.get_threshold()
    with pytest.raises(KeyError), only_young(), only_young():
        raise KeyError
    assert gc.get_threshold() == usual


def test_what_was_kept_is_not_looked_at_again_and_goes_when_nothing_refers_to_it() -> None:
    class Pod:
        pass

    pods = [Pod() for _ in range(1_000)]
    last = weakref.ref(pods[-1])
    try:
        Keeper().keep()
        assert not [one for one in gc.get_objects() if isinstance(one, Pod)]
        pods.clear()
        assert last() is None
    finally:
        gc.unfreeze()


def test_rings_that_have_come_since_are_collected() -> None:
    class Ring:
        def __init__(self) -> None:
            self.me = self

    ring = weakref.ref(Ring())
    try:
        Keeper().keep()
        assert ring() is None
    finally:
        gc.unfreeze()


def test_rings_that_were_kept_are_collected_when_twice_as_much_lives() -> None:
    class Ring:
        def __init__(self) -> None:
            self.me = self

    keeper = Keeper(small=0)
    try:
        keeper.keep()
        at_first = sys.getallocatedblocks()
        rings = [Ring() for _ in range(1_000)]
        last = weakref.ref(rings[-1])
        keeper.keep()
        rings.clear()
        keeper.keep()
        assert last() is not None
        rings = [Ring() for _ in range(at_first + 1)]
        keeper.keep()
        assert last() is None
    finally:
        gc.unfreeze()
