"""The files of a folder of Kubernetes objects: each read when it changes, its last good state kept."""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from adapters.documents import DocumentsError, Problem
from adapters.kubernetes.node_pods import cgroup_uid
from adapters.pod_files import BUILT_IN_CLASSES, Objects, Origin, PodEntry, read_objects
from agent.state import Known, KnownPod
from qos import keys
from qos.cluster.policy import Policy, Profile
from qos.cluster.precedence import PriorityClass

_ENDINGS: Final = (".yaml", ".yml", ".json")
_Signature: TypeAlias = tuple[int, ...]
"""Mode, device, inode, size, time of the last change; () where the file cannot be looked at."""


class Item(NamedTuple):
    """An object as Known has it, its kind, its key there, and the line in its file (0: not known)."""

    kind: str
    key: str
    value: KnownPod | Policy | Profile
    line: int = 0


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file as it was last read.

    items, classes: its last good state; None: there was none yet. problems: why its present state is not
    good. elsewhere: the PriorityClasses of other files that it was read with.
    """

    signature: _Signature
    items: tuple[Item, ...] | None
    classes: Mapping[str, PriorityClass]
    problems: tuple[Problem, ...]
    elsewhere: Mapping[str, PriorityClass]


@dataclass(slots=True)
class Merged:
    """What all files together say. complete: each of them has a good state."""

    known: Known = field(default_factory=Known)
    problems: list[Problem] = field(default_factory=list)
    complete: bool = True


def read_folder(folder: Path, before: Mapping[Path, ReadFile]) -> dict[Path, ReadFile]:
    """Its files, in the order of their names; those that did not change are not read again.

    OSError: there is no such folder, or everybody may write there: it decides about the whole node.
    """
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise PermissionError(errno.EPERM, "everybody may write there: chmod o-w")
    signatures = dict(_files(folder))
    found = {file: before[file] for file in signatures if file in before}
    # Twice: a PriorityClass in one file decides the priority of pods in others.
    for _ in range(2):
        elsewhere = _classes(found)
        for file, signature in signatures.items():
            there = found.get(file)
            if there is None or (there.signature, there.elsewhere) != (signature, elsewhere):
                found[file] = _read(file, signature, elsewhere, there)
    return {file: found[file] for file in signatures}


def merge(files: Mapping[Path, ReadFile]) -> Merged:
    """Everything in the folder; of two objects of one kind and name the first counts, and the other is a
    problem.
    """
    merged = Merged(Known(priority_classes=_classes(files)))
    into: dict[str, dict[str, Any]] = {
        "Pod": merged.known.pods,
        "MinimalReservationPolicy": merged.known.policies,
        "QoSProfile": merged.known.profiles,
    }
    first: dict[tuple[str, str], Path] = {}
    for file, one in files.items():
        merged.problems += one.problems
        merged.complete &= one.items is not None
        for item in one.items or ():
            if (item.kind, item.key) in first:
                why = (
                    f"{item.kind} {item.key} is in {first[item.kind, item.key]} already: this one is left out"
                )
                merged.problems.append(Problem(file, item.line, "", why))
                continue
            first[item.kind, item.key] = file
            into[item.kind][item.key] = item.value
    return merged


def _files(folder: Path) -> Iterator[tuple[Path, _Signature]]:
    for file in sorted(folder.iterdir()):
        if file.suffix in _ENDINGS and not file.name.startswith("."):
            try:
                status = file.stat()
            except OSError:  # gone meanwhile, or a link to nothing: reading it says so
                yield file, ()
                continue
            yield file, (status.st_mode, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _classes(files: Mapping[Path, ReadFile]) -> dict[str, PriorityClass]:
    found = dict(BUILT_IN_CLASSES)
    for one in files.values():
        found.update(one.classes)
    return found


def _read(
    file: Path, signature: _Signature, elsewhere: Mapping[str, PriorityClass], before: ReadFile | None
) -> ReadFile:
    try:
        if signature and signature[0] & stat.S_IWOTH:
            raise DocumentsError([Problem(file, 0, "", "everybody may write it: chmod o-w")])
        objects = read_objects([file], elsewhere)
    except DocumentsError as error:
        items, classes = (before.items, before.classes) if before else (None, {})
        return ReadFile(signature, items, classes, error.problems, elsewhere)
    return ReadFile(signature, tuple(_items(objects)), objects.classes, (), elsewhere)


def _items(objects: Objects) -> Iterator[Item]:
    """Without the documents they were read from, which take a hundred times the memory.

    A workload is no pod of this node: only Pods count.
    """
    for entry in objects.pods:
        if entry.kind == "Pod":
            known = _known_pod(entry)
            yield Item("Pod", known.pod.uid, known, _line(entry.origin))
    for policy, origin in objects.policies:
        namespace = policy.namespace or "default"
        policy = replace(policy, namespace=namespace, key=f"{namespace}/{policy.name}")
        yield Item("MinimalReservationPolicy", policy.key, policy, _line(origin))
    for name, profile in objects.profiles.items():
        yield Item("QoSProfile", name, profile)


def _known_pod(entry: PodEntry) -> KnownPod:
    """A pod without a uid is called namespace/name until the runtime has it."""
    pod = entry.pod
    uid = cgroup_uid(pod.uid, pod.annotations) or f"{pod.namespace}/{pod.name}"
    return KnownPod(replace(pod, uid=uid), policy=pod.annotations.get(keys.POLICY_ANNOTATION))


def _line(origin: Origin) -> int:
    return origin.problem("", "").line
