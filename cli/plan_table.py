"""Plans for people: a table for each container, then what cannot be kept, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from cli.planning import PodPlan
from kernel.cache import ANY
from qos.cluster.objects import Resources
from qos.keys import CPU, MEMORY
from qos.plan.container_plan import ContainerPlan
from qos.plan.node import NodeFacts
from qos.plan.settings import PROCESS, RAISE, Setting, Shortfall
from qos.quantity import render

WIDTH = 100
KERNEL = frozenset({CPU, MEMORY})
"""What kernel files keep of a floor; the rest is held by scheduling."""
_UID = re.compile(r"([0-9a-f]{8})[-_][0-9a-f]{4}[-_][0-9a-f_-]+")


def show(plans: Iterable[PodPlan], console: Console, *, read: bool) -> None:
    """Every plan, one under the other. read: made for a machine whose cgroups were read."""
    for each in plans:
        _show_pod(each, console, read=read)


def _show_pod(each: PodPlan, console: Console, *, read: bool) -> None:
    console.print(f"\n[bold]{escape(each.entry.title)}[/bold]", highlight=False)
    for line in _headings(each):
        console.print(escape(line), highlight=False)
    for container in each.containers:
        show_container(container, console, read=read)
    for note in each.notes:
        console.print(f"- note: {escape(note)}", highlight=False)


def _headings(each: PodPlan) -> Iterator[str]:
    decided, expected = each.decided, each.decided.expected
    yield f"class {expected.class_name}, from {expected.class_source}; QoS class {each.entry.pod.qos}"
    if decided.floor is not None and decided.policy is not None:
        yield f"floor {amounts(decided.floor)}, from policy {decided.policy.name}"
    else:
        yield "no floor"


def show_container(container: ContainerPlan, console: Console, *, read: bool) -> None:
    """One container's settings, and what is not kept."""
    part = f", {amounts(container.floor)} of the floor" if container.floor else ""
    who = "any container" if container.name == ANY else f"container {container.name}"
    console.print(f"\n{escape(who)}{part}", highlight=False)
    console.print(f"[dim]{escape(container.facts.levels[-1].path)}[/dim]", highlight=False)
    if container.plan.settings:
        console.print(table(container))
    else:
        console.print("nothing to write: what kubelet and the runtime do is what the class expects")
    expected = [level.path for level in container.facts.levels[:-1] if level.assumed]
    if read and expected:
        console.print(
            f"- assumed, because it is not there yet: {escape(', '.join(expected))}", highlight=False
        )
    for line in lacking(container):
        console.print(f"- {escape(line)}", highlight=False)
    for line in notes(container.facts):
        console.print(f"- note: {escape(line)}", highlight=False)


def table(container: ContainerPlan) -> Table:
    """The settings in write order."""
    made = Table(
        Column("level"),
        Column("cgroup", overflow="fold"),
        Column("file", no_wrap=True),
        Column("value", overflow="fold"),
        Column("reason", ratio=1, overflow="fold"),
        box=None,
        padding=(0, 2, 0, 0),
        header_style="bold",
    )
    for setting in container.plan.settings:
        made.add_row(*_row(setting, container.name))
    return made


def _row(setting: Setting, container: str) -> tuple[str, ...]:
    value = f">= {setting.value}" if setting.mode == RAISE else setting.value
    level = "-" if setting.level == PROCESS else str(setting.level)
    return level, escape(_where(setting, container)), setting.file, escape(value), escape(setting.reason)


def _where(setting: Setting, container: str) -> str:
    """The cgroup in a word: container's name, pod..., burstable, kubepods."""
    if setting.level == PROCESS:
        return "its process"
    if setting.level == 0:
        return "container" if container == ANY else container
    name = setting.group.rpartition("/")[2]
    if name.endswith(".slice"):
        name = name.removesuffix(".slice").rpartition("-")[2]
    return _UID.sub(r"\1...", name)


def lacking(container: ContainerPlan) -> Iterator[str]:
    """What is kept in full, and what cannot be kept, a line each."""
    short = {one.resource for one in container.plan.shortfalls if not one.condition}
    if kept := {name: amount for name, amount in container.floor.items() if name in KERNEL - short}:
        yield f"kept here: {amounts(kept)} of the floor"
    yield from (shortfall(one) for one in container.plan.shortfalls)
    for promise in container.plan.unsupported:
        yield f"cannot be kept: {promise.promise}: {promise.why}"


def notes(facts: NodeFacts) -> Iterator[str]:
    """What the plan could count only in part."""
    for level in facts.levels:
        if level.loose:
            counted = min(level.loose, max(facts.cpus // 1000, 1))
            yield (
                f"{level.loose} threads are in {level.path.rpartition('/')[0] or '/'} itself, in no group of "
                "their own: each that is busy takes as much CPU as a group of default weight; "
                f"{counted}, one a CPU, are counted against the floor"
            )


def shortfall(one: Shortfall) -> str:
    """How much of a floor is kept, and where not; under which condition, if it is not so already."""
    kept, promised, missing = (render(one.resource, each) for each in (one.kept, one.promised, one.missing))
    start = f"if {one.condition}" if one.condition else "shortfall"
    where = f" at {one.group or f'level {one.level}'}"
    return f"{start}: {one.resource}: {kept} of {promised} is kept, {missing} is missing{where}: {one.why}"


def amounts(resources: Resources) -> str:
    """cpu 500m, memory 1Gi; memory that is no whole number of MiB is rounded."""
    return ", ".join(f"{name} {_amount(name, amount)}" for name, amount in resources.items())


def _amount(name: str, amount: int) -> str:
    if name == MEMORY and amount % 2**20:
        return f"{amount / 2**20:.1f}Mi"
    return render(name, amount)
