"""Which pods end so that one that waits gets what its quota is owed."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from qos.cluster.objects import Pod
from quota.account import Account
from quota.returning import Place, Return, plan, worth
from quota.taking import Taking
from tests.quota.builders import NAMESPACE, account, amounts, pod, quota


def running(one: Account, name: str, cpu: int, of: str, **others: float | bool) -> Pod:
    made = pod(name, amounts(cpu), of=of, node="n", **others)
    one.count(made)
    return made


def waiting(one: Account, name: str, cpu: int, of: str, priority: int = 0) -> Pod:
    made = pod(name, amounts(cpu), of=of, priority=priority)
    one.count(made)
    return made


def place(node: str, left: int, *pods: Pod) -> Place:
    return Place(node, amounts(left), pods)


def teams(total: int = 10) -> Account:
    return account(
        amounts(total),
        [quota(name, amounts(10), amounts(5)) for name in ("web", "data")] + [quota("more", amounts(10))],
    )


def names(found: Return | None) -> set[str]:
    return set() if found is None else {victim.name for victim in found.victims}


def test_the_least_important_of_the_largest_debtor_on_one_node() -> None:
    one = teams()
    low = running(one, "low", 2, "data", priority=2)
    high = running(one, "high", 6, "data", priority=3)
    small = running(one, "small", 2, "data", priority=1)
    who = waiting(one, "p", 2, "web")
    there = [place("a", 0, high, low), place("b", 0, small)]
    taking = Taking(one, who)
    assert taking.owed == {"cpu"}
    assert plan(taking, there) == Return("b", (small,))
    assert plan(taking, there[:1]) == Return("a", (low,))


def test_the_youngest_of_those_that_matter_alike_wherever_they_are() -> None:
    one = teams()
    there = [
        place(f"{created}", 0, running(one, f"p{created}", 2, "data", created=created))
        for created in (3.0, 9.0, 6.0)
    ]
    running(one, "more", 4, "data")
    taking = Taking(one, waiting(one, "p", 2, "web"))
    assert names(plan(taking, there)) == {"p9.0"}


def test_as_few_as_will_do() -> None:
    one = teams()
    small = [running(one, f"s{i}", 1, "data", priority=i) for i in range(6)]
    large = running(one, "large", 4, "data", priority=9)
    who = waiting(one, "p", 4, "web")
    assert names(plan(Taking(one, who), [place("a", 0, *small, large)])) == {"s0", "s1", "s2", "s3"}
    assert names(plan(Taking(one, who), [place("a", 3, *small)])) == {"s0"}
    assert names(plan(Taking(one, who), [place("a", 0, *small[:2], large)])) == {"large"}, "others are spared"


def test_nobody_where_there_is_room_or_it_would_not_do() -> None:
    one = teams()
    victims = [running(one, f"v{i}", 1, "data") for i in range(10)]
    who = waiting(one, "p", 4, "web")
    assert plan(Taking(one, who), [place("a", 0, *victims), place("b", 4)]) is None
    assert plan(Taking(one, who), [place("a", 0, *victims[:3]), place("b", 0, *victims[3:6])]) is None
    assert plan(Taking(one, who, leaving=victims[:5]), [place("a", 4, *victims[5:])]) is None


def test_inside_a_quota_wherever_they_are() -> None:
    one = teams(20)
    low = running(one, "low", 8, "web", priority=1)
    running(one, "high", 2, "web", priority=9)
    who = waiting(one, "p", 4, "web", priority=5)
    assert names(plan(Taking(one, who), [place("a", 0, low), place("b", 6)])) == {"low"}
    assert plan(Taking(one, who), [place("a", 0), place("b", 6, low)]) == Return("b", (low,))
    assert plan(Taking(one, waiting(one, "q", 4, "web", priority=1)), [place("a", 0, low)]) is None


def test_who_comes_next_is_owed_what_is_left() -> None:
    one = teams()
    victims = [running(one, f"v{i}", 1, "data") for i in range(10)]
    first, second = waiting(one, "p", 5, "web"), waiting(one, "q", 5, "web")
    before = plan(Taking(one, first), [place("a", 0, *victims)])
    assert before is not None
    after = Taking(one, second, leaving=before.victims, coming=[first])
    assert not after.owed
    assert plan(after, [place("a", 0, *victims)]) is None


sizes = st.lists(
    st.tuples(st.sampled_from(["data", "more"]), st.integers(1, 4), st.integers(0, 3)), max_size=12
)


@settings(max_examples=300, deadline=None)
@given(there=sizes, asked=st.integers(1, 5), node_count=st.integers(1, 3), spare=st.integers(0, 3))
def test_never_more_than_is_owed_and_each_one_is_needed(
    there: Sequence[tuple[str, int, int]], asked: int, node_count: int, spare: int
) -> None:
    one = teams(sum(cpu for _, cpu, _ in there) + spare)
    pods = [running(one, f"v{i}", cpu, of, priority=at) for i, (of, cpu, at) in enumerate(there)]
    places = [place(f"n{i}", spare if not i else 0, *pods[i::node_count]) for i in range(node_count)]
    who = waiting(one, "p", asked, "web")
    taking = Taking(one, who)
    found = plan(taking, places)
    if found is None:
        return
    assert found.victims
    before = {name: one.stands(f"{NAMESPACE}/{name}", "cpu") for name in ("data", "more")}
    node = next(each for each in places if each.node == found.node)
    for victim in found.victims:
        assert worth(taking, victim)
        without = sum(v.requests["cpu"] for v in found.victims if v is not victim)
        assert node.left["cpu"] + without < asked, "it need not have ended"
        one.forget(victim.uid)
    for name, stood in before.items():
        now = one.stands(f"{NAMESPACE}/{name}", "cpu")
        assert now.used >= min(stood.used, stood.guaranteed)
    one.count(who, bound=True)
    assert one.stands(f"{NAMESPACE}/web", "cpu").due == 0
