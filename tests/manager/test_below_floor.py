"""Pods that run below their floor: counted by policy, and told once."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest

from adapters.api import EVENTS, PODS, APIError
from adapters.kubernetes import decode
from adapters.kubernetes.events import EventWriter
from manager.below_floor import BelowFloor


class Desk:
    """The reconciler over policies and pods of an API server in memory."""

    def __init__(self, api, time):
        self.api, self.time, self.policies, self.skipped = api, time, {}, Counter()
        self.events = EventWriter(api, lambda outcome: None, identity="me", clock=time, wall=time)
        self.rounds = BelowFloor(
            api,
            self.policies,
            self.events,
            seconds=60,
            skipped=lambda name: self.skipped.update([name]),
            clock=time,
        )

    def add(self, *policies):
        for raw in policies:
            policy = decode.policy(orjson.dumps(raw))
            self.policies[policy.key] = policy

    async def look(self):
        await self.rounds.run_once()
        await self.events.run_once()
        return self.rounds.counts

    def notes(self):
        return [one["note"] for one in self.api.objects(EVENTS)]


@pytest.fixture
def desk(api, fake_time):
    return Desk(api, fake_time)


async def test_pods_that_lack_something_are_counted_and_told(desk, api, make_policy, make_pod):
    desk.add(make_policy(), make_policy("other"), make_policy("rich", cpu="100m"))
    for pod in (
        make_pod("b", cpu="1"),
        make_pod("a", cpu="500m"),
        make_pod("enough", cpu="2"),
        make_pod("done", phase="Succeeded"),
        make_pod("rich", app="rich"),
        make_pod("elsewhere", namespace="other"),
        make_pod("nobody", app="nobody"),
    ):
        api.put(PODS, pod)
    assert await desk.look() == {"shop/checkout": 2, "shop/other": 0, "shop/rich": 0}
    assert desk.notes() == [
        "2 pods request less than the floor: a has cpu 500m, floor 2; make them anew, or resize them in place"
    ]
    (event,) = api.objects(EVENTS)
    assert event["type"] == "Warning"
    assert event["regarding"]["name"] == "checkout"


async def test_it_is_told_again_only_when_it_gets_worse(desk, api, make_policy, make_pod):
    desk.add(make_policy())
    api.put(PODS, make_pod("a"))
    await desk.look()
    await desk.look()
    api.put(PODS, make_pod("b"))
    await desk.look()
    api.remove(PODS, "shop", "a")
    assert await desk.look() == {"shop/checkout": 1}
    assert [note.split(":")[0] for note in desk.notes()] == [
        "1 pod requests less than the floor",
        "2 pods request less than the floor",
    ]


async def test_a_namespace_that_cannot_be_listed_costs_no_other(desk, api, make_policy, make_pod):
    desk.add(make_policy("a", namespace="a"), make_policy("b", namespace="b"))
    api.put(PODS, make_pod("p", app="b", namespace="b"))
    api.fail("list_page", APIError(403, "Forbidden", "no"))
    assert await desk.look() == {"b/b": 1}


async def test_a_policy_that_is_gone_is_no_longer_shown(desk, api, make_policy, make_pod):
    desk.add(make_policy())
    api.put(PODS, make_pod("a"))
    await desk.look()
    desk.policies.clear()
    assert await desk.look() == {}


async def test_a_round_is_due_after_a_while_and_at_once_for_a_new_leader(desk, api, make_policy, make_pod):
    desk.add(make_policy())
    await desk.rounds.run_when_due()
    api.put(PODS, make_pod("a"))
    await desk.rounds.run_when_due()
    assert desk.rounds.counts == {"shop/checkout": 0}
    desk.rounds.forget()
    await desk.rounds.run_when_due()
    assert desk.rounds.counts == {"shop/checkout": 1}
    api.remove(PODS, "shop", "a")
    desk.time.now += 61
    await desk.rounds.run_when_due()
    assert desk.rounds.counts == {"shop/checkout": 0}
