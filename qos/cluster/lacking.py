"""What a pod requests less of than its floor. Pure.

Floors of network bandwidth are no requests: the ledger alone counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from qos import keys
from qos.quantity import render


class Lack(NamedTuple):
    """A resource of which a pod requests less than its floor, both in canonical units."""

    resource: str
    requested: int
    floor: int

    def __str__(self) -> str:
        return f"{self.resource} {render(self.resource, self.requested)}, floor {self.floor_text}"

    @property
    def floor_text(self) -> str:
        """The floor as kubectl shows it."""
        return render(self.resource, self.floor)


def lacks(asked: Mapping[str, int], floor: Mapping[str, int]) -> list[Lack]:
    """What a pod requests less of than `floor`, by resource; both in canonical units.

    asked: as kube-scheduler counts it (qos.cluster.requests).
    """
    return [
        Lack(name, asked.get(name, 0), amount)
        for name, amount in sorted(floor.items())
        if name not in keys.BANDWIDTHS.values() and asked.get(name, 0) < amount
    ]
