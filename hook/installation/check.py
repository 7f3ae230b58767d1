"""Starts real containers with the installed hook and a test floor, and reads what the kernel then has."""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hook.decision import FLOOR_ANNOTATION
from hook.installation import daemon, entry, record, runtimes, starting, trial
from hook.installation.errors import InstallationError
from hook.installation.machine import refuse_unprivileged
from hook.installation.places import Places
from hook.installation.starting import Container, Finished
from kernel import cache

ABLE = ("podman", "runc", "crun")
"""Runtimes that can start a container by themselves; containerd's containers come by way of runc."""

_OF_PODS = {
    "containerd": (
        "only a pod shows whether it starts the hook; `j10ce hook status` says what can be seen of it"
    ),
    "crio": "only a pod shows whether it starts the hook; its hooks_dir must name the folder of ours",
}
_FLOOR_SECONDS = 300
_OF_CRUN = "run.oci.systemd.subgroup"
"""crun(1): "" for no cgroup inside the scope, which would hide the scope's files from the container."""

Report = Callable[[str], None]
Start = Callable[[Container], Finished]


@dataclass(frozen=True, slots=True)
class Reading:
    """One kernel file: what the floor says, what the container's first instruction read."""

    file: str
    wanted: str
    found: str

    @property
    def right(self) -> bool:
        """True when the floor was in place."""
        return self.found == self.wanted


@dataclass(frozen=True, slots=True)
class Attempt:
    """One runtime: can it start containers here, and was the floor there before their first instruction?"""

    runtime: str
    able: bool
    readings: tuple[Reading, ...] = ()
    why: str = ""

    @property
    def works(self) -> bool:
        """True when every value was in place."""
        return bool(self.readings) and all(reading.right for reading in self.readings)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What all attempts share: the container with the hook, and (path in it, file, value) of its floor."""

    hooked: Container
    values: tuple[tuple[str, str, str], ...]
    missed: Path


def check(places: Places, only: str | None, report: Report) -> list[Attempt]:
    """Try every runtime there is, or one; raises InstallationError when nothing can be tried."""
    refuse_unprivileged("check")
    found = record.read(places)
    if found is None:
        raise InstallationError(f"{places.record} is missing: run `j10ce hook install` first")
    places = Places(places.root, found.hooks_dir)
    hook = _installed(places)
    programs = _ways(only)
    if not programs:
        raise InstallationError(f"{only or ', '.join(ABLE)}: not on PATH; nothing to start containers with")
    with _trial(places, {found.stage: [hook]}) as made:
        return [_first_able(ways, made, report) for ways in programs]


def untried() -> dict[str, str]:
    """Runtimes of this node that check does not start containers with, and why. They start those of pods.

    runc and crun are given the hook by check itself: that they work says nothing of who calls them.
    """
    there = [runtime.name for runtime in runtimes.find(_OF_PODS)]
    there += [daemon.NAME] if daemon.running() else []
    return {name: _OF_PODS[name] for name in dict.fromkeys(there)}


def _installed(places: Places) -> Mapping[str, Any]:
    try:
        content = places.definition.read_text()
    except OSError as error:
        raise InstallationError(f"{places.definition}: {error.strerror}; install again") from error
    faults = entry.faults(content)
    if faults:
        raise InstallationError(f"{places.definition}: {faults[0]}; install again")
    hook: Mapping[str, Any] = json.loads(content)["hook"]
    return hook


def _ways(only: str | None) -> list[list[tuple[str, Start]]]:
    """For each program the ways to start a container; podman also with another runtime than its own."""
    found = {runtime.name: runtime for runtime in runtimes.find(ABLE)}
    programs: list[list[tuple[str, Start]]] = []
    podman = found.pop("podman", None)
    if podman and only in (None, "podman"):
        programs.append([("podman", partial(starting.podman, podman, None))])
        programs[0] += [
            (f"podman with {name}", partial(starting.podman, podman, runtime))
            for name, runtime in found.items()
        ]
    programs += [
        [(name, partial(starting.oci, runtime))] for name, runtime in found.items() if only in (None, name)
    ]
    return programs


@contextmanager
def _trial(places: Places, hooks: Mapping[str, list[Mapping[str, Any]]]) -> Iterator[_Trial]:
    """A floor and a root file system, gone after the block."""
    values = trial.values(Path("/proc/self/mountinfo").read_text())
    name = f"j10ce-check-{secrets.token_hex(4)}"
    floors = places.run / "floors"
    missing = record.missing_folders(floors)
    for folder in missing:
        folder.mkdir(mode=0o700)
    until = int(time.clock_gettime(time.CLOCK_BOOTTIME)) + _FLOOR_SECONDS
    cache.write(str(floors), name, until, {cache.ANY: [(0, "set", file, value) for _, file, value in values]})
    try:
        with tempfile.TemporaryDirectory(prefix="j10ce-check-") as scratch:
            mounted = trial.root_file_system(Path(scratch, "rootfs"))
            args = trial.command([path for path, _, _ in values])
            yield _Trial(
                Container(
                    name,
                    Path(scratch),
                    tuple(mounted),
                    tuple(args),
                    {FLOOR_ANNOTATION: name, _OF_CRUN: ""},
                    places.definition.parent,
                    hooks,
                ),
                tuple(values),
                places.run / "missed",
            )
    finally:
        cache.remove(str(floors), name)
        for folder in reversed(missing):
            with suppress(OSError):  # the hook left its lock or a marker there
                folder.rmdir()


def _first_able(ways: list[tuple[str, Start]], made: _Trial, report: Report) -> Attempt:
    attempts = []
    for name, start in ways:
        attempts.append(_attempt(name, start, made, report))
        if attempts[-1].able:
            return attempts[-1]
    return attempts[0]


def _attempt(name: str, start: Start, made: _Trial, report: Report) -> Attempt:
    """First a container without the hook, so that a failure is known to be ours or not."""
    report(f"{name}: a container without the hook")
    done = start(replace(made.hooked, hooks={}, hooks_dir=made.hooked.scratch))
    if done.returncode:
        return Attempt(name, able=False, why=_last(done))
    report(f"{name}: a container with the hook and a floor")
    done = start(made.hooked)
    if done.returncode:
        return Attempt(name, able=True, why=f"the container did not start: {_last(done)}")
    found = [*done.stdout.splitlines(), *[""] * len(made.values)]
    readings = tuple(Reading(file, value, found[i]) for i, (_, file, value) in enumerate(made.values))
    attempt = Attempt(name, able=True, readings=readings)
    return attempt if attempt.works else replace(attempt, why=_reason(made))


def _last(done: Finished) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _reason(made: _Trial) -> str:
    """Why the values were not there, from the marker that the hook left."""
    for marker in made.missed.glob("*") if made.missed.is_dir() else ():
        text = marker.read_text(errors="replace")
        if made.hooked.name in marker.name or made.hooked.name in text:
            marker.unlink()
            return text.partition("reason\t")[2].strip()
    return "the hook did not run, or left no word"
