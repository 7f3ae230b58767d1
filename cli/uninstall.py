"""`j10ce uninstall`: removes from the cluster what install made and what the extender wrote."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from adapters.output import Output, OutputOption
from cli import admission, installation, placeholders, restoring
from cli.kubectl import Kubectl, Object, as_list, find, identity
from cli.preflight import ContextOption, KubeconfigOption, running_extenders
from manifests import OVERLAYS
from qos import keys

POD_ANNOTATIONS: Final = (keys.POLICY_ANNOTATION, keys.BOUND_BY_ANNOTATION, keys.WAKE_ANNOTATION)
BANDWIDTH: Final = frozenset({keys.EGRESS_BANDWIDTH, keys.INGRESS_BANDWIDTH})
_CHUNK: Final = 200
_WAITING: Final = f"spec.schedulerName={installation.SCHEDULER},spec.nodeName=,status.phase=Pending"
_FOREIGN_KINDS: Final = (
    "deployments,statefulsets,daemonsets,pods,jobs,cronjobs,services,ingresses,persistentvolumeclaims,"
    "configmaps,secrets,serviceaccounts"
)
_IN_EVERY_NAMESPACE: Final = {
    "ConfigMap/kube-root-ca.crt",
    "ConfigMap/openshift-service-ca.crt",
    "ConfigMap/istio-ca-root-cert",
    "ServiceAccount/default",
    "ServiceAccount/builder",
    "ServiceAccount/deployer",
}
_LEASES_OF: Final = {
    "j10ce-scheduler": ("j10ce-extender", "j10ce-scheduler"),
    "j10ce-manager": ("j10ce-manager",),
    "j10ce-extender": ("j10ce-extender",),
}
"""The Leases of each Deployment's programs. An extender beside the cluster's own kube-scheduler has none here
that ends with a Deployment: it may still run.
"""
_LEASES: Final = tuple(dict.fromkeys(name for names in _LEASES_OF.values() for name in names))
"""In our namespace; the programs make them, so they carry no label."""


@dataclass(frozen=True, slots=True)
class Remains:
    """What is there to be removed. Pods by namespace; `kept`: why our namespace is not removed, or "".

    `nodes`: by the mark that the extender made there (keys.HELD_FROM).
    `offering`: nodes whose status has the bandwidth that an agent published. `waiting`: pods without a node
    that name our scheduler. `release`: the Helm release that
    made the objects, as namespace/name, or "".
    """

    objects: tuple[Object, ...]
    policies: tuple[str, ...]
    profiles: tuple[str, ...]
    nodes: dict[str, list[str]]
    pods: dict[str, list[str]]
    kept: str = ""
    offering: tuple[str, ...] = ()
    waiting: int = 0
    release: str = ""
    budgets: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    placeholders: placeholders.Left = field(default_factory=placeholders.Left)

    @property
    def nothing(self) -> bool:
        """True when nothing of ours is in the cluster."""
        written = self.nodes or self.pods or self.offering or self.buffers or not self.placeholders.nothing
        return not (self.objects or written)

    def to_json(self) -> dict[str, object]:
        """For -o json."""
        return {
            "objects": [
                {"kind": kind, "namespace": namespace, "name": name}
                for _, kind, namespace, name in (identity(item) for item in self.objects)
            ],
            "policies": list(self.policies),
            "profiles": list(self.profiles),
            "budgets": list(self.budgets),
            "nodes": sorted(name for names in self.nodes.values() for name in names),
            "pods": self.pods,
            "capacityBuffers": list(self.buffers),
            "nodesWithBandwidth": list(self.offering),
            "waitingPods": self.waiting,
            "keptNamespace": self.kept,
            "helmRelease": self.release,
            **self.placeholders.to_json(),
        }


def uninstall(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed; remove nothing.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Go on although an extender that install did not start is running, or a node could not be "
            "left as it was found.",
        ),
    ] = False,
    keep_settings: Annotated[
        bool,
        typer.Option(
            "--keep-settings", help="Leave what agents wrote into the nodes' kernels until pods end."
        ),
    ] = False,
    restore_seconds: Annotated[
        int, typer.Option(help="For how long to wait until all nodes are as they were found.", min=1)
    ] = 300,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove everything of j10ce-qos: programs, rights, CRDs with policies, profiles, budgets, annotations.

    First the agents put back, on every node, what others want in its kernel files, and remove their files
    there. Running pods are not touched but for those annotations. Events expire by themselves. Namespace
    j10ce-system stays when somebody else made it, or when it holds objects of others.
    """
    kubectl = find(os.environ, kubeconfig, context)
    remains = survey(kubectl)
    if output is Output.JSON:
        typer.echo(json.dumps(remains.to_json() | {"dryRun": dry_run}, indent=2))
    else:
        _show(remains)
    if dry_run or remains.nothing:
        return
    if not yes:
        typer.confirm("Remove all of this?", abort=True, err=True)
    if not keep_settings:
        _restore_nodes(kubectl, restore_seconds, force=force)
    if stop_programs(kubectl, remains):
        remains = survey(kubectl)  # they may have annotated until now
    _refuse_running(kubectl, force=force)
    placeholders.take_away(kubectl, installation.PLACEHOLDERS)
    clean_annotations(kubectl, remains)
    unask(kubectl)
    take_bandwidth(kubectl)
    remove(kubectl, remains)
    if output is Output.TABLE:
        typer.echo("Removed.")
        if remains.release:
            namespace, _, name = remains.release.partition("/")
            typer.echo(f"Helm still has its record: helm uninstall {name} --namespace {namespace}")


def survey(kubectl: Kubectl) -> Remains:
    """Read what there is to remove."""
    raising = admission.raising(kubectl)
    every = installation.Choices(raising=raising, reservations=True, autoscaling=True, quotas=True)
    made = [installation.objects(kubectl, overlay, every) for overlay in OVERLAYS]
    last = replace(every, agent=True, placeholders=True)
    made.append(installation.objects(kubectl, OVERLAYS[0], last))
    wanted = {identity(item): item for items in made for item in items}
    definitions = {item["metadata"]["name"] for item in kubectl.existing(installation.definitions())}
    found = kubectl.existing([*installation.definitions(), *wanted.values()])
    namespace = next((item for item in found if installation.is_our_namespace(item)), None)
    theirs = [item for item in found if item["kind"] == "Namespace" and not installation.is_ours(item)]
    found = [item for item in found if item is namespace or item not in theirs]
    kept = why_kept(namespace, _foreign(kubectl)) if namespace else ""
    removed = [item for item in found if not (kept and item is namespace)]
    removed += [*kubectl.existing(installation.extender_leases()), *_unnamed(kubectl)]
    nodes = kubectl.objects("get", "nodes")
    return Remains(
        objects=tuple({identity(item): item for item in removed}.values()),
        policies=_names(kubectl, definitions, "minimalreservationpolicies"),
        profiles=_names(kubectl, definitions, "qosprofiles"),
        budgets=_names(kubectl, definitions, "reservationbudgets"),
        nodes=_marked(nodes),
        buffers=tuple("/".join(identity(item)[2:]) for item in _asked(kubectl, installation.BUFFERS)),
        pods=_annotated_pods(kubectl),
        placeholders=placeholders.left(kubectl, installation.PLACEHOLDERS),
        kept=kept,
        offering=tuple(item["metadata"]["name"] for item in nodes if _offers(item)),
        waiting=len(kubectl.objects("get", "pods", "--all-namespaces", "--field-selector", _WAITING)),
        release=next((release for item in found if (release := installation.helm_release(item))), ""),
    )


def _marked(nodes: Iterable[Object]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if _carries(node, (keys.HELD_ANNOTATION,)):
            found[node["metadata"]["annotations"][keys.HELD_ANNOTATION]].append(node["metadata"]["name"])
    return dict(found)


def _asked(kubectl: Kubectl, resource: str) -> list[Object]:
    """What the extender wrote for autoscalers; nothing where the kind is not there."""
    if resource == installation.BUFFERS and not kubectl.existing_named(
        "customresourcedefinitions", [installation.BUFFERS]
    ):
        return []
    return kubectl.objects("get", resource, "--all-namespaces", "--selector", keys.BUFFER_LABEL)


def unask(kubectl: Kubectl) -> None:
    """Remove what the extender wrote for autoscalers: nobody keeps nodes for policies that are gone."""
    for resource in (installation.BUFFERS, "podtemplates"):  # a buffer names its template
        if found := _asked(kubectl, resource):
            how = ("--ignore-not-found", "--timeout=120s", "-f", "-")
            kubectl.run("delete", *how, stdin=as_list(found), seconds=150)


def _offers(node: Object) -> bool:
    amounts = node.get("status", {})
    return any(BANDWIDTH & amounts.get(which, {}).keys() for which in ("capacity", "allocatable"))


def why_kept(namespace: Object, foreign: list[str]) -> str:
    """Why our namespace has to stay, or ""; foreign: "Kind/name" of what others have in it."""
    if not installation.is_ours(namespace):
        return "it was there before j10ce-qos"
    if foreign:
        command = f"kubectl delete namespace {installation.NAMESPACE}"
        return f"it holds {', '.join(foreign)}; `{command}` removes it with them"
    return ""


def _unnamed(kubectl: Kubectl) -> list[Object]:
    """Objects of ours in our namespace whose names the manifests do not have."""
    label, value = next(iter(installation.PART_OF.items()))
    scope = ("--namespace", installation.NAMESPACE)
    # A ConfigMap's name has a hash: of another mode or version it is another one.
    maps = kubectl.objects("get", "configmaps", *scope, "--selector", f"{label}={value}")
    leases = kubectl.objects("get", "leases", *scope)
    return [*maps, *(item for item in leases if item["metadata"]["name"] in _LEASES)]


def _names(kubectl: Kubectl, definitions: set[str], plural: str) -> tuple[str, ...]:
    resource = f"{plural}.{keys.GROUP}"
    if resource not in definitions:
        return ()
    found = kubectl.objects("get", resource, "--all-namespaces")
    return tuple("/".join(part for part in identity(item)[2:] if part) for item in found)


def _carries(item: Object, annotations: Iterable[str]) -> bool:
    there = item["metadata"].get("annotations", {})
    return any(key in there for key in annotations)


def _annotated_pods(kubectl: Kubectl) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for pod in kubectl.objects("get", "pods", "--all-namespaces"):
        if _carries(pod, POD_ANNOTATIONS) and pod["metadata"]["namespace"] != installation.NAMESPACE:
            found[pod["metadata"]["namespace"]].append(pod["metadata"]["name"])
    return dict(found)


def _foreign(kubectl: Kubectl) -> list[str]:
    """Objects in our namespace that are not ours; what another object owns goes by its owner."""
    label, value = next(iter(installation.PART_OF.items()))
    found = kubectl.objects(
        "get", _FOREIGN_KINDS, "--namespace", installation.NAMESPACE, "--selector", f"{label}!={value}"
    )
    roots = [item for item in found if not item["metadata"].get("ownerReferences")]
    names = [f"{item['kind']}/{item['metadata']['name']}" for item in roots]
    return [name for name in names if name not in _IN_EVERY_NAMESPACE]


def _show(remains: Remains) -> None:
    if remains.kept:
        typer.echo(f"keep Namespace {installation.NAMESPACE}: {remains.kept}")
    if remains.nothing:
        typer.echo("Nothing of j10ce-qos is in this cluster.")
        return
    for item in remains.objects:
        _, kind, namespace, name = identity(item)
        typer.echo(f"remove {kind} {f'{namespace}/' if namespace else ''}{name}")
    pods, nodes = (sum(map(len, by.values())) for by in (remains.pods, remains.nodes))
    for line in remains.placeholders.said():
        typer.echo(line)
    typer.echo(f"take our annotations off {nodes} nodes and {pods} pods")
    if remains.buffers:
        typer.echo(f"ask autoscalers for no more nodes: remove {len(remains.buffers)} CapacityBuffers")
    if remains.offering:
        typer.echo(f"take the bandwidth of their links out of the status of {len(remains.offering)} nodes")
    if remains.waiting:
        typer.secho(
            f"WARNING: {remains.waiting} pods wait for {installation.SCHEDULER}, and nobody else schedules "
            "them: delete them afterwards, and their controllers make them anew for the cluster's own",
            err=True,
        )
    if remains.policies or remains.profiles or remains.budgets:
        typer.secho(
            f"WARNING: {len(remains.policies)} policies, {len(remains.profiles)} profiles and "
            f"{len(remains.budgets)} budgets are deleted with their CRDs; what is held is free for all at "
            f"once. `kubectl get mrp,qosp,rbudget -A -o yaml` saves them.",
            err=True,
        )


def stop_programs(kubectl: Kubectl, remains: Remains) -> bool:
    """End what runs and wait for its pods: an extender that runs would annotate again. True if any."""
    programs = [item for item in remains.objects if item["kind"] in installation.PROGRAMS]
    if not programs:
        return False
    # First what names our scheduler in new pods, which nobody would schedule, what raises owners, whom nobody
    # takes back, so that they evict their equals, and what asks a dead webhook.
    names = (installation.NAMING, placeholders.RAISING)
    first = [
        item
        for item in remains.objects
        if item["metadata"]["name"] in names or item["kind"] == "ValidatingWebhookConfiguration"
    ]
    if first:
        kubectl.run("delete", "--ignore-not-found", "-f", "-", stdin=as_list(first))
    kubectl.run(
        "delete",
        "--ignore-not-found",
        "--cascade=foreground",
        "--timeout=120s",
        "-f",
        "-",
        stdin=as_list(programs),
        seconds=150,
    )
    ended = [name for item in programs for name in _LEASES_OF.get(item["metadata"]["name"], ())]
    if ended:
        kubectl.run("delete", "leases", "--ignore-not-found", "--namespace", installation.NAMESPACE, *ended)
    return True


def _restore_nodes(kubectl: Kubectl, seconds: int, *, force: bool) -> None:
    left = restoring.restore_nodes(kubectl, seconds)
    for one in left:
        typer.echo(
            f"{'warning' if force else 'error'}: node {one.node} is not as it was: {one.why}", err=True
        )
    if left and not force:
        typer.echo(
            "error: nothing was removed. Try again when these nodes are ready, or leave them so: --force.",
            err=True,
        )
        raise typer.Exit(1)


def _refuse_running(kubectl: Kubectl, *, force: bool) -> None:
    running = running_extenders(kubectl.existing(installation.extender_leases()), datetime.now(UTC))
    if not running or force:
        return
    typer.echo(
        f"error: an extender is still running: {', '.join(running)}. Undo the change to kube-scheduler, "
        "remove the static pod, and try again; or --force. Nothing else was removed.",
        err=True,
    )
    raise typer.Exit(1)


def clean_annotations(kubectl: Kubectl, remains: Remains) -> None:
    """Take off what the extender wrote on nodes and pods; nodes only where our mark says that it was us."""
    for mark, names in remains.nodes.items():
        theirs = [keys.HELD_FROM[mark]] if mark in keys.HELD_FROM else []
        _annotate(kubectl, "nodes", names, [keys.HELD_ANNOTATION, *theirs])
    for namespace, names in remains.pods.items():
        _annotate(kubectl, "pods", names, POD_ANNOTATIONS, "--namespace", namespace)


def take_bandwidth(kubectl: Kubectl) -> None:
    """Take what agents published out of the status of nodes that still have it: theirs could not, or was not
    asked to.
    """
    left = [item for item in kubectl.objects("get", "nodes") if _offers(item)]
    nothing = dict.fromkeys(sorted(BANDWIDTH))
    change = json.dumps({"status": {"capacity": nothing, "allocatable": nothing}})
    how = ("--subresource=status", "--type=merge", f"--patch={change}")
    for start in range(0, len(left), _CHUNK):
        named = [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": item["metadata"]["name"]}}
            for item in left[start : start + _CHUNK]
        ]
        kubectl.run("patch", *how, "-f", "-", stdin=as_list(named), seconds=150)


def _annotate(
    kubectl: Kubectl, resource: str, names: Iterable[str], annotations: Iterable[str], *scope: str
) -> None:
    names = list(names)
    off = [f"{key}-" for key in annotations]
    for start in range(0, len(names), _CHUNK):
        # A pod may end meanwhile: those that are gone need no cleaning.
        there = kubectl.existing_named(resource, names[start : start + _CHUNK], *scope)
        if there:
            kubectl.run("annotate", resource, *scope, *there, *off)


def remove(kubectl: Kubectl, remains: Remains) -> None:
    """Delete the objects: the CRDs with all policies first, the namespace with what is left in it last."""
    order = {"CustomResourceDefinition": 0, "Namespace": 2}
    stages: dict[int, list[Object]] = defaultdict(list)
    for item in remains.objects:
        if item["kind"] not in installation.PROGRAMS:
            stages[order.get(item["kind"], 1)].append(item)
    for stage in sorted(stages):
        kubectl.run(
            "delete",
            "--ignore-not-found",
            "--timeout=120s",
            "-f",
            "-",
            stdin=as_list(stages[stage]),
            seconds=150,
        )
