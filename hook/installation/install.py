"""Puts the hook onto a node: the code first, then the hooks.d file by rename; again to upgrade or repair."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hook.installation import containerd, entry, imports, interpreter, record, runtimes, tree
from hook.installation.errors import InstallationError
from hook.installation.machine import alone, refuse_unprivileged, users
from hook.installation.places import Places
from hook.installation.record import Record
from hook.installation.runtimes import Runtime
from hook.installation.uninstall import remove


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the administrator chose; "" or None: as at the last installation, or by what is found.

    when: a key of entry.CONDITIONS. stage: createRuntime or prestart. containerd: with a base runtime spec.
    """

    python: Path | None = None
    when: str = ""
    stage: str = ""
    containerd: bool | None = None

    def after(self, before: Record | None) -> Wishes:
        """These choices, completed from the last installation's, so that an upgrade forgets nothing."""
        if before is None:
            return self
        known = dict(before.chosen)
        python = self.python or (Path(known["python"]) if known.get("python") else None)
        return Wishes(
            python,
            self.when or known.get("when", ""),
            self.stage or known.get("stage", ""),
            before.containerd if self.containerd is None else self.containerd,
        )

    @property
    def chosen(self) -> dict[str, str]:
        """The choices as the record has them."""
        return {"python": str(self.python or ""), "when": self.when, "stage": self.stage}


@dataclass(frozen=True, slots=True)
class Installed:
    """What install did. changed: files that were written; removed: superseded trees that nobody used."""

    record: Record
    definition: Path
    runtimes: tuple[Runtime, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


def install(places: Places, wishes: Wishes) -> Installed:
    """Install, upgrade or repair. Raises InstallationError; what was installed before then still works."""
    refuse_unprivileged("install")
    before = record.read(places)
    wishes = wishes.after(before)
    if before and before.containerd and not wishes.containerd:
        containerd.refuse_if_used(places)
    python = interpreter.choose(wishes.python)
    found = runtimes.find()
    files = imports.sources()
    folders = [places.home, places.definition.parent]
    folders += [places.base_spec.parent] if wishes.containerd else []
    planned = Record(
        tree=str(places.home / tree.name(files)),
        python=str(python.path),
        hooks_dir=places.hooks_dir,
        stage=wishes.stage or runtimes.stage(found),
        made=_make(folders, before),
        containerd=bool(wishes.containerd),
        chosen=wishes.chosen,
    )
    with alone(places.home):
        try:
            # The record first: whatever happens from here on, uninstall knows what to remove.
            record.write(places, planned)
            final = tree.put(places.home, files, python.path)
            hook = entry.oci(python.path, final, places)
            changed = _tell(places, planned, entry.CONDITIONS[wishes.when or "always"], hook, before)
        except BaseException:
            _give_up(places, before)
            raise
        removed = _remove_superseded(places, final, before)
    return Installed(planned, places.definition, tuple(found), tuple(changed), tuple(removed))


def _give_up(places: Places, before: Record | None) -> None:
    """Back to what was there, as far as it can be: the record, or nothing at all."""
    with suppress(InstallationError, OSError):
        if before is None:
            remove(places, record.read(places))
        else:
            record.write(places, before)
            if before.hooks_dir != places.hooks_dir:  # the one in the folder before still holds
                places.definition.unlink(missing_ok=True)


def _make(folders: list[Path], before: Record | None) -> tuple[str, ...]:
    """Make what is missing; answer the folders that uninstall shall remove."""
    missing = record.missing_folders(*folders)
    try:
        for folder in missing:
            folder.mkdir(mode=0o755, exist_ok=True)
            folder.chmod(0o755)
    except OSError as error:
        raise InstallationError(f"{error.filename}: {error.strerror}") from error
    known = list(before.made) if before else []
    return (*known, *(str(path) for path in missing if str(path) not in known))


def _tell(
    places: Places, planned: Record, when: Mapping[str, Any], hook: Mapping[str, Any], before: Record | None
) -> list[str]:
    """Tell the runtimes: the last step, because from here on containers run the hook."""
    content = entry.text(entry.definition(hook, when, planned.stage))
    faults = entry.faults(content)
    if faults:  # a malformed file fails every container
        raise InstallationError(f"{places.definition} would not fit hooks.d 1.0.0: {'; '.join(faults)}")
    wanted = {}
    if planned.containerd:
        wanted[places.base_spec] = entry.text(containerd.base_spec(hook, planned.stage))
    wanted[places.definition] = content
    changed = []
    try:
        for path, text in wanted.items():
            if not path.is_file() or path.read_bytes() != text.encode():
                tree.write_file(path, text.encode())
                changed.append(str(path))
        if before and before.containerd and not planned.containerd:
            places.base_spec.unlink(missing_ok=True)
            changed.append(str(places.base_spec))
        if before and before.hooks_dir != places.hooks_dir:  # the hook must not run twice
            old = Places(places.root, before.hooks_dir).definition
            old.unlink(missing_ok=True)
            changed.append(str(old))
    except OSError as error:
        raise InstallationError(f"{error.filename}: {error.strerror}") from error
    return changed


def _remove_superseded(places: Places, current: Path, before: Record | None) -> list[str]:
    """Remove older trees, but not the last one, which a runtime may just have read of, nor those in use.

    With a base spec none: containerd reads it only when it starts, so it may still name any of them.
    """
    kept = {str(current), before.tree if before else ""}
    removed = []
    for old in tree.trees(places.home):
        if str(old) in kept or users(old) or (places.base_spec.exists() and not tree.is_draft(old)):
            continue
        shutil.rmtree(old, ignore_errors=True)
        removed.append(str(old))
    return removed
