"""Which pods of a workload their volumes keep to which nodes."""

from __future__ import annotations

from qos.cluster.objects import Anchor, NodeSelectorTerm, Requirement, Terms
from qos.cluster.volumes import ClaimTemplate, Mounts, StorageClass, Volume, VolumeClaim, Volumes

ZONE = "topology.kubernetes.io/zone"
OWN = Mounts(own=(ClaimTemplate("data"),))


def at(*zones: str) -> Terms:
    return (NodeSelectorTerm((Requirement(ZONE, "In", zones),)),)


def known(*things: VolumeClaim | Volume | StorageClass) -> Volumes:
    made = Volumes()
    for thing in things:
        match thing:
            case VolumeClaim():
                made.claims[thing.key] = thing
            case Volume():
                made.volumes[thing.name] = thing
            case StorageClass():
                made.classes[thing.name] = thing
    return made


def bound(ordinal: int, *zones: str, start: str = "data") -> list[VolumeClaim | Volume]:
    volume = f"pv-{start}-{ordinal}"
    claim = VolumeClaim("shop", f"{start}-db-{ordinal}", volume)
    return [claim, Volume(volume, at(*zones) if zones else None, claim.key)]


def pods(of: tuple[Anchor, ...]) -> list[tuple[tuple[Terms, ...], list[str]]]:
    return [(anchor.volumes, [*anchor.pods]) for anchor in of]


def test_pods_whose_volumes_are_in_one_zone_are_one_anchor() -> None:
    volumes = known(*bound(0, "a"), *bound(1, "b"), *bound(2, "a"), *bound(3))
    found = volumes.anchors("shop", "db", OWN, 5)
    assert pods(found) == [((at("a"),), ["db-0", "db-2"]), ((at("b"),), ["db-1"])]
    assert found[1].pods["db-1"] == f"PersistentVolume pv-data-1 ({ZONE} in b)"


def test_claims_of_ordinals_that_are_not_wanted_wait_for_them() -> None:
    volumes = known(*bound(0, "a"), *bound(1, "b"))
    assert pods(volumes.anchors("shop", "db", OWN, 1)) == [((at("a"),), ["db-0"])]
    later = Mounts(own=OWN.own, start=1)
    assert pods(volumes.anchors("shop", "db", later, 1)) == [((at("b"),), ["db-1"])]
    assert volumes.anchors("shop", "db", OWN, 0) == ()


def test_all_volumes_of_a_pod_have_to_be_met() -> None:
    both = Mounts(own=(ClaimTemplate("data"), ClaimTemplate("log")))
    volumes = known(*bound(0, "a", "b"), *bound(0, "b", start="log"))
    assert pods(volumes.anchors("shop", "db", both, 1)) == [((at("a", "b"), at("b")), ["db-0"])]


def test_what_is_not_bound_goes_where_its_storage_class_allows() -> None:
    unbound = VolumeClaim("shop", "data-db-1", "", "slow")
    volumes = known(StorageClass("fast", at("a"), default=True), StorageClass("slow"), unbound)
    found = volumes.anchors("shop", "db", OWN, 2)
    assert [anchor.pods for anchor in found] == [{"db-0": f"StorageClass fast ({ZONE} in a)"}]
    named = Mounts(own=(ClaimTemplate("data", "slow"),))
    assert volumes.anchors("shop", "db", named, 2) == ()


def test_a_volume_that_is_not_known_keeps_nobody_anywhere() -> None:
    volumes = known(VolumeClaim("shop", "data-db-0", "pv-0"), StorageClass("fast", at("a"), default=True))
    assert volumes.anchors("shop", "db", OWN, 1) == ()


def test_claims_that_all_pods_share() -> None:
    shared = Mounts(shared=("data-db-0", "data-db-1", "other"))
    places, told = known(*bound(0, "a"), *bound(1, "a", "b")).shared("shop", shared)
    assert places == (at("a"), at("a", "b"))
    assert told == f"PersistentVolume pv-data-0 ({ZONE} in a), PersistentVolume pv-data-1 ({ZONE} in a, b)"
    assert known().shared("shop", shared) == ((), "")
