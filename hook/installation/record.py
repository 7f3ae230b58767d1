"""What was installed, beside the code: for status, upgrades, and so that uninstall takes away just that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hook.installation import tree
from hook.installation.errors import InstallationError
from hook.installation.places import Places


@dataclass(frozen=True, slots=True)
class Record:
    """An installation. Paths as they are on disk, below the root if there is one.

    made: the folders that were not there before. containerd: a base runtime spec was written. chosen: what
    the administrator asked for, by option; "" for what was found.
    """

    tree: str
    python: str
    hooks_dir: str
    stage: str
    made: tuple[str, ...]
    containerd: bool = False
    chosen: Mapping[str, str] = field(default_factory=dict)


def read(places: Places) -> Record | None:
    """The record, None where nothing is installed; InstallationError when it cannot be read."""
    try:
        found = json.loads(places.record.read_text())
        return Record(**{**found, "made": tuple(found["made"])})
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InstallationError(f"{places.record}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise InstallationError(
            f"{places.record} is damaged ({error}): remove it, then install again"
        ) from error


def write(places: Places, record: Record) -> None:
    """Write it as a whole; raises InstallationError."""
    try:
        tree.write_file(places.record, (json.dumps(asdict(record), indent=2) + "\n").encode())
    except OSError as error:
        raise InstallationError(f"{places.record}: {error.strerror}") from error


def missing_folders(*folders: Path) -> list[Path]:
    """The folders, and their parents, that do not exist; parents first."""
    found: list[Path] = []
    for folder in folders:
        chain = [path for path in (folder, *folder.parents) if not path.exists()]
        found += [path for path in reversed(chain) if path not in found]
    return found
