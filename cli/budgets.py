"""`j10ce budgets`: what ReservationBudgets give, and what is used of it, by namespace."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from adapters.output import Output, OutputOption
from cli.kubectl import Kubectl, Object, find
from cli.preflight import ContextOption, KubeconfigOption

_ALL: Final = "(all)"


@dataclass(frozen=True, slots=True)
class Row:
    """One resource of a budget. namespace: "" for all together; amounts as the budget's status has them."""

    budget: str
    namespace: str
    resource: str
    used: str
    hard: str
    left: str


@dataclass(frozen=True, slots=True)
class Exceeding:
    """A policy that asks for more than budgets give. `slots`: how many it is not given; `message`: why."""

    policy: str
    slots: int
    reason: str
    message: str


def rows(budgets: list[Object], namespace: str = "") -> Iterator[Row]:
    """What each budget's status says: all namespaces together first; or this namespace alone."""
    for budget in budgets:
        name, status = budget["metadata"]["name"], budget.get("status", {})
        for one in () if namespace else status.get("total", ()):
            yield Row(name, "", one["resource"], one["used"], one["hard"], one["left"])
        for part in status.get("perNamespace", ()):
            if not namespace or part["name"] == namespace:
                for one in part.get("amounts", ()):
                    yield Row(name, part["name"], one["resource"], one["used"], one["hard"], one["left"])


def exceeding(policies: list[Object]) -> Iterator[Exceeding]:
    """The policies of which slots are unplaced because of a budget."""
    for policy in policies:
        meta = policy["metadata"]
        for one in policy.get("status", {}).get("unplaced", ()):
            if one["reason"].startswith("Budget"):
                name = f"{meta['namespace']}/{meta['name']}"
                yield Exceeding(name, one["count"], one["reason"], one.get("message", ""))


def _policies(kubectl: Kubectl, namespace: str) -> list[Object]:
    scope = ("--namespace", namespace) if namespace else ("--all-namespaces",)
    return kubectl.objects("get", "minimalreservationpolicies.j10ce.io", *scope)


def show(used: list[Row], above: list[Exceeding], console: Console) -> None:
    """As tables."""
    if not used:
        console.print("No budget reports any use.")
    else:
        table = Table("budget", "namespace", "resource", "used", "hard", "left", box=None)
        for row in used:
            table.add_row(row.budget, row.namespace or _ALL, row.resource, row.used, row.hard, row.left)
        console.print(table)
    for one in above:
        slots = f"{one.slots} slot" if one.slots == 1 else f"{one.slots} slots"
        console.print(escape(f"{one.policy}: {slots} not given: {one.message}"), soft_wrap=True)


def budgets(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="This namespace alone. Default: all.")
    ] = "",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what ReservationBudgets give and what is used of it, and the policies that ask for more."""
    kubectl = find(os.environ, kubeconfig, context)
    used = list(rows(kubectl.objects("get", "reservationbudgets.j10ce.io"), namespace))
    above = list(exceeding(_policies(kubectl, namespace)))
    if output is Output.JSON:
        document = {"budgets": [asdict(row) for row in used], "exceeding": [asdict(one) for one in above]}
        typer.echo(json.dumps(document, indent=2))
    else:
        show(used, above, Console())
