"""Whom kubelets refuse, and where pods came past kube-scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from qos.cluster.objects import Pod

_ASSUMED_SECONDS: Final = 10.0
"""Longer than kube-scheduler is on its way to a node to which pods come past it."""


class Arrivals:
    """`refused`: UIDs of pods that kubelet refuses, whether it has said so yet or not."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.refused: set[str] = set()
        self._clock = clock
        self._bypassed: dict[str, float] = {}

    def bypass(self, node: str) -> None:
        """A pod is created on its node."""
        self._bypassed[node] = self._clock()

    def bypassed(self, node: str) -> bool:
        """Whether pods came there past kube-scheduler, so lately that it may be about to bind others."""
        return self._clock() - self._bypassed.get(node, float("-inf")) < _ASSUMED_SECONDS

    def are_in_the_way(self, left: Mapping[str, int], there: Iterable[Pod], needs: Mapping[str, int]) -> bool:
        """Whether only pods that kubelet refuses leave less of a node than a placeholder `needs`. left: what
        all of those leave that are `there`.
        """
        without = Counter(left)
        for pod in there:
            without.update(pod.requests if pod.uid in self.refused else {})
        short = any(left.get(name, 0) < amount for name, amount in needs.items())
        return short and all(without[name] >= amount for name, amount in needs.items())
