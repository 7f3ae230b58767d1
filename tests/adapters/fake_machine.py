"""A machine made of plain files, whose cgroups a test writes as it needs them."""

from __future__ import annotations

from pathlib import Path

from adapters.machine import ThisMachine


class Fake:
    """A machine made of plain files."""

    def __init__(self, root: Path, *, v1: bool, unified: bool, systemd: bool = False, more: str = "") -> None:
        self.root = root
        lines = []
        for name in ("cpu", "memory", *more.split()) if v1 else ():
            lines.append(f"1 1 0:1 / {root}/cgroup/{name} rw - cgroup cgroup rw,{name}")
            (root / "cgroup" / name).mkdir(parents=True)
        if unified:
            lines.append(f"1 1 0:1 / {root}/cgroup/unified rw - cgroup2 cgroup2 rw,memory_recursiveprot")
            (root / "cgroup" / "unified").mkdir(parents=True)
        self.write("proc/self/mountinfo", "\n".join(lines) + "\n")
        self.write("proc/meminfo", "MemTotal:  1024 kB\n")
        self.write("sys/devices/system/cpu/online", "0-2,7\n")
        self.write("sys/block/sda/dev", "8:0\n")
        if systemd:
            (root / "run" / "systemd" / "system").mkdir(parents=True)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def group(self, hierarchy: str, path: str, **values: str) -> None:
        # No "/" operator: with a cgroup's path, which begins with a slash, it would answer that path itself.
        Path(f"{self.root}/cgroup/{hierarchy}/{path}").mkdir(parents=True, exist_ok=True)
        for name, text in values.items():
            self.write(f"cgroup/{hierarchy}/{path}/{name.replace('_', '.', 1)}", text)

    def machine(self) -> ThisMachine:
        return ThisMachine(f"{self.root}/proc", f"{self.root}/sys", self.root / "run")
