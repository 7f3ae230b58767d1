"""What is kept of pods that start while no round is made."""

from __future__ import annotations

from pathlib import Path

from agent.containers import Containers
from agent.network_rounds.pods import Parts
from agent.node_network import NodeNetwork
from agent.nri.records import NriPod
from agent.provisional import pod_of
from agent.state import Known
from qos.cluster.precedence import PriorityClasses
from qos.pods.decision import decide


async def test_pods_that_came_and_went_are_forgotten_where_the_kernel_lets_nobody_shape(
    tmp_path: Path,
) -> None:
    sandboxes: dict[str, NriPod] = {}
    parts = Parts(
        Known(),
        Containers(lambda _: False, dict),
        dict,
        lambda one: decide(one.pod, "", {}, {}, PriorityClasses({})),
        lambda: sandboxes,
        lambda _: "",
    )
    network = NodeNetwork(parts, lambda: None, lambda: False, tmp_path, {})
    for at in range(1000):
        sandboxes = {f"uid-{at}": NriPod(f"id-{at}", f"uid-{at}", "shop", f"web-{at}")}
        await network.started(pod_of(sandboxes[f"uid-{at}"]))
    assert len(network._pods._started) == 1
