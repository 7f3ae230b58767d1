"""Makes a failing history shorter: fewer steps, sooner, in a simpler world; still the same failure.

Delta debugging: drop ever smaller chunks as long as the same rule is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from simulation.history import History, Step, World
from simulation.play import play

Fails = Callable[[History], bool]

_PLAIN: tuple[tuple[str, Any], ...] = (
    ("status", False),
    ("sample", 0),
    ("spread", True),
    ("latency", 0.01),
    ("lag", 0.002),
    ("cap", 100),
)


def same_failure(history: History) -> Fails:
    """Whether another history breaks the rule that this one breaks first."""
    rule = play(history).broken[0].rule

    def fails(other: History) -> bool:
        return any(one.rule == rule for one in play(other).broken)

    return fails


def shrunk(history: History, fails: Fails, tell: Callable[[int], None] = lambda _: None) -> History:
    """The shortest history found that still fails; `tell` hears the number of steps left."""
    before: History | None = None
    while history != before:
        before = history
        history = _plainer(history, fails)
        history = _fewer(history, fails, tell)
        history = _smaller(history, fails)
        history = _sooner(history, fails)
    return history


def _plainer(history: History, fails: Fails) -> History:
    for name, value in _PLAIN:
        world: World = replace(history.world, **{name: value})
        if world != history.world and fails(replace(history, world=world)):
            history = replace(history, world=world)
    return history


def _fewer(history: History, fails: Fails, tell: Callable[[int], None]) -> History:
    size = max(1, len(history.steps) // 2)
    while size:
        start = len(history.steps)
        while start > 0:
            start -= size
            other = _without(history, max(0, start), start + size)
            if fails(other):
                history = other
                tell(len(history.steps))
        size //= 2
    return history


def _without(history: History, start: int, end: int) -> History:
    """Steps left out; the rest happens when it did."""
    gap = sum(seconds for seconds, _, _ in history.steps[start:end])
    rest = list(history.steps[end:])
    if rest:
        rest[0] = (round(rest[0][0] + gap, 3), *rest[0][1:])
    return replace(history, steps=(*history.steps[:start], *rest))


def _sooner(history: History, fails: Fails) -> History:
    for index, (seconds, name, args) in enumerate(history.steps):
        for shorter in (0.0, 1.0, 5.0):
            if shorter >= seconds:
                break
            other = _with_step(history, index, (shorter, name, args))
            if fails(other):
                history = other
                break
    return history


def _smaller(history: History, fails: Fails) -> History:
    for index in range(len(history.steps)):
        for step in _simpler(history.steps[index]):
            other = _with_step(history, index, step)
            if fails(other):
                history = other
    return history


def _simpler(step: Step) -> Iterator[Step]:
    """The step with one argument simpler."""
    seconds, name, args = step
    for place, arg in enumerate(args):
        if isinstance(arg, dict):
            for spec in _simpler_specs(arg):
                yield seconds, name, (*args[:place], spec, *args[place + 1 :])
        elif isinstance(arg, int) and not isinstance(arg, bool) and name in ("flood", "app") and place == 1:
            for less in (1, arg // 2, arg - 1):
                if 0 < less < arg:
                    yield seconds, name, (*args[:place], less, *args[place + 1 :])


def _simpler_specs(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in ("placement", "priorityClassName", "suspend"):
        if name in spec:
            yield {key: value for key, value in spec.items() if key != name}


def _with_step(history: History, index: int, step: Step) -> History:
    return replace(history, steps=(*history.steps[:index], step, *history.steps[index + 1 :]))
