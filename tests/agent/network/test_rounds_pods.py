"""Who is looked up for a round: all, or those alone whom nobody has found yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agent.containers import Containers
from agent.network import identity
from agent.network.configured import Configured
from agent.network.identity import Found
from agent.network.veths import NO_PROCESS, HostEnd
from agent.network_rounds.pods import NetworkPods, Parts
from agent.nri.records import NriPod
from agent.planner import PlannedPod
from agent.state import Known, KnownPod
from qos.cluster.precedence import PriorityClasses
from qos.pods.containers import NodePod
from qos.pods.decision import Decided, decide


def _decided(one: KnownPod) -> Decided:
    return decide(one.pod, "", {}, {}, PriorityClasses({}))


class World:
    """veths: interface by uid of pods that have one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known, self.sandboxes = Known(), dict[str, NriPod]()
        self.veths: dict[str, int] = {}
        self.asked: set[str] = set()
        parts = Parts(
            self.known,
            Containers(lambda _: False, dict),
            lambda: {uid: PlannedPod(_decided(one), ()) for uid, one in self.known.pods.items()},
            _decided,
            lambda: self.sandboxes,
            lambda _: "",
        )
        self.pods = NetworkPods(parts, Configured(), {})
        monkeypatch.setattr(identity, "find", self._find)

    def _find(self, _: object, pods: Mapping[str, KnownPod], *__: object) -> Found:
        self.asked = set(pods)
        return Found({uid: HostEnd(self.veths[uid]) if uid in self.veths else NO_PROCESS for uid in pods}, {})

    def add(self, uid: str, address: str, *, veth: int, planned: bool = True) -> None:
        pod = KnownPod(NodePod(uid, "shop", uid, ()), addresses=(address,))
        self.sandboxes[uid] = NriPod(f"s-{uid}", uid, "shop", uid, addresses=(address,), own_network=True)
        if veth:
            self.veths[uid] = veth
        if planned:
            self.known.pods[uid] = pod
        else:
            self.pods.started(pod)

    async def look(self, *, narrow: bool) -> dict[str, tuple[int, int]]:
        """Interface, and how many addresses, by uid."""
        look: Any = self.pods.with_started if narrow else self.pods.all
        return {one.uid: (one.interface, len(one.addresses)) for one in await look(None, by_cgroup=True)}


@pytest.fixture(name="world")
def _world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_for_a_start_those_alone_whom_nobody_has_found(world: World) -> None:
    world.add("a", "10.0.0.1", veth=11)
    world.add("b", "10.0.0.2", veth=0)
    assert await world.look(narrow=False) == {"a": (11, 1), "b": (0, 1)}
    world.add("new", "10.0.0.3", veth=13, planned=False)
    world.veths["b"] = 12
    assert await world.look(narrow=True) == {"a": (11, 1), "b": (12, 1), "new": (13, 1)}
    assert world.asked == {"b", "new"}
    await world.look(narrow=True)
    assert world.asked == set()
    await world.look(narrow=False)
    assert world.asked == {"a", "b", "new"}


async def test_who_has_ended_keeps_no_address_of_another(world: World) -> None:
    """Nobody has said yet that it ended, and its address was given to the pod that starts."""
    world.add("old", "10.0.0.1", veth=11)
    world.add("other", "10.0.0.2", veth=12)
    await world.look(narrow=False)
    del world.veths["old"]
    world.add("new", "10.0.0.1", veth=13, planned=False)
    assert await world.look(narrow=True) == {"old": (0, 0), "other": (12, 1), "new": (13, 1)}
    assert world.asked == {"old", "new"}
