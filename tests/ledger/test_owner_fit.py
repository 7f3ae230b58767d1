"""ownerFit: which of the pods that a policy selects may fill its slots."""

from __future__ import annotations

from dataclasses import replace

from ledger.decisions import Mode
from ledger.ledger import Ledger
from ledger.seats import NO_SLOT
from qos.cluster.objects import OwnerFit
from tests.ledger.builders import demand, go, holds, labelled, ledger, names, node, nodes, pod

WEB = demand("web", 2, cpu=2, priority=10, owner_fit=OwnerFit.RESTRICTED)


def _marks(of: Ledger) -> dict[str, str]:
    found = [one for one in of.gather_untrue() if one is not None]
    return {pod.name: value for one in found for pod, value in one.wanted}


def test_a_pod_that_fits_the_slot_fills_it_and_a_larger_one_takes_no_hold() -> None:
    made = ledger(node("n0", 6), WEB)
    large = made.bind(pod("large", 2.5, app="web"), "n0", 0.0)
    assert not large.slot
    assert "holds of default/web are in the way" in large.refusal
    assert made.bind(pod("fits", 2, app="web"), "n0", 0.0).slot
    assert holds(made, "web") == {"n0": 1}
    assert made.report()["default/web"].filled == 1


def test_a_larger_one_is_scheduled_as_any_pod_and_its_binding_says_that_it_has_no_floor() -> None:
    made = ledger(node("n0", 8), WEB)
    said = made.bind(pod("large", 4, app="web"), "n0", 0.0)
    assert (said.refusal, said.policy, said.slot) == ("", "default/web", False)
    again = made.bind(pod("large", 4, app="web"), "n0", 0.0)
    assert (again.policy, again.slot) == ("default/web", False)
    assert holds(made, "web") == {"n0": 2}
    assert made.report()["default/web"].filled == 0


def test_aligned_the_rest_comes_from_the_node() -> None:
    made = ledger(node("n0", 8), replace(WEB, owner_fit=OwnerFit.ALIGNED))
    assert made.bind(pod("large", 4, app="web"), "n0", 0.0).slot
    assert holds(made, "web") == {"n0": 1}


def test_only_resources_that_the_slot_names_count() -> None:
    made = ledger(node("n0", 8, extra={"example.com/gpu": 4}), WEB)
    assert made.bind(pod("p", 2, app="web", extra={"example.com/gpu": 3}), "n0", 0.0).slot
    assert not made.bind(pod("q", 1, memory=2, app="web"), "n0", 0.0).slot


def test_the_message_to_a_refused_pod_says_why_its_own_policy_keeps_it_out() -> None:
    made = ledger(*nodes(2, 2), WEB)
    answer = made.filter(pod("large", 2, memory=2, app="web"), names(2), 0.0)
    assert answer.message == (
        "holds of default/web are in the way; it requests more than a slot of default/web, "
        "whose ownerFit is Restricted"
    )


def test_it_owns_the_next_policy_that_it_fits() -> None:
    second = demand("second", 1, cpu=4, selector=labelled("web"))
    made = ledger(node("n0", 8), WEB, second)
    said = made.bind(pod("large", 4, app="web"), "n0", 0.0)
    assert (said.policy, said.slot) == ("default/second", True)
    assert made.bind(pod("small", 2, app="web"), "n0", 0.0).policy == "default/web"


def test_who_is_resized_beyond_the_slot_leaves_it_and_comes_back() -> None:
    made = ledger(node("n0", 8), WEB, pod("p", 2, app="web", node="n0", slot="default/web"))
    assert (made.report()["default/web"].filled, _marks(made)) == (1, {})
    made.set_pod(pod("p", 3, app="web", node="n0", slot="default/web"))
    assert (made.report()["default/web"].filled, _marks(made)) == (0, {"p": NO_SLOT})
    made.set_pod(pod("p", 3, app="web", node="n0", slot=NO_SLOT))
    assert _marks(made) == {}
    made.set_pod(pod("p", 1, app="web", node="n0", slot=NO_SLOT))
    assert (made.report()["default/web"].filled, _marks(made)) == (1, {"p": "default/web"})


def test_a_policy_that_becomes_restricted_or_smaller_loses_its_larger_pods() -> None:
    made = ledger(node("n0", 9), pod("p", 2, app="web", node="n0"), pod("q", 3, app="web", node="n0"))
    made.set_demand(replace(WEB, owner_fit=OwnerFit.ALIGNED))
    assert made.report()["default/web"].filled == 2
    made.set_demand(WEB)
    assert (made.report()["default/web"].filled, _marks(made)) == (1, {"q": NO_SLOT})
    made.set_demand(replace(WEB, vector={"cpu": 1000, "memory": 1, "pods": 1}))
    assert (made.report()["default/web"].filled, _marks(made)) == (0, {"p": NO_SLOT, "q": NO_SLOT})
    made.remove_demand("default/web")
    assert made._state.claims.misfits == {}


def test_a_larger_one_is_not_owed_the_bandwidth_of_a_slot() -> None:
    link = "j10ce.io/egress-bandwidth"
    floor = {**WEB.vector, link: 100}
    made = ledger(node("n0", 8, extra={link: 100}), replace(WEB, vector=floor, owed={link: 100}, desired=1))
    assert go(made, pod("large", 4, app="web"), ["n0"]) == "n0"
    assert go(made, pod("fits", 2, app="web"), ["n0"]) == "n0"


def test_in_guard_a_larger_one_pushes_no_hold_away_while_others_have_room() -> None:
    made = ledger(*nodes(2, 4), demand("web", 1, cpu=3, owner_fit=OwnerFit.RESTRICTED), mode=Mode.GUARD)
    (there,) = holds(made, "web")
    assert go(made, pod("large", 4, app="web"), names(2)) != there
    assert holds(made, "web") == {there: 1}
