"""The ledger's columns, which follow each change, against a count of everything from the beginning."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ledger.demands import NO_DEMAND
from ledger.ledger import Ledger
from ledger.requests import board_at
from ledger.state import State
from ledger.table import Columns
from qos.cluster.objects import Pod, Resources
from qos.cluster.selectors import admits, matches


def check_columns(ledger: Ledger) -> None:
    """Every incremental structure equals a recount."""
    state = ledger._state
    _check_table(state)
    _check_holds(state)
    _check_eligible(state)
    _check_cap(state)
    _check_headcount(state)
    _check_boards(state)


def _check_headcount(state: State) -> None:
    """Pods that constraints count, by row; of all constraints that demands have, and of no others."""
    demands = [state.demands[number] for number in state.demands.order]
    stated = {(d.namespace, (spread.selector, spread.between_pods)) for d in demands for spread in d.spread}
    columns = state.headcount._columns
    assert {(namespace, kind) for namespace, there in columns.items() for kind in there} == stated
    for namespace, (selector, deleting) in stated:
        fresh = np.zeros(state.table.shape[1], dtype=np.int64)
        for claim in state.claims.by_uid.values():
            pod = claim.pod
            if pod.namespace == namespace and (deleting or not pod.deleting):
                fresh[claim.row] += matches(selector, pod.labels)
        assert (columns[namespace][selector, deleting] == fresh).all()


def _check_boards(state: State) -> None:
    """What searches share is what each would make for itself."""
    kept, made_at = state.boards, state.boards_at
    if made_at != state.stamp:
        return
    state.boards = {}
    for level, board in kept.items():
        fresh = board_at(state, level)
        assert board.shapes == fresh.shapes
        assert (board.room == fresh.room).all()
        assert (board.scale == fresh.scale).all()
        assert (board.rank == fresh.rank).all()
        for demand in board.shapes:
            assert (board.movable(demand) == fresh.movable(demand)).all()
            assert np.array_equal(board.fits(demand), fresh.fits(demand))
            assert board.targets(demand) == fresh.targets(demand)
            assert board.crowded(demand) == fresh.crowded(demand)
            assert board.pushed(demand, 2, True) == fresh.pushed(demand, 2, True)
        assert [part.tolist() for part in board._pairs] == [part.tolist() for part in fresh._pairs]
    state.boards = kept


def _check_cap(state: State) -> None:
    """Nothing is above the cap that nobody is going to look at."""
    offered = state.table.allocatable[:, state.table.usable].sum(axis=1).tolist()
    assert state.limits == [amount * state.cap_percent // 100 for amount in offered]
    over = [dim for dim in state.demands.dims if state.holds.total[dim] > state.limits[dim]]
    assert state.holds.heavier or not over
    moment = state.holds.changes, state.demands.changes
    if state.used is not None and state.used[0] == moment:
        held = np.asarray(state.holds.held_total)[state.demands.order, None]
        assert (state.used[1] == np.cumsum(state.demands.vectors[state.demands.order] * held, axis=0)).all()


def _put(state: State, columns: Columns, row: int, amounts: Resources, sign: int = 1) -> None:
    for name, amount in amounts.items():
        dim = state.table.dims.get(name)
        if dim is not None:
            columns[dim, row] += sign * amount


def _is_charged(state: State, pod: Pod, row: int) -> bool:
    """Whether a nominated pod is in flight to its node, and charged there: it waits for no hole then."""
    flight = state.flights.by_uid.get(pod.uid)
    if flight is None or {one for rows, _ in flight.parts for one in rows.tolist()} != {row} or flight.unsure:
        return False
    return any(rows.size and amounts == pod.requests for rows, amounts in flight.parts)


def _check_table(state: State) -> None:
    table = state.table
    free, charged, possible, nominated = (np.zeros(table.shape, dtype=np.int64) for _ in range(4))
    for row in table.index.values():
        node = table.nodes[row]
        assert node is not None
        _put(state, free, row, node.allocatable)
    for claim in state.claims.by_uid.values():
        _put(state, free, claim.row, claim.requests, -1)
        if not state.ownership.unsettled(claim.pod.namespace):
            assert claim.requests == state.demands.counts(claim.pod, claim.owner)
    for flight in state.flights.by_uid.values():
        places = {row for rows, _ in flight.parts for row in rows.tolist()}
        assert flight.certain == (len(places) <= 1 and not flight.unsure)
        for rows, amounts in flight.parts:
            for row in rows.tolist():
                _put(state, charged if flight.certain else possible, row, amounts)
    by_priority: dict[int, Columns] = {}
    for row, pod in state.nominations.by_uid.values():
        if _is_charged(state, pod, row):
            continue
        _put(state, nominated, row, pod.requests)
        _put(state, by_priority.setdefault(pod.priority, np.zeros_like(free)), row, pod.requests)
    assert (table.free == free).all()
    assert (table.charged == charged).all()
    assert (table.possible == possible).all()
    assert (table.largest == table.allocatable.max(axis=1)).all()
    assert (table.nominated == nominated).all()
    assert by_priority.keys() == state.nominations.by_priority.keys()
    for priority, columns in by_priority.items():
        dims = list(table.dims.values())
        assert (state.nominations.by_priority[priority][dims] == columns[dims]).all()


def _check_holds(state: State) -> None:
    holds, demands, table = state.holds, state.demands, state.table
    assert holds.levels == demands.levels == sorted({demands[n].priority for n in demands.order})
    there = [number for number in range(len(demands.records)) if number not in demands.order]
    for counts in (holds.count, holds.filled, holds.given):
        assert not counts[there].any()
    for place, level in enumerate(holds.levels):
        seen = [n for n in demands.order if demands[n].priority >= level]
        unseen = [n for n in demands.order if demands[n].priority < level]
        visible = demands.vectors[seen].T @ holds.count[seen].astype(np.int64)
        visible += demands.vectors[unseen].T @ holds.given[unseen].astype(np.int64)
        assert (holds.visible[place] == visible).all()
        assert (holds.owners_seen(level) == holds.filled[seen].sum(axis=0)).all()
        numbers = holds.count[seen].sum(axis=0)
        assert (holds.clear[place] == (table.present & (numbers == 0))).all()
    assert (holds.lent == demands.vectors.T @ holds.given.astype(np.int64)).all()
    assert (holds.visible_to(1 << 40) is None) == (not holds.given.any())
    assert (holds.number == holds.count.sum(axis=0)).all()
    assert holds.held_total == holds.count.sum(axis=1).tolist()
    assert holds.filled_total == holds.filled.sum(axis=1).tolist()
    assert not holds.owners_seen(1 << 40).any()
    assert (holds.total == holds.all.sum(axis=1)).all()
    assert holds.unplaced == sum(max(0, holds.missing(number)) for number in demands.order)
    assert demands.resources == [table.resources[dim] for dim in demands.dims]
    assert demands.axis.tolist() == [[dim] for dim in demands.dims]
    assert all(demands.largest(dim) == demands.vectors[:, dim].max(initial=0) for dim in table.dims.values())
    standing = {row: set(np.flatnonzero(holds.count[:, row]).tolist()) for row in range(table.shape[1])}
    assert holds.standing == {row: numbers for row, numbers in standing.items() if numbers}
    left = np.maximum(holds.count - holds.given, 0)
    free = {place: int(left[place]) for place in zip(*np.nonzero(holds.count), strict=True)}
    pairs = [part.tolist() for part in holds.pairs()]
    assert {(number, row): count for number, row, count in zip(*pairs, strict=True)} == free
    given = Counter(place for flight in state.flights.by_uid.values() for place in flight.own)
    assert {place: int(holds.given[place]) for place in zip(*np.nonzero(holds.given), strict=True)} == given
    filled = Counter(
        (c.owner, c.row)
        for c in state.claims.by_uid.values()
        if state.demands.there(c.owner) and not c.away and not state.demands.reservations.shares(c.owner)
    )
    assert {
        place: int(holds.filled[place]) for place in zip(*np.nonzero(holds.filled), strict=True)
    } == filled
    staying = [c for c in state.claims.by_uid.values() if c.owner != NO_DEMAND and not c.away]
    assert +state.claims.ending == Counter(c.owner for c in staying if c.pod.deleting)


def _check_eligible(state: State) -> None:
    for number in state.demands.order:
        record = state.demands[number]
        for row, node in enumerate(state.table.nodes):
            willing = node is not None and node.ready and admits(record.where, node)
            able = record.needs is None or (willing and not state.demands.strict.obstacle(number, row))
            assert state.demands.eligible[number, row] == (willing and able)
