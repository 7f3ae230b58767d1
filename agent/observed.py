"""STATE/observed.json: what an agent that only observes would write, and which floors were missed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from adapters import atomic_file
from agent.enforcement.writing import Differs
from agent.observer import Observer
from agent.planner import PlannedPod

NAME: Final = "observed.json"
_LARGEST: Final = 64 << 20


class WouldWrite(msgspec.Struct, frozen=True):
    """A kernel file that holds `have` and would get `want`."""

    cgroup: str
    file: str
    have: str
    want: str


class ObservedContainer(msgspec.Struct, frozen=True, rename="camel"):
    """A container and what it would get. `policy`: namespace/name, "" none.

    `deficit_seconds`: of its policy's pods here, all resources together, since the agent started: in which
    they wanted their floor and received less.
    """

    namespace: str
    pod: str
    container: str
    policy: str
    deficit_seconds: float
    settings: tuple[WouldWrite, ...]


class ObservedNode(msgspec.Struct, frozen=True, rename="camel"):
    """at: seconds since the epoch. `of_all_pods`: what the cgroup of all pods would get (--node-shares)."""

    node: str
    at: float
    containers: tuple[ObservedContainer, ...]
    of_all_pods: tuple[WouldWrite, ...] = ()


def observed_node(
    node: str,
    at: float,
    observed: Observer,
    planned: Mapping[str, PlannedPod],
    deficit_seconds: Callable[[str], float],
) -> ObservedNode:
    """The containers of which something would be written; those whose floors were missed longest first."""
    found = []
    for one in observed.observed():
        pod = planned.get(one.running.key.pod_uid)
        if pod is None or not one.differ:
            continue
        policy = pod.decided.policy.key if pod.decided.policy else ""
        settings = _would_write(one.differ)
        named = pod.decided.pod.namespace, pod.decided.pod.name, one.running.key.name
        found.append(ObservedContainer(*named, policy, deficit_seconds(policy) if policy else 0.0, settings))
    found.sort(key=lambda one: (-one.deficit_seconds, one.namespace, one.pod, one.container))
    return ObservedNode(node, at, tuple(found), _would_write(observed.of_all_pods))


def _would_write(differ: Iterable[Differs]) -> tuple[WouldWrite, ...]:
    return tuple(WouldWrite(*place, have, want) for place, have, want in differ)


def write(folder: Path, seen: ObservedNode) -> None:
    """Write it as a whole. OSError."""
    atomic_file.write(folder / NAME, msgspec.json.encode(seen))


def read(folder: Path) -> ObservedNode:
    """OSError: there is none; ValueError: it is not what an agent wrote; atomic_file.Untrusted."""
    return msgspec.json.decode(atomic_file.read(folder / NAME, _LARGEST), type=ObservedNode)
