"""What must be true of placeholders once nothing has happened for long enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from qos.cluster.placeholders import Placeholder

if TYPE_CHECKING:
    from simulation.extender import Extender


def wrongly_standing(extender: Extender, standing: Collection[Placeholder]) -> Iterator[str]:
    """Where not just as many bound placeholders of the right form stand as holds lie; and whose policy is
    gone.
    """
    demands, reports = extender.books.demands(), extender.ledger.report()
    wanted = {
        (key, extender.form_of(demands[key]), node): count
        for key, report in reports.items()
        for node, count in report.holds
    }
    there = Counter((one.policy, one.form, one.node) for one in standing if one.bound)
    for what in sorted(wanted.keys() | there.keys()):
        if wanted.get(what, 0) != there[what]:
            key, _, node = what
            yield f"{key}: {wanted.get(what, 0)} holds, {there[what]} on {node}"
    for one in standing:
        if one.policy not in reports:
            yield f"{one.name} is of {one.policy}, which is gone"


def wrongly_said(extender: Extender, now: float) -> Iterator[str]:
    """Policies whose condition Guarded is not True."""
    guarding = extender.books.guarding
    recent = guarding.recent(now)
    for key in extender.ledger.report():
        guard = guarding.judge(key, recent, ())
        if not guard.guarded:
            yield f"{key}: {guard.message}"
