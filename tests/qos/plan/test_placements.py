"""A Burstable pod beside Guaranteed ones: what its weights keep where the others are placed worst."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qos.plan import assumed
from qos.plan.assumed import Machine
from qos.plan.layout import kubelet_weight, shares
from qos.plan.placements import elsewhere
from qos.plan.planning import plan
from qos.plan.settings import Shortfall
from qos.pods.containers import BURSTABLE, GUARANTEED, Container, NodePod
from qos.promises import Promises

NODE = Machine(8000, 2**35, 8000, 2**35, frozenset({"cpu.weight"}))


def missing(request: int, floor: int, machine: Machine = NODE, qos: str = BURSTABLE) -> Shortfall | None:
    pod = NodePod("", "default", "web", (Container("web", request),), qos)
    facts = assumed.kubernetes_facts(pod, "web", machine)
    made = plan(pod, "web", Promises(), {"cpu": floor}, facts)
    assert not made.shortfalls
    return elsewhere(pod, machine, {"web": (facts, made)}, {"web": floor}).get("web")


def test_what_guaranteed_pods_take_no_weight_of_ours_gives_back() -> None:
    short = missing(1000, 1000)
    assert short is not None
    # kubepods weighs 311 beside 200; in it 39 of 39 + 272 + 1; beside ours (99) 109 pods of weight 1.
    kubepods, burstable = 311, kubelet_weight(shares(1000))
    others = kubelet_weight(shares(7000))
    reach = 8000 * kubepods / (kubepods + 200) * burstable / (burstable + others + 1) * 99 / (99 + 109)
    assert short.kept == pytest.approx(reach, abs=5)
    assert short.group.endswith("-podUID.slice")
    assert short.condition == "one Guaranteed pod requests the rest, and Burstable ones nothing"


def test_many_small_guaranteed_pods_are_worse_for_a_heavy_one() -> None:
    short = missing(7000, 4500)
    assert short is not None
    assert short.condition == "all other pods are Guaranteed"


def test_what_is_kept_everywhere_is_not_short() -> None:
    assert missing(1000, 100) is None
    assert missing(8000, 1000, replace(NODE, pods=1)) is None


def test_a_guaranteed_pod_meets_all_others_already() -> None:
    assert missing(1000, 1000, qos=GUARANTEED) is None
