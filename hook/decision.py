"""Whose settings a container gets, and what becomes of it when they fail. Pure: nothing is read or written.

What the cgroup's path says is trusted, because kubelet and the runtime made it. Annotations say which
container of its pod it is, pick a floor that root wrote for containers outside Kubernetes, and can be
stricter. Where they contradict the path, a container still gets what is for any of its pod or class.
"""

from hook.config import Config
from hook.state import State
from kernel.membership import pod_uid, qos_class

FLOOR_ANNOTATION = "j10ce.io/floor"
FAIL_ANNOTATION = "j10ce.io/hook-fail"

# How containerd and how CRI-O name the same four facts: kind, namespace, name and pod uid. Each sets its own,
# which a pod cannot change, but a pod may add the other's: only the family of the runtime that made the
# cgroup counts.
_CONTAINERD = (
    "io.kubernetes.cri.container-type",
    "io.kubernetes.cri.sandbox-namespace",
    "io.kubernetes.cri.container-name",
    "io.kubernetes.cri.sandbox-uid",
)
_CRIO = (
    "io.kubernetes.cri-o.ContainerType",
    "io.kubernetes.pod.namespace",
    "io.kubernetes.container.name",
    "io.kubernetes.pod.uid",
)
_OF_CRIO = "crio-"
"""Begins the name of a container's cgroup with either cgroup manager of CRI-O's, and with no other."""
_OF_PODMAN = "libpod-"
_OF_KUBERNETES = (_OF_CRIO, "cri-containerd-")

_FLOOR = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST_FLOOR = 63
_STATIC_UID = 32
"""Hexadecimal digits without a dash: the uid that kubelet gives a pod of its manifest folder."""

_LONGEST_LINE = 500


class Subject:
    """The identity of a container, as far as it can be trusted.

    namespace: of its pod; container: its name in its pod; each "" where the runtime does not say: then it
    gets what is for any container.
    folder, key: where its settings are ("pods", uid), ("floors", name) or ("", "") when it has none.
    qos: Guaranteed, Burstable, BestEffort, or Plain outside Kubernetes; "" while its cgroup is not known.
    problem: why it is refused, or "". exempt: it starts whatever happens. strict: its pod fails closed.
    """

    __slots__ = (
        *("container", "exempt", "folder", "key", "namespace", "pod_uid", "problem", "qos", "sandbox"),
        "strict",
    )

    def __init__(self, annotations: "dict[str, str]") -> None:
        self.pod_uid = ""
        self.namespace = ""
        self.qos = ""
        self.folder = self.key = ""
        self.container = ""
        self.problem = ""
        self.sandbox = False
        self.exempt = False
        self.strict = annotations.get(FAIL_ANNOTATION) == "closed"


class Verdict:
    """What becomes of the container: the hook's exit code, its line on stderr, the reason in the marker."""

    __slots__ = ("code", "line", "missed")

    def __init__(self, code: int, line: str, missed: str) -> None:
        self.code = code
        self.line = line
        self.missed = missed


def unplaced(state: State, config: Config) -> Subject:
    """The container's identity while its cgroup is not known: exempt at most, where all annotations agree."""
    subject = Subject(state.annotations)
    namespace = _agreed(state.annotations, _CONTAINERD[1], _CRIO[1])
    uid = _agreed(state.annotations, _CONTAINERD[3], _CRIO[3])
    subject.exempt = _is_exempt(uid, namespace, config)
    return subject


def identify(state: State, cgroup: str, config: Config) -> Subject:
    """The container's identity; `cgroup`: the path of its own cgroup, which holds its id (Target.cgroup).

    A subject with a problem has still what is trusted: its pod's uid and its class.
    """
    subject = unplaced(state, config)
    uid = pod_uid(cgroup)
    if uid:
        _of_pod(subject, uid, cgroup, state.annotations, config)
    elif _is_kubernetes(cgroup, state.annotations):
        subject.problem = f"no pod's uid is in its cgroup's path {cgroup}"
    else:
        subject.exempt = False
        subject.qos = qos_class(cgroup)
        _choose_floor(subject, state.annotations)
    return subject


def _of_pod(subject: Subject, uid: str, cgroup: str, annotations: "dict[str, str]", config: Config) -> None:
    family = _CRIO if _own_name(cgroup).startswith(_OF_CRIO) else _CONTAINERD
    kind, namespace, name, said = (annotations.get(key, "") for key in family)
    subject.pod_uid = subject.key = uid
    subject.folder = "pods"
    subject.namespace = namespace if is_label(namespace) else ""
    subject.qos = qos_class(cgroup)
    subject.exempt = _is_exempt(uid, namespace, config)
    subject.sandbox = kind == "sandbox"
    if said in ("", uid):
        subject.container = name
    else:
        subject.problem = f"annotation {family[3]} is not the pod uid of its cgroup"


def _is_kubernetes(cgroup: str, annotations: "dict[str, str]") -> bool:
    """Whether a container without a pod's uid in its path belongs to a pod nevertheless.

    podman's never is: what its annotations say, an image may have said.
    """
    name = _own_name(cgroup)
    if name.startswith(_OF_PODMAN):
        return False
    return (
        "/kubepods" in cgroup
        or name.startswith(_OF_KUBERNETES)
        or not annotations.keys().isdisjoint(_CONTAINERD + _CRIO)
    )


def _own_name(cgroup: str) -> str:
    return cgroup.rpartition("/")[2]


def _agreed(annotations: "dict[str, str]", *keys: str) -> str:
    """The one value of those keys that are there; "" when there is none, or they differ."""
    values = {annotations[key] for key in keys if key in annotations}
    return values.pop() if len(values) == 1 else ""


def misplaced(subject: Subject, parents: "set[str]", planned: str) -> str:
    """Why settings of levels above 0 are not for the cgroups above this container, or "".

    parents: the paths of its cgroup's parent; planned: the one that the settings' file names, or "". Where it
    names none, the parent must be the cgroup of the container's pod.
    """
    if planned:
        right = parents == {planned}
    else:
        right = bool(subject.pod_uid) and all(_is_pods_own(path, subject.pod_uid) for path in parents)
    if right:
        return ""
    there = " and ".join(sorted(parents))
    return (
        f"it is in {there}, its settings are for {planned or 'no parent'}: those above its own are left out"
    )


def _is_pods_own(cgroup: str, uid: str) -> bool:
    return pod_uid(cgroup) == uid and pod_uid(cgroup.rpartition("/")[0]) != uid


def is_label(text: str) -> bool:
    """True for a DNS label (RFC 1123): safe as a file's name."""
    inside = 0 < len(text) <= _LONGEST_FLOOR and _FLOOR.issuperset(text)
    return inside and text[0] != "-" and text[-1] != "-"


def _is_exempt(uid: str, namespace: str, config: Config) -> bool:
    static = len(uid) == _STATIC_UID and "-" not in uid
    return static or namespace in config.exempt


def _choose_floor(subject: Subject, annotations: "dict[str, str]") -> None:
    if FLOOR_ANNOTATION in annotations:
        floor = annotations[FLOOR_ANNOTATION]
        if is_label(floor):
            subject.folder, subject.key = "floors", floor
        else:
            subject.problem = f"annotation {FLOOR_ANNOTATION} is no floor's name"


def judge(subject: Subject, config: Config, problems: "list[str]", missed: str) -> Verdict:
    """What becomes of the container. problems: what failed; missed: why it has the node's default, or "".

    A pod without an entry is no failure: the reconciler looks after it. It is one for a pod that asked not to
    start without its settings.
    """
    closed = (config.closed or subject.strict) and not subject.exempt
    failures = [*problems, missed] if missed and subject.strict and missed not in problems else problems
    if not failures:
        return Verdict(0, "", missed)
    fate = "it must not start (fail closed)" if closed else "it starts all the same (fail open)"
    return Verdict(int(closed), f"{'; '.join(failures)}: {fate}", missed or failures[0])


def marker_name(subject: Subject, container_id: str) -> str:
    """The marker's file: one for all lives of a pod's container, or else the container's id.

    A container that starts again and again has a new id each time.
    """
    if not subject.pod_uid:
        return container_id
    return f"{subject.pod_uid}.{subject.container}" if is_label(subject.container) else subject.pod_uid


def marker(subject: Subject, container_id: str, reason: str) -> str:
    """What a marker says: four lines of a name, a tab and a value, which may be empty."""
    facts = (
        ("id", container_id),
        ("pod", subject.pod_uid),
        ("container", subject.container),
        ("reason", reason),
    )
    return "".join([f"{name}\t{one_line(value)}\n" for name, value in facts])


def one_line(text: str) -> str:
    """Text that may come from outside, as one line of printable ASCII of at most 500 characters."""
    safe = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return safe if len(safe) <= _LONGEST_LINE else safe[:_LONGEST_LINE] + " ..."
