"""CPU weights inside a pod: all its containers at once, in proportion to their parts of its floor. Pure.

All of a pod's containers are ours, and each gets its weight when it starts. So what one weighs does not
depend on what the others weigh now, and every container's plan comes to the same weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qos.plan import layout
from qos.plan.node import Rival
from qos.plan.weights import LEGACY, Scale
from qos.pods.containers import Container

MARGIN = 49
"""The parts weigh at least this many times what is lost to rounding and to those without a part."""


class PodWeights(NamedTuple):
    """Weights by container name; `need`: millicores that must reach the pod so that all get their parts."""

    weights: Mapping[str, int]
    need: int
    beside: Mapping[str, tuple[Rival, ...]]
    """By container name: the containers that run with it, at the time when they weigh most."""


@dataclass(frozen=True, slots=True)
class Inside:
    """A pod from inside. `groups`: the containers that run at the same time (qos.pods.containers.at_once).

    `parts`: millicores by container name. `others`: the load of what runs there and is no container of it.
    """

    groups: Sequence[Sequence[Container]]
    parts: Mapping[str, int]
    scale: Scale
    others: int = 0

    def settled(self) -> PodWeights:
        """The weights; the smallest with which none has less than its runtime gives it, where they can be."""
        weights = {one.name: self._weight(one) for group in self.groups for one in group}
        loads = {name: self.scale.load(weight) for name, weight in weights.items()}
        need = max(
            -(-self.parts[one.name] * self._load(group, loads) // loads[one.name])
            for group in self.groups
            for one in group
        )
        beside = {
            name: tuple(
                Rival(weights[one.name], cpu_floor=self.parts[one.name])
                for one in self._worst(name, loads)
                if one.name != name
            )
            for name in weights
        }
        return PodWeights(weights, need, beside)

    def _weight(self, one: Container) -> int:
        part = self.parts[one.name]
        if not part:
            return self._expected(one)
        weight = self.scale.least(-(-part * self._total() // self._floor()))
        return self.scale.high if weight is None else weight

    def _total(self) -> int:
        """What the parts of the whole floor weigh together."""
        promised = [one for one in self._containers() if self.parts[one.name]]
        kept = [
            -(-self.scale.load(self._expected(one)) * self._floor() // self.parts[one.name])
            for one in promised
        ]
        largest = max(self.parts[one.name] for one in promised)
        most = self.scale.load(self.scale.high) * self._floor() // largest
        return min(max(*kept, *(MARGIN * self._lost(group) for group in self.groups)), most)

    def _lost(self, group: Sequence[Container]) -> int:
        """The load of those without a part, and what rounding to whole weights may add to the others."""
        unpromised = self.others + sum(
            self.scale.load(self._expected(one)) for one in group if not self.parts[one.name]
        )
        promised = sum(self.parts[one.name] > 0 for one in group)
        rounding = self.scale.load(2) - self.scale.load(1) + 1
        return unpromised + promised * rounding if unpromised or promised > 1 else 0

    def _floor(self) -> int:
        return max(sum(self.parts[one.name] for one in group) for group in self.groups)

    def _load(self, group: Iterable[Container], loads: Mapping[str, int]) -> int:
        return self.others + sum(loads[one.name] for one in group)

    def _worst(self, name: str, loads: Mapping[str, int]) -> Sequence[Container]:
        its = [group for group in self.groups if any(one.name == name for one in group)]
        return max(its, key=lambda group: self._load(group, loads))

    def _containers(self) -> list[Container]:
        return [one for group in self.groups for one in group]

    def _expected(self, one: Container) -> int:
        """What the runtime gives it for its request; it serves as a measure only, no share depends on it."""
        shares = layout.shares(one.cpu_request)
        return shares if self.scale is LEGACY else layout.runtime_weight(shares)
