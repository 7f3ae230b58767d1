"""Packing and its refutation against brute force."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from lab.packing import UNBOUNDED, Want, pack, refuted, room


def test_room_counts_whole_slots_in_the_scarcest_dimension() -> None:
    assert room({"cpu": 5, "memory": 9}, {"cpu": 2, "memory": 3}) == 2
    assert room({"cpu": -1}, {"cpu": 2}) == 0
    assert room({}, {"gpu": 1}) == 0


def wanted(count: int, vector: tuple[int, int], names: list[str], limit: int) -> Want:
    return Want(str(vector), {"cpu": vector[0], "memory": vector[1]}, count, dict.fromkeys(names, limit))


def possible(free: dict[str, dict[str, int]], wants: list[Want]) -> bool:
    """Slot by slot, every node."""
    slots = [want for want in wants for _ in range(want.count)]
    names = sorted(free)

    @cache
    def place(index: int, left: tuple[tuple[int, int], ...], used: tuple[tuple[str, str], ...]) -> bool:
        if index == len(slots):
            return True
        want = slots[index]
        for at, (cpu, memory) in enumerate(left):
            here = sum(1 for key, name in used if (key, name) == (want.key, names[at]))
            cpu, memory = cpu - want.vector["cpu"], memory - want.vector["memory"]
            if cpu >= 0 and memory >= 0 and here < want.room.get(names[at], 0):
                after = (*left[:at], (cpu, memory), *left[at + 1 :])
                if place(index + 1, after, tuple(sorted((*used, (want.key, names[at]))))):
                    return True
        return False

    return place(0, tuple((free[n]["cpu"], free[n]["memory"]) for n in names), ())


NODES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=3)
WANTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 2, UNBOUNDED])),
    min_size=1,
    max_size=3,
    unique_by=lambda want: want[1:3],
)


@settings(max_examples=150, deadline=None)
@given(nodes=NODES, asked=WANTS)
def test_proofs_are_right(nodes: list[tuple[int, int]], asked: list[tuple[int, int, int, int]]) -> None:
    free = {f"n{i}": {"cpu": cpu, "memory": memory} for i, (cpu, memory) in enumerate(nodes)}
    wants = [wanted(count, (cpu, memory), list(free), limit) for count, cpu, memory, limit in asked]
    can = possible(free, wants)
    packed = pack(free, wants)
    if all(packed.count(want.key) == want.count for want in wants):
        assert can
    # With so few nodes the search is never cut short, so the refutation is exact.
    assert refuted(free, wants) == (not can)


def test_a_search_that_is_cut_short_refutes_nothing() -> None:
    free = {f"n{i}": {"cpu": 5, "memory": 50} for i in range(6)}
    wants = [wanted(9, (2, 1), list(free), UNBOUNDED), wanted(4, (3, 2), list(free), UNBOUNDED)]
    assert refuted(free, wants)
    assert not refuted(free, wants, steps=3)
