"""What is installed and whether it is sound: code, interpreter, hooks.d file, runtimes, settings, markers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from hook import config
from hook.installation import containerd, daemon, entry, imports, interpreter, record, runtimes, tree
from hook.installation.errors import InstallationError
from hook.installation.places import HOOKS_DIRS, Places
from hook.installation.record import Record
from kernel.refused import Refused


class Severity(Enum):
    """good; note: worth knowing; wrong: containers do not get their floors, or do not start."""

    GOOD = "good"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the status."""

    name: str
    severity: Severity
    text: str


def status(places: Places) -> list[Fact]:
    """All facts, the installation first; nothing is changed. Any user may ask, who sees less than root."""
    found = record.read(places)
    if found is not None:
        places = Places(places.root, found.hooks_dir)
    return [
        *_installation(places, found),
        *_hooks_dirs(places, found),
        *_runtimes(found),
        *_containerd(places, found),
        *_settings(places),
    ]


def _installation(places: Places, found: Record | None) -> Iterator[Fact]:
    if found is None:
        yield Fact("installed", Severity.WRONG, f"no: {places.record} is missing; `j10ce hook install`")
        return
    files = imports.sources()
    other = Path(found.tree).name != tree.name(files)
    damaged = [*([] if other else tree.damage(Path(found.tree), files)), *tree.spoiled(Path(found.tree))]
    if damaged:
        yield Fact(
            "code", Severity.WRONG, f"{found.tree}: {', '.join(damaged)} missing or changed; install again"
        )
    elif other:
        yield Fact(
            "code", Severity.NOTE, f"{found.tree}: another version than this j10ce; install again to upgrade"
        )
    else:
        yield Fact("code", Severity.GOOD, found.tree)
    older = [str(path) for path in tree.trees(places.home) if str(path) != found.tree]
    if older:
        yield Fact("older code", Severity.NOTE, f"{', '.join(older)}: removed by a later install when unused")
    yield _python(found)


def _python(found: Record) -> Fact:
    try:
        python = interpreter.examine(Path(found.python))
    except InstallationError as error:
        return Fact("interpreter", Severity.WRONG, f"{error}; install again")
    tag = f"cpython-{python.version[0]}{python.version[1]}-"
    if not any(path.name.startswith(tag) for path in Path(found.tree).glob("*.bundle")):
        return Fact(
            "interpreter",
            Severity.NOTE,
            f"{python}: the bytecode is another Python's, which costs milliseconds a start; install again",
        )
    return Fact("interpreter", Severity.GOOD, str(python))


def _hooks_dirs(places: Places, found: Record | None) -> Iterator[Fact]:
    """Ours, and all others there: one malformed file fails every container of podman and CRI-O."""
    if places.hooks_dir != HOOKS_DIRS[0]:
        text = f"{places.hooks_dir}: podman reads it only with --hooks-dir, or hooks_dir in containers.conf"
        yield Fact("hooks.d", Severity.NOTE, text)
    if not places.definition.is_file():
        yield Fact("hooks.d", Severity.WRONG, f"{places.definition} is missing; `j10ce hook install`")
    for folder in dict.fromkeys((places.hooks_dir, *HOOKS_DIRS)):
        for path in sorted(places.below(folder).glob("*.json")):
            yield _definition(path, ours=path == places.definition)
    yield from _of_the_record(places, found)
    both = [path for folder in HOOKS_DIRS if (path := places.below(folder) / places.definition.name).exists()]
    if len(both) > 1:
        text = f"{' and '.join(map(str, both))}: one hides the other, or the hook runs twice; remove one"
        yield Fact("hooks.d", Severity.WRONG, text)


def _of_the_record(places: Places, found: Record | None) -> Iterator[Fact]:
    """Whether ours is what install wrote: a sound file may name a tree or an interpreter that is gone."""
    try:
        content = json.loads(places.definition.read_text())
        args = content["hook"]["args"]
    except (OSError, ValueError, TypeError, KeyError):
        return  # said already
    if found is None:
        return
    hook = entry.oci(Path(found.python), Path(found.tree), places)
    if Path(found.tree).name != tree.name(imports.sources()):
        hook["args"][4:5] = args[4:5]  # another version's text
    wanted = entry.definition(hook, entry.CONDITIONS[found.chosen.get("when") or "always"], found.stage)
    if content == wanted:
        return
    parts = {**wanted, **{f"hook.{key}": value for key, value in hook.items()}}
    there = {**content, **{f"hook.{key}": value for key, value in content["hook"].items()}}
    differ = sorted(key for key in parts.keys() | there.keys() if parts.get(key) != there.get(key))
    differ.remove("hook") if len(differ) > 1 and "hook" in differ else None
    text = f"{places.definition}: {', '.join(differ)} not as it was installed; `j10ce hook install`"
    yield Fact("hooks.d", Severity.WRONG, text)


def _definition(path: Path, *, ours: bool) -> Fact:
    try:
        faults = entry.faults(path.read_text(errors="replace"))
    except OSError as error:
        return Fact("hooks.d", Severity.NOTE, f"{path}: {error.strerror}")
    if not faults:
        return Fact("hooks.d", Severity.GOOD, f"{path}: valid")
    severity = Severity.WRONG if ours else Severity.NOTE
    return Fact("hooks.d", severity, f"{path}: {faults[0]}; podman and CRI-O start no container with it")


def _runtimes(found: Record | None) -> Iterator[Fact]:
    there = runtimes.find()
    if not there:
        yield Fact("runtimes", Severity.NOTE, f"none of {', '.join(runtimes.KNOWN)} is on PATH")
    for runtime in there:
        if found and found.stage == entry.CREATE_RUNTIME and runtime.ignores_create_runtime:
            text = f"{runtime}: ignores the stage {found.stage}; install again with --stage {entry.PRESTART}"
            yield Fact("runtime", Severity.WRONG, text)
        else:
            yield Fact("runtime", Severity.GOOD, str(runtime))


def _containerd(places: Places, found: Record | None) -> Iterator[Fact]:
    """Only where there is containerd, or something of it."""
    running = list(daemon.configurations(daemon.running()))
    injected = containerd.by_nri(places, running)
    named = containerd.users_of_base_spec(places, running)
    if injected:
        in_use, text = injected
        yield Fact("containerd by NRI", Severity.GOOD if in_use else Severity.NOTE, text)
    if named:
        there = places.base_spec.is_file()
        text = f"{', '.join(named)} names {places.base_spec}"
        yield Fact(
            "containerd by base spec",
            Severity.GOOD if there else Severity.WRONG,
            text if there else f"{text}, which is missing: containerd will not start",
        )
    if not injected and not named and (running or runtimes.find(("containerd",))):
        wanting = "its hook-injector is not there, and no configuration names a base spec of ours"
        severity = Severity.NOTE if found else Severity.GOOD
        yield Fact("containerd", severity, f"starts containers without the hook: {wanting} (docs/hook.md)")


def _settings(places: Places) -> Iterator[Fact]:
    try:
        settings = config.read(str(places.config))
        fate = "closed" if settings.closed else "open"
        exempt = ", ".join(sorted(settings.exempt))
        text = f"fail {fate}, budget {settings.budget * 1000:.0f} ms, exempt {exempt}"
        origin = str(places.config) if places.config.exists() else f"defaults, no {places.config}"
        yield Fact("settings", Severity.GOOD, f"{text} ({origin})")
    except Refused as refused:
        yield Fact("settings", Severity.WRONG, f"{refused}: the defaults hold (fail open)")
    counts = {name: _count(places.run / name) for name in ("pods", "floors", "defaults", "missed")}
    if None in counts.values():
        yield Fact("entries", Severity.NOTE, f"{places.run} is for root to read")
        return
    text = ", ".join(f"{count} {name}" for name, count in counts.items() if name != "missed")
    yield Fact("entries", Severity.GOOD, f"{places.run}: {text}")
    if counts["missed"]:
        missed = f"{counts['missed']} containers started without their own settings"
        yield Fact("missed", Severity.NOTE, f"{places.run}/missed: {missed}")


def _count(folder: Path) -> int | None:
    """Files in a folder; 0 where there is none, None where it may not be read."""
    try:
        return sum(not path.name.startswith(".") for path in folder.iterdir())
    except FileNotFoundError:
        return 0
    except PermissionError:
        return None
