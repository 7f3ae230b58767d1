"""The owner of a cgroup, from a process's /proc/PID/cgroup (cgroups(7)): container, pod, QoS class. Pure.

Names are those of kubelet (both cgroup drivers), runc, crun, podman and systemd. All input is distrusted: a
path that is not plainly the container's own is refused.
"""

from kernel.refused import Gone, Refused

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"
PLAIN = "Plain"
"""The QoS class of what is no pod: podman and plain OCI containers."""

_DELETED = " (deleted)"
_HEX = frozenset("0123456789abcdef")
_ID = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-.")
_LONGEST_ID = 255


def paths(cgroup: str) -> "dict[str, str]":
    """Path of the process in each hierarchy: v1 controller -> path, "" -> the path in cgroup v2."""
    found: dict[str, str] = {}
    for line in cgroup.split("\n"):
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon:
            continue
        if number == "0":
            found[""] = path
        else:
            for controller in controllers.split(","):
                if controller:
                    found[controller] = path
    return found


def container_path(path: str, container_id: str) -> str:
    """The container's own cgroup: `path`, or the ancestor of it whose name holds the id.

    crun with systemd puts the process one level further down. Raises Refused for the root, for "..", for an
    id that is none and for a path without the id; Gone for a removed cgroup.
    """
    if not is_id(container_id):
        raise Refused("not a container's id: letters, digits and _+-. only", value=container_id[:80])
    if path.endswith(_DELETED):
        raise Gone("the cgroup was removed", path)
    if path == "/":
        raise Refused("the process is in the root cgroup: it has ended, or is no container's", path)
    parts = path.split("/")
    if parts[0] or not all(parts[1:]) or ".." in parts or "." in parts:
        raise Refused("not a path from the hierarchy's root (is it outside of our cgroup namespace?)", path)
    for end in range(len(parts), 1, -1):
        if _holds(parts[end - 1], container_id):
            return "/".join(parts[:end])
    raise Refused("no part of the cgroup's path holds the container's id " + container_id, path)


def is_id(text: str) -> bool:
    """True for what runc and crun take as a container's id."""
    return 0 < len(text) <= _LONGEST_ID and _ID.issuperset(text) and text not in (".", "..")


def _holds(component: str, container_id: str) -> bool:
    """`ID`, or an engine's `PREFIX-ID`, with or without systemd's `.scope`."""
    if component.endswith(".scope"):
        component = component[:-6]
    return component == container_id or component.endswith("-" + container_id)


def pod_uid(path: str) -> str:
    """The uid of the pod whose cgroup is on the path, "" if none; of several the innermost."""
    return _pod(path)[0]


def qos_class(path: str) -> str:
    """GUARANTEED, BURSTABLE or BEST_EFFORT, as kubelet's names say it; PLAIN where no pod is on the path."""
    return _pod(path)[1]


def _pod(path: str) -> "tuple[str, str]":
    parts = path.split("/")
    for index in range(len(parts) - 1, 0, -1):
        part = parts[index]
        if part.startswith("pod"):
            uid, tier = part[3:], _cgroupfs_tier(parts[:index])
        elif part.endswith(".slice") and "-pod" in part:
            uid, tier = _systemd(part[:-6])
        else:
            continue
        if tier and _is_uid(uid):
            return uid, tier
    return "", PLAIN


def _cgroupfs_tier(above: "list[str]") -> str:
    if above[-1] == "kubepods":
        return GUARANTEED
    if len(above) > 1 and above[-2] == "kubepods":
        return {"burstable": BURSTABLE, "besteffort": BEST_EFFORT}.get(above[-1], "")
    return ""


def _systemd(stem: str) -> "tuple[str, str]":
    """kubepods-burstable-podUID, where UID has _ for -; kubelet's --cgroup-root may stand before it."""
    parts = stem.split("-")
    uid = parts.pop()[3:].replace("_", "-")
    if parts[-1] == "kubepods":
        return uid, GUARANTEED
    if len(parts) > 1 and parts[-2] == "kubepods":
        return uid, {"burstable": BURSTABLE, "besteffort": BEST_EFFORT}.get(parts[-1], "")
    return uid, ""


def _is_uid(uid: str) -> bool:
    """A UUID, or the 32 hexadecimal digits that kubelet gives a static pod."""
    if len(uid) == 32:
        return _HEX.issuperset(uid)
    groups = uid.split("-")
    return [len(group) for group in groups] == [8, 4, 4, 4, 12] and _HEX.issuperset("".join(groups))
