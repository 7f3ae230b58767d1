"""The hot path: bytes in, decision, bytes out.

Sans-I/O: (bytes, ledger, now) -> Reply. Each function runs to its end without an await, so a decision is
atomic on the event loop. Only bind waits, for whoever makes the Binding.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from adapters.kubernetes.decode import DecodeError, pod_from, prefers, tolerations_of
from extender import wire
from ledger.decisions import Filtered
from ledger.ledger import Ledger
from qos.cluster.objects import Pod, Toleration


class Reply(NamedTuple):
    """An answer: HTTP status, body, and what is to be recorded or done.

    `refused`: keys of the policies in whose favour the pod was refused (filter). `withheld`: nodes that only
    Observe let pass.
    """

    status: int
    body: bytes
    refused: tuple[str, ...] = ()
    withheld: int = 0


class Asked(NamedTuple):
    """The pod that filter is asked about; `prefers`: adapters.kubernetes.decode."""

    pod: Pod
    tolerations: tuple[Toleration, ...]
    prefers: bool


MOST_LISTED: Final = 100
"""Where more nodes than this are refused the names are a sample (trap T18), and their number means nothing.
"""
SAID_ONCE: Final = " (said once for all such nodes)"
"""kube-scheduler's condition counts the nodes that carry a message: "1 holds of ... are in the way"."""

BadBody = (msgspec.MsgspecError, DecodeError, ValueError)
"""What decoding raises on a body that is not what kube-scheduler sends."""


def filter(  # noqa: A001 - the verb's name on the wire
    body: bytes, ledger: Ledger, now: float, apart: Callable[[Pod], bool] = lambda _pod: False
) -> Reply:
    """The nodes where the pod fits beside the holds. Nothing passes: a stable message for each node.

    `apart`: whether a pod is in no account, a placeholder: it may go where it was made to go.
    """
    try:
        args = wire.decode_args(body)
        asked = Asked(pod_from(args.pod), tolerations_of(args.pod), prefers=prefers(args.pod))
        if args.nodes is not None and args.node_names is None:
            return _filter_full(asked, args.nodes, ledger, now, apart)
    except BadBody as error:
        return malformed("filter", error)
    if apart(asked.pod):
        return Reply(200, wire.filter_result(args.node_names or [], {}, {}))
    decision = ledger.filter(asked.pod, args.node_names or [], now, asked.tolerations, prefers=asked.prefers)
    failed, unresolvable = _failures(decision, args.node_names or [])
    answer = wire.filter_result(decision.nodes, failed, unresolvable)
    return Reply(200, answer, decision.policies, decision.withheld)


def _filter_full(
    asked: Asked, nodes: wire.NodeList, ledger: Ledger, now: float, apart: Callable[[Pod], bool]
) -> Reply:
    """Where nodeCacheCapable is false: full nodes came, the same bytes go back."""
    items = dict(zip(wire.names_of(nodes), nodes.items or [], strict=True))
    if apart(asked.pod):
        return Reply(200, wire.filter_result_nodes([*items.values()], {}, {}))
    decision = ledger.filter(asked.pod, list(items), now, asked.tolerations, prefers=asked.prefers)
    failed, unresolvable = _failures(decision, list(items))
    answer = wire.filter_result_nodes([items[name] for name in decision.nodes], failed, unresolvable)
    return Reply(200, answer, decision.policies, decision.withheld)


def _failures(decision: Filtered, names: Sequence[str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """FailedNodes and FailedAndUnresolvableNodes: evicting helps only in the first (trap T23).

    kube-scheduler takes a node that is in no list for one of the second. Among many names one a message
    stands for all: a name each is what made refusals large.
    """
    if decision.nodes:
        return {}, {}
    failed = {name: decision.others[name] for name in decision.resolvable}
    if len(names) <= MOST_LISTED:
        return failed, {name: text for name, text in decision.refused(names).items() if name not in failed}
    told = {text: name for name, text in decision.others.items() if name not in failed}
    stands = next((name for name in names if name not in decision.others), None)
    if stands is not None:
        told[decision.message] = stands
    return failed, {name: text + SAID_ONCE for text, name in told.items()}


def prioritize(body: bytes, ledger: Ledger, now: float) -> Reply:
    """A score of 0..10 for each node."""
    try:
        args = wire.decode_args(body)
        pod = pod_from(args.pod)
        names = (
            args.node_names if args.node_names is not None else wire.names_of(args.nodes or wire.NodeList())
        )
    except BadBody as error:
        return malformed("prioritize", error)
    return Reply(200, wire.host_priorities(names, ledger.prioritize(pod, names, now)))


def preempt(body: bytes, ledger: Ledger, now: float) -> Reply:
    """The candidate nodes where evicting their victims really lets the pod in (trap T23)."""
    try:
        args = wire.decode_preemption(body)
        pod = pod_from(args.pod)
        candidates = args.by_uid()
    except BadBody as error:
        return malformed("preempt", error)
    victims = {node: uids for node, (uids, _) in candidates.items()}
    kept = ledger.preempt(pod, victims, now, {node: number for node, (_, number) in candidates.items()})
    return Reply(200, wire.preemption_result({node: candidates[node] for node in kept}))


async def bind(body: bytes, make: Callable[[wire.BindingArgs], Awaitable[str]]) -> Reply:
    """What came of the Binding. `make` makes it: "" when the pod is bound, else the Error."""
    try:
        args = wire.decode_binding(body)
    except BadBody as error:
        return malformed("bind", error)
    for name, value in (("PodUID", args.pod_uid), ("PodName", args.pod_name), ("Node", args.node)):
        if not value:
            return malformed("bind", ValueError(f"{name} is empty"))
    refusal = await make(args)
    return Reply(200, wire.error_result(refusal) if refusal else wire.BOUND)


def malformed(verb: str, error: Exception) -> Reply:
    """400, and what was wrong."""
    return Reply(400, wire.error_result(f"{verb}: the body is not what kube-scheduler sends: {error}"))


def not_ready(why: str) -> Reply:
    """503: refuse rather than guess."""
    return Reply(503, wire.error_result(f"not ready: {why}"))


def crashed(error: Exception) -> Reply:
    """500, after a bug of ours."""
    return Reply(500, wire.error_result(f"{type(error).__name__}: {error}"))
