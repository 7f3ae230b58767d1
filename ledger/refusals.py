"""The messages to refused pods: which policies' holds are in the way, in words that do not change from try to
try (T19).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ledger.decisions import Filtered
from ledger.demands import NO_DEMAND
from ledger.requests import Request, fits_free, sees
from ledger.state import State
from ledger.table import Rows
from qos.cluster.objects import Pod
from qos.cluster.reservation import is_reservation
from qos.keys import BANDWIDTHS
from qos.quantity import render

_MOST_NAMED = 3
UNKNOWN = "the node is not known to j10ce yet"
SHORT = "capacity is claimed by pods that are about to run there"
IN_DOUBT = "an earlier Binding of the pod, to another node, may still land"
WAITS_FOR_VICTIMS = "pods that were evicted for the pod still run there"
NOT_RESERVED = "no Reservation that the pod's reservation-affinity selects has room for it here"
WARMING_UP = "holds are not given out yet after a start"


def in_the_way(keys: Sequence[str], namespace: str) -> str:
    """The message for holds of these policies (namespace/name), to a pod of a namespace.

    kube-scheduler writes it into the pod's condition and events, which tenants read: policies of the pod's
    own namespace are named, sorted, at most three of them; of others there is only a number, and none above
    three, because what a sample of the nodes shows varies from try to try.
    """
    own = sorted({key for key in keys if key.partition("/")[0] == namespace})
    reserved = {key for key in keys if is_reservation(key)}
    foreign = len({*keys} - {*own} - reserved)
    parts = [
        *own[:_MOST_NAMED],
        *_more(len(own) - _MOST_NAMED),
        *_counted(foreign, "policy", "policies", " of another namespace", " of other namespaces"),
        *_counted(len(reserved), "Reservation", "Reservations"),
    ]
    text = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"holds of {text} are in the way"


def _more(count: int) -> list[str]:
    return [f"{count} other{'s' if count > 1 else ''}"] if count > 0 else []


def _counted(count: int, one: str, many: str, of_one: str = "", of_many: str = "") -> list[str]:
    if not count:
        return []
    if count > _MOST_NAMED:
        return [f"more than {_MOST_NAMED} {many}{of_many}"]
    return [f"1 {one}{of_one}" if count == 1 else f"{count} {many}{of_many}"]


def unable(state: State, request: Request, row: int) -> str:
    """The message for a node that cannot enforce what the pod's policy needs; "" when it can."""
    if request.owner not in state.demands.strict.able or state.demands.strict.able[request.owner][row]:
        return ""
    return _strictly(state, request) + state.demands.strict.obstacle(request.owner, row)


def policies_at(state: State, request: Request, rows: Rows) -> list[str]:
    """Keys of the policies whose holds on these rows the pod must leave alone."""
    holds = state.holds
    standing = [n for n in state.demands.order if holds.held_total[n] and holds.count[n].take(rows).any()]
    return [state.demands[number].key for number in standing if sees(state, request, number)]


def in_doubt(names: Sequence[str], node: str) -> Filtered:
    """A pod whose Binding to `node` may still land goes there or nowhere.

    Elsewhere it could take room twice; so no eviction there helps it either.
    """
    return Filtered([node]) if node in names else Filtered([], IN_DOUBT)


def of_quota(state: State, pod: Pod, names: Sequence[str], why: str) -> Filtered:
    """Refuse every name, because of the pod's quota.

    No eviction that kube-scheduler finds on these nodes helps: the pod fits there, so it would spare all. On
    the pod's own nominated node it may look for victims once more.
    """
    state.counters["quota_refusals"] += 1
    nominated = pod.nominated_node_name
    own = {nominated: why} if nominated in names else {}
    return Filtered([], why, own, frozenset(own))


def refuse(state: State, request: Request, names: Sequence[str], rows: Rows) -> Filtered:
    """Refuse every name.

    All held nodes carry the same message, which names every policy that stands in the way on one of them:
    holds float from node to node, and a message for each would change with them.
    """
    cannot = _unable_among(state, request, names, rows)
    if cannot and len(cannot) == len(names):
        return Filtered([], others=cannot)
    if request.reserved_only:
        return Filtered([], NOT_RESERVED)
    rows = state.demands.strict.reach(request.owner, rows)
    known = state.table.present.take(rows)
    held = known & ~state.holds.clear_for(request.priority).take(rows)
    enough = fits_free(state, request, rows)
    if enough is not None:
        held &= enough
    warming = state.is_cold_to(request.owner)
    policies = policies_at(state, request, rows[held]) if held.any() and not warming else []
    in_way = in_the_way(policies, request.pod.namespace) + _misfit(state, request) if policies else ""
    message = WARMING_UP if warming else in_way
    elsewhere = np.flatnonzero(~held).tolist()
    short = np.where(known, short_of(state, request, rows), UNKNOWN)
    others = {names[index]: str(short[index]) for index in elsewhere}
    nominated = request.pod.nominated_node_name
    if nominated and not warming and nominated not in others and nominated in names:
        others[nominated] = message
    # What a link lacks stays so though pods are evicted: kube-scheduler, which finds enough, would spare all.
    soft = frozenset(name for name, why in others.items() if why in (SHORT, UNKNOWN) or name == nominated)
    return Filtered([], message, others | cannot, soft - cannot.keys(), policies=tuple(policies))


def _misfit(state: State, request: Request) -> str:
    """Why a pod that a policy selects may not have its holds."""
    number = NO_DEMAND if request.owner != NO_DEMAND else state.demands.misfit_of(request.pod)
    if number == NO_DEMAND:
        return ""
    return f"; it requests more than a slot of {state.demands[number].key}, whose ownerFit is Restricted"


def short_of(state: State, request: Request, rows: Rows) -> NDArray[np.object_]:
    """The message for each row that lacks room beside its holds: kube-scheduler, which does not count the
    floors of pods there, has found enough bandwidth.
    """
    message = np.full(rows.size, SHORT, dtype=np.object_)
    for dim, amount in request.parts:
        name = state.table.resources[dim]
        if name in BANDWIDTHS.values():
            offered = state.table.allocatable[dim].take(rows) > 0
            lacks = (message == SHORT) & offered & (state.table.free[dim].take(rows) < amount)
            message[lacks] = f"{name}: {render(name, amount)} is not free beside the floors of pods there"
    return message


def _unable_among(state: State, request: Request, names: Sequence[str], rows: Rows) -> dict[str, str]:
    """The messages of those known nodes that cannot enforce what the pod's policy needs."""
    strict = state.demands.strict
    if request.owner not in strict.able:
        return {}
    cannot = np.flatnonzero(state.table.present.take(rows) & ~strict.able[request.owner].take(rows))
    return strict.obstacles(
        request.owner, [names[index] for index in cannot.tolist()], _strictly(state, request)
    )


def _strictly(state: State, request: Request) -> str:
    return f"policy {state.demands[request.owner].key} is Strict, and this node cannot enforce it: "
