"""Memory protection along the hierarchy, against the simulator of the kernel's rules."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.kernel_rules import protection
from qos.plan.node import Level, Rival
from qos.plan.protection import LOW, MIN, MemoryDemand, keep_memory

PAGE = 4096
MI = 2**20
AMOUNTS = st.one_of(st.integers(1, 4096 * MI), st.integers(1, 4096).map(lambda mib: mib * MI))
RIVALS = st.lists(st.builds(Rival, st.just(100), memory_min=st.one_of(st.just(0), AMOUNTS)), max_size=4).map(
    tuple
)


@st.composite
def cases(draw):
    """Levels, the container's amount, its pod's, the node's memory."""
    depth = draw(st.integers(1, 5))
    owned = draw(st.integers(1, min(2, depth)))
    levels = [
        Level(
            f"/{index}",
            100,
            draw(RIVALS),
            owned=index >= depth - owned,
            memory_min=draw(st.sampled_from([0, 0, 64 * MI, 1024 * MI])),
            memory_max=draw(st.one_of(st.none(), st.none(), AMOUNTS)),
        )
        for index in range(depth)
    ]
    amount = draw(AMOUNTS)
    pod = amount + draw(st.one_of(st.just(0), AMOUNTS))
    return levels, amount, pod, draw(st.sampled_from([2**30, 2**35, 2**40]))


@settings(deadline=None)
@given(cases(), st.booleans())
def test_the_floor_is_kept_or_at_least_what_is_missing_is_said(tree_of, case, recursive):
    levels, amount, pod, memory = case
    kept = keep_memory(levels, memory, PAGE, MemoryDemand(MIN, amount, pod))
    planned = {one.number: one.amount for one in kept.protected}
    tree = tree_of(levels, protection=planned, usage=amount * 2 + PAGE)
    effective = protection(tree, recursive=recursive, memory=memory)["level0"]
    missing = 0 if kept.shortfall is None else kept.shortfall.missing
    assert effective >= amount - missing
    if kept.shortfall is not None:
        assert missing > 0
        assert kept.shortfall.kept >= 0
        assert kept.shortfall.group == levels[len(levels) - 1 - kept.shortfall.level].path


@settings(deadline=None)
@given(cases(), st.booleans())
def test_no_sibling_loses_protection_that_it_has_of_what_is_promised(tree_of, case, recursive):
    levels, amount, pod, _ = case
    kept = keep_memory(levels, 2**50, PAGE, MemoryDemand(MIN, amount, pod))
    planned = {one.number: one.amount for one in kept.protected}
    before_tree = tree_of(
        levels,
        usage=amount * 2 + PAGE,
        protection={len(levels) - 1 - index: level.memory_min for index, level in enumerate(levels)},
    )
    before = protection(before_tree, recursive=recursive)
    after = protection(tree_of(levels, protection=planned, usage=amount * 2 + PAGE), recursive=recursive)
    for index, level in enumerate(levels):
        if level.memory_max is not None or any(above.memory_max is not None for above in levels[:index]):
            return  # below a limit more protection for one is less for another; the plan says so
        for position, rival in enumerate(level.rivals):
            name = f"rival{len(levels) - 1 - index}.{position}"
            assert after[name] >= min(before[name], rival.memory_min)


@settings(deadline=None)
@given(cases())
def test_amounts_are_whole_pages_and_parents_have_what_their_children_claim(case):
    levels, amount, pod, memory = case
    protected = keep_memory(levels, memory, PAGE, MemoryDemand(MIN, amount, pod)).protected
    assert [one.number for one in protected] == list(range(len(levels) - 1, -1, -1))
    for parent, child in pairwise(protected):
        claimed = sum(-(-rival.memory_min // PAGE) * PAGE for rival in child.level.rivals)
        assert parent.amount >= child.amount + claimed
    for one in protected:
        assert one.amount % PAGE == 0
    assert 0 <= protected[-1].amount - amount < PAGE


def test_every_ancestor_gets_what_others_below_need_too():
    levels = [
        Level("/kubepods", 100, (Rival(100, memory_min=MI),)),
        Level("/kubepods/burstable", 100, (Rival(1, memory_min=2 * MI),)),
        Level("/kubepods/burstable/pod", 100, (Rival(4, memory_min=4 * MI),), owned=True),
        Level("/kubepods/burstable/pod/c", 100, (Rival(1),), owned=True),
    ]
    kept = keep_memory(levels, 2**30, PAGE, MemoryDemand(MIN, 8 * MI, 16 * MI))
    assert [one.amount // MI for one in kept.protected] == [22, 20, 16, 8]
    assert [one.of_others // MI for one in kept.protected] == [6, 4, 0, 0]
    assert kept.shortfall is None


def test_floors_that_a_level_names_count_by_the_classs_percentage():
    levels = [Level("/all", 100, floor_memory=100 * MI), Level("/all/c", 100, owned=True)]
    kept = keep_memory(levels, 2**30, PAGE, MemoryDemand(LOW, MI, MI, percent=50))
    assert [one.amount // MI for one in kept.protected] == [50, 1]


def test_a_container_without_a_part_leaves_its_pods():
    levels = [Level("/pod", 100, owned=True), Level("/pod/c", 100, owned=True)]
    kept = keep_memory(levels, 2**30, PAGE, MemoryDemand(MIN, 0, MI))
    assert [(one.number, one.amount) for one in kept.protected] == [(1, MI)]


@pytest.mark.parametrize(
    ("levels", "level", "kept", "why"),
    [
        ([Level("/a", 1, memory_max=3 * MI), Level("/a/c", 1, owned=True)], 1, 3, "limit of /a is 3Mi"),
        (
            [Level("/a", 1, (Rival(1, memory_min=9 * MI),)), Level("/a/c", 1, owned=True)],
            1,
            1,
            "10Mi are all",
        ),
        (
            [Level("/a", 1, memory_max=8 * MI), Level("/a/c", 1, (Rival(1, memory_min=6 * MI),), owned=True)],
            1,
            2,
            "limit of /a",
        ),
    ],
)
def test_what_cannot_be_kept_is_named(levels, level, kept, why):
    shortfall = keep_memory(levels, 10 * MI, PAGE, MemoryDemand(MIN, 4 * MI, 4 * MI)).shortfall
    assert shortfall is not None
    assert (shortfall.resource, shortfall.level, shortfall.kept) == ("memory", level, kept * MI)
    assert why in shortfall.why
