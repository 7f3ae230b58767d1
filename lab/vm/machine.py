"""Boots the test VM, reads what it reports while it runs, and takes its results. QEMU, a process of our own.

QEMU's exit code says nothing: after a guest panic it is 0. Only a whole tar of results means success.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.vm.recipe import KERNEL_ARGUMENTS, MACHINE_FLAGS, Image, System, VmError

_MEBIBYTE = 1 << 20
SWAP_SIZE = 512 * _MEBIBYTE
SCRATCH_SIZE = 2048 * _MEBIBYTE
_POLL_SECONDS = 0.05
_PRIORITY = "-20"  # a nice value, for the session as a whole: sched(7), autogroups
_CONSOLE_LINES = 60  # a panic with its call trace


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a guest may take, in seconds: without a report (it hangs then), and altogether."""

    silence: float = 900.0
    total: float = 3600.0


class Machine:
    """A guest that runs, from `with` to its end: a folder with its console, reports and results."""

    def __init__(
        self,
        image: Image,
        folder: Path,
        payload: Path,
        patience: Patience | None = None,
        *,
        system: System = System.PLAIN,
        flags: Sequence[str] = (),
        disks: Mapping[str, Path] | None = None,
    ) -> None:
        """`system`: what runs as process 1. `flags`: more of QEMU's; a later -m replaces ours.

        `disks`: more of them, by their serial number; they cannot be written.
        """
        self._read_only = {"root": image.root, "payload": payload} | dict(disks or {})
        self._system = system
        self._image = image
        self._flags = flags
        self._patience = patience or Patience()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = ""
        self.folder = folder
        self.console = folder / "console.log"
        self.reports = folder / "reports.jsonl"
        self._results = folder / "results.tar"
        self._disks = {
            "swap": (folder / "swap.raw", SWAP_SIZE),
            "scratch": (folder / "scratch.raw", SCRATCH_SIZE),
        }

    def __enter__(self) -> Self:
        for path, size in self._disks.values():
            with path.open("wb") as disk:
                disk.truncate(size)  # sparse: the guest writes a part of it
        for path in (self.console, self.reports, self._results):
            path.write_bytes(b"")
        with (self.folder / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(
                self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        with contextlib.suppress(
            OSError
        ):  # its clock is the host's: starved, its programs miss their deadlines
            Path(f"/proc/{self._process.pid}/autogroup").write_text(_PRIORITY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
        for path, _ in self._disks.values():
            path.unlink(missing_ok=True)

    def argv(self) -> list[str]:
        """Command line. The time-out outside ends the guest even when this process is killed."""
        written = {name: path for name, (path, _) in self._disks.items()}
        return [
            *("timeout", "--kill-after=5", str(int(self._patience.total) + 10), "qemu-system-x86_64"),
            *MACHINE_FLAGS,
            *self._flags,
            *("-kernel", str(self._image.kernel), "-initrd", str(self._image.initramfs)),
            *("-append", " ".join((*KERNEL_ARGUMENTS, f"j10ce.init={self._system.value}"))),
            *("-chardev", f"file,id=console,path={_escaped(self.console)}", "-serial", "chardev:console"),
            *("-device", "virtio-serial-pci"),
            *_port("reports", self.reports),
            *_port("results", self._results),
            *(word for name, path in self._read_only.items() for word in _disk(name, path, "on")),
            *(word for name, path in written.items() for word in _disk(name, path, "off")),
        ]

    @property
    def runs(self) -> bool:
        """Whether the guest has not ended."""
        return self._runs()

    def lines(self) -> Iterator[str]:
        """Each line that the guest writes to its port `reports`, as it comes, until the machine has ended."""
        begun = heard = time.monotonic()
        rest = b""
        with self.reports.open("rb") as reports:
            while True:
                running = self._runs()
                chunk = reports.read()
                if chunk:
                    heard = time.monotonic()
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        yield line.decode(errors="replace")
                    continue
                if not running:
                    return
                self._check_patience(begun, heard)
                time.sleep(_POLL_SECONDS)

    def results(self) -> Path:
        """Folder with what the guest brought back, once the machine has ended.

        Raises VmError with the console's last lines when that is not whole: a crash, a hang, a time-out.
        """
        target = self.folder / "results"
        if target.is_dir():
            return target
        for _ in self.lines():
            pass
        fresh = self.folder / "results-unchecked"
        try:
            with tarfile.open(self._results) as tar:
                tar.extractall(fresh, filter="data")
        except tarfile.TarError as error:
            raise VmError(self.failure()) from error
        if not (fresh / "status").is_file():
            raise VmError(self.failure())
        self._results.unlink()
        return fresh.rename(target)

    def failure(self) -> str:
        """What is known of a guest that ended without results."""
        lines = self.console.read_text(errors="replace").replace("\r", "").splitlines()[-_CONSOLE_LINES:]
        said = "\n".join(lines) or "(nothing)"
        qemu = (self.folder / "qemu.log").read_text(errors="replace").strip()
        return (
            f"the guest ended without results: {self._ended or 'it crashed or was powered off'}\n"
            f"the last lines of its console ({self.console}):\n{said}" + (f"\nQEMU: {qemu}" if qemu else "")
        )

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _check_patience(self, begun: float, heard: float) -> None:
        """End a guest that has taken too long."""
        now = time.monotonic()
        if now - heard > self._patience.silence:
            self._ended = f"it reported nothing for {self._patience.silence:g} s, and was killed"
        elif now - begun > self._patience.total:
            self._ended = f"it took longer than {self._patience.total:g} s, and was killed"
        else:
            return
        self._kill()

    def _kill(self) -> None:
        """Kill the guest and the time-out around it, and wait until both are gone."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _port(name: str, path: Path) -> Sequence[str]:
    """A virtio port of the guest, backed by a file."""
    chardev = f"file,id={name},path={_escaped(path)}"
    return ("-chardev", chardev, "-device", f"virtserialport,chardev={name},name={name}")


def _disk(name: str, path: Path, read_only: str) -> Sequence[str]:
    """A disk with its name as the serial number."""
    drive = f"if=none,id={name},format=raw,cache=unsafe,read-only={read_only},file={_escaped(path)}"
    return ("-drive", drive, "-device", f"virtio-blk-pci,drive={name},serial={name}")


def _escaped(path: Path) -> str:
    """A path in an option of QEMU, where a comma separates."""
    return str(path).replace(",", ",,")
