"""What runs in the background: status, events, waking, annotations, expiry; rates by a clock that stands."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import orjson
import pytest

from adapters.api import EVENTS, NODES, PODS, POLICIES, APIError, NotFound, Unreachable
from adapters.kubernetes import decode
from extender.catalog import Catalog
from extender.events import MOST_QUEUED, REPEAT_SECONDS, EventWriter, Regarding
from extender.expiry import Expiry
from extender.guarding import Guarding
from extender.loops import forever
from extender.pace import Pace
from extender.scale_down import LINGER_SECONDS, ScaleDownGuard
from extender.status_writer import StatusWriter
from extender.view import View, marks_of
from extender.waking import Waker
from ledger.decisions import DemandReport, Mode
from qos import keys
from qos.objects import Pod

ABOUT = Regarding(keys.API_VERSION, POLICIES.kind, "default", "checkout", "uid-1")


class Account:
    """A ledger that says what it is told to say."""

    def __init__(self) -> None:
        self.reports: dict[str, DemandReport] = {}
        self.over: dict[str, str] = {}
        self.held: frozenset[str] = frozenset()
        self.waits: list[Pod] = []
        self.late: list[Pod] = []
        self.pods: dict[str, Pod] = {}
        self.done: list[tuple[str, str]] = []

    def report(self):
        return self.reports

    def overlaps(self):
        return self.over

    def held_nodes(self):
        return self.held

    def policy_of(self, pod):
        return "default/checkout"

    def waiting(self):
        found, self.waits = self.waits, []
        return found

    def known(self, uid):
        return self.pods.get(uid)

    def expired(self, now):
        return self.late

    def set_demand(self, demand):
        self.reports[demand.key] = DemandReport(demand.key, demand.desired, 0, demand.desired)

    def remove_demand(self, key):
        self.reports.pop(key, None)

    def __getattr__(self, name):
        return lambda *args: self.done.append((name, getattr(args[0], "uid", args[0])))


def calls(api, verb):
    return [name for called, _, name in api.calls if called == verb]


# --- pace ---


def test_a_pace_allows_a_burst_and_then_its_rate(clock):
    pace = Pace(8, 5, clock)
    assert [pace.take() for _ in range(6)] == [True] * 5 + [False]
    clock.advance(0.125)
    assert [pace.take(), pace.take()] == [True, False]
    clock.advance(3600)
    assert sum(pace.take() for _ in range(100)) == 5


def test_a_clock_that_jumps_back_gives_nothing(clock):
    pace = Pace(1, 1, clock)
    assert pace.take()
    clock.advance(-100)
    assert not pace.take()


# --- status ---


class Desk:
    """A status writer over an API server in memory with some policies."""

    def __init__(self, api, clock, metrics, make_policy, *names):
        self.api, self.clock, self.account = api, clock, Account()
        self.view = View()
        self.catalog = Catalog(self.account, lambda: None)
        self.guarding = Guarding(Mode.GUARD, binds=True, schedulers=["default-scheduler"], window=300)
        self.events = EventWriter(api, metrics, identity="me", clock=clock)
        self.writer = StatusWriter(
            api,
            self.account,
            self.catalog,
            self.view,
            self.guarding,
            self.events,
            metrics,
            owner_wait=15.0,
            clock=clock,
        )
        for name in names:
            self.watch(api.put(POLICIES, make_policy(name)))
        self.catalog.open()

    def watch(self, policy):
        """The watch shows it."""
        self.catalog.set_policy(decode.policy(orjson.dumps(policy)))

    def stored(self, name="a"):
        return self.api.get_object(POLICIES, "default", name)

    def change(self, name="a", **fields):
        key = f"default/{name}"
        self.account.reports[key] = replace(self.account.reports[key], **fields)

    def condition(self, kind, name="a"):
        return next(one for one in self.stored(name)["status"]["conditions"] if one["type"] == kind)


@pytest.fixture
def desk(api, clock, metrics, make_policy):
    return lambda *names: Desk(api, clock, metrics, make_policy, *(names or ("a",)))


async def test_status_is_written_once_and_then_only_when_it_changes(desk, api):
    desk = desk()
    assert await desk.writer.run_once() == 0
    assert desk.stored()["status"]["slots"] == {"desired": 2, "filled": 0, "held": 2, "unplaced": 0}
    assert desk.stored()["status"]["observedGeneration"] == 1
    for _ in range(5):
        desk.clock.advance(10)
        await desk.writer.run_once()
    assert len(calls(api, "patch")) == 1


async def test_one_policy_is_written_at_most_twice_a_second_and_the_last_state_wins(desk, api):
    desk = desk()
    for filled in range(100):
        desk.change(filled=filled)
        await desk.writer.run_once()
        desk.clock.advance(0.125)
    assert len(calls(api, "patch")) <= 2 * 12.5
    desk.clock.advance(0.5)
    await desk.writer.run_once()
    assert desk.stored()["status"]["slots"]["filled"] == 99


async def test_all_policies_together_are_written_at_most_ten_times_a_second(desk, api):
    names = [f"p{i:02d}" for i in range(30)]
    desk = desk(*names)
    assert await desk.writer.run_once() == 27
    seconds = [len(calls(api, "patch"))]
    for _ in range(40):
        desk.clock.advance(0.125)
        await desk.writer.run_once()
        seconds.append(len(calls(api, "patch")))
    written = Counter(calls(api, "patch"))
    assert set(written) == set(names)
    assert sum(written.values()) == 30
    assert max(late - early for early, late in zip(seconds, seconds[8:], strict=False)) <= 10


async def test_a_busy_policy_does_not_starve_the_others(desk, api):
    desk = desk("busy1", "busy2", "busy3", "busy4", "quiet")
    for filled in range(8):
        for name in ("busy1", "busy2", "busy3", "busy4"):
            desk.change(name, filled=filled)
        await desk.writer.run_once()
        desk.clock.advance(0.25)
    assert "quiet" in calls(api, "patch")


async def test_t13_a_stale_resource_version_conflicts_and_is_tried_again(desk, api):
    desk = desk()
    api.patch_policy = api.put(POLICIES, desk.stored() | {"spec": desk.stored()["spec"]})
    await desk.writer.run_once()
    assert "status" not in desk.stored(), "someone else wrote meanwhile: nothing is overwritten"
    desk.clock.advance(1)
    await desk.writer.run_once()
    assert desk.condition(keys.READY)["status"] == "True"


async def test_status_is_not_written_twice_while_the_watch_lags(desk, api):
    desk = desk()
    await desk.writer.run_once()
    desk.change(filled=1)
    desk.clock.advance(1)
    await desk.writer.run_once()
    assert desk.stored()["status"]["slots"]["filled"] == 1
    assert calls(api, "patch") == ["a", "a"]
    desk.watch(desk.stored())
    desk.clock.advance(1)
    await desk.writer.run_once()
    assert calls(api, "patch") == ["a", "a"]


@pytest.mark.parametrize("error", [Unreachable("cut"), APIError(403, "Forbidden", "no")])
async def test_a_write_that_fails_is_tried_again_later(desk, api, error):
    desk = desk()
    api.fail("patch", error)
    await desk.writer.run_once()
    desk.clock.advance(1)
    await desk.writer.run_once()
    assert len(calls(api, "patch")) == 1
    desk.clock.advance(1.5)
    await desk.writer.run_once()
    assert desk.condition(keys.HELD)["status"] == "True"


async def test_a_policy_that_is_gone_is_no_error(desk, api):
    desk = desk()
    api.remove(POLICIES, "default", "a")
    await desk.writer.run_once()
    desk.catalog.remove_policy("default/a")
    desk.writer.forget("default/a")
    assert await desk.writer.run_once() == 0


async def test_owners_that_wait_long_make_slots_unusable(desk, make_pod, clock):
    desk = desk()
    pod = decode.pod(orjson.dumps(make_pod("web") | {"metadata": {"uid": "u", "name": "web"}}))
    desk.view.set_pod(replace(pod, unschedulable_since=clock() - 14))
    await desk.writer.run_once()
    assert desk.condition(keys.SLOTS_USABLE)["status"] == "True"
    clock.advance(2)
    desk.account.policy_of = lambda pod: "default/a"
    await desk.writer.run_once()
    assert desk.condition(keys.SLOTS_USABLE)["reason"] == "OwnersWait"


async def test_a_user_is_told_by_an_event_when_slots_are_lost_and_held_again(desk, api):
    from ledger.decisions import Unplaced

    desk = desk()
    await desk.writer.run_once()
    desk.change(held=1, unplaced=(Unplaced(1, "Insufficient", "cpu", 2000),))
    desk.clock.advance(1)
    await desk.writer.run_once()
    desk.change(held=2, unplaced=())
    desk.clock.advance(1)
    await desk.writer.run_once()
    await desk.events.run_once()
    said = {one["reason"]: one for one in api.objects(EVENTS)}
    assert set(said) == {"SlotsUnplaced", "SlotsHeld"}
    assert "cpu: 2 missing for 1 slot" in said["SlotsUnplaced"]["note"]
    assert said["SlotsUnplaced"]["regarding"]["name"] == "a"
    assert said["SlotsUnplaced"]["type"] == "Warning"


# --- events ---


async def test_the_same_words_are_said_once(api, metrics, clock):
    events = EventWriter(api, metrics, identity="me", clock=clock)
    for _ in range(5):
        events.say(ABOUT, "Warning", "Why", "words")
    events.say(ABOUT, "Warning", "Why", "other words")
    await events.run_once()
    assert [one["note"] for one in api.objects(EVENTS)] == ["words", "other words"]
    clock.advance(REPEAT_SECONDS + 1)
    events.say(ABOUT, "Warning", "Why", "words")
    await events.run_once()
    assert len(api.objects(EVENTS)) == 3


async def test_events_are_written_at_their_rate_and_the_queue_is_bounded(api, metrics, clock):
    events = EventWriter(api, metrics, identity="me", clock=clock)
    for number in range(MOST_QUEUED + 50):
        events.say(ABOUT, "Normal", "Why", f"words {number}")
    await events.run_once()
    assert len(api.objects(EVENTS)) == 25
    clock.advance(2)
    await events.run_once()
    assert len(api.objects(EVENTS)) == 35
    assert b'j10ce_events_total{outcome="dropped"} 50.0' in metrics.exposition()


async def test_an_event_that_cannot_be_written_is_dropped_and_counted(api, metrics, clock):
    events = EventWriter(api, metrics, identity="me", clock=clock)
    api.fail("create", APIError(403, "Forbidden", "no"))
    events.say(ABOUT, "Normal", "Why", "words")
    await events.run_once()
    await events.run_once()
    assert not api.objects(EVENTS)
    assert b'j10ce_events_total{outcome="failed"} 1.0' in metrics.exposition()


def test_an_event_about_a_cluster_scoped_object_is_in_namespace_default(api, metrics, clock):
    events = EventWriter(api, metrics, identity="me", clock=clock)
    events.say(ABOUT._replace(namespace="", kind="QoSProfile"), "Warning", "Why", "x" * 5000)
    body = events.body(events._queue[0])
    assert body["metadata"]["namespace"] == "default"
    assert len(body["note"]) == 1024


# --- waking (T21) ---


def pending(api, make_pod, name, account):
    pod = decode.pod(orjson.dumps(api.put(PODS, make_pod(name))))
    account.pods[pod.uid] = pod
    return pod


async def test_t21_a_pod_that_would_pass_now_is_woken_by_an_annotation(api, metrics, clock, make_pod):
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, timer=clock)
    account.waits = [pending(api, make_pod, "web", account)]
    await waker.run_once()
    first = api.get_object(PODS, "default", "web")["metadata"]["annotations"][keys.WAKE_ANNOTATION]
    account.waits = list(account.pods.values())
    clock.advance(2)
    await waker.run_once()
    second = api.get_object(PODS, "default", "web")["metadata"]["annotations"][keys.WAKE_ANNOTATION]
    assert first != second, "only a change wakes"


async def test_t21_waking_is_limited_and_nothing_is_lost(api, metrics, clock, make_pod):
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, timer=clock)
    account.waits = [pending(api, make_pod, f"p{i}", account) for i in range(120)]
    await waker.run_once()
    assert len(calls(api, "patch")) == 50
    clock.advance(0.125)
    await waker.run_once()
    assert len(calls(api, "patch")) == 56
    for _ in range(20):
        clock.advance(0.125)
        await waker.run_once()
    assert set(calls(api, "patch")) == {f"p{i}" for i in range(120)}


async def test_t21_a_pod_is_woken_at_most_once_a_second(api, metrics, clock, make_pod):
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, timer=clock)
    pod = pending(api, make_pod, "web", account)
    for _ in range(10):
        account.waits = [pod]
        await waker.run_once()
        clock.advance(0.1)
    assert len(calls(api, "patch")) == 1
    clock.advance(0.2)
    await waker.run_once()
    assert len(calls(api, "patch")) == 2


async def test_t21_looking_for_pods_to_wake_takes_a_twentieth_of_the_time_at_most(api, metrics, clock):
    account, looks = Account(), []

    def slow():
        looks.append(clock())
        clock.advance(0.5)
        return []

    account.waiting = slow
    waker = Waker(api, account, metrics, clock=clock, timer=clock)
    for _ in range(300):
        await waker.run_once()
        clock.advance(0.125)
    gaps = [late - early for early, late in itertools.pairwise(looks)]
    assert gaps
    assert all(10 <= gap < 12 for gap in gaps), gaps


async def test_overlaps_are_computed_seldom_but_for_a_new_policy_at_once(desk, make_policy):
    desk, computed = desk("a", "b"), []
    desk.account.overlaps = lambda: computed.append(desk.clock()) or {"default/b": "default/a"}
    for _ in range(20):
        await desk.writer.run_once()
        desk.clock.advance(0.5)
    assert len(computed) == 2
    assert desk.condition(keys.OVERLAPPING, "b")["status"] == "True"
    desk.watch(desk.api.put(POLICIES, make_policy("c")))
    await desk.writer.run_once()
    assert len(computed) == 3


async def test_t21_pods_that_are_bound_or_gone_are_left_alone(api, metrics, clock, make_pod):
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, timer=clock)
    pod = pending(api, make_pod, "web", account)
    account.waits, account.pods = [pod], {pod.uid: replace(pod, node_name="n1")}
    await waker.run_once()
    account.waits, account.pods = [pod], {}
    await waker.run_once()
    assert not calls(api, "patch")


async def test_t21_waking_survives_what_the_api_server_says(api, metrics, clock, make_pod):
    account = Account()
    waker = Waker(api, account, metrics, clock=clock, timer=clock)
    account.waits = [pending(api, make_pod, f"p{i}", account) for i in range(3)]
    api.fail("patch", NotFound(404, "NotFound", "gone"))
    api.fail("patch", APIError(403, "Forbidden", "no"))
    api.fail("patch", Unreachable("cut"))
    await waker.run_once()
    clock.advance(2)
    await waker.run_once()
    text = metrics.exposition()
    for line in (b'{outcome="gone"} 1.0', b'{outcome="failed"} 2.0', b'{outcome="woken"} 1.0'):
        assert b"j10ce_wakes_total" + line in text


# --- scale-down (T22) ---


class Autoscaled:
    """Nodes with holds, and what we write on them."""

    def __init__(self, api, clock, make_node, *names):
        self.api, self.account, self.view = api, Account(), View()
        self.guard = ScaleDownGuard(api, self.account, self.view, clock=clock)
        for name in names:
            self.see(api.put(NODES, make_node(name)))

    def see(self, node):
        raw = orjson.dumps(node)
        self.view.set_node(decode.node(raw), marks_of(raw))

    def annotations(self, name):
        return self.api.get_object(NODES, "", name)["metadata"].get("annotations") or {}

    def marked(self):
        return sorted(
            node["metadata"]["name"]
            for node in self.api.objects(NODES)
            if (node["metadata"].get("annotations") or {}).get(keys.SCALE_DOWN_DISABLED_ANNOTATION) == "true"
        )


async def test_t22_nodes_with_holds_are_annotated_and_cleaned_up_later(api, clock, make_node):
    cluster = Autoscaled(api, clock, make_node, "n1", "n2")
    cluster.account.held = frozenset({"n1"})
    await cluster.guard.run_once()
    assert cluster.marked() == ["n1"]
    cluster.account.held = frozenset()
    await cluster.guard.run_once()
    assert cluster.marked() == ["n1"], "holds float: not at once"
    clock.advance(LINGER_SECONDS)
    await cluster.guard.run_once()
    assert cluster.marked() == []
    assert cluster.annotations("n1") == {}


async def test_t22_a_hold_that_comes_back_keeps_the_annotation(api, clock, make_node):
    cluster = Autoscaled(api, clock, make_node, "n1")
    cluster.account.held = frozenset({"n1"})
    await cluster.guard.run_once()
    for held in (frozenset(), frozenset({"n1"}), frozenset()):
        cluster.account.held = held
        await cluster.guard.run_once()
        clock.advance(LINGER_SECONDS * 0.6)
    await cluster.guard.run_once()
    assert cluster.marked() == ["n1"]


async def test_t22_a_users_own_annotation_is_neither_touched_nor_taken_back(api, clock, make_node):
    own = {keys.SCALE_DOWN_DISABLED_ANNOTATION: "true"}
    cluster = Autoscaled(api, clock, make_node)
    cluster.see(api.put(NODES, make_node("n1", annotations=own)))
    cluster.account.held = frozenset({"n1"})
    await cluster.guard.run_once()
    cluster.account.held = frozenset()
    clock.advance(10 * LINGER_SECONDS)
    await cluster.guard.run_once()
    await cluster.guard.run_once()
    assert cluster.annotations("n1") == own
    assert not calls(api, "patch")


async def test_t22_after_a_restart_our_own_mark_is_known_by_itself(api, clock, make_node):
    ours = {keys.SCALE_DOWN_DISABLED_ANNOTATION: "true", keys.HELD_ANNOTATION: "true"}
    cluster = Autoscaled(api, clock, make_node)
    cluster.see(api.put(NODES, make_node("n1", annotations=ours)))
    await cluster.guard.run_once()
    clock.advance(LINGER_SECONDS)
    await cluster.guard.run_once()
    assert cluster.annotations("n1") == {}


async def test_t22_five_nodes_a_second(api, clock, make_node):
    names = [f"n{i:02d}" for i in range(12)]
    cluster = Autoscaled(api, clock, make_node, *names)
    cluster.account.held = frozenset(names)
    await cluster.guard.run_once()
    assert cluster.marked() == names[:5]
    for _ in range(2):
        clock.advance(1)
        await cluster.guard.run_once()
    assert cluster.marked() == names


async def test_t22_a_node_that_is_gone_or_refused_stops_nothing(api, clock, make_node):
    cluster = Autoscaled(api, clock, make_node, "n1", "n2", "n3")
    api.remove(NODES, "", "n1")
    api.fail("patch", NotFound(404, "NotFound", "gone"))
    api.fail("patch", APIError(403, "Forbidden", "no"))
    cluster.account.held = frozenset({"n1", "n2", "n3"})
    await cluster.guard.run_once()
    assert cluster.marked() == ["n3"]


# --- expiry (T09) ---


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("gone", [("remove_pod", "u")]),
        ("again", [("remove_pod", "u")]),
        ("bound", [("set_pod", "u")]),
        ("pending", [("release", "u"), ("settle", "u")]),
    ],
)
async def test_t09_a_pod_long_in_flight_is_settled_by_a_read(api, clock, make_pod, now, expected):
    account = Account()
    account.late = [Pod(uid="u", namespace="default", name="web", requests={})]
    if now != "gone":
        uid = "other" if now == "again" else "u"
        api.put(PODS, make_pod("web", node="n1" if now == "bound" else "", uid=uid))
    await Expiry(api, account, clock=clock).run_once()
    assert account.done == expected


async def test_t09_what_cannot_be_read_stays_charged(api, clock):
    account = Account()
    account.late = [Pod(uid="u", namespace="default", name="web", requests={})]
    api.fail("get")
    await Expiry(api, account, clock=clock).run_once()
    assert account.done == []


# --- the loop itself ---


async def test_a_loop_goes_on_after_a_bug_and_counts_it(metrics, clock):
    rounds = iter(range(3))

    class EnoughError(BaseException):
        """Ends the loop."""

    async def once():
        if next(rounds, None) is None:
            raise EnoughError
        raise RuntimeError("a bug")

    with pytest.raises(EnoughError):
        await forever("test", 1.0, once, metrics, sleep=clock.sleep)
    assert b'j10ce_loop_errors_total{loop="test"} 3.0' in metrics.exposition()
