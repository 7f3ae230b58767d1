"""Quotas that break a rule are refused, on a real API server, by a manager with its installed rights."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from ruamel.yaml import YAML

from cli import installation
from cli.install import apply
from cli.kubectl import as_list, find
from lab import cluster as lab_cluster
from lab import ports
from lab.binaries import Binaries
from lab.cluster import Cluster
from qos import keys
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SECONDS = 120.0
ACCOUNT = "system:serviceaccount:j10ce-system:j10ce-manager"
NAMESPACE_CONTROLLER = (
    "--as=system:serviceaccount:kube-system:namespace-controller",
    "--as-group=system:masters",
)
HOOKS = ("get", "validatingwebhookconfiguration", "j10ce-quotas", "-o", "json")

Object = dict[str, Any]


class World:
    """The control plane, and the manager beside it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.health, self.webhook = ports.reserve(folder, 2)
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str, document: object = None) -> subprocess.CompletedProcess[str]:
        argv = [*self.cluster.kubectl_argv, "--kubeconfig", str(self.cluster.kubeconfig), *arguments]
        given = None if document is None else json.dumps(document)
        return subprocess.run(argv, input=given, capture_output=True, text=True, timeout=300, check=False)

    def kubectl(self, *arguments: str, document: object = None) -> str:
        done = self.run(*arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *arguments: str, document: object = None) -> str:
        done = self.run(*arguments, document=document)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def hooks(self) -> list[Object]:
        found: list[Object] = json.loads(self.kubectl(*HOOKS)).get("webhooks") or []
        return found

    def start(self, *more: str) -> None:
        """With the rights of its account, until it is ready."""
        place = {"address": f"127.0.0.1:{self.webhook}", "url": f"https://127.0.0.1:{self.webhook}"}
        with (self.folder / "config.yaml").open("w") as file:
            YAML(typ="safe").dump({"webhook": place}, file)
        argv = [sys.executable, "-P", "-c", "from manager.commands import main; main()", "--identity", "m1"]
        argv += [
            "--kubeconfig",
            str(self.folder / "kubeconfig"),
            "--config",
            str(self.folder / "config.yaml"),
        ]
        argv += ["--address", f"127.0.0.1:{self.health}", *more]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(argv, stderr=out)
        until(lambda: self.page("readyz"), "ready", SECONDS, self.log.read_text)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)

    def page(self, name: str) -> str:
        try:
            with urlopen(f"http://127.0.0.1:{self.health}/{name}", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def reviews(self, resource: str) -> float:
        """So many questions it has answered."""
        lines = self.page("metrics").splitlines()
        return sum(
            float(line.split()[1])
            for line in lines
            if line.startswith("j10ce_quota_reviews_total{") and f'resource="{resource}"' in line
        )


@pytest.fixture(scope="module")
def world(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All that is installed but Deployments, and one manager that is asked."""
    name = f"hook-{secrets.token_hex(3)}"
    cluster = lab_cluster.up(name, binaries=binaries, crds=False)
    world = World(cluster, tmp_path_factory.mktemp("manager"))
    kubectl = find(os.environ, cluster.kubeconfig, "")
    wanted = installation.objects(kubectl, "second-scheduler", installation.Choices(quotas=True))
    apply(kubectl, [item for item in wanted if item["kind"] != "Deployment"], force_conflicts=False)
    world.kubectl("apply", "-f", str(ROOT / "lab" / "elasticquotas.yaml"))
    world.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    document = json.loads(world.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    token = world.kubectl("create", "token", "j10ce-manager", "-n", "j10ce-system", "--duration=8h").strip()
    for user in document["users"]:
        user["user"] = {"token": token}
    (world.folder / "kubeconfig").write_text(json.dumps(document))
    try:
        world.start("--quotas")
        until(world.hooks, "it is registered", SECONDS, world.log.read_text)
        until(lambda: asked(world), "it is asked", SECONDS, world.log.read_text)
        yield world
    finally:
        world.kill()
        lab_cluster.down(name)


def asked(world: World) -> bool:
    """Whether API servers have learned of the webhook."""
    wrong = quota("default", "wrong", "2", "1")
    done = world.run("create", "--dry-run=server", "-f", "-", document=wrong)
    return done.returncode != 0 and "denied the request" in done.stderr


@pytest.fixture
def namespace(world: World) -> Iterator[str]:
    name = f"teams-{secrets.token_hex(3)}"
    world.kubectl("create", "namespace", name)
    until(lambda: world.run("get", "serviceaccount", "default", "-n", name).returncode == 0, "pods", SECONDS)
    yield name
    world.run("delete", "pods", "-n", name, "--all", "--grace-period=0", "--force")
    # Children first: a parent is refused while it has any.
    for selector in (f"!{keys.QUOTA_IS_PARENT_LABEL}", f"{keys.QUOTA_PARENT_LABEL}", ""):
        world.run("delete", "elasticquotas", "-n", name, *(["-l", selector] if selector else ["--all"]))
    world.run("delete", "namespace", name, "--wait=false")


def quota(
    namespace: str, name: str, least: str = "10", most: str = "40", parent: str = "", **more: Any
) -> Object:
    labels = {keys.QUOTA_PARENT_LABEL: parent} if parent else {}
    if more.pop("is_parent", False):
        labels[keys.QUOTA_IS_PARENT_LABEL] = "true"
    meta = {"namespace": namespace, "name": name, "labels": labels | more.pop("labels", {})}
    spec = {"min": {"cpu": least}, "max": {"cpu": most}} | more.pop("spec", {})
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": meta | more,
        "spec": spec,
    }


def pod(namespace: str, name: str, of: str = "") -> Object:
    labels = {keys.QUOTA_NAME_LABEL: of} if of else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "registry.invalid/none"}],
        },
    }


def tree(namespace: str) -> list[Object]:
    """A parent, three parents beneath it, ten quotas beneath each: the parents first."""
    top = quota(namespace, f"{namespace}-top", "30", "300", is_parent=True, spec={"max": {"cpu": "300"}})
    named = f"{namespace}-{{}}".format
    teams = [quota(namespace, named(team), "10", "300", named("top"), is_parent=True) for team in "abc"]
    return [
        top,
        *teams,
        *(quota(namespace, named(f"{t}{n}"), "1", "300", named(t)) for t in "abc" for n in range(10)),
    ]


def test_a_whole_tree_comes_by_one_command_and_goes_by_one(world: World, namespace: str) -> None:
    objects = tree(namespace)
    done = world.run("apply", "-f", "-", document=json.loads(as_list(objects)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("created") == len(objects)
    done = world.run("apply", "-f", "-", document=json.loads(as_list(objects)))
    assert done.stdout.count("unchanged") == len(objects), done.stderr
    # The parents first: they are refused as long as there are children, which go in the same command.
    said = world.refused("delete", "-f", "-", document=json.loads(as_list(objects)))
    assert said.count("denied the request") == 4, said
    assert f"ElasticQuota {namespace}/{namespace}-top: it has 3 children" in said
    world.kubectl("delete", "-f", "-", document=json.loads(as_list(reversed(objects[:4]))))
    # The children first: all in one.
    world.kubectl("apply", "-f", "-", document=json.loads(as_list(objects)))
    world.kubectl("delete", "-f", "-", document=json.loads(as_list(reversed(objects))))


def cases(ns: str) -> Iterator[tuple[str, Object, str]]:
    """What is tried with which verb, and what is said: there are `web` (min 20) with `shop`, and `taken`."""
    top, beneath = f"{ns}-web", f"{ns}-shop"
    yield "create", quota(ns, "q", "-1"), "spec.min.cpu: -1 is negative: write zero or more"
    yield "create", quota(ns, "q", "50"), "spec.min.cpu: 50 is more than its max, 40: lower min, or raise max"
    yield (
        "create",
        quota(ns, "q", spec={"min": {"memory": "1Gi"}}),
        "spec.min.memory: 1Gi, and spec.max does not name it: give memory a max, or no min",
    )
    broken = {keys.QUOTA_WEIGHT_ANNOTATION: "{"}
    yield (
        "create",
        quota(ns, "q", annotations=broken),
        f"metadata.annotations[{keys.QUOTA_WEIGHT_ANNOTATION}]",
    )
    yield "create", quota("default", beneath, parent=top), f"ElasticQuota {ns}/{beneath} has the same name"
    bound = {keys.QUOTA_NAMESPACES_ANNOTATION: json.dumps([f"{ns}-run"])}
    yield (
        "create",
        quota(ns, "q", annotations=bound),
        f"{ns}-run is bound to ElasticQuota {ns}/{ns}-taken: take it out there first",
    )
    yield "create", quota(ns, "q", parent="gone"), "gone is no quota that can have children: name another one"
    yield (
        "create",
        quota(ns, "q", parent=beneath),
        f"ElasticQuota {ns}/{beneath} is no parent: give it the label",
    )
    yield (
        "apply",
        quota(ns, top, "20", parent=top, is_parent=True),
        f"{top} is itself or beneath it: name another one",
    )
    tree_label = {keys.QUOTA_TREE_LABEL: "gpu"}
    yield (
        "create",
        quota(ns, "q", "1", parent=top, labels=tree_label),
        f'"gpu", and its parent {ns}/{top} has "": give both the same',
    )
    yield (
        "apply",
        quota(ns, beneath, parent=top, labels=tree_label),
        '"" may not become "gpu": make another quota',
    )
    yield (
        "create",
        quota(ns, "q", "1", parent=top, spec={"max": {"cpu": "40", "memory": "1Gi"}}),
        f"spec.max: it and its parent {ns}/{top} do not name the same resources: memory",
    )
    yield (
        "create",
        quota(ns, "q", "11", parent=top),
        f"spec.min.cpu: those of all children of {ns}/{top} are 21 together, more than its min, 20: lower",
    )
    yield (
        "apply",
        quota(ns, top, "5", is_parent=True),
        "those of its children are 10 together, more than its own, 5",
    )
    no_parent = quota(ns, top, "20", labels={keys.QUOTA_IS_PARENT_LABEL: "false"})
    yield "apply", no_parent, f'it has 1 child ({ns}/{beneath}): it stays "true" while there are any'
    yield (
        "apply",
        quota(ns, beneath, parent=top, is_parent=True),
        f"it has 1 pod ({ns}/of-shop), and parents have none: delete them first",
    )
    yield (
        "delete",
        quota(ns, top),
        f"it has 1 child ({ns}/{beneath}): delete them first, or give them another parent",
    )
    yield (
        "delete",
        quota(ns, beneath),
        f"it has 1 pod ({ns}/of-shop): delete them first, or give them another quota",
    )
    yield (
        "create",
        pod(ns, "p", top),
        f"ElasticQuota {ns}/{top}, is a parent, and those have no pods: name one of its",
    )


def test_each_refusal_names_object_field_number_and_what_to_do(world: World, namespace: str) -> None:
    web, shop, taken = (f"{namespace}-{name}" for name in ("web", "shop", "taken"))
    bound = {keys.QUOTA_NAMESPACES_ANNOTATION: json.dumps([f"{namespace}-run"])}
    for one in (
        quota(namespace, web, "20", is_parent=True),
        quota(namespace, shop, parent=web),
        quota(namespace, taken, annotations=bound),
        pod(namespace, "of-shop", shop),
    ):
        world.kubectl("apply", "-f", "-", document=one)
    until(
        lambda: web in json.dumps(world.hooks()), "pods on it are asked about", SECONDS, world.log.read_text
    )
    until(lambda: refuses_pods(world, namespace, web), "and refused", SECONDS, world.log.read_text)
    for verb, document, message in cases(namespace):
        said = world.refused(verb, "-f", "-", document=document)
        assert "denied the request: " in said, (verb, document, said)
        assert message in said, (verb, document, said)
        kind, name = document["kind"], document["metadata"]["name"]
        assert f"{kind} {document['metadata']['namespace']}/{name}: " in said
    # A rule that is broken may be broken by force, where Koordinator's may.
    forced = quota(namespace, f"{namespace}-q", "11", parent=web, labels={keys.QUOTA_FORCE_LABEL: "true"})
    world.kubectl("create", "-f", "-", document=forced)


def refuses_pods(world: World, namespace: str, parent: str) -> bool:
    done = world.run("create", "--dry-run=server", "-f", "-", document=pod(namespace, "p", parent))
    return "denied the request" in done.stderr


def test_pods_are_asked_about_by_the_parents_they_name_alone(world: World, namespace: str) -> None:
    team, run = f"{namespace}-team", f"{namespace}-run"
    bound = {keys.QUOTA_NAMESPACES_ANNOTATION: json.dumps([namespace])}
    world.kubectl("create", "-f", "-", document=quota(namespace, team, is_parent=True, annotations=bound))
    world.kubectl("create", "-f", "-", document=quota(namespace, run, parent=team))
    until(lambda: refuses_pods(world, namespace, team), "refused by label", SECONDS, world.log.read_text)
    until(lambda: refuses_pods(world, namespace, ""), "refused by namespace", SECONDS, world.log.read_text)
    before = world.reviews("pods")
    world.kubectl("create", "-f", "-", document=pod(namespace, "a", run))
    world.kubectl("create", "-f", "-", document=pod("default", f"{namespace}-b", "nowhere"))
    world.kubectl("annotate", "pod", "a", "-n", namespace, "some=thing")
    assert world.reviews("pods") == before
    said = world.refused(
        "label", "pod", "a", "-n", namespace, "--overwrite", f"{keys.QUOTA_NAME_LABEL}={team}"
    )
    assert f"name one of its children, {run}" in said
    assert world.reviews("pods") == before + 1
    world.kubectl("delete", "pod", f"{namespace}-b", "--grace-period=0", "--force")


def test_of_two_at_once_that_do_not_go_together_one_passes(world: World, namespace: str) -> None:
    web = f"{namespace}-web"
    world.kubectl("create", "-f", "-", document=quota(namespace, web, "20", is_parent=True))
    documents = [quota(namespace, f"{namespace}-{one}", "15", parent=web) for one in "ab"]
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda one: world.run("create", "-f", "-", document=one), documents))
    said = [one.stderr for one in done]
    assert sorted(one.returncode for one in done) == [0, 1], said
    assert "are 30 together, more than its min, 20" in "".join(said)


def test_a_namespace_that_is_deleted_takes_its_tree_along(world: World, namespace: str) -> None:
    """Nobody can take that back: who empties it is not refused, whatever the order."""
    world.kubectl("apply", "-f", "-", document=json.loads(as_list(tree(namespace))))
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/elasticquotas"
    assert "denied the request" in world.refused("delete", "--raw", path)
    world.kubectl("delete", "--raw", path, *NAMESPACE_CONTROLLER)
    assert json.loads(world.kubectl("get", "--raw", path))["items"] == []


def test_koordinators_own_are_made_and_stay(world: World, namespace: str) -> None:
    own = quota(namespace, keys.DEFAULT_QUOTA, "0", "100")
    world.kubectl("create", "-f", "-", document=own)
    world.kubectl("apply", "-f", "-", document=own | {"spec": {"max": {"cpu": "200"}}})
    said = world.refused("delete", "-f", "-", document=own)
    assert "is Koordinator's own: it cannot be deleted" in said
    world.kubectl("delete", "elasticquota", keys.DEFAULT_QUOTA, "-n", namespace, *NAMESPACE_CONTROLLER)


@contextmanager
def away(world: World) -> Iterator[None]:
    world.kill()
    try:
        yield
    finally:
        world.start("--quotas")


def test_with_nobody_there_quotas_wait_and_pods_do_not(world: World, namespace: str) -> None:
    team, run = f"{namespace}-team", f"{namespace}-run"
    world.kubectl("create", "-f", "-", document=quota(namespace, team, is_parent=True))
    world.kubectl("create", "-f", "-", document=quota(namespace, run, parent=team))
    until(lambda: refuses_pods(world, namespace, team), "pods are refused", SECONDS, world.log.read_text)
    with away(world):
        said = world.refused("create", "-f", "-", document=quota(namespace, f"{namespace}-other"))
        assert 'failed calling webhook "quotas.j10ce.io"' in said
        world.kubectl("create", "-f", "-", document=pod(namespace, "a", team))
        # What changes no rule is not asked about: status, finalizers, a namespace's end.
        status = json.dumps({"status": {"used": {"cpu": "1"}}})
        how = ("patch", "elasticquota", run, "-n", namespace, "--type=merge")
        world.kubectl(*how, "-p", status)  # the definition has no subresource for it
        world.kubectl(*how, "-p", json.dumps({"metadata": {"finalizers": ["example.com/wait"]}}))
        world.kubectl(*how, "-p", json.dumps({"metadata": {"finalizers": None}}))
        world.kubectl("delete", "elasticquota", run, "-n", namespace, *NAMESPACE_CONTROLLER)
    # With the certificate of before: the API server need not learn another.
    world.kubectl("create", "-f", "-", document=quota(namespace, f"{namespace}-other"))
    said = world.refused("delete", "elasticquota", team, "-n", namespace)
    assert f"it has 1 pod ({namespace}/a)" in said


def test_switched_off_nothing_is_asked(world: World, namespace: str) -> None:
    world.kill()
    world.start("--no-quotas")
    try:
        until(lambda: not world.hooks(), "it is asked no more", SECONDS, world.log.read_text)
        wrong = quota(namespace, f"{namespace}-wrong", "50")
        made = ("create", "-f", "-")
        until(lambda: world.run(*made, document=wrong).returncode == 0, "it is made", SECONDS)
    finally:
        world.kill()
        world.start("--quotas")
    until(lambda: asked(world), "it is asked again", SECONDS, world.log.read_text)


@pytest.mark.parametrize(
    ("verb", "resource", "allowed"),
    [
        ("watch", "elasticquotas.scheduling.sigs.k8s.io", True),
        ("update", "elasticquotas.scheduling.sigs.k8s.io", False),
        ("patch", "elasticquotas.scheduling.sigs.k8s.io/status", False),
        ("patch", "validatingwebhookconfigurations.admissionregistration.k8s.io/j10ce-quotas", True),
        ("patch", "validatingwebhookconfigurations.admissionregistration.k8s.io/another", False),
        ("create", "validatingwebhookconfigurations.admissionregistration.k8s.io", False),
        ("get", "secrets/j10ce-quotas", True),
        ("get", "secrets/another", False),
        ("list", "secrets", False),
    ],
)
def test_it_may_do_little_more(world: World, verb: str, resource: str, allowed: bool) -> None:
    scope = ("-n", "j10ce-system")
    assert world.run("auth", "can-i", verb, resource, *scope, f"--as={ACCOUNT}").stdout.strip() == (
        "yes" if allowed else "no"
    )


def test_nothing_was_refused_to_it(world: World) -> None:
    said = world.log.read_text(errors="replace")
    assert [line for line in said.splitlines() if "forbidden" in line.lower() or " 403 " in line] == []
    assert "loop failed" not in said
