"""TCP ports of the loopback: on this machine, each is one lab cluster's until its folder is removed.

Looking for a port that nobody listens on is not enough: until its server listens, and while a killed one is
away, it would look free to another process, too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

LOOPBACK = "127.0.0.1"
REGISTRY = Path("/tmp/j10ce-lab-ports")  # noqa: S108 - one for all users and every TMPDIR, as the ports are
"""PORT -> a file in the folder of the cluster that has it, as symbolic links; dead when the cluster is."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL = range(20_000, 32_000)
_ENOUGH = 1000
_LOWEST = 10_300
"""Below are the ports of kubelets, extenders and much else that listens where people expect it."""


def reserve(
    folder: Path, count: int = 1, *, registry: Path = REGISTRY, pool: range | None = None
) -> list[int]:
    """This many different ports of the pool, which are the folder's until it is removed. OSError: there are
    too few.

    pool: those that no outgoing connection takes, unless given.
    """
    ours = folder / "ports"
    ours.mkdir(exist_ok=True)
    found: list[int] = []
    with _locked(registry):
        taken = _taken(registry)
        candidates = [port for port in pool or _pool() if port not in taken]
        random.shuffle(candidates)
        for port in candidates:
            if len(found) == count:
                break
            if _unused(port):
                (ours / str(port)).touch()
                (registry / str(port)).symlink_to(ours.resolve() / str(port))
                found.append(port)
    if len(found) < count:
        raise OSError(errno.EADDRINUSE, f"no {count} TCP ports of the loopback are free for a lab cluster")
    return found


def outside(low: int, high: int) -> range:
    """Ports for servers where outgoing connections get theirs from `low` to `high`.

    Where that range leaves no room, the usual ones: then an outgoing connection can take one.
    """
    below = range(max(_LOWEST, min(low, _USUAL.stop) - len(_USUAL)), min(low, _USUAL.stop))
    above = range(high + 1, 65_536)
    return next((ports for ports in (below, above) if len(ports) >= _ENOUGH), _USUAL)


def _pool() -> range:
    try:
        low, high = map(int, _EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        return _USUAL
    return outside(low, high)


@contextlib.contextmanager
def _locked(registry: Path) -> Iterator[None]:
    """The registry, for us alone; made where it is missing, for every user."""
    try:
        registry.mkdir()
        registry.chmod(0o1777)
    except FileExistsError:
        pass
    handle = os.open(registry, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _taken(registry: Path) -> set[int]:
    """Ports of clusters that are there; those of others are given back."""
    taken = set()
    for entry in registry.iterdir():
        try:
            entry.readlink().stat()  # not through the link: the kernel refuses that for another user's
        except FileNotFoundError:
            with contextlib.suppress(PermissionError):
                entry.unlink()
                continue
        except OSError:  # another user's cluster, that we may not look at
            pass
        taken.add(int(entry.name))
    return taken


def _unused(port: int) -> bool:
    """Whether the port is free; without SO_REUSEADDR, which overlooks sockets that do not listen yet."""
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
