import asyncio
import json

import pytest

from adapters.api import NODES, PODS, POLICIES, Conflict, Gone, NotFound, Unreachable
from adapters.memory import MemoryAPI, timestamp
from adapters.writes import merge_patch


@pytest.fixture
def api():
    return MemoryAPI(clock=lambda: 0.0)


def pod(name, **spec):
    return {"metadata": {"name": name}, "spec": spec}


async def collect(api, resource, since, count):
    events = []
    async for event in api.watch(resource, resource_version=since):
        events.append((event.type, json.loads(event.object)["metadata"].get("name", "")))
        if len(events) == count:
            return events
    return events


async def test_what_the_server_fills_in(api):
    first = api.put(PODS, pod("a"))["metadata"]
    assert first["namespace"] == "default"
    assert first["creationTimestamp"] == "1970-01-01T00:00:00Z"
    again = api.put(PODS, pod("a", nodeName="n1"))["metadata"]
    assert (again["uid"], again["generation"]) == (first["uid"], 2)
    assert int(again["resourceVersion"]) > int(first["resourceVersion"])


async def test_lists_are_snapshots(api):
    for name in "abc":
        api.put(PODS, pod(name))
    page = await api.list_page(PODS, limit=2)
    api.remove(PODS, "default", "c")
    rest = await api.list_page(PODS, limit=2, continue_token=page.continue_token)
    names = [json.loads(raw)["metadata"]["name"] for raw in (*page.items, *rest.items)]
    assert (names, rest.continue_token, rest.resource_version) == (["a", "b", "c"], "", page.resource_version)
    with pytest.raises(Gone):
        await api.list_page(PODS, continue_token=page.continue_token)


async def test_lists_by_namespace(api):
    api.put(PODS, {"metadata": {"name": "a", "namespace": "one"}})
    api.put(PODS, {"metadata": {"name": "a", "namespace": "two"}})
    assert len((await api.list_page(PODS, namespace="two")).items) == 1
    assert len((await api.list_page(PODS)).items) == 2


async def test_a_watch_replays_then_follows_its_kind_only(api):
    since = (await api.list_page(PODS)).resource_version
    api.put(PODS, pod("a"))
    api.put(NODES, {"metadata": {"name": "n1"}})
    events = asyncio.create_task(collect(api, PODS, since, 4))
    await asyncio.sleep(0)
    api.put(PODS, pod("a", nodeName="n1"))
    api.remove(PODS, "default", "a")
    api.bookmark()
    assert await events == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("BOOKMARK", "")]


async def test_watches_are_cut_closed_and_expire(api):
    since = (await api.list_page(PODS)).resource_version
    for interrupt, outcome in ((api.cut, Unreachable), (api.expire, Gone)):
        events = asyncio.create_task(collect(api, PODS, since, 1))
        await asyncio.sleep(0)
        interrupt()
        with pytest.raises(outcome):
            await events
    with pytest.raises(Gone):
        await collect(api, PODS, since, 1)
    since = (await api.list_page(PODS)).resource_version
    events = asyncio.create_task(collect(api, PODS, since, 1))
    await asyncio.sleep(0)
    assert api.watchers(PODS) == 1
    api.close_watches()
    assert await events == []


async def test_create_replace_and_get(api):
    await api.create(POLICIES, "shop", {"metadata": {"name": "a"}, "spec": {}})
    with pytest.raises(Conflict):
        await api.create(POLICIES, "shop", {"metadata": {"name": "a"}})
    read = json.loads(await api.get(POLICIES, "shop", "a"))
    await api.replace(POLICIES, "shop", "a", read | {"spec": {"suspend": True}})
    with pytest.raises(Conflict):
        await api.replace(POLICIES, "shop", "a", read)
    assert api.get_object(POLICIES, "shop", "a")["spec"] == {"suspend": True}
    with pytest.raises(NotFound):
        await api.get(POLICIES, "shop", "b")
    made = json.loads(await api.create(POLICIES, "shop", {"metadata": {"generateName": "a-"}}))
    assert made["metadata"]["name"].startswith("a-")


async def test_patches(api):
    stored = api.put(POLICIES, {"metadata": {"name": "a"}, "spec": {"x": 1}, "status": {"old": 1}})
    change = {"spec": {"x": 2}, "status": {"new": 2}}
    patched = json.loads(await api.patch(POLICIES, "default", "a", change, subresource="status"))
    assert (patched["spec"], patched["status"]) == ({"x": 1}, {"old": 1, "new": 2})
    assert patched["metadata"]["generation"] == 1
    stale = {"metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]}, "spec": {"x": 3}}
    with pytest.raises(Conflict):
        await api.patch(POLICIES, "default", "a", stale)


def test_merge_patch():
    assert merge_patch({"a": 1, "b": {"c": 1, "d": 2}}, {"a": None, "b": {"c": None, "e": {"f": None}}}) == {
        "b": {"d": 2, "e": {}}
    }


async def test_bind(api):
    uid = api.put(PODS, pod("a"))["metadata"]["uid"]
    with pytest.raises(Conflict, match="UID"):
        await api.bind("default", "a", "other", "n1", {})
    await api.bind("default", "a", uid, "n1", {"k": "v"})
    stored = api.get_object(PODS, "default", "a")
    assert (stored["spec"]["nodeName"], stored["metadata"]["annotations"]) == ("n1", {"k": "v"})
    assert stored["status"]["conditions"][0]["type"] == "PodScheduled"
    with pytest.raises(Conflict, match="already assigned"):
        await api.bind("default", "a", uid, "n2", {})
    with pytest.raises(NotFound):
        await api.bind("default", "b", uid, "n1", {})
    assert [(b.name, b.node) for b in api.bindings] == [("a", "n1")]


async def test_a_pod_that_is_being_deleted_cannot_be_bound(api):
    uid = api.put(PODS, {"metadata": {"name": "a", "deletionTimestamp": timestamp(0)}})["metadata"]["uid"]
    with pytest.raises(Conflict, match="being deleted"):
        await api.bind("default", "a", uid, "n1", {})


async def test_deleting_what_is_there_and_is_the_one_that_is_meant(api):
    uid = api.put(PODS, pod("a"))["metadata"]["uid"]
    with pytest.raises(Conflict, match="UID"):
        await api.delete(PODS, "default", "a", uid="other")
    await api.delete(PODS, "default", "a", uid=uid)
    with pytest.raises(NotFound):
        await api.delete(PODS, "default", "a")
    assert not api.objects(PODS)


async def test_faults_before_and_after_the_write(api):
    uid = api.put(PODS, pod("a"))["metadata"]["uid"]
    api.fail("bind", after=1)
    api.fail("bind", Conflict(409, "Conflict", "made so"), resource=NODES)
    with pytest.raises(Conflict):
        await api.bind("default", "a", "other", "n1", {})
    with pytest.raises(Unreachable):
        await api.bind("default", "a", uid, "n1", {})
    assert "nodeName" not in api.get_object(PODS, "default", "a")["spec"]
    api.fail("bind", applied=True)
    with pytest.raises(Unreachable):
        await api.bind("default", "a", uid, "n1", {})
    assert api.get_object(PODS, "default", "a")["spec"]["nodeName"] == "n1"


async def test_a_call_that_hangs(api):
    gate = api.hang("get")
    api.put(PODS, pod("a"))
    call = asyncio.create_task(api.get(PODS, "default", "a"))
    await asyncio.sleep(0)
    assert not call.done()
    gate.set()
    assert await call
