"""What the hook costs: by itself against the same interpreter doing nothing, and in a container's start.

Rounds are interleaved: each runs every kind once, in an order of chance, so that all of them see the same
machine, and what a start leaves behind for the next one. The hook has real work: a floor of two kernel files,
which are put back before each round.
Bounds: the hook alone at most 1.15 times `python3 -I -S -c pass`; a container with it at most 1.15 times one
whose hook is that. What a container takes without a hook, and with `true` as its hook, is shown beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from hook.installation import entry, imports, interpreter, tree, trial
from hook.installation.places import Places
from kernel import cache
from lab.processes import exit_on_sigterm
from lab.runtimes import bundle, cgroups, oci, rootfs
from lab.runtimes.bundle import Spec
from lab.runtimes.cgroups import Scratch
from lab.runtimes.oci import Runtime

BOUND = 1.15
ROUNDS = 40
TRIES = 50
FLOOR = "bench"
CONTAINER = "bench"
NONE, TRUE, PASS, HOOK = "no hook", "true", "python3 -I -S -c pass", "our hook"

Run = Callable[[], bool]
"""One start; False: it does not count, try again."""


@dataclass(frozen=True, slots=True)
class Result:
    """Medians in ms of one subject (the hook alone, runc, crun) by kind, and the bounded ratio."""

    subject: str
    medians: Mapping[str, float]

    @property
    def ratio(self) -> float:
        """Our hook against the same interpreter doing nothing."""
        return self.medians[HOOK] / self.medians[PASS]


@dataclass(frozen=True, slots=True)
class Installation:
    """The hook's code and settings in a scratch folder, and what runtimes are told of the three hooks."""

    entries: Mapping[str, Mapping[str, Any]]
    floor: tuple[tuple[str, str], ...]

    def hooks(self, kind: str) -> dict[str, list[Mapping[str, Any]]]:
        """As a config.json has them."""
        return {entry.CREATE_RUNTIME: [self.entries[kind]]} if kind in self.entries else {}

    def argv(self, kind: str) -> list[str]:
        """The hook's command line."""
        found = self.entries[kind]
        return [found["path"], *found["args"][1:]]


def install(folder: Path) -> Installation:
    """As `j10ce hook install` does it, for the interpreter that it would choose."""
    places = Places(folder)
    python = interpreter.choose(None).path
    places.home.mkdir(parents=True)
    code = tree.put(places.home, imports.sources(), python)
    values = trial.values(Path("/proc/self/mountinfo").read_text())
    floors = places.run / "floors"
    floors.mkdir(parents=True, mode=0o700)
    cache.write(str(floors), FLOOR, 0, {cache.ANY: [(0, "set", file, value) for _, file, value in values]})
    ours = entry.oci(python, code, places)
    nothing = {**ours, "args": [*ours["args"][:3], "-c", "pass"]}
    true = {**ours, "path": "/bin/true", "args": ["true"]}
    return Installation(
        {TRUE: true, PASS: nothing, HOOK: ours}, tuple((file, value) for _, file, value in values)
    )


def timed(run: Run, prepare: Callable[[], None]) -> float:
    """Seconds of a run that counts."""
    for _ in range(TRIES):
        prepare()
        begun = time.perf_counter()
        if run():
            return time.perf_counter() - begun
    raise SystemExit(f"error: {TRIES} starts in a row were cut short")


def interleaved(subject: str, kinds: Mapping[str, Run], rounds: int, prepare: Callable[[], None]) -> Result:
    """Medians in ms; each round runs every kind once, in an order of chance.

    prepare: what is done before each run, unmeasured.
    """
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    names = list(kinds)
    for run in kinds.values():  # once unmeasured: files are read into memory
        timed(run, prepare)
    for _ in track(range(rounds), f"{subject}", console=Console(stderr=True), transient=True):
        for kind in random.sample(names, len(names)):
            seconds[kind].append(timed(kinds[kind], prepare))
    return Result(subject, {kind: 1000 * statistics.median(found) for kind, found in seconds.items()})


@contextlib.contextmanager
def sleeper(scratch: Scratch) -> Iterator[tuple[int, Scratch]]:
    """A process that waits in a cgroup of its own, as a container's first process waits for its hooks."""
    group = scratch.make(CONTAINER)
    with subprocess.Popen(["/bin/sleep", "3600"]) as process:
        try:
            for folder in group.folders():
                (folder / "cgroup.procs").write_text(str(process.pid))
            yield process.pid, group
        finally:
            process.kill()


def alone(installed: Installation, scratch: Scratch, rounds: int) -> Result:
    """The hook's process by itself, with the state on stdin that a runtime would write."""
    with sleeper(scratch) as (pid, group):
        state = {"ociVersion": "1.0.2", "id": CONTAINER, "status": "created", "pid": pid, "bundle": "/"}
        stdin = json.dumps(state | {"annotations": {"j10ce.io/floor": FLOOR}}).encode()
        files = [
            (file, next(folder / file for folder in group.folders() if (folder / file).exists()), value)
            for file, value in installed.floor
        ]
        before = [(path, path.read_text()) for _, path, _ in files]

        def start(kind: str) -> Run:
            argv = installed.argv(kind)
            environ = dict(pair.split("=", 1) for pair in entry.ENVIRONMENT)

            def run() -> bool:
                done = subprocess.run(argv, input=stdin, env=environ, capture_output=True, check=True)
                assert not done.stderr, done.stderr
                return True

            return run

        def put_back() -> None:
            for path, text in before:
                path.write_text(text)

        start(HOOK)()
        for file, path, value in files:
            assert path.read_text().strip() == value, file
        kinds = {kind: start(kind) for kind in (TRUE, PASS, HOOK)}
        return interleaved("the hook alone", kinds, rounds, put_back)


def containers(
    installed: Installation, runtime: Runtime, scratch: Scratch, folder: Path, rounds: int
) -> Result:
    """`runc run` of `true`: create, the hook, start, end.

    crun dies of SIGPIPE when a hook ends before crun has written the state, as `true` may: such a start does
    not count.
    """
    root = rootfs.make(folder / "rootfs")

    def start(kind: str) -> Run:
        spec = Spec(
            args=["/bin/true"],
            hooks=installed.hooks(kind),
            annotations={"j10ce.io/floor": FLOOR},
            cgroups_path=scratch.path(f"{CONTAINER}-{runtime.name}"),
        )
        made = bundle.make(folder / f"{runtime.name}-{kind.split()[0]}", root, spec)
        name = f"{CONTAINER}-{runtime.name}"

        def run() -> bool:
            done = runtime.run(made, name)
            if done.code == -signal.SIGPIPE:
                runtime.delete(name)
                return False
            return bool(done.succeeded())

        return run

    kinds = {kind: start(kind) for kind in (NONE, TRUE, PASS, HOOK)}
    return interleaved(f"{runtime.name} run", kinds, rounds, lambda: None)


def measure(rounds: int) -> list[Result]:
    """Everything, on a scratch cgroup and below a scratch folder."""
    with tempfile.TemporaryDirectory() as scratch_folder, cgroups.scratch("bench") as scratch:
        folder = Path(scratch_folder)
        installed = install(folder / "node")
        results = [alone(installed, scratch, rounds)]
        with oci.crun(folder / "crun") as crun:
            results += [
                containers(installed, runtime, scratch, folder / runtime.name, rounds)
                for runtime in (oci.runc(folder / "runc"), crun)
            ]
    return results


def show(results: list[Result], python: interpreter.Interpreter) -> None:
    """A table: medians in ms, and the ratio that has a bound."""
    table = Table(title=f"medians in ms; interpreter: {python}")
    for heading in ("", NONE, TRUE, PASS, HOOK, "ratio", f"<= {BOUND}"):
        table.add_column(heading, justify="left" if not heading else "right")
    for result in results:
        cells = [
            f"{result.medians[kind]:.2f}" if kind in result.medians else "-"
            for kind in (NONE, TRUE, PASS, HOOK)
        ]
        kept = "yes" if result.ratio <= BOUND else "[red]NO[/]"
        table.add_row(result.subject, *cells, f"{result.ratio:.3f}", kept)
    Console(width=110).print(table)


def main() -> int:
    """Exit code 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description="What the hook costs.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each kind (40)")
    rounds = parser.parse_args().rounds
    if os.geteuid() != 0:
        sys.exit("error: containers and cgroups are root's: run this as root")
    exit_on_sigterm()
    results = measure(rounds)
    show(results, interpreter.choose(None))
    return int(any(result.ratio > BOUND for result in results))


if __name__ == "__main__":
    sys.exit(main())
