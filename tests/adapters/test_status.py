"""Status of any kind of object, here a cluster-scoped one; more: tests/extender/test_policy_status.py."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest

from adapters.api import EVENTS, PROFILES
from adapters.kubernetes.conditions import Announced, Condition, notices, stamped
from adapters.kubernetes.events import EventWriter
from adapters.kubernetes.status import StatusWriter
from adapters.memory import MemoryAPI


@dataclass(frozen=True)
class Thing:
    """An object with a status."""

    name: str
    uid: str
    resource_version: str
    status: dict[str, Any] = field(default_factory=dict)
    namespace: str = ""

    @property
    def key(self):
        return self.name


def read(raw):
    body = orjson.loads(raw)
    meta = body["metadata"]
    return Thing(meta["name"], meta["uid"], meta["resourceVersion"], body.get("status", {}))


class Desk:
    """A writer of one object's status; `used` is what the next status says."""

    def __init__(self, time):
        self.api, self.time, self.outcomes, self.used = MemoryAPI(clock=time), time, Counter(), 1
        self.seen = read(orjson.dumps(self.api.put(PROFILES, {"metadata": {"name": "a"}})))
        self.events = EventWriter(self.api, self.count, identity="me", clock=time, wall=time)
        self.writer = StatusWriter(
            self.api,
            PROFILES,
            read=read,
            watched={"a": self.seen}.get,
            events=self.events,
            notices=lambda earlier, status: notices(earlier, status, {"Within": Announced("False", "Again")}),
            count=self.count,
            clock=time,
            wall=time,
        )

    def count(self, outcome):
        self.outcomes[outcome] += 1

    def compute(self, now):
        within = Condition("Within", str(self.used < 5), "Used", f"{self.used} of 5")
        return {"used": self.used, "conditions": stamped([within], self.seen.status, 1, now)}

    async def round(self):
        self.time.now += 1
        return await self.writer.run_once([(self.writer.newest(self.seen), self.compute)])


@pytest.fixture
def desk(fake_time):
    return Desk(fake_time)


async def test_it_is_written_when_it_differs_and_says_what_users_must_know(desk):
    for desk.used in (1, 2, 5, 3):
        assert await desk.round() == 0
    await desk.events.run_once()
    assert desk.api.get_object(PROFILES, "", "a")["status"]["used"] == 3
    assert [(one["reason"], one["regarding"]["kind"]) for one in desk.api.objects(EVENTS)] == [
        ("Used", "QoSProfile"),
        ("Again", "QoSProfile"),
    ]
    assert desk.outcomes == {"written": 6}


async def test_another_writer_comes_first_and_ours_is_tried_again(desk):
    desk.api.put(PROFILES, desk.api.get_object(PROFILES, "", "a") | {"spec": {"class": "LS"}})
    await desk.round()
    assert "status" not in desk.api.get_object(PROFILES, "", "a")
    await desk.round()
    assert desk.api.get_object(PROFILES, "", "a")["status"]["used"] == 1
    assert desk.outcomes == {"conflict": 1, "written": 1}


async def test_a_status_that_cannot_be_computed_keeps_no_other_from_being_written(desk):
    desk.time.now += 1
    broken = replace(desk.seen, name="0")
    assert await desk.writer.run_once([(broken, lambda now: {}["bug"]), (desk.seen, desk.compute)]) == 0
    assert desk.api.get_object(PROFILES, "", "a")["status"]["used"] == 1
    assert desk.outcomes == {"failed": 1, "written": 1}


async def test_a_round_ends_where_writes_are_slow_and_the_next_goes_on_where_it_was(desk, monkeypatch):
    things = [
        read(orjson.dumps(desk.api.put(PROFILES, {"metadata": {"name": f"t{number}"}})))
        for number in range(9)
    ]
    written, patch = [], desk.api.patch

    async def slow(resource, namespace, name, body, **options):
        desk.time.now += 1
        written.append(name)
        return await patch(resource, namespace, name, body, **options)

    monkeypatch.setattr(desk.api, "patch", slow)
    due = [(thing, lambda _now: {"used": 1, "conditions": []}) for thing in things]
    assert await desk.writer.run_once(due) == 7
    assert len(written) == 2
    for _ in range(4):
        await desk.writer.run_once(due)
    assert set(written) == {thing.name for thing in things}
