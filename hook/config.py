"""What the node's administrator decides about the hook: /etc/j10ce/hook.conf, one setting a line."""

import posix

from kernel.refused import Refused

ALWAYS_EXEMPT = ("kube-system", "j10ce-system")
"""Namespaces whose pods start whatever happens: the node's own, and our agent's."""

BUDGET_MS = 200
LARGEST_BUDGET_MS = 1500
"""Below the 2 s after which the runtime kills the hook and fails the container."""

_FLAGS = posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC | posix.O_NONBLOCK
_LARGEST = 65536
_KIND, _PLAIN_FILE, _OTHERS_WRITE = 0o170000, 0o100000, 0o022


class Config:
    """closed: a failure keeps the container from starting. budget: seconds. exempt: namespaces."""

    __slots__ = ("budget", "closed", "exempt")

    def __init__(
        self, closed: bool = False, budget_ms: int = BUDGET_MS, exempt: "tuple[str, ...]" = ()
    ) -> None:
        self.closed = closed
        self.budget = budget_ms / 1000
        self.exempt = frozenset(ALWAYS_EXEMPT + exempt)


def parse(text: str) -> Config:
    """Lines `fail open|closed`, `exempt-namespace NAME`, `budget-ms N`; # begins a comment. Else Refused."""
    closed, budget, exempt = False, BUDGET_MS, []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, value = words[0], words[1] if len(words) == 2 else ""
        if name == "fail" and value in ("open", "closed"):
            closed = value == "closed"
        elif name == "exempt-namespace" and value:
            exempt.append(value)
        elif name == "budget-ms" and _is_budget(value):
            budget = int(value)
        else:
            raise Refused(f"`{line.strip()}` is no setting of the hook")
    return Config(closed, budget, tuple(exempt))


def _is_budget(value: str) -> bool:
    digits = value.isascii() and value.isdigit() and len(value) <= len(str(LARGEST_BUDGET_MS))
    return digits and 1 <= int(value) <= LARGEST_BUDGET_MS


def read(path: str) -> Config:
    """The file's settings, or the defaults where there is none.

    Refused: it is not root's alone to write, or not well made.
    """
    try:
        file = posix.open(path, _FLAGS)
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
    try:
        status = posix.fstat(file)
        if status.st_mode & _KIND != _PLAIN_FILE or status.st_uid != 0 or status.st_mode & _OTHERS_WRITE:
            raise Refused(f"{path} is not a file that root alone may write: chown root, chmod 600")
        data = posix.read(file, _LARGEST + 1)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
    finally:
        posix.close(file)
    if len(data) > _LARGEST:
        raise Refused(f"{path} is longer than {_LARGEST} bytes")
    try:
        return parse(data.decode("ascii"))
    except UnicodeDecodeError:
        raise Refused(f"{path} is not ASCII") from None
    except Refused as refused:
        raise Refused(f"{path}: {refused}") from None
