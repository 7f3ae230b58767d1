"""What a write of a policy's status may not do is noticed."""

from __future__ import annotations

from typing import Any

import pytest

from simulation import lives

NOW = 1_800_000_000.0
BEFORE, AFTER = "2027-01-15T07:59:59Z", "2027-01-15T08:00:09Z"


def policy(*fillers: str, consumed: int = 0, count: int = 3, delay: int = 0, **outliving: str) -> Any:
    entries = [{"podUID": uid, "nodeName": "n1", "releaseTime": when} for uid, when in outliving.items()]
    status = {
        "slots": {"consumed": consumed},
        "filledBy": [{"podUID": uid, "nodeName": "n1"} for uid in fillers],
        "outliving": entries,
    }
    spec = {"consumePolicy": "Once", "releaseDelaySeconds": delay, "slots": {"count": count}}
    return {"spec": spec, "status": status}


@pytest.mark.parametrize(
    ("before", "after", "alive", "wrong"),
    [
        (policy(), policy("a", consumed=1), ["a"], ""),
        (policy("a", consumed=1), policy(consumed=1), [], ""),
        (policy("a", consumed=1), policy(consumed=1), ["a"], "forgotten"),
        (policy("a", consumed=1), policy(consumed=0), [], "were used up"),
        (policy("a", consumed=1), policy(consumed=3), [], "slots become"),
        (policy("a", consumed=1, delay=9), policy(consumed=1, delay=9, a=AFTER), [], ""),
        (policy("a", consumed=1, delay=9), policy(consumed=1, delay=9), [], "slots become"),
        (policy(consumed=1, delay=9, a=BEFORE), policy(consumed=1, delay=9), [], ""),
        (policy(consumed=1, delay=9, a=AFTER), policy(consumed=1, delay=9), [], "slots become"),
        (policy(consumed=1, delay=9, a=AFTER), policy("b", consumed=1, delay=9), ["b"], ""),
    ],
)
def test_writes(before: Any, after: Any, alive: list[str], wrong: str) -> None:
    found = lives.wrong_write(before, after, alive, NOW)
    assert bool(found) == bool(wrong), found
    assert wrong in " ".join(found)


def test_as_many_are_used_up_as_pods_were_told_of() -> None:
    assert not lives.wrong_count(policy("a", consumed=2), ["a", "b"])
    assert lives.wrong_count(policy("a", consumed=1), ["a", "b"])


def test_what_has_long_been_over_is_noticed() -> None:
    assert not lives.stale(policy("a", delay=9, b=BEFORE), ["a"], NOW)
    assert lives.stale(policy("a", delay=9), [], NOW)
    assert lives.stale(policy(delay=9, b=BEFORE), [], NOW + 10)
