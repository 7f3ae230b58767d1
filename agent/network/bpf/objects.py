"""The object files that this package brings, and what they were compiled from: no node needs a compiler."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.network.bpf import elf
from agent.network.bpf.elf import Object, ObjectError

FOLDER: Final = Path(__file__).parent
SOURCES: Final = "sources"
OBJECTS: Final = "objects"
RECORD: Final = f"{OBJECTS}/objects.json"
"""Which compiler made them, and the SHA-256 of every source and object."""


def load(name: str, folder: Path = FOLDER) -> Object:
    """The object of this name, such as classify. Raises ObjectError: it is damaged, or not there."""
    try:
        content = (folder / OBJECTS / f"{name}.o").read_bytes()
        recorded = record(folder)[OBJECTS].get(f"{name}.o")
    except (OSError, ValueError, KeyError) as error:
        raise ObjectError(f"{OBJECTS}/{name}.o of this installation cannot be read: {error}") from None
    if hashlib.sha256(content).hexdigest() != recorded:
        raise ObjectError(f"{OBJECTS}/{name}.o of this installation is not as released: install it again")
    return elf.read(content)


def record(folder: Path = FOLDER) -> dict[str, Any]:
    """What objects.json says. Raises OSError, ValueError."""
    found: dict[str, Any] = json.loads((folder / RECORD).read_text())
    return found


def sums(folder: Path = FOLDER) -> dict[str, dict[str, str]]:
    """File name -> SHA-256 of what is there, of sources and of objects."""
    return {
        SOURCES: _sums(folder / SOURCES, ".c", ".h"),
        OBJECTS: _sums(folder / OBJECTS, ".o"),
    }


def differing(recorded: Mapping[str, Any], found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The files that are not as recorded, such as sources/classify.c. Pure."""
    return [
        f"{kind}/{name}"
        for kind in (SOURCES, OBJECTS)
        for name in sorted({*recorded.get(kind, {}), *found[kind]})
        if recorded.get(kind, {}).get(name) != found[kind].get(name)
    ]


def _sums(folder: Path, *endings: str) -> dict[str, str]:
    files = sorted(file for file in folder.iterdir() if file.suffix in endings)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
