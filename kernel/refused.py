"""What is not done, and why: the one exception of kernel/. It names the object, the file and the value."""

import errno as numbers
import posix


class Refused(Exception):  # noqa: N818 - reads as what happened
    """Something that was not opened, read or written.

    `group`: the cgroup's path, or /proc/PID; `file`, `value`: of the setting, "" where it is about none;
    `errno`: the kernel's, 0 when it is our rule, or when the kernel kept another value.
    """

    def __init__(self, text: str, group: str = "", file: str = "", value: str = "", errno: int = 0) -> None:
        super().__init__(text, group, file, value, errno)
        self.text = text
        self.group = group
        self.file = file
        self.value = value
        self.errno = errno

    def __str__(self) -> str:
        what = " of ".join([word for word in (self.file, self.group) if word])
        if self.value:
            what = (what + " = " if what else "") + self.value
        why = self.text
        if self.errno:
            why = numbers.errorcode.get(self.errno, str(self.errno)) + ": " + why
        return what + ": " + why if what else why


class Gone(Refused):
    """The process has ended, or its cgroup was removed: there is nothing to keep a floor for any more."""


GONE = (numbers.ENOENT, numbers.ESRCH, numbers.ENODEV)
"""The errno values with which the kernel says that a process or a cgroup is no more (or one of its files)."""


def from_os(error: OSError, group: str = "", file: str = "", value: str = "") -> Refused:
    """An error of the kernel as a refusal, with what usually is behind it."""
    from kernel import hints

    number = error.errno or 0
    return Refused(posix.strerror(number) + hints.of(file, number), group, file, value, number)
