"""The settings of a container that NRI can express: they go into its spec, and outlive every update of it.

A runtime applies a container's whole spec again at each update (kubelet's resize, its CPU manager), so what
is only in the kernel's file is gone then. What a spec cannot say, or what could keep a container from being
created, is written when the container starts, by kernel/. Measured with containerd 2.3.5 and runc 1.1.5 on
cgroup v1 and v2 (docs/nri.md has the table). A text of a spec is what the kernel's file would hold; of a
weight it is the shares that the runtime makes it of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from agent.nri.records import Adjustment, LinuxResources
from qos.plan.controller import all_files
from qos.plan.layout import DEFAULT_SHARES
from qos.plan.node import V1, V2
from qos.plan.settings import SET, Entry

PERIOD: Final = 100_000
"""Of a quota that says none, in microseconds."""


class Field(NamedTuple):
    """A way to say a file's value in a spec. `put`: (file, text) to fields of Adjustment; `read`: the text of
    a spec, None where it says nothing; `unsaid`: the text that means the same as nothing.
    """

    put: Callable[[str, str], dict[str, Any]]
    read: Callable[[str, LinuxResources], str | None]
    unsaid: Callable[[str], str | None]


def told_of(entries: Iterable[Entry], unified: bool, shares: Callable[[int], int]) -> dict[str, str]:
    """file -> the text that a container's spec shall have, of what its spec can say.

    unified: on cgroup v2. shares: those of which the runtime makes a weight. The container's own level only.
    """
    told = {}
    for level, mode, file, value in entries:
        nri = all_files()[file].nri
        if not nri or (level, mode) != (0, SET) or (V2 if unified else V1) not in all_files()[file].versions:
            continue
        if nri == "cpu_shares" and unified:
            told[file] = str(shares(int(value)))
        elif value and (nri != "cpu_quota" or unified or value == "-1"):
            told[file] = value  # v1 refuses a quota above the parent's, and then there is no container
    return told


def adjustment_of(told: Mapping[str, str]) -> Adjustment:
    """What the runtime is asked for, so that a spec says these texts."""
    fields: dict[str, Any] = {"unified": {}}
    for file, text in told.items():
        put = FIELDS[all_files()[file].nri].put(file, text)
        fields |= put | {"unified": fields["unified"] | put.get("unified", {})}
    return Adjustment(**fields)


def said(file: str, resources: LinuxResources) -> str | None:
    """The text that a spec, or a request for one, has of the file; None: nothing."""
    return FIELDS[all_files()[file].nri].read(file, resources)


def unsaid(file: str) -> str | None:
    """The text that means the same as a spec without one; None: there is none, so it cannot be taken back."""
    return FIELDS[all_files()[file].nri].unsaid(file)


def _put_quota(_: str, text: str) -> dict[str, Any]:
    quota, _, period = text.partition(" ")
    found = {"cpu_quota": -1 if quota == "max" else int(quota)}
    return found | ({"cpu_period": int(period)} if period else {})


def _read_quota(file: str, resources: LinuxResources) -> str | None:
    quota = resources.cpu_quota
    if quota is None:
        return None
    if file != "cpu.max":
        return str(quota if quota > 0 else -1)
    return f"{quota if quota > 0 else 'max'} {resources.cpu_period or PERIOD}"


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


FIELDS: Final[Mapping[str, Field]] = {
    "cpu_shares": Field(
        lambda _, text: {"cpu_shares": int(text)},
        lambda _, resources: _number(resources.cpu_shares),
        lambda _: str(DEFAULT_SHARES),
    ),
    "cpu_quota": Field(_put_quota, _read_quota, lambda file: f"max {PERIOD}" if file == "cpu.max" else "-1"),
    "cpus": Field(
        lambda _, text: {"cpus": text}, lambda _, resources: resources.cpus or None, lambda _: None
    ),
    "mems": Field(
        lambda _, text: {"mems": text}, lambda _, resources: resources.mems or None, lambda _: None
    ),
    "unified": Field(
        lambda file, text: {"unified": {file: text}},
        lambda file, resources: resources.unified.get(file),
        lambda file: all_files()[file].fresh or "0",  # a key cannot be taken out of a spec again
    ),
}
"""By what a file declares as its `nri`."""
