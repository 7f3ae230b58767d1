"""The demonstration: one floor on a real node, from the policy to the kernel, through what breaks it.

A policy; a pod that the extender places; kubelet, containerd and the agent start it; a drift by hand; a pod
that floods the link; a neighbour that stresses CPU and memory; a resize in place; the control plane killed;
the agent killed; what it made of the network taken away.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lab import cluster as lab_cluster
from lab import components, extender_process
from lab.binaries import Binaries
from lab.cluster import Cluster, LabError
from lab.node import demo_objects as objects
from lab.node import settings
from lab.node.demo_network import Network
from lab.node.demo_place import Kill, Place, Placing
from lab.node.demo_pod import PodThere
from lab.node.demo_table import Row
from lab.node.demo_wait import SECONDS, comes_true, until
from lab.node.far_end import FarEnd
from lab.nodes import nodes as kwok_nodes
from lab.scheduler_config import with_extender

Say = Callable[[str], None]

_REPAIR_MILLISECONDS = 100.0
_CROWDED_MILLISECONDS = 5000.0
_LINK_MILLISECONDS = 3000.0
"""From one of its rounds to the next the agent lets nine times go by what the one before took."""
_BUSY_A_CPU = 3
"""Processes of each pod a CPU: with few, it is by chance how the kernel spreads them over the CPUs."""
_HOLDS = {"capPercent": 90}
"""One node's link is all the network that the cluster has, and one slot takes most of it."""
_DRIFTS = 3
"""Fewer than what the agent takes for a fight over one file."""
_PINNED = "pinned evenly"
_WINDOW = 3.0
"""Seconds over which the pod's CPU is measured."""
_CONVERGED = 45.0
"""Seconds in which a kernel that was given other weights has to deliver by them: Linux 6.18 takes some."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the demonstration takes place."""

    cluster: Cluster
    node: Place
    far: FarEnd
    kill_agent: Kill
    say: Say
    crowded: bool
    """This machine has other work, so a repair may wait for its turn."""

    @property
    def busy(self) -> int:
        """Processes of each pod."""
        return _BUSY_A_CPU * self.node.cpus

    @property
    def repair_milliseconds(self) -> float:
        """How long a repair may take."""
        return _CROWDED_MILLISECONDS if self.crowded else _REPAIR_MILLISECONDS

    @property
    def network(self) -> Network:
        """The same, for what is judged of the network."""
        repair = _CROWDED_MILLISECONDS if self.crowded else _LINK_MILLISECONDS
        return Network(self.node, self.far, repair)


def run(binaries: Binaries, placing: Placing, say: Say, *, crowded: bool = False) -> list[Row]:
    """All of it; a row for each promise. LabError, RuntimesError: something did not even start."""
    with _stage(binaries, placing, say, crowded=crowded) as stage:
        rows = [_held(stage)]
        pod, born = _born(stage)
        rows += [*born, _repaired(stage, pod)]
        rows += _flooded(stage)
        rows += _stressed(stage, pod)
        rows += [_resized(stage, pod), _told(stage)]
        rows += [*_without_control_plane(stage, pod), *_without_agent(stage, pod)]
        rows += _taken_away(stage)
        return rows


@contextlib.contextmanager
def _stage(binaries: Binaries, placing: Placing, say: Say, *, crowded: bool) -> Iterator[Stage]:
    """A control plane with the extender, two KWOK nodes, a real one with the agent; nothing of it stays."""
    name = f"demo-{secrets.token_hex(3)}"
    say("a control plane with the extender, and two nodes of KWOK")
    cluster = lab_cluster.up(name, binaries=binaries, scheduler_config=with_extender("guard"))
    try:
        extender_process.start(cluster, config=_HOLDS).wait_ready()
        _apply(cluster, kwok_nodes("kwok", 2))
        say("a real node: kubelet, containerd, runc")
        with placing(cluster) as node:
            say(f"a wire of {node.link // 10**6} Mbit/s to it, and the agent on it")
            names = (objects.NAME, objects.FLOOD)
            with FarEnd(node.address, node.link, settings.PODS_NETWORK, names) as far, node.agent() as kill:
                yield Stage(cluster, node, far, kill, say, crowded)
    finally:
        lab_cluster.down(name)


def _held(stage: Stage) -> Row:
    """The slot is held where the policy may have it, before there is a pod."""
    node = stage.node
    ways = " and ".join(f"{bits // 10**6} Mbit/s {way}" for way, bits in node.network.items())
    stage.say(f"a policy: {node.floor}m CPU, {ways}, one slot")
    _apply(stage.cluster, objects.rules(node.floor, node.network))
    unplaced = lambda: str(_policy(stage).get("unplaced", ""))  # noqa: E731 - said when it does not come
    until(lambda: _policy(stage).get("slots", {}).get("held") == 1, "the slot is held", unplaced)
    where = [hold["nodeName"] for hold in _policy(stage)["holds"]]
    kept = where == [stage.node.name]
    return Row("capacity before the pod exists", "1 slot", "", f"held on {', '.join(where)}", kept)


def _born(stage: Stage) -> tuple[PodThere, list[Row]]:
    """The pod goes to its slot, and its first command finds the planned value in its own kernel file."""
    stage.say("a pod that names no node")
    weight = stage.node.weight_file
    own = f"/sys/fs/cgroup/{'cpu/' if weight == 'cpu.shares' else ''}{weight}"
    _apply(stage.cluster, [objects.owner(stage.node.floor, own, stage.busy, stage.far.reached)])
    _wait_running(stage, objects.NAME)
    node = _get(stage, "pod", objects.NAME)["spec"]["nodeName"]
    if node != stage.node.name:
        raise LabError(f"pod {objects.NAME} is on {node}, not where its slot is held")
    pod = stage.node.pod(stage.cluster, objects.NAME)
    until(lambda: _as_planned(stage, pod), "the agent has planned the pod")
    until(lambda: bool(_recorded(stage)), "the container has said what it found")
    recorded, planned = _recorded(stage), pod.planned(objects.CONTAINER)[(0, weight)]
    kernel = f"{recorded} at its first instruction"
    delivered = f"placed on {node} by the extender"
    row = Row("right from birth", f"{weight} {planned}", kernel, delivered, recorded == planned)
    return pod, [row, stage.network.born()]


def _repaired(stage: Stage, pod: PodThere) -> Row:
    """What a person writes into the kernel file does not stay."""
    name = stage.node.weight_file
    stage.say(f"somebody halves the container's {name}, {_DRIFTS} times")
    planned = pod.planned(objects.CONTAINER)[(0, name)]
    took = _slowest_repair(stage, pod, 0, planned)
    promise = f"a drift is repaired within {stage.repair_milliseconds:g} ms"
    kept = took <= stage.repair_milliseconds
    return _row(stage, promise, pod, _repaired_after(took), kept=kept)


def _slowest_repair(stage: Stage, pod: PodThere, level: int, value: str) -> float:
    """Milliseconds."""
    return max(pod.repaired_after(level, stage.node.weight_file, value) for _ in range(_DRIFTS))


def _repaired_after(took: float) -> str:
    return f"repaired after {took:.0f} ms, the slowest of {_DRIFTS}"


def _flooded(stage: Stage) -> list[Row]:
    """The network's floor, while another pod wants all of the link, and somebody deletes what keeps it."""
    stage.say(f"a pod that floods the link both ways with {objects.FLOWS} connections each")
    _apply(stage.cluster, [objects.flood(stage.node.name, stage.node.flood, stage.far.reached)])
    _wait_running(stage, objects.FLOOD)
    rows = [stage.network.flooded("beside that flood")]
    stage.say("somebody deletes the pod's class, then the link's qdisc")
    return [*rows, stage.network.deleted()]


def _stressed(stage: Stage, pod: PodThere) -> list[Row]:
    """The floor while a neighbour wants all CPUs, and memory over and over.

    Judged with processes that are pinned evenly (demo_pod.spread says why), and shown without. The memory is
    shown only: none is promised, and this machine has so much free that nothing is taken from anybody.
    """
    busy, cpu = stage.busy, stage.node.neighbour
    stage.say(f"a neighbour that requests {cpu} CPU: {busy} busy processes, and 200 MB over and over")
    _apply(stage.cluster, [objects.neighbour(stage.node.name, cpu, busy)])
    _wait_running(stage, objects.NEIGHBOUR)
    until(lambda: _as_planned(stage, pod), "the plan with the neighbour is in the kernel")
    loose = pod.delivered(_WINDOW)
    stage.say("from here the processes of both pods are pinned to the CPUs, as many to each")
    pod.spread()
    stage.node.pod(stage.cluster, objects.NEIGHBOUR).spread()
    got, enough = _received(stage, pod)
    floor = f"{stage.node.floor}m CPU beside a neighbour under stress"
    memory = pod.memory_bytes()
    held = f"{memory / 1e6:.0f} MB of the {objects.HELD_MEMORY / 1e6:.0f} MB it holds"
    return [
        Row(f"{floor}, as the kernel spreads them", "", "", str(loose), kept=None),
        _row(stage, f"{floor}, {_PINNED}", pod, got, kept=enough),
        Row("its memory, meanwhile", *_memory_promise(stage), held, kept=None),
    ]


def _memory_promise(stage: Stage) -> tuple[str, str]:
    """What is planned for memory, and what this kernel has: the policy promises none, because v1 cannot."""
    promises = _get(stage, "nodeqos", stage.node.name)["status"].get("promises", [])
    enforced = any(one["promise"] == "memory_low_percent" and one["enforced"] for one in promises)
    return "no floor asked for", "memory.low" if enforced else "no memory.low, as NodeQoS says"


def _resized(stage: Stage, pod: PodThere) -> Row:
    """kubelet's resize in place writes its own values; the planned ones are there again."""
    stage.say(f"a resize in place: the request becomes {objects.resized(stage.node.floor)}")
    resources = {"requests": {"cpu": objects.resized(stage.node.floor)}}
    patch = {"spec": {"containers": [{"name": objects.CONTAINER, "resources": resources}]}}
    resize = ("--subresource=resize", "--patch", json.dumps(patch))
    stage.cluster.kubectl("patch", "pod", objects.NAME, *resize)
    until(lambda: _is_resized(stage), "kubelet has resized the pod")
    until(lambda: _as_planned(stage, pod), "the plan is in the kernel after the resize")
    return _row(stage, "kept through a resize in place", pod, *_received(stage, pod))


def _told(stage: Stage) -> Row:
    """The policy's own status says that its settings are applied and were read back."""
    stage.say("what the policy's status says")

    def conditions() -> list[dict[str, str]]:
        return [one for one in _policy(stage)["conditions"] if one["type"] in ("Applied", "Verified")]

    kept = comes_true(lambda: [one["status"] for one in conditions()] == ["True", "True"])
    says = ", ".join(
        f"{one['type']} {one['status']}" + ("" if kept else f" ({one['message']})") for one in conditions()
    )
    return Row("the policy says what is so", "", "", says, kept)


def _without_control_plane(stage: Stage, pod: PodThere) -> list[Row]:
    """Without an API server to ask, the agent goes on with what it knows."""
    stage.say("the control plane is killed; somebody halves the share of the whole pod")
    for component in components.components(stage.cluster.folder):
        stage.cluster.kill(component)
    took = _slowest_repair(stage, pod, 1, pod.value(1, stage.node.weight_file))
    got, enough = _received(stage, pod)
    kept = enough and took <= stage.repair_milliseconds
    row = _row(stage, "without a control plane", pod, f"{_repaired_after(took)}; {got}", kept)
    return [row, stage.network.flooded("without a control plane")]


def _without_agent(stage: Stage, pod: PodThere) -> list[Row]:
    """What is in the kernel stays."""
    stage.say("the agent is killed")
    stage.kill_agent()
    row = _row(stage, "without the agent, too", pod, *_received(stage, pod))
    return [row, stage.network.flooded("without the agent, too")]


def _taken_away(stage: Stage) -> list[Row]:
    """The network is as it was before us, and so is what a pod has of it."""
    stage.say("what the agent made of the network is taken away")
    return stage.network.taken_away()


def _received(stage: Stage, pod: PodThere) -> tuple[str, bool]:
    """What the pod receives once the kernel delivers by the weights it has; False: not within the time."""
    begun = time.monotonic()
    while True:
        got, took = pod.delivered(_WINDOW), time.monotonic() - begun
        if got.is_enough(stage.node.floor):
            return str(got) + (f", after {took - _WINDOW:.0f} s" if took > 1.5 * _WINDOW else ""), True
        if took > _CONVERGED:
            return str(got), False


def _row(stage: Stage, promise: str, pod: PodThere, delivered: str, kept: bool) -> Row:
    """A row with the planned and the real weights of the container and its pod."""
    plan, name = pod.planned(objects.CONTAINER), stage.node.weight_file
    planned = [plan[(level, name)] for level in (0, 1)]
    kernel = [pod.value(level, name) for level in (0, 1)]
    words = [f"{name} {own}, pod {above}" for own, above in (planned, kernel)]
    return Row(promise, words[0], words[1], delivered, kept and planned == kernel)


def _as_planned(stage: Stage, pod: PodThere) -> bool:
    """Whether the kernel has every planned share of the container and its pod."""
    plan, name = pod.planned(objects.CONTAINER), stage.node.weight_file
    weights = {level: value for (level, file), value in plan.items() if file == name and level <= 1}
    return bool(weights) and all(pod.value(level, name) == value for level, value in weights.items())


def _recorded(stage: Stage) -> str:
    return stage.cluster.kubectl("logs", objects.NAME, check=False).strip()


def _is_resized(stage: Stage) -> bool:
    status = _get(stage, "pod", objects.NAME)["status"]
    resizing = [one["type"] for one in status["conditions"] if one["type"].startswith("PodResize")]
    allocated = status["containerStatuses"][0].get("allocatedResources", {})
    return not resizing and allocated.get("cpu") == objects.resized(stage.node.floor)


def _policy(stage: Stage) -> dict[str, Any]:
    status: dict[str, Any] = _get(stage, "mrp", objects.NAME).get("status", {})
    return status


def _get(stage: Stage, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stage.cluster.kubectl("get", kind, name, "--output=json"))
    return found


def _apply(cluster: Cluster, items: list[dict[str, Any]]) -> None:
    body = {"apiVersion": "v1", "kind": "List", "items": items}
    cluster.kubectl("create", "--filename", "-", stdin=json.dumps(body))


def _wait_running(stage: Stage, name: str) -> None:
    stage.cluster.kubectl(
        "wait", "--for=condition=Ready", f"pod/{name}", f"--timeout={SECONDS:.0f}s", seconds=2 * SECONDS
    )
