"""Which budgets concern a policy, and what they leave to it: by priority, then age, deterministic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.demands import order_key
from qos.cluster.budget import ALL_NAMESPACES, Allotment, Budget, allot, concerning
from qos.cluster.objects import Demand, Requirement, Selector
from tests.ledger.builders import demand


def gold(**others: object) -> Budget:
    return replace(Budget("gold", Selector((Requirement("tier", "In", ("gold",)),))), **others)


def of(name: str, desired: int, cpu: float = 2, namespace: str = "shop", **others: object) -> Demand:
    return replace(demand(name, desired, cpu), key=f"{namespace}/{name}", namespace=namespace, **others)


def given_by(budgets: list[Budget], *demands: Demand) -> Allotment:
    return allot(sorted(demands, key=order_key), lambda _namespace: budgets)


def slots(allotment: Allotment) -> dict[str, int]:
    return {key.partition("/")[2]: one.desired for key, one in allotment.granted.items()}


def test_several_budgets_of_a_namespace_must_all_be_kept() -> None:
    every = Budget("every")
    silver = Budget("silver", Selector((Requirement("tier", "In", ("silver",)),)))
    assert concerning([silver, gold(), every], "shop", {"tier": "gold"}) == (every, gold())
    both = [Budget("a", total={"cpu": 9000}), Budget("b", per_namespace={"memory": 3})]
    found = given_by(both, of("x", 9))
    assert slots(found) == {"x": 3}
    assert found.granted["shop/x"].withheld.budget == "b"


def test_a_default_budget_is_for_namespaces_without_another() -> None:
    rest = Budget("rest", default=True)
    assert concerning([rest, gold()], "shop", {"tier": "gold"}) == (gold(),)
    assert concerning([rest, gold()], "shop", {}) == (rest,)
    assert concerning([gold()], "shop", {}) == ()


def test_a_namespace_has_its_name_as_a_label() -> None:
    named = Budget("named", Selector((Requirement("kubernetes.io/metadata.name", "In", ("shop",)),)))
    assert concerning([named], "shop", {}) == (named,)
    assert concerning([named], "yard", {}) == ()


def test_the_first_ones_are_served_and_a_smaller_one_takes_what_they_leave() -> None:
    old, high = of("old", 3, created=1.0), of("high", 1, priority=10, created=9.0)
    small = of("small", 5, cpu=0.5, created=2.0)
    found = given_by([gold(per_namespace={"cpu": 5000})], old, high, small)
    assert slots(found) == {"high": 1, "old": 1, "small": 2}
    assert found.granted["shop/old"].withheld.text == (
        "budget gold, namespace shop: cpu: 6 asked, 2 of 5 used by policies that come first, 3 left"
    )
    assert (found.granted["shop/old"].withheld.count, found.granted["shop/old"].withheld.missing) == (2, 3000)
    assert found.granted["shop/high"] is high, "what is not touched is the same object"
    part = found.parts["gold", "shop"]
    assert (part.used, part.policies, part.exceeding) == ({"cpu": 5000}, 3, ["shop/old", "shop/small"])


def test_all_namespaces_share_the_total_and_none_anothers_part() -> None:
    budget = gold(per_namespace={"pods": 2}, total={"cpu": 6000})
    found = given_by([budget], of("a", 3, created=1.0), of("b", 3, namespace="yard", created=2.0))
    assert slots(found) == {"a": 2, "b": 1}
    assert found.granted["shop/a"].withheld.text == (
        "budget gold, namespace shop: slots: 3 asked, 0 of 2 used by policies that come first, 2 left"
    )
    assert found.granted["yard/b"].withheld.text == (
        "budget gold, all namespaces: cpu: 6 asked, 4 of 6 used by policies that come first, 2 left"
    )
    assert found.parts["gold", ALL_NAMESPACES].used == {"cpu": 6000}


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (
            {"priority_classes": frozenset({"low", "mid"})},
            "permits no PriorityClass high: name one of low, mid",
        ),
        ({"profiles": frozenset({"fast"})}, "permits no policy that names no QoSProfile: name one of fast"),
    ],
)
def test_what_a_budget_does_not_permit_gets_nothing(budget: dict, text: str) -> None:
    found = given_by([gold(**budget)], of("x", 2, priority_class="high"))
    assert slots(found) == {"x": 0}
    assert found.granted["shop/x"].withheld.reason == "BudgetForbids"
    assert found.granted["shop/x"].withheld.text == f"budget gold {text}"


def test_who_asks_for_nothing_uses_nothing_and_exceeds_nothing() -> None:
    found = given_by([gold(per_namespace={"cpu": 0}, profiles=frozenset({"fast"}))], of("x", 0))
    assert found.granted["shop/x"].withheld is None
    assert not found.parts


def test_floors_of_running_pods_are_not_taken_by_a_budget() -> None:
    one = given_by([gold(per_namespace={"pods": 1})], of("x", 3, slots=3)).granted["shop/x"]
    assert (one.desired, one.desired_of_budgets, one.seats, one.most_seats) == (1, 3, 1, 3)


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 20_000), max_size=3)
BUDGETS = st.lists(
    st.builds(
        Budget,
        st.sampled_from("ab"),
        st.sampled_from([Selector(), Selector((Requirement("tier", "Exists"),))]),
        st.booleans(),
        AMOUNTS,
        AMOUNTS,
        st.none() | st.just(frozenset({"high"})),
    ),
    unique_by=lambda one: one.name,
)
DEMANDS = st.lists(
    st.builds(
        lambda name, namespace, desired, cpu, memory, priority: of(
            name,
            desired,
            namespace=namespace,
            vector={"cpu": cpu, "memory": memory, "pods": 1},
            priority=priority,
            priority_class="high" if priority else "",
        ),
        st.sampled_from("abcdef"),
        st.sampled_from(["shop", "yard"]),
        st.integers(0, 9),
        st.integers(1, 5000),
        st.integers(1, 9),
        st.sampled_from([0, 10]),
    ),
    unique_by=lambda one: one.key,
)
LABELS: Mapping[str, Mapping[str, str]] = {"shop": {"tier": "x"}, "yard": {}}


@given(BUDGETS, DEMANDS)
def test_no_budget_is_exceeded_and_nothing_is_left_that_a_slot_would_fit(
    budgets: list[Budget], demands: list[Demand]
) -> None:
    def of_namespace(namespace: str) -> tuple[Budget, ...]:
        return concerning(budgets, namespace, LABELS[namespace])

    ordered = sorted(demands, key=order_key)
    found = allot(ordered, of_namespace)
    assert [*found.granted] == [one.key for one in ordered]
    for one in ordered:
        got = found.granted[one.key]
        assert 0 <= got.desired <= one.desired
        assert got.desired_of_budgets == one.desired
        assert bool(got.withheld) == (got.desired < one.desired)
    for budget in budgets:
        for names in ([("shop")], ["yard"], ["shop", "yard"]):
            hard = budget.total if len(names) == 2 else budget.per_namespace
            concerned = [
                found.granted[one.key]
                for one in ordered
                if one.namespace in names and budget in of_namespace(one.namespace)
            ]
            for resource, most in hard.items():
                assert sum(one.desired * one.vector[resource] for one in concerned) <= most
    for one in ordered:
        got = found.granted[one.key]
        if got.withheld and got.withheld.reason == "BudgetExceeded":
            more = replace(got, desired=got.desired + 1, withheld=None)
            before = [found.granted[other.key] for other in ordered[: ordered.index(one)]]
            again = allot([*before, more], of_namespace)
            assert again.granted[one.key].desired == got.desired, (
                "one more slot would have been within budget"
            )


@given(BUDGETS, DEMANDS)
def test_a_later_policy_takes_nothing_from_an_earlier_one(
    budgets: list[Budget], demands: list[Demand]
) -> None:
    ordered = sorted(demands, key=order_key)
    all_of_them = allot(ordered, lambda _namespace: budgets)
    for count in range(len(ordered)):
        some = allot(ordered[:count], lambda _namespace: budgets)
        assert all(all_of_them.granted[key] == one for key, one in some.granted.items())
