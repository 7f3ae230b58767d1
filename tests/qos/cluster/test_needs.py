"""Which promises a Strict policy needs of a node, and what stands against them."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from qos.bandwidth import Limits
from qos.classes import CLASSES, promises_of
from qos.cluster.needs import UNREPORTED, Enforcement, needs, needs_of, obstacle
from qos.cluster.objects import Selector
from qos.cluster.policy import Policy, Profile
from qos.plan.controller import all_controllers
from qos.promises import CpuQuota, CpuSet, IoLimit, Overrides, Promises

GIB = 1 << 30
FLOOR = {"cpu": 2000, "memory": 4 * GIB}
KEPT = {keeps.promise for controller in all_controllers() for keeps in controller.KEEPS}
MEMORY = {"memory_low_percent"}


@pytest.mark.parametrize(
    ("class_name", "needed"),
    [
        ("SYSTEM", {"floor (cpu)", "cpus"} | MEMORY),
        ("LSE", {"floor (cpu)", "cpus", "cpu_quota"} | MEMORY),
        ("LSR", {"floor (cpu)", "cpus", "cpu_quota"} | MEMORY),
        ("LS", {"floor (cpu)"} | MEMORY),
        ("BE", {"floor (cpu)", "cpu_idle", "memory_oom_group", "oom_score_adj", "io_weight", "pids_max"}),
    ],
)
def test_needs_of_each_class(class_name: str, needed: set[str]) -> None:
    assert needs(promises_of(class_name), FLOOR) == needed


def test_the_table_above_has_every_class() -> None:
    tested = next(mark for mark in test_needs_of_each_class.pytestmark if mark.name == "parametrize").args[1]
    assert {one[0] for one in tested} == set(CLASSES)


@pytest.mark.parametrize("field", [one.name for one in fields(Promises)])
def test_every_promise_is_one_that_a_controller_keeps(field: str) -> None:
    values = {
        "cpu_idle": True,
        "cpu_quota": CpuQuota.NONE,
        "cpus": CpuSet.RESERVED,
        "io_limit": IoLimit(read_bytes=1),
        "memory_oom_group": False,
    }
    made = Promises(**{field: values.get(field, 50)})
    assert len(needs(made, {"memory": GIB})) == 1
    assert needs(made, {"memory": GIB}) <= KEPT


def test_a_floor_needs_its_own_dimensions_only() -> None:
    ls = promises_of("LS")
    assert needs(ls, {"cpu": 100}) == {"floor (cpu)"}
    assert needs(ls, {"memory": GIB}) == MEMORY
    assert needs(ls, {"example.com/gpu": 1}) == frozenset()
    assert needs(promises_of("LS", {"memory_request_min_percent": 50}), {"cpu": 100}) == {
        "floor (cpu)",
        "memory_min_percent",
    }


def policy(**changes: object) -> Policy:
    given: dict[str, object] = {
        "key": "shop/checkout",
        "namespace": "shop",
        "name": "checkout",
        "uid": "u",
        "generation": 1,
        "resource_version": "1",
        "created": 0.0,
        "selector": Selector(),
        "floor": FLOOR,
    }
    return Policy(**(given | changes))  # type: ignore[arg-type]


def test_a_profile_says_what_else_is_needed() -> None:
    assert needs_of(policy(), None) == {"floor (cpu)"} | MEMORY
    overrides: Overrides = {"io_weight": 500, "memory_min_percent": 50, "memory_low_percent": 0}
    profile = Profile("slow", "LS", overrides=overrides)
    assert needs_of(policy(), profile) == {"floor (cpu)", "memory_min_percent", "io_weight"}


def test_what_stands_against_it() -> None:
    needed = frozenset({"floor (cpu)", "memory_min_percent"})
    good = Enforcement(enforced=needed | {"pids_max"})
    assert obstacle(needed, good) == ""
    assert obstacle(needed, UNREPORTED) == "has no NodeQoS: no agent has reported"
    assert obstacle(frozenset(), UNREPORTED) != "", "without news nothing is known of a node"
    old = Enforcement(frozenset({"floor (cpu)"}), {"memory_min_percent": "this kernel has no memory.min"})
    assert obstacle(needed, old) == "memory_min_percent: this kernel has no memory.min"
    assert obstacle(needed | {"cpus"}, old) == obstacle(needed, old), "a reason comes before none"
    silent = Enforcement(frozenset({"memory_min_percent"}))
    assert obstacle(needed, silent) == "floor (cpu): the agent does not say that it is enforced"


def test_bandwidth_is_a_need_of_its_own() -> None:
    """So a Strict policy has no node until one says that it keeps bandwidth."""
    plain = Policy("a/b", "a", "b", "u", 1, "1", 0.0, Selector(), {})
    floor = replace(plain, floor={"j10ce.io/ingress-bandwidth": 1_000})
    limit = replace(plain, limit={"j10ce.io/egress-bandwidth": 1_000})
    assert needs_of(floor, None) - needs_of(plain, None) == {"floor (network)"}
    assert needs_of(limit, None) - needs_of(plain, None) == {"limit (network)"}
    profile = Profile("slow", "LS", limits=Limits(egress=1000))
    assert needs_of(plain, profile) - needs_of(plain, None) == {"limit (network)"}
