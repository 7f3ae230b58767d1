"""Field selectors: what is selected, what a watch sees of an object that comes and goes, and both in use."""

import json

import pytest

from adapters.api import PODS, WatchEvent
from adapters.field_selectors import as_watched, selects
from adapters.kubernetes.reflector import Reflector
from adapters.memory import MemoryAPI
from tests.waiting import running

HERE = "spec.nodeName=here"


def raw(node="", **status):
    return json.dumps({"metadata": {"name": "a"}, "spec": {"nodeName": node}, "status": status}).encode()


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("", True),
        (HERE, True),
        ("spec.nodeName==here", True),
        ("spec.nodeName!=here", False),
        ("spec.nodeName=there", False),
        ("spec.nodeName=here,status.phase=Running", True),
        ("spec.nodeName=here,status.phase!=Running", False),
        ("spec.schedulerName=", True),
        ("spec.nodeName.deeper=here", False),
    ],
)
def test_what_is_selected(selector, selected):
    assert selects(selector, raw("here", phase="Running")) is selected


@pytest.mark.parametrize("selector", ["spec.nodeName", "=here", "!=here", "a=1,"])
def test_what_is_no_selector(selector):
    with pytest.raises(ValueError, match="is not a term of a field selector"):
        selects(selector, raw())


@pytest.mark.parametrize(
    ("before", "event", "seen"),
    [
        (None, ("ADDED", "here"), "ADDED"),
        (None, ("ADDED", "there"), None),
        ("", ("MODIFIED", "here"), "ADDED"),
        ("here", ("MODIFIED", "here"), "MODIFIED"),
        ("here", ("MODIFIED", "there"), "DELETED"),
        ("there", ("MODIFIED", "there"), None),
        ("here", ("DELETED", "here"), "DELETED"),
        ("there", ("DELETED", "there"), None),
    ],
)
def test_what_a_watch_sees(before, event, seen):
    told = as_watched(HERE, WatchEvent(event[0], raw(event[1])), None if before is None else raw(before))
    assert (told.type if told else None) == seen


async def test_a_reflector_follows_one_nodes_pods(fake_time, eventually):
    api, there = MemoryAPI(clock=lambda: 0.0), {}

    def keep(raw):
        meta = json.loads(raw)["metadata"]
        there[meta["uid"]] = meta["name"]
        return meta["uid"]

    def put(name, node=""):
        api.put(PODS, {"metadata": {"name": name}, "spec": {"nodeName": node}})

    put("a", "here")
    put("b", "there")
    put("c")
    reflector = Reflector(
        api, PODS, keep, there.pop, field_selector=HERE, page_size=0, clock=fake_time, sleep=fake_time.sleep
    )
    async with running(reflector.run()):
        await eventually(reflector.synced.is_set)
        assert sorted(there.values()) == ["a"]
        put("c", "here")
        put("b", "elsewhere")
        await eventually(lambda: sorted(there.values()) == ["a", "c"])
        api.cut()
        api.remove(PODS, "default", "a")
        api.remove(PODS, "default", "b")
        put("e", "there")
        put("d", "here")
        await eventually(lambda: sorted(there.values()) == ["c", "d"])
        assert reflector.relists == 1


async def test_no_wait_is_longer_than_asked_for(fake_time, eventually):
    api = MemoryAPI(clock=lambda: 0.0)
    api.fail("list_page", times=30)
    reflector = Reflector(
        api, PODS, lambda raw: None, lambda key: None, most_wait=30.0,
        clock=fake_time, sleep=fake_time.sleep, jitter=lambda: 0.5,
    )  # fmt: skip
    async with running(reflector.run()):
        await eventually(reflector.synced.is_set)
    assert fake_time.slept[:3] == [0.2, 0.4, 0.8]
    assert max(fake_time.slept) == 30.0
