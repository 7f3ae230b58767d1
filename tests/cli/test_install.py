"""install, preflight and uninstall as one types them; a script plays kubectl, so nothing real is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner, Result

from cli import app as application
from cli import host_files, installation
from cli.kubectl import Kubectl
from manifests import OVERLAYS

CONFIGURATIONS = Path(__file__).parents[2] / "scheduler-config"

# Knows a cluster of v1.36.3 in which nothing is installed, and writes down what it is asked.
# A shell starts in 2 ms, and there are hundreds of calls.
KUBECTL = r"""#!/bin/sh
here=${0%/*}
printf '%s\037' "$@" >>"$here/log"
echo >>"$here/log"
case "$*" in
"get --raw /api/v1/pods"*) echo '{"metadata": {}, "items": []}' ;;
"get --raw "*.k8s.io) echo '{"versions": [{"version": "v1"}, {"version": "v1beta1"}]}' ;;
"get --raw "*) echo '{"resources": [{"kind": "MutatingAdmissionPolicy"}]}' ;;
version*) echo '{"serverVersion": {"gitVersion": "v1.36.3"}}' ;;
auth*) echo yes ;;
kustomize*/agent) cat "$here/agent.yaml" ;;
kustomize*/manager) cat "$here/manager.yaml" ;;
kustomize*/agent-network) cat "$here/network.yaml" ;;
kustomize*) cp "$2/extender.yaml" "$here/seen"; cat "$here/kustomized.yaml" ;;
"get pods "*) cat "$here/pods.json" 2>/dev/null || echo '{"kind": "List", "items": []}' ;;
apply*) tee -a "$here/applied" ;;
get*" -f "*) cat >/dev/null; cat "$here/there.json" 2>/dev/null || true ;;
get*) echo '{"kind": "List", "items": []}' ;;
*) cat >/dev/null ;;
esac
"""
KUSTOMIZED = """
apiVersion: v1
kind: Namespace
metadata: {name: j10ce-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: j10ce-scheduler, namespace: j10ce-system}
spec:
  template:
    spec:
      initContainers: [{name: extender, image: "j10ce-qos:0.1.0"}]
      containers: [{name: kube-scheduler, image: kube-scheduler}]
"""
KUSTOMIZED_MANAGER = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: j10ce-manager, namespace: j10ce-system}
spec: {template: {spec: {containers: [{name: manager, image: "j10ce-qos:0.1.0"}]}}}
"""
KUSTOMIZED_AGENT = """
apiVersion: v1
kind: Namespace
metadata: {name: j10ce-system, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: j10ce-agent, namespace: j10ce-system}
spec: {template: {spec: {containers: [{name: agent, image: "j10ce-qos:0.1.0"}]}}}
"""
KUSTOMIZED_NETWORK = KUSTOMIZED_AGENT.replace(
    'image: "j10ce-qos:0.1.0"',
    'image: "j10ce-qos:0.1.0", env: [{name: J10CE_NETWORK_FLOORS, value: "1"}], '
    "securityContext: {capabilities: {add: [NET_ADMIN]}}",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubectl"
    path.write_text(KUBECTL)
    path.chmod(0o755)
    (tmp_path / "kustomized.yaml").write_text(KUSTOMIZED)
    (tmp_path / "manager.yaml").write_text(KUSTOMIZED_MANAGER)
    (tmp_path / "agent.yaml").write_text(KUSTOMIZED_AGENT)
    (tmp_path / "network.yaml").write_text(KUSTOMIZED_NETWORK)
    monkeypatch.setenv("J10CE_BIN", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def j10ce(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(application.app, list(arguments), input=stdin)


def asked(folder: Path) -> list[list[str]]:
    return [line.split("\x1f")[:-1] for line in (folder / "log").read_text().split("\n")[:-1]]


def changing(folder: Path) -> list[list[str]]:
    """What kubectl was asked that changes a cluster."""
    verbs = ("apply", "delete", "annotate", "create", "patch")
    return [words for words in asked(folder) if words[0] in verbs and "--dry-run=server" not in words]


def test_install_needs_to_know_the_scheduler(folder: Path) -> None:
    result = j10ce("install")
    assert result.exit_code == 1
    assert "--scheduler-image" in result.stderr
    assert "Nothing was changed." in result.stderr
    assert changing(folder) == []


def test_dry_run_changes_nothing(folder: Path) -> None:
    result = j10ce("install", "--dry-run", "--scheduler-image", "example.com/s:v1", "-o", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["dryRun"] is True
    assert {change["action"] for change in document["changes"]} == {"create"}
    assert "DaemonSet" not in {change["kind"] for change in document["changes"]}
    assert changing(folder) == []


def test_install_applies_definitions_then_the_namespace_then_all(folder: Path) -> None:
    result = j10ce("install", "--scheduler-image", "example.com/s:v1")
    assert result.exit_code == 0, result.output
    applies = [words for words in changing(folder) if words[0] == "apply"]
    assert len(applies) == 3
    assert all("--server-side" in words and "j10ce" in words for words in applies)
    assert "rollout status" in result.stdout


def test_the_clusters_own_scheduler_image_is_found(folder: Path) -> None:
    pod = {
        "metadata": {"name": "s"},
        "spec": {"containers": [{"image": "example.com/kube-scheduler:v1.36.3"}]},
    }
    (folder / "pods.json").write_text(json.dumps({"kind": "List", "items": [pod]}))
    assert j10ce("install", "--dry-run").exit_code == 0


def test_images_are_filled_in(folder: Path) -> None:
    choices = installation.Choices("example.com/e:1", "example.com/s:2")
    made = installation.objects(Kubectl(folder / "kubectl"), "second-scheduler", choices)
    pod: dict[str, Any] = made[1]["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["image"] == "example.com/e:1"
    assert pod["containers"][0]["image"] == "example.com/s:2"
    left = installation.objects(Kubectl(folder / "kubectl"), "second-scheduler", installation.Choices())
    assert left[1]["spec"]["template"]["spec"]["initContainers"][0]["image"] == "j10ce-qos:0.1.0"


def test_the_manager_comes_unless_it_is_left_out(folder: Path) -> None:
    def changed(*options: str) -> set[str]:
        result = j10ce(
            "install", "--dry-run", "-o", "json", "--scheduler-image", "example.com/s:v1", *options
        )
        return {change["name"] for change in json.loads(result.stdout)["changes"]}

    assert "j10ce-manager" in changed()
    assert "j10ce-manager" not in changed("--without", "manager")


def test_the_agent_comes_when_it_is_asked_for(folder: Path) -> None:
    result = j10ce("install", "--scheduler-image", "example.com/s:v1", "--agent")
    assert "DaemonSet" in result.stdout
    assert "rollout status daemonset/j10ce-agent" in result.stdout


def test_an_agent_that_is_there_is_upgraded(folder: Path) -> None:
    """And its namespace goes on admitting it."""
    items = [installation.agent_itself()]
    (folder / "there.json").write_text(json.dumps({"kind": "List", "items": items}))
    result = j10ce("preflight", "--scheduler-image", "example.com/s:v1", "-o", "json")
    assert "DaemonSet" in {change["kind"] for change in json.loads(result.stdout)["changes"]}


def test_what_agent_and_overlay_have_both_is_as_the_agent_needs_it(folder: Path) -> None:
    choices = installation.Choices("example.com/e:1", agent=True)
    made = installation.objects(Kubectl(folder / "kubectl"), "second-scheduler", choices)
    (namespace,) = [item for item in made if item["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}
    (agent,) = [item for item in made if item["kind"] == "DaemonSet"]
    assert agent["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/e:1"


def observing(value: str) -> str:
    """An agent that is installed, for there.json."""
    env = [{"name": "NODE_NAME"}, {"name": installation.OBSERVE, "value": value}]
    spec = {"template": {"spec": {"containers": [{"name": "agent", "env": env}]}}}
    return json.dumps({"kind": "List", "items": [installation.agent_itself() | {"spec": spec}]})


@pytest.mark.parametrize(
    ("there", "words", "observes"),
    [
        ("", ["--agent", "--mode", "observe"], True),
        ("", ["--agent"], False),
        ("1", [], True),
        ("0", [], False),
        ("1", ["--mode", "guard"], False),
    ],
)
def test_in_mode_observe_the_agent_observes_too(
    folder: Path, there: str, words: list[str], *, observes: bool
) -> None:
    """And goes on so, as long as no other mode is named."""
    if there:
        (folder / "there.json").write_text(observing(there))
    result = j10ce("install", "--scheduler-image", "example.com/s:v1", *words)
    assert result.exit_code == 0, result.output
    applied = (folder / "applied").read_text()
    assert ('"name": "J10CE_AGENT_OBSERVE", "value": "1"' in applied) == observes


def network_of(applied: str) -> installation.Network:
    """Of the DaemonSet among what was applied."""
    items = json.loads(applied)["items"]
    (agent,) = [item for item in items if item["kind"] == "DaemonSet"]
    return installation.network_of(agent)


def test_network_floors_are_switched_on_and_off(folder: Path) -> None:
    """Each installation finds what the one before has applied."""
    on, leaving, off = installation.Network.ON, installation.Network.LEAVING, installation.Network.OFF
    steps = [
        (["--agent"], off),
        (["--network-floors"], on),
        ([], on),
        (["--no-network-floors"], leaving),
        ([], leaving),
        (["--network-floors"], on),
        (["--no-network-floors"], leaving),
        (["--no-network-floors"], off),
        (["--no-network-floors"], off),
    ]
    for words, network in steps:
        result = j10ce("install", "--scheduler-image", "example.com/s:v1", *words)
        assert result.exit_code == 0, result.output
        applied = (folder / "applied").read_text()
        applied = applied[applied.rindex('{"apiVersion": "v1", "kind": "List"') :]
        assert network_of(applied) is network
        assert ("install with --no-network-floors again" in result.stdout) is (network is leaving)
        (folder / "there.json").write_text(applied)


def test_network_floors_need_an_agent(folder: Path) -> None:
    result = j10ce("install", "--scheduler-image", "example.com/s:v1", "--network-floors")
    assert result.exit_code == 2
    assert changing(folder) == []


def test_host_files_are_written(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "host" / "files"
    result = j10ce(
        "install", "--overlay", "default-scheduler", "--files", str(out), "--image", "example.com/e:1"
    )
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == set(host_files.NAMES)
    assert "image: example.com/e:1\n" in (out / "static-pod.yaml").read_text()
    assert str(out) in result.stdout


@pytest.mark.parametrize(
    ("mode", "source"),
    [("observe", "observe"), ("Guard", "default-scheduler"), ("strict", "strict")],
)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_mode_brings_its_files_entries(overlay: str, mode: str, source: str) -> None:
    """And leaves the rest of the overlay's configuration as it is."""
    shipped = installation.overlay_file(overlay, "scheduler.yaml")
    made = YAML(typ="safe").load(installation.in_mode(shipped, mode.capitalize()))
    explained = YAML(typ="safe").load(CONFIGURATIONS / f"{source}.yaml")
    assert made.pop("extenders") == explained["extenders"]
    rest = YAML(typ="safe").load(shipped)
    del rest["extenders"]
    assert made == rest


@pytest.mark.parametrize("mode", ["observe", "strict"])
def test_the_mode_reaches_the_hosts_files(folder: Path, tmp_path: Path, mode: str) -> None:
    out = tmp_path / "host"
    result = j10ce("install", "--overlay", "default-scheduler", "--files", str(out), "--mode", mode)
    assert result.exit_code == 0, result.output
    assert f"\nmode: {mode.capitalize()} " in (out / "extender.yaml").read_text()
    text = (out / "scheduler.yaml").read_text()
    assert ("prioritizeVerb: prioritize" in text) == (mode == "observe")
    assert ("preemptVerb: preempt" in text) == (mode == "strict")
    assert "mode Guard" not in text


def installed(mode: str) -> str:
    """The second scheduler as it is installed, for there.json."""
    volumes = [{"name": "tokens", "projected": {}}, {"name": "c", "configMap": {"name": "config-5c"}}]
    deployment = installation.second_scheduler_itself() | {
        "spec": {"template": {"spec": {"volumes": volumes}}}
    }
    data = {"scheduler.yaml": "a: b\n", "extender.yaml": f"# Its configuration.\nmode: {mode}    # why\n"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config-5c"}, "data": data}
    return json.dumps({"kind": "List", "items": [deployment, config]})


@pytest.mark.parametrize(
    ("words", "mode"), [([], "Observe"), (["--mode", "guard"], "Guard"), (["--mode", "strict"], "Strict")]
)
def test_an_upgrade_keeps_the_mode_unless_another_is_named(folder: Path, words: list[str], mode: str) -> None:
    (folder / "there.json").write_text(installed("Observe"))
    result = j10ce("install", "--dry-run", "--scheduler-image", "example.com/s:v1", *words)
    assert result.exit_code == 0, result.output
    assert f"\nmode: {mode} " in (folder / "seen").read_text()


def test_preflight_shows_what_the_same_mode_would_change(folder: Path) -> None:
    (folder / "there.json").write_text(installed("Strict"))
    assert j10ce("preflight", "--scheduler-image", "example.com/s:v1").exit_code == 0
    assert "\nmode: Strict " in (folder / "seen").read_text()


def test_what_is_new_is_in_mode_guard(folder: Path) -> None:
    assert j10ce("install", "--dry-run", "--scheduler-image", "example.com/s:v1").exit_code == 0
    assert "\nmode: Guard " in (folder / "seen").read_text()


def test_kustomize_sees_the_mode(folder: Path) -> None:
    """The hash in the ConfigMap's name has to follow."""
    assert (
        j10ce("install", "--dry-run", "--mode", "strict", "--scheduler-image", "example.com/s:v1").exit_code
        == 0
    )
    assert "\nmode: Strict " in (folder / "seen").read_text()


def test_an_edited_host_file_is_not_lost(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "host"
    words = ["install", "--overlay", "default-scheduler", "--files", str(out)]
    assert j10ce(*words).exit_code == 0
    assert j10ce(*words).exit_code == 0, "the same content again is no loss"
    (out / "scheduler.yaml").write_text("# mine\n")
    (folder / "log").unlink()
    result = j10ce(*words, "--mode", "strict")
    assert isinstance(result.exception, host_files.HostFilesError)
    assert str(out / "extender.yaml") in str(result.exception), "Strict differs from what is there"
    assert changing(folder) == []
    assert (out / "scheduler.yaml").read_text() == "# mine\n"
    assert j10ce(*words, "--force").exit_code == 0
    assert "mine" not in (out / "scheduler.yaml").read_text()


def test_host_files_are_for_one_overlay(folder: Path, tmp_path: Path) -> None:
    result = j10ce("install", "--files", str(tmp_path / "host"))
    assert result.exit_code == 2
    assert not (tmp_path / "host").exists()


def test_preflight_changes_nothing(folder: Path) -> None:
    result = j10ce("preflight", "-o", "json", "--scheduler-image", "example.com/s:v1")
    assert result.exit_code == 0, result.output
    assert {check["level"] for check in json.loads(result.stdout)["checks"]} == {"ok"}
    assert changing(folder) == []
    assert j10ce("preflight").exit_code == 1, "no scheduler image"


def test_uninstall_of_nothing(folder: Path) -> None:
    result = j10ce("uninstall")
    assert result.exit_code == 0, result.output
    assert "Nothing of j10ce-qos" in result.stdout
    assert changing(folder) == []


def test_uninstall_asks_first(folder: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "b", "annotations": {"j10ce.io/bound-by": "e"}},
        "spec": {"containers": []},
    }
    (folder / "pods.json").write_text(json.dumps({"kind": "List", "items": [pod]}))
    assert "1 pods" in j10ce("uninstall", "--dry-run").stdout
    assert j10ce("uninstall", stdin="n\n").exit_code == 1
    assert changing(folder) == []
