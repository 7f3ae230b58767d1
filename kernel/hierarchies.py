"""Where the cgroup hierarchies are mounted, from /proc/self/mountinfo (proc_pid_mountinfo(5)). Pure."""

CONTROLLERS = (
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "blkio",
    "pids",
    "devices",
    "freezer",
    "net_cls",
    "net_prio",
)
"""The controllers of cgroup v1 that matter to us."""

UNIFIED = ""
"""Stands for the hierarchy of cgroup v2."""

_FLAGS = ("rw", "ro", "xattr", "clone_children", "noprefix", "cpuset_v2_mode")


def mounts(mountinfo: str) -> "dict[str, str]":
    """Mountpoint of each of CONTROLLERS and, under UNIFIED, of cgroup v2, as every_mount has them."""
    known = (UNIFIED, *CONTROLLERS)
    return {name: place for name, place in every_mount(mountinfo).items() if name in known}


def every_mount(mountinfo: str) -> "dict[str, str]":
    """Mountpoint of each hierarchy: v1's by controller or by name (name=systemd), UNIFIED of cgroup v2.

    Only mounts of a hierarchy's root count: a bind mount of a part of it would shift all paths. Of several
    mounts of one hierarchy the first is taken. Lines that are no cgroup mounts are skipped.
    """
    found: dict[str, str] = {}
    for line in mountinfo.split("\n"):
        if " - cgroup" not in line:
            continue
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        kind, _, rest = right.partition(" ")
        if len(fields) < 6 or fields[3] != "/":
            continue
        if kind == "cgroup2":
            found.setdefault(UNIFIED, _plain(fields[4]))
        elif kind == "cgroup":
            for option in rest.rpartition(" ")[2].split(","):
                if option not in _FLAGS and not option.startswith("release_agent="):
                    found.setdefault(option, _plain(fields[4]))
    return found


def _plain(text: str) -> str:
    """The path without the kernel's octal escapes for blank, tab, newline and, last, backslash."""
    if "\\" in text:
        for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            text = text.replace(escape, character)
    return text
