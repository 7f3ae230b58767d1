"""What is usually behind an errno of a kernel file."""

import errno

from kernel.allowed import HINTS

_OF_ERRNO = {
    errno.ENOENT: "this kernel or this cgroup does not have it",
    errno.ENODEV: "there is no such device",
    errno.EROFS: "it is mounted read-only",
    errno.EACCES: "needs root",
    errno.EPERM: "needs root",
}


def of(file: str, number: int) -> str:
    """The hint, with what joins it to the kernel's words; "" where we know of none."""
    hint = HINTS.get((file, errno.errorcode.get(number, ""))) or (_OF_ERRNO.get(number) if file else "")
    return " (" + hint + ")" if hint else ""
