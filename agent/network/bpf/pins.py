"""Our folder in the BPF file system: what is pinned there outlives the agent.

    /sys/fs/bpf/j10ce/v1/maps/by_address
                         links/classify-tcx_egress-2      (interface 2; a dot is not allowed there)

Another version of the agent with the same schema finds maps and links there and goes on with them; the schema
is raised where a map's meaning changes. Folders are root's alone, opened one by one and never through a
symlink.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
from typing import Final, Self

from agent.network.bpf.system import BpfError, Command, address, call, close

SCHEMA: Final = 1
MOUNTED_AT: Final = "/sys/fs/bpf"
_NAME: Final = "j10ce"
_MAPS, _LINKS = "maps", "links"
_MAGIC: Final = 0xCAFE4A11
"""BPF_FS_MAGIC of linux/magic.h: f_type of statfs(2)."""
_STATFS_BYTES: Final = 256
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PIN: Final = struct.Struct("=QII")
"""pathname, bpf_fd, file_flags."""
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
MAP: Final = "anon_inode:bpf-map"
LINK: Final = "anon_inode:bpf-link"


class Pins:
    """The pins of one schema below a mount of the BPF file system. Raises BpfError."""

    def __init__(self, root: str = MOUNTED_AT, schema: int = SCHEMA) -> None:
        self.root, self.schema = root, schema
        self._opened: list[int] = []
        self._folders: dict[str, int] = {}
        try:
            own = self._enter(self._base(), f"v{schema}")
            for name in (_MAPS, _LINKS):
                self._folders[name] = self._enter(own, name)
        except OSError:
            self.close()
            raise

    @property
    def where(self) -> str:
        """The folder, for messages."""
        return f"{self.root}/{_NAME}/v{self.schema}"

    def map(self, name: str) -> int | None:
        """The pinned map's descriptor, None where there is none. Raises BpfError."""
        return self._get(_MAPS, name, MAP)

    def link(self, name: str) -> int | None:
        """The pinned link's descriptor, None where there is none. Raises BpfError."""
        return self._get(_LINKS, name, LINK)

    def keep_map(self, name: str, fd: int) -> None:
        """Pin a map; what is pinned by this name is let go at the same moment. Raises BpfError."""
        self._pin(_MAPS, name, fd)

    def keep_link(self, name: str, fd: int) -> None:
        """Pin a link in the same way. Raises BpfError."""
        self._pin(_LINKS, name, fd)

    def forget_map(self, name: str) -> None:
        """Let go of a map, if it is pinned."""
        self._unlink(_MAPS, name)

    def forget_link(self, name: str) -> None:
        """Let go of a link, if it is pinned: nothing else holds it after the agent's end."""
        self._unlink(_LINKS, name)

    def maps(self) -> list[str]:
        """The names that maps are pinned by."""
        return _names(self._folders[_MAPS])

    def links(self) -> list[str]:
        """The names that links are pinned by."""
        return _names(self._folders[_LINKS])

    def remove(self) -> bool:
        """Remove our folders as far as they are empty; whether all are gone."""
        above, base, its, *_ = self._opened
        own = f"v{self.schema}"
        for name in (_MAPS, _LINKS):
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=its)
        with contextlib.suppress(OSError):
            os.rmdir(own, dir_fd=base)
        with contextlib.suppress(OSError):
            os.rmdir(_NAME, dir_fd=above)
        return own not in _names(base)

    def close(self) -> None:
        """Close the folders; what is pinned stays."""
        close(*self._opened)
        self._opened.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _base(self) -> int:
        root = _opened(self.root)
        self._opened.append(root)
        return self._enter(root, _NAME)

    def _enter(self, above: int, name: str) -> int:
        what = f"folder {name} in the BPF file system {self.root}"
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=above)
            folder = os.open(name, _FOLDER, dir_fd=above)
        except OSError as error:
            raise BpfError(error.errno or errno.EIO, what) from None
        self._opened.append(folder)
        status = os.fstat(folder)
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_MAY_WRITE:
            raise BpfError(
                errno.EPERM, what, f"others may write there (mode {status.st_mode & 0o7777:o}): remove it"
            )
        return folder

    def _get(self, folder: str, name: str, kind: str) -> int | None:
        path = self._path(folder, name)
        try:
            fd = call(Command.OBJ_GET, _PIN.pack(address(path), 0, 0), f"pin {folder}/{name} in {self.where}")
        except BpfError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        found = os.readlink(f"/proc/self/fd/{fd}").replace("_link", "-link")  # noqa: PTH115  (older kernels)
        if found != kind:
            close(fd)
            raise BpfError(errno.EINVAL, f"pin {folder}/{name} in {self.where}", f"it is {found}, not {kind}")
        return fd

    def _pin(self, folder: str, name: str, fd: int) -> None:
        fresh = f"{name}-new"
        self._unlink(folder, fresh)  # of an agent that was killed here
        path = self._path(folder, fresh)
        call(Command.OBJ_PIN, _PIN.pack(address(path), fd, 0), f"pin {folder}/{name} in {self.where}")
        at = self._folders[folder]
        os.rename(fresh, name, src_dir_fd=at, dst_dir_fd=at)

    def _unlink(self, folder: str, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folders[folder])

    def _path(self, folder: str, name: str) -> bytearray:
        """By the opened folder: nobody can put another in its place."""
        return bytearray(f"/proc/self/fd/{self._folders[folder]}/{name}".encode() + b"\0")


def unusable_root(root: str = MOUNTED_AT) -> str:
    """Why nothing can be pinned below this mount, "" where it can; nothing is made there."""
    try:
        close(_opened(root))
    except BpfError as error:
        return str(error)
    return ""


def schemas(root: str = MOUNTED_AT) -> list[int]:
    """Which schemas have a folder of ours here; none where there is no BPF file system."""
    try:
        names = _names(f"{root}/{_NAME}")
    except OSError:
        return []
    return sorted(int(name[1:]) for name in names if name[:1] == "v" and name[1:].isdecimal())


def _opened(root: str) -> int:
    """The mount of a BPF file system. Raises BpfError."""
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BpfError(error.errno or errno.ENOENT, root, _mount_advice(root)) from None
    if _file_system(folder) != _MAGIC:
        close(folder)
        raise BpfError(errno.ENODEV, f"{root} is no BPF file system", _mount_advice(root))
    return folder


def _names(folder: int | str) -> list[str]:
    return sorted(os.listdir(folder))  # noqa: PTH208  (pathlib takes no descriptor)


def _file_system(folder: int) -> int:
    """f_type of struct statfs: its first long."""
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None, use_errno=True).fstatfs(folder, answer) < 0:
        return 0
    return int(struct.unpack_from("=Q", answer.raw)[0])


def _mount_advice(root: str) -> str:
    return f"mount it: mount -t bpf bpf {root} (in a container: the host's, mounted from outside)"
