"""What a pod may expect of its node: its class and promises, and where each comes from. Pure.

Highest first: the QoSProfile of the pod's policy; Koordinator's label and annotations; Katalyst's; the class
that Koordinator gives by the QoS class in Kubernetes (LS, where that has no floor and the pod has one).
Koordinator's come before Katalyst's because the
classes here are its classes: nothing is lost by mapping them. Where the two differ, a Misread says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from qos import keys
from qos.classes import CLASSES, promises_of
from qos.cluster.policy import Profile
from qos.pods.containers import NodePod
from qos.pods.peers import katalyst, koordinator
from qos.pods.peers.reading import Misread, Note, Reader, Said
from qos.promises import Overrides, Promises, Unsupported

_READERS: Final[Mapping[str, Reader]] = {**katalyst.ANNOTATIONS, **koordinator.ANNOTATIONS}
"""The reader of each annotation; later ones win."""

ANNOTATIONS: Final = frozenset({*_READERS, keys.KATALYST_LEVEL})
"""All annotations that are read; whoever stores pods may leave out the others."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A pod's class and promises; `of` has one container's.

    `class_source`, `sources`: where the class comes from, and each promise that is not simply the class's.
    `oom_score_adj`: of single containers, by name. `misread`: what had no effect, and why. `unsupported`:
    what was understood, and a mainline kernel or a plan cannot do as it was asked.
    """

    class_name: str
    class_source: str
    promises: Promises
    sources: Mapping[str, str] = field(default_factory=dict)
    oom_score_adj: Mapping[str, int] = field(default_factory=dict)
    misread: tuple[Misread, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()

    def of(self, container: str) -> Promises:
        """The promises of one container."""
        own = self.oom_score_adj.get(container)
        return self.promises if own is None else replace(self.promises, oom_score_adj=own)


def expectation(pod: NodePod, profile: Profile | None = None, *, floor: bool = False) -> Expectation:
    """What the pod may expect. Nothing on a pod raises.

    `profile`: the QoSProfile that its policy names. `floor`: a policy gives the pod one.
    """
    stated = list(_stated_classes(pod))
    class_name, source = _decided(pod, profile, stated, floor)
    said = _Collected(pod, class_name)
    for other in stated:
        if other.class_name not in CLASSES:
            said.misread_as(other.source, other.value, f"{other.why}; {source} says {class_name}")
        elif other.class_name != class_name:
            said.misread_as(other.source, other.value, f"has no effect: {source} says {class_name}")
    if source.startswith(_BY_QOS) and class_name in koordinator.UNLABELLED:
        said.add(f"no label {keys.KOORDINATOR_CLASS_LABEL}", Said(koordinator.UNLABELLED[class_name]))
    floor = floor and CLASSES[class_name].has_floor
    for key, reader in _READERS.items():
        if key in pod.annotations:
            said.read(key, reader, profile, floor)
    if profile:
        said.add(f"QoSProfile {profile.name}", Said(profile.overrides))
    return said.result(source)


def states_class(pod: NodePod) -> bool:
    """True if the pod itself states a class that there is."""
    return any(one.class_name in CLASSES for one in _stated_classes(pod))


_BY_QOS: Final = "QoS class "
_OF_POLICY: Final = "the floor of its policy"
_WITH_FLOOR: Final = "LS"
"""The class of a pod that has a floor, states no class, and would be of one without floors."""


class _Class(NamedTuple):
    """A class that the pod states: where, in which words, and why not, if it is none."""

    source: str
    value: str
    class_name: str
    why: str = ""


def _stated_classes(pod: NodePod) -> Iterator[_Class]:
    """The classes that the pod's labels and annotations state, the one that wins first."""
    label, level = keys.KOORDINATOR_CLASS_LABEL, keys.KATALYST_LEVEL
    if value := pod.labels.get(label):
        why = f"is none of {', '.join(CLASSES)}"
        yield _Class(f"label {label}", value, value, why)
    for kind, values in (("annotation", pod.annotations), ("label", pod.labels)):
        if value := values.get(level):
            why = f"is none of {', '.join(katalyst.CLASSES)}"
            yield _Class(f"{kind} {level}", value, katalyst.CLASSES.get(value, ""), why)


def _decided(pod: NodePod, profile: Profile | None, stated: list[_Class], floor: bool) -> tuple[str, str]:
    if profile:
        return profile.class_name, f"QoSProfile {profile.name}"
    for one in stated:
        if one.class_name in CLASSES:
            return one.class_name, one.source
    usual = koordinator.CLASS_OF_QOS[pod.qos]
    if floor and not CLASSES[usual].has_floor:
        return _WITH_FLOOR, _OF_POLICY
    return usual, f"{_BY_QOS}{pod.qos}"


class _Collected:
    """What has been read so far; later sources win over earlier ones."""

    def __init__(self, pod: NodePod, class_name: str) -> None:
        self._pod = pod
        self._class_name = class_name
        self._overrides = Overrides()
        self._oom_score_adj: dict[str, int] = {}
        self._sources: dict[str, str] = {}
        self._misread: list[Misread] = []
        self._unsupported: list[Unsupported] = []

    def misread_as(self, key: str, value: str, why: str) -> None:
        """Note what has no effect."""
        self._misread.append(Misread(f"{self._pod.namespace}/{self._pod.name}", key, value, why))

    def read(self, key: str, reader: Reader, profile: Profile | None, floor: bool) -> None:
        """Add what an annotation of the pod says, or why it says nothing."""
        text, source = self._pod.annotations[key], f"annotation {key}"
        so_far = promises_of(self._class_name, self._overrides)
        if profile:
            so_far = replace(so_far, **profile.overrides)
        try:
            said = reader(Note(text, self._class_name, self._pod.qos, so_far))
        except ValueError as error:
            return self.misread_as(source, text, str(error))
        if (profile or floor) and said.overrides.get("cpu_idle"):
            whose = f"the floor of QoSProfile {profile.name}" if profile else _OF_POLICY
            why = f"{whose} needs CPU, and an idle cgroup is promised none"
            return self.misread_as(source, text, why)
        return self.add(source, said)

    def add(self, source: str, said: Said) -> None:
        """Put this above all that was added before."""
        self._overrides.update(said.overrides)
        self._sources.update(dict.fromkeys(said.overrides, source))
        if "oom_score_adj" in said.overrides:
            self._oom_score_adj.clear()
        self._unsupported += said.unsupported
        for name in said.unknown:
            self.misread_as(source, name, "is no field of this annotation")
        names = {container.name for container in self._pod.containers}
        for name, value in said.oom_score_adj.items():
            if name in names:
                self._oom_score_adj[name] = value
            else:
                self.misread_as(source, name, "the pod has no such container")

    def result(self, class_source: str) -> Expectation:
        """All of it."""
        return Expectation(
            self._class_name,
            class_source,
            promises_of(self._class_name, self._overrides),
            self._sources,
            self._oom_score_adj,
            tuple(self._misread),
            tuple(self._unsupported),
        )
