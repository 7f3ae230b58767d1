"""A wall clock that is set, forward or back, changes what is written and nothing that is waited for."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import orjson
import pytest

from adapters.api import EVENTS, PODS, POLICIES
from adapters.kubernetes import decode
from adapters.kubernetes.events import EventWriter, Regarding
from adapters.kubernetes.node_qos import NodeNews
from adapters.memory import MemoryAPI
from extender.config import ExtenderConfig
from extender.node_reports import STALE_SECONDS
from extender.program import Program
from extender.waking import Waker
from qos import keys
from qos.cluster.needs import Enforcement
from qos.cluster.objects import Pod
from tests.extender.accounts import Account, calls
from tests.extender.conftest import NOW, Clock

ABOUT = Regarding(keys.API_VERSION, POLICIES.kind, "default", "checkout", "uid-1")
JUMPS = pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])


@pytest.fixture
def steady() -> Clock:
    return Clock(5.0)


@JUMPS
async def test_events_keep_their_pace_and_say_the_time_of_day(api, metrics, steady, jump):
    wall = Clock()
    events = EventWriter(api, metrics.event, identity="me", clock=steady, wall=wall)
    for number in range(30):
        events.say(ABOUT, "Normal", "Why", f"words {number}")
    await events.run_once()
    wall.advance(jump)
    await events.run_once()
    events.say(ABOUT, "Normal", "Why", "words 0")
    steady.advance(60)
    await events.run_once()
    written = api.objects(EVENTS)
    assert len(written) == 30, "25 at once, and the same words not again"
    day = datetime.fromtimestamp(NOW, UTC).strftime("%Y-%m-%dT")
    assert all(one["eventTime"].startswith(day) for one in written)


@JUMPS
async def test_a_pod_is_woken_once_a_second_and_the_annotation_is_the_time_of_day(
    api, metrics, steady, make_pod, jump
):
    account, wall = Account(), Clock()
    pod = decode.pod(orjson.dumps(api.put(PODS, make_pod("web"))))
    account.pods[pod.uid] = pod
    waker = Waker(api, account, metrics, clock=steady, wall=wall, timer=steady)
    for seconds in (0.0, 0.5):
        steady.advance(seconds)
        account.waits = [pod]
        await waker.run_once()
        wall.advance(jump)
    assert len(calls(api, "patch")) == 1
    woken = api.get_object(PODS, "default", "web")["metadata"]["annotations"][keys.WAKE_ANNOTATION]
    assert float(woken) == NOW
    steady.advance(0.5)
    await waker.run_once()
    assert len(calls(api, "patch")) == 2


@JUMPS
def test_t09_a_pod_in_flight_is_settled_and_the_warm_up_ends_by_the_steady_clock(make_node, make_pod, jump):
    steady, wall = Clock(5.0), Clock()
    config = ExtenderConfig(identity="me", binds=False)
    program = Program(config, MemoryAPI(), clock=steady, wall=wall)
    ledger = program.ledger
    assert ledger._state.warmup_until == steady() + config.warmup_seconds
    ledger.set_node(decode.node(orjson.dumps(make_node("n1"))))
    ledger.set_pod(pod := decode.pod(orjson.dumps(MemoryAPI().put(PODS, make_pod("web")))))
    assert ledger.filter(pod, ["n1"], steady()).nodes == ["n1"]
    wall.advance(jump)
    steady.advance(math.nextafter(config.settle_seconds, 0.0))
    assert not ledger.expired(program._clock())
    steady.advance(1)
    assert ledger.expired(program._clock()) == [pod]


async def test_a_breach_ends_and_conditions_are_stamped_by_the_time_of_day(api, steady, make_policy):
    wall = Clock()
    program = Program(ExtenderConfig(identity="me"), api, clock=steady, wall=wall)
    program.guarding.installed = 0.0
    program.guarding.see(Pod("u", "a", "p", {}, node_name="n1", created=NOW - 9, scheduled=NOW - 9))

    async def guarded() -> dict[str, str]:
        steady.advance(1)
        await program.writer.run_once()
        stored = api.get_object(POLICIES, "default", "checkout")
        program.catalog.set_policy(decode.policy(orjson.dumps(stored)))
        return next(one for one in stored["status"]["conditions"] if one["type"] == keys.GUARDED)

    program.catalog.set_policy(decode.policy(orjson.dumps(api.put(POLICIES, make_policy()))))
    program.catalog.open()
    first = await guarded()
    assert first["reason"] == "ExtenderAway"
    assert first["lastTransitionTime"] == datetime.fromtimestamp(NOW, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    wall.advance(program.config.guard_window_seconds)
    assert (await guarded())["reason"] == "Guarded"


async def test_nobody_is_silent_while_the_api_server_is(steady, make_node):
    """The loop that lets old reports go runs on; what the watch heard last decides."""
    program = Program(ExtenderConfig(identity="me"), MemoryAPI(), clock=steady)
    program.reports.set(NodeNews("n1", "1", Enforcement(), ()))
    for _ in range(30):
        steady.advance(STALE_SECONDS / 15)
        await program._expire()
    assert program.reports.agents == 1
