"""What the API server is told of the webhook of quotas: which requests ask it. Pure.

CEL of match conditions keeps away what cannot be refused, so that it passes while nobody answers, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from qos import keys
from qos.cluster.quota import BUILT_IN, ElasticQuota
from quota.book import Book

NAME: Final = "j10ce-quotas"
"""Of the ValidatingWebhookConfiguration, and of the certificate's Secret."""
QUOTA_PATH: Final = "/quotas"
POD_PATH: Final = "/pods"
QUOTA_SECONDS: Final = 10
POD_SECONDS: Final = 1
"""The least there is: so long a pod's creation may take when we hang."""
_MOST_NAMED: Final = 500
"""With more parents than that the API server asks about every pod that names a quota: an expression is not to
become longer than it takes. Of namespaces it asks about so many.
"""
_LONGEST_LABEL: Final = 63
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Others are none, and an annotation may name anything: what is no string of CEL would end all of it."""
_NAMESPACES_END: Final = (
    "system:serviceaccount:kube-system:namespace-controller",
    "system:kube-controller-manager",
)
"""Who empties a namespace that is being deleted, which nobody can take back."""


class Parents(NamedTuple):
    """Parents that labels of pods may mean, and namespaces whose pods without a label are a parent's."""

    names: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


def parents_in(book: Book) -> Parents:
    """Those of these quotas; sorted."""
    parents = [one for one in book if one.is_parent and one.name not in BUILT_IN]
    names = sorted(one.name for one in parents if len(one.name) <= _LONGEST_LABEL and _meant(book, one))
    own = {namespace for one in parents for namespace in (one.namespace, *one.namespaces)}
    theirs = {one.key for one in parents}
    bound = sorted(each for each in own if _NAMESPACE.fullmatch(each) and book.quota_of((each, "")) in theirs)
    return Parents(tuple(names), tuple(bound[:_MOST_NAMED]))


def _meant(book: Book, quota: ElasticQuota) -> bool:
    named = book.named(quota.name)
    return named is not None and named.key == quota.key


def hooks(parents: Parents) -> list[dict[str, Any]]:
    """The webhooks; the second one where there are parents."""
    found = [_quotas()]
    return [*found, _pods(parents)] if parents.names or parents.namespaces else found


def _quotas() -> dict[str, Any]:
    changed = " || ".join(f"object.{each} != oldObject.{each}" for each in ("?spec", *_META))
    users = _listed(_NAMESPACES_END)
    return _hook(
        "quotas.j10ce.io",
        QUOTA_PATH,
        ("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas", ("CREATE", "UPDATE", "DELETE")),
        {
            "rules": f"request.operation != 'UPDATE' || {changed}",
            "namespace-stays": f"request.operation != 'DELETE' || !(request.userInfo.username in {users})",
        },
        failing="Fail",
        seconds=QUOTA_SECONDS,
    )


_META: Final = ("metadata.?labels", "metadata.?annotations")


def _pods(parents: Parents) -> dict[str, Any]:
    now, before = (f"{which}.metadata.?labels[?'{keys.QUOTA_NAME_LABEL}'].orValue('')" for which in _BOTH)
    few = len(parents.names) <= _MOST_NAMED
    named = f"{now} in {_listed(parents.names)}" if few else f"{now} != ''"
    bound = f"{now} == '' && request.namespace in {_listed(parents.namespaces)}"
    return _hook(
        "pods-of-quotas.j10ce.io",
        POD_PATH,
        ("", "v1", "pods", ("CREATE", "UPDATE")),
        {
            "quota": f"request.operation == 'CREATE' || {now} != {before}",
            "parent": f"{named} || ({bound})",
        },
        failing="Ignore",
        seconds=POD_SECONDS,
    )


_BOTH: Final = ("object", "oldObject")


def _hook(
    name: str,
    path: str,
    asked: tuple[str, str, str, tuple[str, ...]],
    conditions: dict[str, str],
    *,
    failing: str,
    seconds: int,
) -> dict[str, Any]:
    """`asked`: group, version, resource and operations."""
    group, version, resource, operations = asked
    rule = {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [resource],
        "operations": [*operations],
        "scope": "Namespaced",
    }
    return {
        "name": name,
        "clientConfig": path,
        "rules": [rule],
        "matchConditions": [{"name": key, "expression": text} for key, text in conditions.items()],
        "failurePolicy": failing,
        "timeoutSeconds": seconds,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def _listed(names: Iterable[str]) -> str:
    """A list of CEL: its strings are JSON's, of these characters."""
    return json.dumps([*names])
