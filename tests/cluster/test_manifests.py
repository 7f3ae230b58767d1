"""The manifests in a real API server: what the extender may do, what it may not, who may use a profile."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from kubernetes import config
from kubernetes.client import (
    ApiClient,
    ApiException,
    AuthorizationV1Api,
    CoreV1Api,
    CustomObjectsApi,
    V1ResourceAttributes,
    V1SubjectAccessReview,
    V1SubjectAccessReviewSpec,
)

import manifests
from adapters.kubernetes import node_qos
from adapters.kubernetes.node_bandwidth import change_to, node_bandwidth
from lab import requests
from lab.cluster import Cluster
from qos import keys
from qos.api.policy import SlotsStatus
from tests.cluster.narrowed import APPLY

pytestmark = pytest.mark.cluster

ACCOUNT = "system:serviceaccount:j10ce-system:j10ce-extender"
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
Answer = TypeVar("Answer")


@pytest.fixture(scope="module", params=manifests.OVERLAYS)
def installed(request: pytest.FixtureRequest, kubectl: Kubectl, cluster: Cluster) -> Iterator[str]:
    """The CRDs and one overlay, by server-side apply, as README.md says."""
    with manifests.crds() as folder:
        kubectl(*APPLY, "-f", str(folder))
    with manifests.overlay(request.param) as folder:
        made = requests.as_served(kubectl("kustomize", str(folder)).stdout, cluster)
        cluster.kubectl(*APPLY, "-f", "-", stdin=made)
        yield request.param
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=made, seconds=240)


@pytest.fixture(scope="module")
def namespace(kubectl: Kubectl) -> Iterator[str]:
    name = f"manifests-{uuid.uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


NEEDED = [
    *[(verb, resource) for verb in ("get", "list", "watch") for resource in ("pods", "nodes")],
    *[
        (verb, f"{resource}.apps")
        for verb in ("list", "watch")
        for resource in ("deployments", "statefulsets", "replicasets", "daemonsets")
    ],
    *[
        (verb, resource)
        for verb in ("list", "watch")
        for resource in (
            "priorityclasses.scheduling.k8s.io",
            "minimalreservationpolicies.j10ce.io",
            "qosprofiles.j10ce.io",
            "nodeqoses.j10ce.io",
            "reservationbudgets.j10ce.io",
            "namespaces",
        )
    ],
    ("get", "minimalreservationpolicies.j10ce.io"),
    ("create", "pods/binding"),
    ("patch", "pods"),
    ("patch", "nodes"),
    ("patch", "minimalreservationpolicies.j10ce.io/status"),
    ("patch", "reservationbudgets.j10ce.io/status"),
    ("create", "events.events.k8s.io"),
]
LEASE_NEEDED = [
    ("create", "leases.coordination.k8s.io"),
    ("get", "leases.coordination.k8s.io/j10ce-extender"),
    ("update", "leases.coordination.k8s.io/j10ce-extender"),
]
# In both overlays; the second scheduler's account has kube-scheduler's own rights besides.
FORBIDDEN = [
    ("create", "pods"),
    ("update", "pods"),
    ("patch", "nodes/status"),
    ("update", "nodes"),
    ("delete", "nodes"),
    ("create", "nodes"),
    ("get", "secrets"),
    ("list", "secrets"),
    ("create", "pods/exec"),
    ("create", "pods/eviction"),
    ("create", "serviceaccounts/token"),
    ("patch", "deployments.apps"),
    ("patch", "minimalreservationpolicies.j10ce.io"),
    ("create", "minimalreservationpolicies.j10ce.io"),
    ("delete", "minimalreservationpolicies.j10ce.io"),
    ("create", "qosprofiles.j10ce.io"),
    ("patch", "qosprofiles.j10ce.io"),
    ("create", "reservationbudgets.j10ce.io"),
    ("patch", "reservationbudgets.j10ce.io"),
    ("use", "qosprofiles.j10ce.io"),
    ("create", "nodeqoses.j10ce.io"),
    ("patch", "nodeqoses.j10ce.io/status"),
    ("create", "clusterroles.rbac.authorization.k8s.io"),
    ("bind", "clusterroles.rbac.authorization.k8s.io"),
    ("escalate", "clusterroles.rbac.authorization.k8s.io"),
    ("impersonate", "users"),
    ("patch", "validatingadmissionpolicies.admissionregistration.k8s.io"),
    ("delete", "leases.coordination.k8s.io"),
]
SECOND_SCHEDULER_ONLY = [("delete", "pods"), ("patch", "pods/status")]


@pytest.fixture(scope="module")
def may(cluster: Any, kubectl: Kubectl) -> Iterator[Callable[..., bool]]:
    """What `kubectl auth can-i VERB RESOURCE --as=USER` asks, without a process each time."""
    groups = ["system:serviceaccounts", "system:authenticated"]
    with config.new_client_from_config(str(cluster.kubeconfig)) as client:
        reviews = AuthorizationV1Api(client)

        def ask(user: str, verb: str, resource: str, namespace: str = "") -> bool:
            plural, _, rest = resource.partition("/")
            name, _, group = plural.partition(".")
            part = {"subresource": rest} if rest in SUBRESOURCES else {"name": rest}
            attributes = V1ResourceAttributes(
                verb=verb, group=group, resource=name, namespace=namespace, **part
            )
            spec = V1SubjectAccessReviewSpec(user=user, groups=groups, resource_attributes=attributes)
            return bool(reviews.create_subject_access_review(V1SubjectAccessReview(spec=spec)).status.allowed)

        yield ask


SUBRESOURCES = ("binding", "status", "exec", "eviction", "token")


def test_the_extender_may_do_what_it_needs(installed: str, may: Callable[..., bool]) -> None:
    user = "j10ce-extender" if installed == "default-scheduler" else ACCOUNT

    def cannot() -> list[tuple[str, str]]:
        missing = [need for need in NEEDED if not may(user, *need)]
        return missing + [need for need in LEASE_NEEDED if not may(user, *need, "j10ce-system")]

    eventually_says(cannot, [])


def test_the_extender_may_do_no_more(installed: str, may: Callable[..., bool]) -> None:
    forbidden = FORBIDDEN + (SECOND_SCHEDULER_ONLY if installed == "default-scheduler" else [])
    leases = ("leases.coordination.k8s.io/kube-controller-manager", "leases.coordination.k8s.io/other")

    def can() -> list[tuple[str, str]]:
        more = [action for action in forbidden if may(ACCOUNT, *action)]
        return more + [("update", lease) for lease in leases if may(ACCOUNT, "update", lease, "kube-system")]

    eventually_says(can, [])


def test_the_certificates_user_has_rights_only_where_it_is_used(
    installed: str, may: Callable[..., bool]
) -> None:
    eventually_says(lambda: may("j10ce-extender", "create", "pods/binding"), installed == "default-scheduler")


def test_kubectl_says_the_same(installed: str, kubectl: Kubectl) -> None:
    for verb, resource, answer in (
        ("create", "pods/binding", "yes"),
        ("patch", "minimalreservationpolicies.j10ce.io/status", "yes"),
        ("list", "secrets", "no"),
        ("patch", "minimalreservationpolicies.j10ce.io", "no"),
    ):
        name, _, part = resource.partition("/")
        arguments = [name, f"--subresource={part}"] if part else [name]
        ask = ("auth", "can-i", verb, *arguments, "-A", f"--as={ACCOUNT}")
        eventually_says(lambda ask=ask: kubectl(*ask, check=False).stdout.strip(), answer)


def test_a_second_scheduler_may_lead(installed: str, may: Callable[..., bool]) -> None:
    lease = "leases.coordination.k8s.io/j10ce-scheduler"
    expected = installed == "second-scheduler"
    eventually_says(lambda: may(ACCOUNT, "update", lease, "j10ce-system"), expected)
    eventually_says(lambda: may(ACCOUNT, "delete", "pods"), expected)
    eventually_says(lambda: may(ACCOUNT, "list", "csinodes.storage.k8s.io"), expected)


@pytest.fixture
def pod(kubectl: Kubectl, namespace: str) -> Iterator[str]:
    name = f"pod-{uuid.uuid4().hex[:8]}"
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "alone"},  # of no policy, which would raise its requests
            "annotations": {"example.com/theirs": "1"},
            "finalizers": ["example.com/stay"],
        },
        "spec": {
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "c"}],
        },
    }
    kubectl("create", "-n", namespace, "-f", "-", document=document)
    yield name
    kubectl("patch", "pod", name, "-n", namespace, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
    kubectl("delete", "pod", name, "-n", namespace, "--grace-period=0", "--force")


@pytest.fixture
def node(kubectl: Kubectl) -> Iterator[str]:
    name = f"node-{uuid.uuid4().hex[:8]}"
    # The Deployment's pods shall not go there: with the node gone they would stay for a minute.
    spec = {"taints": [{"key": "nobody", "effect": "NoSchedule"}]}
    metadata = {"name": name, "labels": {"pool": "a"}}
    document = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
    kubectl("create", "-f", "-", document=document)
    yield name
    kubectl("delete", "node", name)


def patch_as_extender(kubectl: Kubectl, resource: str, name: str, change: Any, *more: str) -> str:
    """ "" when it went through, else what was said."""
    done = kubectl(
        "patch",
        resource,
        name,
        "--type=merge",
        "-p",
        json.dumps(change),
        f"--as={ACCOUNT}",
        *more,
        check=False,
    )
    return done.stderr if done.returncode else ""


def eventually_allowed(attempt: Callable[[], str]) -> None:
    """Until the API server has seen the new right."""
    eventually_says(attempt, "")


def eventually_refused(attempt: Callable[[], str], why: str) -> None:
    """Until it refuses for this reason: rights and policies are in force moments after they are applied."""
    eventually_says(lambda: why if why in (said := attempt()) else said or "it was taken", why)


def eventually_says(ask: Callable[[], Answer], expected: Answer) -> None:
    """Until that is the answer; AssertionError shows the last one."""
    deadline = time.monotonic() + 60
    while (answer := ask()) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    assert answer == expected


def test_on_pods_it_may_change_its_own_annotations_only(
    installed: str, kubectl: Kubectl, namespace: str, pod: str
) -> None:
    scope = ("-n", namespace, "--dry-run=server")
    for change in (
        {"metadata": {"annotations": {"example.com/mine": "1"}}},
        {"metadata": {"annotations": {"example.com/theirs": "2"}}},
        {"metadata": {"annotations": {"example.com/theirs": None}}},
        {"metadata": {"annotations": {"j10ce.io/wake": "1", "j10ce.io/bound-by": "e2"}}},
        {"metadata": {"labels": {"app": "other"}}},
        {"metadata": {"finalizers": None}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"spec": {"containers": [{"name": "c", "image": "another"}]}},
    ):
        eventually_refused(
            lambda change=change: patch_as_extender(kubectl, "pod", pod, change, *scope),
            "j10ce-extender-annotations",
        )
    wake = {"metadata": {"annotations": {"j10ce.io/wake": "12.5"}}}
    assert patch_as_extender(kubectl, "pod", pod, wake, "-n", namespace) == ""
    assert patch_as_extender(kubectl, "pod", pod, wake | {"spec": {}}, "-n", namespace) == ""
    for value in ("a/b", "", None):
        mark = {"metadata": {"annotations": {"j10ce.io/policy": value}}}
        assert patch_as_extender(kubectl, "pod", pod, mark, "-n", namespace) == ""


def test_only_the_extender_says_whether_a_pod_fills_a_slot(
    installed: str, kubectl: Kubectl, namespace: str, pod: str, node: str
) -> None:
    """A user who may write pods and their status, and bind them; the administrator may clean up."""
    user, path = f"user-{uuid.uuid4().hex[:8]}", f"/api/v1/namespaces/{namespace}/pods/{pod}"
    verbs = {
        "pods": "get,create,patch,update,delete",
        "pods/status": "get,patch",
        "pods/binding": "create",
        "bindings": "create",
    }
    for number, (resource, allowed) in enumerate(verbs.items()):
        name, scope = f"{user}-{number}", ("-n", namespace)
        kubectl("create", "role", name, f"--verb={allowed}", f"--resource={resource}", *scope)
        kubectl("create", "rolebinding", name, f"--role={name}", f"--user={user}", *scope)

    def patch(change: Any, *more: str) -> str:
        text = ("--type=merge", "-p", json.dumps({"metadata": {"annotations": change}}), f"--as={user}")
        done = kubectl("patch", "pod", pod, "-n", namespace, *text, *more, check=False)
        return done.stderr if done.returncode else ""

    def bind(annotations: dict[str, str], where: str = f"{path}/binding") -> str:
        meta = {"name": pod, "namespace": namespace, "annotations": annotations}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        document = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        raw = ("create", "--raw", where, "-f", "-", f"--as={user}")
        done = kubectl(*raw, document=document, check=False)
        return done.stderr if done.returncode else ""

    why = "only the extender says whether a pod fills a slot"
    for more in ((), ("--subresource=status",)):
        eventually_refused(lambda more=more: patch({"j10ce.io/policy": "a/b"}, *more), why)
        assert why in patch({"j10ce.io/policy": ""}, *more)
        assert patch({"example.com/theirs": "2"}, *more) == ""
    for where in (f"{path}/binding", f"/api/v1/namespaces/{namespace}/bindings"):
        assert why in bind({"j10ce.io/policy": "a/b"}, where)
    mark = {"metadata": {"annotations": {"j10ce.io/policy": ""}}}
    assert patch_as_extender(kubectl, "pod", pod, mark, "-n", namespace) == ""
    for more in ((), ("--subresource=status",)):
        assert why in patch({"j10ce.io/policy": None}, *more)
        assert why in patch({"j10ce.io/policy": "a/b"}, *more)
        assert patch({"example.com/theirs": "3", "j10ce.io/policy": ""}, *more) == "", "it was kept"
    assert bind({"example.com/other": "1"}) == ""
    kubectl("annotate", "pod", pod, "-n", namespace, "j10ce.io/policy-")


def test_a_pod_may_be_made_with_the_mark_which_counts_for_nothing(
    installed: str, kubectl: Kubectl, namespace: str
) -> None:
    """From a backup, or by a template: refused, a workload would have no pods at all."""
    meta = {"name": f"restored-{uuid.uuid4().hex[:8]}", "annotations": {"j10ce.io/policy": "a/b"}}
    spec = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "c"}]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    kubectl("create", "-n", namespace, "--dry-run=server", "-f", "-", document=document)


def test_on_nodes_it_may_change_the_scale_down_annotations_only(
    installed: str, kubectl: Kubectl, node: str
) -> None:
    for change in (
        {"metadata": {"annotations": {"j10ce.io/wake": "1"}}},
        {"metadata": {"labels": {"pool": "b"}}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
    ):
        eventually_refused(
            lambda change=change: patch_as_extender(kubectl, "node", node, change, "--dry-run=server"),
            "j10ce-extender-annotations",
        )
    keys = ("j10ce.io/held", "cluster-autoscaler.kubernetes.io/scale-down-disabled")
    for value in ("true", None):
        mark = {"metadata": {"annotations": dict.fromkeys(keys, value)}}
        assert patch_as_extender(kubectl, "node", node, mark) == ""


def test_a_binding_carries_our_annotations_only(
    installed: str, kubectl: Kubectl, namespace: str, pod: str, node: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/binding"

    def bind(metadata: dict[str, Any], *more: str, path: str = path) -> str:
        document = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace} | metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        raw = path + ("?dryRun=All" if more else "")
        done = kubectl("create", "--raw", raw, "-f", "-", f"--as={ACCOUNT}", document=document, check=False)
        return done.stderr if done.returncode else ""

    for metadata in (
        {"annotations": {"example.com/other": "1"}},
        {"annotations": {"j10ce.io/bound-by": "e1", "example.com/other": "1"}},
        {"labels": {"app": "other"}},
    ):
        eventually_refused(
            lambda metadata=metadata: bind(metadata, "dry run"), "may carry only the annotations"
        )
    if installed == "second-scheduler":  # kube-scheduler's own right, on the path that bound pods once
        for metadata in ({"labels": {"app": "other"}}, {"annotations": {"example.com/other": "1"}}):
            older = f"/api/v1/namespaces/{namespace}/bindings"
            assert "may carry only the annotations" in bind(metadata, "dry run", path=older)
    assert bind({"annotations": {"j10ce.io/bound-by": "e1", "j10ce.io/policy": "a/b"}}) == ""
    bound = json.loads(kubectl("get", "pod", pod, "-n", namespace, "-o", "json").stdout)
    assert bound["spec"]["nodeName"] == node
    assert bound["metadata"]["annotations"]["j10ce.io/policy"] == "a/b"


COUNTS = SlotsStatus().to_json()
POLICY = {
    "apiVersion": "j10ce.io/v1alpha1",
    "kind": "MinimalReservationPolicy",
    "spec": {
        "selector": {"matchLabels": {"app": "checkout"}},
        "floor": {"resources": {"cpu": "1"}},
        "slots": {"count": 1},
    },
}


def test_of_a_policy_it_may_write_the_status_only(
    installed: str, cluster: Any, kubectl: Kubectl, namespace: str
) -> None:
    name = f"reported-{installed}"
    kubectl("create", "-n", namespace, "-f", "-", document=POLICY | {"metadata": {"name": name}})
    scope = ("-n", namespace)
    said = patch_as_extender(kubectl, "mrp", name, {"spec": {"suspend": True}}, *scope)
    assert "forbidden" in said
    status = {"observedGeneration": 1, "slots": {"desired": 1}}
    wrong = {"observedGeneration": 99}
    eventually_refused(
        lambda: write_status(cluster, namespace, name, wrong),  # may be taken before the rule is heard of
        "status.observedGeneration",
    )
    eventually_allowed(lambda: write_status(cluster, namespace, name, status))
    assert "status.observedGeneration" in write_status(cluster, namespace, name, wrong)
    stored = json.loads(kubectl("get", "mrp", name, "-n", namespace, "-o", "json").stdout)
    assert stored["status"] == {"observedGeneration": 1, "slots": {**COUNTS, "desired": 1}}


def write_status(cluster: Any, namespace: str, name: str, status: dict[str, Any]) -> str:
    """As the extender does it: a merge patch, and no read before it, as kubectl would."""
    client = config.new_client_from_config(str(cluster.kubeconfig))
    client.set_default_header("Impersonate-User", ACCOUNT)
    with client:
        try:
            CustomObjectsApi(client).patch_namespaced_custom_object_status(
                "j10ce.io", "v1alpha1", namespace, "minimalreservationpolicies", name, {"status": status}
            )
        except ApiException as error:
            return str(error.body)
    return ""


@pytest.mark.parametrize(
    ("field", "group", "kind"),
    [
        ("profileName", "j10ce.io", "qosprofile"),
        ("priorityClassName", "scheduling.k8s.io", "priorityclass"),
    ],
)
def test_what_a_policy_names_needs_the_verb_use(
    installed: str, kubectl: Kubectl, namespace: str, field: str, group: str, kind: str
) -> None:
    user = f"author-of-{kind}-{installed}"
    kubectl(
        "create", "rolebinding", user, "--clusterrole=j10ce-policy-editor", f"--user={user}", "-n", namespace
    )
    number = iter(range(1_000_000))

    def create(name: str | None) -> str:
        spec = dict(POLICY["spec"]) | ({field: name} if name else {})
        document = POLICY | {"metadata": {"name": f"{user}-{next(number)}"}, "spec": spec}
        done = kubectl("create", "-n", namespace, "-f", "-", f"--as={user}", document=document, check=False)
        return done.stderr if done.returncode else ""

    def patch(name: str, change: dict[str, Any]) -> str:
        arguments = ("--type=merge", "-p", json.dumps(change), f"--as={user}")
        done = kubectl("patch", "mrp", name, "-n", namespace, *arguments, check=False)
        return done.stderr if done.returncode else ""

    eventually_refused(lambda: create("gold"), f"spec.{field}: {user} may not use {kind} gold")
    assert create(None) == "", "a policy that names none needs no such right"
    plain = f"{user}-{next(number) - 1}"
    assert f"may not use {kind} gold" in patch(plain, {"spec": {field: "gold"}})
    with use_of_gold(kubectl, user, group, "qosprofiles" if kind == "qosprofile" else "priorityclasses"):
        eventually_allowed(lambda: create("gold"))
        golden = f"{user}-{next(number) - 1}"
        assert f"may not use {kind} silver" in create("silver")
    eventually_refused(
        lambda: patch(golden, {"spec": {"slots": {"count": next(number)}}}), f"may not use {kind} gold"
    )
    assert patch(golden, {"metadata": {"labels": {"a": "b"}}}) == "", "only what is asked for counts"
    larger = ("scale", "mrp", golden, "-n", namespace, "--replicas=9", f"--as={user}")
    assert "forbidden" in kubectl(*larger, check=False).stderr, "nor may it be made larger in another way"
    role = ("create", "rolebinding", f"{user}-scales", "--clusterrole=j10ce-policy-scaler", f"--user={user}")
    kubectl(*role, "-n", namespace)
    eventually_allowed(lambda: kubectl(*larger, check=False).stderr)


@contextmanager
def use_of_gold(kubectl: Kubectl, user: str, group: str, resource: str) -> Iterator[None]:
    """Verb use on the object gold of a resource, for one user."""
    role = f"user-of-gold-{uuid.uuid4().hex[:6]}"
    rule = {
        "apiGroups": [group],
        "resources": [resource],
        "resourceNames": ["gold"],
        "verbs": ["use"],
    }
    rights = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role}}
    kubectl("create", "-f", "-", document=rights | {"rules": [rule]})
    kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", f"--user={user}")
    yield
    kubectl("delete", "clusterrolebinding", role)
    kubectl("delete", "clusterrole", role)


AGENT = {"name": "j10ce-agent", "namespace": "j10ce-system"}
LOCKED_DOWN = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
def agent_token(installed: str, kubectl: Kubectl, node: str) -> Iterator[str]:
    """The token of an agent's pod on the node; RBAC alone lets it write every NodeQoS and node.status."""
    name = f"agent-{uuid.uuid4().hex[:8]}"
    scope = ("-n", AGENT["namespace"])
    rule = {"apiGroups": ["j10ce.io"], "resources": ["nodeqoses", "nodeqoses/status"]}
    rights = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    verbs = {"verbs": ["get", "create", "patch", "delete"]}
    of_nodes = {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "serviceAccountName": AGENT["name"],
            "containers": [{"name": "c", "image": "c", "securityContext": LOCKED_DOWN}],
        },
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": AGENT}
    kubectl("apply", "-f", "-", document=account)
    kubectl("create", "-f", "-", document=rights | {"rules": [rule | verbs, of_nodes]})
    who = f"--serviceaccount={AGENT['namespace']}:{AGENT['name']}"
    kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", who)
    kubectl("create", *scope, "-f", "-", document=pod)
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={name}")
    yield kubectl("create", "token", AGENT["name"], *scope, *bound).stdout.strip()
    kubectl("delete", "pod", name, *scope, "--grace-period=0", "--force")
    kubectl("delete", "clusterrolebinding,clusterrole", name)


class Reporter:
    """Writes NodeQoS with a token; "" when it went through, else what was said."""

    def __init__(self, cluster: Any, token: str) -> None:
        given = config.new_client_from_config(str(cluster.kubeconfig)).configuration
        given.cert_file = given.key_file = None
        given.api_key = {"authorization": f"Bearer {token}"}
        self._client = ApiClient(given)
        self._objects = CustomObjectsApi(self._client)
        self._nodes = CoreV1Api(self._client)

    def create(self, name: str, owner: str, uid: str) -> str:
        body = node_qos.new(owner, uid)
        body["metadata"]["name"] = name
        return self._said(self._objects.create_cluster_custom_object, body)

    def report(self, name: str) -> str:
        body = {"status": {"agentVersion": "1"}}
        return self._said(self._objects.patch_cluster_custom_object_status, name, body)

    def delete(self, name: str) -> str:
        return self._said(self._objects.delete_cluster_custom_object, name)

    def publish(self, name: str, change: Any) -> str:
        return self._said_to(self._nodes.patch_node_status, name, change)

    def _said(self, call: Callable[..., object], *arguments: Any) -> str:
        return self._said_to(call, "j10ce.io", "v1alpha1", "nodeqoses", *arguments)

    def _said_to(self, call: Callable[..., object], *arguments: Any) -> str:
        try:
            call(*arguments)
        except ApiException as error:
            return str(error.body)
        return ""


def test_an_agent_reports_of_its_own_node_only(
    installed: str, cluster: Any, kubectl: Kubectl, node: str, agent_token: str
) -> None:
    other = {"apiVersion": "j10ce.io/v1alpha1", "kind": "NodeQoS", "metadata": {"name": f"{node}-other"}}
    kubectl("create", "-f", "-", document=other)
    agent = Reporter(cluster, agent_token)
    text = f"the agent of node {node} may not write NodeQoS {node}-other"
    eventually_refused(lambda: agent.report(f"{node}-other"), text)
    assert text in agent.delete(f"{node}-other")
    uid = kubectl("get", "node", node, "-o", "jsonpath={.metadata.uid}").stdout
    assert f"may not write NodeQoS {node}-new" in agent.create(f"{node}-new", node, uid)
    assert "belongs to its Node alone" in agent.create(node, "another", uid)
    assert agent.create(node, node, uid) == ""
    assert agent.report(node) == ""
    unbound = kubectl("create", "token", AGENT["name"], "-n", AGENT["namespace"]).stdout.strip()
    assert "the token names no node" in Reporter(cluster, unbound).report(node)
    assert agent.delete(node) == ""
    kubectl("delete", "nodeqos", f"{node}-other")


BANDWIDTH = {keys.EGRESS_BANDWIDTH: 9_400_000_000, keys.INGRESS_BANDWIDTH: 9_000_000_000}
NOT_AN_AGENTS = {
    "another resource": {"status": {"capacity": {"cpu": "1000"}}},
    "another resource gone": {"status": {"allocatable": {"memory": None}}},
    "all resources gone": {"status": {"capacity": None}},
    "a condition": {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
    "an address": {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}},
    "the addresses gone": {"status": {"addresses": None}},
    "an image": {"status": {"images": [{"names": ["other"], "sizeBytes": 1}]}},
    "a volume": {"status": {"volumesInUse": ["one"]}},
    "what runs there": {"status": {"nodeInfo": {"kubeletVersion": "v0"}}},
    "a feature": {"status": {"features": {"supplementalGroupsPolicy": True}}},
    "a label": {"metadata": {"labels": {"pool": "b"}}},
    "a label more": {"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}},
    "an annotation": {"metadata": {"annotations": {"x": "y"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/stays"]}},
}


def test_an_agent_publishes_the_bandwidth_of_its_own_node_and_nothing_else(
    installed: str, cluster: Any, kubectl: Kubectl, node: str, agent_token: str
) -> None:
    status = {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
        "images": [{"names": ["one"], "sizeBytes": 1}],
    }
    as_kubelet = ("patch", "node", node, "--subresource=status", "--type=merge", "-p")
    kubectl(*as_kubelet, json.dumps({"status": status}))
    before = json.loads(kubectl("get", "node", node, "-o", "json").stdout)
    agent = Reporter(cluster, agent_token)
    eventually_refused(
        lambda: agent.publish(node, NOT_AN_AGENTS["another resource"]),
        "an agent changes no resource of a Node but j10ce.io/egress-bandwidth and ingress-bandwidth",
    )
    for name, change in NOT_AN_AGENTS.items():
        assert "an agent changes no" in agent.publish(node, change), name
        mixed = change | {"status": change_to(BANDWIDTH)["status"] | change.get("status", {})}
        assert "an agent changes no" in agent.publish(node, mixed), f"{name} beside what it may"
    other = f"{node}-other"
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": other}}
    kubectl("create", "-f", "-", document=document)
    refused = f"the agent of node {node} may not change Node {other}"
    assert refused in agent.publish(other, change_to(BANDWIDTH))
    unbound = kubectl("create", "token", AGENT["name"], "-n", AGENT["namespace"]).stdout.strip()
    assert "the token names no node" in Reporter(cluster, unbound).publish(node, change_to(BANDWIDTH))
    after = json.loads(kubectl("get", "node", node, "-o", "json").stdout)
    assert (after["status"], after["metadata"]) == (before["status"], before["metadata"])
    for wanted in (BANDWIDTH, {}):
        assert agent.publish(node, change_to(wanted)) == ""
        raw = kubectl("get", "node", node, "-o", "json").stdout.encode()
        assert node_bandwidth(raw).says(wanted)
    kubectl("delete", "node", other)
