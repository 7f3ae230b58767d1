"""What the watcher of placeholders finds, and that what it excuses is no more than its reason says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.api import NODES, PODS
from adapters.kubernetes import placeholders
from ledger.unplaced import CAP_REACHED, INSUFFICIENT
from qos.cluster.objects import Demand, Selector
from simulation import objects, parsed
from simulation.books import PLACEHOLDERS
from simulation.history import World
from simulation.placeholder_watcher import PlaceholderWatcher
from simulation.store import EPOCH, Body, Entry, Store

POLICY, FORM, CLASS = "default/a", "form", 100
DEMAND = Demand(POLICY, "default", Selector(), {"cpu": 1000, "pods": 1}, 2, CLASS)


class There:
    """A node of 4 CPU, a policy with two holds on it, and our service, which knows everything at once."""

    def __init__(self) -> None:
        self.now = 0.0
        self.store = Store(lambda: self.now, lambda: EPOCH + self.now)
        self.watcher = PlaceholderWatcher(World(1, keeper="Placeholders"), self.store, lambda: self.now)
        self.holds = {"n0": 2}
        self.filled = 0
        self.reason = INSUFFICIENT
        """Why slots that are not held have no place."""
        self.claimed: list[str] = []
        """Owners whose claims our service counts as filled slots, and that are not bound."""
        self.behind = False
        self.seen: int | None = None
        """How many changes of pods our service has heard of; None: all."""
        ledger = SimpleNamespace(
            policy_of=lambda pod: POLICY if pod.labels.get("app") == "a" else "",
            report=lambda: {POLICY: self.report},
            openings=lambda key: self.openings(ledger.report()[key]),
            claimed=self.claimed,
        )
        extender: Any = SimpleNamespace(
            ledger=ledger,
            books=SimpleNamespace(demands=lambda: {POLICY: DEMAND, "default/b": DEMAND}),
            api=SimpleNamespace(behind=lambda _plurals, _seconds: self.behind, unseen=self.unseen),
            form_of=lambda _demand: FORM,
            leads=True,
            hung_until=0.0,
        )
        self.watcher.extender = extender
        for name in ("n0", "n1"):
            self.store.write(NODES, objects.node(name, 4000, 8192, 110))
        self.now = 10.0

    def unseen(self, plural: str) -> list[Entry]:
        """What our service has still to hear of."""
        return [] if self.seen is None else self.store.log[plural][self.seen :]

    @property
    def report(self) -> Any:
        holds = tuple(self.holds.items())
        held = sum(self.holds.values())
        unplaced = () if held == 2 else (SimpleNamespace(reason=self.reason),)
        return SimpleNamespace(filled=self.filled, held=held, desired=2, holds=holds, unplaced=unplaced)

    def openings(self, report: Any) -> Any:
        missing = report.desired - report.filled - report.held
        return SimpleNamespace(desired=report.desired, held=report.held, missing=missing)

    @property
    def found(self) -> list[str]:
        return [one.rule for one in self.watcher.found]

    def pod(self, name: str, priority: int = 0, cpu: int = 1000, **labels: str) -> str:
        gates = {"schedulingGates": [{"name": "j10ce.io/hand-over"}]} if labels else {}
        self.store.create(PODS, objects.pod(name, cpu, 64, priority, labels, **gates))
        uid: str = self.body(name)["metadata"]["uid"]
        return uid

    def owner(self, name: str = "a-1", cpu: int = 1000) -> str:
        return self.pod(name, CLASS, cpu, app="a")

    def bypassing(self, name: str, cpu: int) -> None:
        """A pod that is created on n0."""
        self.store.create(PODS, objects.pod(name, cpu, 64, 0, {}, nodeName="n0"))

    def body(self, name: str, namespace: str = "default") -> Body:
        return self.store.get(PODS, namespace, name)

    def placeholder(self, name: str, policy: str = POLICY, *, bound: bool = True) -> None:
        """One on n0."""
        where = {"namespace": PLACEHOLDERS, "form": FORM, "priority_class": "", "scheduler": "s"}
        made = placeholders.body(replace(DEMAND, key=policy), name, "n0", **where)
        spec = {**made["spec"], "priority": CLASS, **({"nodeName": "n0"} if bound else {})}
        self.store.create(PODS, {**made, "spec": spec, "status": {"phase": "Pending"}})

    def change(self, name: str, *, status: Body | None = None, spec: Body | None = None) -> None:
        body = self.body(name)
        self.store.write(
            PODS,
            {
                **body,
                "spec": {**body["spec"], **(spec or {})},
                "status": {**body["status"], **(status or {})},
            },
        )

    def delete(self, uid: str, name: str) -> None:
        """Our service deletes a placeholder."""
        self.watcher.deletes(uid, True)
        self.store.remove(PODS, PLACEHOLDERS, name)

    def handed(self, name: str, place: str) -> str:
        """An owner gets a placeholder's place on n0."""
        uid = self.owner(name)
        self.watcher.claimed(uid, "n0", POLICY, "")
        self.change(name, status={"nominatedNodeName": "n0"})
        self.delete(self.body(place, PLACEHOLDERS)["metadata"]["uid"], place)
        self.change(name, spec={"schedulingGates": None})
        return uid

    def preempts(self, name: str, victim: str, node: str = "n0") -> None:
        there = [parsed.pod(self.store.raw(PODS, "default", one)) for one in (name, victim)]
        self.watcher.preempted(there[0], node, [there[1]], asked=True)

    def chosen(self, name: str, node: str = "n0") -> None:
        self.watcher.assumed(parsed.pod(self.store.raw(PODS, "default", name)), node)


@pytest.fixture
def there() -> There:
    made = There()
    for number in range(2):
        made.placeholder(f"hold-{number}")
    made.pod("batch")
    made.change("batch", spec={"nodeName": "n0"})
    return made


def uid_of(there: There, name: str) -> str:
    uid: str = there.body(name, PLACEHOLDERS)["metadata"]["uid"]
    return uid


def test_a_placeholder_that_is_wanted_goes_for_nobody(there: There) -> None:
    there.watcher.deletes(uid_of(there, "hold-0"), True)
    assert there.found == ["slots are kept"]


def test_one_placeholder_goes_for_one_owner(there: There) -> None:
    there.handed("a-1", "hold-0")
    assert not there.found
    there.watcher.deletes(uid_of(there, "hold-1"), True)
    assert there.found == ["slots are kept"]


def test_a_delete_that_came_to_nothing_is_sent_again_for_the_same_owner(there: There) -> None:
    uid = there.owner()
    there.watcher.claimed(uid, "n0", POLICY, "")
    there.change("a-1", status={"nominatedNodeName": "n0"})
    for sent in (True, False, True):
        there.watcher.deletes(uid_of(there, "hold-0"), sent)
    assert not there.found


def test_an_owner_that_was_never_nominated_is_no_heir(there: There) -> None:
    uid = there.owner()
    there.watcher.claimed(uid, "n0", POLICY, "")
    there.watcher.deletes(uid_of(there, "hold-0"), True)
    assert there.found == ["slots are kept"]


def test_a_nomination_that_kube_scheduler_takes_back_was_one(there: There) -> None:
    uid = there.owner()
    there.watcher.claimed(uid, "n0", POLICY, "")
    for node in ("n0", ""):
        there.change("a-1", status={"nominatedNodeName": node})
    there.watcher.deletes(uid_of(there, "hold-0"), True)
    assert not there.found


def test_an_owner_that_is_given_up_is_an_heir_of_another_placeholder_once_it_is_served_again(
    there: There,
) -> None:
    uid = there.handed("a-1", "hold-0")
    there.watcher.released(uid)
    there.holds["n0"] = 1
    there.watcher.claimed(uid, "n0", POLICY, "")
    there.delete(uid_of(there, "hold-1"), "hold-1")
    assert not there.found


def test_one_that_is_wanted_where_it_stands_goes_for_nobody_who_waits_there(there: There) -> None:
    there.placeholder("waits", bound=False)
    there.now += 2.0
    there.watcher.deletes(uid_of(there, "hold-0"), True)
    assert there.found == ["slots are kept"]


@pytest.mark.parametrize(("there_already", "found"), [(0.5, ["slots are kept"]), (1.5, [])])
def test_one_that_is_wanted_elsewhere_goes_for_one_that_has_waited_for_its_place(
    there: There, there_already: float, found: list[str]
) -> None:
    there.holds = {"n1": 2}
    other = SimpleNamespace(filled=0, held=1, desired=1, holds=(("n0", 1),))
    extender: Any = there.watcher.extender
    extender.ledger.report = lambda: {POLICY: there.report, "default/b": other}
    there.placeholder("waits", "default/b", bound=False)
    there.now += there_already
    there.watcher.deletes(uid_of(there, "hold-0"), True)
    assert there.found == found


@pytest.mark.parametrize(("refused", "found"), [(True, ["slots are kept"]), (False, [])])
def test_no_placeholder_goes_for_one_that_kubelet_refuses(
    there: There, refused: bool, found: list[str]
) -> None:
    """Of 4 CPUs two placeholders and a batch pod have three: the account has no room for the second hold."""
    there.bypassing("bypass", 2000)
    if refused:
        there.watcher.refused(parsed.pod(there.store.raw(PODS, "default", "bypass")), "cpu")
    there.holds["n0"] = 1
    there.watcher.deletes(uid_of(there, "hold-0"), True)
    assert there.found == found


def test_one_that_kubelet_has_refused_goes(there: There) -> None:
    there.bypassing("bypass", 2000)
    there.holds["n0"] = 1
    place = there.body("hold-0", PLACEHOLDERS)
    there.watcher.refused(parsed.pod(there.store.raw(PODS, PLACEHOLDERS, "hold-0")), "cpu")
    there.watcher.deletes(place["metadata"]["uid"], True)
    assert not there.found


@pytest.mark.parametrize(("reason", "found"), [(INSUFFICIENT, ["slots are kept"]), (CAP_REACHED, [])])
def test_no_placeholder_goes_for_a_slot_that_lacks_room_and_would_fit_there(
    there: There, reason: str, found: list[str]
) -> None:
    there.holds, there.reason = {"n0": 1}, reason
    there.watcher.deletes(uid_of(there, "hold-0"), True)
    assert there.found == found


def test_one_goes_where_somebody_is_nominated_to_its_place(there: There) -> None:
    there.holds = {"n0": 1}
    there.pod("important", 2 * CLASS, 2000)
    there.change("important", status={"nominatedNodeName": "n0"})
    there.watcher.deletes(uid_of(there, "hold-0"), True)
    assert not there.found


def test_who_was_refused_is_evicted_by_anybody(there: There) -> None:
    there.bypassing("bypass", 2000)
    there.watcher.refused(parsed.pod(there.store.raw(PODS, "default", "bypass")), "cpu")
    there.handed("a-1", "hold-0")
    there.preempts("a-1", "bypass")
    assert not there.found


def test_a_place_that_somebody_past_the_scheduler_took_is_an_excuse(there: There) -> None:
    there.handed("a-1", "hold-0")
    there.bypassing("bypass", 2000)
    there.preempts("a-1", "batch")
    assert not there.found


def test_a_place_whose_placeholder_was_about_to_be_bound_is_an_excuse(there: There) -> None:
    there.placeholder("waits", bound=False)
    place = parsed.pod(there.store.raw(PODS, PLACEHOLDERS, "waits"))
    there.watcher.assumed(place, "n0")
    there.handed("a-1", "hold-0")
    there.watcher.unassumed(place)
    there.preempts("a-1", "batch")
    assert not there.found


def test_so_is_one_whose_placeholder_was_deleted_then(there: There) -> None:
    """kube-scheduler learns that from its Binding, perhaps before the watch shows it a nomination."""
    there.placeholder("waits", bound=False)
    there.watcher.assumed(parsed.pod(there.store.raw(PODS, PLACEHOLDERS, "waits")), "n0")
    there.handed("a-1", "hold-0")
    there.delete(uid_of(there, "waits"), "waits")
    there.preempts("a-1", "batch")
    assert not there.found


def test_kube_scheduler_heeds_no_nomination_of_one_with_gates_when_it_starts(there: There) -> None:
    uid = there.owner()
    there.watcher.claimed(uid, "n0", POLICY, "")
    there.change("a-1", status={"nominatedNodeName": "n0"})
    there.watcher.scheduler_starts()
    there.delete(uid_of(there, "hold-0"), "hold-0")
    there.change("a-1", spec={"schedulingGates": None})
    there.preempts("a-1", "batch")
    assert not there.found


@pytest.mark.parametrize(("bypassed", "found"), [(False, ["owners are admitted"]), (True, [])])
def test_kubelet_refuses_an_owner_only_where_somebody_came_past_the_scheduler(
    there: There, bypassed: bool, found: list[str]
) -> None:
    there.owner()
    there.change("a-1", spec={"nodeName": "n0"})
    if bypassed:
        there.bypassing("bypass", 2000)
    there.watcher.refused(parsed.pod(there.store.raw(PODS, "default", "a-1")), "cpu")
    assert there.found == found


def test_an_owner_in_its_place_evicts_nobody(there: There) -> None:
    there.handed("a-1", "hold-0")
    there.preempts("a-1", "batch")
    assert there.found == ["nobody is evicted"]


@pytest.mark.parametrize(("seconds", "found"), [(1.0, ["nobody is evicted"]), (20.0, [])])
def test_nor_while_our_service_is_away(there: There, seconds: float, found: list[str]) -> None:
    there.handed("a-1", "hold-0")
    there.watcher.restarted()
    there.now += seconds
    there.preempts("a-1", "batch")
    assert there.found == found


def test_a_hand_over_that_was_not_finished_is_over_with_our_service(there: There) -> None:
    uid = there.owner()
    there.watcher.claimed(uid, "n0", POLICY, "")
    there.change("a-1", status={"nominatedNodeName": "n0"})
    there.watcher.restarted()
    there.change("a-1", spec={"schedulingGates": None})
    there.preempts("a-1", "batch")
    assert not there.found


@pytest.mark.parametrize(("cpu", "found"), [(1000, ["nobody is evicted"]), (2000, [])])
def test_only_who_takes_its_place_is_an_excuse(there: There, cpu: int, found: list[str]) -> None:
    """Of 4 CPUs a placeholder and a batch pod have one each: one is free beside the owner's place."""
    there.handed("a-1", "hold-0")
    there.pod("important", 2 * CLASS, cpu)
    there.chosen("important")
    there.preempts("a-1", "batch")
    assert there.found == found


@pytest.mark.parametrize(("cpu", "found"), [(2000, ["nobody is evicted"]), (3500, [])])
def test_an_owner_that_asks_for_more_than_a_slot_is_one_where_that_is_not_there(
    there: There, cpu: int, found: list[str]
) -> None:
    uid = there.owner(cpu=cpu)
    there.watcher.claimed(uid, "n0", POLICY, "")
    there.preempts("a-1", "batch")
    assert there.found == found


@pytest.mark.parametrize(("app", "found"), [("a", []), ("b", ["slots are kept"])])
def test_what_our_service_has_still_to_hear_of_concerns_that_policy(
    there: There, app: str, found: list[str]
) -> None:
    there.seen = len(there.store.log[PODS.plural])
    there.pod("unheard", app=app)
    there.now += 0.1
    there.watcher.deletes(uid_of(there, "hold-0"), True)
    assert there.found == found


def test_a_new_owner_is_gated(there: There) -> None:
    there.behind, there.seen = True, len(there.store.log[PODS.plural])
    there.store.create(PODS, objects.pod("a-1", 1000, 64, CLASS, {"app": "a"}))
    assert not there.found
    there.behind, there.seen = False, there.seen + 1
    there.store.create(PODS, objects.pod("a-2", 1000, 64, CLASS, {"app": "a"}))
    assert there.found == ["owners wait"]
