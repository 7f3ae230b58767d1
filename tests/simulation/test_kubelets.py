"""What kubelets of the simulation admit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.api import NODES, PODS
from simulation import objects
from simulation.chance import Chance
from simulation.history import World
from simulation.kubelets import Kubelets
from simulation.loop import Stuck, VirtualLoop
from simulation.placeholder_watcher import PlaceholderWatcher
from simulation.store import EPOCH, Store

REFUSES_SECONDS = 3.0


class Node:
    """A node of 4 CPUs and its kubelet."""

    def __init__(self) -> None:
        world = World(1, keeper="Placeholders", refuses=REFUSES_SECONDS)
        self.loop = VirtualLoop()
        self.store = Store(self.loop.time, lambda: EPOCH + self.loop.time())
        told = PlaceholderWatcher(world, self.store, self.loop.time)
        Kubelets(world, self.store, self.loop, Chance(1), told)
        self.store.write(NODES, objects.node("n0", 4000, 8192, 110))

    def create(self, *names: str, cpu: int = 1000, node: str = "n0") -> None:
        for name in names:
            self.store.create(PODS, objects.pod(name, cpu, 64, 0, {}, **({"nodeName": node} if node else {})))

    def resize(self, name: str, cpu: int) -> None:
        self.store.write(PODS, objects.resized(self.store.get(PODS, "default", name), cpu))

    def refused(self) -> dict[str, str]:
        """Why, by pod, once everything has been said: nothing is left to happen."""

        with pytest.raises(Stuck):
            self.loop.run_until_complete(self.loop.create_future())
        there = self.store.bodies(PODS)
        return {one["metadata"]["name"]: one["status"].get("reason", "") for one in there if _failed(one)}


def _failed(body: dict[str, dict[str, str]]) -> bool:
    return body["status"]["phase"] == "Failed"


@pytest.fixture
def there() -> Iterator[Node]:
    made = Node()
    yield made
    made.loop.close()


def test_who_comes_last_is_refused(there: Node) -> None:
    there.create("a", "b", "c", "d", "e")
    assert there.refused() == {"e": "OutOfcpu"}


def test_one_that_is_refused_takes_no_room(there: Node) -> None:
    there.create("a", cpu=3000)
    there.create("b", cpu=2000)
    there.create("c", cpu=1000)
    assert there.refused() == {"b": "OutOfcpu"}


def test_a_pod_is_looked_at_when_it_comes_to_the_node(there: Node) -> None:
    there.create("bound", cpu=3000, node="")
    there.create("a", cpu=2000)
    bound = there.store.get(PODS, "default", "bound")
    there.store.write(PODS, {**bound, "spec": {**bound["spec"], "nodeName": "n0"}})
    assert there.refused() == {"bound": "OutOfcpu"}


def test_whose_end_has_come_leaves_room(there: Node) -> None:
    there.create("a", "b", cpu=2000)
    there.store.remove(PODS, "default", "a")
    there.create("c", cpu=2000)
    assert not there.refused()


def test_a_pod_grows_only_into_what_is_there(there: Node) -> None:
    there.create("a", cpu=2000)
    there.create("b", cpu=1000)
    there.resize("a", 4000)
    there.create("c", cpu=1000)
    assert not there.refused()
    there.resize("b", 500)
    there.create("d", cpu=500)
    assert not there.refused()
