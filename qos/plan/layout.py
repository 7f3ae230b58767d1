"""Where kubelet, podman and plain runtimes put a container's cgroup, and which CPU weight they give it. Pure.

Used only for what cannot be read yet: a container that does not exist, a node that is elsewhere.

Sources: names: kubelet's pkg/kubelet/cm (cgroup_manager_linux.go, pod_container_manager_linux.go), podman's
libpod/container_internal_linux.go, runc's libcontainer/cgroups/fs.
Weights: kubelet pkg/kubelet/cm/helpers_linux.go MilliCPUToShares and cm/util CPUSharesToCPUWeight (KEP-2254);
opencontainers/cgroups utils.go ConvertCPUSharesToCgroupV2Value before and after opencontainers/runc#4785.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from enum import Enum
from math import ceil, log2
from typing import Final

from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED

NO_POD_UID: Final = "UID"
"""Stands in a path for the uid of a pod that has none yet."""
NO_CONTAINER_ID: Final = "ID"
"""Stands in a path for the id of a container that has none yet."""

KUBELET_CGROUPFS: Final = "/kubepods"
PODMAN_CGROUPFS: Final = "/libpod_parent"
"""Parents of all containers where the runtime makes cgroups itself."""

DEFAULT_SHARES: Final = 1024
DEFAULT_WEIGHT: Final = 100
"""The weight of a cgroup to which nobody gave one (cpu.shares of v1, cpu.weight of v2)."""
LEAST_SHARES: Final = 2
MOST_SHARES: Final = 262_144
MOST_WEIGHT: Final = 10_000

_PARTS: Final = {GUARANTEED: (), BURSTABLE: ("burstable",), BEST_EFFORT: ("besteffort",)}


class Driver(Enum):
    """The maker of the cgroups: the runtime itself, or systemd on its behalf."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


def kubelet_paths(
    qos: str,
    pod_uid: str = NO_POD_UID,
    container_id: str = NO_CONTAINER_ID,
    driver: Driver = Driver.SYSTEMD,
    runtime: str = "containerd",
) -> tuple[str, ...]:
    """The cgroups of a container of a pod, from the root's child down to the container itself.

    qos: Kubernetes' class. runtime: "containerd" or "cri-o", whose scopes have different names.
    """
    groups = ("kubepods", *_PARTS[qos], f"pod{pod_uid}")
    if driver is Driver.CGROUPFS:
        return _nested([*groups, f"crio-{container_id}" if runtime == "cri-o" else container_id])
    slices = [f"{'-'.join(_escaped(groups[: depth + 1]))}.slice" for depth in range(len(groups))]
    prefix = "crio" if runtime == "cri-o" else "cri-containerd"
    return _nested([*slices, f"{prefix}-{container_id}.scope"])


def below_kubepods(top: str, qos: str, pod_uid: str, container_id: str, runtime: str = "containerd") -> str:
    """The cgroup of a container where kubelet's own is `top`, such as /kubelet.slice/kubelet-kubepods.slice.

    qos, runtime: as for kubelet_paths.
    """
    groups = (*_PARTS[qos], f"pod{pod_uid}")
    if not top.endswith(".slice"):
        return "/".join((top, *groups, f"crio-{container_id}" if runtime == "cri-o" else container_id))
    stem = top.rpartition("/")[2].removesuffix(".slice")
    names = (stem, *_escaped(groups))
    slices = [f"{'-'.join(names[: depth + 1])}.slice" for depth in range(1, len(names))]
    prefix = "crio" if runtime == "cri-o" else "cri-containerd"
    return "/".join((top, *slices, f"{prefix}-{container_id}.scope"))


def is_kubepods(name: str) -> bool:
    """Whether a cgroup of this name is one in which kubelet keeps all pods."""
    return name in ("kubepods", "kubepods.slice") or name.endswith("-kubepods.slice")


def podman_paths(
    container_id: str = NO_CONTAINER_ID, driver: Driver = Driver.SYSTEMD, parent: str = ""
) -> tuple[str, ...]:
    """The cgroups of a container that root's podman runs; parent: its --cgroup-parent, "" the default."""
    if driver is Driver.CGROUPFS:
        return _nested([*_components(parent or PODMAN_CGROUPFS), f"libpod-{container_id}"])
    return _nested([*_components(parent or "machine.slice"), f"libpod-{container_id}.scope"])


def plain_paths(container_id: str = NO_CONTAINER_ID, parent: str = "") -> tuple[str, ...]:
    """The cgroups of a container that an OCI runtime runs by itself, where no cgroupsPath is given."""
    return _nested([*_components(parent), container_id])


def shares(millicores: int) -> int:
    """cpu.shares for a CPU request, as kubelet has it on every level, and asks of the runtime."""
    return min(max(millicores * 1024 // 1000, LEAST_SHARES), MOST_SHARES)


def kubelet_weight(of_shares: int) -> int:
    """cpu.weight that kubelet writes on kubepods, classes and pods, and runc before 1.3.2 on containers."""
    return 1 + (of_shares - 2) * 9999 // 262_142


def requested(weight: int, unified: bool) -> int:
    """The least CPU request, in millicores, for which kubelet writes this weight (unified), or cpu.shares."""
    of_shares = -(-(weight - 1) * 262_142 // 9999) + LEAST_SHARES if unified else weight
    return -(-of_shares * 1000 // 1024) if of_shares > LEAST_SHARES else 0


def runtime_weight(of_shares: int) -> int:
    """cpu.weight that runc since 1.3.2 and crun since 1.23 write on the container."""
    if of_shares <= LEAST_SHARES:
        return 1
    if of_shares >= MOST_SHARES:
        return MOST_WEIGHT
    length = log2(of_shares)
    # float: the exponent is never close enough to an integer power for rounding to matter (tests compare all)
    return ceil(10 ** ((length * length + 125 * length) / 612 - 7 / 34))


CONVERSIONS: Final[tuple[Callable[[int], int], ...]] = (runtime_weight, kubelet_weight)
"""How runtimes make a weight of shares, the newer one first."""


def conversion_of(of_shares: int, weight: int) -> Callable[[int], int] | None:
    """The one by which a runtime has made this weight; None where that cannot be told."""
    possible = [convert for convert in CONVERSIONS if convert(max(of_shares, LEAST_SHARES)) == weight]
    return possible[0] if len(possible) == 1 else None


def shares_for(weight: int, convert: Callable[[int], int]) -> int:
    """The least shares of which a runtime makes a cpu.weight of 1 to 10000."""
    return bisect_left(range(MOST_SHARES), weight, lo=LEAST_SHARES, key=convert)


def _escaped(groups: tuple[str, ...]) -> list[str]:
    # In a slice's name a "-" is a step down the hierarchy.
    return [group.replace("-", "_") for group in groups]


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _nested(names: list[str]) -> tuple[str, ...]:
    return tuple("/" + "/".join(names[: depth + 1]) for depth in range(len(names)))


def runtime_path(cgroups_path: str) -> str:
    """The cgroup of a container, from the root, given its OCI spec's linux.cgroupsPath; "" if it says none.

    With systemd that is SLICE:PREFIX:NAME (runc's docs/systemd.md), else the path itself. A path that is
    relative depends on the runtime's own cgroup: "".
    """
    if cgroups_path.startswith("/"):
        return cgroups_path if ".." not in cgroups_path.split("/") else ""
    unit = cgroups_path.split(":")
    if len(unit) != 3 or not unit[2] or "/" in cgroups_path:
        return ""
    parent, prefix, name = unit
    own = name if name.endswith(".slice") else f"{prefix}-{name}.scope" if prefix else f"{name}.scope"
    return f"{slice_path(parent or 'system.slice')}/{own}"


def slice_path(name: str) -> str:
    """A slice's cgroup: a-b.slice is in a.slice (systemd.slice(5)). "" for the root, and for no slice."""
    if not name.endswith(".slice") or name == "-.slice":
        return ""
    parts = name.removesuffix(".slice").split("-")
    return _nested([f"{'-'.join(parts[: depth + 1])}.slice" for depth in range(len(parts))])[-1]
