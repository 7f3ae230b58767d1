"""Conditions of a status, and the Events that their changes are worth. Pure.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple


class Condition(NamedTuple):
    """A condition without its time. Reasons and messages change only when what they say changes."""

    type: str
    status: str
    reason: str
    message: str


class Notice(NamedTuple):
    """What a user must know: an Event on the object."""

    type: str
    reason: str
    note: str


class Announced(NamedTuple):
    """When a condition is worth an Event.

    bad: the status that is a Warning. recovered: the reason of the Event when it is good again, "" for none.
    """

    bad: str
    recovered: str = ""


def stamped(
    conditions: Iterable[Condition], status: Mapping[str, Any], generation: int, now: float
) -> list[dict[str, Any]]:
    """The conditions as they are written. lastTransitionTime: `now` (seconds since the epoch), or as `status`
    has it where a condition's status did not change.
    """
    earlier = {one.get("type"): one for one in status.get("conditions") or ()}
    stamp = timestamp(now)
    return [_stamped(one, earlier.get(one.type), generation, stamp) for one in conditions]


def _stamped(
    one: Condition, earlier: Mapping[str, Any] | None, generation: int, stamp: str
) -> dict[str, Any]:
    same = earlier is not None and earlier.get("status") == one.status
    return {
        "type": one.type,
        "status": one.status,
        "observedGeneration": generation,
        "lastTransitionTime": earlier["lastTransitionTime"] if same and earlier is not None else stamp,
        "reason": one.reason,
        "message": one.message,
    }


def timestamp(now: float) -> str:
    """RFC 3339 in UTC, to the second."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def notices(
    earlier: Mapping[str, Any],
    status: Mapping[str, Any],
    announced: Mapping[str, Announced],
    asked_for: Collection[str] = (),
) -> list[Notice]:
    """The Events for a change of status; none for what stayed, nor for a first status that is good.

    `announced`: by condition. `asked_for`: reasons of what someone configured, which are no news.
    """
    before = {one.get("type"): one for one in earlier.get("conditions") or ()}
    found: dict[str, Notice] = {}
    for one in status["conditions"]:
        if one["type"] not in announced:
            continue
        notice = _notice(before.get(one["type"], {}), one, announced[one["type"]], asked_for)
        if notice is not None and notice.reason not in asked_for:
            found.setdefault(f"{notice.type} {notice.reason}", notice)
    return list(found.values())


def _notice(
    was: Mapping[str, Any], now: Mapping[str, Any], worth: Announced, asked_for: Collection[str]
) -> Notice | None:
    changed = (was.get("status"), was.get("reason")) != (now["status"], now["reason"])
    if now["status"] == worth.bad:
        return Notice("Warning", now["reason"], now["message"]) if changed else None
    if was.get("status") == worth.bad and worth.recovered and was.get("reason") not in asked_for:
        return Notice("Normal", worth.recovered, now["message"])
    return None
