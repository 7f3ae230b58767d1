"""The processes of one lab cluster: kwokctl's (kube-scheduler, etcd ...) and those added to it, by name.

kwokctl records its components' command lines in kwok.yaml; what is added later is recorded beside them in
components/NAME.json. So each can be killed and started again with the same arguments.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from lab import processes


class UnknownComponentError(LookupError):
    """The cluster has no component of that name."""


@dataclass(frozen=True, slots=True)
class Component:
    """One process of a cluster: what starts it, where it logs, which file holds its pid."""

    name: str
    argv: tuple[str, ...]
    log: Path
    pid_file: Path


def kwok_folder(folder: Path) -> Path:
    """Folder in which kwokctl keeps a cluster, inside ours: its work folder holds just this one cluster."""
    return folder / "clusters" / folder.name


def add(folder: Path, name: str, argv: Sequence[str]) -> Component:
    """Record a component of our own; it is not started."""
    record = folder / "components" / f"{name}.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(list(argv)))
    return _added(folder, name)


def components(folder: Path) -> dict[str, Component]:
    """Every component of the cluster in that folder, kwokctl's first."""
    found = _kwok_components(kwok_folder(folder))
    for record in sorted((folder / "components").glob("*.json")):
        found[record.stem] = _added(folder, record.stem)
    return found


def find(folder: Path, name: str) -> Component:
    """A component by name; UnknownComponentError lists those there are."""
    known = components(folder)
    if name not in known:
        raise UnknownComponentError(
            f"cluster {folder.name} has no component {name!r}; it has {', '.join(known)}"
        )
    return known[name]


def pid(folder: Path, name: str) -> int | None:
    """Pid of a component, or None when it does not run."""
    return processes.recorded(find(folder, name).pid_file, folder)


def kill(folder: Path, name: str, sig: signal.Signals = signal.SIGKILL, *, seconds: float = 30.0) -> None:
    """Send a signal to a component and wait until it is gone. One that does not run is left as it is."""
    running = pid(folder, name)
    if running is not None:
        processes.end([running], folder, sig, seconds=seconds)


def start(folder: Path, name: str) -> int:
    """Start a component that does not run, with the arguments it had; return its pid."""
    component = find(folder, name)
    running = processes.recorded(component.pid_file, folder)
    if running is not None:
        return running
    return processes.spawn(component.argv, log=component.log, pid_file=component.pid_file)


def _added(folder: Path, name: str) -> Component:
    argv = json.loads((folder / "components" / f"{name}.json").read_text())
    return Component(name, tuple(argv), folder / "logs" / f"{name}.log", folder / "pids" / f"{name}.pid")


def _kwok_components(folder: Path) -> dict[str, Component]:
    try:
        text = (folder / "kwok.yaml").read_text()
    except FileNotFoundError:
        return {}
    # The documents after the first are KWOK's stages: long, and of no use here.
    document = YAML(typ="safe").load(text.partition("\n---\n")[0])
    return {
        entry["name"]: Component(
            entry["name"],
            (entry["binary"], *entry["args"]),
            folder / "logs" / f"{entry['name']}.log",
            folder / "pids" / f"{entry['name']}.pid",
        )
        for entry in document.get("components") or []
    }
