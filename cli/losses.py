"""`j10ce losses`: which loss of nodes leaves as many slots filled or held as are desired, by count."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from adapters.output import Output, OutputOption
from cli.kubectl import Kubectl, Object, find
from cli.preflight import ContextOption, KubeconfigOption
from qos.keys import POLICY_ANNOTATION

_MOST_SHOWN: Final = 3
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Loss:
    """What the loss of a node leaves. `left`: slots filled or held on the others; `short`: below desired."""

    node: str
    slots: int
    left: int
    short: int


@dataclass(frozen=True, slots=True)
class Losses:
    """A policy. `asked`: surviveNodeFailures; `survives`: any so many nodes may be lost, by count.

    `losses`: of each node with slots, those that leave least first. `elsewhere`: slots of which neither
    status nor pods say where they are; on one node they may be at worst, and so they count in `survives`.
    """

    policy: str
    asked: int
    survives: int
    desired: int
    filled: int
    held: int
    losses: tuple[Loss, ...]
    elsewhere: int = 0

    @property
    def harmful(self) -> tuple[Loss, ...]:
        """The nodes whose loss leaves fewer slots than desired."""
        return tuple(one for one in self.losses if one.short)


def filled_on(pods: Iterable[Object]) -> dict[str, Counter[str]]:
    """Where pods fill slots: by policy, by node."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        policy = pod["metadata"].get("annotations", {}).get(POLICY_ANNOTATION, "")
        node = pod["spec"].get("nodeName", "")
        if policy and node and pod.get("status", {}).get("phase") not in _ENDED:
            found[policy][node] += 1
    return found


def losses_of(policy: Object, filled: Mapping[str, int]) -> Losses:
    """What a policy's status and its pods come to."""
    meta, spec, status = policy["metadata"], policy["spec"], policy.get("status", {})
    account = status.get("slots", {})
    desired, held = account.get("desired", 0), account.get("held", 0)
    there = Counter(dict(filled))
    for one in status.get("holds") or ():
        there[one["nodeName"]] += one["slots"]
    total = account.get("filled", 0) + held
    elsewhere = max(0, total - there.total())
    total = max(total, there.total())
    each = [
        Loss(node, slots, total - slots, max(0, desired - (total - slots)))
        for node, slots in sorted(there.items(), key=lambda item: (-item[1], item[0]))
    ]
    return Losses(
        policy=f"{meta['namespace']}/{meta['name']}",
        asked=spec.get("placement", {}).get("surviveNodeFailures", 0),
        survives=_survives(total, there.values(), elsewhere, desired),
        desired=desired,
        filled=account.get("filled", 0),
        held=held,
        losses=tuple(each),
        elsewhere=elsewhere,
    )


def _survives(total: int, slots: Iterable[int], elsewhere: int, desired: int) -> int:
    """How many of the nodes with the most slots may go until fewer than desired are left.

    At worst the first of them has what is elsewhere, too.
    """
    survived, total = 0, total - elsewhere
    for count in sorted(slots, reverse=True) or ([0] if elsewhere else []):
        total -= count
        if total < desired:
            return survived
        survived += 1
    return survived


def _of_all(kubectl: Kubectl, namespace: str) -> list[Losses]:
    scope = ("--namespace", namespace) if namespace else ("--all-namespaces",)
    policies = kubectl.objects("get", "minimalreservationpolicies.j10ce.io", *scope)
    filled: dict[str, Counter[str]] = {}
    for one in sorted({policy["metadata"]["namespace"] for policy in policies}):
        filled |= filled_on(kubectl.objects("get", "pods", "--namespace", one))
    keys = [f"{policy['metadata']['namespace']}/{policy['metadata']['name']}" for policy in policies]
    return [losses_of(policy, filled.get(key, {})) for key, policy in zip(keys, policies, strict=True)]


def _worst(one: Losses) -> str:
    harmful = one.harmful
    if not harmful:
        return "none" if one.desired else ""
    named = ", ".join(f"{loss.node} ({loss.left} left)" for loss in harmful[:_MOST_SHOWN])
    more = len(harmful) - _MOST_SHOWN
    return f"{named} and {more} more" if more > 0 else named


def show(found: list[Losses], console: Console) -> None:
    """As a table."""
    if not found:
        console.print("There is no policy.")
        return
    heads = ("policy", "asked", "survives", "desired", "filled", "held", "nodes whose loss leaves fewer")
    table = Table(*heads, box=None)
    for one in found:
        numbers = (one.asked, one.survives, one.desired, one.filled, one.held)
        table.add_row(escape(one.policy), *map(str, numbers), escape(_worst(one)))
    console.print(table)
    for one in found:
        if one.elsewhere:
            slots = "1 slot" if one.elsewhere == 1 else f"{one.elsewhere} slots"
            text = f"{one.policy}: of {slots} the node is not known here; all such are taken to be on one"
            console.print(escape(text), soft_wrap=True)


def losses(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="This namespace alone. Default: all.")
    ] = "",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Say which loss of nodes each policy survives, by count, and what the loss of each node leaves."""
    found = _of_all(find(os.environ, kubeconfig, context), namespace)
    if output is Output.JSON:
        typer.echo(json.dumps({"policies": [asdict(one) for one in found]}, indent=2))
    else:
        show(found, Console())
