"""What the OCI hook gives a pod that has no file of its own. Pure."""

from __future__ import annotations

from typing import Final

from kernel import cache
from kernel.cache import Entry
from qos.plan.assumed import Machine, kubernetes_facts
from qos.plan.planning import plan
from qos.pods.containers import BEST_EFFORT, Container, NodePod
from qos.pods.decision import Choices
from qos.pods.expectation import expectation

_NOT_UNASKED: Final = ("cpu.idle", "oom_score_adj")


def best_effort(size: Machine, choices: Choices) -> dict[str, list[Entry]]:
    """Nothing, unless class defaults are chosen. Then every container of a BestEffort pod: its class's
    promises, but for those that make it the first to wait and to be killed: a pod without a file may be
    critical for the node, and what a process has at birth stays with all that it starts.

    Of other QoS classes there is nothing to say: what they request stands only in their own files.
    """
    if not choices.class_defaults:
        return {cache.ANY: []}
    pod = NodePod("", "", BEST_EFFORT, (Container(cache.ANY),), BEST_EFFORT)
    facts = kubernetes_facts(pod, cache.ANY, size)
    made = plan(pod, cache.ANY, expectation(pod).promises, None, facts)
    return {cache.ANY: [one.entry for one in made.settings if one.file not in _NOT_UNASKED]}
