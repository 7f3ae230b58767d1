"""What one write of a policy's status may do to slots that are used up, or outlive their pods. Pure.

The arithmetic is its own, over the objects as the API server has them; `now` in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from qos.cluster.objects import Pod
from qos.quantity import parse

Body = dict[str, Any]
_LATE_SECONDS = 10.0


def running(body: Body, pods: Iterable[Pod]) -> list[str]:
    """UIDs of those of these pods that run, and that a policy has for owners if it selects them."""
    spec = body["spec"]
    restricted = spec.get("ownerFit") == "Restricted"
    floor = spec["floor"].get("resources", {}) if restricted else {}
    most = {name: parse(name, amount) for name, amount in floor.items()}
    there = (pod for pod in pods if pod.node_name and not pod.terminal)
    return [pod.uid for pod in there if all(pod.requests.get(name, 0) <= most[name] for name in most)]


def wrong_write(before: Body, after: Body, alive: Collection[str], now: float) -> list[str]:
    """What is wrong with a status that replaces another, of the same spec. `alive`: its running pods."""
    spec, was, becomes = after["spec"], before.get("status", {}), after.get("status", {})
    once, delay = spec.get("consumePolicy") == "Once", spec.get("releaseDelaySeconds", 0)
    if not (once or delay):
        return []
    wrong = []
    left = _fillers(was) - _fillers(becomes)
    if still := left.intersection(alive):
        wrong.append(f"{sorted(still)} run, and are forgotten")
    ends = [datetime.fromisoformat(one["releaseTime"]).timestamp() for one in was.get("outliving") or ()]
    released = sum(end <= now for end in ends) + (0 if delay else len(left))
    if _slots(spec, becomes) < _slots(spec, was) - released:
        wrong.append(f"{_slots(spec, was)} slots become {_slots(spec, becomes)}, {released} may be let go")
    if once and _consumed(becomes) < _consumed(was):
        wrong.append(f"{_consumed(was)} slots were used up, now {_consumed(becomes)}")
    return wrong


def wrong_count(body: Body, told: Collection[str]) -> list[str]:
    """What is wrong with how many slots are used up, where none outlives its pod: as many as pods were named.

    `told`: those that any status has named since the policy was made.
    """
    spec = body["spec"]
    if spec.get("consumePolicy") != "Once" or spec.get("releaseDelaySeconds"):
        return []
    consumed = _consumed(body.get("status", {}))
    return [] if consumed == len(told) else [f"{consumed} slots used up by {len(told)} pods"]


def stale(body: Body, alive: Collection[str], now: float) -> list[str]:
    """What a status still says after quiet that has long been over."""
    status = body.get("status", {})
    wrong = []
    if ended := _fillers(status).difference(alive):
        wrong.append(f"{sorted(ended)} have ended, and fill slots")
    ends = [datetime.fromisoformat(one["releaseTime"]).timestamp() for one in status.get("outliving") or ()]
    late = sum(now - end > _LATE_SECONDS for end in ends)
    return [*wrong, f"{late} slots should have been let go"] if late else wrong


def fillers(body: Body) -> frozenset[str]:
    """The pods that a policy's status names."""
    return _fillers(body.get("status", {}))


def _fillers(status: Body) -> frozenset[str]:
    return frozenset(one["podUID"] for one in status.get("filledBy") or ())


def _consumed(status: Body) -> int:
    return int(status.get("slots", {}).get("consumed", 0))


def _slots(spec: Body, status: Body) -> int:
    named = len(_fillers(status)) + len(status.get("outliving") or ())
    gone = max(0, _consumed(status) - named) if spec.get("consumePolicy") == "Once" else 0
    return max(int(spec["slots"]["count"]) - gone, named)
