"""Nodes with holds are kept from cluster-autoscaler and Karpenter, and given back (trap T22)."""

from __future__ import annotations

import orjson

from adapters.api import NODES, APIError, NotFound
from adapters.kubernetes import decode
from extender.scale_down import LINGER_SECONDS, ScaleDownGuard, changed
from extender.view import View, marks_of
from qos import keys
from tests.extender.accounts import Account, calls


class Autoscaled:
    """Nodes with holds, and what we write on them."""

    def __init__(self, api, clock, make_node, *names):
        self.api, self.account, self.view = api, Account(), View()
        self.guard = ScaleDownGuard(api, self.account, self.view, clock=clock)
        for name in names:
            self.see(api.put(NODES, make_node(name)))

    def see_all(self):
        """As the watch shows them."""
        for node in self.api.objects(NODES):
            self.see(node)

    async def linger(self, clock):
        """Nothing is held any more, for long enough."""
        self.account.held = frozenset()
        await self.guard.run_once()
        clock.advance(LINGER_SECONDS)
        await self.guard.run_once()

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


OF_KARPENTER = {"labels": {keys.KARPENTER_NODE_LABEL: "default"}}


async def test_t22_karpenter_has_an_annotation_of_its_own(api, clock, make_node):
    cluster = Autoscaled(api, clock, make_node, "n1")
    cluster.see(api.put(NODES, make_node("k1", **OF_KARPENTER)))
    cluster.account.held = frozenset({"n1", "k1"})
    await cluster.guard.run_once()
    assert cluster.annotations("k1") == {"karpenter.sh/do-not-disrupt": "true", "j10ce.io/held": "karpenter"}
    assert cluster.marked() == ["n1"]
    cluster.see_all()
    patches = len(calls(api, "patch"))
    await cluster.guard.run_once()
    assert len(calls(api, "patch")) == patches, "once"
    await cluster.linger(clock)
    assert cluster.annotations("k1") == cluster.annotations("n1") == {}


async def test_t22_what_a_person_told_karpenter_stays(api, clock, make_node):
    own = {keys.DO_NOT_DISRUPT_ANNOTATION: "true", keys.SCALE_DOWN_DISABLED_ANNOTATION: "true"}
    cluster = Autoscaled(api, clock, make_node)
    cluster.see(api.put(NODES, make_node("k1", annotations=own, **OF_KARPENTER)))
    cluster.account.held = frozenset({"k1"})
    await cluster.guard.run_once()
    await cluster.linger(clock)
    assert cluster.annotations("k1") == own
    assert not calls(api, "patch")


async def test_t22_an_older_versions_mark_on_a_node_of_karpenters_is_corrected(api, clock, make_node):
    old = {keys.SCALE_DOWN_DISABLED_ANNOTATION: "true", keys.HELD_ANNOTATION: "true"}
    cluster = Autoscaled(api, clock, make_node)
    cluster.see(api.put(NODES, make_node("k1", annotations=old, **OF_KARPENTER)))
    theirs = old | {keys.DO_NOT_DISRUPT_ANNOTATION: "true"}
    cluster.see(api.put(NODES, make_node("k2", annotations=theirs, **OF_KARPENTER)))
    cluster.account.held = frozenset({"k1", "k2"})
    await cluster.guard.run_once()
    clock.advance(LINGER_SECONDS)
    await cluster.guard.run_once()
    assert cluster.annotations("k1") == {
        keys.DO_NOT_DISRUPT_ANNOTATION: "true",
        keys.HELD_ANNOTATION: "karpenter",
    }
    assert cluster.annotations("k2") == {keys.DO_NOT_DISRUPT_ANNOTATION: "true"}, "a person's own"


def test_t22_a_mark_of_a_later_version_stands_for_nothing_that_is_taken_back():
    assert changed("unheard-of", None) == {keys.HELD_ANNOTATION: None}


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
