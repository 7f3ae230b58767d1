"""Which buffers are to be there, and that the steps lead there from anywhere."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.api import CAPACITY_BUFFERS
from adapters.kubernetes import buffers
from adapters.kubernetes.buffers import Owner, Told
from extender.buffering import (
    Account,
    Action,
    Kind,
    There,
    Wanted,
    lacks,
    provisioned,
    replicas,
    steps,
    wanted_of,
)
from ledger.decisions import DemandReport, Unplaced
from qos.cluster.objects import Demand, NodePredicate
from qos.cluster.precedence import Problem
from tests.qos.builders import CHECKOUT, policy

DEMAND = Demand("shop/checkout", "shop", CHECKOUT, {"cpu": 2000, "pods": 1}, 4)
HELD = DemandReport("shop/checkout", desired=10, filled=3, held=4)
OWNER = Owner("shop", "checkout", "u-1")
CONTENT = buffers.slot_content(DEMAND)
assert CONTENT is not None
WANTED = Wanted(OWNER, 3, CONTENT)


def unplaced(*counted: tuple[int, str]) -> tuple[Unplaced, ...]:
    return tuple(Unplaced(count, reason) for count, reason in counted)


CASES = [
    ("filled slots are pods that both count", HELD, 0, 4),
    ("an unplaced slot needs a node", replace(HELD, unplaced=unplaced((2, "Insufficient"))), 0, 6),
    ("one that no node admits, too", replace(HELD, unplaced=unplaced((2, "NoNode"))), 0, 6),
    ("what a budget does not give, none", replace(HELD, unplaced=unplaced((2, "BudgetExceeded"))), 0, 4),
    ("what it forbids, none", replace(HELD, unplaced=unplaced((2, "BudgetForbids"))), 0, 4),
    ("nor what a cap keeps back", replace(HELD, unplaced=unplaced((1, "CapReached"))), 0, 4),
    ("nor that of a pool", replace(HELD, unplaced=unplaced((1, "PoolCapReached"))), 0, 4),
    ("each reason by itself", replace(HELD, unplaced=unplaced((1, "CapReached"), (2, "Spread"))), 0, 6),
    ("an owner that waits is counted by the autoscaler", HELD, 3, 1),
    ("owners beyond the slots as well", HELD, 30, 0),
]


@pytest.mark.parametrize(
    ("report", "waiting", "count"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_how_many_slots_autoscalers_are_told_of(report, waiting, count):
    assert replicas(report.held, lacks(report), waiting) == count


@pytest.mark.parametrize(
    ("waiting", "count"), [(0, 2), (4, 2), (5, 1), (30, 0)], ids=["none", "for held ones", "beyond", "many"]
)
def test_placeholders_are_pods_that_autoscalers_count(waiting, count):
    report = replace(HELD, unplaced=unplaced((2, "Insufficient"), (3, "CapReached")))
    assert replicas(report.held, lacks(report), waiting, standing=True) == count


def test_who_asks_for_no_node():
    one = Account(policy(), DEMAND, HELD, 0, 0)
    found = wanted_of(one)
    assert found is not None
    assert (found.replicas, found.owner.key, found.content) == (4, "shop/j10ce-checkout", CONTENT)
    assert wanted_of(replace(one, resolved=Problem("ProfileNotFound", ""))) is None
    assert wanted_of(replace(one, report=None)) is None
    assert wanted_of(replace(one, report=replace(HELD, held=0))) is None
    assert wanted_of(replace(one, resolved=replace(DEMAND, where=NodePredicate(affinity=())))) is None


# --- the steps, taken on a world that holds what was written ---


def raw_buffer(owner: Owner, count: int, uid: str) -> bytes:
    body = buffers.buffer(owner, CAPACITY_BUFFERS[0], count)
    return json.dumps(body | {"metadata": body["metadata"] | {"uid": uid}}).encode()


def raw_template(owner: Owner, content, uid: str) -> bytes:
    body = buffers.pod_template(owner, content)
    return json.dumps(body | {"metadata": body["metadata"] | {"uid": uid}}).encode()


class World:
    """Objects by kind and key. A buffer without its template is never made, nor left."""

    def __init__(self, templates, there) -> None:
        self.templates, self.buffers, self.written = dict(templates), dict(there), 0

    def there(self) -> There:
        return There(dict(self.templates), dict(self.buffers))

    def take(self, step) -> None:
        kept = self.templates if step.kind is Kind.TEMPLATE else self.buffers
        assert (step.key in kept) == (step.action is not Action.CREATE)
        assert step.seen == kept.get(step.key)
        if step.action is Action.DELETE:
            buffer = self.buffers.get(step.key)
            stale = buffer is None or buffer.owner != step.seen.owner
            assert step.kind is Kind.BUFFER or stale, "it names its template"
            del kept[step.key]
            return
        self.written += 1
        one, uid = step.wanted, f"made-{self.written}"
        if step.kind is Kind.TEMPLATE:
            kept[step.key] = buffers.seen_template(raw_template(one.owner, one.content, uid))
        else:
            assert step.key in self.templates
            kept[step.key] = buffers.seen_buffer(raw_buffer(one.owner, one.replicas, uid))


OTHER = buffers.slot_content(replace(DEMAND, vector={"cpu": 1000, "pods": 1}))
owners = st.builds(Owner, st.just("shop"), st.sampled_from("abc"), st.sampled_from(["u-1", "u-2"]))
wants = st.lists(st.builds(Wanted, owners, st.integers(1, 3), st.sampled_from([CONTENT, OTHER])), max_size=4)
old = st.lists(st.tuples(owners, st.integers(1, 3), st.sampled_from([CONTENT, OTHER])), max_size=4)


@given(wants, old, old)
def test_the_steps_lead_to_what_is_wanted_from_anywhere_and_then_end(wanted, templates, there):
    by_key = {one.owner.key: one for one in wanted}
    world = World(
        {
            owner.key: buffers.seen_template(raw_template(owner, content, "old"))
            for owner, _, content in templates
        },
        {owner.key: buffers.seen_buffer(raw_buffer(owner, count, "old")) for owner, count, _ in there},
    )
    for _ in range(6):
        for step in list(steps(by_key, world.there())):
            world.take(step)
    assert not list(steps(by_key, world.there()))
    assert world.templates.keys() == world.buffers.keys() == by_key.keys()
    for key, one in by_key.items():
        assert world.templates[key].owner == world.buffers[key].owner == one.owner.uid
        assert world.templates[key].content == one.content
        assert world.buffers[key].content["replicas"] == one.replicas


def test_nothing_is_written_when_nothing_changed():
    world = World({}, {})
    for _ in range(2):
        for step in list(steps({OWNER.key: WANTED}, world.there())):
            world.take(step)
    assert world.written == 2
    more = list(steps({OWNER.key: replace(WANTED, replicas=5)}, world.there()))
    assert [(one.action, one.kind) for one in more] == [(Action.REPLACE, Kind.BUFFER)]


# --- the condition ---


def told(**conditions: Told):
    seen = buffers.seen_buffer(raw_buffer(OWNER, 3, "b-1"))
    assert seen is not None
    return replace(seen, conditions=conditions)


FITS = Told("True", "FitsExistingCapacity", "All 3 virtual pods fit on existing capacity")
NEW = Told("False", "RequiresNewCapacity", "2/3 virtual pods required new capacity")
LOST = Told("False", "PodTemplateNotFound", "no PodTemplate")


@pytest.mark.parametrize(
    ("wanted", "buffer", "refused", "said"),
    [
        (None, None, "", ("True", "NothingAsked")),
        (WANTED, None, "", ("Unknown", "ToBeMade")),
        (WANTED, None, "403 Forbidden", ("False", "NotWritten")),
        (WANTED, told(), "", ("Unknown", "NoAnswer")),
        (WANTED, told(Provisioning=FITS), "", ("True", "FitsExistingCapacity")),
        (WANTED, told(Provisioning=NEW), "", ("False", "RequiresNewCapacity")),
        (WANTED, told(Provisioning=FITS, ReadyForProvisioning=LOST), "", ("False", "PodTemplateNotFound")),
        (WANTED, told(Provisioning=Told("Maybe", "", "")), "", ("Unknown", "NoAnswer")),
    ],
)
def test_the_condition_is_what_the_autoscaler_says(wanted, buffer, refused, said):
    found = provisioned(wanted, buffer, refused, HELD)
    assert (found.type, found.status, found.reason) == ("Provisioned", *said)
    assert found.message


def test_slots_beyond_a_limit_are_named_where_nothing_is_asked():
    report = replace(HELD, held=0, unplaced=unplaced((7, "BudgetExceeded")))
    assert "7 slots" in provisioned(None, None, "", report).message
