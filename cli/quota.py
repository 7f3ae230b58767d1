"""`j10ce quota`: the trees of ElasticQuotas, from what the API server has now."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import typer
from rich.console import Console

from adapters.kubernetes import decode
from adapters.kubernetes.quotas import quota
from adapters.output import Output, OutputOption
from cli.koordinator import QUOTAS
from cli.kubectl import Kubectl, KubectlError, Object, find
from cli.preflight import ContextOption, KubeconfigOption
from cli.quota_table import document, owed, rows, show
from qos.keys import QUOTA_NAME_LABEL
from qos.quantity import parse
from quota.account import Account

_POLICIES: Final = "minimalreservationpolicies.j10ce.io"
_UNKNOWN: Final = "doesn't have a resource type"
_RUNNING: Final = "--field-selector=status.phase!=Succeeded,status.phase!=Failed"

app = typer.Typer(no_args_is_help=True, help="Elastic quotas: what each may use, lends, borrows and is owed.")


@app.callback()
def main() -> None:
    """So that there is room for more than one."""


@app.command()
def tree(
    kubeconfig: KubeconfigOption = None, context: ContextOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Draw the trees of ElasticQuotas: used, held by floors, runtime, min and max, and what is wrong."""
    kubectl = find(os.environ, kubeconfig, context)
    account = read(kubectl)
    found, owing = list(rows(account)), owed(account)
    if output is Output.JSON:
        typer.echo(json.dumps(document(found, owing), indent=2))
    else:
        show(found, owing, Console())


def read(kubectl: Kubectl) -> Account:
    """The account of all quotas, pods, nodes and of what policies hold, as they are now."""
    account = Account()
    account.change([quota(_raw(one)) for one in _all(kubectl, QUOTAS)])
    total: Counter[str] = Counter()
    for one in kubectl.objects("get", "nodes"):
        total.update(decode.node(_raw(one)).allocatable)
    account.set_cluster(total)
    for one in kubectl.objects("get", "pods", "--all-namespaces", _RUNNING):
        account.count(decode.pod(_raw(one)))
    for key, origin, amounts in held(_all(kubectl, _POLICIES)):
        account.hold(key, origin, amounts)
    return account


def held(policies: Iterable[Object]) -> Iterator[tuple[str, tuple[str, str], dict[str, int]]]:
    """What each policy holds, and for pods of which namespace and quota, as its selector names it."""
    for policy in policies:
        meta, status = policy["metadata"], policy.get("status", {})
        slots = status.get("slots", {}).get("held", 0)
        labels = policy["spec"].get("selector", {}).get("matchLabels") or {}
        amounts = {
            one["resource"]: slots * parse(one["resource"], one["quantity"]) for one in status.get("slot", ())
        }
        if slots:
            origin = meta["namespace"], labels.get(QUOTA_NAME_LABEL, "")
            yield f"{meta['namespace']}/{meta['name']}", origin, amounts


def _all(kubectl: Kubectl, resource: str) -> list[Object]:
    """All of a kind; none where the cluster does not know it."""
    try:
        return kubectl.objects("get", resource, "--all-namespaces")
    except KubectlError as error:
        if _UNKNOWN in str(error):
            return []
        raise


def _raw(one: Object) -> bytes:
    return msgspec.json.encode(one)
