"""The checker's own account of pods whose volumes keep them to some nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lab.moored import moored
from lab.moorings import Moorings
from qos.cluster.objects import NodeSelectorTerm, Requirement
from qos.cluster.policy import Workload
from qos.cluster.volumes import ClaimTemplate, Mounts, StorageClass, Volume, VolumeClaim

NODES = "abc"


def most(pods: list[set[str]], room: dict[str, int]) -> int:
    """How many of the pods find a node, by trying every way."""
    if not pods:
        return 0
    best = most(pods[1:], room)
    for name in pods[0]:
        if room.get(name, 0):
            best = max(best, 1 + most(pods[1:], room | {name: room[name] - 1}))
    return best


@given(
    st.lists(st.sets(st.sampled_from(NODES)), max_size=4),
    st.dictionaries(st.sampled_from(NODES), st.integers(0, 2)),
    st.integers(0, 6),
)
def test_it_places_as_many_as_can_be_placed(pods: list[set[str]], room: dict[str, int], count: int) -> None:
    placed = Moorings(tuple(frozenset(pod) for pod in pods)).place(room, count)
    assert all(number <= room[name] for name, number in placed.items())
    others = max(0, count - len(pods))
    assert sum(placed.values()) == min(count, sum(room.values()), most(pods, room) + others)
    assert most(pods, placed) + others >= sum(placed.values())


def test_which_pods_are_moored_to_what() -> None:
    at = (NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),)
    mounts = Mounts(own=(ClaimTemplate("data"),), start=1)
    db = Workload("shop", "StatefulSet", "db", 4, {}, mounts=mounts)
    claims = [
        VolumeClaim("shop", "data-db-1", "pv-1"),
        VolumeClaim("shop", "data-db-2", "anywhere"),
        VolumeClaim("shop", "data-db-3", "", "slow"),
    ]
    volumes = {"pv-1": Volume("pv-1", at), "anywhere": Volume("anywhere")}
    fast = StorageClass("fast", at, default=True)
    found = moored(db, 4, {claim.key: claim for claim in claims}, volumes, [fast, StorageClass("slow")])
    assert found == {"db-1": (volumes["pv-1"],), "db-4": (fast,)}
