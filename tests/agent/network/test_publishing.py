"""A node's bandwidth in its status, against an API server in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from adapters.api import NODES, NotFound, Unreachable
from adapters.kubernetes.node_bandwidth import change_to, node_bandwidth
from adapters.memory import MemoryAPI
from agent.network.link import Unknown
from agent.network.publishing import Publishing, resources, withdraw
from agent.network.told import Told
from agent.network.uplink import Uplink
from qos import keys
from qos.network.bands import DEFAULT, Configuration
from qos.network.wanted import Link

LINK = Link(2, "eth0", egress=1_175_000_000, ingress=1_125_000_000, ifb=9)
SHOWN = {keys.EGRESS_BANDWIDTH: 8_460_000_000, keys.INGRESS_BANDWIDTH: 8_100_000_000}
"""Of 10 Gbit/s less headroom: what is not kept for the host and the bands."""


class Seen(Uplink):
    """A link that is what a test says; the labels it was asked with."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Link | Unknown = LINK
        self.asked: list[dict[str, str]] = []
        self.ifb = LINK.ifb

    def _look(self, labels: Any) -> Link | Unknown:
        self.asked.append(dict(labels))
        return self.found


class World:
    """An API server, a node whose kubelet has written its own resources, and a publisher."""

    def __init__(
        self, *, observe: bool = False, floors: bool = True, configuration: Configuration = DEFAULT
    ) -> None:
        self.api = MemoryAPI()
        self.uplink = Seen()
        self.labels: dict[str, str] = {}
        self.changes = 0
        self.now = 0.0
        self.pauses: list[float] = []
        self.registry = CollectorRegistry()
        self.put()
        self.publishing = Publishing(
            self.uplink,
            self.api,
            "n0",
            self.labels,
            self._note,
            configuration=lambda: configuration,
            floors=floors,
            observe=observe,
            registry=self.registry,
            clock=lambda: self.now,
            sleep=self._sleep,
            jitter=lambda: 0.5,
        )

    def _note(self) -> None:
        self.changes += 1

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def put(self, **labels: str) -> None:
        """The node made anew, as kubelet registers it."""
        named = {f"{keys.GROUP}/{name.replace('_', '-')}": value for name, value in labels.items()}
        amounts = {"cpu": "4", "example.com/gpu": "2"}
        body = {"metadata": {"name": "n0", "labels": named}, "status": {"capacity": amounts}}
        self.api.put(NODES, body | {"status": {"capacity": amounts, "allocatable": dict(amounts)}})

    def status(self) -> dict[str, Any]:
        return self.api.get_object(NODES, "", "n0")["status"]

    def writes(self) -> int:
        return sum(call[:2] == ("patch", NODES) for call in self.api.calls)

    def shown(self) -> dict[str, int]:
        """What of ours both say."""
        said = [{k: int(v) for k, v in one.items() if k in SHOWN} for one in self.status().values()]
        assert said[0] == said[1]
        assert self.status()["capacity"]["example.com/gpu"] == "2", "others' are left alone"
        return said[0]

    def counted(self, outcome: str) -> float:
        name = "j10ce_agent_bandwidth_writes_total"
        return self.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


async def until(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not check():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.001)


async def settled(world: World) -> None:
    """After another look all that follows from it is done."""
    looks = len(world.uplink.asked)
    world.publishing.look_again()
    await until(lambda: len(world.uplink.asked) > looks, "it has looked")
    for _ in range(50):
        await asyncio.sleep(0)


@asynccontextmanager
async def at_work(world: World) -> AsyncIterator[World]:
    task = asyncio.create_task(world.publishing.run())
    try:
        yield world
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_bits_are_shown_of_bytes() -> None:
    assert resources(LINK) == SHOWN


def test_what_a_node_receives_is_promised_only_where_it_is_shaped() -> None:
    assert resources(replace(LINK, ifb=0)).keys() == {keys.EGRESS_BANDWIDTH}
    assert resources(replace(LINK, egress=0)).keys() == {keys.INGRESS_BANDWIDTH}
    assert resources(replace(LINK, egress=0, ifb=0)) == {}


async def test_it_is_written_once() -> None:
    async with at_work(World()) as world:
        await until(lambda: world.shown() == SHOWN, "published")
        await settled(world)
        await settled(world)
    assert world.writes() == 1
    assert world.pauses[0] == 2.5, "not all agents at one moment"


async def test_what_is_there_is_not_written_again() -> None:
    world = World()
    await world.api.patch(NODES, "", "n0", change_to(SHOWN), subresource="status")
    async with at_work(world):
        await until(lambda: world.publishing.present is not None, "the node is known")
        await settled(world)
    assert world.writes() == 1, "the test's own"


async def test_quantities_are_compared_as_amounts() -> None:
    world = World()
    written = {keys.EGRESS_BANDWIDTH: "8460M", keys.INGRESS_BANDWIDTH: "8.1G"}
    body = {"status": {"capacity": written, "allocatable": written}}
    raw = await world.api.patch(NODES, "", "n0", body, subresource="status")
    assert node_bandwidth(raw).says(SHOWN)


async def test_a_node_that_is_made_anew_has_it_again() -> None:
    async with at_work(World()) as world:
        await until(lambda: world.shown() == SHOWN, "published")
        world.api.remove(NODES, "", "n0")
        world.put()
        await until(lambda: world.shown() == SHOWN, "published again")


async def test_what_kubelet_sets_to_zero_is_written_again_ever_more_slowly() -> None:
    zero = dict.fromkeys(SHOWN, "0")
    async with at_work(World()) as world:
        for _ in range(5):
            await until(lambda: world.shown() == SHOWN, "published")
            body = {"status": {"capacity": zero, "allocatable": zero}}
            await world.api.patch(NODES, "", "n0", body, subresource="status")
        await until(lambda: world.shown() == SHOWN, "published")
    assert world.pauses[1:6] == [1.0, 2.0, 4.0, 8.0, 16.0]


async def test_a_link_that_gets_slower_is_published_so() -> None:
    async with at_work(World()) as world:
        await until(lambda: world.shown() == SHOWN, "published")
        world.uplink.found = replace(LINK, egress=LINK.egress // 10)
        world.publishing.look_again()
        slower = SHOWN | {keys.EGRESS_BANDWIDTH: 846_000_000}
        await until(lambda: world.shown() == slower, "the truth, whatever owners hold")


async def test_what_is_not_known_is_taken_away_but_not_what_passes() -> None:
    async with at_work(World()) as world:
        await until(lambda: world.shown() == SHOWN, "published")
        world.uplink.found = Unknown("eth0 has no carrier", passing=True)
        await settled(world)
        assert world.shown() == SHOWN
        assert (world.uplink.link, world.uplink.problem) == (LINK, "eth0 has no carrier")
        world.uplink.found = Unknown("eth0 does not say how fast it is")
        world.publishing.look_again()
        await until(lambda: world.shown() == {}, "taken away")
        assert world.uplink.link is None


async def test_a_speed_that_a_file_says_is_offered_where_the_link_says_none() -> None:
    world = World(configuration=Configuration(total_egress=125_000_000))
    world.uplink.found = Unknown("eth0 is a veth", link=Link(2, "eth0", 0, 0))
    async with at_work(world):
        await until(lambda: world.shown() == {keys.EGRESS_BANDWIDTH: 900_000_000}, "offered")


async def test_where_floors_cannot_be_kept_nothing_is_offered() -> None:
    async with at_work(World()) as world:
        await until(lambda: world.shown() == SHOWN, "published")
        world.uplink.found = Unknown("eth0 has no carrier", passing=True)
        world.publishing.withheld = "another program shapes eth0"
        world.publishing.look_again()
        await until(lambda: world.shown() == {}, "taken away")
        world.uplink.found, world.publishing.withheld = LINK, ""
        world.publishing.look_again()
        await until(lambda: world.shown() == SHOWN, "published again")


async def test_an_observer_writes_nothing() -> None:
    async with at_work(World(observe=True)) as world:
        await until(lambda: len(world.uplink.asked) > 1, "it looks, also at labels")
        await settled(world)
        assert world.uplink.link == LINK
    assert world.writes() == 0


async def test_where_floors_are_switched_off_what_was_published_is_taken_away() -> None:
    world = World(floors=False)
    await world.api.patch(NODES, "", "n0", change_to(SHOWN), subresource="status")
    world.api.fail("get", times=2)
    async with at_work(world):
        await until(lambda: world.shown() == {}, "taken away")
    assert world.uplink.asked == []
    assert world.api.watchers(NODES) == 0, "nothing is followed for it"
    assert ("watch", NODES, "") not in world.api.calls
    assert world.counted("failed") == 2


async def test_labels_are_known_before_anything_is_decided() -> None:
    world = World()
    world.put(link_egress="10G")
    world.uplink.found = Unknown("eth0 does not say how fast it is")
    await world.api.patch(NODES, "", "n0", change_to(SHOWN), subresource="status")
    gate = world.api.hang("list_page", resource=NODES)
    async with at_work(world):
        await until(lambda: world.uplink.asked == [{}], "it looks without knowing them")
        await asyncio.sleep(0.01)
        world.uplink.found = LINK
        gate.set()
        await until(lambda: world.uplink.asked[-1] == {keys.LINK_EGRESS_LABEL: "10G"}, "then with them")
        await settled(world)
    assert world.writes() == 1, "what was there has stayed all the time"
    assert world.labels == {keys.LINK_EGRESS_LABEL: "10G"}, "for the next start"
    assert world.changes == 1


async def test_labels_of_the_last_time_count_where_the_server_is_away() -> None:
    world = World()
    world.labels[keys.LINK_EGRESS_LABEL] = "25G"
    world.api.fail("list_page", times=10_000)
    async with at_work(world):
        await until(lambda: bool(world.uplink.asked), "it looks")
    assert world.uplink.asked[0] == {keys.LINK_EGRESS_LABEL: "25G"}
    assert world.uplink.link == LINK


@pytest.mark.parametrize("applied", [False, True])
async def test_a_write_that_fails_is_tried_again(applied: bool) -> None:
    world = World()
    world.api.fail("patch", times=3, applied=applied)
    async with at_work(world):
        await until(lambda: world.counted("written") == 1 or applied, "written in the end")
        await until(lambda: world.shown() == SHOWN, "published")
    assert world.counted("failed") == (1 if applied else 3)
    assert world.publishing.failure == ("cut by the test" if applied else "")


async def test_it_is_withdrawn() -> None:
    world = World()
    await world.api.patch(NODES, "", "n0", change_to(SHOWN), subresource="status")
    await withdraw(world.api, "n0")
    assert world.shown() == {}
    writes = world.writes()
    await withdraw(world.api, "n0")
    assert world.writes() == writes, "where nothing is nothing is written"
    await withdraw(world.api, "gone")
    world.api.fail("get", Unreachable("away"))
    with pytest.raises(Unreachable):
        await withdraw(world.api, "n0")
    with pytest.raises(NotFound):
        world.api.get_object(NODES, "", "gone")


async def test_a_label_that_is_wrong_takes_nothing_away() -> None:
    uplink = Uplink(Told(egress=10, ingress=10, egress_share=Fraction(1)))
    found = uplink.see({keys.LINK_EGRESS_LABEL: "10Gbit"})
    assert isinstance(found, Unknown)
    assert found.passing
    assert uplink.problem.startswith("label j10ce.io/link-egress 10Gbit: expected bits a second")


def test_a_kernel_that_does_not_answer_is_asked_again() -> None:
    def refused() -> Any:
        raise PermissionError(1, "not permitted")

    uplink = Uplink(opened=refused)
    found = uplink.see({})
    assert isinstance(found, Unknown)
    assert found.passing
    assert "not permitted" in uplink.problem
