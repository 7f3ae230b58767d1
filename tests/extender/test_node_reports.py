"""NodeQoS objects as the extender takes them: freshness, sums by policy, and what follows for Strict."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from adapters.api import EVENTS, NODE_QOS, NODES, POLICIES
from adapters.kubernetes import node_qos
from adapters.kubernetes.node_qos import NodeNews
from adapters.memory import MemoryAPI
from extender.delivery import Delivery
from extender.node_reports import STALE_SECONDS, NodeReports
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos import keys
from qos.cluster.needs import Enforcement
from qos.cluster.node_report import NodeReport, PolicyState, PromiseState
from qos.cluster.objects import Demand, Node, Selector

NEEDS = frozenset({"floor (cpu)"})
ABLE = Enforcement(NEEDS)
KEY = "shop/checkout"
NOT_YET = Enforcement(problem="its agent has not reported yet")


class Desk:
    """A ledger with a Strict demand and two nodes, and the reports."""

    def __init__(self, clock):
        self.clock = clock
        self.ledger = Ledger(Mode.STRICT, cap_percent=100)
        self.changes = 0
        self.reports = NodeReports(self.ledger, clock=clock, changed=self._changed)
        self._beats = itertools.count()
        for name in ("n1", "n2"):
            self.ledger.set_node(Node(name, name, {"cpu": 4000, "pods": 10}))
        self.ledger.set_demand(Demand(KEY, "shop", Selector(), {"cpu": 1000}, 1, needs=NEEDS))

    def _changed(self):
        self.changes += 1

    def hear(self, name, *policies, enforcement=ABLE, beat=True):
        heartbeat = str(next(self._beats)) if beat else "the same"
        self.reports.set(NodeNews(name, heartbeat, enforcement, policies))

    def expire(self, contact=None):
        """The loop's turn; contact: when the API server was last heard, now unless given."""
        self.reports.expire(self.clock() if contact is None else contact)

    def silence(self, seconds):
        """The API server is heard, a node is not: the loop has its turn every minute."""
        for _ in range(int(seconds // 60)):
            self.clock.advance(60)
            self.expire()
        self.clock.advance(seconds % 60)
        self.expire()

    def holds(self):
        return dict(self.ledger.report()[KEY].holds)

    def sums(self, uid="u"):
        return self.reports.delivery(KEY, uid)


@pytest.fixture
def desk(clock):
    return Desk(clock)


def test_a_report_counts_for_15_minutes_since_it_was_last_seen_to_change(desk):
    desk.hear("n1", PolicyState(KEY, "u", 1, 1, 1))
    assert desk.holds() == {"n1": 1}
    desk.silence(STALE_SECONDS - 1)
    assert (desk.holds(), desk.sums()) == ({"n1": 1}, Delivery(1, 1, 1, 1))
    desk.silence(1)
    assert (desk.holds(), desk.sums()) == ({}, Delivery(0))
    assert "its agent is silent" in desk.ledger.report()[KEY].unplaced[0].detail
    desk.hear("n1", PolicyState(KEY, "u", 1, 1, 1))
    assert (desk.holds(), desk.sums()) == ({"n1": 1}, Delivery(1, 1, 1, 1))


def test_what_is_shown_again_unchanged_is_no_sign_of_life(desk):
    """A list shows every object again; somebody else may label it."""
    desk.hear("n1", beat=False)
    for _ in range(3):
        desk.silence(STALE_SECONDS / 2)
        desk.hear("n1", beat=False)
    assert (desk.holds(), desk.reports.agents) == ({}, 0)


def test_the_one_that_was_heard_last_expires_last(desk):
    desk.hear("n1")
    desk.hear("n2")
    desk.silence(600)
    desk.hear("n1")
    desk.silence(600)
    assert (desk.holds(), desk.reports.agents) == ({"n1": 1}, 1)


@pytest.mark.parametrize("turns", ["while it is away", "none: the process hung"])
def test_an_outage_of_the_api_server_is_no_silence_of_agents(desk, turns):
    """Whoever hears nothing cannot tell who is silent: holds stay, and after it every agent has its time."""
    desk.hear("n1", beat=False)
    desk.silence(600)
    lost = desk.clock()
    for _ in range(120):
        desk.clock.advance(60)
        if turns == "while it is away":
            desk.expire(contact=lost)
    desk.hear("n1", beat=False)  # the list after it, before any agent wrote
    desk.expire()
    desk.silence(STALE_SECONDS - 1)
    assert (desk.holds(), desk.reports.agents) == ({"n1": 1}, 1)
    desk.silence(1)
    assert (desk.holds(), desk.reports.agents) == ({}, 0)


def test_a_report_that_is_deleted_counts_as_silence(desk):
    """Its agent notices when it writes next, which may take minutes; what its kernel can has not changed."""
    desk.hear("n1", PolicyState(KEY, "u", 1, 1, 1))
    desk.reports.remove("n1")
    desk.silence(STALE_SECONDS - 1)
    assert (desk.holds(), desk.sums()) == ({"n1": 1}, Delivery(1, 1, 1, 1))
    desk.reports.set(NodeNews("n1", "", NOT_YET, ()))  # made again, its status comes with the next write
    assert (desk.holds(), desk.sums()) == ({"n1": 1}, Delivery(1, 1, 1, 1))
    desk.silence(1)
    assert (desk.holds(), desk.sums()) == ({}, Delivery(0))
    assert "has no NodeQoS" in desk.ledger.report()[KEY].unplaced[0].detail


def test_a_silent_report_that_is_deleted_is_no_report(desk):
    desk.hear("n1")
    desk.silence(STALE_SECONDS)
    desk.reports.remove("n1")
    assert "has no NodeQoS" in desk.ledger.report()[KEY].unplaced[0].detail


def test_a_node_that_is_gone_takes_its_report_along(desk):
    desk.hear("n1", PolicyState(KEY, "u", 1, 1, 1))
    desk.reports.node_gone("n1")
    assert (desk.holds(), desk.sums()) == ({}, Delivery(0))


@pytest.mark.parametrize("after", [Enforcement(), Enforcement(refused={"floor (cpu)": "another reason"})])
def test_what_a_node_enforces_shows_in_a_status_at_once(desk, after):
    desk.hear("n1", enforcement=Enforcement(refused={"floor (cpu)": "no rights"}))
    before = desk.changes
    desk.hear("n1", enforcement=after)
    assert desk.changes > before


def test_deficits_alone_wake_nobody(desk):
    """Each node under pressure writes them once a minute, and no status shows them."""
    for seconds in range(10):
        state = PolicyState(KEY, "u", 1, 1, 1, deficit_seconds=float(seconds))
        report = replace(REPORT, policies=(state,))
        desk.reports.set(node_qos.news(json.dumps(shown("n1", report, seconds)).encode()))
    assert desk.changes <= 2


def test_sums_follow_every_change(desk):
    desk.hear("n1", PolicyState(KEY, "u", 2, 2, 2), PolicyState("shop/other", "o", 9, 9, 9))
    desk.hear("n2", PolicyState(KEY, "u", 3, 3, 1, "cpu.weight is 100"))
    assert desk.sums() == Delivery(2, 5, 5, 3, differing="n2: cpu.weight is 100")
    desk.hear("n2", PolicyState(KEY, "u", 3, 2, 1, "memory.min: EBUSY"))
    desk.hear("n1", PolicyState(KEY, "u", 2, 1, 1, "memory.min: EIO"))
    assert desk.sums() == Delivery(2, 5, 3, 2, refused="n1: memory.min: EIO")
    desk.hear("n1")
    assert desk.sums() == Delivery(2, 3, 2, 1, refused="n2: memory.min: EBUSY")
    desk.reports.node_gone("n2")
    assert desk.sums() == Delivery(1)


def test_a_policy_made_again_under_its_name_has_nothing_yet(desk):
    desk.hear("n1", PolicyState(KEY, "u", 1, 1, 1))
    assert desk.sums("v") == Delivery(1)


def test_a_mere_heartbeat_changes_nothing(desk):
    desk.hear("n1", PolicyState(KEY, "u", 1, 1, 1))
    before = desk.changes
    desk.hear("n1", PolicyState(KEY, "u", 1, 1, 1))
    assert desk.changes == before


REPORT = NodeReport("0.1.0", "6.12.0", "v2", "containerd 2.1.4", (PromiseState("floor (cpu)", True),))


def shown(node: str, report: NodeReport, at: float) -> dict:
    return node_qos.new(node, "x") | {"status": node_qos.status_of(report, (), at)}


@pytest.mark.program
async def test_from_the_api_server_to_holds_conditions_and_events(
    running, make_node, make_policy, eventually
):
    api = MemoryAPI()
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name, cpu="64"))
    policy = make_policy(nodeEnforcement="Strict")
    uid = api.put(POLICIES, policy)["metadata"]["uid"]
    key = f"default/{policy['metadata']['name']}"

    def conditions() -> dict[str, str]:
        stored = api.get_object(POLICIES, "default", policy["metadata"]["name"])
        return {one["type"]: one["reason"] for one in stored.get("status", {}).get("conditions", ())}

    async with running(api):
        await eventually(lambda: conditions().get(keys.FEASIBLE) == "NodeCannotEnforce")
        api.put(NODE_QOS, shown("n2", REPORT, 1.0))
        await eventually(lambda: conditions().get(keys.HELD) == "EverySlotHeld")
        assert conditions()[keys.APPLIED] == "NoPods"
        bad = replace(REPORT, policies=(PolicyState(key, uid, 1, 0, 0, "cpu.weight: EROFS"),))
        api.put(NODE_QOS, shown("n2", bad, 2.0))
        await eventually(lambda: conditions().get(keys.APPLIED) == "PlanNotApplied")
        await eventually(lambda: any("EROFS" in event["note"] for event in api.objects(EVENTS)))
        api.put(NODE_QOS, {"metadata": {"name": "n2"}, "status": {"promises": 7}})
        good = replace(REPORT, policies=(PolicyState(key, uid, 1, 1, 1),))
        api.put(NODE_QOS, shown("n2", good, 3.0))
        await eventually(lambda: conditions().get(keys.VERIFIED) == "AllReadBack")
