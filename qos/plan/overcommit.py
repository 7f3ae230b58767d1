"""CPU floors whose sum is more than there is: keeping one takes from another. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from qos.keys import CPU
from qos.plan.node import Level, Rival
from qos.plan.rivals import total
from qos.plan.settings import Plan, Shortfall
from qos.quantity import render


def overcommitted(levels: Sequence[Level], cpus: int, floor: int) -> Shortfall | None:
    """What of a floor is missing when all others below the same cgroups have theirs first: the worst case.

    levels: from the root's child to the cgroup that has the floor, with the floors of its siblings. cpus,
    floor: millicores.
    """
    promised = floor
    for number, level in enumerate(reversed(levels)):
        promised += total(level.rivals, _promised)
        if floor and promised > cpus:
            parent = level.path.rpartition("/")[0] or "/"
            why = (
                f"{render(CPU, promised)} are promised below {parent}, of {render(CPU, cpus)} that there are"
            )
            return Shortfall(CPU, number, level.path, floor, max(floor - (promised - cpus), 0), why)
    return None


def with_shortfall(made: Plan, short: Shortfall | None) -> Plan:
    """The plan; where less of the floor is kept than it says itself, with that instead.

    What depends on a condition stands beside what the plan says itself.
    """
    known = next((one for one in made.shortfalls if short and one.resource == short.resource), None)
    if short is None or (known and known.kept <= short.kept):
        return made
    if short.condition:
        return made._replace(shortfalls=(*made.shortfalls, short))
    return made._replace(shortfalls=(short, *(one for one in made.shortfalls if one is not known)))


def _promised(rival: Rival) -> int:
    return rival.cpu_floor
