"""What the extender leaves in a cluster beside what is installed, and how it is taken away: gates and
placeholders.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from cli import admission
from cli.kubectl import Kubectl, KubectlError, Object, as_list, identity
from qos import keys

WEBHOOK: Final = "j10ce-hand-over"
"""Its MutatingWebhookConfiguration."""
RAISING: Final = "j10ce-owners-raised"
"""The binding of the admission that raises owners."""
GANGS: Final = "j10ce-gangs-gated"
"""The binding of the admission that gates pods of gangs."""
_GATES: Final = frozenset({keys.HAND_OVER_GATE, keys.GANG_GATE})
CLASSES: Final = ("j10ce-placeholder-", "j10ce-owner-")
"""How the names of its PriorityClasses begin."""


@dataclass(frozen=True, slots=True)
class Left:
    """Pods that wait for a hand-over or their gang, placeholders, and their PriorityClasses."""

    gated: tuple[Object, ...] = ()
    standing: tuple[Object, ...] = ()
    classes: tuple[Object, ...] = ()

    @property
    def nothing(self) -> bool:
        """True when none of it is there."""
        return not (self.gated or self.standing or self.classes)

    def to_json(self) -> dict[str, object]:
        """For -o json."""
        return {
            "gatedPods": ["/".join(identity(pod)[2:]) for pod in self.gated],
            "placeholders": len(self.standing),
            "priorityClasses": [item["metadata"]["name"] for item in self.classes],
        }

    def said(self) -> Iterator[str]:
        """What is done with it, a line each."""
        if self.gated:
            yield f"let {len(self.gated)} pods that wait for a hand-over or their gang go to kube-scheduler"
        if self.standing:
            yield f"remove {len(self.standing)} placeholders: what they hold is free for all at once"
        for item in self.classes:
            yield f"remove PriorityClass {item['metadata']['name']}"


def left(kubectl: Kubectl, namespace: str) -> Left:
    """What is there of it; namespace: where placeholders are."""
    pods = kubectl.objects("get", "pods", "--all-namespaces", "--field-selector", "status.phase=Pending")
    label = f"{keys.PLACEHOLDER_LABEL}=true"
    classes = kubectl.objects("get", "priorityclasses")
    return Left(
        tuple(pod for pod in pods if not _GATES.isdisjoint(_gates(pod))),
        tuple(kubectl.objects("get", "pods", "--namespace", namespace, "--selector", label)),
        tuple(item for item in classes if item["metadata"]["name"].startswith(CLASSES)),
    )


def _gates(pod: Object) -> list[str]:
    return [gate["name"] for gate in pod.get("spec", {}).get("schedulingGates") or ()]


def take_away(kubectl: Kubectl, namespace: str) -> None:
    """Take all of it away, once its program is ended: first what gates and raises pods, then placeholders: an
    owner that kube-scheduler gets before they are gone evicts somebody beside them. Then gates, then classes.
    """
    if admission.raising(kubectl):  # else owners of a class that is gone would be refused
        kubectl.run("delete", "mutatingadmissionpolicybindings", "--ignore-not-found", RAISING, GANGS)
    kubectl.run("delete", "mutatingwebhookconfigurations", "--ignore-not-found", WEBHOOK)
    there = left(kubectl, namespace)
    # Not even a dead node's kubelet is waited for: nothing runs in them that has to end first.
    _delete(kubectl, there.standing, "--grace-period=0", "--force")
    for pod in there.gated:
        _let_go(kubectl, pod)
    _delete(kubectl, there.classes)


def _delete(kubectl: Kubectl, items: Iterable[Object], *how: str) -> None:
    if items := [*items]:
        usual = ("--ignore-not-found", "--timeout=120s", "-f", "-")
        kubectl.run("delete", *usual, *how, stdin=as_list(items), seconds=150)


def _let_go(kubectl: Kubectl, pod: Object) -> None:
    metadata = pod["metadata"]
    others = [{"name": name} for name in _gates(pod) if name not in _GATES]
    change = {"metadata": {"uid": metadata["uid"]}, "spec": {"schedulingGates": others or None}}
    scope = ("--namespace", metadata["namespace"])
    try:
        kubectl.run("patch", "pod", metadata["name"], *scope, "--type=merge", f"--patch={json.dumps(change)}")
    except KubectlError:
        if kubectl.existing_named("pods", [metadata["name"]], *scope):
            raise
