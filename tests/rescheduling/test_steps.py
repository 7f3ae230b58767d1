"""One migration, step by step, from whatever is found: nothing is remembered between two steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rescheduling.steps import Action, Seen, next_step
from tests.rescheduling.clusters import running

POD, NEW = running("p", "hot"), running("q", "cool")
LEAVING = running("p", "hot", deleting=True)
HELD = Seen("cool", "Available", "cool", POD, "", None, bound_by=300.0, ready_by=600.0)


@pytest.mark.parametrize(
    ("seen", "now", "action", "reason"),
    [
        (replace(HELD, phase="", node=""), 0, Action.WAIT, ""),
        (replace(HELD, phase="Pending", node=""), 300, Action.WAIT, ""),
        (replace(HELD, phase="Pending", node=""), 301, Action.FAIL, "NoPlace"),
        (replace(HELD, phase="Pending", leaves=None), 0, Action.FAIL, "PodGone"),
        (replace(HELD, phase="Pending", leaves=LEAVING), 0, Action.FAIL, "PodGone"),
        (HELD, 0, Action.EVICT, ""),
        (HELD, 301, Action.FAIL, "NotEvicted"),
        (replace(HELD, node="other"), 0, Action.FAIL, "WrongNode"),
        (replace(HELD, leaves=LEAVING), 0, Action.WAIT, ""),
        (replace(HELD, leaves=None), 0, Action.WAIT, ""),
        (replace(HELD, leaves=None), 301, Action.FAIL, "NotCome"),
        (replace(HELD, phase="Failed"), 0, Action.FAIL, "HoldGone"),
        (replace(HELD, phase="Succeeded", came="q", comer=NEW), 0, Action.FAIL, "PlaceTaken"),
        (replace(HELD, phase="Succeeded", came="q"), 600, Action.WAIT, ""),  # watches lag
        (replace(HELD, phase="Succeeded", came="q"), 601, Action.FAIL, "NotReady"),
        (replace(HELD, phase="Succeeded", came="q", leaves=None), 0, Action.WAIT, ""),
        (replace(HELD, phase="Succeeded", came="q", comer=NEW, leaves=None), 0, Action.FINISH, ""),
        (replace(HELD, phase="Succeeded", came="q", comer=NEW, leaves=LEAVING), 500, Action.FINISH, ""),
        (
            replace(HELD, phase="Succeeded", came="q", comer=replace(NEW, ready=False), leaves=None),
            *(600, Action.WAIT, ""),
        ),
        (
            replace(HELD, phase="Succeeded", came="q", comer=replace(NEW, ready=False), leaves=None),
            *(601, Action.FAIL, "NotReady"),
        ),
    ],
)
def test_what_is_done_next(seen: Seen, now: float, action: Action, reason: str) -> None:
    step = next_step(seen, now)
    assert (step.action, step.reason) == (action, reason)
    assert bool(step.why) == (action is Action.FAIL)


def test_only_a_pod_whose_place_is_held_is_evicted() -> None:
    for phase in ("", "Pending", "Waiting", "Succeeded", "Failed"):
        for node in ("", "cool", "other"):
            assert next_step(replace(HELD, phase=phase, node=node), 0).action is not Action.EVICT
