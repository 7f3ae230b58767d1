"""Volumes that are bound, lost and made again: which policies are resolved anew, and where holds are then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.catalog import Catalog
from extender.mounted import MountedVolumes
from extender.owners import Owners
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import NodeSelectorTerm, Requirement
from qos.cluster.policy import ScaleTarget, Workload
from qos.cluster.volumes import ClaimTemplate, Mounts, StorageClass, Volume, VolumeClaim
from tests.ledger.builders import node
from tests.qos.builders import policy

ZONE = "topology.kubernetes.io/zone"
DB = ("shop", "StatefulSet", "db")
MOUNTS = Mounts(shared=("common",), own=(ClaimTemplate("data"),))


def at(zone):
    return (NodeSelectorTerm((Requirement(ZONE, "In", (zone,)),)),)


@pytest.fixture
def catalog(clock):
    ledger = Ledger(Mode.GUARD, cap_percent=100)
    for zone in "abc":
        ledger.set_node(node(f"n-{zone}", 8, 64, labels={ZONE: zone}))
    made = Catalog(ledger, lambda: None, Owners(), clock=clock, wall=clock, grace=60.0)
    made.open()
    return made


def holds(catalog):
    for _ in catalog.catch_up():
        pass
    return dict(catalog._ledger.report()["shop/checkout"].holds)


def begin(catalog, mounts=MOUNTS, replicas=1):
    target = ScaleTarget("apps/v1", "StatefulSet", "db")
    catalog.set_workload(
        Workload(
            "shop", "StatefulSet", "db", replicas, {"pods": 1}, selected={"app": "checkout"}, mounts=mounts
        )
    )
    catalog.set_policy(replace(policy(), count=None, scale_target=target, floor={"cpu": 1000}))


def test_holds_follow_the_volumes_that_claims_are_bound_to(catalog):
    begin(catalog)
    assert catalog.asks_for_volumes.is_set()
    volumes = catalog.volumes
    catalog.follow_volumes(volumes.set_claim(VolumeClaim("shop", "data-db-0", "pv-0")))
    for zone in "cba":
        catalog.follow_volumes(volumes.set_volume(Volume("pv-0", at(zone), "shop/data-db-0")))
        assert holds(catalog) == {f"n-{zone}": 1}
    catalog.follow_volumes(volumes.set_claim(VolumeClaim("shop", "common", "pv-1")))
    catalog.follow_volumes(volumes.set_volume(Volume("pv-1", at("b"), "shop/common")))
    assert holds(catalog) == {}, "no node has both"
    catalog.follow_volumes(volumes.remove_volume("pv-0"))
    assert holds(catalog) == {"n-b": 1}
    catalog.follow_volumes(volumes.set_class(StorageClass("fast", at("c"), default=True)))
    catalog.follow_volumes(volumes.remove_claim("shop/data-db-0"))
    assert holds(catalog) == {}
    catalog.follow_volumes(volumes.remove_claim("shop/common"))
    assert holds(catalog) == {"n-c": 1}


def test_nobody_watches_volumes_that_no_policy_follows(catalog):
    begin(catalog, Mounts())
    assert not catalog.asks_for_volumes.is_set()
    other = Workload("shop", "Deployment", "other", 1, {"pods": 1}, mounts=MOUNTS)
    catalog.set_workload(other)
    assert not catalog.asks_for_volumes.is_set()
    begin(catalog)
    assert catalog.asks_for_volumes.is_set()


@pytest.mark.parametrize(
    ("claim", "concerned"),
    [
        ("shop/data-db-0", True),
        ("shop/data-db-17", True),
        ("shop/common", True),
        ("shop/data-db-x", False),
        ("shop/data-db2-0", False),
        ("shop/common-1", False),
        ("other/common", False),
        ("", False),
    ],
)
def test_which_claims_concern_a_workload(claim, concerned):
    made = MountedVolumes()
    made.follow(DB, MOUNTS)
    volume = Volume("pv", at("a"), claim)
    assert [*made.set_volume(volume)] == ([DB] if concerned else [])
    assert [*made.set_volume(volume)] == [], "as it was"
    made.follow(DB, Mounts())
    assert [*made.remove_volume("pv")] == []
