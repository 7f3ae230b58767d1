"""Named floors, for podman and plain OCI containers: what the hook writes for annotation j10ce.io/floor."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from adapters.machine import ThisMachine
from cli.plan_node import PlanNode
from hook.decision import is_label
from kernel import cache
from qos.cluster.objects import Resources
from qos.keys import CPU, MEMORY
from qos.plan import assumed, layout
from qos.plan.container_plan import ContainerPlan
from qos.plan.layout import Driver
from qos.plan.node import NodeFacts, Rival
from qos.plan.overcommit import overcommitted, with_shortfall
from qos.plan.planning import plan
from qos.pods.containers import GUARANTEED, Container, NodePod
from qos.promises import Promises

BESIDE: Final = 4
"""How many other containers of default weight a floor is kept against, beside those that run already."""


class Runtime(StrEnum):
    """What starts the container, and so where its cgroup is."""

    PODMAN = "podman"
    PLAIN = "plain"


class FloorError(Exception):
    """A floor that cannot be written; the message says why."""


@dataclass(frozen=True, slots=True)
class Floor:
    """A named floor. `resources`: cpu in millicores, memory in bytes. `count`: how many have it at once.

    `parent`: the cgroup under which the runtime puts them, "" its default; `driver`: None: as on the machine.
    """

    name: str
    resources: Resources
    promises: Promises
    runtime: Runtime
    parent: str = ""
    driver: Driver | None = None
    count: int = 1
    beside: int = BESIDE

    def refuse_unfit(self) -> None:
        """FloorError for what cannot be a floor."""
        if not is_label(self.name):
            raise FloorError(
                f"--floor {self.name!r}: a name is a DNS label: lower-case letters, digits and -, 63 at most"
            )
        if ".." in self.parent.split("/"):
            raise FloorError(f"--parent {self.parent!r}: a path from the hierarchy's root, without ..")


def default_runtime() -> Runtime:
    """podman where it is installed."""
    return Runtime.PODMAN if shutil.which("podman") else Runtime.PLAIN


def floor_plan(floor: Floor, node: PlanNode, here: ThisMachine, folder: Path) -> ContainerPlan:
    """What to write for a container with this floor; folder: where the other named floors are. Refused."""
    floor.refuse_unfit()
    one = Container(cache.ANY, floor.resources.get(CPU, 0), 0, floor.resources.get(MEMORY, 0))
    pod = NodePod("", "", floor.name, (one,), GUARANTEED)
    facts = _facts(floor, node, here, folder)
    made = plan(pod, cache.ANY, floor.promises, floor.resources, facts)
    short = overcommitted(facts.levels, facts.cpus, floor.resources.get(CPU, 0))
    return ContainerPlan(cache.ANY, floor.resources, facts, with_shortfall(made, short))


def parent_of(made: ContainerPlan) -> str:
    """The cgroup that a container with this plan is in; "" below the root, where nothing is above it."""
    return made.facts.levels[-1].path.rpartition("/")[0]


def _facts(floor: Floor, node: PlanNode, here: ThisMachine, folder: Path) -> NodeFacts:
    paths = _paths(floor, floor.driver or here.driver(layout.PODMAN_CGROUPFS))
    facts = here.observed(assumed.standalone_facts(node.machine, paths, floor.beside, host=0))
    *above, own = facts.levels
    same = Rival(
        own.weight,
        cpu_floor=floor.resources.get(CPU, 0),
        memory_min=floor.resources.get(MEMORY, 0),
        memory_low=floor.resources.get(MEMORY, 0),
    )
    others = list(_other_floors(folder, floor.name, own.path.rpartition("/")[0], node.machine.default_weight))
    rivals = (*_with_floors(own.rivals, others), *(same,) * (floor.count - 1))
    return replace(facts, levels=(*above, replace(own, rivals=rivals)))


def _paths(floor: Floor, driver: Driver) -> tuple[str, ...]:
    if floor.runtime is Runtime.PODMAN:
        return layout.podman_paths(driver=driver, parent=floor.parent)
    return layout.plain_paths(parent=floor.parent)


def _other_floors(folder: Path, name: str, parent: str, usual: int) -> Iterator[Rival]:
    """The other named floors of this machine with this parent: they may run beside this one.

    usual: the weight of a container to which a floor gives none.

    Bad files are passed over, as the hook does.
    """
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.name == name or not is_label(file.name):
            continue
        try:
            data = file.read_bytes()
            _, its_parent, containers = cache.parse(data, file.name)
            promised = cache.promised(data, file.name)
        except (OSError, cache.CacheBad):
            continue
        if its_parent and its_parent != parent:
            continue
        for entries in containers.values():
            own = {setting: value for level, _, setting, value in entries if level == 0}
            weight = int(own.get("cpu.weight") or own.get("cpu.shares") or usual)
            yield Rival(
                weight,
                cpu_floor=promised,
                memory_min=int(own.get("memory.min", 0)),
                memory_low=int(own.get("memory.low", 0)),
            )


def _with_floors(seen: Iterable[Rival], others: Iterable[Rival]) -> Iterator[Rival]:
    """Those that run, with their floors, and those that do not run yet.

    A sibling of the same weight and protection is taken for the one that has the floor.
    """
    coming = list(others)
    for rival in seen:
        known = ((rival.memory_min, rival.weight) == (one.memory_min, one.weight) for one in coming)
        place = next((place for place, same in enumerate(known) if same), None)
        yield rival if place is None else replace(rival, cpu_floor=coming.pop(place).cpu_floor)
    yield from coming
