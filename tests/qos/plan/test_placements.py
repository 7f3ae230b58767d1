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

NODE = Machine(8000, 2**35, 7910, 2**35, frozenset({"cpu.weight"}))


def missing(request: int, floor: int, machine: Machine = NODE, qos: str = BURSTABLE) -> Shortfall | None:
    pod = NodePod("", "default", "web", (Container("web", request),), qos)
    facts = assumed.kubernetes_facts(pod, "web", machine)
    made = plan(pod, "web", Promises(), {"cpu": floor}, facts)
    assert not made.shortfalls
    return elsewhere(pod, machine, {"web": (facts, made)}, {"web": floor}).get("web")


def test_what_guaranteed_pods_take_no_weight_of_ours_gives_back() -> None:
    short = missing(1000, 1000)
    assert short is not None
    # 39 of 39 + 269 in kubepods; beside ours (54) 109 pods of weight 1.
    burstable, others = kubelet_weight(shares(1000)), kubelet_weight(shares(6910))
    reach = 8000 * burstable / (burstable + others) * 54 / (54 + 109)
    assert short.kept == pytest.approx(reach, abs=5)
    assert short.group.endswith("-podUID.slice")
    assert short.condition == "one Guaranteed pod requests the rest, and Burstable ones nothing"


def test_for_a_heavy_one_the_nodes_own_slices_are_worst() -> None:
    short = missing(7000, 4500)
    assert short is not None
    assert short.condition == "system.slice and user.slice want all the CPU they can get"


def test_what_is_kept_everywhere_is_not_short() -> None:
    assert missing(1000, 100) is None
    assert missing(7910, 1000, replace(NODE, pods=1)) is None


def test_a_guaranteed_pod_meets_all_other_pods_already() -> None:
    """What kubelet lets all pods weigh beside the node's own slices is the same for every pod."""
    assert missing(1000, 450, qos=GUARANTEED) is None
    short = missing(1000, 1000, qos=GUARANTEED)
    assert short is not None
    assert short.condition == "system.slice and user.slice want all the CPU they can get"
    kubepods, own = kubelet_weight(shares(7910)), 54
    assert short.kept == pytest.approx(8000 * kubepods / (kubepods + 200) * own / (own + 378), abs=5)
    assert f"weight {kubepods}, kubelet's, against 100+100" in short.why
