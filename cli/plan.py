"""`j10ce plan`: which kernel settings follow from a pod, its class and its floor. Nothing is written."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from adapters.documents import DocumentsError, Problem
from adapters.output import Output, OutputOption
from adapters.pod_files import Objects, read_objects
from cli import plan_node, plan_table
from cli.plan_node import PlanNode
from cli.planning import PodPlan, idle_policies, plans
from qos.cluster.policy import Profile
from qos.plan.container_plan import ContainerPlan
from qos.plan.layout import Driver


class Cgroup(StrEnum):
    """The version of cgroup that an assumed node has."""

    V1 = "v1"
    V2 = "v2"


def plan(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Pods, or workloads with a pod template; policies and profiles beside them.",
            metavar="POD.yaml...",
            show_default=False,
        ),
    ],
    node: Annotated[
        str,
        typer.Option(
            help="A Node's YAML (kubectl get node NAME -o yaml), or 'this': the machine it runs on, as its "
            "cgroups are. Default: a node of 8 CPUs and 32Gi, full of others' requests.",
            metavar="NODE.yaml|this",
            show_default=False,
        ),
    ] = "",
    cgroup: Annotated[
        Cgroup | None, typer.Option(help="The node's cgroup version.", show_default="v2")
    ] = None,
    driver: Annotated[
        Driver | None,
        typer.Option(help="Who makes the cgroups there.", show_default="systemd; --node this: as it is"),
    ] = None,
    policy: Annotated[
        list[Path] | None, typer.Option(help="A file with policies: the floors.", metavar="POLICY.yaml")
    ] = None,
    profile: Annotated[
        list[Path] | None,
        typer.Option(
            help="A file with a profile: for pods whose policy names it, or names none.",
            metavar="PROFILE.yaml",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show which kernel settings follow from pods, their classes and floors, with the reason of each.

    Without --node this everything about the node is assumed: all other capacity is requested by other pods
    of the same QoS class, and what runs beside kubepods takes what allocatable leaves it. What a floor lacks
    where that takes more, or where the others are Guaranteed, is shown as a condition. Exit code 0 also when
    a floor cannot be kept: the output says by how much.
    """
    given = read_objects([*(profile or ())])
    objects = read_objects([*files, *(policy or ()), *(profile or ())])
    if not objects.pods:
        message = "no Pod and no workload with a pod template is in these files"
        raise DocumentsError([Problem(files[0], 0, "", message)])
    chosen = _node(node, cgroup, driver)
    made = plans(objects, chosen, _only(given, profile or []))
    notes = [*idle_policies(objects), *_unused(given, made)]
    if output is Output.JSON:
        typer.echo(json.dumps(_json(chosen, made, notes), indent=2))
        return
    console = Console()
    console = console if console.is_terminal else Console(width=plan_table.WIDTH)
    console.print(f"Node {escape(chosen.words)}", highlight=False)
    plan_table.show(made, console, read=chosen.here is not None)
    for note in notes:
        console.print(f"\nnote: {escape(note)}", highlight=False)


def _node(node: str, cgroup: Cgroup | None, driver: Driver | None) -> PlanNode:
    if node == plan_node.THIS:
        if cgroup is not None:
            raise typer.BadParameter("this machine has the version it has", param_hint="--cgroup")
        return plan_node.this_node(driver)
    version = (cgroup or Cgroup.V2).value
    if node:
        return plan_node.node_of(Path(node), version, driver)
    return plan_node.default_node(version, driver)


def _only(given: Objects, files: list[Path]) -> Profile | None:
    """The profile of --profile for pods whose policy names none; of several, only those named are used."""
    if files and not given.profiles:
        raise DocumentsError([Problem(files[0], 0, "", "there is no QoSProfile in this file")])
    return next(iter(given.profiles.values())) if len(given.profiles) == 1 else None


def _unused(given: Objects, made: list[PodPlan]) -> list[str]:
    """What to say of profiles of --profile that no pod has."""
    used = {each.decided.profile.name for each in made if each.decided.profile}
    return [
        f"QoSProfile {name} is used by no pod in these files" for name in given.profiles if name not in used
    ]


def _json(node: PlanNode, made: list[PodPlan], notes: list[str]) -> dict[str, Any]:
    machine = node.machine
    return {
        "node": {
            "description": node.words,
            "assumed": node.here is None,
            "cpus": machine.cpus,
            "memory": machine.memory,
            "cgroup": machine.cgroup,
            "driver": machine.driver.value,
        },
        "plans": [_pod_json(each) for each in made],
        "notes": notes,
    }


def _pod_json(each: PodPlan) -> dict[str, Any]:
    pod, decided = each.entry.pod, each.decided
    return {
        "kind": each.entry.kind,
        "namespace": pod.namespace,
        "name": pod.name,
        "file": str(each.entry.origin.file),
        "qosClass": pod.qos,
        "class": decided.expected.class_name,
        "classSource": decided.expected.class_source,
        "promises": {name: _plain(value) for name, value in asdict(decided.expected.promises).items()},
        "promiseSources": dict(decided.expected.sources),
        "policy": decided.policy.name if decided.policy else None,
        "profile": decided.profile.name if decided.profile else None,
        "floor": dict(decided.floor) if decided.floor is not None else None,
        "containers": [container_json(container) for container in each.containers],
        "notes": list(each.notes),
    }


def container_json(one: ContainerPlan) -> dict[str, Any]:
    """One container's plan: settings in write order, cpu in millicores, everything else in bytes."""
    return {
        "name": one.name,
        "floor": dict(one.floor),
        "cgroup": one.facts.levels[-1].path,
        "assumed": [level.path for level in one.facts.levels if level.assumed],
        "settings": [setting._asdict() for setting in one.plan.settings],
        "shortfalls": [short._asdict() | {"missing": short.missing} for short in one.plan.shortfalls],
        "unsupported": [promise._asdict() for promise in one.plan.unsupported],
        "notes": list(plan_table.notes(one.facts)),
    }


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)
