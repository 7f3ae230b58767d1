"""What a real node mounts in its own mount namespace, as a list of steps that its first process takes. Pure.

Every default path of kubelet, containerd, NRI and CNI works and stays private: /run is empty, /etc, /var and
/opt are overlays whose upper layers lie in memory. kubelet's and containerd's state lies in the node's
folder, because overlayfs cannot have an overlay as its upper layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

Step = list[str]

CGROUP = Path("/sys/fs/cgroup")
OVERLAYS = ("etc", "var", "opt")
STATE = {"kubelet": "/var/lib/kubelet", "containerd": "/var/lib/containerd"}
"""Folder in the node's -> where the node sees it."""
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What kubelet wants (container_manager_linux.go, setupKernelTunables): it would set them for the machine."""


def steps(name: str, folder: Path, hierarchies: Mapping[str, Path]) -> list[Step]:
    """Steps for a node of that name; hierarchies as lab.runtimes.cgroups.hierarchies() finds them."""
    return [
        ["hostname", name],
        ["mount", "--make-rprivate", "/"],
        ["mount", "--make-rshared", "/"],  # kubelet and CNI pass mounts on
        ["mount", "-t", "sysfs", "sysfs", "/sys"],  # of this network namespace
        ["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"],
        *cgroup_steps(hierarchies),
        ["mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run"],
        *_overlay_steps(folder / "memory"),
        *_state_steps(folder),
        *_sysctl_steps(folder),
    ]


def sysctl_files(folder: Path) -> dict[Path, str]:
    """Files that the steps lay over the machine's sysctls: path -> content."""
    return {_sysctl_file(folder, name): f"{value}\n" for name, value in SYSCTLS.items()}


def cgroup_steps(hierarchies: Mapping[str, Path]) -> list[Step]:
    """The hierarchies, seen from the own cgroup of who takes the steps: it is the root of each."""
    if set(hierarchies) == {""}:
        return [["mount", "-t", "cgroup2", "cgroup2", str(CGROUP)]]
    found: list[Step] = [["mount", "-t", "tmpfs", "-o", "mode=755", "cgroup", str(CGROUP)]]
    for mount in sorted(set(hierarchies.values())):
        names = sorted(name for name, at in hierarchies.items() if at == mount)
        here = CGROUP / mount.name
        found.append(["mkdir", str(here)])
        if names == [""]:
            found.append(["mount", "-t", "cgroup2", "cgroup2", str(here)])
            continue
        options = ",".join(f"none,{name}" if name.startswith("name=") else name for name in names)
        found.append(["mount", "-t", "cgroup", "-o", options, "cgroup", str(here)])
        found += [
            ["symlink", mount.name, str(CGROUP / name)]
            for name in names
            if "=" not in name and name != mount.name
        ]
    return found


def _overlay_steps(memory: Path) -> list[Step]:
    found: list[Step] = [
        ["mkdir", str(memory)],
        ["mount", "-t", "tmpfs", "-o", "mode=700", "node", str(memory)],
    ]
    for name in OVERLAYS:
        upper, work = memory / name, memory / f"{name}.work"
        options = f"lowerdir=/{name},upperdir={upper},workdir={work}"
        found += [["mkdir", str(upper)], ["mkdir", str(work)]]
        found.append(["mount", "-t", "overlay", "-o", options, "overlay", f"/{name}"])
    return found


def _state_steps(folder: Path) -> list[Step]:
    found: list[Step] = []
    for name, seen in STATE.items():
        found += [
            ["mkdir", seen],
            ["mkdir", str(folder / name)],
            ["mount", "--bind", str(folder / name), seen],
        ]
    return found


def _sysctl_steps(folder: Path) -> list[Step]:
    return [["mount", "--bind", str(_sysctl_file(folder, name)), f"/proc/sys/{name}"] for name in SYSCTLS]


def _sysctl_file(folder: Path, name: str) -> Path:
    return folder / "sysctl" / name.replace("/", ".")
