"""Leaves a node as it was found: every setting of ours back to what others want, and our files gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent import observed
from agent.config import AGENT_LOCK, NRI_LOCK
from agent.enforcement import found
from agent.enforcement.enforcer import NOBODY_SEEN
from agent.enforcement.lowering import REACHED
from agent.enforcement.originals import BAD, Originals, Record
from agent.enforcement.originals import NAME as ORIGINALS
from agent.enforcement.places import Place, Wanted
from agent.enforcement.writing import Writing
from agent.measuring import BUDGETS
from agent.network.leaving import leave
from agent.network.seen import LOCK as NETWORK_LOCK
from agent.sync import hook_files, missed, store
from agent.taking_back import take_back
from agent.told import NAME as TOLD
from kernel import lock
from kernel.change import GATE, SET, WEIGHTS

LOWER_SECONDS: Final = 120.0
"""For all limits that have to be lowered below what is in use."""
_FOLDERS: Final = (hook_files.PODS, hook_files.DEFAULTS, hook_files.OPTED_OUT, found.FOLDER, missed.FOLDER)
_OF_TOLD: Final = (TOLD, f".{TOLD}.new", NRI_LOCK)
_OF_RUN: Final = (AGENT_LOCK, NETWORK_LOCK, lock.NAME, f".{ORIGINALS}.new")
_OF_STATE: Final = (store.NAME, f"{store.NAME}.bad", BUDGETS, observed.NAME)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restored:
    """files: how many kernel files have what others want again. left: those that have not, and why."""

    files: int
    left: tuple[str, ...]


def leave_as_found(
    mounts: Mapping[str, str], run: Path, state: Path, nri_socket: Path | None, proc: str = "/proc"
) -> Restored:
    """Put back kernel files, then what the runtime was told: it cannot write a weight while cpu.idle is 1.

    nri_socket: the runtime's; None: nobody can be told. Call it in a thread of its own; as restore() else.
    """
    done = restore(mounts, run, state, proc)
    if not run.is_dir():
        return done
    untold = take_back(nri_socket, run)
    if not untold:
        for name in _OF_TOLD:
            (run / name).unlink(missing_ok=True)
        _remove_if_empty(run)
    return Restored(done.files, (*done.left, *untold))


def restore(mounts: Mapping[str, str], run: Path, state: Path, proc: str = "/proc") -> Restored:
    """Put every kernel file back that is known, then remove our files; no agent must run here.

    What somebody else has written meanwhile is theirs, and stays. While something is left, RUN/originals
    stays so that it can be tried again; what could not be read of it (originals.bad) stays and is something
    left, until a boot or somebody who knows removes it. Raises nothing but OSError for our own files.
    """
    originals = Originals(run)
    if originals.newer:
        return Restored(0, (f"{run / ORIGINALS} is of a newer version: restore with that version",))
    writing = Writing(mounts, originals, run, proc)
    records = _records(originals, run)
    done, left, clean = 0, list[str](), list[str]()
    paths = sorted({place.path for place in records}, key=lambda path: (-path.count("/"), path))
    for path in paths:  # below before above: what is shared is lowered when nothing needs it any more
        known = {place: record for place, record in records.items() if place.path == path}
        with originals.held():
            put_back, refused = _put_back(writing, path, known)
        done += put_back
        left += refused
        clean += [] if refused else [path]
    lowered, late = _lowered(writing)
    for path in clean:
        if path not in late:
            originals.drop(path)
    done, left = done + lowered, [*left, *late.values(), *_unread(run), *leave(run)]
    _remove_files(run, state, keep_originals=bool(left))
    return Restored(done, tuple(left))


def _lowered(writing: Writing) -> tuple[int, dict[str, str]]:
    """How many limits were lowered that the kernel has to reclaim for; by cgroup, those that could not be."""
    lowering = writing.lowering
    if not len(lowering):
        return 0, {}
    asyncio.run(lowering.finish(LOWER_SECONDS))
    late = {place.path: f"{place.path}/{place.key}: {why}" for place, _, why in lowering.why(tuple(lowering))}
    return lowering.outcomes[REACHED], late


def _unread(run: Path) -> Iterator[str]:
    bad = run / BAD
    if os.path.lexists(bad):
        yield (
            f"{bad} could not be read: what was in its kernel files before is not known, they hold what we "
            "wrote until their pods end or the node boots; remove it then"
        )


def _records(originals: Originals, run: Path) -> dict[Place, Record]:
    """What is known of kernel files; where no agent has looked, what the hook noted before it wrote."""
    records = {place: Record("", value) for place, value in found.Found(run).all()}
    for path in originals.paths():
        for place in originals.at(path):
            record = originals.record(place)
            if record is not None:
                records[place] = record
    return records


def _put_back(writing: Writing, path: str, known: Mapping[Place, Record]) -> tuple[int, list[str]]:
    """How many files of one cgroup have theirs again, and what could not be written."""
    if not writing.there(path):
        return 0, []
    ours = _still_ours(writing, path, known)
    lost = [f"{path}/{one.key}: what was there before is not known" for one in ours if known[one][1] is None]
    wanted = {one: Wanted(SET, value) for one in ours if (value := known[one].original) is not None}
    gate = wanted.get(Place(path, GATE))
    if gate is not None and gate.value != "0":
        wanted = {one: want for one, want in wanted.items() if one.file not in WEIGHTS}
    if not wanted:
        return 0, lost
    outcome = writing.cgroup(path, wanted, NOBODY_SEEN)
    if outcome.applied or outcome.gone:
        return len(outcome.written), [*lost, *map(str, outcome.partly)]
    done = 0
    for one, want in wanted.items():  # one that is refused must not cost the others theirs
        alone = writing.cgroup(path, {one: want}, NOBODY_SEEN)
        done += len(alone.written)
        lost += [str(refusal) for refusal in alone.refusals]
    return done, lost


def _still_ours(writing: Writing, path: str, known: Mapping[Place, Record]) -> list[Place]:
    """The places that hold what we wrote. An idle cgroup's weight is the kernel's, and goes with the gate."""
    written = {one: Wanted(SET, record.written) for one, record in known.items() if record.written}
    gate = Place(path, GATE)
    weights = {one for one in written if one.file in WEIGHTS} if gate in written else set[Place]()
    others = {one for one in known if one not in written}  # the hook's: what it wrote is not known
    changed = {
        differs.place
        for one, want in written.items()
        for differs in writing.look_at(path, {one: want}).differ
        if not _is_earlier(writing, one)
    }
    if gate in changed:
        return [one for one in known if one not in changed]
    return [one for one in known if one in others or one in weights or one not in changed]


def _is_earlier(writing: Writing, place: Place) -> bool:
    """Whether it holds what we wrote before: the agent was killed before it wrote the last one."""
    earlier = writing.notes.originals.earlier(place)
    return bool(earlier) and not writing.look_at(place.path, {place: Wanted(SET, earlier or "")}).differ


def _remove_files(run: Path, state: Path, *, keep_originals: bool) -> None:
    """Ours alone, by name: a folder that somebody named by mistake loses nothing else."""
    for folder in (run / name for name in _FOLDERS):
        for file in _files(folder):
            file.unlink(missing_ok=True)
        _remove_if_empty(folder)
    for name in (*_OF_RUN, *(() if keep_originals else (ORIGINALS,))):
        (run / name).unlink(missing_ok=True)
    for name in _OF_STATE:
        (state / name).unlink(missing_ok=True)
    for folder in (run, state, state.parent):
        _remove_if_empty(folder)


def _files(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from [one for one in folder.iterdir() if one.is_file() and not one.is_symlink()]


def _remove_if_empty(folder: Path) -> None:
    """In a pod it is a mount, and stays."""
    with contextlib.suppress(OSError):
        folder.rmdir()
