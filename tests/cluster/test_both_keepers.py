"""Both keepers in one cluster, on a kube-scheduler that asks the extender: a flood, and both floors stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import Cluster
from tests.cluster.test_placeholders import HIGH, Rig, pod, policy

pytestmark = pytest.mark.cluster

GUARD = Path(__file__).parents[2] / "scheduler-config" / "default-scheduler.yaml"


def kept(name: str, slots: int, keeper: str) -> dict[str, Any]:
    made = policy(slots, "2", priorityClassName="high", keeper=keeper)
    made["metadata"]["name"] = name
    made["spec"]["selector"] = {"matchLabels": {"app": name}}
    return made


def account(rig: Rig, name: str) -> tuple[int, int, int, str]:
    status = rig.get("mrp", name).get("status", {})
    slots = status.get("slots", {})
    guarded = {one["type"]: one["status"] for one in status.get("conditions", ())}.get("Guarded", "")
    return slots.get("filled", 0), slots.get("held", 0), slots.get("unplaced", 0), guarded


def test_both_floors_stay_in_a_flood_and_when_keepers_change(make_cluster: Callable[..., Cluster]) -> None:
    rig = Rig(make_cluster(GUARD), keeper="Extender", bothKeepers=True)
    rig.with_nodes(4, "8")
    rig.create(HIGH, kept("checkout", 4, "Placeholders"), kept("search", 4, "Extender"))
    rig.wait(lambda: rig.stand() == 4, "a placeholder for each slot of the one policy")
    rig.create(*(pod(f"batch-{number}", "1", "batch") for number in range(24)))
    rig.wait(lambda: len(rig.bound("batch")) == 16, "batch pods take the rest")
    for name in ("checkout", "search"):
        rig.wait(lambda name=name: account(rig, name) == (0, 4, 0, "True"), f"all slots of {name} are held")
    patch = '{"spec": {"keeper": "%s"}}'
    rig.cluster.kubectl("patch", "mrp", "search", "--type=merge", "-p", patch % "Placeholders")
    rig.wait(lambda: rig.stand() == 8, "a placeholder for each slot of both")
    rig.cluster.kubectl("patch", "mrp", "checkout", "--type=merge", "-p", patch % "Extender")
    rig.wait(lambda: rig.stand() == 4, "those of the other policy are gone")
    for name in ("checkout", "search"):
        owners = [pod(f"{name}-{number}", "2", name, priorityClassName="high") for number in range(3)]
        rig.create(*owners)
        rig.wait(lambda name=name: len(rig.bound(name)) == 3, f"owners of {name} are bound")
        rig.wait(lambda name=name: account(rig, name) == (3, 1, 0, "True"), f"one slot of {name} is left")
    rig.wait(lambda: rig.stand() == 1, "one placeholder is left")
    assert len(rig.bound("batch")) == 16
    assert rig.evicted() == 0
