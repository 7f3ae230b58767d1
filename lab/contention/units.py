"""cgroups of a test where systemd is process 1: slices and scopes, as kubelet and runc have them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from lab.contention.groups import Group, Tree
from qos.plan.layout import Driver

_SECONDS = 120.0
_ACCOUNTED = ("CPUAccounting=yes", "MemoryAccounting=yes", "IOAccounting=yes", "TasksAccounting=yes")
"""What opencontainers/cgroups asks for: systemd leaves the controllers on below."""
_PROPERTIES = {"cpu_weight": "CPUWeight", "memory_max": "MemoryMax"}


class UnitTree(Tree):
    """As its base, with units: what ends in .slice and .scope. A scope has a process that sleeps in it.

    What systemd knows as a property is set as one: whenever it likes it writes its own values over others'.
    """

    driver = Driver.SYSTEMD

    def __init__(self, mountpoint: Path = Path("/sys/fs/cgroup")) -> None:
        super().__init__(mountpoint)
        self._sleeping: list[subprocess.Popen[bytes]] = []

    def make(self, path: str, **values: object) -> Group:
        """As its base."""
        own = {name: values.pop(name) for name in _PROPERTIES if name in values}
        group = super().make(path, **values)
        if own:
            settings = [f"{_PROPERTIES[name]}={value}" for name, value in own.items()]
            _systemctl("set-property", "--runtime", group.folder.name, *settings)
        return group

    def busy(self, name: str) -> Group:
        """A scope in a slice of the host's: the slice itself takes no process."""
        return self.make(f"{name}/busy-{name.removesuffix('.slice')}.scope")

    def remove(self) -> None:
        """Stop all units; a slice's end is the end of all in it."""
        made = [group.folder for group in self._made]
        if made:
            _systemctl("stop", *(folder.name for folder in made if folder.parent not in made))
            _systemctl("revert", *(folder.name for folder in made if folder.suffix == ".slice"))
        for process in self._sleeping:
            process.wait(_SECONDS)
        self._sleeping.clear()
        self._made.clear()

    def _create(self, folder: Path) -> None:
        if folder.suffix == ".slice":
            _systemctl("set-property", "--runtime", folder.name, *_ACCOUNTED)
            _systemctl("start", folder.name)
            return
        argv = ["systemd-run", "--quiet", "--scope", f"--unit={folder.name}", f"--slice={folder.parent.name}"]
        argv += [f"--property={one}" for one in (*_ACCOUNTED, "Delegate=yes")]
        self._sleeping.append(subprocess.Popen([*argv, "sleep", "infinity"]))
        deadline = time.monotonic() + _SECONDS
        while not folder.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"systemd has not made {folder} within {_SECONDS:g} s")
            time.sleep(0.01)


def _systemctl(*arguments: str) -> None:
    done = subprocess.run(
        ["systemctl", *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        raise OSError(f"systemctl {' '.join(arguments)}: {done.stderr.strip()}")
