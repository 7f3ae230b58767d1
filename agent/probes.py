"""What this node enforces: each promise's files are written once, in a cgroup made for it, and read back.

That a file is there says little: a container's /sys may be read-only, a controller may be off, a kernel may
refuse or clamp. What only a load could show (whether a disk scheduler heeds a weight) is not tried.
"""

from __future__ import annotations

import posix
from collections.abc import Iterator, Mapping
from typing import Final

from kernel import facts, values
from kernel.refused import Refused
from kernel.scratch import Scratch, own_process
from qos.cluster.node_report import PromiseState
from qos.plan.controller import OF_PROCESS, Keeps, all_controllers, all_files

_NOT_GIVEN: Final = "the agent does not give CPUs to single pods yet; they run in the share pool"


class Node:
    """Where to try: `mounts` of the hierarchies (kernel.hierarchies); `unified`: on cgroup v2; disks."""

    def __init__(
        self,
        mounts: Mapping[str, str],
        *,
        unified: bool,
        devices: tuple[str, ...],
        proc: str = "/proc",
        name: str = "j10ce-probe",
    ) -> None:
        self.mounts = mounts
        self.unified = unified
        self.devices = devices
        self.proc = proc
        self.name = f"{name}.{posix.getpid()}"


def promises(node: Node) -> tuple[PromiseState, ...]:
    """Every promise that the controllers know, tried. Milliseconds; nothing is left behind."""
    return tuple(_state(node, keeps) for controller in all_controllers() for keeps in controller.KEEPS)


def observed_promises(node: Node, path: str) -> tuple[PromiseState, ...]:
    """The same by looking alone: none is enforced; the message says whether a cgroup has the files.

    path: of a cgroup to look in, "" for none.
    """
    return tuple(
        _observed(node, path, keeps) for controller in all_controllers() for keeps in controller.KEEPS
    )


def _observed(node: Node, path: str, keeps: Keeps) -> PromiseState:
    files = keeps.files(node.unified)
    there = next((file for file in files if _is_there(node, path, file)), "")
    found = f"{there} is there" if there else f"{' and '.join(files) or 'its file'} is not there"
    message = f"the agent only observes: nothing was tried; {found}"
    return PromiseState(keeps.promise, enforced=False, file=there, message=message)


def _is_there(node: Node, path: str, file: str) -> bool:
    hierarchy = all_files()[file].hierarchy
    if hierarchy == OF_PROCESS:
        return True
    mountpoint = node.mounts.get("" if node.unified else hierarchy)
    look = facts.look(mountpoint, path, ()) if mountpoint and path else None
    return look is not None and file in look.names


def _state(node: Node, keeps: Keeps) -> PromiseState:
    files = keeps.files(node.unified)
    if keeps.promise == "cpus":
        return PromiseState(keeps.promise, enforced=False, message=_NOT_GIVEN)
    if not files:
        why = "cgroup v2 has nothing like it" if node.unified else f"cgroup v1 has no {keeps.v2[0]}"
        return PromiseState(keeps.promise, enforced=False, message=f"{why}; {keeps.otherwise}")
    refusals = [(file, _refusal(node, file)) for file in files]
    if keeps.together:
        refused = next((pair for pair in refusals if pair[1]), None)
        works = None if refused else files[0]
    else:
        works = next((file for file, why in refusals if not why), None)
        refused = refusals[0]
    if works:
        return PromiseState(keeps.promise, enforced=True, file=works)
    assert refused is not None
    file, why = refused
    return PromiseState(keeps.promise, enforced=False, file=file, message=f"{why}; {keeps.otherwise}")


def _refusal(node: Node, file: str) -> str:
    """Why a file cannot keep anything here, "" if it can."""
    declared = all_files()[file]
    if declared.hierarchy == OF_PROCESS:
        return _process_refusal(node, file)
    mountpoint = node.mounts.get("" if node.unified else declared.hierarchy)
    if mountpoint is None:
        return f"no hierarchy with {file} is mounted"
    if declared.per_device and not node.devices:
        return "no disk is to be seen"
    try:
        with Scratch(mountpoint, node.name) as group:
            if not group.has(file):
                return f"this kernel has no {file}, or its controller is off"
            for step, wanted in _steps(node, file):
                group.write(step, wanted)
            have = group.read(file)
            if not values.equal(file, have, wanted):
                return f"{file} reads {have.strip()!r} after {wanted!r} was written"
    except Refused as refused:
        return str(refused)
    return ""


def _steps(node: Node, file: str) -> Iterator[tuple[str, str]]:
    """What is written to try a file, in order."""
    declared = all_files()[file]
    for needed in declared.after:
        yield from _steps(node, needed)
    yield file, f"{node.devices[0]} {declared.trial}" if declared.per_device else declared.trial


def _process_refusal(node: Node, file: str) -> str:
    """Lowering is what takes a right, so our own is lowered by one and put back."""
    try:
        process = own_process(node.proc)
        try:
            now = int(process.read(file))
            process.write(file, str(max(now - 1, -1000)))
            process.write(file, str(now))
        finally:
            process.close()
    except Refused as refused:
        return str(refused)
    return ""
