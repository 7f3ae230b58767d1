"""What the test VM is made of: Debian packages, kernel modules, QEMU's flags.

The kernel and all programs are Debian's own packages, by the machine's own apt sources; nothing is built.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

GUEST = Path(__file__).parent / "guest"
"""What runs inside: shell scripts, and Python that may import pytest and the standard library only."""

COMMANDS: Mapping[str, str] = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mmdebstrap": "mmdebstrap",
    "mksquashfs": "squashfs-tools",
    "depmod": "kmod",
    "cpio": "cpio",
}
"""Commands this machine needs, and the Debian package that brings each."""

ROOT_PACKAGES = (
    *("python3", "python3-pytest", "python3-pytest-timeout"),
    *("crun", "runc", "podman"),
    *("systemd", "systemd-sysv", "dbus", "udev", "libpam-systemd"),
    *("iproute2", "kmod", "procps", "util-linux", "mount", "e2fsprogs", "busybox-static"),
)
KERNEL_PACKAGE = "linux-image-cloud-amd64"

LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/lib/cni/*")
"""Paths that dpkg does not unpack: 110 of 350 MB that no test reads."""

INITRAMFS_MODULES = ("virtio_pci", "virtio_blk", "overlay", "squashfs", "virtio_console")
"""What it takes to reach the root file system and the ports; modprobe finds all others in the root."""

MACHINE_FLAGS = (
    *("-M", "q35", "-accel", "tcg,thread=multi"),
    *("-cpu", "max,-cx16"),  # with cx16, 4 of 20 boots of Linux 6.12 end in an oops under TCG
    *("-smp", "2", "-m", "1024", "-no-reboot", "-nodefaults", "-display", "none"),
)
KERNEL_ARGUMENTS = ("console=ttyS0", "quiet", "panic=-1", "psi=1", "mitigations=off", "net.ifnames=0")


class System(StrEnum):
    """What runs as process 1 of the guest: a script in lab/vm/guest, which for systemd becomes systemd."""

    PLAIN = "init"
    SYSTEMD = "init-systemd"


class VmError(Exception):
    """The test VM could not be made or did not do its work; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Image:
    """A prepared image: the files QEMU starts from."""

    folder: Path

    @property
    def kernel(self) -> Path:
        """Compressed kernel."""
        return self.folder / "vmlinuz"

    @property
    def initramfs(self) -> Path:
        """Mounts the root, unpacks the payload, hands over to it."""
        return self.folder / "initramfs"

    @property
    def root(self) -> Path:
        """squashfs with all programs."""
        return self.folder / "root.squashfs"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where the image is kept: a folder of the user's cache named after the recipe."""
    cache = environ.get("XDG_CACHE_HOME")
    root = Path(cache) if cache else Path(environ.get("HOME", "~")).expanduser() / ".cache"
    return root / "j10ce" / "vm" / digest(codename())


def digest(release: str) -> str:
    """Names an image: packages, modules, the scripts that are baked in, and Debian's release; SHA-256."""
    parts = (release, KERNEL_PACKAGE, *ROOT_PACKAGES, *LEFT_OUT, *INITRAMFS_MODULES)
    text = "\n".join((*parts, (GUEST / "initramfs-init").read_text(), (GUEST / "add-kernel").read_text()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def codename() -> str:
    """Debian's release on this machine, such as bookworm; VmError where it is no Debian."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        name = release.get("PRETTY_NAME", platform.system())
        raise VmError(f"the test VM is made from Debian's packages, and this is {name}: run it on Debian")
    return release["VERSION_CODENAME"]


def missing_commands(path: str | None = None) -> dict[str, str]:
    """The COMMANDS that are not on a PATH, with their packages."""
    return {name: package for name, package in COMMANDS.items() if shutil.which(name, path=path) is None}
