"""Events: said once, at their rate, and dropped rather than queued without end."""

from __future__ import annotations

from collections import Counter

import pytest

from adapters.api import EVENTS, POLICIES, APIError
from adapters.kubernetes.events import MOST_QUEUED, REPEAT_SECONDS, EventWriter, Regarding
from adapters.memory import MemoryAPI
from qos import keys


@pytest.fixture
def api(fake_time):
    return MemoryAPI(clock=fake_time)


@pytest.fixture
def said():
    return Counter()


@pytest.fixture
def events(api, said, fake_time):
    def count(outcome):
        said[outcome] += 1

    return EventWriter(api, count, identity="me", clock=fake_time, wall=fake_time)


ABOUT = Regarding(keys.API_VERSION, POLICIES.kind, "default", "checkout", "uid-1")


async def test_the_same_words_are_said_once(api, events, said, fake_time):
    for _ in range(5):
        events.say(ABOUT, "Warning", "Why", "words")
    events.say(ABOUT, "Warning", "Why", "other words")
    await events.run_once()
    assert [one["note"] for one in api.objects(EVENTS)] == ["words", "other words"]
    fake_time.now += REPEAT_SECONDS + 1
    events.say(ABOUT, "Warning", "Why", "words")
    await events.run_once()
    assert len(api.objects(EVENTS)) == 3


async def test_events_are_written_at_their_rate_and_the_queue_is_bounded(api, events, said, fake_time):
    for number in range(MOST_QUEUED + 50):
        events.say(ABOUT, "Normal", "Why", f"words {number}")
    await events.run_once()
    assert len(api.objects(EVENTS)) == 25
    fake_time.now += 2
    await events.run_once()
    assert len(api.objects(EVENTS)) == 35
    assert said["dropped"] == 50


async def test_an_event_that_cannot_be_written_is_dropped_and_counted(api, events, said, fake_time):
    api.fail("create", APIError(403, "Forbidden", "no"))
    events.say(ABOUT, "Normal", "Why", "words")
    await events.run_once()
    await events.run_once()
    assert not api.objects(EVENTS)
    assert said == {"failed": 1}


def test_an_event_about_a_cluster_scoped_object_is_in_namespace_default(api, events, said, fake_time):
    events.say(ABOUT._replace(namespace="", kind="QoSProfile"), "Warning", "Why", "x" * 5000)
    body = events.body(events._queue[0])
    assert body["metadata"]["namespace"] == "default"
    assert len(body["note"]) == 1024
