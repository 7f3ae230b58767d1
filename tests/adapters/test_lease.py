import asyncio
from contextlib import suppress

import pytest

from adapters.api import LEASES, Conflict
from adapters.kubernetes.lease import LeaseElector, Timing
from adapters.memory import MemoryAPI

NAMESPACE, NAME = "kube-system", "j10ce-extender"


class Candidate:
    """An elector that takes one step when told to, on a clock of its own."""

    def __init__(self, api, identity, wall=0.0):
        self.now = 100.0
        self.wall = wall
        self.events = []
        self.elector = LeaseElector(
            api,
            NAMESPACE,
            NAME,
            identity,
            on_started=lambda: self.events.append("started"),
            on_stopped=lambda: self.events.append("stopped"),
            clock=lambda: self.now,
            wall=lambda: self.wall + self.now,
            sleep=self.sleep,
            jitter=lambda: 0.0,
        )
        self.steps = asyncio.Semaphore(0)
        self.idle = asyncio.Event()
        self.task = asyncio.create_task(self.elector.run())

    async def sleep(self, seconds):
        self.idle.set()
        await self.steps.acquire()

    async def settle(self):
        """Until it sleeps."""
        await asyncio.wait_for(self.idle.wait(), 30)

    async def step(self, seconds=2.0):
        await self.settle()
        self.now += seconds
        self.idle.clear()
        self.steps.release()
        await self.settle()

    async def stop(self):
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    @property
    def leads(self):
        return self.elector.is_leader


@pytest.fixture
def api():
    return MemoryAPI(clock=lambda: 0.0)


@pytest.fixture
async def candidate(api):
    made = []

    def make(identity, **options):
        made.append(Candidate(api, identity, **options))
        return made[-1]

    yield make
    for one in made:
        await one.stop()


def lease(api):
    return api.get_object(LEASES, NAMESPACE, NAME)["spec"]


async def test_the_first_one_leads_and_renews(api, candidate):
    a = candidate("a")
    await a.settle()
    assert (a.leads, a.events, a.elector.vacant_seconds, a.elector.holder) == (True, ["started"], 0.0, "a")
    before = lease(api)
    await a.step()
    after = lease(api)
    assert (after["holderIdentity"], after["leaseTransitions"], after["leaseDurationSeconds"]) == ("a", 0, 15)
    assert after["acquireTime"] == before["acquireTime"] == "1970-01-01T00:01:40.000000Z"
    assert after["renewTime"] == "1970-01-01T00:01:42.000000Z"
    assert a.events == ["started"]


async def test_the_second_waits_while_the_first_renews(candidate):
    a, b = candidate("a"), candidate("b")
    for _ in range(20):
        await a.step()
        await b.step()
    assert (a.leads, b.leads, b.elector.holder) == (True, False, "a")


async def test_the_second_takes_over_and_knows_for_how_long_nobody_led(api, candidate):
    a = candidate("a")
    await a.settle()
    b = candidate("b")
    await b.settle()
    a.task.cancel()  # killed: nothing is given back
    api.fail("get", times=1)
    with suppress(asyncio.CancelledError):
        await a.task
    await b.step(14.0)
    assert not b.leads
    await b.step(2.0)
    assert (b.leads, b.elector.vacant_seconds) == (True, 16.0)
    assert (lease(api)["holderIdentity"], lease(api)["leaseTransitions"]) == ("b", 1)


async def test_expiry_is_judged_by_our_own_clock(candidate):
    a = candidate("a")
    await a.settle()
    b = candidate("b", wall=1_000_000.0)  # its wall clock is far ahead: the lease looks long expired
    await b.step(1.0)
    assert not b.leads


async def test_a_leader_that_cannot_renew_steps_down_before_another_may_lead(api, candidate):
    a = candidate("a")
    await a.settle()
    api.fail("replace", times=100)
    for _ in range(4):
        await a.step()
    assert a.leads
    await a.step()
    assert (a.leads, a.events) == (False, ["started", "stopped"])


async def test_a_leader_that_was_paused_knows_at_once(candidate):
    a = candidate("a")
    await a.settle()
    a.now += 10.0
    assert not a.leads
    assert a.events == ["started"]
    await a.step(0.0)
    assert (a.leads, a.elector.vacant_seconds) == (True, 0.0)


async def test_a_leader_that_was_replaced_steps_down(api, candidate):
    a = candidate("a")
    await a.settle()
    stolen = api.get_object(LEASES, NAMESPACE, NAME)
    stolen["spec"]["holderIdentity"] = "b"
    api.put(LEASES, stolen)
    await a.step()
    assert (a.leads, a.events, a.elector.holder) == (False, ["started", "stopped"], "b")


async def test_of_two_that_take_over_at_once_one_leads(api, candidate):
    a = candidate("a")
    await a.settle()
    api.fail("replace", Conflict(409, "Conflict", "another was first"), after=0)
    await a.step()
    assert a.leads  # its last renewal is still young
    b = candidate("b")
    api.fail("create", Conflict(409, "AlreadyExists", "another was first"))
    await b.settle()
    assert not b.leads


async def test_a_lease_is_given_back_when_its_holder_stops(api, candidate):
    a = candidate("a")
    await a.settle()
    a.now += 5.0
    await a.stop()
    assert (a.leads, a.events, lease(api)["holderIdentity"]) == (False, ["started", "stopped"], "")
    b = candidate("b")
    b.now = 108.0
    await b.settle()
    assert (b.leads, b.elector.vacant_seconds) == (True, 3.0)


async def test_stopping_without_the_lease_leaves_it_alone(api, candidate):
    a = candidate("a")
    await a.settle()
    b = candidate("b")
    await b.settle()
    await b.stop()
    assert (lease(api)["holderIdentity"], b.events) == ("a", [])


async def test_a_server_that_is_away_at_the_start(api, candidate):
    api.fail("get", times=2)
    a = candidate("a")
    await a.settle()
    assert not a.leads
    await a.step()
    await a.step()
    assert a.leads


@pytest.mark.parametrize("seconds", [(15, 15, 2), (15, 10, 10), (15, 10, 0)])
def test_timings_that_cannot_work_are_refused(seconds):
    with pytest.raises(ValueError, match="lease: need 0 < retry"):
        Timing(*seconds)
