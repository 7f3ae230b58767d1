"""Pods, workloads and policies in people's files: what is found, and what errors say where."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.documents import DocumentsError
from adapters.pod_files import Objects, read_objects

POD = "{containers: [{name: web, resources: {requests: {cpu: 500m}}}]}"
POLICY = """\
apiVersion: j10ce.io/v1alpha1
kind: MinimalReservationPolicy
metadata: {name: NAME, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  floor: {resources: {cpu: "1"}}
  slots: {count: 1}
"""
PROFILE = """\
apiVersion: j10ce.io/v1alpha1
kind: QoSProfile
metadata: {name: fast}
spec: {class: LS}
"""


def objects(folder: Path, *texts: str) -> Objects:
    file = folder / "objects.yaml"
    file.write_text("---\n".join(texts))
    return read_objects([file])


WORKLOADS = {
    "Pod": ("spec", POD),
    "Deployment": ("spec", f"{{template: {{spec: {POD}}}}}"),
    "DaemonSet": ("spec", f"{{template: {{spec: {POD}}}}}"),
    "Job": ("spec", f"{{template: {{spec: {POD}}}}}"),
    "CronJob": ("spec", f"{{jobTemplate: {{spec: {{template: {{spec: {POD}}}}}}}}}"),
    "PodTemplate": ("template", f"{{spec: {POD}}}"),
    "Rollout": ("spec", f"{{template: {{spec: {POD}}}}}"),
}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_kinds_with_pods(tmp_path: Path, kind: str) -> None:
    field, text = WORKLOADS[kind]
    (entry,) = objects(tmp_path, f"kind: {kind}\nmetadata: {{name: x}}\n{field}: {text}\n").pods
    assert entry.title == f"{kind} default/x"
    assert entry.pod.containers[0].cpu_request == 500


def test_other_kinds_are_passed_over_and_lists_are_opened(tmp_path: Path) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {template: 1}\n"
    pods = "kind: List\nitems:\n" + "".join(
        f"  - {{kind: Pod, metadata: {{name: {name}}}, spec: {POD}}}\n" for name in ("one", "two")
    )
    found = objects(tmp_path, service, pods)
    assert [entry.pod.name for entry in found.pods] == ["one", "two"]


def test_the_template_has_the_labels_and_the_workload_the_name(tmp_path: Path) -> None:
    text = (
        "kind: Deployment\nmetadata: {name: web, namespace: shop, labels: {app: other}}\n"
        f"spec: {{template: {{metadata: {{name: ignored, labels: {{app: web}}}}, spec: {POD}}}}}\n"
    )
    (entry,) = objects(tmp_path, text).pods
    assert (entry.pod.namespace, entry.pod.name, entry.pod.labels) == ("shop", "web", {"app": "web"})


def test_a_priority_class_in_the_files_counts_wherever_it_stands(tmp_path: Path) -> None:
    pod = "kind: Pod\nmetadata: {name: NAME}\nspec: {priorityClassName: CLASS, containers: [{name: c}]}\n"
    texts = [
        pod.replace("NAME", "a").replace("CLASS", "koord-prod"),
        pod.replace("NAME", "b").replace("CLASS", "system-node-critical"),
        pod.replace("NAME", "c").replace("CLASS", "unknown"),
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: koord-prod}\nvalue: 9000\n",
    ]
    found = objects(tmp_path, *texts)
    assert [entry.pod.priority for entry in found.pods] == [9000, 2_000_001_000, None]


def test_the_policies_of_a_pod_the_winner_first(tmp_path: Path) -> None:
    def policy(name: str, more: str = "") -> str:
        return POLICY.replace("NAME", name) + more

    pod = f"kind: Pod\nmetadata: {{name: web, namespace: shop, labels: {{app: web}}}}\nspec: {POD}\n"
    high = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 10\n"
    elsewhere = policy("elsewhere").replace("shop", "other")
    older = (
        policy("older")
        .replace("NAME", "x")
        .replace("namespace: shop}", "namespace: shop, creationTimestamp: 2020-01-01T00:00:00Z}")
    )
    texts = [
        policy("z"),
        policy("a"),
        older,
        policy("top", "  priorityClassName: high\n"),
        elsewhere,
        high,
        pod,
    ]
    found = objects(tmp_path, *texts)
    winners = [policy.name for policy, _ in found.policies_of(found.pods[0].pod)]
    assert winners == ["top", "older", "a", "z"]


NO_QUANTITY = """\
kind: Pod
metadata: {name: x}
spec:
  containers:
    - name: c
      resources:
        requests: {cpu: half}
"""
NO_TEXT = f"""\
kind: Deployment
metadata: {{name: x}}
spec:
  template:
    metadata:
      labels:
        a/b: 1
    spec: {POD}
"""

BAD = [
    (
        NO_QUANTITY,
        "objects.yaml:7: Pod default/x: spec.containers[0].resources.requests: cpu: 'half' is not a quantity",
    ),
    (
        NO_TEXT,
        "objects.yaml:7: Deployment default/x: spec.template.metadata.labels.a/b: 1: values are text",
    ),
    (
        "kind: Deployment\nmetadata: {name: x}\nspec: {}\n",
        "objects.yaml:3: Deployment default/x: spec.template.spec.containers: None: a pod has at least one",
    ),
    ("kind: Pod\nspec: {}\n", "objects.yaml:1: Pod: metadata.name: None: expected a name"),
    (
        POLICY.replace('cpu: "1"', "cpu: -1"),
        "objects.yaml:6: MinimalReservationPolicy shop/NAME: spec.floor",
    ),
    (PROFILE.replace("LS", "XL"), "objects.yaml:4: QoSProfile fast: spec.class: 'XL': must be one of SYSTEM"),
    (f"{PROFILE}---\n{PROFILE}", "objects.yaml:8: metadata.name: another QoSProfile here is called fast"),
    ("kind: [\n", "objects.yaml:2: is not YAML"),
    ("- kind: Pod\n", "objects.yaml:1: expected Kubernetes objects"),
    ("kind: Pod\nmetadata: []\nspec: 1\n", "objects.yaml:2: Pod: metadata: []: expected a mapping"),
]


@pytest.mark.parametrize(
    ("text", "message"), BAD, ids=[message.partition(": ")[2][:40] for _, message in BAD]
)
def test_errors_name_file_line_and_field(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DocumentsError) as error:
        objects(tmp_path, text)
    assert message in str(error.value)


def test_all_errors_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(DocumentsError) as error:
        objects(tmp_path, "kind: Pod\n", PROFILE.replace("LS", "XL"), "kind: Pod\n")
    assert len(error.value.problems) == 3


FIELDS = st.sampled_from(
    [
        "metadata",
        "name",
        "namespace",
        "labels",
        "annotations",
        "uid",
        "creationTimestamp",
        "spec",
        "template",
        "jobTemplate",
        "items",
        "containers",
        "initContainers",
        "resources",
        "requests",
        "limits",
        "cpu",
        "memory",
        "status",
        "qosClass",
        "priorityClassName",
        "value",
        "floor",
        "slots",
        "count",
        "selector",
        "matchLabels",
        "matchExpressions",
        "profileName",
        "class",
        "promises",
        "description",
    ]
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)


@given(
    kind=st.sampled_from([*WORKLOADS, "MinimalReservationPolicy", "QoSProfile", "PriorityClass", "List"]),
    junk=JUNK,
)
def test_whatever_is_written_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, kind: str, junk: object
) -> None:
    group = {"PriorityClass": "scheduling.k8s.io/v1", "List": "v1"}.get(kind, "j10ce.io/v1alpha1")
    body = junk if isinstance(junk, dict) else {"spec": junk, "metadata": junk}
    text = json.dumps(body | {"apiVersion": group, "kind": kind})
    with contextlib.suppress(DocumentsError):
        objects(tmp_path_factory.mktemp("junk"), text)
