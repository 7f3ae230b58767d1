"""Which container wants which value in which kernel file, and what that makes of a shared one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.enforcement.places import Place, Wanted, joined
from kernel.change import RAISE, SET


class Wants:
    """By place and by container id. A place of its own has one value; a shared one what suffices for all."""

    def __init__(self) -> None:
        self._of: dict[Place, dict[str, Wanted]] = {}
        self._by: dict[str, Mapping[Place, Wanted]] = {}
        self._at: dict[str, set[Place]] = {}

    def __contains__(self, place: object) -> bool:
        return place in self._of

    def __len__(self) -> int:
        return len(self._of)

    def put(self, container_id: str, wanted: Mapping[Place, Wanted]) -> None:
        """Replace what a container wants."""
        for place in self._by.get(container_id, {}).keys() - wanted.keys():
            self._drop(place, container_id)
        for place, want in wanted.items():
            wants = self._of.setdefault(place, {})
            wants.pop(container_id, None)  # the newest comes last
            wants[container_id] = want
            self._at.setdefault(place.path, set()).add(place)
        self._by[container_id] = wanted

    def drop(self, container_id: str) -> None:
        """The container wants nothing any more."""
        for place in self._by.pop(container_id, {}):
            self._drop(place, container_id)

    def only(self, container_id: str, place: Place) -> bool:
        """Whether no other container wants something here."""
        return self._of.get(place, {}).keys() <= {container_id}

    def at(self, path: str) -> frozenset[Place]:
        """The places in one cgroup."""
        return frozenset(self._at.get(path, ()))

    def wanting(self, place: Place) -> tuple[str, ...]:
        """Ids of the containers that want something here, the newest last."""
        return tuple(self._of.get(place, ()))

    def is_shared(self, place: Place) -> bool:
        """Whether others besides our containers need the place too: it is then raised, never simply set."""
        wants = self._of.get(place)
        return bool(wants) and next(reversed(wants.values())).mode == RAISE if wants else False

    def shared_paths(self) -> Iterator[str]:
        """Cgroups with a shared place, those above before those below."""
        shared = [path for path, places in self._at.items() if any(map(self.is_shared, places))]
        yield from sorted(shared, key=lambda path: (path.count("/"), path))

    def wanted(self, place: Place, original: str | None) -> Wanted | None:
        """What the place shall hold; None: nothing is wanted here.

        original: what others want there. A shared place gets the least that suffices for them and for all of
        ours; where it is not known, the place is only raised. Of several values for one place of its own
        (they are planned alike) the newest counts.
        """
        wants = self._of.get(place)
        if not wants:
            return None
        newest = next(reversed(wants.values()))
        if newest.mode == SET:
            return newest
        value = newest.value
        for other in {want.value for want in wants.values()}:
            value = joined(place.file, value, other)
        if original is None:
            return Wanted(RAISE, value)
        return Wanted(SET, joined(place.file, original, value))

    def _drop(self, place: Place, container_id: str) -> None:
        wants = self._of.get(place, {})
        wants.pop(container_id, None)
        if not wants:
            self._of.pop(place, None)
            there = self._at.get(place.path, set())
            there.discard(place)
            if not there:
                self._at.pop(place.path, None)
