"""The baselines in Go: built once into the user's cache as helm is (lab/helm.py), started as processes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from lab.binaries import silent
from lab.node_programs import Programs, find, provide
from lab.only_one import Report
from ledger.ledger import Ledger

PROGRAMS: Final = Programs("bench", Path(__file__).parent / "gomodule", ("accept-all", "floors"), {})
MISSING: Final = "the baselines in Go are not built: make bench builds them"
START_SECONDS: Final = 60.0
_DIMS: Final = ("cpu", "memory", "pods")


def build(environ: Mapping[str, str], report: Report) -> Path:
    """Folder of the programs, which are built where they are missing (a minute). NodeProgramsError."""
    return provide(_without_choice(environ), report, PROGRAMS)


def folder() -> Path | None:
    """Where they are, or None."""
    return find(_without_choice(os.environ), PROGRAMS)


def _without_choice(environ: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environ.items() if key != "J10CE_NODE_BIN"}


def picture(ledger: Ledger) -> dict[str, Any]:
    """What the program floors knows of a cluster: free capacity and holds of each node, in its dimensions.

    All policies have one priority, select by one label, and hold cpu, memory and pods.
    """
    state = ledger._state
    table, holds, demands = state.table, state.holds, state.demands
    assert [table.dims[name] for name in _DIMS] == [0, 1, 2] == demands.dims
    assert len(demands.levels) == 1
    rows = [row for row, name in enumerate(table.names) if table.present[row] and name]
    nodes = [
        {
            "name": table.names[row],
            "free": table.free[:3, row].tolist(),
            "held": holds.all[:3, row].tolist(),
            "holds": int(holds.number[row]),
        }
        for row in rows
    ]
    return {
        "priority": demands.levels[0],
        "largest": table.allocatable[:3].max(axis=1, initial=1).tolist(),
        "nodes": nodes,
        "policies": [
            {
                "namespace": demands[number].namespace,
                "labels": {one.key: one.values[0] for one in demands[number].selector.requirements},
            }
            for number in demands.order
        ],
    }


@contextlib.contextmanager
def floors(ledger: Ledger, *, bound_at_once: bool = True) -> Iterator[int]:
    """The port of the Go extender that decides on what this ledger knows now."""
    there = folder() or build(os.environ, silent)
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "picture.json"
        file.write_text(json.dumps(picture(ledger)))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        argv = [str(there / "floors"), str(file), str(port)]
        running = subprocess.Popen([*argv, "bound-at-once"] if bound_at_once else argv)
        try:
            wait_for(port)
            yield port
        finally:
            running.kill()
            running.wait()


def wait_for(port: int) -> None:
    """Until something listens there. OSError after START_SECONDS."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
