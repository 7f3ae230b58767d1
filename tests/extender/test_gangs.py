"""Gangs from the API server to lifted gates, around an extender on an API server in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest

from adapters.api import EVENTS, NODES, POD_GROUPS, PODS, QUOTAS, APIError, NotFound, NotTaken
from adapters.kubernetes import decode
from adapters.loops import Changes
from adapters.memory import MemoryAPI
from extender.config import Quotas
from extender.gang_book import GangBook
from extender.gang_calls import GangCalls
from extender.gangs import Gangs
from extender.metrics import Metrics
from extender.view import View
from ledger.decisions import Mode
from qos import keys
from tests.extender.test_quotas import ON, Scheduler, of, written

Object = dict[str, Any]


def gated(pod: Object, gang: str = "", least: int = 0, **annotations: str) -> Object:
    """With the gate that admission puts; least: by annotation, else by a PodGroup of that name."""
    pod["spec"]["schedulingGates"] = [{"name": keys.GANG_GATE}]
    if least:
        named = {keys.GANG_NAME_ANNOTATION: gang, keys.GANG_MIN_ANNOTATION: str(least)}
        pod["metadata"]["annotations"] = named | annotations
    else:
        pod["metadata"]["labels"][keys.POD_GROUP_LABEL] = gang
    return pod


def group(name: str, least: int, **spec: Any) -> Object:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"minMember": least, **spec},
    }


def let_go(api: MemoryAPI, prefix: str = "") -> set[str]:
    """Names of pods without our gate."""
    return {
        pod["metadata"]["name"]
        for pod in api.objects(PODS)
        if pod["metadata"]["name"].startswith(prefix)
        and keys.GANG_GATE not in [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
    }


def said(api: MemoryAPI, reason: str = "GangWaits") -> list[str]:
    return [event["note"] for event in api.objects(EVENTS) if event["reason"] == reason]


def bind(api: MemoryAPI, name: str) -> None:
    """As kube-scheduler does it, on the nominated node."""
    pod = api.get_object(PODS, "default", name)
    pod["spec"]["nodeName"] = pod["status"]["nominatedNodeName"]
    pod["status"]["phase"] = "Running"
    api.put(PODS, pod)


@pytest.fixture
def api(make_node) -> MemoryAPI:
    """Six CPUs."""
    made = MemoryAPI()
    for name in ("n1", "n2"):
        made.put(NODES, make_node(name, cpu="3"))
    return made


async def test_all_are_nominated_before_the_first_is_let_go(api, running, make_pod, eventually):
    async with running(api, **ON):
        for number in range(4):
            api.put(PODS, gated(make_pod(f"g{number}"), "gang", 5))
        await eventually(lambda: said(api) == ["none of its pods is let go yet: 4 of 5 pods are there"])
        assert not let_go(api)
        api.put(PODS, gated(make_pod("g4"), "gang", 5))
        await eventually(lambda: len(let_go(api)) == 5)
        patched = [name for verb, resource, name in api.calls if (verb, resource) == ("patch", PODS)]
        assert len(set(patched[:5])) == 5, "each is nominated"
        assert set(patched[5:]) == set(patched[:5]), "then each is let go"
        nodes = [pod["status"]["nominatedNodeName"] for pod in api.objects(PODS)]
        assert sorted(nodes.count(name) for name in ("n1", "n2")) == [2, 3]


async def test_two_that_half_fit_do_not_both_run_in_part(api, running, make_pod, eventually):
    async with running(api, **ON):
        for number in range(4):
            api.put(PODS, gated(make_pod(f"a{number}"), "a", 4))
            api.put(PODS, gated(make_pod(f"b{number}"), "b", 4))
        await eventually(lambda: len(let_go(api)) == 4)
        await eventually(lambda: bool(said(api)))
        first = "a" if let_go(api, "a") else "b"
        other = "b" if first == "a" else "a"
        assert not let_go(api, other)
        assert said(api) == [
            "none of its pods is let go yet: 2 of 4 pods fit on nodes: there is too little cpu"
        ]
        for number in range(4):
            api.remove(PODS, "default", f"{first}{number}")
        await eventually(lambda: len(let_go(api, other)) == 4)
        await eventually(lambda: len(said(api, "GangStarts")) == 2)


async def test_nobody_else_gets_the_places(api, running, make_pod, eventually):
    async with running(api, **ON) as program, httpx.AsyncClient(timeout=30) as client:
        for number in range(5):
            api.put(PODS, gated(make_pod(f"g{number}"), "gang", 5))
        await eventually(lambda: len(let_go(api)) == 5)
        ask = Scheduler(program, client)
        first = api.put(PODS, make_pod("first"))
        (node,) = (await ask.filter(first))["NodeNames"]
        assert await ask.bind(first, node) == ""
        urgent = api.put(PODS, make_pod("urgent", priority=9))
        assert not (await ask.filter(urgent))["NodeNames"]
        assert await ask.bind(urgent, "n1") != ""
        member = api.get_object(PODS, "default", "g0")
        assert (await ask.filter(member))["NodeNames"] == [member["status"]["nominatedNodeName"]]


async def test_a_quota_that_they_are_beyond_together_is_told(api, running, make_pod, eventually):
    api.put(QUOTAS, written("web", "1", "3"))
    async with running(api, **ON):
        for number in range(4):
            api.put(PODS, of("web", gated(make_pod(f"g{number}"), "gang", 4)))
        await eventually(lambda: bool(said(api)))
        why = "4 pods together: quota quotas/web: cpu: 4 asked, 0 of 3 taken, 3 left: 3 is its max"
        assert said(api) == [f"none of its pods is let go yet: {why}"]
        assert not let_go(api)
        api.put(QUOTAS, written("web", "1", "4"))
        await eventually(lambda: len(let_go(api)) == 4)


async def test_a_pod_group_says_how_many_and_is_told_how_it_stands(api, running, make_pod, eventually):
    status = lambda: api.get_object(POD_GROUPS, "default", "gang").get("status", {})  # noqa: E731
    async with running(api, **ON):
        for number in range(3):
            api.put(PODS, gated(make_pod(f"g{number}"), "gang"))
        await eventually(
            lambda: (
                said(api)
                == ["none of its pods is let go yet: gang default/gang: there is no PodGroup default/gang"]
            )
        )
        api.put(POD_GROUPS, group("gang", 2))
        await eventually(lambda: len(let_go(api)) == 3)
        await eventually(lambda: status().get("phase") == "Scheduling")
        for number in range(2):
            bind(api, f"g{number}")
        await eventually(
            lambda: (
                status() == {"phase": "Running", "scheduled": 2, "running": 2, "succeeded": 0, "failed": 0}
            )
        )


async def test_a_status_that_is_refused_keeps_nobody_elses_from_being_written(
    api, running, make_pod, eventually, monkeypatch
):
    patch = api.patch

    async def refusing(resource, namespace, name, body, **options):
        if (resource, name) == (POD_GROUPS, "a"):
            raise APIError(422, "Invalid", "its spec breaks a rule by now")
        return await patch(resource, namespace, name, body, **options)

    monkeypatch.setattr(api, "patch", refusing)
    async with running(api, **ON):
        for name in ("a", "b"):
            api.put(PODS, gated(make_pod(f"{name}0", cpu="100"), name))
            api.put(POD_GROUPS, group(name, 1))
        await eventually(lambda: api.get_object(POD_GROUPS, "default", "b").get("status"))


async def test_who_comes_later_is_an_ordinary_pod(api, running, make_pod, eventually):
    async with running(api, **ON):
        for number in range(2):
            api.put(PODS, gated(make_pod(f"g{number}"), "gang", 2))
        await eventually(lambda: len(let_go(api)) == 2)
        api.put(PODS, gated(make_pod("huge", cpu="100"), "gang", 2))
        await eventually(lambda: "huge" in let_go(api))
        assert not api.get_object(PODS, "default", "huge")["status"].get("nominatedNodeName")


async def test_those_of_a_group_start_together(api, running, make_pod, eventually):
    groups = {keys.GANG_GROUPS_ANNOTATION: '["default/a", "default/b"]'}
    async with running(api, **ON):
        api.put(PODS, gated(make_pod("a0"), "a", 1, **groups))
        await eventually(lambda: "gang default/b of its group has no pods" in "".join(said(api)))
        assert not let_go(api)
        api.put(PODS, gated(make_pod("b0", cpu="3"), "b", 1, **groups))
        await eventually(lambda: let_go(api) == {"a0", "b0"})


async def test_one_that_names_anothers_gang_as_of_its_group_holds_up_itself_alone(
    api, running, make_pod, eventually
):
    groups = {keys.GANG_GROUPS_ANNOTATION: '["default/theirs"]'}
    async with running(api, **ON):
        forged = gated(make_pod("x0"), "x", 1, **groups)
        forged["metadata"]["namespace"] = "another"
        api.put(PODS, forged)
        await eventually(lambda: "gang default/theirs of its group has no pods" in "".join(said(api)))
        for number in range(2):
            api.put(PODS, gated(make_pod(f"t{number}"), "theirs", 2))
        await eventually(lambda: let_go(api) == {"t0", "t1"})


async def test_a_pod_whose_annotations_make_no_sense_is_counted_all_the_same(
    api, running, make_pod, eventually
):
    """Else what it uses would be somebody else's, too."""
    async with running(api, **ON) as program:
        pod = make_pod("x", cpu="3", node="n1")
        pod["metadata"]["annotations"] = {
            keys.GANG_NAME_ANNOTATION: "x",
            keys.GANG_MIN_ANNOTATION: "9" * 5000,
        }
        api.put(PODS, pod)
        api.put(PODS, gated(make_pod("y", cpu="3"), "y", 1))
        await eventually(lambda: let_go(api, "y") == {"y"})
        assert api.get_object(PODS, "default", "y")["status"]["nominatedNodeName"] == "n2"
        assert 'objects_skipped_total{resource="pods"}' not in scrape(program)


async def test_other_gates_are_waited_for_and_stay(api, running, make_pod, eventually):
    async with running(api, **ON):
        pod = gated(make_pod("g0"), "gang", 1)
        pod["spec"]["schedulingGates"].append({"name": "theirs"})
        api.put(PODS, pod)
        await eventually(lambda: "schedulingGate theirs" in "".join(said(api)))
        assert not let_go(api)


@pytest.mark.parametrize(
    "config", [{"quotas": Quotas(enabled=True, gangs=False)}, {"quotas": Quotas()}, {"mode": Mode.OBSERVE}]
)
async def test_where_gangs_are_off_no_gate_stays(api, running, make_pod, eventually, config):
    async with running(api, **{**ON, **config}):
        api.put(PODS, gated(make_pod("g0"), "gang", 5))
        await eventually(lambda: let_go(api) == {"g0"})
        assert ("patch", PODS, "g0") in api.calls


async def test_pods_of_other_schedulers_are_let_go(api, running, make_pod, eventually):
    async with running(api, **ON):
        api.put(PODS, gated(make_pod("g0", scheduler="theirs"), "gang", 5))
        await eventually(lambda: let_go(api) == {"g0"})


async def test_no_gate_is_lifted_where_one_cannot_be_nominated(api, running, make_pod, eventually):
    gone = NotFound(404, "NotFound", "gone")
    async with running(api, **ON) as program:
        api.fail("patch", gone, resource=PODS, times=1, after=2)
        for number in range(4):
            api.put(PODS, gated(make_pod(f"g{number}"), "gang", 4))
        await eventually(lambda: 'j10ce_gangs_total{outcome="failed"} 1.0' in scrape(program))
        assert not let_go(api)
        await eventually(lambda: not nominated(api))
        await eventually(lambda: len(let_go(api)) == 4)


def scrape(program: Any) -> str:
    return str(program.metrics.exposition().decode())


def nominated(api: MemoryAPI) -> list[str]:
    return [p["metadata"]["name"] for p in api.objects(PODS) if p["status"].get("nominatedNodeName")]


async def test_a_gate_that_could_not_be_lifted_is_lifted_again(api, running, make_pod, eventually):
    api.fail("patch", NotTaken("busy"), resource=PODS, times=3, after=2)
    async with running(api, **ON):
        for number in range(2):
            api.put(PODS, gated(make_pod(f"g{number}"), "gang", 2))
        await eventually(lambda: len(let_go(api)) == 2)


async def test_after_a_restart_a_gang_that_began_comes_first_and_to_its_places(
    api, running, make_pod, eventually
):
    """The earlier process ended when it had nominated all, and lifted one gate."""
    for number in range(4):
        pod = gated(make_pod(f"g{number}"), "gang", 4)
        pod["status"]["nominatedNodeName"] = "n1" if number < 2 else "n2"
        if not number:
            pod["spec"]["schedulingGates"] = []
        api.put(PODS, pod)
    for number in range(4):
        api.put(PODS, gated(make_pod(f"old{number}", priority=5), "old", 4))
    async with running(api, **ON):
        await eventually(lambda: len(let_go(api, "g")) == 4)
        await eventually(lambda: bool(said(api)))
        assert not let_go(api, "old")
        places = [api.get_object(PODS, "default", f"g{n}")["status"]["nominatedNodeName"] for n in range(4)]
        assert places == ["n1", "n1", "n2", "n2"]


async def test_a_place_is_kept_no_longer_than_the_gang_says(api, running, make_pod, eventually):
    short = {keys.GANG_WAITING_ANNOTATION: "200ms"}
    async with running(api, **ON):
        for number in range(6):
            api.put(PODS, gated(make_pod(f"g{number}"), "gang", 6, **short))
        await eventually(lambda: len(let_go(api)) == 6)
        bind(api, "g0")
        await eventually(lambda: len(said(api, "GangIncomplete")) == 1)
        assert "5 of its pods were not bound within 0.2 seconds" in said(api, "GangIncomplete")[0]


async def test_nor_for_one_whose_gate_cannot_be_lifted(api, running, make_pod, eventually, monkeypatch):
    """Somebody's admission is against it: the others' places are free for others all the same."""
    patch, short = api.patch, {keys.GANG_WAITING_ANNOTATION: "200ms"}

    async def refused(resource, namespace, name, body, **options):
        if name == "g0" and "spec" in body:
            raise APIError(422, "Invalid", "not this one")
        return await patch(resource, namespace, name, body, **options)

    monkeypatch.setattr(api, "patch", refused)
    async with running(api, **ON):
        for number in range(6):
            api.put(PODS, gated(make_pod(f"g{number}"), "gang", 6, **short))
        await eventually(lambda: len(let_go(api)) == 5)
        await eventually(lambda: len(said(api, "GangIncomplete")) == 1)


async def test_a_place_whose_node_goes_is_another_one(api, running, make_node, make_pod, eventually):
    async with running(api, **ON):
        api.put(PODS, gated(make_pod("g0"), "gang", 1))
        await eventually(lambda: let_go(api) == {"g0"})
        where = api.get_object(PODS, "default", "g0")["status"]["nominatedNodeName"]
        api.remove(NODES, "", where)
        other = {"n1": "n2", "n2": "n1"}[where]
        await eventually(
            lambda: api.get_object(PODS, "default", "g0")["status"]["nominatedNodeName"] == other
        )


async def test_after_a_restart_places_that_were_kept_are_no_obstacle(api, running, make_pod, eventually):
    """The earlier process ended when it had nominated all, and lifted none."""
    api.put(QUOTAS, written("web", "1", "5"))
    for number in range(5):
        pod = of("web", gated(make_pod(f"g{number}"), "gang", 5))
        pod["status"]["nominatedNodeName"] = "n1" if number < 3 else "n2"
        api.put(PODS, pod)
    async with running(api, **ON):
        await eventually(lambda: len(let_go(api)) == 5)


async def test_places_that_are_too_few_by_now_are_given_up(api, running, make_pod, eventually):
    for number in range(4):
        pod = gated(make_pod(f"g{number}"), "gang", 4)
        pod["status"]["nominatedNodeName"] = "n1" if number < 2 else "n2"
        api.put(PODS, pod)
    for number in range(3):
        api.put(PODS, make_pod(f"other{number}", node="n1"))
    async with running(api, **ON):
        await eventually(lambda: not nominated(api))
        assert not let_go(api, "g")


async def test_smaller_ones_start_beside_one_that_waits(api, running, make_pod, eventually):
    async with running(api, **ON):
        for number in range(7):
            api.put(PODS, gated(make_pod(f"large{number}", priority=1), "large", 7))
        await eventually(lambda: bool(said(api)))
        for number in range(2):
            api.put(PODS, gated(make_pod(f"small{number}"), "small", 2))
        await eventually(lambda: len(let_go(api, "small")) == 2)
        assert not let_go(api, "large")


async def test_one_that_has_waited_for_long_is_served_first(api, running, make_pod, eventually):
    """Its patience is over at once; it would fit on empty nodes, and so keeps those behind it back."""
    api.put(PODS, make_pod("there", cpu="2", node="n1"))
    async with running(api, **ON):
        forever = {keys.GANG_WAITING_ANNOTATION: "2s"}
        for number in range(5):
            api.put(PODS, gated(make_pod(f"large{number}", priority=1), "large", 5, **forever))
        await eventually(lambda: bool(said(api)))
        served = "gang default/large has waited for long, and is served first"
        small = 0
        while not any(served in note for note in said(api)):  # as soon as one meets the closed line
            name = f"small{small}"
            api.put(PODS, gated(make_pod(name, cpu="3"), name, 1))
            await eventually(lambda: name in let_go(api) or any(served in note for note in said(api)))  # noqa: B023
            if name in let_go(api):
                api.remove(PODS, "default", name)
            small += 1
        api.remove(PODS, "default", "there")
        await eventually(lambda: len(let_go(api, "large")) == 5)


async def test_many_that_wait_do_not_tell_each_new_reason_at_once(make_pod, make_ledger):
    """Further ones come by turns: the Events of others are not lost behind them."""
    told, now, ledger = [], 1_000.0, make_ledger()
    book = GangBook(lambda: None, lambda _: True)
    events = SimpleNamespace(say=lambda *said: told.append(said[-1]))
    gangs = Gangs(
        GangCalls(MemoryAPI()),
        ledger,
        book,
        Changes(0.01),
        View(),
        events,
        Metrics(),
        clock=lambda: now,
    )

    async def later(seconds: float, least: int) -> int:
        nonlocal now
        now += seconds
        for number in range(60):
            pod = gated(make_pod(f"g{number}"), f"gang{number}", least)
            pod["metadata"]["uid"] = f"uid-{number}"
            raw = msgspec.json.encode(pod)
            book.take(decode.pod(raw), raw)
        await gangs.run_once()
        return len(told)

    assert [await later(0, 2), await later(2, 2)] == [0, 60], "the first reason of each"
    assert [await later(15, 3), await later(15, 4)] == [60, 60]
    assert await later(31, 5) == 120
