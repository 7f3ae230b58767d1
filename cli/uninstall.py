"""`j10ce uninstall`: removes what install made and what the extender wrote; the cluster is as it was."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from cli import plan
from cli.kubectl import Kubectl, Object, as_list, find, identity
from cli.preflight import ContextOption, KubeconfigOption, Output, OutputOption, running_extenders
from manifests import OVERLAYS
from qos import keys

POD_ANNOTATIONS: Final = (keys.POLICY_ANNOTATION, keys.BOUND_BY_ANNOTATION, keys.WAKE_ANNOTATION)
NODE_ANNOTATIONS: Final = (keys.HELD_ANNOTATION, keys.SCALE_DOWN_DISABLED_ANNOTATION)
_CHUNK: Final = 200
_FOREIGN_KINDS: Final = (
    "deployments,statefulsets,daemonsets,services,persistentvolumeclaims,configmaps,secrets"
)


@dataclass(frozen=True, slots=True)
class Remains:
    """What is there to be removed. Pods by namespace; `foreign`: objects of others in our namespace."""

    objects: tuple[Object, ...]
    policies: tuple[str, ...]
    profiles: tuple[str, ...]
    nodes: tuple[str, ...]
    pods: dict[str, list[str]]
    foreign: tuple[str, ...]

    @property
    def nothing(self) -> bool:
        """True when nothing of ours is in the cluster."""
        return not (self.objects or self.nodes or self.pods)

    def to_json(self) -> dict[str, object]:
        """For -o json."""
        return {
            "objects": [
                {"kind": kind, "namespace": namespace, "name": name}
                for _, kind, namespace, name in (identity(item) for item in self.objects)
            ],
            "policies": list(self.policies),
            "profiles": list(self.profiles),
            "nodes": list(self.nodes),
            "pods": self.pods,
            "foreign": list(self.foreign),
        }


def uninstall(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed; remove nothing.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Go on although an extender that install did not start is running."),
    ] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove everything of j10ce-qos: programs, rights, CRDs with all policies and profiles, annotations.

    Running pods are not touched but for those annotations. Events expire by themselves.
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
    if stop_programs(kubectl, remains):
        remains = survey(kubectl)  # they may have annotated until now
    _refuse_running(kubectl, force=force)
    clean_annotations(kubectl, remains)
    remove(kubectl, remains)
    if output is Output.TABLE:
        typer.echo("Removed.")


def survey(kubectl: Kubectl) -> Remains:
    """Read what there is to remove."""
    wanted = {
        identity(item): item
        for overlay in OVERLAYS
        for item in plan.objects(kubectl, overlay, plan.Choices())
    }
    definitions = {item["metadata"]["name"] for item in kubectl.existing(plan.definitions())}
    leases = kubectl.existing(plan.extender_leases())
    return Remains(
        objects=(*kubectl.existing([*plan.definitions(), *wanted.values()]), *leases),
        policies=_names(kubectl, definitions, "minimalreservationpolicies"),
        profiles=_names(kubectl, definitions, "qosprofiles"),
        nodes=tuple(
            item["metadata"]["name"]
            for item in kubectl.objects("get", "nodes")
            if _carries(item, (keys.HELD_ANNOTATION,))
        ),
        pods=_annotated_pods(kubectl),
        foreign=tuple(_foreign(kubectl)),
    )


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
        if _carries(pod, POD_ANNOTATIONS) and pod["metadata"]["namespace"] != plan.NAMESPACE:
            found[pod["metadata"]["namespace"]].append(pod["metadata"]["name"])
    return dict(found)


def _foreign(kubectl: Kubectl) -> list[str]:
    """Objects in our namespace that are not ours and that would go with it."""
    label, value = next(iter(plan.PART_OF.items()))
    found = kubectl.objects(
        "get", _FOREIGN_KINDS, "--namespace", plan.NAMESPACE, "--selector", f"{label}!={value}"
    )
    ours = {"kube-root-ca.crt"}
    return [
        f"{item['kind']}/{item['metadata']['name']}" for item in found if item["metadata"]["name"] not in ours
    ]


def _show(remains: Remains) -> None:
    if remains.nothing:
        typer.echo("Nothing of j10ce-qos is in this cluster.")
        return
    for item in remains.objects:
        _, kind, namespace, name = identity(item)
        typer.echo(f"remove {kind} {f'{namespace}/' if namespace else ''}{name}")
    pods = sum(len(names) for names in remains.pods.values())
    typer.echo(f"take our annotations off {len(remains.nodes)} nodes and {pods} pods")
    if remains.policies or remains.profiles:
        typer.secho(
            f"WARNING: {len(remains.policies)} policies and {len(remains.profiles)} profiles are deleted "
            f"with their CRDs; what they hold is free for everyone at once. `kubectl get mrp,qosp -A -o "
            f"yaml` saves them.",
            err=True,
        )
    if remains.foreign:
        typer.secho(f"WARNING: goes with namespace {plan.NAMESPACE}: {', '.join(remains.foreign)}", err=True)


def stop_programs(kubectl: Kubectl, remains: Remains) -> bool:
    """End the Deployment and wait for its pods: an extender that runs would annotate again. True if any."""
    deployments = [item for item in remains.objects if item["kind"] == "Deployment"]
    if not deployments:
        return False
    kubectl.run(
        "delete",
        "--ignore-not-found",
        "--cascade=foreground",
        "--timeout=120s",
        "-f",
        "-",
        stdin=as_list(deployments),
    )
    kubectl.run("delete", "leases", "--namespace", plan.NAMESPACE, "--all")
    return True


def _refuse_running(kubectl: Kubectl, *, force: bool) -> None:
    running = running_extenders(kubectl.existing(plan.extender_leases()), datetime.now(UTC))
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
    _annotate(kubectl, "nodes", remains.nodes, NODE_ANNOTATIONS)
    for namespace, names in remains.pods.items():
        _annotate(kubectl, "pods", names, POD_ANNOTATIONS, "--namespace", namespace)


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
        if item["kind"] != "Deployment":
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
