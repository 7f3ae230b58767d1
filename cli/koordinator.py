"""What of Koordinator is in a cluster, as far as its Reservations and quotas are concerned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cli.kubectl import Kubectl, Object

DEFINITION: Final = "reservations.scheduling.koordinator.sh"
QUOTAS: Final = "elasticquotas.scheduling.sigs.k8s.io"
SCHEDULER: Final = "koord-scheduler"
OUR_HOOKS: Final = "j10ce-quotas"
"""The ValidatingWebhookConfiguration of our manager."""


@dataclass(frozen=True, slots=True)
class Koordinator:
    """`served`: the definition of Reservations is there. `schedulers`: Deployments of koord-scheduler that
    run, as namespace/name. `pods`: how many that have not ended name it as their scheduler.
    """

    served: bool = False
    schedulers: tuple[str, ...] = ()
    pods: int = 0


def found(kubectl: Kubectl) -> Koordinator:
    """Look it up. Raises KubectlError."""
    everywhere = ("--all-namespaces", "--field-selector")
    deployments = kubectl.objects("get", "deployments", *everywhere, f"metadata.name={SCHEDULER}")
    running = [one for one in deployments if one.get("spec", {}).get("replicas", 1)]
    selector = f"spec.schedulerName={SCHEDULER},status.phase!=Succeeded,status.phase!=Failed"
    pods = kubectl.objects("get", "pods", *everywhere, selector)
    return Koordinator(
        served=bool(kubectl.existing_named("customresourcedefinitions", [DEFINITION])),
        schedulers=tuple(f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in running),
        pods=len(pods),
    )


def other_checks(kubectl: Kubectl) -> tuple[str, ...]:
    """ValidatingWebhookConfigurations of others that are asked about ElasticQuotas. Raises KubectlError."""
    found = kubectl.objects("get", "validatingwebhookconfigurations")
    names = [one["metadata"]["name"] for one in found if any(map(_is_asked, one.get("webhooks") or ()))]
    return tuple(name for name in names if name != OUR_HOOKS)


def _is_asked(hook: Object) -> bool:
    """By name: a rule for everything is no check of quotas."""
    return any("elasticquotas" in rule.get("resources", ()) for rule in hook.get("rules") or ())
