"""`j10ce dev cache`: the small files that tell the hook what to write, until the agent writes them."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from adapters.documents import DocumentsError, Problem
from adapters.output import Output, OutputOption
from adapters.pod_files import PodEntry, read_objects
from cli import plan_node, plan_table
from cli.floors import BESIDE, Floor, Runtime, default_runtime, floor_plan, parent_of
from cli.plan import container_json
from cli.planning import plans
from cli.promised import PODS, RUN
from kernel import cache
from qos.classes import CLASSES, promises_of
from qos.cluster.policy import Profile
from qos.keys import CPU, MEMORY
from qos.plan.container_plan import ContainerPlan
from qos.plan.layout import Driver
from qos.plan.planning import plan
from qos.pods.containers import BEST_EFFORT, Container, NodePod
from qos.pods.expectation import expectation
from qos.promises import Promises
from qos.quantity import QuantityError, parse

app = typer.Typer(no_args_is_help=True, help="What the hook writes: one file a pod or named floor.")

FLOORS: Final = "floors"
DEFAULTS: Final = "defaults"
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

RunOption = Annotated[Path, typer.Option(help="The hook's folder.", file_okay=False)]
DriverOption = Annotated[
    Driver | None, typer.Option(help="Who makes the cgroups.", show_default="as on this machine")
]
TtlOption = Annotated[int, typer.Option(help="Seconds until the hook ignores it; 0: never.", min=0)]
FloorOption = Annotated[str, typer.Option("--floor", help="The floor's name.", metavar="NAME")]


class CacheFolderError(Exception):
    """The hook's folder cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file for the hook: its folder (PODS ...), its name, the plan of each container.

    parent: the cgroup that the hook shall find the containers in; "": that of their pod. promised: the CPU
    floor in millicores, of the pod, or of each container that has the named floor.
    """

    folder: str
    key: str
    plans: tuple[ContainerPlan, ...]
    parent: str = ""
    promised: int = 0


@app.callback()
def _app() -> None:
    """The small files that tell the hook what to write."""


@app.command()
def write(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Pods with metadata.uid, as `kubectl get pod NAME -o yaml` prints them; policies, profiles.",
            metavar="[POD.yaml...]",
            show_default=False,
        ),
    ] = None,
    floor: FloorOption = "",
    cpu: Annotated[str, typer.Option(help="The floor's CPU, such as 500m.")] = "",
    memory: Annotated[str, typer.Option(help="The floor's memory, such as 256Mi.")] = "",
    class_name: Annotated[
        str, typer.Option("--class", help=f"Of a named floor: {', '.join(CLASSES)}.")
    ] = "LS",
    policy: Annotated[list[Path] | None, typer.Option(help="A file with policies.")] = None,
    profile: Annotated[list[Path] | None, typer.Option(help="A file with a profile.")] = None,
    runtime: Annotated[
        Runtime | None,
        typer.Option(help="What starts the container.", show_default="podman where it is installed"),
    ] = None,
    parent: Annotated[
        str, typer.Option(help="Its cgroup's parent, from the root.", show_default="the runtime's own")
    ] = "",
    count: Annotated[
        int, typer.Option(help="How many containers have the floor at the same time.", min=1)
    ] = 1,
    beside: Annotated[
        int,
        typer.Option(help="Others of default weight to expect beside it, besides those that run now.", min=0),
    ] = BESIDE,
    driver: DriverOption = None,
    run: RunOption = RUN,
    ttl: TtlOption = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write what the hook is to write, planned for this machine as it is now.

    For Kubernetes: the pods' YAML. For podman and plain OCI containers: --floor NAME, which the container
    picks by its annotation j10ce.io/floor=NAME.
    """
    if bool(files) == bool(floor):
        raise typer.BadParameter("either pods' files, or --floor NAME")
    node = plan_node.this_node(driver, run)
    assert node.here is not None  # it is this machine
    if floor:
        resources = _resources({CPU: cpu, MEMORY: memory})
        promises = _promises(class_name, profile or [], resources)
        wanted = Floor(
            floor, resources, promises, runtime or default_runtime(), parent, driver, count, beside
        )
        planned = floor_plan(wanted, node, node.here, run / FLOORS)
        made = [Written(FLOORS, floor, (planned,), parent_of(planned), resources.get(CPU, 0))]
    else:
        made = _pods(node, files or [], policy or [], profile or [])
    _put(run, ttl, made, output)


@app.command()
def defaults(
    driver: DriverOption = None,
    run: RunOption = RUN,
    ttl: TtlOption = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write what a BestEffort pod gets that has no file of its own: its class's promises.

    For the other QoS classes there is nothing to write: what they request stands only in their own files.
    """
    node = plan_node.this_node(driver)
    pod = NodePod("", "", BEST_EFFORT, (Container(cache.ANY),), BEST_EFFORT)
    facts = node.facts(pod, cache.ANY)
    made = plan(pod, cache.ANY, expectation(pod).promises, None, facts)
    written = [Written(DEFAULTS, BEST_EFFORT, (ContainerPlan(cache.ANY, {}, facts, made),))]
    _put(run, ttl, written, output)


@app.command()
def show(
    run: RunOption = RUN,
    output: OutputOption = Output.TABLE,
) -> None:
    """List what is there, and what is wrong with it."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    found = [_shown(file, now) for folder in (PODS, FLOORS, DEFAULTS) for file in _files(run / folder)]
    if output is Output.JSON:
        typer.echo(json.dumps(found, indent=2))
        return
    for one in found:
        what = one["problem"] or f"{one['settings']} settings, {_for_how_long(one['left'])}"
        typer.echo(f"{one['file']}: {what}")
    if not found:
        typer.echo(f"nothing is in {run}")


@app.command()
def remove(
    key: Annotated[str, typer.Argument(help="A pod's uid.", metavar="[UID]")] = "",
    floor: FloorOption = "",
    run: RunOption = RUN,
) -> None:
    """Remove the file of a pod or of a named floor; what the hook has written stays."""
    if bool(key) == bool(floor):
        raise typer.BadParameter("either a pod's uid, or --floor NAME")
    folder, name = (FLOORS, floor) if floor else (PODS, key)
    if not (run / folder).is_dir() or not cache.remove(str(run / folder), name):
        raise CacheFolderError(f"{run / folder}: has no file {name!r}")
    typer.echo(f"removed {run / folder / name}")


def folder_for(run: Path, name: str) -> Path:
    """A folder of the hook's, made where it is missing. CacheFolderError: others could write there."""
    for folder in (run, run / name):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.lstat()
        except OSError as error:
            raise CacheFolderError(f"{folder}: {error.strerror}: name another with --run") from None
        if not stat.S_ISDIR(status.st_mode):
            raise CacheFolderError(f"{folder}: is not a folder itself: remove it")
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_MAY_WRITE:
            raise CacheFolderError(
                f"{folder}: owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}: nobody else than "
                f"uid {os.geteuid()} may own it and write there"
            )
    return run / name


def _pods(
    node: plan_node.PlanNode, files: list[Path], policies: list[Path], profiles: list[Path]
) -> list[Written]:
    objects = read_objects([*files, *policies, *profiles])
    given = read_objects(profiles).profiles
    problems = [_without_uid(entry) for entry in objects.pods if not cache.is_name(entry.pod.uid)]
    if problems or not objects.pods:
        raise DocumentsError(problems or [Problem(files[0], 0, "", "no Pod is in these files")])
    only: Profile | None = next(iter(given.values())) if len(given) == 1 else None
    return [
        Written(PODS, each.entry.pod.uid, each.containers, promised=each.decided.kept.get(CPU, 0))
        for each in plans(objects, node, only)
    ]


def _without_uid(entry: PodEntry) -> Problem:
    why = "the hook finds a pod by its uid: write what `kubectl get pod NAME -o yaml` prints"
    return entry.origin.problem("metadata.uid", f"{entry.title}: {entry.pod.uid!r} is no uid; {why}")


def _promises(class_name: str, profiles: list[Path], resources: dict[str, int]) -> Promises:
    """The promises of the profile, or else of the class; wrong usage if it has no floor and one is given."""
    if class_name not in CLASSES:
        raise typer.BadParameter(f"{class_name!r} is none of {', '.join(CLASSES)}", param_hint="--class")
    given = list(read_objects(profiles).profiles.values())
    if len(given) > 1:
        raise typer.BadParameter("more than one QoSProfile is in these files", param_hint="--profile")
    chosen = given[0].class_name if given else class_name
    if resources and not CLASSES[chosen].has_floor:
        raise typer.BadParameter(
            f"class {chosen} has no floor: leave out --cpu and --memory", param_hint="--class"
        )
    return promises_of(chosen, given[0].overrides if given else None)


def _resources(texts: dict[str, str]) -> dict[str, int]:
    found = {}
    for name, text in texts.items():
        try:
            amount = parse(name, text) if text else 0
        except QuantityError as error:
            raise typer.BadParameter(str(error), param_hint=f"--{name}") from None
        if amount < 0:
            raise typer.BadParameter(f"{text!r} is less than nothing", param_hint=f"--{name}")
        if amount:
            found[name] = amount
    return found


def _put(run: Path, ttl: int, made: Iterable[Written], output: Output) -> None:
    """Write the files, and say so. They expire on CLOCK_BOOTTIME; ttl 0: never."""
    until = int(time.clock_gettime(time.CLOCK_BOOTTIME)) + ttl if ttl else 0
    _write(run, until, made)
    _tell(run, until, made, output)


def _write(run: Path, until: int, made: Iterable[Written]) -> None:
    for one in made:
        settings = {each.name: [setting.entry for setting in each.plan.settings] for each in one.plans}
        try:
            cache.write(str(folder_for(run, one.folder)), one.key, until, settings, one.parent, one.promised)
        except OSError as error:
            raise CacheFolderError(f"{run / one.folder / one.key}: {error.strerror}") from None


def _tell(run: Path, until: int, made: Iterable[Written], output: Output) -> None:
    if output is Output.JSON:
        documents = [
            {
                "file": str(run / one.folder / one.key),
                "until": until,
                "containers": [container_json(each) for each in one.plans],
            }
            for one in made
        ]
        typer.echo(json.dumps(documents, indent=2))
        return
    console = Console()
    console = console if console.is_terminal else Console(width=plan_table.WIDTH)
    for one in made:
        typer.echo(f"wrote {run / one.folder / one.key}")
        for each in one.plans:
            plan_table.show_container(each, console, read=True)


def _files(folder: Path) -> list[Path]:
    """The files that the hook would look at."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(
        file for file in found if cache.is_name(file.name) and not file.is_symlink() and file.is_file()
    )


def _shown(file: Path, now: float) -> dict[str, Any]:
    document: dict[str, Any] = {"file": str(file), "settings": 0, "left": None, "problem": ""}
    try:
        until, _, containers = cache.parse(file.read_bytes(), file.name)
    except (OSError, cache.CacheBad) as error:
        return document | {"problem": str(error)}
    settings = sum(len(entries) for entries in containers.values())
    return document | {"settings": settings, "left": int(until - now) if until else None}


def _for_how_long(left: int | None) -> str:
    if left is None:
        return "for ever"
    return f"for {left} s" if left > 0 else f"expired {-left} s ago"
