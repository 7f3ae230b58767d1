"""What the tests of the plan share: a tree for the kernel's simulator from levels and what was planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from lab.kernel_rules import Group
from qos.plan.node import Level

OF_PATH = "level"
OF_RIVAL = "rival"


@pytest.fixture(scope="session")
def tree_of() -> Callable[..., Group]:
    """(levels, unified, weights=..., idle=..., protection=...) -> the root.

    Groups on the path are called level<number>, siblings rival<number>.<position>. The mappings say what was
    planned, by level number; else it is as read. Protection of siblings is what was promised to them.
    """

    def make(
        levels: Sequence[Level],
        *,
        unified: bool = True,
        weights: Mapping[int, int] | None = None,
        idle: Mapping[int, bool] | None = None,
        protection: Mapping[int, int] | None = None,
        usage: int = 0,
    ) -> Group:
        root = parent = Group("/")
        for index, level in enumerate(levels):
            number = len(levels) - 1 - index
            for position, rival in enumerate(level.rivals):
                sibling = Group(
                    f"{OF_RIVAL}{number}.{position}",
                    idle=rival.idle,
                    memory_min=-(-rival.memory_min // 4096) * 4096,
                    memory_usage=max(rival.memory_min * 2, 1 << 20),
                )
                _weigh(sibling, rival.weight, unified)
                parent.children.append(sibling)
            group = Group(
                f"{OF_PATH}{number}",
                idle=(idle or {}).get(number, level.idle),
                quota=level.cpu_quota,
                memory_min=max((protection or {}).get(number, 0), level.memory_min if not level.owned else 0),
                memory_max=level.memory_max,
                memory_usage=usage,
            )
            _weigh(group, (weights or {}).get(number, level.weight), unified)
            parent.children.append(group)
            parent = group
        return root

    return make


def _weigh(group: Group, weight: int, unified: bool) -> None:
    if unified:
        group.weight = weight
    else:
        group.shares = weight
