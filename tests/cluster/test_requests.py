"""Requests below the floor, in a real API server: raised or refused, and as our own arithmetic says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from qos import keys
from qos.cluster.lacking import lacks
from qos.cluster.requests import effective
from qos.quantity import parse
from tests.cluster.narrowed import Kubectl, items_of, narrowed
from tests.qos.cluster import pods_below
from tests.qos.cluster.pods_below import FLOORS, raised, with_raised
from tests.waiting import until

pytestmark = pytest.mark.cluster

PODS = range(60)
SECONDS = 240.0


@pytest.fixture(scope="module")
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A namespace whose pods alone are raised and refused."""
    with narrowed(kubectl, "requests.yaml", "requests") as name:
        yield name


def policy(name: str, floor: dict[str, str], how: str, **selector: Any) -> dict[str, Any]:
    return {
        "apiVersion": keys.API_VERSION,
        "kind": "MinimalReservationPolicy",
        "metadata": {"name": name},
        "spec": {
            "selector": selector or {"matchLabels": {"floor": name}},
            "floor": {"resources": floor, "requestPolicy": how},
            "slots": {"count": 0},
        },
    }


@pytest.fixture(scope="module")
def policies(kubectl: Kubectl, namespace: str) -> None:
    """Of each floor two: raise-N and reject-N; the admission is seen to know all of them."""
    made = [
        policy(f"{how.lower()}-{i}", floor, how)
        for i, floor in enumerate(FLOORS)
        for how in ("Raise", "Reject")
    ]
    kubectl("apply", "--server-side", "-n", namespace, "-f", "-", document=listed(made))
    for one in made:
        name = one["metadata"]["name"]
        until(lambda name=name: not is_untouched(kubectl, namespace, name), f"{name} is known", SECONDS)


def is_untouched(kubectl: Kubectl, namespace: str, floor: str) -> bool:
    """Whether a pod that requests nothing is made as it is."""
    bare = {"containers": [{"name": "c", "image": "a:1"}]}
    done = tried(kubectl, namespace, [labelled({"metadata": {"name": "bare"}, "spec": bare}, floor)])
    return bool(done.stdout) and not raised_from(json.loads(done.stdout))


def listed(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def labelled(manifest: dict[str, Any], floor: str) -> dict[str, Any]:
    metadata = manifest["metadata"] | {"labels": {"floor": floor}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": manifest["spec"]}


def raised_from(made: dict[str, Any]) -> str:
    return str(made["metadata"].get("annotations", {}).get(keys.RAISED_ANNOTATION, ""))


def tried(kubectl: Kubectl, namespace: str, pods: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    argv = ("create", "--dry-run=server", "-o", "json", "-n", namespace, "-f", "-")
    return kubectl(*argv, document=listed(pods), check=False)


def printed(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The objects on standard output, one after the other."""
    found, text = [], done.stdout.strip()
    while text:
        one, end = json.JSONDecoder().raw_decode(text)
        found.append(one)
        text = text[end:].strip()
    return found


def made(kubectl: Kubectl, namespace: str, floor: str) -> dict[str, dict[str, Any]]:
    """The pods as the API server would make them, by name."""
    done = tried(kubectl, namespace, [labelled(pods_below.pod(number), floor) for number in PODS])
    assert done.returncode == 0, done.stderr
    return {one["metadata"]["name"]: one for one in printed(done)}


def floor_of(index: int) -> dict[str, int]:
    return {name: parse(name, text) for name, text in FLOORS[index].items()}


def stated(part: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {
        kind: {name: parse(name, text) for name, text in amounts.items()}
        for kind, amounts in part.get("resources", {}).items()
    }


@pytest.mark.parametrize("index", range(len(FLOORS)))
def test_t12_pods_are_raised_as_our_own_arithmetic_says(
    index: int, kubectl: Kubectl, namespace: str, policies: None
) -> None:
    plain, changed, floor = (
        made(kubectl, namespace, ""),
        made(kubectl, namespace, f"raise-{index}"),
        floor_of(index),
    )
    touched = 0
    for name, before in plain.items():
        spec, after = before["spec"], changed[name]["spec"]
        missing = lacks(effective(spec), floor)
        touched += bool(missing)
        expected = with_raised(spec, raised(spec, pods_below.main_container(before), missing))
        assert stated(after) == stated(expected), name
        assert list(map(stated, after["containers"])) == list(map(stated, expected["containers"])), name
        assert after.get("initContainers") == spec.get("initContainers"), name
        assert bool(raised_from(changed[name])) == bool(missing), name
        for lack in missing:
            assert f"{lack.resource}={parse_back(lack.resource, lack.requested)}" in raised_from(
                changed[name]
            )
        assert not missing or raised_from(changed[name]).endswith(f" {before['status']['qosClass']}"), name
    assert 5 < touched < len(PODS)


def parse_back(resource: str, amount: int) -> str:
    """As the annotation has it: no suffix but m."""
    if resource != keys.CPU:
        return str(amount)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


@pytest.mark.parametrize("index", range(len(FLOORS)))
def test_pods_are_refused_when_they_lack_something_and_only_then(
    index: int, kubectl: Kubectl, namespace: str, policies: None
) -> None:
    plain, floor = made(kubectl, namespace, ""), floor_of(index)
    poor = {name for name, pod in plain.items() if lacks(effective(pod["spec"]), floor)}
    done = tried(kubectl, namespace, [labelled(pods_below.pod(number), f"reject-{index}") for number in PODS])
    assert {one["metadata"]["name"] for one in printed(done)} == set(plain) - poor
    assert done.stderr.count(f"less than the floor of policy reject-{index}") == len(poor)


def test_a_refusal_names_request_floor_and_what_to_do(
    kubectl: Kubectl, namespace: str, policies: None
) -> None:
    spec = {"containers": [{"name": "c", "image": "a:1", "resources": {"requests": {"cpu": "100m"}}}]}
    done = tried(kubectl, namespace, [labelled({"metadata": {"name": "poor"}, "spec": spec}, "reject-1")])
    assert (
        "requests cpu 100m (floor 1250m), memory 0 (floor 4Gi), less than the floor of policy" in done.stderr
    )
    assert "set floor.requestPolicy: Raise" in done.stderr


def test_a_changed_class_is_said_and_a_kept_one_is_not(
    kubectl: Kubectl, namespace: str, policies: None
) -> None:
    def warned(resources: dict[str, Any]) -> tuple[str, str]:
        spec = {"containers": [{"name": "c", "image": "a:1", "resources": resources}]}
        done = tried(kubectl, namespace, [labelled({"metadata": {"name": "p"}, "spec": spec}, "raise-1")])
        return json.loads(done.stdout)["status"]["qosClass"], done.stderr

    found, said = warned({})
    assert found == "Burstable"
    assert "so the pod is Burstable; it asked for cpu=0 memory=0 BestEffort" in said
    little = {"cpu": "1", "memory": "1Gi"}
    assert warned({"requests": little, "limits": little}) == ("Guaranteed", "")
    assert warned({"requests": little}) == ("Burstable", "")
    found, said = warned({"requests": little, "limits": {"cpu": "1250m", "memory": "4Gi"}})
    assert found == "Guaranteed"
    assert "it asked for cpu=1 memory=1073741824 Burstable" in said


def test_the_selectors_expressions_count(kubectl: Kubectl, namespace: str, policies: None) -> None:
    chosen = [
        {"key": "tier", "operator": "In", "values": ["gold", "silver"]},
        {"key": "track", "operator": "NotIn", "values": ["canary"]},
        {"key": "app", "operator": "Exists"},
        {"key": "skip", "operator": "DoesNotExist"},
    ]
    one = policy("chosen", {"cpu": "2"}, "Raise", matchExpressions=chosen)
    kubectl("apply", "--server-side", "-n", namespace, "-f", "-", document=one)

    def is_raised(**labels: str) -> bool:
        bare = {"containers": [{"name": "c", "image": "a:1"}]}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "labels": labels},
            "spec": bare,
        }
        return bool(raised_from(json.loads(tried(kubectl, namespace, [manifest]).stdout)))

    until(lambda: is_raised(tier="gold", app="a"), "the policy is known", SECONDS)
    assert is_raised(tier="silver", app="b", track="stable")
    assert not is_raised(tier="bronze", app="a")
    assert not is_raised(tier="gold", app="a", track="canary")
    assert not is_raised(tier="gold")
    assert not is_raised(tier="gold", app="a", skip="")


def resize(kubectl: Kubectl, namespace: str, name: str, cpu: str) -> subprocess.CompletedProcess[str]:
    resources = {"requests": {"cpu": cpu}}
    change = json.dumps({"spec": {"containers": [{"name": "c", "resources": resources}]}})
    return kubectl(
        "patch", "pod", name, "-n", namespace, "--subresource=resize", "-p", change, "-o", "json", check=False
    )


def test_a_resize_in_place_below_the_floor_is_raised_or_refused(
    kubectl: Kubectl, namespace: str, policies: None
) -> None:
    asked = {"requests": {"cpu": "3", "memory": "4Gi"}}
    spec = {"containers": [{"name": "c", "image": "a:1", "resources": asked}]}
    for floor in ("raise-1", "reject-1"):
        document = labelled({"metadata": {"name": floor}, "spec": spec}, floor)
        until(
            lambda document=document: (
                kubectl("create", "-n", namespace, "-f", "-", document=document, check=False).returncode == 0
            ),
            "the namespace takes pods",
            SECONDS,
        )
        assert resize(kubectl, namespace, floor, "2").returncode == 0
    raised_one = json.loads(resize(kubectl, namespace, "raise-1", "1").stdout)
    assert raised_one["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1250m"
    refused = resize(kubectl, namespace, "reject-1", "1")
    assert refused.returncode != 0
    assert "requests cpu 1 (floor 1250m), less than the floor of policy reject-1" in refused.stderr


def test_system_namespaces_and_mirror_pods_are_left_alone(
    kubectl: Kubectl, namespace: str, policies: None
) -> None:
    spec = {"containers": [{"name": "c", "image": "a:1"}], "nodeName": "n1"}
    mirror = labelled({"metadata": {"name": "m"}, "spec": spec}, "raise-0")
    mirror["metadata"]["annotations"] = {keys.MIRROR_ANNOTATION: "x"}
    done = tried(kubectl, namespace, [mirror])
    assert not raised_from(json.loads(done.stdout))
    for item in (one for one in items_of("requests.yaml") if one["spec"].get("paramKind")):
        (only,) = item["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        assert only["operator"] == "NotIn"
        assert {"kube-system", "j10ce-system"} <= set(only["values"])
