"""Whose pods may end for another."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from qos.cluster.objects import Pod
from quota.account import Account
from quota.taking import Reckoning, Taking
from tests.quota.builders import NAMESPACE, account, amounts, pod, quota


def running(one: Account, name: str, cpu: int, of: str, *, priority: int = 0, firm: bool = False) -> Pod:
    made = pod(name, amounts(cpu), of=of, priority=priority, firm=firm, node="n")
    one.count(made)
    return made


def waiting(one: Account, name: str, cpu: int, of: str, *, priority: int = 0) -> Pod:
    made = pod(name, amounts(cpu), of=of, priority=priority)
    one.count(made)
    return made


def allows(one: Account, who: Pod, *victims: Pod) -> bool:
    return Taking(one, who).allows(victims, {})


def teams(total: int = 10) -> Account:
    return account(
        amounts(total),
        [quota("web", amounts(10), amounts(5)), quota("data", amounts(10), amounts(5))],
    )


def test_inside_a_quota_those_that_matter_less() -> None:
    one = teams()
    low, high = running(one, "low", 5, "web", priority=1), running(one, "high", 5, "web", priority=9)
    who = waiting(one, "p", 5, "web", priority=5)
    assert allows(one, who, low)
    assert not allows(one, who, high)
    assert not allows(one, who), "its quota has no room"


def test_nobody_that_nobody_may_evict() -> None:
    one = teams()
    firm = running(one, "low", 5, "web", firm=True)
    running(one, "more", 5, "web")
    assert not allows(one, waiting(one, "p", 5, "web", priority=5), firm)


def test_across_quotas_those_that_owe_and_no_more_than_that() -> None:
    one = teams()
    borrowed = [running(one, f"b{i}", 1, "data", priority=9) for i in range(10)]
    who = waiting(one, "p", 3, "web")
    assert Taking(one, who).owed == {"cpu"}
    assert allows(one, who, *borrowed[:3]), "whatever their priority is"
    assert not allows(one, who, *borrowed[:4])
    running(one, "mine", 5, "web")
    assert Taking(one, who).owed == frozenset()
    assert not allows(one, who, *borrowed[:3]), "it has what is guaranteed to it"


def test_a_pod_is_whole_and_nobody_comes_below_its_min() -> None:
    one = teams()
    large, larger = running(one, "l", 4, "data"), running(one, "x", 6, "data")
    who = waiting(one, "p", 1, "web")
    assert allows(one, who, large)
    assert not allows(one, who, larger), "4 of its min of 5 would be left"


def test_no_quota_owes_that_is_within_its_runtime_or_has_none() -> None:
    one = teams(12)
    stranger, due = running(one, "s", 2, ""), running(one, "d", 5, "data")
    who = waiting(one, "p", 5, "web")
    assert not allows(one, who, stranger)
    assert not allows(one, who, due)
    assert allows(one, who), "there is room for it"


def test_a_cousin_owes_where_its_parent_does() -> None:
    one = account(
        amounts(10),
        [
            quota("left", amounts(10), amounts(5), is_parent=True),
            quota("right", amounts(10), amounts(5), is_parent=True),
            quota("a", amounts(10), amounts(5), parent="left"),
            quota("b", amounts(10), amounts(5), parent="right"),
            quota("c", amounts(10), amounts(0), parent="right"),
        ],
    )
    lent = [running(one, f"c{i}", 1, "c") for i in range(10)]
    who = waiting(one, "p", 5, "a")
    assert allows(one, who, *lent[:5])
    one.forget(who.uid)
    sibling = waiting(one, "q", 5, "b")
    assert allows(one, sibling, *lent[:5])
    assert not allows(one, sibling, *lent[:6])


def test_a_quota_that_gives_one_resource_may_lack_another() -> None:
    """Its pods need both, and are all that it could give back."""
    both = {"cpu": 10, "memory": 10}
    one = account(both, [quota("web", both, {"memory": 5}), quota("data", both, both)])
    one.change([quota("data", both, {"cpu": 10, "memory": 5})])
    hungry = pod("hungry", {"cpu": 1, "memory": 5}, of="data", node="n")
    more = pod("more", {"cpu": 1, "memory": 5}, of="data", node="n")
    for each in (hungry, more):
        one.count(each)
    who = pod("p", {"memory": 5}, of="web")
    one.count(who)
    assert allows(one, who, hungry)


@settings(max_examples=200, deadline=None)
@given(
    taken=st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(1, 4), max_size=5), max_size=4),
    mins=st.fixed_dictionaries({name: st.integers(0, 5) for name in "abcd"}),
    asked=st.integers(1, 4),
    total=st.integers(4, 20),
)
def test_who_gives_keeps_what_is_guaranteed(
    taken: Mapping[str, list[int]], mins: Mapping[str, int], asked: int, total: int
) -> None:
    one = account(amounts(total), [quota(name, amounts(20), amounts(mins[name])) for name in "abcd"])
    victims = [
        running(one, f"{name}{i}", cpu, name) for name, sizes in taken.items() for i, cpu in enumerate(sizes)
    ]
    who = waiting(one, "p", asked, "a")
    before = {name: one.stands(f"{NAMESPACE}/{name}", "cpu") for name in "abcd"}
    reckoning = Reckoning(Taking(one, who))
    for victim in victims:
        if reckoning.take(victim):
            one.forget(victim.uid)
    for name in "bcd":
        after = one.stands(f"{NAMESPACE}/{name}", "cpu")
        given = before[name].used - after.used
        if given:
            assert before[name].due > 0
            assert after.used >= before[name].guaranteed
            largest = max(taken[name])
            assert given < before[name].due + largest, "only the last may be more than is left of the debt"


def test_who_takes_more_than_its_runtime_is_told_of() -> None:
    one = account(
        amounts(10),
        [
            quota("left", amounts(10), amounts(5), is_parent=True),
            quota("right", amounts(10), amounts(5), is_parent=True),
            quota("a", amounts(10), amounts(5), parent="left"),
            quota("b", amounts(10), amounts(0), parent="left"),
            quota("c", amounts(10), amounts(0), parent="right"),
        ],
    )
    running(one, "b0", 4, "b")
    running(one, "c0", 6, "c")
    found = Taking(one, waiting(one, "p", 3, "a")).beyond("cpu")
    assert [(node.quota.name, amount) for node, amount in found] == [("right", 1), ("b", 2)]
