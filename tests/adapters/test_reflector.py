import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from adapters.api import NODES, PODS, APIError, Unreachable
from adapters.kubernetes import decode
from adapters.kubernetes.reflector import Backoff, Reflector
from adapters.memory import MemoryAPI
from tests.waiting import running


class Store:
    """What a reflector's owner keeps: name by key; a pod with the label bad cannot be read."""

    def __init__(self, by_name=False):
        self.names = {}
        self.by_name = by_name
        self.removed = []

    def set(self, raw):
        obj = json.loads(raw)
        meta = obj["metadata"]
        labels = meta.get("labels", {})
        if labels.get("bad"):
            raise decode.DecodeError("Pod", meta["name"], "metadata.labels", "bad", "made so")
        if labels.get("ignored"):
            return None
        key = meta["name"] if self.by_name else meta["uid"]
        self.names[key] = meta["name"]
        return key

    def remove(self, key):
        self.removed.append(self.names.pop(key))

    def __contains__(self, name):
        return name in self.names.values()

    def __len__(self):
        return len(self.names)


@pytest.fixture
def api():
    return MemoryAPI(clock=lambda: 0.0)


@pytest.fixture
def store():
    return Store()


@asynccontextmanager
async def reflecting(api, store, time, resource=PODS, **options):
    reflector = Reflector(
        api, resource, store.set, store.remove, clock=time, sleep=time.sleep, jitter=lambda: 0.5, **options
    )
    async with running(reflector.run()):
        yield reflector


def pod(name, **metadata):
    return {"metadata": {"name": name} | metadata}


async def test_what_is_there_and_what_comes_and_goes(api, store, fake_time, eventually):
    for name in "abc":
        api.put(PODS, pod(name))
    async with reflecting(api, store, fake_time, page_size=2) as reflector:
        await eventually(reflector.synced.is_set)
        assert sorted(store.names.values()) == ["a", "b", "c"]
        api.put(PODS, pod("d"))
        api.remove(PODS, "default", "a")
        await eventually(lambda: "d" in store and "a" not in store)
        assert store.removed == ["a"]
        assert reflector.relists == 1
        assert fake_time.slept == []


async def test_synced_only_after_the_last_page(api, store, fake_time, eventually):
    for name in "abc":
        api.put(PODS, pod(name))
    async with reflecting(api, store, fake_time, page_size=1) as reflector:
        gate = api.hang("list_page", after=2)
        await eventually(lambda: len(store) == 2)
        assert not reflector.synced.is_set()
        gate.set()
        await eventually(reflector.synced.is_set)
        assert len(store) == 3


async def test_a_cut_watch_resumes_and_misses_nothing(api, store, fake_time, eventually):
    async with reflecting(api, store, fake_time) as reflector:
        await eventually(reflector.synced.is_set)
        api.put(PODS, pod("a"))
        await eventually(lambda: "a" in store)
        api.fail("watch", times=2)
        api.cut()
        api.put(PODS, pod("b"))
        api.remove(PODS, "default", "a")
        await eventually(lambda: "b" in store and "a" not in store)
        assert reflector.relists == 1
        assert len(fake_time.slept) == 3


@pytest.mark.parametrize("error", [None, APIError(400, "BadRequest", "no such resourceVersion")])
async def test_a_watch_that_cannot_be_resumed_is_given_up_for_a_list(
    api, store, fake_time, eventually, error
):
    async with reflecting(api, store, fake_time) as reflector:
        await eventually(reflector.synced.is_set)
        api.fail("watch", error, times=20)
        api.cut()
        await eventually(lambda: reflector.relists == 2)
        api.put(PODS, pod("a"))
        await eventually(lambda: "a" in store)


async def test_a_watch_that_ends_in_good_order_resumes_at_once(api, store, fake_time, eventually):
    async with reflecting(api, store, fake_time) as reflector:
        await eventually(reflector.synced.is_set)
        api.put(PODS, pod("a"))
        await eventually(lambda: "a" in store)
        api.close_watches()
        api.put(PODS, pod("b"))
        await eventually(lambda: "b" in store)
        assert (reflector.relists, fake_time.slept) == (1, [])


async def test_a_server_that_closes_watches_at_once_is_not_asked_in_a_tight_loop(
    api, store, fake_time, eventually
):
    async with reflecting(api, store, fake_time) as reflector:
        await eventually(reflector.synced.is_set)
        for _ in range(3):
            await eventually(lambda: api.watchers(PODS))
            api.close_watches()
            await eventually(lambda: api.watchers(PODS) == 0)
        await eventually(lambda: fake_time.slept == [0.2, 0.4, 0.8])


async def test_gone_in_the_middle_lists_again_and_removes_what_is_absent(api, store, fake_time, eventually):
    for name in "ab":
        api.put(PODS, pod(name))
    async with reflecting(api, store, fake_time) as reflector:
        await eventually(reflector.synced.is_set)
        api.cut()
        api.fail("watch")
        api.remove(PODS, "default", "a")
        api.put(PODS, pod("c"))
        api.expire()
        await eventually(lambda: "c" in store)
        await eventually(lambda: "a" not in store)
        assert sorted(store.names.values()) == ["b", "c"]
        assert reflector.relists == 2
        assert reflector.synced.is_set()


async def test_a_list_says_when_it_began_once_what_is_absent_is_removed(api, store, fake_time, eventually):
    api.put(PODS, pod("a"))
    told = []

    def listed(began):
        told.append((began, sorted(store.names.values())))

    async with reflecting(api, store, fake_time, on_listed=listed) as reflector:
        await eventually(reflector.synced.is_set)
        first = fake_time()
        assert told == [(first, ["a"])]
        api.remove(PODS, "default", "a")
        api.put(PODS, pod("b"))
        api.expire()
        await eventually(lambda: len(told) == 2)
        assert told[1][0] > first
        assert told[1][1] == ["b"]


async def test_a_page_token_that_expires_starts_the_list_over(api, store, fake_time, eventually):
    for name in "abcd":
        api.put(PODS, pod(name))
    gate = api.hang("list_page", after=1)
    async with reflecting(api, store, fake_time, page_size=2) as reflector:
        await eventually(lambda: len(store) == 2)
        api.remove(PODS, "default", "a")
        api.expire()
        gate.set()
        await eventually(reflector.synced.is_set)
        assert sorted(store.names.values()) == ["b", "c", "d"]
        assert store.removed == ["a"]


async def test_no_state_is_dropped_while_the_server_is_away_and_it_turns_stale(
    api, store, fake_time, eventually
):
    api.put(PODS, pod("a"))
    async with reflecting(api, store, fake_time, stale_after=120.0) as reflector:
        await eventually(reflector.synced.is_set)
        heard = reflector.last_contact
        assert not reflector.stale(heard + 120)
        api.fail("watch", times=1000)
        api.fail("list_page", times=1000)
        api.cut()
        await eventually(lambda: reflector.stale(fake_time()))
        assert "a" in store
        assert reflector.synced.is_set()
        assert reflector.last_contact == heard


async def test_bookmarks_are_contact_and_move_the_place_to_resume_at(api, store, fake_time, eventually):
    async with reflecting(api, store, fake_time) as reflector:
        await eventually(reflector.synced.is_set)
        await eventually(lambda: any(call[0] == "watch" for call in api.calls))
        api.put(NODES, {"metadata": {"name": "elsewhere"}})
        fake_time.now += 60
        api.bookmark()
        await eventually(lambda: reflector.last_contact == fake_time())
        api.cut()
        await eventually(lambda: fake_time.slept)
        assert (reflector.relists, store.names) == (1, {})


async def test_a_watch_that_is_opened_again_and_stays_silent_is_not_stale(api, store, fake_time, eventually):
    """An API server sends no bookmarks of what has not changed since it started, unless etcd tells it to."""
    async with reflecting(api, store, fake_time, stale_after=120.0) as reflector:
        await eventually(reflector.synced.is_set)
        for _ in range(3):
            await eventually(lambda: api.watchers(PODS))
            fake_time.now += 75
            api.cut()
            await eventually(lambda: not api.watchers(PODS))
        await eventually(lambda: api.watchers(PODS))
        assert reflector.relists == 1
        assert not reflector.stale(fake_time() + 75)


async def test_a_refused_list_is_tried_again_ever_more_slowly(api, store, fake_time, eventually):
    api.fail("list_page", APIError(403, "Forbidden", "no"), times=3)
    api.fail("list_page", Unreachable("refused"), times=2)
    async with reflecting(api, store, fake_time) as reflector:
        await eventually(reflector.synced.is_set)
        assert fake_time.slept == [0.2, 0.4, 0.8, 1.6, 3.2]


async def test_an_object_that_cannot_be_read_keeps_its_last_good_state(api, store, fake_time, eventually):
    api.put(PODS, pod("a"))
    api.put(PODS, pod("never", labels={"bad": "yes"}))
    async with reflecting(api, store, fake_time) as reflector:
        await eventually(reflector.synced.is_set)
        assert (list(store.names.values()), reflector.rejected) == (["a"], 1)
        api.put(PODS, pod("a", labels={"bad": "yes"}))
        await eventually(lambda: reflector.rejected == 2)
        api.expire()
        await eventually(lambda: reflector.relists == 2 and reflector.rejected == 4)
        assert "a" in store
        api.remove(PODS, "default", "a")
        await eventually(lambda: "a" not in store)
        api.remove(PODS, "default", "never")
        api.put(PODS, pod("b"))
        await eventually(lambda: "b" in store)
        assert store.removed == ["a"]


async def test_an_object_that_is_not_kept_is_not_removed(api, store, fake_time, eventually):
    api.put(PODS, pod("a", labels={"ignored": "yes"}))
    async with reflecting(api, store, fake_time) as reflector:
        await eventually(reflector.synced.is_set)
        api.remove(PODS, "default", "a")
        api.put(PODS, pod("b"))
        await eventually(lambda: "b" in store)
        assert store.removed == []


async def test_an_object_kept_by_name_that_was_made_again_unseen_is_not_removed(api, fake_time, eventually):
    store = Store(by_name=True)
    api.put(NODES, {"metadata": {"name": "n1"}})
    api.put(NODES, {"metadata": {"name": "n2"}})
    async with reflecting(api, store, fake_time, NODES) as reflector:
        await eventually(reflector.synced.is_set)
        api.fail("watch")
        api.cut()
        api.remove(NODES, "", "n1")
        api.put(NODES, {"metadata": {"name": "n1"}})
        api.remove(NODES, "", "n2")
        api.expire()
        await eventually(lambda: "n2" not in store)
        assert ("n1" in store, store.removed) == (True, ["n2"])
        api.remove(NODES, "", "n1")
        await eventually(lambda: "n1" not in store)


async def test_what_comes_while_it_rests_is_taken_in_one_go(api, store, fake_time, eventually):
    rested, go_on = [], asyncio.Event()

    async def rest():
        rested.append(sorted(store.names.values()))
        await go_on.wait()

    async with reflecting(api, store, fake_time, rest=rest) as reflector:
        await eventually(lambda: reflector.synced.is_set() and api.watchers(PODS))
        fake_time.now += 1.0
        api.put(PODS, pod("a"))
        await eventually(lambda: rested == [["a"]])
        for name in "bcd":
            api.put(PODS, pod(name))
        assert sorted(store.names.values()) == ["a"]
        go_on.set()
        await eventually(lambda: "d" in store)
        assert rested == [["a"]]  # what was there already is no reason to rest


async def test_others_get_the_loop_while_a_large_list_is_read(api, store, eventually):
    for number in range(200):
        api.put(PODS, pod(f"p{number:03}"))
    ticks = iter(range(10**9))
    seen = set()

    async with reflecting(api, store, SlowClock(ticks), page_size=200) as reflector:
        while not reflector.synced.is_set():
            seen.add(len(store))
            await asyncio.sleep(0)
    assert len(seen) > 50


async def test_a_list_that_lacks_most_gives_the_loop_up_between_removals(api, store):
    for number in range(1000):
        api.put(PODS, pod(f"p{number}"))
    seen = set()

    async with reflecting(api, store, SlowClock(iter(range(10**9)))) as reflector:
        await reflector.synced.wait()
    for number in range(1, 1000):
        api.remove(PODS, "default", f"p{number}")
    api.expire()
    async with running(reflector.run()):
        while len(store) > 1:
            seen.add(len(store))
            await asyncio.sleep(0)
    assert len(seen) > 100
    assert list(store.names.values()) == ["p0"]


class SlowClock:
    """Half a millisecond passes between any two looks at it."""

    def __init__(self, ticks):
        self.ticks = ticks

    def __call__(self):
        return next(self.ticks) * 0.0005

    async def sleep(self, seconds):
        await asyncio.sleep(0)


def test_pauses_double_up_to_a_limit_and_jitter():
    backoff = Backoff(first=1.0, most=8.0)
    assert [backoff.pause(0.5) for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 8.0]
    backoff.reset()
    assert (backoff.pause(0.0), Backoff(first=1.0).pause(1.0)) == (0.5, 1.5)
    backoff.failures = 10_000
    assert backoff.pause(0.5) == 8.0


@pytest.mark.parametrize("status", [403, 404])
async def test_a_refusal_is_an_answer_is_logged_once_and_asked_again(
    api, store, fake_time, eventually, caplog, status
):
    api.fail("list_page", APIError(status, "No", "not for you"), times=20)
    api.put(PODS, pod("a"))
    async with reflecting(api, store, fake_time) as reflector:
        await eventually(reflector.answered.is_set)
        assert not reflector.synced.is_set()
        await eventually(reflector.synced.is_set)
        assert "a" in store
        assert reflector.last_answer > 0
    assert caplog.text.count("not for you") == 1


async def test_no_answer_at_all_is_none(api, store, fake_time, eventually):
    api.fail("list_page", APIError(401, "Unauthorized", "who are you"), times=10)
    api.fail("list_page", times=10)
    async with reflecting(api, store, fake_time) as reflector:
        began = reflector.last_answer
        await eventually(lambda: reflector.relists > 15)
        assert (reflector.answered.is_set(), reflector.last_answer) == (False, began)
