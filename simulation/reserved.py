"""What Koordinator's Reservations promise, over the objects as the API server has them. Pure.

The arithmetic is the simulation's own; `now` in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from qos.cluster.objects import Pod
from qos.quantity import parse

Body = dict[str, Any]
_OVER = ("Succeeded", "Failed")
_LATE_SECONDS = 10.0


def uid_of(body: Body) -> str:
    """Its UID."""
    uid: str = body["metadata"]["uid"]
    return uid


def phase_of(body: Body) -> str:
    """What its status says; "" nothing."""
    phase: str = body.get("status", {}).get("phase", "")
    return phase


def node_of(body: Body) -> str:
    """Where its status says that it is; "" nowhere."""
    node: str = body.get("status", {}).get("nodeName", "")
    return node


def owners(body: Body) -> list[str]:
    """UIDs of the pods that its status names."""
    return sorted(one["uid"] for one in body.get("status", {}).get("currentOwners") or ())


def shared(body: Body) -> bool:
    """Whether it is for several pods."""
    return body["spec"].get("allocateOnce") is False


def reserved(body: Body) -> dict[str, int]:
    """What its template requests."""
    (container,) = body["spec"]["template"]["spec"]["containers"]
    return {name: parse(name, amount) for name, amount in container["resources"]["requests"].items()}


def for_pod(body: Body, pod: Pod) -> bool:
    """Whether one of its owners is the pod, whatever else the pod says."""
    return any(_owns(owner, pod) for owner in body["spec"]["owners"])


def _owns(owner: Body, pod: Pod) -> bool:
    by, controller = owner.get("controller"), pod.controller
    if by is not None and (
        controller is None or (by["kind"], by["name"]) != (controller.kind, controller.name)
    ):
        return False
    named = owner.get("object", {})
    labels = owner.get("labelSelector", {}).get("matchLabels", {})
    return (
        named.get("name", pod.name) == pod.name
        and named.get("namespace", pod.namespace) == pod.namespace
        and all(pod.labels.get(key) == value for key, value in labels.items())
    )


def uses(body: Body, pod: Pod) -> bool:
    """Whether a bound pod says that it uses it, and may."""
    return pod.reserved_by == uid_of(body) and pod.node_name in ("", node_of(body)) and for_pod(body, pod)


def wrong_use(body: Body, pod: Pod, running: Iterable[Pod], ever: Collection[str]) -> list[str]:
    """What is wrong with a bind that says that it uses it. `running`: the pods that are there, `ever`: UIDs
    of all that have ever used it.
    """
    if node_of(body) and pod.node_name != node_of(body):
        return [f"{pod.name} uses it on {pod.node_name}, it is on {node_of(body)}"]
    if not for_pod(body, pod):
        return [f"{pod.name} uses it and is no owner"]
    if not shared(body):
        others = sorted(set(ever) - {pod.uid})
        return [f"{pod.name} uses it, and {others} did before"] if others else []
    if body["spec"].get("allocatePolicy") != "Restricted":
        return []
    have, taken = reserved(body), _sum(one for one in running if uses(body, one))
    over = sorted(name for name in have if taken.get(name, 0) > have[name])
    return [f"{pod.name} uses it, its pods take {taken}, it has {have}"] if over else []


def wrong_write(before: Body, after: Body) -> list[str]:
    """What is wrong with a change of its status."""
    was, becomes = phase_of(before), phase_of(after)
    wrong = []
    if was in _OVER and before.get("status") != after.get("status"):
        wrong.append(f"it is {was}, and its status changes")
    if node_of(before) and node_of(after) != node_of(before):
        wrong.append(f"it moves from {node_of(before)} to {node_of(after) or 'nowhere'}")
    if was == "Available" and becomes in ("", "Pending"):
        wrong.append(f"it was Available, and is {becomes}")
    return wrong


def wrong_at_rest(
    body: Body,
    pods: Collection[Pod],
    ever: Collection[str],
    *,
    perhaps: Collection[str] = (),
    nodes: Collection[str],
    lost: Collection[str],
    now: float,
) -> list[str]:
    """What its status says after quiet that is not so. `ever` as above, `perhaps`: others, of whom
    nobody may know any more; `nodes` that are there, `lost`: that
    were deleted at some time.
    """
    phase, node = phase_of(body), node_of(body)
    there = sorted(pod.uid for pod in pods if pod.node_name and not pod.terminal and uses(body, pod))
    said = owners(body)
    ended = now - _end(body) > _LATE_SECONDS
    wrong = []
    if phase not in _OVER and (ended or (node and node not in nodes)):
        wrong.append(f"it is {phase or 'unheard of'}, and over")
    if phase == "":
        wrong.append("it has no phase")
    if phase == "Failed" and now < _end(body) and node not in lost:
        wrong.append("it is Failed, its time is not over and its node was there")
    if shared(body):
        if phase == "Succeeded":
            wrong.append("it is Succeeded, and for several pods")
        if phase == "Available" and said != there:
            wrong.append(f"its owners are {there}, it says {said}")
        return wrong + (_wrong_sum(body, pods) if phase == "Available" else [])
    if phase == "Succeeded" and (len(said) != 1 or said[0] not in {*ever, *perhaps}):
        wrong.append(f"{sorted(ever)} used it, it says {said}")
    if phase not in _OVER and (there or ever):
        wrong.append(f"{sorted(ever)} used it, and it is {phase}")
    return wrong


def _wrong_sum(body: Body, pods: Iterable[Pod]) -> list[str]:
    taken = _sum(pod for pod in pods if pod.node_name and not pod.terminal and uses(body, pod))
    allocated = body.get("status", {}).get("allocated", {})
    said = {name: parse(name, amount) for name, amount in allocated.items()}
    real = {name: taken.get(name, 0) for name in reserved(body)}
    return [f"its pods take {real}, it says {said}"] if said != real else []


def _sum(pods: Iterable[Pod]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.requests.items():
            total[name] = total.get(name, 0) + amount
    return total


def left_of(body: Body, pods: Iterable[Pod]) -> dict[str, int]:
    """What its pods leave of it, of these."""
    taken = _sum(pod for pod in pods if uses(body, pod))
    return {name: max(0, amount - taken.get(name, 0)) for name, amount in reserved(body).items()}


def _end(body: Body) -> float:
    spec, created = body["spec"], _seconds(body["metadata"]["creationTimestamp"])
    ends = [_seconds(spec["expires"])] if "expires" in spec else []
    if "ttl" in spec:
        ttl = float(spec["ttl"].removesuffix("s"))
        if not ttl:
            return float("inf")
        ends.append(created + ttl)
    return min(ends, default=created + 24 * 3600.0)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def held_where_it_is(body: Body, holds: Mapping[str, int]) -> list[str]:
    """What is wrong with where an Available one is held, by node."""
    elsewhere = sorted(holds.keys() - {node_of(body)})
    return [f"it is on {node_of(body)}, and held on {elsewhere}"] if node_of(body) and elsewhere else []
