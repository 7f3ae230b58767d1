"""One resource of a parent, shared among its children: Koordinator's rule, in exact integers.

Each child has first what it wants of its min; what is left goes to those that want more, by weight, in whole
units by the largest remainder (ties by name), none more than it wants, until all have it or nothing is left.
Where the parent has less than the sum of mins, mins are scaled down in proportion. Ours: what floors hold in
a child comes before every min, so that it is lent to nobody.
Source: koordinator-sh/koordinator, pkg/scheduler/plugins/elasticquota/core, runtime_quota_calculator.go and
scale_minquota_when_over_root_res.go.
"""

from __future__ import annotations

from collections.abc import Sequence


def least(total: int, mins: Sequence[int], kept: Sequence[int]) -> list[int]:
    """What is guaranteed to each child: its min, and never less than floors hold in it.

    Scaled down so that the sum is within the total: first the mins, in proportion to what of them floors do
    not hold, and what floors hold only where the total has not even that.
    """
    wanted = [own if own > held else held for own, held in zip(mins, kept, strict=True)]
    if sum(wanted) <= total:
        return wanted
    held_by_all = sum(kept)
    if held_by_all >= total:
        return [held * total // held_by_all if held else 0 for held in kept]
    left, rest = total - held_by_all, sum(wanted) - held_by_all
    return [held + (most - held) * left // rest for most, held in zip(wanted, kept, strict=True)]


def share(
    total: int, wants: Sequence[int], leasts: Sequence[int], weights: Sequence[int], lends: Sequence[bool]
) -> list[int]:
    """What each child may use, in the order given, which is that of names.

    wants: requests, limited by max. leasts: see least(); their sum is within the total. lends: whether a
    child that wants less leaves the rest to others.
    """
    shares = [
        want if want < guaranteed and lent else guaranteed
        for want, guaranteed, lent in zip(wants, leasts, lends, strict=True)
    ]
    left = total - sum(shares)
    asking = [i for i, want in enumerate(wants) if want > leasts[i] and weights[i] > 0]
    while left > 0 and asking:
        _deal(left, asking, weights, shares)
        left, unsatisfied = 0, []
        for i in asking:
            excess = shares[i] - wants[i]
            if excess < 0:
                unsatisfied.append(i)
            else:
                left += excess
                shares[i] = wants[i]
        asking = unsatisfied
    return shares


def _deal(amount: int, asking: Sequence[int], weights: Sequence[int], shares: list[int]) -> None:
    """Add the amount to the shares of those who ask, by weight; whole units by the largest remainder."""
    whole = sum([weights[i] for i in asking])
    remainders = []
    dealt = 0
    for i in asking:
        part, remainder = divmod(weights[i] * amount, whole)
        shares[i] += part
        dealt += part
        remainders.append(remainder)
    order = sorted(range(len(asking)), key=remainders.__getitem__, reverse=True)
    for position in order[: amount - dealt]:
        shares[asking[position]] += 1
