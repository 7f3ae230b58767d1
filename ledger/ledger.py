"""The ledger: the in-memory account of every node, and the four verbs' decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger.decisions import BindDecision, DemandReport, Filtered, Mode
from qos.objects import DaemonSet, Demand, Node, Pod


class Ledger:
    """Allocatable, claims and holds of every node. Synchronous and deterministic; time is passed in.

    `binds` False: bind does not come through us (trap T09): a pod in flight is charged on the union of its answers,
    and until `warmup_until` ordinary pods get no held node.
    """

    def __init__(
        self,
        mode: Mode,
        *,
        cap_percent: int = 40,
        binds: bool = True,
        settle_seconds: float = 600.0,
        warmup_until: float = 0.0,
    ) -> None:
        self.mode = mode

    def set_node(self, node: Node) -> None:
        """Take a node as it is now."""
        raise NotImplementedError

    def remove_node(self, name: str) -> None:
        """Forget a node; its holds are placed elsewhere."""
        raise NotImplementedError

    def set_pod(self, pod: Pod) -> None:
        """Take a pod as it is now, pending or bound."""
        raise NotImplementedError

    def remove_pod(self, uid: str) -> None:
        """The pod is gone: its claim and its charges too."""
        raise NotImplementedError

    def set_demand(self, demand: Demand) -> None:
        """Take a policy's demand as it is now."""
        raise NotImplementedError

    def remove_demand(self, key: str) -> None:
        """Release all holds of a demand."""
        raise NotImplementedError

    def set_daemon_set(self, daemon_set: DaemonSet) -> None:
        """Expect this DaemonSet's pod on each node that admits it."""
        raise NotImplementedError

    def remove_daemon_set(self, uid: str) -> None:
        """Expect it no longer."""
        raise NotImplementedError

    def filter(self, pod: Pod, names: Sequence[str], now: float) -> Filtered:
        """Which of the nodes kube-scheduler found fitting may be used."""
        raise NotImplementedError

    def prioritize(self, pod: Pod, names: Sequence[str], now: float) -> list[int]:
        """Scores 0..10, one for each name."""
        raise NotImplementedError

    def preempt(self, pod: Pod, victims: Mapping[str, Sequence[str]], now: float) -> list[str]:
        """The candidate nodes (name -> victims' UIDs) where evicting would really lead to a bind."""
        raise NotImplementedError

    def bind(self, pod: Pod, node: str, now: float) -> BindDecision:
        """Check, move, claim: the commit point."""
        raise NotImplementedError

    def bound(self, uid: str, node: str) -> None:
        """The API server confirmed the Binding, to `node`."""
        raise NotImplementedError

    def release(self, uid: str) -> None:
        """The Binding certainly did not happen: roll the claim back."""
        raise NotImplementedError

    def expired(self, now: float) -> list[Pod]:
        """Pods whose fate is unknown for longer than settle_seconds: GET each, then set_pod, release or settle."""
        raise NotImplementedError

    def settle(self, uid: str) -> None:
        """Forget a pod's in-flight charge."""
        raise NotImplementedError

    def known(self, uid: str) -> Pod | None:
        """The pod as last seen."""
        raise NotImplementedError

    def policy_of(self, pod: Pod) -> str:
        """Key of the demand the pod is an owner of, or ""."""
        raise NotImplementedError

    def overlaps(self) -> Mapping[str, str]:
        """Demand key -> key of the demand it loses pods to."""
        raise NotImplementedError

    def report(self) -> dict[str, DemandReport]:
        """Each demand's account."""
        raise NotImplementedError

    def held_nodes(self) -> frozenset[str]:
        """Nodes with at least one hold."""
        raise NotImplementedError

    def waiting(self) -> list[Pod]:
        """Pods refused by filter which would now pass; each once per change."""
        raise NotImplementedError

    def gauges(self) -> Mapping[str, float]:
        """Totals for /metrics."""
        raise NotImplementedError
