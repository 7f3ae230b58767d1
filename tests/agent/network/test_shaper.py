from __future__ import annotations

import asyncio

import pytest

from agent.enforcement.fights import MOST_REPAIRS
from agent.network.classifier import Ports
from agent.network.contested import NOTHING_GIVEN_UP, GivenUp
from agent.network.shaper import Shaper
from agent.network.shaping import Shaped
from agent.network.unkept import FOREIGN, LINK_UNKNOWN, NOT_SHAPED, Problem, unkept
from qos.network.bands import DEFAULT, Configuration
from qos.network.planning import plan
from qos.network.recovered import NOTHING_LEFT, Left
from qos.network.wanted import Bounds, Direction, Link, PodTraffic, Shortfall, Unkept, Wanted
from tests.fake_time import FakeTime
from tests.qos.network.nodes import MBIT, pod

ETH = Link(2, "eth0", egress=940 * MBIT, ingress=900 * MBIT)


class Node:
    """Stands for the kernel of a node: what it was made to be, and what it answers."""

    def __init__(self, left: Left = NOTHING_LEFT) -> None:
        self._left = left
        self.answer = Shaped(0, {})
        self.rounds: list[tuple[Wanted, Ports]] = []
        self.broken: Exception | None = None
        self.given_up = NOTHING_GIVEN_UP

    def left(self) -> Left:
        return self._left

    def settle(self, wanted: Wanted, ports: Ports, given_up: GivenUp, *, hasty: bool) -> Shaped:
        self.given_up = given_up
        if self.broken is not None:
            raise self.broken
        self.rounds.append((wanted, ports))
        return self.answer


async def at_once(_: float) -> None:
    await asyncio.sleep(0)


def shaper(node: Node, pods: list[PodTraffic], link: Link | None = ETH) -> Shaper:
    async def now() -> tuple[PodTraffic, ...]:
        return tuple(pods)

    return Shaper(node, now, lambda: link, lambda: DEFAULT, sleep=at_once)


@pytest.mark.parametrize("what", ["qdiscs", "filters"])
async def test_who_undoes_it_again_and_again_is_left_alone_for_longer_and_longer(what: str) -> None:
    node, clock = Node(), FakeTime()
    here, first = frozenset({ETH.index}), int(what == "qdiscs")
    node.answer = Shaped(1, {}, **{"made" if first else "hung_again": here})

    async def pods() -> tuple[PodTraffic, ...]:
        return (pod("1", Bounds(MBIT)),)

    one = Shaper(node, pods, lambda: ETH, lambda: DEFAULT, clock=clock, sleep=at_once)

    async def rounds(count: int) -> list[bool]:
        said = []
        for _ in range(count):
            clock.now += 1
            await one.settle()
            said.append(getattr(node.given_up, what) == here)
        return said

    drift = [False] * (MOST_REPAIRS + 1 + first)
    assert await rounds(7 + first) == [*drift, True], (
        "making a tree is no repair, five are drift, one is a fight"
    )
    assert len(one.contested) == 1
    assert await rounds(58) == [True] * 58
    assert await rounds(3) == [False, False, True], "it was tried once, and undone"
    assert await rounds(118) == [True] * 118
    node.answer = Shaped(0, {})
    assert await rounds(125) == [False] * 125
    assert len(one.contested) == 0, "the last try has held, or there was nothing to do any more"


async def test_what_is_wanted_otherwise_each_time_is_no_fight() -> None:
    node, pods = Node(), [pod("1", Bounds(MBIT))]
    node.answer = Shaped(1, {}, made=frozenset({ETH.index}))
    one = shaper(node, pods)
    for floor in range(1, 20):
        pods[0] = pod("1", Bounds(floor * MBIT))
        await one.settle()
    assert len(one.contested) == 0


async def test_each_plan_is_made_from_the_one_before() -> None:
    node, pods = Node(), [pod("2", Bounds(MBIT))]
    one = shaper(node, pods)
    await one.run_once()
    pods.insert(0, pod("1", Bounds(MBIT)))
    one.changed()
    await one.run_once()
    (first, _), (second, ports) = node.rounds
    assert ports == Ports(frozenset({ETH.index}), frozenset({1001, 1002}))
    assert second.standing["2"] == first.standing["2"]


async def test_the_first_plan_is_made_from_what_an_agent_before_left() -> None:
    pods = [pod("1", Bounds(MBIT)), pod("2", Bounds(MBIT))]
    before = plan([ETH], pods[1:])
    before = plan([ETH], pods, before=before)
    rates = {ETH.index: {one.minor: one.rate for one in before.trees[0].classes}}
    node = Node(Left(before.by_address, before.by_cgroup, rates))
    await shaper(node, pods).run_once()
    assert node.rounds[0][0] == before


async def test_a_round_that_fails_is_due_again() -> None:
    node = Node()
    node.broken = OSError("netlink does not answer")
    one = shaper(node, [pod("1", Bounds(MBIT))])
    with pytest.raises(OSError, match="netlink"):
        await one.run_once()
    assert one.last is None
    node.broken = None
    await asyncio.wait_for(one.run_once(), 10)
    assert len(node.rounds) == 1


async def test_what_is_not_kept_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.answer = Shaped(0, {ETH.index: "mq 1: at eth0 was put there by another"})
    one = shaper(node, [pod("1", Bounds(MBIT)), pod("2")])
    for _ in range(2):
        one.changed()
        await one.run_once()
    text = "its egress is not shaped: mq 1: at eth0 was put there by another"
    assert one.last is not None
    assert one.last.unkept == {"1": (Problem(Direction.EGRESS, True, NOT_SHAPED, text),)}
    assert len([record for record in caplog.records if "not as promised" in record.message]) == 1
    node.answer = Shaped(0, {})
    one.changed()
    await one.run_once()
    assert one.last.unkept == {}


def test_why_a_pod_has_not_what_it_was_promised() -> None:
    floor, limit = Bounds(MBIT), Bounds(limit=MBIT)
    sends, receives, neither = pod("1", floor), pod("2", ingress=limit), pod("3")
    all_three = [sends, receives, neither]

    def said(shaped: Shaped, link: Link | None = ETH) -> dict[str, str]:
        found = unkept(all_three, plan([link] if link else [], all_three), shaped, link)
        return {uid: str(problem) for uid, [problem] in found.items()}

    assert said(Shaped(0, {})) == {}
    assert said(Shaped(0, {}, "no BPF file system")) == {
        "1": f"{NOT_SHAPED}: its egress is not shaped: no BPF file system"
    }
    anothers = {1002: "tbf 1: at veth7 was put there by another"}
    assert said(Shaped(0, anothers, foreign=anothers)) == {
        "2": f"{FOREIGN}: its ingress is not shaped: tbf 1: at veth7 was put there by another"
    }
    assert LINK_UNKNOWN in said(Shaped(0, {}), None)["1"]


def test_a_floor_above_the_pods_own_limit_is_said_and_no_round_fails_for_it() -> None:
    limited = pod("1", Bounds(2 * MBIT, MBIT))
    [problem] = unkept([limited], plan([ETH], [limited]), Shaped(0, {}), ETH)["1"]
    assert (problem.floor, problem.reason) == (True, "Limited")


@pytest.mark.parametrize("reason", Unkept)
def test_each_reason_has_words(reason: Unkept) -> None:
    wanted = Wanted(shortfalls=(Shortfall("1", Direction.EGRESS, MBIT, reason),))
    [problem] = unkept([], wanted, Shaped(0, {}), ETH)["1"]
    assert (problem.reason, len(problem.text) > 50) == (reason.value, True)


def test_what_is_policed_needs_no_tree_and_what_is_not_says_why() -> None:
    both = frozenset(Direction)
    limited = pod("1", Bounds(MBIT, MBIT), Bounds(limit=MBIT))

    def said(shaped: Shaped, link: Link | None = ETH) -> list[tuple[Direction, bool]]:
        found = unkept([limited], planned(link), shaped, link)
        return [(one.direction, one.floor) for one in found.get("1", ())]

    def planned(link: Link | None) -> Wanted:
        return plan([link] if link else [], [limited], Configuration(policed=both))

    floor, limit = (Direction.EGRESS, True), (Direction.EGRESS, False)
    used = frozenset(planned(ETH).policers)
    receiving = frozenset(one for one in used if one.direction is Direction.INGRESS)
    foreign = {2: "mq 1: at eth0 was put there by another"}
    assert said(Shaped(0, {}, policed=receiving)) == [], "the tree does it"
    assert said(Shaped(0, foreign, policed=used)) == [floor]
    assert said(Shaped(0, foreign, policed=receiving)) == [floor, limit]
    assert said(Shaped(0, {}, policed=used), None) == [floor], "no link"
    assert said(Shaped(0, {}, "program police"), None) == [floor, limit, (Direction.INGRESS, False)]


def test_amounts_are_said_in_bits() -> None:
    much = pod("1", Bounds(2000 * MBIT))
    [(uid, [why])] = unkept([much], plan([ETH], [much]), Shaped(0, {}), ETH).items()
    assert (uid, "bits/s of the floor of its egress" in why.text) == ("1", True)


async def test_what_is_written_while_a_round_is_made_counts() -> None:
    node = Node()
    one = shaper(node, [pod("1", Bounds(MBIT))])
    seen: list[bool] = []
    settle = node.settle

    def settling(wanted: Wanted, ports: Ports, given_up: GivenUp, *, hasty: bool) -> Shaped:
        seen.extend((one.is_ours({ETH.index}), one.is_ours({1001}), one.is_ours({3})))
        return settle(wanted, ports, given_up, hasty=hasty)

    node.settle = settling  # type: ignore[method-assign]
    await one.run_once()
    assert seen == [True, True, False]
    assert one.is_ours({ETH.index})


async def test_who_starts_now_waits_for_no_rest() -> None:
    """Once the round under way has ended, which may not know of him."""
    node, pods, asked = Node(), [pod("1", Bounds(MBIT))], asyncio.Semaphore(0)

    async def never(_: float) -> None:
        await asyncio.Event().wait()

    async def slow() -> tuple[PodTraffic, ...]:
        there = tuple(pods)
        await asked.acquire()
        return there

    one = Shaper(node, slow, lambda: ETH, lambda: DEFAULT, sleep=never)
    resting = asyncio.create_task(one.run())
    first = asyncio.create_task(one.at_once())
    for _ in range(3):
        await asyncio.sleep(0)
    second = asyncio.create_task(one.at_once())
    await asyncio.sleep(0)
    pods.append(pod("2", Bounds(MBIT)))
    asked.release()
    asked.release()
    made = await asyncio.wait_for(asyncio.gather(first, second), 10)
    assert [set(one.pods) if one else None for one in made] == [{"1"}, {"1", "2"}]
    resting.cancel()


async def test_all_who_start_while_a_round_is_made_share_the_next() -> None:
    """A round that takes longer than a start may wait would else leave more and more rounds behind."""
    node, pods, asked = Node(), [pod("1", Bounds(MBIT))], asyncio.Semaphore(0)

    async def slow() -> tuple[PodTraffic, ...]:
        there = tuple(pods)
        await asked.acquire()
        return there

    one = Shaper(node, slow, lambda: ETH, lambda: DEFAULT, sleep=at_once)
    starting = [asyncio.create_task(one.at_once())]
    for at in range(2, 22):
        for _ in range(3):
            await asyncio.sleep(0)
        pods.append(pod(str(at), Bounds(MBIT)))
        starting.append(asyncio.create_task(one.at_once()))
    await asyncio.sleep(0)
    for _ in starting:
        asked.release()
    made = await asyncio.wait_for(asyncio.gather(*starting), 10)
    assert len(node.rounds) == 2
    assert [len(of.pods) if of else 0 for of in made] == [1, *[21] * 20]


async def test_before_all_pods_are_known_no_round_is_made_for_one() -> None:
    node = Node()

    async def nothing() -> tuple[PodTraffic, ...]:
        return ()

    one = Shaper(node, nothing, lambda: ETH, lambda: DEFAULT, known_all=lambda: False)
    assert await one.at_once() is None
    assert node.rounds == []


async def test_a_round_that_fails_for_one_who_starts_is_due_again() -> None:
    node = Node()
    node.broken = OSError("netlink does not answer")
    one = shaper(node, [pod("1", Bounds(MBIT))])
    with pytest.raises(OSError, match="netlink"):
        await one.at_once()
    node.broken = None
    await asyncio.wait_for(one.run_once(), 10)
    assert len(node.rounds) == 1


async def test_a_whole_round_that_is_due_is_made_though_a_start_asked_first() -> None:
    node, pods = Node(), [pod("1", Bounds(MBIT))]
    one = shaper(node, pods)
    await one.run_once()
    looks: list[str] = []

    async def narrow() -> tuple[PodTraffic, ...]:
        looks.append("narrow")
        return tuple(pods)

    await asyncio.gather(one.at_once(narrow), one.at_once(narrow))
    assert looks == ["narrow"], "starts share a round"
    one.changed()
    await asyncio.gather(one.at_once(narrow), one.at_once())
    assert looks == ["narrow"], "a whole one does for both"
