"""The demonstration: one floor on a real node, from the policy to the kernel, through what breaks it.

A policy; a pod that the extender places; kubelet, containerd and the agent start it; a drift by hand; a
neighbour that stresses CPU and memory; a resize in place; the control plane killed; the agent killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import cluster as lab_cluster
from lab import components, extender_process
from lab.binaries import Binaries
from lab.cluster import Cluster, LabError
from lab.node import demo_objects as objects
from lab.node import demo_pod
from lab.node.demo_pod import PodThere
from lab.node.demo_table import Row
from lab.node.demo_wait import SECONDS, answers, comes_true, until
from lab.node.inside import Inside
from lab.node.node import RealNode
from lab.node.rig import real_node
from lab.node.settings import Programs
from lab.nodes import nodes as kwok_nodes
from lab.scheduler_config import with_extender

Say = Callable[[str], None]

_AGENT_PORT = 10262
_REPAIR_MILLISECONDS = 100.0
_CROWDED_MILLISECONDS = 5000.0
_BUSY = 3 * (os.cpu_count() or 1)
"""Processes of each pod: with few, it is by chance how the kernel spreads them over the CPUs."""
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
    node: RealNode
    agent: Inside
    say: Say
    crowded: bool
    """This machine has other work, so a repair may wait for its turn."""

    @property
    def repair_milliseconds(self) -> float:
        """How long a repair may take."""
        return _CROWDED_MILLISECONDS if self.crowded else _REPAIR_MILLISECONDS


def run(binaries: Binaries, programs: Programs, say: Say, *, crowded: bool = False) -> list[Row]:
    """All of it, in about 40 s; a row for each promise. LabError: something did not even start."""
    with _stage(binaries, programs, say, crowded=crowded) as stage:
        rows = [_held(stage)]
        pod, born = _born(stage)
        rows += [born, _repaired(stage, pod)]
        rows += _stressed(stage, pod)
        rows += [_resized(stage, pod), _told(stage)]
        rows += [_without_control_plane(stage, pod), _without_agent(stage, pod)]
        return rows


@contextlib.contextmanager
def _stage(binaries: Binaries, programs: Programs, say: Say, *, crowded: bool) -> Iterator[Stage]:
    """A control plane with the extender, two KWOK nodes, a real one with the agent; nothing of it stays."""
    name = f"demo-{secrets.token_hex(3)}"
    say("a control plane with the extender, and two nodes of KWOK")
    cluster = lab_cluster.up(name, binaries=binaries, scheduler_config=with_extender("guard"))
    try:
        extender_process.start(cluster).wait_ready()
        _apply(cluster, kwok_nodes("kwok", 2))
        say("a real node: kubelet, containerd, runc")
        with real_node(cluster, programs=programs) as node:
            say("the agent on it")
            with _agent(node) as agent:
                yield Stage(cluster, node, agent, say, crowded)
    finally:
        lab_cluster.down(name)


@contextlib.contextmanager
def _agent(node: RealNode) -> Iterator[Inside]:
    """j10ce-agent inside the node, ready."""
    program = Path(sysconfig.get_path("scripts")) / "j10ce-agent"
    argv: list[str | Path] = [program, "--kubeconfig", node.kubeconfig, "--node", node.name]
    argv += ["--address", f"0.0.0.0:{_AGENT_PORT}", "--check-seconds", "3"]
    log = node.folder / "logs" / "agent.log"
    with log.open("w") as output, node.popen(argv, stdout=output, stderr=output) as agent:
        try:
            url = f"http://{node.address}:{_AGENT_PORT}/readyz"
            until(lambda: answers(url), "the agent is ready", lambda: log.read_text()[-2000:])
            yield agent
        finally:
            agent.kill()


def _held(stage: Stage) -> Row:
    """The slot is held where the policy may have it, before there is a pod."""
    stage.say(f"a policy: {objects.FLOOR_MILLICORES}m CPU, one slot")
    _apply(stage.cluster, objects.rules())
    until(lambda: _policy(stage).get("slots", {}).get("held") == 1, "the slot is held")
    where = [hold["nodeName"] for hold in _policy(stage)["holds"]]
    kept = where == [stage.node.name]
    return Row("capacity before the pod exists", "1 slot", "", f"held on {', '.join(where)}", kept)


def _born(stage: Stage) -> tuple[PodThere, Row]:
    """The pod goes to its slot, and its first command finds the planned value in its own kernel file."""
    stage.say("a pod that names no node")
    weight = demo_pod.weight_file(stage.node)
    own = f"/sys/fs/cgroup/{'cpu/' if weight == 'cpu.shares' else ''}{weight}"
    _apply(stage.cluster, [objects.owner(own, _BUSY)])
    _wait_running(stage, objects.NAME)
    node = _get(stage, "pod", objects.NAME)["spec"]["nodeName"]
    if node != stage.node.name:
        raise LabError(f"pod {objects.NAME} is on {node}, not where its slot is held")
    pod = demo_pod.find(stage.cluster, stage.node, objects.NAME)
    until(lambda: _as_planned(pod), "the agent has planned the pod")
    until(lambda: bool(_recorded(stage)), "the container has said what it found")
    recorded, planned = _recorded(stage), pod.planned(objects.CONTAINER)[(0, weight)]
    kernel = f"{recorded} at its first instruction"
    delivered = f"placed on {node} by the extender"
    return pod, Row("right from birth", f"{weight} {planned}", kernel, delivered, recorded == planned)


def _repaired(stage: Stage, pod: PodThere) -> Row:
    """What a person writes into the kernel file does not stay."""
    stage.say(f"somebody halves the container's {pod.weight_file}, {_DRIFTS} times")
    planned = pod.planned(objects.CONTAINER)[(0, pod.weight_file)]
    took = _slowest_repair(pod, 0, planned)
    promise = f"a drift is repaired within {stage.repair_milliseconds:g} ms"
    kept = took <= stage.repair_milliseconds
    return _row(promise, pod, _repaired_after(took), kept=kept)


def _slowest_repair(pod: PodThere, level: int, value: str) -> float:
    """Milliseconds."""
    return max(demo_pod.repaired_after(pod, level, value) for _ in range(_DRIFTS))


def _repaired_after(took: float) -> str:
    return f"repaired after {took:.0f} ms, the slowest of {_DRIFTS}"


def _stressed(stage: Stage, pod: PodThere) -> list[Row]:
    """The floor while a neighbour that requests half as much again wants all CPUs, and memory over and over.

    Judged with processes that are pinned evenly (demo_pod.spread says why), and shown without. The memory is
    shown only: none is promised, and this machine has so much free that nothing is taken from anybody.
    """
    stage.say(f"a neighbour that requests 1 CPU: {_BUSY} busy processes, and 200 MB over and over")
    _apply(stage.cluster, [objects.neighbour(stage.node.name, _BUSY)])
    _wait_running(stage, objects.NEIGHBOUR)
    until(lambda: _as_planned(pod), "the plan with the neighbour is in the kernel")
    loose = pod.delivered(_WINDOW)
    stage.say("from here the processes of both pods are pinned to the CPUs, as many to each")
    demo_pod.spread(pod)
    demo_pod.spread(demo_pod.find(stage.cluster, stage.node, objects.NEIGHBOUR))
    got, enough = _received(pod)
    floor = f"{objects.FLOOR_MILLICORES}m CPU beside a neighbour under stress"
    memory = pod.memory_bytes()
    held = f"{memory / 1e6:.0f} MB of the {objects.HELD_MEMORY / 1e6:.0f} MB it holds"
    return [
        Row(f"{floor}, as the kernel spreads them", "", "", str(loose), kept=None),
        _row(f"{floor}, {_PINNED}", pod, got, kept=enough),
        Row("its memory, meanwhile", *_memory_promise(stage), held, kept=None),
    ]


def _memory_promise(stage: Stage) -> tuple[str, str]:
    """What is planned for memory, and what this kernel has: the policy promises none, because v1 cannot."""
    promises = _get(stage, "nodeqos", stage.node.name)["status"].get("promises", [])
    enforced = any(one["promise"] == "memory_min_percent" and one["enforced"] for one in promises)
    return "no floor asked for", "memory.min" if enforced else "no memory.min, as NodeQoS says"


def _resized(stage: Stage, pod: PodThere) -> Row:
    """kubelet's resize in place writes its own values; the planned ones are there again."""
    stage.say(f"a resize in place: the request becomes {objects.RESIZED}")
    resources = {"requests": {"cpu": objects.RESIZED}}
    patch = {"spec": {"containers": [{"name": objects.CONTAINER, "resources": resources}]}}
    resize = ("--subresource=resize", "--patch", json.dumps(patch))
    stage.cluster.kubectl("patch", "pod", objects.NAME, *resize)
    until(lambda: _is_resized(stage), "kubelet has resized the pod")
    until(lambda: _as_planned(pod), "the plan is in the kernel after the resize")
    return _row("kept through a resize in place", pod, *_received(pod))


def _told(stage: Stage) -> Row:
    """The policy's own status says that its settings are applied and were read back."""
    stage.say("what the policy's status says")
    wanted = ("Applied", "Verified")

    def conditions() -> dict[str, str]:
        return {one["type"]: one["status"] for one in _policy(stage)["conditions"] if one["type"] in wanted}

    kept = comes_true(lambda: conditions() == dict.fromkeys(wanted, "True"))
    says = ", ".join(f"{kind} {status}" for kind, status in sorted(conditions().items()))
    return Row("the policy says what is so", "", "", says, kept)


def _without_control_plane(stage: Stage, pod: PodThere) -> Row:
    """Without an API server to ask, the agent goes on with what it knows."""
    stage.say("the control plane is killed; somebody halves the share of the whole pod")
    for component in components.components(stage.cluster.folder):
        stage.cluster.kill(component)
    took = _slowest_repair(pod, 1, pod.value(1, pod.weight_file))
    got, enough = _received(pod)
    kept = enough and took <= stage.repair_milliseconds
    return _row("without a control plane", pod, f"{_repaired_after(took)}; {got}", kept)


def _without_agent(stage: Stage, pod: PodThere) -> Row:
    """What is in the kernel stays."""
    stage.say("the agent is killed")
    stage.agent.kill()
    stage.agent.wait(SECONDS)
    return _row("without the agent, too", pod, *_received(pod))


def _received(pod: PodThere) -> tuple[str, bool]:
    """What the pod receives once the kernel delivers by the weights it has; False: not within the time."""
    begun = time.monotonic()
    while True:
        got, took = pod.delivered(_WINDOW), time.monotonic() - begun
        if got.is_enough(objects.FLOOR_MILLICORES):
            return str(got) + (f", after {took - _WINDOW:.0f} s" if took > 1.5 * _WINDOW else ""), True
        if took > _CONVERGED:
            return str(got), False


def _row(promise: str, pod: PodThere, delivered: str, kept: bool) -> Row:
    """A row with the planned and the real weights of the container and its pod."""
    plan, name = pod.planned(objects.CONTAINER), pod.weight_file
    planned = [plan[(level, name)] for level in (0, 1)]
    kernel = [pod.value(level, name) for level in (0, 1)]
    words = [f"{name} {own}, pod {above}" for own, above in (planned, kernel)]
    return Row(promise, words[0], words[1], delivered, kept and planned == kernel)


def _as_planned(pod: PodThere) -> bool:
    """Whether the kernel has every planned value of the container and its pod."""
    plan = pod.planned(objects.CONTAINER)
    weights = {level: value for (level, file), value in plan.items() if file == pod.weight_file}
    return bool(weights) and all(
        pod.value(level, pod.weight_file) == value for level, value in weights.items()
    )


def _recorded(stage: Stage) -> str:
    return stage.cluster.kubectl("logs", objects.NAME, check=False).strip()


def _is_resized(stage: Stage) -> bool:
    status = _get(stage, "pod", objects.NAME)["status"]
    resizing = [one["type"] for one in status["conditions"] if one["type"].startswith("PodResize")]
    allocated = status["containerStatuses"][0].get("allocatedResources", {})
    return not resizing and allocated.get("cpu") == objects.RESIZED


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
