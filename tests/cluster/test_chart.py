"""The Helm chart: makes what kustomize makes, lives on a real API server, and fights nobody over it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import installation
from cli.chart.kustomization import documents
from cli.installation import Choices, Network
from cli.kubectl import Kubectl, Object, find, identity
from lab import cluster as lab_cluster
from lab import minors
from lab.binaries import Binaries, silent
from lab.cluster import Cluster
from lab.helm import helm as helm_program
from manifests import OVERLAYS
from tests.cluster.test_install import settled, steady

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "j10ce-qos"
J10CE = Path(sys.executable).with_name("j10ce")
DIGEST = f"sha256:{'ab' * 32}"
SCHEDULER_IMAGE = "example.com/kube-scheduler:v1.36.3"
BETA = f"--api-versions={minors.BETA}/{minors.BETA_GATE}"
HERE = ("--namespace", "j10ce-system")
HASH = re.compile(r"^(j10ce-(?:scheduler|placeholders)-config)-[a-z0-9]{10}$")
NETWORK = {"None": Network.OFF, "Kept": Network.ON, "Leaving": Network.LEAVING}


@pytest.fixture(scope="module")
def own(binaries: Binaries) -> Iterator[Cluster]:
    """A cluster of this module's own. Every test leaves it as it was."""
    name = f"chart-{secrets.token_hex(3)}"
    yield lab_cluster.up(name, binaries=binaries, crds=False)
    lab_cluster.down(name)


@pytest.fixture(scope="module")
def kubectl(own: Cluster) -> Kubectl:
    return find(os.environ, own.kubeconfig, "")


@pytest.fixture(scope="module")
def offline(binaries: Binaries) -> Kubectl:
    """For kustomize, which asks no cluster."""
    assert binaries.kubectl is not None
    return Kubectl(binaries.kubectl)


@pytest.fixture(scope="module")
def program() -> Path:
    return helm_program(os.environ, silent)


def run(*command: object, code: int = 0, stdin: str = "") -> str:
    """What a command prints, on both; `code`: how it shall end."""
    done = subprocess.run(
        [str(one) for one in command],
        input=stdin, capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def rendered(program: Path, *options: str, chart: Path = CHART) -> list[Object]:
    """What `helm template` prints, for a release outside of our namespace."""
    options = (
        "--namespace=default",
        "--kube-version=1.36.3",
        f"--set=schedulerImage={SCHEDULER_IMAGE}",
        *options,
    )
    return documents(run(program, "template", "floors", chart, *options))


def comparable(items: list[Object]) -> dict[tuple[str, str, str, str], Object]:
    """Objects without what is Helm's way to roll a changed configuration out, and kustomize's: a hash."""
    made = json.loads(json.dumps(items), object_pairs_hook=_without_hashes)
    return {identity(item): item for item in made if item["kind"] != "CustomResourceDefinition"}


def _without_hashes(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {
        key: HASH.sub(r"\1", value) if key == "name" and isinstance(value, str) else value
        for key, value in pairs
        if key != "checksum/configuration"
    }


AGENTS = [("false", "None"), *(("true", network) for network in NETWORK)]


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("mode", ["Guard", "Observe", "Strict"])
def test_it_makes_what_install_makes(program: Path, offline: Kubectl, overlay: str, mode: str) -> None:
    for agent, network in AGENTS:
        digest = DIGEST if network == "Kept" else ""
        image = f"example.com/floors@{digest}" if digest else "example.com/floors:0.1.0"
        more = network == "Leaving"
        chosen = Choices(
            image,
            SCHEDULER_IMAGE,
            mode,
            agent == "true",
            mode == "Observe",
            NETWORK[network],
            reservations=more,
            autoscaling=more,
            quotas=more,
        )
        values = {
            "overlay": overlay,
            "mode": mode,
            "agent.enabled": agent,
            "agent.networkFloors": network,
            "image.repository": "example.com/floors",
            "image.digest": digest,
            "koordinator.reservations": str(more).lower(),
            "autoscaling.buffers": str(more).lower(),
            "quotas.enabled": str(more).lower(),
        }
        made = rendered(program, *(f"--set={path}={value}" for path, value in values.items()))
        assert comparable(made) == comparable(installation.objects(offline, overlay, chosen)), values


@pytest.mark.parametrize("mode", ["Guard", "Observe"])
def test_it_makes_what_install_makes_with_placeholders(program: Path, offline: Kubectl, mode: str) -> None:
    image = "example.com/floors:0.1.0"
    chosen = Choices(image, mode=mode, autoscaling=True, placeholders=True)
    values = f"keeper=Placeholders,mode={mode},autoscaling.buffers=true,image.repository=example.com/floors"
    made = rendered(program, f"--set={values}")
    assert comparable(made) == comparable(installation.objects(offline, OVERLAYS[0], chosen))
    for value in ("koordinator.reservations", "quotas.enabled"):
        command = (program, "template", "floors", CHART, f"--set=keeper=Placeholders,{value}=true")
        assert f"{value}: placeholders" in run(*command, code=1)


@pytest.mark.parametrize("mode", ["Guard", "Observe"])
def test_it_makes_what_install_makes_with_both_keepers(program: Path, offline: Kubectl, mode: str) -> None:
    chosen = Choices("example.com/floors:0.1.0", SCHEDULER_IMAGE, mode, quotas=True, both=True)
    values = f"keeper=Both,mode={mode},quotas.enabled=true,image.repository=example.com/floors"
    made = rendered(program, f"--set={values}")
    assert comparable(made) == comparable(installation.objects(offline, OVERLAYS[0], chosen))
    command = (program, "template", "floors", CHART, "--set=keeper=Both,overlay=default-scheduler")
    assert "keeper: Both needs overlay: second-scheduler" in run(*command, code=1)


def test_it_leaves_out_what_install_leaves_out(program: Path, offline: Kubectl) -> None:
    """The manager where it is not wanted, and what an older API server does not know."""
    options = ("--set=manager.enabled=false,image.repository=example.com/floors", "--kube-version=1.35.0")
    for raising, more in (("", ()), ("v1beta1", (BETA,))):
        chosen = Choices("example.com/floors:0.1.0", SCHEDULER_IMAGE, manager=False, raising=raising)
        wanted = installation.objects(offline, OVERLAYS[0], chosen)
        assert comparable(rendered(program, *options, *more)) == comparable(wanted)


def test_its_crds_are_ours_and_stay(program: Path) -> None:
    made = [item for item in rendered(program) if item["kind"] == "CustomResourceDefinition"]
    assert all(item["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"} for item in made)
    assert made == list(installation.definitions())
    assert not any(
        item["kind"] == "CustomResourceDefinition" for item in rendered(program, "--set=crds.install=false")
    )
    assert not any("annotations" in item["metadata"] for item in rendered(program, "--set=crds.keep=false"))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_takes_it(program: Path, own: Cluster, kubectl: Kubectl, overlay: str) -> None:
    """As `helm template | kubectl apply` does; in namespaces that are there, for a dry run makes none."""
    version = own.versions["kube-apiserver"]
    served = (f"--kube-version={version}", *((BETA,) if minors.has_beta_alone(version) else ()))
    values = f"--set=overlay={overlay},agent.enabled=true,agent.networkFloors=Kept"
    items = rendered(program, *served, values)
    kubectl.apply(
        [item for item in items if item["kind"] == "Namespace"], dry_run=False, force_conflicts=False
    )
    try:
        assert len(kubectl.apply(items, dry_run=True, force_conflicts=False)) == len(items)
    finally:
        kubectl.run(
            "delete", "namespace", "j10ce-system", "--ignore-not-found", "--timeout=120s", seconds=150
        )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("mode=guard", "/mode"),
        ("capPercent=0", "/capPercent"),
        ("image.digest=sha256:12", "/image/digest"),
        ("agent.networkfloors=Kept", "networkfloors"),
        ("scheduler.resources.request.cpu=1", "request"),
        ("agent.networkFloors=off", "/agent/networkFloors"),
    ],
)
def test_a_bad_value_is_named(program: Path, value: str, said: str) -> None:
    answer = run(program, "template", "floors", CHART, "--set", value, code=1)
    assert said in answer


def test_without_a_cluster_it_asks_for_the_schedulers_image(program: Path) -> None:
    answer = run(program, "template", "floors", CHART, code=1)
    assert "schedulerImage: the cluster's own kube-scheduler cannot be seen here" in answer
    run(program, "template", "floors", CHART, "--set=overlay=default-scheduler")


def test_what_is_set_arrives(program: Path) -> None:
    values = {
        "capPercent": 25,
        "scheduler": {"replicas": 3, "resources": {"requests": {"cpu": "1"}}},
        "extender": {"resources": {"requests": {"memory": "1Gi"}}},
        "agent": {"enabled": True, "nodeSelector": {"pool": "floors"}},
        "image": {"pullSecrets": [{"name": "registry"}]},
    }
    made = {identity(item)[1:]: item for item in documents(
        run(program, "template", "floors", CHART, f"--set=schedulerImage={SCHEDULER_IMAGE}", "--values=-",
            stdin=json.dumps(values))
    )}  # fmt: skip
    scheduler = made["Deployment", "j10ce-system", "j10ce-scheduler"]["spec"]
    pod = scheduler["template"]["spec"]
    assert scheduler["replicas"] == 3
    assert pod["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "256Mi"}
    assert pod["initContainers"][0]["resources"]["requests"] == {"cpu": "200m", "memory": "1Gi"}
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    configuration = made["ConfigMap", "j10ce-system", "j10ce-scheduler-config"]["data"]["extender.yaml"]
    assert "\ncapPercent: 25 " in configuration
    agent = made["DaemonSet", "j10ce-system", "j10ce-agent"]["spec"]["template"]["spec"]
    assert agent["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "floors"}


def version_before(folder: Path) -> Path:
    """The chart as an older version might be: another version, a field less, an object more."""
    older = shutil.copytree(CHART, folder / "j10ce-qos")
    chart = older / "Chart.yaml"
    chart.write_text(chart.read_text().replace("0.1.0", "0.0.9"))
    crd = older / "templates" / "crds" / "j10ce.io_qosprofiles.yaml"
    text = crd.read_text()
    crd.write_text(re.sub(r"^ {14}description:\n(?: {16}.*\n)+", "", text, count=1, flags=re.MULTILINE))
    assert crd.read_text() != text
    account = (older / "templates" / "agent" / "account.yaml").read_text()
    (older / "templates" / "gone.yaml").write_text(account.replace(".Values.agent.enabled", "true").replace(
        "name: j10ce-agent", "name: gone"))  # fmt: skip
    return older


def fields_of_profiles(kubectl: Kubectl) -> set[str]:
    (crd,) = kubectl.objects("get", "customresourcedefinition", "qosprofiles.j10ce.io")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return set(schema["properties"]["spec"]["properties"])


def leave(program: Path, own: Cluster, kubectl: Kubectl) -> str:
    """By us, by Helm, and the namespace that Helm was told to make; what our command says."""
    said = run(J10CE, "uninstall", "--yes", "--restore-seconds=1", "--force", "--kubeconfig", own.kubeconfig)
    run(program, "--kubeconfig", own.kubeconfig, "uninstall", "floors", *HERE)
    kubectl.run("delete", "namespace", "j10ce-system", "--timeout=120s", seconds=150)
    return said


def test_install_upgrade_and_leave(program: Path, own: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    """From the version before to this one, its CRDs, too; no other installer meanwhile; then gone."""
    before = steady(own)
    helm = (program, "--kubeconfig", own.kubeconfig)
    image = f"--set=schedulerImage={SCHEDULER_IMAGE}"
    run(*helm, "install", "floors", version_before(tmp_path), *HERE, "--create-namespace", image)
    assert "description" not in fields_of_profiles(kubectl)
    assert kubectl.existing_named("serviceaccount", ["gone"], *HERE) == ["gone"]
    profile = {
        "apiVersion": "j10ce.io/v1alpha1", "kind": "QoSProfile",
        "metadata": {"name": "kept"}, "spec": {"class": "LS"},
    }  # fmt: skip
    kubectl.apply([profile], dry_run=False, force_conflicts=False)

    said = run(*helm, "upgrade", "floors", CHART, *HERE, image, "--set=agent.enabled=true")
    assert "rollout status daemonset/j10ce-agent" in said
    assert "description" in fields_of_profiles(kubectl)
    assert kubectl.existing_named("serviceaccount", ["gone"], *HERE) == []
    assert kubectl.existing_named("qosprofile", ["kept"]) == ["kept"]
    (scheduler,) = kubectl.existing([installation.second_scheduler_itself()])
    assert scheduler["metadata"]["labels"]["app.kubernetes.io/version"] == "0.1.0"

    refused = run(
        J10CE, "install", f"--scheduler-image={SCHEDULER_IMAGE}", "--kubeconfig", own.kubeconfig, code=1
    )
    assert "error: chart: Helm release floors in namespace j10ce-system made what is here" in refused
    assert "Nothing was changed." in refused
    again = run(*helm, "install", "other", CHART, *HERE, image, code=1)
    assert "as Helm release floors in namespace j10ce-system: upgrade that one" in again

    left = leave(program, own, kubectl)
    assert "Helm still has its record: helm uninstall floors --namespace j10ce-system" in left
    assert settled(own, before) == before


def test_it_leaves_policies_and_takes_over_only_when_told(
    program: Path, own: Cluster, kubectl: Kubectl
) -> None:
    before = steady(own)
    helm = (program, "--kubeconfig", own.kubeconfig)
    image = f"--set=schedulerImage={SCHEDULER_IMAGE}"
    install = (J10CE, "install", f"--scheduler-image={SCHEDULER_IMAGE}", "--kubeconfig", own.kubeconfig)
    run(*install)
    refused = run(*helm, "install", "floors", CHART, *HERE, image, code=1)
    assert "installed by `j10ce install` or kubectl" in refused
    assert "--take-ownership --set takeOver=true" in refused
    taken = ("--take-ownership", "--set=takeOver=true", "--force-conflicts")
    run(*helm, "install", "floors", CHART, *HERE, image, *taken)
    (account,) = kubectl.existing([installation.account_itself()])
    assert installation.helm_release(account) == "j10ce-system/floors"

    run(*helm, "uninstall", "floors", *HERE, "--wait")
    assert kubectl.existing([installation.account_itself()]) == []
    assert len(kubectl.existing(installation.definitions())) == len(installation.definitions())
    run(*install)
    run(J10CE, "uninstall", "--yes", "--force", "--kubeconfig", own.kubeconfig)
    assert settled(own, before) == before


@pytest.mark.full
def test_both_keepers_come_by_an_upgrade_and_are_not_left_by_one(
    program: Path, own: Cluster, kubectl: Kubectl
) -> None:
    """The Deployment before has the strategy that Kubernetes gives it, which nobody owns."""
    before = steady(own)
    helm = (program, "--kubeconfig", own.kubeconfig)
    upgrade = (*helm, "upgrade", "floors", CHART, *HERE, f"--set=schedulerImage={SCHEDULER_IMAGE}")
    run(*upgrade, "--install", "--create-namespace")
    run(*upgrade, "--set=keeper=Both,scheduler.replicas=3")
    (scheduler,) = kubectl.existing([installation.second_scheduler_itself()])
    rolling = scheduler["spec"]["strategy"]["rollingUpdate"]
    assert (scheduler["spec"]["replicas"], rolling) == (1, {"maxSurge": 0, "maxUnavailable": 1})
    assert "they and gates of theirs would be left" in run(*upgrade, "--set=keeper=Extender", code=1)
    assert "the second scheduler's extender keeps holds here" in run(
        *upgrade, "--set=keeper=Placeholders", code=1
    )
    leave(program, own, kubectl)
    assert settled(own, before) == before


@pytest.mark.full
def test_what_was_made_by_hand_for_both_is_in_no_upgrades_way(
    program: Path, own: Cluster, kubectl: Kubectl
) -> None:
    before = steady(own)
    helm = (program, "--kubeconfig", own.kubeconfig)
    upgrade = (*helm, "upgrade", "floors", CHART, *HERE, "--set=overlay=default-scheduler")
    run(*upgrade, "--install", "--create-namespace")
    manifests = ROOT / "manifests"
    by_hand = kubectl.kustomize(manifests / "hand-over")
    by_hand += documents((manifests / "placeholders" / "narrowing.yaml").read_text())
    for namespaces in (True, False):
        some = [item for item in by_hand if (item["kind"] == "Namespace") is namespaces]
        kubectl.apply(some, dry_run=False, force_conflicts=False)
    run(*upgrade)
    kubectl.run("delete", "-f", str(manifests / "placeholders" / "narrowing.yaml"), seconds=150)
    leave(program, own, kubectl)
    assert settled(own, before) == before
