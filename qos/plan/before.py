"""What each cgroup of a node gets by the weights that others gave it, before a plan changes any. Pure.

All want what they can get; a quota gives back what it cuts off, to the siblings, by their weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple


class Found(NamedTuple):
    """A cgroup as others left it: its load beside its siblings, and the most that its quota lets it take, in
    millicores; None: it has none.
    """

    load: int
    quota: int | None = None


def shares(
    inside: Mapping[str, Sequence[str]],
    found: Mapping[str, Found],
    loose: Mapping[str, Sequence[Found]],
    cpus: Mapping[str, int],
) -> dict[str, Fraction]:
    """What each cgroup gets, in millicores, by path.

    inside: the children of the root ("/") and of whatever has some that matter, parents before children.
    loose: what competes with them and is no cgroup. cpus: millicores that may be used below each of `inside`.
    """
    limits: dict[str, int | None] = {}
    for path in reversed(list(inside)):
        of_children = [_limit(child, found, limits) for child in inside[path]]
        known = [one for one in of_children if one is not None]
        limits[path] = sum(known) if len(known) == len(of_children) and not loose[path] else None
    result: dict[str, Fraction] = {}
    reaching = {"/": Fraction(cpus["/"])}
    for path, children in inside.items():
        those = [Found(found[child].load, _limit(child, found, limits)) for child in children]
        given = divided(reaching[path], [*those, *loose[path]])
        for child, amount in zip(children, given, strict=False):
            result[child] = amount
            if child in inside:
                reaching[child] = amount * cpus[child] / max(cpus[path], 1)
    return result


def divided(amount: Fraction, those: Sequence[Found]) -> list[Fraction]:
    """What each of them gets: by load, and of those with a quota no more than that."""
    given = [Fraction()] * len(those)
    hungry = [index for index, one in enumerate(those) if one.load]
    hungry.sort(key=lambda index: _ratio(those[index]))
    load = sum(those[index].load for index in hungry)
    for place, index in enumerate(hungry):
        own, quota = those[index]
        if quota is None or quota * load > amount * own:
            unit = amount / load
            for rest in hungry[place:]:
                given[rest] = unit * those[rest].load
            break
        given[index] = Fraction(quota)
        amount, load = amount - quota, load - own
    return given


def _ratio(one: Found) -> tuple[bool, Fraction]:
    """Who is satisfied first comes first."""
    return one.quota is None, Fraction(one.quota or 0, one.load)


def _limit(child: str, found: Mapping[str, Found], limits: Mapping[str, int | None]) -> int | None:
    own, below = found[child].quota, limits.get(child)
    if not found[child].load:
        return 0
    return below if own is None else own if below is None else min(own, below)
