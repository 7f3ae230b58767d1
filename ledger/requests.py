"""What one pod asks for, and what it may use of a node: free capacity less the holds it must leave alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ledger.board import Amounts, Board
from ledger.demands import NO_DEMAND
from ledger.reserving import choose
from ledger.state import State
from ledger.table import Columns, Flags, Rows
from qos.cluster.objects import Pod, Resources
from qos.quantity import MAXIMUM

_MOST_BOARDS = 16
"""Half a megabyte each at 5,000 nodes; refused pods of as many priorities as there are policies ask for one
each.
"""
CORE_DIMS = 3
"""cpu, memory and pods: every node offers them, so being short of them is always the ledger's business."""


@dataclass(frozen=True, slots=True)
class Request:
    """A pod's request in the dimensions that some demand holds.

    Others are kube-scheduler's business (trap T17). `requests`: what it would count for, with what a slot of
    its policy owes it. `need` has one amount for each of the demands' dimensions, in their order; `parts`
    only those above zero, by column; `owed`: place in `need` and column of what it counts for without
    requesting as much: a node that offers none of that does all the same. `avoid` is a row to choose last.
    `reserved_only`: it uses a Reservation, or is refused.
    """

    pod: Pod
    owner: int
    requests: Resources
    need: Amounts
    parts: tuple[tuple[int, int], ...]
    owed: tuple[tuple[int, int], ...] = ()
    avoid: int = -1
    reserved_only: bool = False

    @property
    def priority(self) -> int:
        """The pod's; it does not see holds of a lower one."""
        return self.pod.priority

    @property
    def counted(self) -> Pod:
        """The pod as one that requests what it would count for."""
        same = self.requests is self.pod.requests
        return self.pod if same else replace(self.pod, requests=self.requests)


def request_of(state: State, pod: Pod, avoid: int = -1, rows: Rows | None = None) -> Request:
    """What a pod asks for, as the demands are now. `rows`: where it may go; None: anywhere.

    A policy's pod uses no Reservation, unless it says that it must.
    """
    demands = state.demands
    owner, reserved_only = demands.policy_of(pod), False
    if demands.reservations.enabled:
        reserved_only = pod.reservation_affinity is not None
        if reserved_only or owner == NO_DEMAND:
            owner = choose(state, pod, rows, avoid)
    requests = state.counts(pod, owner)
    need = [requests.get(resource, 0) for resource in demands.resources]
    parts = tuple([part for part in zip(demands.dims, need, strict=True) if part[1] > 0])
    if state.promised:
        parts = _all_parts(state, requests)
    owed = _owed(state, pod, requests) if requests is not pod.requests else ()
    return Request(pod, owner, requests, need, parts, owed, avoid, reserved_only)


def _all_parts(state: State, requests: Resources) -> tuple[tuple[int, int], ...]:
    """While gangs have places to which kube-scheduler has not bound them: it does not count all of these."""
    dims = state.table.dims
    return tuple([(dims[name], amount) for name, amount in requests.items() if amount > 0 and name in dims])


def _owed(state: State, pod: Pod, requests: Resources) -> tuple[tuple[int, int], ...]:
    named = enumerate(zip(state.demands.resources, state.demands.dims, strict=True))
    more = requests.items() - pod.requests.items()
    return tuple([(place, dim) for place, (name, dim) in named if (name, requests.get(name)) in more])


def offers_owed(state: State, request: Request, rows: Rows) -> NDArray[np.bool_]:
    """The rows that offer all that the pod counts for without requesting it."""
    dims = [dim for _, dim in request.owed]
    return np.asarray((state.table.allocatable[dims][:, rows] > 0).all(axis=0))


def sees(state: State, request: Request, demand: int) -> bool:
    """True unless the pod's priority is strictly higher than the holds'."""
    return state.demands[demand].priority >= request.priority


def vector_of(state: State, demand: int) -> Amounts:
    """One slot of a demand, in the demands' dimensions."""
    amounts: Amounts = state.demands.vectors[demand].take(state.demands.dims).tolist()
    return amounts


def fits_free(state: State, request: Request, rows: Rows) -> NDArray[np.bool_] | None:
    """Where the request fits into free capacity; None when there is nothing to compare. Where nobody asks us,
    what holds have moved for is not free: no scheduler has it in its account.
    """
    if not request.parts:
        return None
    table = state.table
    fit: NDArray[np.bool_] | None = None
    taken = _nominated(state, request, [dim for dim, _ in request.parts], rows)
    for place, (dim, amount) in enumerate(request.parts):
        free = table.free[dim].take(rows)
        if not state.answers:
            free = free - table.charged[dim].take(rows)
        enough = (free if taken is None else free - taken[place]) >= amount
        if dim >= CORE_DIMS:
            enough |= table.allocatable[dim].take(rows) == 0
        fit = enough if fit is None else np.logical_and(fit, enough, out=fit)
    return fit


def sufficing(state: State, pod: Pod, rows: Rows) -> Flags:
    """Where there is enough for a pod of what no demand holds: elsewhere moving holds does not help."""
    held = set(state.demands.dims)
    parts = tuple([part for part in _all_parts(state, pod.requests) if part[0] not in held])
    fit = fits_free(state, Request(pod, NO_DEMAND, pod.requests, [], parts), rows)
    return np.ones(rows.size, dtype=np.bool_) if fit is None else fit


def _nominated(state: State, request: Request, dims: Sequence[int], rows: Rows) -> Columns | None:
    """What nominated pods that the request must respect wait for."""
    return state.nominations.above(request.pod.uid, request.priority, dims, rows)


def avail(state: State, request: Request, rows: Rows, *, own: bool) -> Columns:
    """What the pod may use of each row, [the demands' dimensions, rows]; without end what it is owed where
    none of it is offered.

    With `own` it takes a hold of its policy there: that much is its own whatever pods in flight may still
    take, and only what it asks for beyond its slot has to be safe from them.
    """
    table = state.table
    pick = cells(state, rows)
    left = table.free[pick] - table.charged[pick]
    held = state.holds.visible_to(request.priority)
    if held is not None:
        left -= held[pick]
    taken = _nominated(state, request, state.demands.dims, rows)
    if taken is not None:
        left -= taken
    safe: Columns = left - table.possible[pick]
    if own and sees(state, request, request.owner):
        credit = np.asarray(vector_of(state, request.owner), dtype=np.int64)[:, None]
        beside = np.where(safe >= 0, safe, np.minimum(left, 0))
        safe = np.where(own_holds(state, request, rows), beside + credit, safe)
    for place, dim in request.owed:
        safe[place, table.allocatable[dim].take(rows) == 0] = MAXIMUM
    return safe


def cells(state: State, rows: Rows) -> tuple[NDArray[np.intp], ...]:
    """The index of some rows in the demands' dimensions."""
    return state.demands.axis, rows


def own_holds(state: State, request: Request, rows: Rows) -> NDArray[np.bool_]:
    """Rows with a hold of the pod's policy that no owner in flight was given."""
    holds = state.holds
    there: NDArray[np.bool_] = holds.count[request.owner].take(rows) > holds.given[request.owner].take(rows)
    return there


def room(
    state: State,
    held: Columns | None,
    *,
    safe: bool = False,
    rows: Rows | None = None,
    dims: Sequence[int] | None = None,
) -> Columns:
    """What new holds may use, [the demands' dimensions or `dims`, rows]; `held` are the holds that count.

    With `safe` less what any pod in flight may take, and what DaemonSets have still to place. `rows`: only
    these.
    """
    table = state.table
    if dims is None:
        dims = state.demands.dims
    pick = dims if rows is None else (np.asarray(dims, dtype=np.intp)[:, None], rows)
    left = table.free[pick] - table.charged[pick] - table.nominated[pick]
    if safe:
        left -= table.possible[pick] + table.expected[pick]
    if held is not None:
        left -= held[pick]
    return left


def scale(state: State, dims: Sequence[int] | None = None) -> NDArray[np.float64]:
    """The largest node in each of the demands' dimensions, or of `dims`.

    Makes amounts of different resources comparable.
    """
    largest = state.table.largest[state.demands.dims if dims is None else dims]
    return np.maximum(largest, 1).astype(np.float64)


def board_at(state: State, level: int) -> Board:
    """The search's view of those who see the holds from this level on; shared until anything changes."""
    if state.boards_at != state.stamp:
        state.boards, state.boards_at = {}, state.stamp
    found = state.boards.get(level)
    if found is None:
        if len(state.boards) >= _MOST_BOARDS:
            del state.boards[next(iter(state.boards))]  # the oldest
        demands = state.demands
        lowest = demands.levels[level] if level < len(demands.levels) else None
        shapes = [n for n in demands.order if lowest is not None and demands[n].priority >= lowest]
        held = state.holds.visible[level] if lowest is not None else None
        found = state.boards[level] = board(state, held, shapes)
    return found


def board(state: State, held: Columns | None, shapes: Iterable[int], *, safe: bool = True) -> Board:
    """The search's view.

    `held` are the holds that count, `shapes` the demands whose floating holds may move; `safe` as for `room`.
    """
    holds, demands = state.holds, state.demands
    return Board(
        room=room(state, held, safe=safe),
        scale=scale(state),
        rank=state.table.rank(),
        shapes=[demand for demand in shapes if holds.held_total[demand] and demands.floating(demand)],
        holds=holds,
        demands=demands,
        spreads=state.spreads,
        cap_percent=state.cap_percent,
    )
