"""What pods carry for other projects without an effect here is named, and nothing that has one."""

from __future__ import annotations

import pytest

from qos import keys
from qos.pods.containers import from_manifest
from qos.pods.expectation import ANNOTATIONS
from qos.pods.peers.unheeded import KNOWN, PROJECTS, unheeded


def named(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    resources: dict[str, str] | None = None,
) -> dict[str, str]:
    manifest = {
        "metadata": {"name": "web", "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "web", "resources": {"requests": resources, "limits": resources}}]},
    }
    return {one.promise: one.why for one in unheeded(from_manifest(manifest))}


def test_what_has_an_effect_is_not_named():
    labels = {keys.KOORDINATOR_CLASS_LABEL: "LS", keys.KATALYST_LEVEL: "shared_cores", "app": "web"}
    assert not named(labels, dict.fromkeys(ANNOTATIONS, "{}"), {"cpu": "1", "memory": "1Gi"})


@pytest.mark.parametrize("key", [*KNOWN, "scheduling.koordinator.sh/device-allocated"])
def test_each_known_key_is_named_with_its_reason(key: str):
    name = f"{key}x" if key[-1] in "/-" else key
    why = KNOWN.get(key, KNOWN[keys.KOORDINATOR_SCHEDULING_PREFIX])
    assert named(annotations={name: "x"}) == {f"annotation {name}": why}


@pytest.mark.parametrize(
    ("key", "domain"),
    [
        ("koordinator.sh/netQoSClass", "koordinator.sh"),
        ("node.koordinator.sh/resctrl", "koordinator.sh"),
        ("katalyst.kubewharf.io/net_class_id", "katalyst.kubewharf.io"),
        ("analysis.gocrane.io/replicas-recommendation", "gocrane.io"),
    ],
)
def test_so_is_each_other_key_of_these_projects(key: str, domain: str):
    assert named(labels={key: "x"}) == {f"label {key}": PROJECTS[domain]}


def test_a_label_where_an_annotation_is_read_has_no_effect_and_is_named():
    assert set(named(labels={keys.KOORDINATOR_MEMORY_ANNOTATION: "x"})) == {"label koordinator.sh/memoryQOS"}
    assert set(named(annotations={keys.KOORDINATOR_CLASS_LABEL: "LS"})) == {
        "annotation koordinator.sh/qosClass"
    }


def test_resources_are_named_once():
    asked = {keys.BATCH_CPU: "2000", "resource.katalyst.kubewharf.io/reclaimed_millicpu": "500"}
    assert set(named(resources=asked)) == {f"resource {name}" for name in asked}


@pytest.mark.parametrize(
    "key", ["example.com/koordinator.sh", "notkoordinator.sh/x", "nvidia.com/gpu", "app"]
)
def test_keys_of_others_are_not(key: str):
    assert not named(labels={key: "x"}, annotations={key: "x"}, resources={key: "1"})
