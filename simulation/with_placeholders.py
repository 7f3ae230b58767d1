"""Histories for the keeper Placeholders: the extender's, without what kube-scheduler alone cannot keep.

Left out are bandwidths that owners do not request, topology spread, samples of nodes, Reservations, slots
that are used up or outlive their pods, and owners of another class than their policy's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from simulation.history import History, Step
from simulation.objects import PRIORITIES

_VERBS = ("create", "delete", "patch", "patch", "list")
_AWAY = 0.2
"""Of so many histories the service is away for long each time that it is killed."""
_TAKEN = 0.2
"""Of so many histories somebody deletes placeholders."""
_LONG = 12.0
_LATEST = 15.0
"""Seconds until what nobody waits for takes effect: before the quiet is over."""


class WithPlaceholders:
    """What is drawn for one history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._random = random = Random(f"placeholders {history.world.seed}")  # noqa: S311 - chance, not secrecy
        self._away = random.random() < _AWAY
        self._taken = random.random() < _TAKEN
        self._classes: Mapping[str, str] = {
            app: random.choice(("middle", "high", "high", "low")) for app in ("a", "b", "c")
        }

    def made(self) -> History:
        """The history."""
        world = replace(
            self._history.world,
            keeper="Placeholders",
            mode="Guard",
            binds=True,
            sample=0,
            named=0,
            skew=0,
            status=False,
            reservations=False,
        )
        return History(world, tuple(self._steps()), f"{self._history.about}, with placeholders")

    def _steps(self) -> Iterator[Step]:
        for seconds, name, args in self._history.steps:
            if name == "priority" and args[1] != PRIORITIES[args[0]]:
                yield seconds, "nothing", ()
                continue
            yield seconds, name, self._changed(name, args)
            if self._taken and self._random.random() < 0.1:
                yield 0.0, "placeholder-gone", (self._random.randint(0, 20),)

    def _changed(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        random = self._random
        if name in ("pod", "node"):
            return args[:4]
        if name == "policy":
            return args[0], self._policy(args[0], args[1])
        if name == "app":
            return *args[:4], PRIORITIES[self._classes[args[0]]], *args[5:]
        if name == "fault" and args[0] == "extender":
            return args[0], random.choice(_VERBS), args[2], min(args[3], _LATEST)
        if name == "restart-extender" and self._away:
            return (_LONG,)
        return args

    def _policy(self, app: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        left_out = ("consumePolicy", "releaseDelaySeconds")
        kept = {key: value for key, value in spec.items() if key not in left_out}
        kept["floor"] = {"resources": spec["floor"]["resources"]}
        return {**kept, "priorityClassName": self._classes[app]}
