"""What uninstall removes, and what it leaves in a namespace that others use; a script plays kubectl."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cli import installation, placeholders, uninstall
from cli.kubectl import Kubectl, identity
from qos import keys

pytestmark = pytest.mark.program

# Answers from cluster.json: {kind or resource: objects}; selectors on part-of are honoured.
KUBECTL = f"""#!{sys.executable} -SE
import json, sys
from pathlib import Path
here = Path(__file__).parent
cluster = json.loads((here / "cluster.json").read_text())
words = sys.argv[1:]
with (here / "log").open("a") as log:
    log.write(json.dumps(words) + "\\n")
if words[:2] == ["get", "--raw"]:
    resources = [{{"kind": "MutatingAdmissionPolicy"}}]
    print(json.dumps({{"versions": [{{"version": "v1"}}], "resources": resources}}))
elif words[0] == "kustomize":
    print(json.dumps(cluster["namespace"][0]))
elif words[0] == "get" and "-f" in words:
    kinds = [item["kind"].lower() for item in json.loads(sys.stdin.read())["items"]]
    items = [item for kind in dict.fromkeys(kinds) for item in cluster.get(kind, [])]
    print(json.dumps({{"kind": "List", "items": items}}))
elif words[0] == "get":
    items = [item for kind in words[1].split(",") for item in cluster.get(kind, [])]
    for word in words:
        label, sign, value = word.partition("!=") if "!=" in word else word.partition("=")
        if sign and label != "status.phase":
            items = [
                item for item in items
                if (item["metadata"].get("labels", {{}}).get(label) == value) == (sign == "=")
            ]
    print(json.dumps({{"kind": "List", "items": items}}))
"""


def thing(kind: str, name: str, *, ours: bool = False, **metadata: Any) -> dict[str, Any]:
    labels = dict(installation.PART_OF) if ours else {}
    where = {} if kind == "Namespace" else {"namespace": installation.NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels} | where | metadata,
    }


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    path = tmp_path / "kubectl"
    path.write_text(KUBECTL)
    path.chmod(0o755)
    return Kubectl(path)


def survey(kubectl: Kubectl, *, namespace_ours: bool, **cluster: list[dict[str, Any]]) -> uninstall.Remains:
    there = cluster | {"namespace": [thing("Namespace", installation.NAMESPACE, ours=namespace_ours)]}
    kubectl.binary.with_name("cluster.json").write_text(json.dumps(there))
    return uninstall.survey(kubectl)


def names(remains: uninstall.Remains) -> set[str]:
    return {f"{kind}/{name}" for _, kind, _, name in map(identity, remains.objects)}


MAPS = [
    thing("ConfigMap", "kube-root-ca.crt"),
    thing("ConfigMap", "j10ce-scheduler-config-of-observe", ours=True),
]
OWNED = thing("Pod", "j10ce-scheduler-x", ownerReferences=[{"kind": "ReplicaSet"}])


def test_a_namespace_that_install_made_goes(kubectl: Kubectl) -> None:
    found = survey(kubectl, namespace_ours=True, configmaps=MAPS, pods=[])
    assert found.kept == ""
    assert names(found) == {"Namespace/j10ce-system", "ConfigMap/j10ce-scheduler-config-of-observe"}


def test_what_is_in_every_namespace_or_owned_is_nobodys(kubectl: Kubectl) -> None:
    accounts = [thing("ServiceAccount", "default")]
    found = survey(kubectl, namespace_ours=True, configmaps=MAPS, pods=[OWNED], serviceaccounts=accounts)
    assert found.kept == ""


def test_a_namespace_that_was_there_stays_and_what_is_ours_in_it_goes(kubectl: Kubectl) -> None:
    leases = [thing("Lease", "theirs"), thing("Lease", "j10ce-scheduler")]
    found = survey(kubectl, namespace_ours=False, configmaps=MAPS, leases=leases)
    assert "was there before" in found.kept
    assert names(found) == {"ConfigMap/j10ce-scheduler-config-of-observe", "Lease/j10ce-scheduler"}
    assert found.to_json()["keptNamespace"] == found.kept


def test_a_namespace_with_things_of_others_stays_and_they_are_named(kubectl: Kubectl) -> None:
    found = survey(kubectl, namespace_ours=True, secrets=[thing("Secret", "theirs")])
    assert "it holds Secret/theirs" in found.kept
    assert "Namespace/j10ce-system" not in names(found)


def test_leases_of_others_are_not_deleted(kubectl: Kubectl) -> None:
    deployment = thing("Deployment", "j10ce-scheduler", ours=True)
    survey(kubectl, namespace_ours=False)
    remains = uninstall.Remains((deployment,), (), (), {}, {})
    assert uninstall.stop_programs(kubectl, remains)
    last = json.loads((kubectl.binary.parent / "log").read_text().splitlines()[-1])
    assert last[:2] == ["delete", "leases"]
    assert "--all" not in last


def test_owners_are_raised_no_more_before_the_program_ends(kubectl: Kubectl) -> None:
    """Nobody would take them back: they would evict their equals, and stay raised for good."""
    program = thing("Deployment", "j10ce-extender", ours=True)
    raises = thing("MutatingAdmissionPolicyBinding", placeholders.RAISING, ours=True)
    survey(kubectl, namespace_ours=False)
    assert uninstall.stop_programs(kubectl, uninstall.Remains((program, raises), (), (), {}, {}))
    log = [json.loads(line) for line in (kubectl.binary.parent / "log").read_text().splitlines()]
    deleted = [line for line in log if line[0] == "delete"]
    assert ["--cascade=foreground" in line for line in deleted] == [False, True, False]


def test_of_each_node_only_that_annotation_is_taken_which_our_mark_names(kubectl: Kubectl) -> None:
    annotations = {keys.SCALE_DOWN_DISABLED_ANNOTATION: "true", keys.DO_NOT_DISRUPT_ANNOTATION: "true"}
    nodes = [thing("Node", "one"), thing("Node", "of-karpenter"), thing("Node", "other")]
    for node, mark in zip(nodes, ("true", "karpenter", ""), strict=True):
        node["metadata"]["annotations"] = annotations | ({keys.HELD_ANNOTATION: mark} if mark else {})
    found = survey(kubectl, namespace_ours=False, nodes=nodes)
    assert found.nodes == {"true": ["one"], "karpenter": ["of-karpenter"]}
    assert found.to_json()["nodes"] == ["of-karpenter", "one"]
    uninstall.clean_annotations(kubectl, found)
    log = [json.loads(line) for line in (kubectl.binary.parent / "log").read_text().splitlines()]
    taken = [sorted(word for word in line if word.endswith("-")) for line in log if line[0] == "annotate"]
    assert taken == [
        ["cluster-autoscaler.kubernetes.io/scale-down-disabled-", "j10ce.io/held-"],
        ["j10ce.io/held-", "karpenter.sh/do-not-disrupt-"],
    ]


def test_what_autoscalers_were_asked_is_taken_back_with_its_templates_last(kubectl: Kubectl) -> None:
    label = {keys.BUFFER_LABEL: "true"}
    ours = thing("CapacityBuffer", "j10ce-checkout", labels=label)
    found = survey(
        kubectl,
        namespace_ours=False,
        **{
            installation.BUFFERS: [ours],
            "podtemplates": [thing("PodTemplate", "j10ce-checkout", labels=label)],
        },
    )
    assert found.buffers == (f"{installation.NAMESPACE}/j10ce-checkout",)
    assert not found.nothing
    assert found.to_json()["capacityBuffers"] == [*found.buffers]
    uninstall.unask(kubectl)
    log = [json.loads(line) for line in (kubectl.binary.parent / "log").read_text().splitlines()]
    assert [line[0] for line in log].count("delete") == 2
    asked = [line[1] for line in log if line[0] == "get" and keys.BUFFER_LABEL in line]
    assert asked[-2:] == [installation.BUFFERS, "podtemplates"]


def test_bandwidth_that_agents_published_is_taken_out_of_nodes(kubectl: Kubectl) -> None:
    offers = {"capacity": {"cpu": "4", keys.EGRESS_BANDWIDTH: "1G"}, "allocatable": {"cpu": "4"}}
    nodes = [thing("Node", "one") | {"status": offers}, thing("Node", "other") | {"status": {"capacity": {}}}]
    found = survey(kubectl, namespace_ours=False, nodes=nodes)
    assert found.offering == ("one",)
    assert not found.nothing
    assert found.to_json()["nodesWithBandwidth"] == ["one"]
    uninstall.take_bandwidth(kubectl)
    last = json.loads((kubectl.binary.parent / "log").read_text().splitlines()[-1])
    assert last[:3] == ["patch", "--subresource=status", "--type=merge"]
    gone = dict.fromkeys((keys.EGRESS_BANDWIDTH, keys.INGRESS_BANDWIDTH))
    patch = json.loads(last[3].removeprefix("--patch="))
    assert patch == {"status": {"capacity": gone, "allocatable": gone}}
    survey(kubectl, namespace_ours=False, nodes=nodes[1:])
    uninstall.take_bandwidth(kubectl)
    assert json.loads((kubectl.binary.parent / "log").read_text().splitlines()[-1])[0] == "get"


def test_what_names_our_scheduler_goes_before_it(kubectl: Kubectl) -> None:
    policy = thing("MutatingAdmissionPolicy", installation.NAMING, ours=True)
    scheduler = thing("Deployment", installation.SCHEDULER, ours=True)
    survey(kubectl, namespace_ours=True)
    assert uninstall.stop_programs(kubectl, uninstall.Remains((policy, scheduler), (), (), {}, {}))
    asked = [json.loads(line) for line in kubectl.binary.with_name("log").read_text().splitlines()]
    deleted = [words for words in asked if words[0] == "delete"]
    assert ["--cascade=foreground" in words for words in deleted[:2]] == [False, True]


def test_pods_that_nobody_will_schedule_are_told_of(
    kubectl: Kubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = uninstall.Remains((thing("Deployment", "x"),), (), (), {}, {}, waiting=2)
    uninstall._show(waiting)
    assert "2 pods wait for j10ce-scheduler" in capsys.readouterr().err
    assert waiting.to_json()["waitingPods"] == 2


def test_a_namespace_of_placeholders_that_others_made_stays(kubectl: Kubectl) -> None:
    theirs = thing("Namespace", installation.PLACEHOLDERS)
    ours = thing("Namespace", installation.NAMESPACE, ours=True)
    kubectl.binary.with_name("cluster.json").write_text(json.dumps({"namespace": [ours, theirs]}))
    assert names(uninstall.survey(kubectl)) == {f"Namespace/{installation.NAMESPACE}"}


def gated_pod() -> dict[str, Any]:
    gates = ("example.com/other", keys.HAND_OVER_GATE, keys.GANG_GATE)
    spec = {"schedulingGates": [{"name": name} for name in gates]}
    return thing("Pod", "waits", namespace="default", uid="u-1") | {"spec": spec}


def test_placeholders_go_before_gates(kubectl: Kubectl) -> None:
    """An owner that kube-scheduler gets before that evicts others beside them."""
    holds = thing("Pod", "hold", namespace=installation.PLACEHOLDERS, labels={keys.PLACEHOLDER_LABEL: "true"})
    classes = [thing("PriorityClass", "j10ce-placeholder-9")]
    survey(kubectl, namespace_ours=True, pods=[gated_pod(), holds], priorityclasses=classes)
    placeholders.take_away(kubectl, installation.PLACEHOLDERS)
    log = [json.loads(line) for line in (kubectl.binary.parent / "log").read_text().splitlines()]
    written = [line for line in log if line[0] in ("delete", "patch") and placeholders.RAISING not in line]
    assert [line[0] for line in written] == ["delete", "delete", "patch", "delete"]
    assert written[0][1] == "mutatingwebhookconfigurations"
    assert {"--force", "--grace-period=0"} < {*written[1]}, "no dead node's kubelet is waited for"


def test_what_placeholders_leave_is_named(kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> None:
    gated = gated_pod()
    pods = [gated, thing("Pod", "free", namespace="default")]
    holds = thing("Pod", "hold", namespace=installation.PLACEHOLDERS)
    holds["metadata"]["labels"] = {keys.PLACEHOLDER_LABEL: "true"}
    classes = [thing("PriorityClass", "j10ce-placeholder-9"), thing("PriorityClass", "high")]
    remains = survey(kubectl, namespace_ours=True, pods=[*pods, holds], priorityclasses=classes)
    assert remains.placeholders.to_json() == {
        "gatedPods": ["default/waits"],
        "placeholders": 1,
        "priorityClasses": ["j10ce-placeholder-9"],
    }
    assert list(remains.placeholders.said()) == [
        "let 1 pods that wait for a hand-over or their gang go to kube-scheduler",
        "remove 1 placeholders: what they hold is free for all at once",
        "remove PriorityClass j10ce-placeholder-9",
    ]
