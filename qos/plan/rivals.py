"""The children of a cgroup as rivals of each other: sums over hundreds are taken once for all. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Concatenate, Final, ParamSpec, TypeVar, cast, overload

from qos.plan.node import Rival

P = ParamSpec("P")
T = TypeVar("T")
_NOTHING: Final = (0, 0)


class Children:
    """All children of a cgroup, in order."""

    __slots__ = ("_largest", "_once", "_totals", "rivals")

    def __init__(self, rivals: Iterable[Rival]) -> None:
        self.rivals = tuple(rivals)
        self._totals: dict[object, int] = {}
        self._largest: dict[object, tuple[int, int]] = {}
        self._once: dict[object, object] = {}

    def beside(self, index: int | None) -> Beside:
        """All children but one; None: all of them."""
        return Beside(self, index)

    def total(self, measure: Callable[..., int], arguments: tuple[object, ...]) -> int:
        """The measure, summed over all children. It must depend on the child and these arguments alone."""
        key = (measure, arguments)
        if key not in self._totals:
            self._totals[key] = sum(measure(rival, *arguments) for rival in self.rivals)
        return self._totals[key]

    def once(self, key: object, find: Callable[[], T]) -> T:
        """What is found, once for all that ask the same; it must depend on the children and the key alone."""
        if key not in self._once:
            self._once[key] = find()
        return cast("T", self._once[key])

    def two_largest(self, measure: Callable[[Rival], int]) -> tuple[int, int]:
        """The largest, and the largest of the others; 0 where there is none."""
        if measure not in self._largest:
            first, second, *_ = (*sorted(map(measure, self.rivals), reverse=True), *_NOTHING)
            self._largest[measure] = first, second
        return self._largest[measure]


class Beside(Sequence[Rival]):
    """The children of a cgroup, one of them left out where `own` is its place: what is beside that one."""

    __slots__ = ("_all", "_own", "_totals")

    def __init__(self, children: Children, own: int | None) -> None:
        self._all = children
        self._own = () if own is None else (own,)
        self._totals: dict[object, int] = {}

    def __len__(self) -> int:
        return len(self._all.rivals) - len(self._own)

    @overload
    def __getitem__(self, index: int) -> Rival: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Rival]: ...
    def __getitem__(self, index: int | slice) -> Rival | Sequence[Rival]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[Rival]:
        for index, rival in enumerate(self._all.rivals):
            if index not in self._own:
                yield rival

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, Beside) else other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def total(self, measure: Callable[..., int], arguments: tuple[object, ...]) -> int:
        """The measure of all of them."""
        key = (measure, arguments)
        found = self._totals.get(key)
        if found is None:
            found = self._all.total(measure, arguments)
            for index in self._own:
                found -= measure(self._all.rivals[index], *arguments)
            self._totals[key] = found
        return found

    def once(self, asked: tuple[object, ...], find: Callable[[], T]) -> T:
        """What is found, once for all that ask the same beside these: replicas of a pod that start."""
        return self._all.once((self._own, *asked), find)

    def largest(self, measure: Callable[[Rival], int]) -> int:
        """The largest one, 0 where there is none."""
        first, second = self._all.two_largest(measure)
        return second if any(measure(self._all.rivals[index]) == first for index in self._own) else first


def total(
    rivals: Sequence[Rival], measure: Callable[Concatenate[Rival, P], int], *args: P.args, **kwargs: P.kwargs
) -> int:
    """The measure of all of them together; a module's function, whose arguments can be hashed."""
    assert not kwargs
    if isinstance(rivals, Beside):
        return rivals.total(measure, args)
    return sum(measure(rival, *args, **kwargs) for rival in rivals)


def largest(rivals: Sequence[Rival], measure: Callable[[Rival], int]) -> int:
    """The largest of them, 0 where there is none."""
    if isinstance(rivals, Beside):
        return rivals.largest(measure)
    return max(map(measure, rivals), default=0)
