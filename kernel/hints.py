"""What is usually behind an errno of a kernel file: measured, or from the kernel's cgroup documents."""

import errno

_OF_FILE = {
    ("cpu.weight", errno.EINVAL): "a cgroup with cpu.idle 1 takes no weight",
    ("cpu.shares", errno.EINVAL): "a cgroup with cpu.idle 1 takes no shares",
    ("cpu.max", errno.EINVAL): "the quota is less than cpu.max.burst",
    ("cpu.max.burst", errno.EINVAL): "more than the quota in cpu.max",
    (
        "cpu.cfs_quota_us",
        errno.EINVAL,
    ): "more than the parent's, less than a child's or than cpu.cfs_burst_us",
    ("cpu.cfs_burst_us", errno.EINVAL): "more than cpu.cfs_quota_us",
    ("memory.limit_in_bytes", errno.EINVAL): "more than memory.memsw.limit_in_bytes",
    ("memory.memsw.limit_in_bytes", errno.EINVAL): "less than memory.limit_in_bytes",
    ("memory.limit_in_bytes", errno.EBUSY): "the cgroup uses more, and it cannot be reclaimed now",
    ("memory.memsw.limit_in_bytes", errno.EBUSY): "the cgroup uses more, and it cannot be reclaimed now",
    ("cpuset.cpus", errno.EACCES): "not all of them are the parent's",
    ("cpuset.cpus", errno.EINVAL): "not all of them are there, or the parent's",
    ("cpuset.cpus", errno.EBUSY): "a cgroup below needs them",
    ("cpuset.cpus", errno.ENOSPC): "a cgroup with processes needs a CPU",
    ("oom_score_adj", errno.EACCES): "to lower it needs CAP_SYS_RESOURCE",
    ("io.max", errno.ENODEV): "there is no such disk",
}

_OF_ERRNO = {
    errno.ENOENT: "this kernel or this cgroup does not have it",
    errno.ENODEV: "there is no such device",
    errno.EROFS: "it is mounted read-only",
    errno.EACCES: "needs root",
    errno.EPERM: "needs root",
}


def of(file: str, number: int) -> str:
    """The hint, with what joins it to the kernel's words; "" where we know of none."""
    hint = _OF_FILE.get((file, number)) or (_OF_ERRNO.get(number) if file else "")
    return " (" + hint + ")" if hint else ""
