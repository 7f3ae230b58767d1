"""Short ways to write quotas, pods and accounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from qos import keys
from qos.cluster.objects import Pod
from qos.cluster.quota import ElasticQuota, weights
from quota.account import Account, Standing

NAMESPACE = "quotas"
GIB = 1 << 30


def amounts(cpu: int, memory: int | None = None) -> dict[str, int]:
    return {"cpu": cpu} if memory is None else {"cpu": cpu, "memory": memory}


def quota(
    name: str, most: Mapping[str, int], least: Mapping[str, int] | None = None, **others: Any
) -> ElasticQuota:
    """`weight`: as the annotation says it."""
    weight = weights(others.pop("weight", None), most)
    namespace = others.pop("namespace", NAMESPACE)
    return ElasticQuota(namespace, name, min=least or {}, max=most, weight=weight, **others)


def pod(name: str, requests: Mapping[str, int], of: str = "", **others: Any) -> Pod:
    """`of`: the quota its label names; `firm`: nobody may evict it; `node` puts it on a node."""
    labels = {keys.QUOTA_NAME_LABEL: of} if of else {}
    if others.pop("firm", False):
        labels[keys.QUOTA_PREEMPTIBLE_LABEL] = "false"
    namespace = others.pop("namespace", "pods")
    return Pod(f"uid-{name}", namespace, name, requests, labels, node_name=others.pop("node", ""), **others)


def account(total: Mapping[str, int], quotas: Iterable[ElasticQuota], *, guarantees: bool = False) -> Account:
    one = Account(guarantees=guarantees)
    one.set_cluster(total)
    one.change(quotas)
    return one


def ask(one: Account, requests: Mapping[str, Mapping[str, int]], *, bound: bool = False) -> None:
    """One more pod of each of these quotas."""
    for name, request in requests.items():
        sequel = sum(1 for _ in one._pods)
        one.count(pod(f"{name}-{sequel}", request, of=name), bound=bound)


def standing(one: Account, name: str, resource: str = "cpu") -> Standing:
    return one.standing(f"{NAMESPACE}/{name}")[resource]


def runtimes(one: Account, resource: str, *names: str) -> list[int | None]:
    return [standing(one, name, resource).runtime for name in names]
