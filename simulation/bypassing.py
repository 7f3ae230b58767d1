"""Pods that come past every scheduler, to nodes whose kubelets refuse what does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from simulation.history import History, Step

BYPASSED = 0.3
"""In so many histories with placeholders."""
_OFTEN = 0.15
_KNOWN = 3
"""After so many steps they may come, beside those that make nodes and policies."""


def with_bypassers(history: History) -> History:
    """The history, and in some of them such pods, many of them at once."""
    random = Random(f"bypassers {history.world.seed}")  # noqa: S311 - chance, not secrecy
    if random.random() >= BYPASSED:
        return history
    world = replace(history.world, refuses=random.choice((0.05, 0.5, 3.0)))
    return replace(history, world=world, steps=tuple(_steps(random, history.steps)))


def _steps(random: Random, steps: Sequence[Step]) -> Iterator[Step]:
    nodes = sorted({args[0] for _, name, args in steps if name == "node"})
    number = 0
    there: list[str] = []
    for at, step in enumerate(steps):
        yield step
        if at < len(nodes) + _KNOWN or random.random() >= _OFTEN:
            continue
        yield from ((0.0, "delete", (name, 0.0)) for name in there if random.random() < 0.5)
        node, cpu = random.choice(nodes), random.choice((500, 1000, 1000, 2000))
        pace = random.choice((0.0, 0.02, 0.2))
        there = []
        for _ in range(random.choice((1, 3, 10))):
            number += 1
            there.append(f"bypass-{number}")
            yield pace, "static", (there[-1], cpu, 64, node)
