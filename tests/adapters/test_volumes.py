"""Volumes as the API server has them."""

import json

import pytest

from adapters.api import DEPLOYMENTS, STATEFUL_SETS
from adapters.kubernetes import decode, volumes
from qos.cluster.objects import NodeSelectorTerm, Requirement
from qos.cluster.volumes import NO_MOUNTS, ClaimTemplate, Mounts, StorageClass, Volume, VolumeClaim

ZONE = "topology.kubernetes.io/zone"


def encode(obj):
    return json.dumps(obj).encode()


def in_zones(*zones):
    return (NodeSelectorTerm((Requirement(ZONE, "In", zones),)),)


def test_a_claim():
    obj = {"metadata": {"namespace": "shop", "name": "data-db-2"}, "spec": {"storageClassName": "fast"}}
    assert volumes.volume_claim(encode(obj)) == VolumeClaim("shop", "data-db-2", "", "fast")
    obj["spec"] = {"volumeName": "pv-2", "resources": {"requests": {"storage": "1Gi"}}}
    assert volumes.volume_claim(encode(obj)) == VolumeClaim("shop", "data-db-2", "pv-2", None)


def test_a_volume_with_and_without_node_affinity():
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]}]
    spec = {
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        "claimRef": {"namespace": "shop", "name": "data-db-2"},
    }
    read = volumes.volume(encode({"metadata": {"name": "pv-2"}, "spec": spec}))
    assert read == Volume("pv-2", in_zones("a", "b"), "shop/data-db-2")
    assert volumes.volume(encode({"metadata": {"name": "nfs"}, "spec": {}})) == Volume("nfs")


def test_a_storage_class():
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
    obj = {"metadata": {"name": "fast", "annotations": default}, "allowedTopologies": allowed}
    assert volumes.storage_class(encode(obj)) == StorageClass("fast", in_zones("a"), True)
    assert volumes.storage_class(encode({"metadata": {"name": "slow"}})) == StorageClass("slow")


def test_what_is_no_claim_is_named():
    raw = encode({"metadata": {"namespace": "shop", "name": "x"}, "spec": {"volumeName": 7}})
    with pytest.raises(decode.DecodeError, match="PersistentVolumeClaim shop/x"):
        volumes.volume_claim(raw)


def workload(kind, volumes=None, **spec):
    pods = {"containers": [{"name": "app"}], "volumes": volumes}
    template = {"metadata": {"labels": {"app": "db"}}, "spec": pods}
    obj = {"metadata": {"name": "db", "namespace": "shop"}, "spec": {"template": template} | spec}
    return decode.workload(kind, encode(obj)).mounts


def test_what_a_workload_mounts():
    shared = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "all", "persistentVolumeClaim": {"claimName": "common"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "hidden by the template"}},
    ]
    templates = [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}]
    read = workload(STATEFUL_SETS, shared, volumeClaimTemplates=templates, ordinals={"start": 3})
    assert read == Mounts(("common",), (ClaimTemplate("data", "fast"),), 3)
    assert workload(DEPLOYMENTS, shared[:1]) == NO_MOUNTS
    assert workload(DEPLOYMENTS, shared[:2]) == Mounts(("common",))
