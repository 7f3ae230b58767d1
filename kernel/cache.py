"""The small files that tell the hook what to write: one a pod, a named floor or a QoS class.

ASCII lines, fields separated by one TAB (shown as blanks):

    j10ce  1  KEY                    the key is the file's name
    until  SECONDS                   on CLOCK_BOOTTIME; 0: for ever
    promised  cpu  MILLICORES        or none: the CPU floor, for whoever plans what runs beside it
    parent  /PATH                    or none: the cgroup that levels above 0 are counted from, as level 1
    container  NAME                  ANY: every container that is not named
    LEVEL  MODE  FILE  VALUE         its settings, in raising order
    end  N                           the number of bytes before this line

A file is taken as a whole or not at all: any byte that is missing or not as it says makes it bad.

A container elsewhere than below that parent has other cgroups above it than those that were planned, and
whoever applies the settings leaves levels above 0 out. A pod's file needs no such line: its uid says where.
"""

import posix
import time

from kernel import values
from kernel.allowed import ALLOWED
from kernel.refused import from_os

Entry = tuple[int, str, str, str]
"""(level, mode, file, value), as qos.plan.settings.Entry."""

ANY = "*"
OPTED_OUT = "opted-out"
"""The folder with a file for each namespace whose pods get no default."""
LIMIT = 65536
"""The most bytes a file may have."""

_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_LONGEST_NAME = 253
_HIGHEST_LEVEL = 32
_LONGEST_PATH = 4096
_FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
_READ = posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOFOLLOW | posix.O_CLOEXEC | posix.O_NOCTTY
_MAKE = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW | posix.O_CLOEXEC


class CacheMiss(Exception):  # noqa: N818 - reads as what happened
    """No settings for this container; the message says why."""


class CacheBad(Exception):  # noqa: N818
    """A file is there and cannot be trusted; the message names it and says why."""


def read(folder: "int | str", name: str, container: str, now_boot: float) -> "tuple[str, list[Entry]]":
    """(parent or "", the settings of a container).

    `folder`: an open one or its path; `now_boot`: CLOCK_BOOTTIME in seconds.
    Raises CacheMiss: no file, expired, or this container is not in it; CacheBad: not a file to trust (its
    owner, mode, kind, size or content).
    """
    if not is_name(name):
        raise CacheMiss("not a name of a file here: " + repr(name[:80]))
    until, parent, containers = parse(_bytes(folder, name), name)
    if until and now_boot >= until:
        raise CacheMiss(name + ": expired " + str(int(now_boot) - until) + " s ago")
    entries = containers.get(container) if container != ANY else None
    if entries is None:
        entries = containers.get(ANY)
    if entries is None:
        raise CacheMiss(name + ": has no container " + repr(container[:80]))
    return parent, entries


def is_name(text: str) -> bool:
    """True for what can be a key and the name of its file."""
    return 0 < len(text) <= _LONGEST_NAME and _NAME.issuperset(text) and text[0] != "."


def parse(data: bytes, name: str) -> "tuple[int, str, dict[str, list[Entry]]]":
    """(until, parent or "", settings by container). Raises CacheBad, which names the line that is wrong."""
    if len(data) > LIMIT:
        raise CacheBad(name + ": longer than " + str(LIMIT) + " bytes")
    if not data.isascii():
        raise CacheBad(name + ": not ASCII")
    if not data.endswith(b"\n"):
        raise CacheBad(name + ": truncated: its last line is not complete")
    lines = data.decode().split("\n")[:-1]
    if len(lines) < 3 or lines[-1] != "end\t" + str(len(data) - len(lines[-1]) - 1):
        raise CacheBad(name + ": truncated, or changed by hand: the last line must be 'end' and its size")
    if lines[0] != "j10ce\t1\t" + name:
        raise CacheBad(name + ": line 1 is not 'j10ce', 1 and the file's name: " + repr(lines[0][:80]))
    word, _, until = lines[1].partition("\t")
    if word != "until" or not _is_count(until):
        raise CacheBad(name + ": line 2 is not 'until' and seconds: " + repr(lines[1][:80]))
    first, parent = 2 + bool(_promised(lines[2], name)), ""
    if lines[first].startswith("parent\t"):
        first, parent = first + 1, lines[first][7:]
        if not is_parent(parent):
            why = ": not a cgroup's path below the root: "
            raise CacheBad(name + ": line " + str(first) + why + repr(parent[:80]))
    return int(until), parent, _containers(lines[first:-1], first + 1, name)


def promised(data: bytes, name: str) -> int:
    """The CPU floor in millicores that a file was written for; 0: none. Raises CacheBad as parse() does."""
    parse(data, name)
    return _promised(data.decode().split("\n")[2], name)


def _promised(line: str, name: str) -> int:
    if not line.startswith("promised\t"):
        return 0
    cpu = line[13:] if line.startswith("promised\tcpu\t") else ""
    if not _is_count(cpu) or cpu == "0":
        raise CacheBad(name + ": line 3: not 'promised', cpu and millicores: " + repr(line[:80]))
    return int(cpu)


def is_parent(path: str) -> bool:
    """True for a path from a hierarchy's root, as /proc/PID/cgroup has it, and not the root itself."""
    parts = path.split("/")[1:]
    plain = path[:1] == "/" and all(parts) and "." not in parts and ".." not in parts
    return plain and len(path) <= _LONGEST_PATH and path.isascii() and path.isprintable()


def _containers(lines: "list[str]", first: int, name: str) -> "dict[str, list[Entry]]":
    containers: dict[str, list[Entry]] = {}
    entries: list[Entry] | None = None
    for number, line in enumerate(lines, first):
        fields = line.split("\t")
        if fields[0] == "container":
            why = _wrong_container(fields, containers)
            entries = containers[fields[-1]] = [] if not why else entries or []
        elif entries is None:
            why = "a setting before the first container"
        else:
            why = _wrong_entry(fields)
            if not why:
                entries.append((int(fields[0]), fields[1], fields[2], fields[3]))
        if why:
            raise CacheBad(name + ": line " + str(number) + ": " + why + ": " + repr(line[:80]))
    return containers


def _wrong_container(fields: "list[str]", known: "dict[str, list[Entry]]") -> str:
    if len(fields) != 2 or (fields[1] != ANY and not is_name(fields[1])):
        return "not a container's name"
    return "a second time" if fields[1] in known else ""


def _wrong_entry(fields: "list[str]") -> str:
    if len(fields) != 4:
        return "not level, mode, file and value"
    level, mode, file, value = fields
    process = file in ALLOWED and ALLOWED[file][0] == "process"
    if not (level == "-1" if process else _is_count(level) and int(level) <= _HIGHEST_LEVEL):
        return "not a level of this file"
    if mode not in ("set", "raise"):
        return "neither set nor raise"
    return values.valid(file, value)


def _is_count(text: str) -> bool:
    """A number in its shortest form, as the writer writes it."""
    return 0 < len(text) <= 18 and text.isascii() and text.isdigit() and (text[0] != "0" or text == "0")


def write(
    folder: "int | str",
    key: str,
    until: int,
    containers: "dict[str, list[Entry]]",
    parent: str = "",
    promised: int = 0,
) -> None:
    """Write the file of a key, by rename: a reader sees the old one or the new one. Mode 0600.

    promised: the CPU floor in millicores; 0: none.
    Raises CacheBad for what a reader would refuse, OSError for what the disk refuses; then the old one stays.
    """
    data = text(key, until, containers, parent, promised).encode()
    fd = folder if isinstance(folder, int) else posix.open(folder, _FOLDER)
    passing = "." + key[:200] + "." + str(posix.getpid()) + "." + str(time.monotonic_ns())
    try:
        _make(fd, passing, data)
        try:
            posix.rename(passing, key, src_dir_fd=fd, dst_dir_fd=fd)
        except OSError:
            posix.unlink(passing, dir_fd=fd)
            raise
        posix.fsync(fd)
    finally:
        if fd is not folder:
            posix.close(fd)


def text(
    key: str, until: int, containers: "dict[str, list[Entry]]", parent: str = "", promised: int = 0
) -> str:
    """The content of a file. Raises CacheBad for what a reader would refuse."""
    if not is_name(key):
        raise CacheBad(repr(key[:80]) + ": letters, digits and -_. only, and no . first")
    lines = ["j10ce\t1\t" + key, "until\t" + str(until)]
    if promised:
        lines.append("promised\tcpu\t" + str(promised))
    if parent:
        lines.append("parent\t" + parent)
    for name, entries in containers.items():
        lines.append("container\t" + name)
        lines.extend([str(level) + "\t" + "\t".join(rest) for level, *rest in entries])
    body = "\n".join(lines) + "\n"
    whole = body + "end\t" + str(len(body)) + "\n"
    given = {name: list(entries) for name, entries in containers.items()}
    if parse(whole.encode(), key) != (until, parent, given):
        raise CacheBad(key + ": a name or a value holds a tab or a line's end")
    return whole


def remove(folder: "int | str", key: str) -> bool:
    """Remove the file of a key; False if there was none."""
    if not is_name(key):
        return False
    fd = folder if isinstance(folder, int) else posix.open(folder, _FOLDER)
    try:
        posix.unlink(key, dir_fd=fd)
    except FileNotFoundError:
        return False
    finally:
        if fd is not folder:
            posix.close(fd)
    return True


def _make(folder: int, name: str, data: bytes) -> None:
    """A new file, complete and on the disk, or none."""
    fd = posix.open(name, _MAKE, 0o600, dir_fd=folder)
    try:
        rest = data
        while rest:
            rest = rest[posix.write(fd, rest) :]
        posix.fsync(fd)
    except OSError:
        posix.unlink(name, dir_fd=folder)
        raise
    finally:
        posix.close(fd)


def _bytes(folder: "int | str", name: str) -> bytes:
    """The file's content, if it is a plain file that only we (the effective user: root) can open."""
    try:
        at = folder if isinstance(folder, int) else posix.open(folder, _FOLDER)
        try:
            fd = posix.open(name, _READ, dir_fd=at)
        finally:
            if at is not folder:
                posix.close(at)
    except FileNotFoundError:
        raise CacheMiss(name + ": no such file") from None
    except OSError as error:
        raise CacheBad(str(from_os(error, name))) from None
    try:
        return _content(fd, name)
    except OSError as error:
        raise CacheBad(str(from_os(error, name))) from None
    finally:
        posix.close(fd)


def _content(fd: int, name: str) -> bytes:
    status = posix.fstat(fd)
    if status.st_mode & 0o170000 != 0o100000:
        raise CacheBad(name + ": not a plain file")
    if status.st_uid != posix.geteuid() or status.st_mode & 0o077:
        raise CacheBad(name + ": must be of mode 0600 and owned by root (the user that runs this)")
    data = b""
    while chunk := posix.read(fd, LIMIT + 1 - len(data)):
        data += chunk
    return data
