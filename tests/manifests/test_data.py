"""The data that is applied: consistent with the code, with kube-scheduler's configuration and with itself."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import manifests
from cli.chart.kustomization import render
from cli.preflight import OLDEST
from extender import config
from qos import keys

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "manifests"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in YAML(typ="safe").load_all(path) if document]


ALL = [(path, document) for path in sorted(FOLDER.rglob("*.yaml")) for document in documents(path)]


def of_kind(*kinds: str) -> list[Any]:
    return [
        pytest.param(document, id=f"{document['kind']}-{document['metadata']['name']}")
        for _, document in ALL
        if document.get("kind") in kinds
    ]


def test_loaders_give_what_kustomize_needs() -> None:
    for name in manifests.OVERLAYS:
        with manifests.overlay(name) as folder:
            assert (folder / "kustomization.yaml").is_file()
            assert (folder / ".." / ".." / "base" / "kustomization.yaml").is_file()
    with manifests.crds() as folder:
        assert {path.suffix for path in folder.iterdir()} == {".yaml"}
    with pytest.raises(ValueError, match="second-scheduler"), manifests.overlay("../base"):
        pass


@pytest.mark.parametrize(
    ("overlay", "source"),
    [("second-scheduler", "second-scheduler.yaml"), ("default-scheduler", "default-scheduler.yaml")],
)
def test_overlays_ship_the_explained_configuration(overlay: str, source: str) -> None:
    shipped = (FOLDER / "overlays" / overlay / "scheduler.yaml").read_text()
    assert shipped == (ROOT / "scheduler-config" / source).read_text()


@pytest.mark.parametrize("mode", manifests.MODES)
def test_modes_ship_the_explained_configuration(mode: str) -> None:
    assert manifests.mode(mode) == (ROOT / "scheduler-config" / f"{mode}.yaml").read_text()


def test_an_unknown_mode_is_no_path() -> None:
    with pytest.raises(ValueError, match="observe, strict"):
        manifests.mode("../base/namespace")


@pytest.mark.parametrize("overlay", manifests.OVERLAYS)
def test_the_extender_takes_its_configuration(overlay: str) -> None:
    folder = FOLDER / "overlays" / overlay
    made = config.load(folder / "extender.yaml", {})
    scheduler = documents(folder / "scheduler.yaml")[0]
    profiles = [profile["schedulerName"] for profile in scheduler.get("profiles", [])]
    assert made.scheduler_names == (profiles or ["default-scheduler"])
    assert made.lease == "j10ce-system/j10ce-extender"
    for entry in scheduler["extenders"]:
        assert entry["urlPrefix"] == f"http://{made.verbs_address}"
    (bind,) = [entry for entry in scheduler["extenders"] if "bindVerb" in entry]
    assert made.bind_deadline_seconds < float(bind["httpTimeout"].removesuffix("s"))
    assert made.binds


def test_both_keepers_are_one_extender_whose_webhook_is_reached() -> None:
    items = [one.item for one in render(FOLDER / "both-keepers")]
    made = {(item["kind"], item["metadata"]["name"]): item for item in items}
    program = made["Deployment", "j10ce-scheduler"]["spec"]
    assert (program["replicas"], program["strategy"]["rollingUpdate"]["maxSurge"]) == (1, 0)
    assert made["PodDisruptionBudget", "j10ce-scheduler"]["spec"]["minAvailable"] == 0
    service = made["Service", "j10ce-extender"]["spec"]
    assert service["selector"].items() <= program["template"]["metadata"]["labels"].items()
    webhook = config.load(FOLDER / "overlays/second-scheduler/extender.yaml", {}).placeholders.webhook
    assert webhook is not None
    assert webhook.address.endswith(f":{service['ports'][0]['targetPort']}")
    assert webhook.service == "j10ce-system/j10ce-extender"
    narrowed = ("ValidatingAdmissionPolicy", "j10ce-hand-over")
    assert narrowed not in made, "it refuses what kube-scheduler, by the same account, writes of pods"


def test_probes_ask_where_the_extender_answers() -> None:
    for overlay, path in (("second-scheduler", "deployment.yaml"), ("default-scheduler", "static-pod.yaml")):
        document = documents(FOLDER / "overlays" / overlay / path)[0]
        pod = document["spec"].get("template", document)["spec"]
        containers = {c["name"]: c for c in [*pod.get("initContainers", []), *pod["containers"]]}
        extender = containers["extender"]
        made = config.load(FOLDER / "overlays" / overlay / "extender.yaml", {})
        port = int(made.address.rpartition(":")[2])
        named = {p["name"]: p["containerPort"] for p in extender.get("ports", [])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = extender[probe]["httpGet"]
            assert named.get(asked["port"], asked["port"]) == port
            assert asked["path"] == ("/healthz" if probe == "livenessProbe" else "/readyz")


PODS = [
    pytest.param(document["spec"].get("template", document)["spec"], id=path.name)
    for path, document in ALL
    if document.get("kind") in ("Deployment", "Pod") and path.parent.name != "both-keepers"  # patches
]


@pytest.mark.parametrize("pod", PODS)
def test_pods_are_locked_down(pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]


def test_who_may_make_policies_cannot_make_those_larger_whose_class_they_may_not_use() -> None:
    """Admission asks for `use` when a spec changes; the scale subresource shows it none."""
    editor = next(d for _, d in ALL if d.get("metadata", {}).get("name") == "j10ce-policy-editor")
    resources = {resource for rule in editor["rules"] for resource in rule["resources"]}
    assert resources == {"minimalreservationpolicies"}


@pytest.mark.parametrize("role", of_kind("ClusterRole", "Role"))
def test_rights_name_what_they_are_for(role: dict[str, Any]) -> None:
    gathered = "aggregationRule" in role  # from the roles that an administrator labels
    for rule in () if gathered else role["rules"]:
        words = [word for words in rule.values() for word in words]
        assert not any("*" in word for word in words)
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
        if "secrets" in rule.get("resources", ()):  # one of its own, which it cannot make
            assert rule["resourceNames"] in (["j10ce-hand-over"], ["j10ce-quotas"])
            assert set(rule["verbs"]) <= {"get", "patch"}


def test_narrowing_names_the_keys_of_the_code() -> None:
    text = (FOLDER / "base" / "extender-narrowing.yaml").read_text()
    for key in (
        keys.WAKE_ANNOTATION,
        keys.HELD_ANNOTATION,
        keys.SCALE_DOWN_DISABLED_ANNOTATION,
        keys.DO_NOT_DISRUPT_ANNOTATION,
        keys.POLICY_ANNOTATION,
        keys.BOUND_BY_ANNOTATION,
        keys.RESERVATION_ALLOCATED_ANNOTATION,
    ):
        assert f"'{key}'" in text


def test_narrowing_of_buffers_names_the_label_of_the_code() -> None:
    text = (FOLDER / "autoscaling" / "narrowing.yaml").read_text()
    assert f"key == '{keys.BUFFER_LABEL}'" in text


def test_only_the_second_scheduler_shares_the_extenders_account() -> None:
    """extender-narrowing.yaml and docs/limits.md say what follows from it."""
    upstreams = {
        path.parent.name
        for path, document in ALL
        if document.get("kind") == "ClusterRoleBinding"
        and document["roleRef"]["name"] == "system:kube-scheduler"
        and "j10ce-extender" in {subject["name"] for subject in document["subjects"]}
    }
    assert upstreams == {"second-scheduler"}


def test_every_policy_is_bound_and_denies() -> None:
    policies = {d["metadata"]["name"] for _, d in ALL if d.get("kind") == "ValidatingAdmissionPolicy"}
    bindings = [d for _, d in ALL if d.get("kind") == "ValidatingAdmissionPolicyBinding"]
    assert {binding["spec"]["policyName"] for binding in bindings} == policies
    assert all(binding["spec"]["validationActions"] == ["Deny"] for binding in bindings)


def test_versions_and_images_agree() -> None:
    for path, document in ALL:
        for label in document.get("labels", []) if document.get("kind") == "Kustomization" else []:
            assert label["pairs"]["app.kubernetes.io/version"] == VERSION, path
        for image in document.get("images", []) if document.get("kind") == "Kustomization" else []:
            assert image["newTag"] == VERSION, path
    static = (FOLDER / "overlays" / "default-scheduler" / "static-pod.yaml").read_text()
    assert f"image: j10ce-qos:{VERSION}\n" in static

    chart = documents(ROOT / "charts" / "j10ce-qos" / "Chart.yaml")[0]
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert chart["kubeVersion"] == f">={'.'.join(map(str, OLDEST))}.0-0"


CONFIGURATIONS = sorted((ROOT / "scheduler-config").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_scheduler_configurations(path: Path) -> None:
    entries = documents(path)[0]["extenders"]
    assert [entry.get("bindVerb") for entry in entries].count("bind") == 1, "only one extender may bind"
    assert all(entry["nodeCacheCapable"] for entry in entries)
    assert not any("managedResources" in entry for entry in entries), "every pod, or floors are not kept"
    assert {entry["ignorable"] for entry in entries} == {path.name != "strict.yaml"}
    filters = [entry for entry in entries if "filterVerb" in entry]
    assert all("preemptVerb" in entry for entry in filters) or path.name == "observe.yaml", "trap T23"
    assert all(entry["httpTimeout"] == "300ms" for entry in filters), "trap T07"
