"""Reservations from the API server to their status, around an extender on an API server in memory."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from adapters.api import NODES, PODS, RESERVATIONS, NotFound
from adapters.kubernetes import decode
from adapters.kubernetes.events import EventWriter
from adapters.kubernetes.reserving import reservation as parse
from adapters.memory import MemoryAPI
from extender.config import Koordinator
from extender.reservation_status import Facts, ReservationStatus, compute, news
from extender.reservations import Reservations
from extender.view import View, marks_of
from ledger.decisions import DemandReport, Unplaced
from ledger.reservations import Use
from ledger.reserving import Account
from qos import keys
from qos.cluster.objects import Pod
from qos.cluster.precedence import PriorityClass, PriorityClasses, Problem
from qos.cluster.reservation import demand_of

NOW = 1_800_000_000.0
ON = {"koordinator": Koordinator(reservations=True), "warmup_seconds": 0.0, "lease": "kube-system/test"}


def written(name: str = "demo", cpu: str = "2", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1},
        "spec": {
            "template": {"spec": {"containers": containers}},
            "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
        }
        | spec,
    }


def read(status: dict[str, Any] | None = None, **spec: Any) -> Any:
    return parse(json.dumps(written(**spec) | {"status": status or {}}).encode())


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


def test_one_that_finds_no_node_says_why() -> None:
    report = DemandReport("/demo", 1, 0, 0, unplaced=(Unplaced(1, "Insufficient", keys.CPU, 2000),))
    status = compute(Facts(read(), None, report=report), NOW)
    assert status["phase"] == "Pending"
    assert status["conditions"][0]["message"] == "cpu: 2 missing for 1 slot"
    assert conditions(status) == {"Scheduled": ("False", "Unschedulable")}
    assert [one.reason for one in news({}, status)] == ["Unschedulable"]


def test_one_that_is_held_is_available() -> None:
    status = compute(Facts(read(), None, Account("n1")), NOW)
    assert (status["phase"], status["nodeName"]) == ("Available", "n1")
    assert status["allocatable"] == {"cpu": "2", "memory": "1Gi"}
    assert (status["allocated"], status["currentOwners"]) == ({"cpu": "0", "memory": "0"}, [])
    assert conditions(status) == {"Scheduled": ("True", "Scheduled"), "Ready": ("True", "Available")}
    again = compute(Facts(read(status), None, Account("n1")), NOW + 60)
    assert again == status, "times stay, and nothing is written"


def test_what_its_first_owner_took_is_written_once() -> None:
    use = Use(Pod("u1", "shop", "web-0", {"cpu": 1000, "gpu": 1}), {"cpu": 1000, "gpu": 1, "pods": 1})
    available = read({"phase": "Available", "nodeName": "n1"})
    status = compute(Facts(available, None, Account("", use)), NOW)
    assert status["phase"] == "Succeeded"
    assert status["allocated"] == {"cpu": "1", "memory": "0"}
    assert status["currentOwners"] == [{"namespace": "shop", "name": "web-0", "uid": "u1"}]
    assert conditions(status)["Ready"] == ("False", "Succeeded")
    assert compute(Facts(read({"phase": "Succeeded", "nodeName": "n1"}), None), NOW) == {}


@pytest.mark.parametrize(
    ("spec", "known", "text"),
    [({"expires": "2026-01-01T00:00:00Z"}, True, "its time is over"), ({}, False, "node n1 is gone")],
)
def test_one_whose_time_or_node_is_gone_has_failed(spec: dict[str, Any], known: bool, text: str) -> None:
    one = read({"phase": "Available", "nodeName": "n1"}, **spec)
    status = compute(Facts(one, None, Account("n1"), node_known=known), NOW)
    assert (status["phase"], status["nodeName"]) == ("Failed", "n1")
    assert conditions(status)["Ready"] == ("False", "Expired")
    assert status["conditions"][-1]["message"] == text


def test_an_available_one_that_lost_its_place_says_so() -> None:
    one = read({"phase": "Available", "nodeName": "n1"})
    status = compute(Facts(one, Problem("PriorityTooHigh", "too high")), NOW)
    assert status["phase"] == "Available"
    assert conditions(status)["Held"] == ("False", "NotHeld")


def test_what_is_not_honoured_is_a_condition() -> None:
    status = compute(Facts(read(preAllocation=True), None, Account("n1")), NOW)
    assert conditions(status)["Honoured"] == ("False", "NotHonoured")
    assert "spec.preAllocation" in status["conditions"][-1]["message"]


def test_its_priority_is_the_highest_unless_it_says_another() -> None:
    classes = PriorityClasses({"gold": PriorityClass(70)}, highest=1000)

    def priority(**spec: Any) -> Any:
        template = written()["spec"]["template"]
        template["spec"] |= spec
        found = demand_of(read(template=template), classes)
        return found.reason if isinstance(found, Problem) else found.priority

    assert priority() == 1000
    assert priority(priorityClassName="gold") == 70
    assert priority(priority=7, priorityClassName="gold") == 7
    assert priority(priorityClassName="none") == "PriorityClassNotFound"
    assert priority(priority=1001) == "PriorityTooHigh"


def verbs(program: Any, pod: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    meta = pod["metadata"]
    named = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
    return f"http://{program.config.verbs_address}", named


async def test_from_pending_to_succeeded(running, make_node, make_pod, eventually):
    api = MemoryAPI()
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name))
    api.put(RESERVATIONS, written(cpu="4"))
    status = lambda: api.get_object(RESERVATIONS, "", "demo").get("status", {})  # noqa: E731
    async with running(api, **ON) as program, httpx.AsyncClient(timeout=30) as client:
        await eventually(lambda: status().get("phase") == "Available")
        node = status()["nodeName"]
        await eventually(lambda: program.reservations.known["/demo"].node == node)
        await eventually(lambda: not program.reservations._due)
        pod = api.put(PODS, make_pod("web", cpu="1", app="web"))
        await eventually(lambda: program.ledger.known(pod["metadata"]["uid"]))
        url, named = verbs(program, pod)
        answer = await client.post(f"{url}/filter", json={"Pod": pod, "NodeNames": ["n1", "n2"]})
        assert answer.json()["NodeNames"] == [node]
        assert (await client.post(f"{url}/bind", json=named | {"Node": node})).json() == {"Error": ""}
        (binding,) = api.bindings
        said = json.loads(binding.annotations[keys.RESERVATION_ALLOCATED_ANNOTATION])
        assert said == {"name": "demo", "uid": "uid-demo"}
        assert keys.POLICY_ANNOTATION not in binding.annotations
        await eventually(lambda: status().get("phase") == "Succeeded")
        assert status()["currentOwners"][0]["name"] == "web"
        await eventually(lambda: "/demo" not in program.ledger.report())


async def test_a_definition_that_is_not_there_is_waited_for(running, make_node, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1"))
    api.put(RESERVATIONS, written())
    missing = NotFound(404, "NotFound", "the server could not find the requested resource")
    api.fail("list_page", missing, resource=RESERVATIONS, times=2)
    async with running(api, **ON) as program:
        assert not program.hearing.reservations
        await eventually(lambda: "/demo" in program.ledger.report())


def test_one_that_is_shared_says_by_whom() -> None:
    uses = tuple(Use(Pod(f"u{n}", "shop", f"web-{n}", {}), {"cpu": 500, "memory": 1 << 28}) for n in (1, 0))
    one = read({"phase": "Available", "nodeName": "n1"}, allocateOnce=False)
    status = compute(Facts(one, None, Account("n1", None, uses)), NOW)
    assert (status["phase"], status["allocated"]) == ("Available", {"cpu": "1", "memory": "512Mi"})
    assert [owner["name"] for owner in status["currentOwners"]] == ["web-0", "web-1"]


async def test_where_one_is_held_is_told_as_of_the_moment_of_the_write(
    clock, metrics, make_ledger, make_node, monkeypatch
):
    """The write before it takes a while, and meanwhile its node is gone."""
    api, ledger = MemoryAPI(clock=clock), make_ledger(reservations=True)
    known, view = Reservations(ledger, lambda: None, wall=clock), View()
    for name in ("n1", "n2", "n3"):
        one = decode.node(json.dumps(make_node(name)).encode())
        ledger.set_node(one)
        view.set_node(one, marks_of(json.dumps(make_node(name)).encode()))
    for name in ("a", "b"):
        known.set(parse(json.dumps(api.put(RESERVATIONS, written(name, cpu="3"))).encode()))
    for _ in known.open_in_steps():
        pass
    ledger.report()
    events = EventWriter(api, metrics.event, identity="me", clock=clock, wall=clock)
    status = ReservationStatus(api, ledger, known, view, events, metrics, clock=clock, wall=clock)
    patch, lost = api.patch, ledger.reservation("/b").node

    async def slow(*what, **options):
        if lost in ledger.held_nodes():
            ledger.remove_node(lost)
            ledger.report()
        return await patch(*what, **options)

    monkeypatch.setattr(api, "patch", slow)
    await status.run_once()
    assert ledger.reservation("/b").node not in ("", lost)
    assert api.get_object(RESERVATIONS, "", "b")["status"]["nodeName"] == ledger.reservation("/b").node


def test_who_reads_that_one_is_available_may_send_its_pod_at_once(clock, make_ledger, make_node, make_pod):
    """It was looked at ten times a second only: a pod that was evicted to it was sent elsewhere meanwhile."""
    ledger = make_ledger(reservations=True)
    known = Reservations(ledger, lambda: None, wall=clock)
    for name in ("n1", "n2"):
        ledger.set_node(decode.node(json.dumps(make_node(name)).encode()))
    for _ in known.open_in_steps():
        pass
    known.set(read())
    ledger.report()
    held = ledger.reservation("/demo").node
    known.set(read({"phase": "Available", "nodeName": held}))
    pod = decode.pod(json.dumps(make_pod("web-1", "1", labels={"app": "web"})).encode())
    assert ledger.filter(pod, ["n1", "n2"], clock()).nodes == [held]
    assert not ledger.bind(pod, held, clock()).refusal
    ledger.bound(pod.uid, held)
    assert ledger.reservation("/demo").used_up is not None


def test_an_end_that_was_taken_away_is_no_end(clock, make_ledger):
    told = []
    known = Reservations(make_ledger(reservations=True), lambda: told.append(1), wall=clock)
    for _ in known.open_in_steps():
        pass
    known.set(read(expires="2030-01-01T00:00:00Z"))
    known.set(read(ttl="0s"))
    clock.advance(10e9)
    told.clear()
    assert not [*known.catch_up()]
    assert not told
