"""Of several policies the extender and the agent take the same one first."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.demands import order_key
from qos.cluster.objects import Demand
from qos.cluster.policy import Policy, Profile
from qos.cluster.precedence import PriorityClass, PriorityClasses
from qos.cluster.resolve import resolve
from qos.pods.containers import Container, NodePod
from qos.pods.decision import decide
from tests.qos.builders import policy

POD = NodePod("u-1", "shop", "web", (Container("web", 2000),), labels={"app": "checkout"})
PROFILES = {
    one.name: one
    for one in (Profile("rival", "LS", "rival"), Profile("plain", "LS"), Profile("idle", "BE", "rival"))
}


def named(name: str, **others: object) -> Policy:
    return policy(key=f"shop/{name}", name=name, **others)


def first_in_extender(policies: list[Policy], classes: PriorityClasses) -> str | None:
    """Of those that hold anything."""
    resolved = [resolve(one, PROFILES, classes, None, now=0.0) for one in policies]
    demands = [one for one in resolved if isinstance(one, Demand)]
    return min(demands, key=order_key).key if demands else None


def first_in_agent(policies: list[Policy], classes: PriorityClasses) -> str:
    winner = decide(POD, "", {one.key: one for one in policies}, PROFILES, classes).policy
    assert winner is not None
    return winner.key


@pytest.mark.parametrize("default", [0, 1000])
def test_who_names_no_class_has_the_clusters_default(default: int) -> None:
    classes = PriorityClasses({"rival": PriorityClass(500), "usual": PriorityClass(default, is_default=True)})
    policies = [named("rival", priority_class_name="rival"), named("unnamed")]
    expected = "shop/unnamed" if default else "shop/rival"
    assert first_in_agent(policies, classes) == first_in_extender(policies, classes) == expected


@pytest.mark.parametrize(
    "unresolved",
    [{"priority_class_name": "deleted"}, {"profile_name": "deleted"}, {"profile_name": "idle"}],
)
def test_what_cannot_be_resolved_goes_last(unresolved: dict[str, str]) -> None:
    classes = PriorityClasses({"rival": PriorityClass(500), "low": PriorityClass(-5)})
    policies = [named("a", **unresolved), named("b", priority_class_name="low")]
    assert first_in_agent(policies, classes) == first_in_extender(policies, classes) == "shop/b"


def test_of_several_defaults_the_lowest_counts() -> None:
    some = {name: PriorityClass(value, is_default=True) for name, value in (("a", 9), ("b", 7))}
    assert (PriorityClasses(some).default, PriorityClasses().default) == (7, 0)


NAMES = st.sampled_from(["", "rival", "usual", "deleted"])
POLICIES = st.lists(
    st.builds(
        named,
        st.text(string.ascii_lowercase, min_size=1, max_size=2),
        created=st.sampled_from([0.0, 1.0, 2.0]),
        priority_class_name=NAMES,
        profile_name=st.sampled_from(["", "deleted", *PROFILES]),
    ),
    min_size=1,
    unique_by=lambda one: one.key,
)
CLASSES = st.dictionaries(
    st.sampled_from(["rival", "usual", "other"]),
    st.builds(PriorityClass, st.sampled_from([-1, 0, 500, 2_000_000_000]), st.booleans()),
).map(PriorityClasses)


@given(POLICIES, CLASSES)
def test_both_take_the_same_policy_first(policies: list[Policy], classes: PriorityClasses) -> None:
    expected = first_in_extender(policies, classes)
    assert expected is None or first_in_agent(policies, classes) == expected
