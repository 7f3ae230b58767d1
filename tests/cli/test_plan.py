"""`j10ce plan`: the examples, what is chosen, what cannot be kept, and errors."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli import plan as command

pytestmark = pytest.mark.program

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "pods").glob("*.yaml"))
J10CE = Path(sysconfig.get_path("scripts")) / "j10ce"
WIDTH = 100
APP = typer.Typer()
APP.command()(command.plan)

POD = """\
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  containers:
    - {name: web, resources: {requests: {cpu: "1", memory: 1Gi}}}
"""
POLICY = """\
apiVersion: j10ce.io/v1alpha1
kind: MinimalReservationPolicy
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  floor: {resources: {cpu: "1", memory: 1Gi}}
  slots: {count: 1}
"""
PROFILE = """\
apiVersion: j10ce.io/v1alpha1
kind: QoSProfile
metadata: {name: fast}
spec: {class: LSR}
"""


def plan(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(APP, [*map(str, arguments), "-o", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    argv = [str(J10CE), "plan", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def write(folder: Path, **texts: str) -> list[Path]:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return [folder / f"{name}.yaml" for name in texts]


def written(document: dict[str, Any], level: int = 0) -> dict[str, str]:
    """File to value of one level of the first container."""
    settings = document["plans"][0]["containers"][0]["settings"]
    return {setting["file"]: setting["value"] for setting in settings if setting["level"] == level}


def test_the_examples_can_be_planned_on_100_columns() -> None:
    done = run(*EXAMPLES)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= WIDTH
    assert done.stdout.count("\ncontainer ") == 9
    assert done.stdout.startswith("Node assumed ")


@pytest.mark.parametrize("cgroup", ["v1", "v2"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_by_itself(example: Path, cgroup: str) -> None:
    document = plan(example, "--cgroup", cgroup)
    assert document["node"]["cgroup"] == cgroup
    containers = [one for made in document["plans"] for one in made["containers"]]
    assert containers
    # Weights are integers: a hundredth of a floor may be lost to rounding.
    for short in (short for one in containers for short in one["shortfalls"]):
        said = short["condition"] or (cgroup == "v1" and short["resource"] == "memory")
        assert said or short["missing"] * 100 <= short["promised"]


def test_a_burstable_pod_is_told_what_guaranteed_ones_would_take(tmp_path: Path) -> None:
    files = write(tmp_path, all=f"{POD}---\n{POLICY}")
    (container,) = plan(*files)["plans"][0]["containers"]
    (short,) = container["shortfalls"]
    assert (short["resource"], short["promised"]) == ("cpu", 1000)
    assert 200 < short["kept"] < 400
    assert short["condition"] == "one Guaranteed pod requests the rest, and Burstable ones nothing"
    words = " ".join(run(*files).stdout.split())
    assert "- kept here: cpu 1, memory 1Gi of the floor - if one Guaranteed pod requests the rest" in words
    limited = POD.replace("requests", "limits")
    (same,) = plan(*write(tmp_path, all=f"{limited}---\n{POLICY}"))["plans"][0]["containers"]
    conditions = [short["condition"] for short in same["shortfalls"]]
    assert conditions == ["system.slice and user.slice want all the CPU they can get"]


def test_a_floor_travels_down_the_hierarchy(tmp_path: Path) -> None:
    document = plan(*write(tmp_path, all=f"{POD}---\n{POLICY}"))
    for level in (0, 1, 2, 3):
        assert written(document, level)["memory.low"] == str(2**30)
    assert int(written(document, 1)["cpu.weight"]) > 39  # kubelet's for 1 CPU, not enough on a full node
    assert document["plans"][0]["policy"] == "web"
    modes = {
        setting["level"]: setting["mode"] for setting in document["plans"][0]["containers"][0]["settings"]
    }
    assert modes == {0: "set", 1: "set", 2: "raise", 3: "raise"}


def test_a_policy_in_a_file_of_its_own(tmp_path: Path) -> None:
    pod, policy = write(tmp_path, pod=POD, policy=POLICY)
    assert plan(pod)["plans"][0]["floor"] is None
    assert plan(pod, "--policy", policy)["plans"][0]["floor"] == {"cpu": 1000, "memory": 2**30}


def test_a_policy_of_another_namespace_is_said_to_select_nothing(tmp_path: Path) -> None:
    pod, policy = write(tmp_path, pod=POD, policy=POLICY.replace("shop", "bank"))
    document = plan(pod, "--policy", policy)
    assert document["plans"][0]["floor"] is None
    assert document["notes"] == [f"{policy}: policy bank/web selects no pod in these files"]


def test_a_profile_is_for_pods_whose_policy_names_none(tmp_path: Path) -> None:
    pod, profile = write(tmp_path, pod=POD, profile=PROFILE)
    assert plan(pod)["plans"][0]["class"] == "LS"
    assert plan(pod, profile)["plans"][0]["class"] == "LS"
    assert plan(pod, "--profile", profile)["plans"][0]["class"] == "LSR"


def test_of_several_profiles_those_that_nobody_names_are_told(tmp_path: Path) -> None:
    both = f"{PROFILE}---\n{PROFILE.replace('fast', 'slow')}"
    pod, profiles = write(tmp_path, pod=POD, profiles=both)
    document = plan(pod, "--profile", profiles)
    assert document["plans"][0]["profile"] is None
    assert document["notes"] == [
        f"QoSProfile {name} is used by no pod in these files" for name in ("fast", "slow")
    ]


NOTHING_REQUESTED = POD.replace(', resources: {requests: {cpu: "1", memory: 1Gi}}', "")


def test_of_a_floor_on_a_pod_without_requests_nothing_counts(tmp_path: Path) -> None:
    document = plan(*write(tmp_path, all=f"{NOTHING_REQUESTED}---\n{POLICY}"))
    (made,) = document["plans"]
    assert (made["qosClass"], made["class"], made["classSource"]) == (
        "BestEffort",
        "LS",
        "the floor of its policy",
    )
    assert made["floor"] == {"cpu": 1000, "memory": 2**30}
    assert not {"memory.low", "cpu.weight", "cpu.idle"} & {*written(document), *written(document, 1)}
    (container,) = made["containers"]
    assert [(short["resource"], short["kept"], short["why"]) for short in container["shortfalls"]] == [
        ("cpu", 0, "the pod requests 0, so no more of its floor of 1 counts: request the floor"),
        ("memory", 0, "the pod requests 0, so no more of its floor of 1Gi counts: request the floor"),
    ]


def test_a_floor_of_a_pod_that_is_labelled_as_batch_work_is_missing_as_a_whole(tmp_path: Path) -> None:
    labelled = NOTHING_REQUESTED.replace("{app: web}", "{app: web, koordinator.sh/qosClass: BE}")
    all_in_one = write(tmp_path, all=f"{labelled}---\n{POLICY}")
    (made,) = plan(*all_in_one)["plans"]
    assert (made["class"], made["floor"]) == ("BE", {"cpu": 1000, "memory": 2**30})
    (container,) = made["containers"]
    missing = {short["resource"]: (short["kept"], short["missing"]) for short in container["shortfalls"]}
    assert missing == {"cpu": (0, 1000), "memory": (0, 2**30)}
    said = run(*all_in_one).stdout
    assert "shortfall: cpu: 0 of 1 is kept, 1 is missing" in said
    assert "kept here" not in said


def test_a_policy_whose_profile_is_not_there(tmp_path: Path) -> None:
    named = POLICY.replace("spec:\n", "spec:\n  profileName: fast\n")
    pod, policy, profile = write(tmp_path, pod=POD, policy=named, profile=PROFILE)
    done = run(pod, policy)
    assert done.returncode == 1
    assert f"error: {policy}:5: spec.profileName: there is no QoSProfile fast in these files" in done.stderr
    assert plan(pod, policy, "--profile", profile)["plans"][0]["profile"] == "fast"


def test_a_class_without_floor_keeps_none_and_says_so(tmp_path: Path) -> None:
    best_effort = PROFILE.replace("LSR", "BE")
    document = plan(
        *write(tmp_path, pod=POD, policy=POLICY), "--profile", *write(tmp_path, profile=best_effort)
    )
    made = document["plans"][0]
    assert made["floor"] == {"cpu": 1000, "memory": 2**30}
    assert [short["kept"] for short in made["containers"][0]["shortfalls"]] == [0, 0]
    assert "class BE has no floor: policy web's is not kept" in made["notes"]


def test_what_is_said_of_a_pods_traffic_is_shown_with_who_said_it(tmp_path: Path) -> None:
    annotated = "annotations: {kubernetes.io/egress-bandwidth: 90M, k8s.aliyun.com/qos-class: burstable}"
    pod = POD.replace("namespace: shop", f"namespace: shop, {annotated}")
    policy = POLICY.replace("1Gi}}", "1Gi}, network: {egress: 50M}}").replace(
        "  slots", "  limit: {network: {egress: 80M}}\n  slots"
    )
    made = plan(*write(tmp_path, pod=pod, policy=policy))["plans"][0]
    overruled = "'90M': has no effect on egress: policy web has 80M bits/s, which is less"
    assert made["notes"] == [
        f"Pod shop/web: annotation kubernetes.io/egress-bandwidth: {overruled}",
        "network band L1 (annotation k8s.aliyun.com/qos-class)",
        "network egress floor 50M bits/s",
        "network egress limit 80M bits/s (policy web)",
    ]


def test_a_floor_that_cannot_be_kept_says_by_how_much(tmp_path: Path) -> None:
    file, node = write(
        tmp_path,
        all=f"{POD}---\n{POLICY}".replace('floor: {resources: {cpu: "1"', 'floor: {resources: {cpu: "3"'),
        node="kind: Node\nstatus: {capacity: {cpu: 4, memory: 8Gi}}\n",
    )
    short = plan(file, "--node", node)["plans"][0]["containers"][0]["shortfalls"][0]
    assert (short["resource"], short["promised"]) == ("cpu", 3000)
    assert short["kept"] + short["missing"] == 3000
    done = run(file, "--node", node)
    assert done.returncode == 0
    assert "- shortfall: cpu: " in done.stdout


def test_cgroup_v1_names_what_it_lacks(tmp_path: Path) -> None:
    document = plan(*write(tmp_path, all=f"{POD}---\n{POLICY}"), "--cgroup", "v1")
    lacking = {one["file"] for one in document["plans"][0]["containers"][0]["unsupported"]}
    assert "memory.low" in lacking
    assert "cpu.shares" in written(document, 1)


def test_this_machine(tmp_path: Path) -> None:
    document = plan(*write(tmp_path, pod=POD), "--node", "this")
    assert document["node"]["assumed"] is False
    assert document["plans"][0]["containers"][0]["assumed"][-1].endswith("ID")
    done = run(*write(tmp_path, pod=POD), "--node", "this", "--cgroup", "v1")
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Service\n", "all.yaml: no Pod and no workload with a pod template is in these files"),
        (
            POD.replace('"1"', '"99"'),
            "all.yaml:1: pod shop/web requests 99 cpu and 1Gi memory; the node has 7910m and",
        ),
        (
            POD.replace("1Gi", "1Gx"),
            "all.yaml:5: Pod shop/web: spec.containers[0].resources.requests: memory:",
        ),
    ],
)
def test_bad_input_ends_with_1_and_says_where(tmp_path: Path, text: str, message: str) -> None:
    done = run(*write(tmp_path, all=text))
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path / "none.yaml")
    assert done.returncode == 1
    assert "none.yaml: cannot be read: " in done.stderr
