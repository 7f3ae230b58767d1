"""Pods, workloads, policies and profiles from people's YAML files, and where each is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ruamel.yaml.comments import CommentedMap

from adapters import written_policies
from adapters.documents import DocumentsError, Problem, line_of, path_of, read
from adapters.kubernetes.wire import DecodeError
from qos import keys
from qos.cluster.policy import Policy, Profile
from qos.cluster.precedence import PriorityClass, PriorityClasses
from qos.pods.containers import NodePod, from_manifest
from qos.pods.decision import selecting

EXPECTED: Final = "expected Kubernetes objects: mappings with apiVersion, kind, metadata and spec"
BUILT_IN_CLASSES: Final = {
    "system-cluster-critical": PriorityClass(keys.SYSTEM_CRITICAL_PRIORITY),
    "system-node-critical": PriorityClass(keys.SYSTEM_CRITICAL_PRIORITY + 1000),
}
_TEMPLATES: Final = {
    "Pod": "",
    "PodTemplate": "template",
    "CronJob": "spec.jobTemplate.spec.template",
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"),
        "spec.template",
    ),
}
"""Where a kind has its pod. Another kind is a workload where spec.template.spec has containers."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an object is written. `prefix`: the path of its pod template, "" where it is a pod itself."""

    file: Path
    document: CommentedMap
    prefix: str = ""

    def problem(self, written: str, message: str) -> Problem:
        """A problem with a field (spec.containers[0].name), or with the object where that is ""."""
        return Problem(self.file, line_of(self.document, path_of(self.document, written)), written, message)


@dataclass(frozen=True, slots=True)
class PodEntry:
    """A pod, or the pods of a workload: `kind` and `pod.name` are the workload's."""

    kind: str
    pod: NodePod
    origin: Origin

    @property
    def title(self) -> str:
        """Kind namespace/name."""
        return f"{self.kind} {self.pod.namespace}/{self.pod.name}"


@dataclass(slots=True)
class Objects:
    """What was read, in the order of the files; policies the one that wins first."""

    pods: list[PodEntry] = field(default_factory=list)
    policies: list[tuple[Policy, Origin]] = field(default_factory=list)
    profiles: dict[str, Profile] = field(default_factory=dict)
    classes: dict[str, PriorityClass] = field(default_factory=lambda: dict(BUILT_IN_CLASSES))

    def policies_of(self, pod: NodePod) -> list[tuple[Policy, Origin]]:
        """The policies that select a pod, in their precedence: the first wins."""
        origins = {id(policy): origin for policy, origin in self.policies}
        classes = PriorityClasses(self.classes)
        found = selecting(pod, (policy for policy, _ in self.policies), self.profiles, classes)
        return [(policy, origins[id(policy)]) for policy in found]


def read_objects(files: Iterable[Path], classes: Mapping[str, PriorityClass] | None = None) -> Objects:
    """What a plan needs of the files; other kinds are passed over. DocumentsError has all problems.

    classes: PriorityClasses that are elsewhere.
    """
    problems: list[Problem] = []
    documents: list[tuple[Path, CommentedMap]] = []
    for file in files:
        try:
            documents += [(file, one) for document in read(file, EXPECTED) for one in _items(document)]
        except DocumentsError as error:
            problems += error.problems
    found = Objects()
    # Pods last: a PriorityClass may be written below them.
    for wanted in (_read_rules, partial(_read_pods, elsewhere=classes or {})):
        for file, document in documents:
            try:
                wanted(found, file, document)
            except DocumentsError as error:
                problems += error.problems
    if problems:
        raise DocumentsError(problems)
    return found


def plain(document: CommentedMap, origin: Origin) -> dict[str, Any]:
    """A document as JSON has it. DocumentsError."""
    try:
        made: dict[str, Any] = json.loads(json.dumps(document, default=str))
    except (ValueError, TypeError, RecursionError) as error:
        raise DocumentsError([origin.problem("", f"is not what JSON can say: {error}")]) from None
    return made


def _items(document: CommentedMap) -> Iterator[CommentedMap]:
    """The document, or what a List has in it."""
    items = document.get("items")
    if document.get("kind") == "List" and isinstance(items, list):
        yield from (item for item in items if isinstance(item, CommentedMap))
    else:
        yield document


def _read_rules(found: Objects, file: Path, document: CommentedMap) -> None:
    origin = Origin(file, document)
    group = str(document.get("apiVersion", "")).partition("/")[0]
    match group, document.get("kind"):
        case keys.GROUP, "MinimalReservationPolicy":
            found.policies.append((_decoded(written_policies.policy, origin), origin))
        case keys.GROUP, "QoSProfile":
            profile = _decoded(written_policies.profile, origin)
            if profile.name in found.profiles:
                message = f"another QoSProfile here is called {profile.name}"
                raise DocumentsError([origin.problem("metadata.name", message)])
            found.profiles[profile.name] = profile
        case "scheduling.k8s.io", "PriorityClass":
            name, value = _at(document, "metadata").get("name"), document.get("value")
            if isinstance(name, str) and isinstance(value, int):
                is_default = document.get("globalDefault") is True
                found.classes[name] = PriorityClass(int(value), is_default)
        case _:
            return


def _decoded(decode: Callable[[bytes], T], origin: Origin) -> T:
    try:
        return decode(json.dumps(plain(origin.document, origin)).encode())
    except DecodeError as error:
        problem = origin.problem(error.field, "")
        raise DocumentsError([Problem(origin.file, problem.line, "", str(error))]) from None


def _read_pods(
    found: Objects, file: Path, document: CommentedMap, *, elsewhere: Mapping[str, PriorityClass]
) -> None:
    prefix = _template(document)
    if prefix is None:
        return
    origin = Origin(file, document, prefix)
    whole = plain(document, origin)
    kind = str(whole.get("kind", "Pod"))
    manifest = _at(whole, prefix)
    if prefix:
        manifest = {**manifest, "kind": "Pod", "metadata": _metadata(whole, manifest)}
    try:
        pod = from_manifest(_with_priority(manifest, {**elsewhere, **found.classes}))
    except ValueError as error:
        raise DocumentsError([_at_fault(origin, kind, str(error))]) from None
    found.pods.append(PodEntry(kind, pod, origin))


def _template(document: CommentedMap) -> str | None:
    """The path of the pod in an object: "" for a pod; None: it has none."""
    known = _TEMPLATES.get(str(document.get("kind")))
    if known is not None:
        return known
    spec = _at(document, "spec.template.spec")
    return "spec.template" if "containers" in spec else None


def _at(document: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """What is at the path, {} where there is nothing or something else than a mapping."""
    inner: Any = document
    for part in path.split(".") if path else ():
        inner = inner.get(part)
        if not isinstance(inner, Mapping):
            return {}
    return document if not path else inner


def _metadata(whole: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """The template's metadata under the workload's name and namespace."""
    own, inner = _at(whole, "metadata"), _at(template, "metadata")
    return {**inner, "name": own.get("name") or own.get("generateName"), "namespace": own.get("namespace")}


def _with_priority(manifest: Mapping[str, Any], classes: Mapping[str, PriorityClass]) -> Mapping[str, Any]:
    """The API server writes a PriorityClass's value into the pod; so do we, where the class is known."""
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping) or spec.get("priority") is not None:
        return manifest
    found = classes.get(str(spec.get("priorityClassName")))
    return manifest if found is None else {**manifest, "spec": {**spec, "priority": found.value}}


def _at_fault(origin: Origin, kind: str, message: str) -> Problem:
    """A message of from_manifest ([Pod namespace/name: ]field: value and why) in the terms of the file."""
    named, _, rest = (
        message.removeprefix("Pod ").partition(": ") if message.startswith("Pod ") else ("", "", message)
    )
    written, _, why = rest.partition(": ")
    of_workload = not origin.prefix or written.startswith(("metadata.name", "kind"))
    written = written if of_workload else f"{origin.prefix}.{written}"
    line = origin.problem(written, "").line
    return Problem(origin.file, line, "", f"{kind} {named}".rstrip() + f": {written}: {why}")
