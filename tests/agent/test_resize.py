"""A resize in place of a pod of an idle class: the kernel refuses weights while cpu.idle is 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.enforcement.places import Place
from agent.enforcement.repair import Repairer
from agent.enforcement.writers import KUBELET
from agent.state import KnownPod
from qos.plan.node import V2
from qos.plan.settings import Plan
from tests.adapters.fake_machine import Fake
from tests.agent.enforcement.conftest import Rig, above, kernel_rig, plan, scratch
from tests.agent.plain_node import PATH, UID, PlainNode
from tests.agent.test_planner import UIDS, Here, start

__all__ = ["kernel_rig", "scratch"]
SHARES = "cpu.shares"


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    made = Fake(tmp_path, v1=False, unified=True)
    made.write("proc/meminfo", "MemTotal:  4194304 kB\n")
    for path in ("kubepods", "kubepods/burstable"):
        made.group("unified", path, cpu_weight="100", cpu_idle="0")
    return made


def test_it_has_the_lowest_weight_in_place_of_idle_while_kubelet_resizes_it(fake: Fake) -> None:
    here = Here("")
    path = here.pod(0, 0)
    start(fake, path, weight="39")
    fake.group("unified", path, cpu_idle="0")
    here.run(0, path)
    planner = here.planner(fake.machine(), V2)

    def on_pod(*, resizing: bool) -> dict[str, str]:
        pod = here.known.pods[UIDS[0]].pod
        labels = {"koordinator.sh/qosClass": "BE"}
        here.known.pods[UIDS[0]] = KnownPod(replace(pod, labels=labels, resizing=resizing))
        planned = here.plans(planner)[UIDS[0]].containers[0].plan
        return {
            one.file: one.value for one in planned.settings if one.level == 1 and one.file.startswith("cpu.")
        }

    assert on_pod(resizing=False) == {"cpu.idle": "1"}
    assert on_pod(resizing=True) == {"cpu.weight": "1"}
    assert on_pod(resizing=False) == {"cpu.idle": "1"}


async def test_what_the_runtime_tells_during_a_pass_outlasts_that_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = PlainNode(tmp_path, monkeypatch)
    async with node.agent() as agent:
        reconciler, known = agent.reconciler, agent.reconciler._known
        (running,) = agent.reconciler._containers.of_pod(UID)
        real, asked = reconciler._planner.prepare, list[bool]()

        def prepare(*arguments: Any) -> Iterator[None]:
            yield from real(*arguments)
            one = known.pods[UID]
            known.pods[UID] = replace(one, pod=replace(one.pod, labels={"koordinator.sh/qosClass": "BE"}))
            reconciler.apply_now(running)
            asked.append(reconciler.planned[UID].decided.pod.labels == known.pods[UID].pod.labels)

        monkeypatch.setattr(reconciler._planner, "prepare", prepare)
        await reconciler.reconcile()
        assert asked == [True]
        assert node.read(PATH, "cpu.idle") == "1"


def test_kubelets_weight_is_taken_then(kernel_rig: Rig) -> None:
    one = kernel_rig.container()
    pod = above(one.cgroup, 1)
    kernel_rig.write(pod, SHARES, 204)
    assert kernel_rig.enforcer.apply(one, plan((1, "cpu.idle", 1))).applied
    with pytest.raises(OSError, match="Invalid argument"):
        kernel_rig.write(pod, SHARES, 512)
    assert kernel_rig.enforcer.apply(one, plan((1, SHARES, 2))).applied
    assert (kernel_rig.read(pod, "cpu.idle"), kernel_rig.read(pod, SHARES)) == ("0", "2")
    weight = Place(pod, SHARES)
    assert kernel_rig.enforcer.originals[weight] == "204", "not what an idle cgroup shows"
    kernel_rig.write(pod, SHARES, 512)
    Repairer(kernel_rig.enforcer, lambda _: None, lambda _: None).mend(pod, {weight: KUBELET})
    assert (kernel_rig.read(pod, SHARES), kernel_rig.enforcer.originals[weight]) == ("2", "512")
    assert kernel_rig.enforcer.apply(one, plan((1, "cpu.idle", 1))).applied
    assert kernel_rig.read(pod, "cpu.idle") == "1"
    assert kernel_rig.enforcer.apply(one, Plan(())).applied
    list(kernel_rig.enforcer.sweep())
    assert (kernel_rig.read(pod, "cpu.idle"), kernel_rig.read(pod, SHARES)) == ("0", "512")
