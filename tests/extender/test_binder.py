"""Every outcome of the Binding is settled, whoever goes away meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import orjson
import pytest

from adapters.api import PODS, APIError, Conflict, Ended, NotFound, NotTaken, Unreachable
from adapters.kubernetes import decode
from adapters.memory import MemoryAPI
from extender.binder import READS_AT_ONCE, UNKNOWN_SECONDS, Binder
from extender.metrics import Metrics
from extender.wire import BindingArgs
from ledger.decisions import BindDecision
from qos import keys
from qos.cluster.objects import Pod


class Claims:
    """A ledger of claims only: UID -> node and state."""

    def __init__(self, *pods: Pod, **decision: Any) -> None:
        self.pods = {pod.uid: pod for pod in pods}
        self.decision = BindDecision(**decision)
        self.claims: dict[str, tuple[str, str]] = {}

    def known(self, uid: str) -> Pod | None:
        return self.pods.get(uid)

    def bind(self, pod: Pod, node: str, now: float, gone: Collection[str] = ()) -> BindDecision:
        decision = self.decision
        if decision.awaited and all(victim.uid in gone for victim in decision.awaited):
            decision = BindDecision()
        if not decision.refusal:
            self.claims[pod.uid] = node, "binding"
        return decision

    def bound(self, uid: str, node: str) -> None:
        self.claims[uid] = node, "bound"

    def release(self, uid: str) -> None:
        self.claims.pop(uid, None)


class Rig:
    """A pod named web, an API server, and a binder between them."""

    def __init__(
        self, api: MemoryAPI, clock: Any, eventually: Any, pod: dict[str, Any], **decision: Any
    ) -> None:
        self.api, self.clock, self.metrics = api, clock, Metrics()
        self.pod = decode.pod(orjson.dumps(api.put(PODS, pod)))
        self.ledger = Claims(self.pod, **decision)
        self.binder = self.make(deadline=60.0)
        self.eventually = eventually

    def make(self, deadline: float) -> Binder:
        return Binder(
            self.api,
            self.ledger,
            self.metrics,
            identity="extender-1",
            deadline=deadline,
            clock=self.clock,
            sleep=self.sleep,
        )

    async def sleep(self, seconds: float) -> None:
        """Waiting takes no time, and lets others run."""
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    def args(self, node: str = "n1", uid: str = "") -> BindingArgs:
        return BindingArgs(self.pod.name, self.pod.namespace, uid or self.pod.uid, node)

    @property
    def claim(self) -> tuple[str, str] | None:
        return self.ledger.claims.get(self.pod.uid)

    def stored(self) -> dict[str, Any]:
        return self.api.get_object(PODS, "default", "web")

    async def settled(self) -> None:
        await self.eventually(lambda: not self.binder.unsettled)


@pytest.fixture
def rig(api, clock, eventually, make_pod) -> Rig:
    return Rig(api, clock, eventually, make_pod("web"))


async def test_t03_the_assignment_is_written_with_the_node_name(api, clock, eventually, make_pod):
    rig = Rig(api, clock, eventually, make_pod("web"), policy="default/checkout", slot=True)
    assert await rig.binder.bind(rig.args()) == ""
    assert rig.claim == ("n1", "bound")
    stored = rig.stored()
    assert stored["spec"]["nodeName"] == "n1"
    assert stored["metadata"]["annotations"] == {
        keys.BOUND_BY_ANNOTATION: "extender-1",
        keys.POLICY_ANNOTATION: "default/checkout",
    }
    assert api.bindings[0].uid == rig.pod.uid, "the UID is a precondition"


async def test_a_pod_beyond_the_slots_is_said_to_fill_none(api, clock, eventually, make_pod):
    rig = Rig(api, clock, eventually, make_pod("web"), policy="default/checkout", slot=False)
    await rig.binder.bind(rig.args())
    assert rig.stored()["metadata"]["annotations"][keys.POLICY_ANNOTATION] == ""


async def test_pods_that_own_no_slot_carry_only_who_bound_them(rig):
    await rig.binder.bind(rig.args())
    assert rig.stored()["metadata"]["annotations"] == {keys.BOUND_BY_ANNOTATION: "extender-1"}


async def test_t01_a_refused_bind_claims_nothing_and_calls_nobody(api, clock, eventually, make_pod):
    rig = Rig(api, clock, eventually, make_pod("web"), refusal="holds of default/checkout are in the way")
    assert await rig.binder.bind(rig.args()) == "holds of default/checkout are in the way"
    assert rig.claim is None
    assert not api.bindings


@pytest.mark.parametrize(
    ("fate", "binds"), [("runs", False), ("ended", True), ("gone", True), ("made again", True), ("?", False)]
)
async def test_t06_victims_are_read_before_a_pod_takes_their_room(
    api, clock, eventually, make_pod, fate, binds
):
    victim = decode.pod(orjson.dumps(api.put(PODS, make_pod("victim", node="n1"))))
    rig = Rig(api, clock, eventually, make_pod("web"), refusal="they still run", awaited=(victim,))
    if fate == "ended":
        api.put(PODS, api.get_object(PODS, "default", "victim") | {"status": {"phase": "Succeeded"}})
    elif fate == "?":
        api.fail("get")
    elif fate != "runs":
        api.remove(PODS, "default", "victim")
    if fate == "made again":
        api.put(PODS, make_pod("victim", node="n1"))
    assert await rig.binder.bind(rig.args()) == ("" if binds else "they still run")
    assert rig.claim == (("n1", "bound") if binds else None)


async def test_t01_nothing_is_awaited_between_check_and_claim(rig):
    """Two binds that start together: each decides in one step, before any of the two makes its call."""
    order: list[str] = []
    decide, call = rig.ledger.bind, rig.api.bind
    rig.ledger.bind = lambda *args: (order.append("claim"), decide(*args))[1]

    async def bind(*args: Any) -> None:
        order.append("call")
        await asyncio.sleep(0)
        order.append("answer")
        await call(*args)

    rig.api.bind = bind
    await asyncio.gather(rig.binder.bind(rig.args()), rig.binder.bind(rig.args()))
    assert order == ["claim", "call", "answer"], "the second joined the first: one pod, one attempt"


async def test_t04_conflict_on_the_same_node_is_success(rig):
    await rig.api.bind("default", "web", rig.pod.uid, "n1", {})
    assert await rig.binder.bind(rig.args()) == ""
    assert rig.claim == ("n1", "bound")


async def test_t04_conflict_on_another_node_is_an_error_and_moves_the_claim(rig):
    await rig.api.bind("default", "web", rig.pod.uid, "n2", {})
    assert await rig.binder.bind(rig.args()) == "pod default/web is bound to node n2"
    assert rig.claim == ("n2", "bound")


async def test_t04_another_uid_releases(rig, make_pod):
    rig.api.remove(PODS, "default", "web")
    rig.api.put(PODS, make_pod("web"))
    assert "made again" in await rig.binder.bind(rig.args())
    assert rig.claim is None


async def test_t04_a_deleted_pod_releases(rig):
    rig.api.remove(PODS, "default", "web")
    assert "was not bound" in await rig.binder.bind(rig.args())
    assert rig.claim is None


@pytest.mark.parametrize(
    "error",
    [
        APIError(403, "Forbidden", "no"),
        APIError(422, "Invalid", "no"),
        NotFound(404, "NotFound", "node gone"),
    ],
)
async def test_t04_an_answer_that_wrote_nothing_releases(rig, error):
    rig.api.fail("bind", error)
    assert str(error) in await rig.binder.bind(rig.args())
    assert rig.claim is None
    assert not rig.api.bindings


async def test_t04_conflict_while_the_pod_is_unbound_releases(rig):
    rig.api.fail("bind", Conflict(409, "Conflict", "try again"))
    assert "try again" in await rig.binder.bind(rig.args())
    assert rig.claim is None


async def test_t04_no_answer_but_bound_is_success(rig):
    rig.api.fail("bind", applied=True)
    assert await rig.binder.bind(rig.args()) == ""
    assert rig.claim == ("n1", "bound")


async def test_t04_no_answer_keeps_the_claim_until_a_read_settles_it(rig):
    rig.api.fail("bind", applied=True)
    rig.api.fail("get", times=3)
    assert "not known yet" in await rig.binder.bind(rig.args())
    assert rig.claim == ("n1", "binding"), "an error was answered, the claim stays"
    await rig.settled()
    assert rig.claim == ("n1", "bound")


async def test_t04_a_binding_that_never_arrived_is_released_in_the_end(rig):
    rig.api.fail("bind")
    began = rig.clock()
    assert "not known yet" in await rig.binder.bind(rig.args())
    assert rig.claim == ("n1", "binding")
    await rig.settled()
    assert rig.claim is None
    assert rig.clock() - began >= UNKNOWN_SECONDS, "it could still have landed until then"


@pytest.mark.parametrize("read", [True, False])
async def test_t04_a_request_that_was_not_taken_releases_at_once(rig, read):
    rig.api.fail("bind", NotTaken("429 TooManyRequests: busy"))
    if not read:
        rig.api.fail("get", times=99)
    assert "busy" in await rig.binder.bind(rig.args())
    assert rig.claim is None
    assert not rig.binder.unsettled


async def test_t04_after_the_server_s_own_error_a_change_of_the_pod_settles_at_once(rig):
    rig.api.fail("bind", Ended("500 InternalError: etcdserver: leader changed"))
    before = rig.stored()["metadata"]["resourceVersion"]
    assert "leader changed" in await rig.binder.bind(rig.args())
    assert rig.stored()["metadata"]["resourceVersion"] != before, "what is on its way to the store fails now"
    assert rig.claim is None
    assert not rig.binder.unsettled
    assert await rig.binder.bind(rig.args("n2")) == ""


async def test_t04_after_the_server_s_own_error_a_binding_that_took_effect_is_success(rig):
    rig.api.fail("bind", Ended("500 InternalError: etcdserver: request timed out"), applied=True)
    assert await rig.binder.bind(rig.args()) == ""
    assert rig.claim == ("n1", "bound")


async def test_t04_after_the_server_s_own_error_nothing_is_settled_while_the_pod_cannot_be_changed(rig):
    rig.api.fail("bind", Ended("500 InternalError: no leader"))
    rig.api.fail("patch")
    assert "not known yet" in await rig.binder.bind(rig.args())
    assert rig.claim == ("n1", "binding")
    await rig.settled()


async def test_t04_an_error_of_the_second_attempt_does_not_settle_the_first(rig):
    rig.api.fail("bind")
    assert "not known yet" in await rig.binder.bind(rig.args())
    rig.api.fail("bind", Ended("500 InternalError: no leader"))
    assert "not known yet" in await rig.binder.bind(rig.args())
    assert rig.claim == ("n1", "binding"), "its request may still be at work, and try again"
    await rig.settled()


async def test_t04_a_new_attempt_settles_the_one_in_doubt(rig):
    rig.api.fail("bind")
    await rig.binder.bind(rig.args("n1"))
    assert rig.binder.unsettled == 1
    assert rig.binder.settles(rig.pod.uid)
    assert await rig.binder.bind(rig.args("n2")) == ""
    await rig.settled()
    assert not rig.binder.settles(rig.pod.uid)
    assert rig.claim == ("n2", "bound")


async def test_t04_a_refused_attempt_leaves_the_one_in_doubt_to_be_settled(rig):
    rig.api.fail("bind", applied=True)
    rig.api.fail("get", times=2)
    await rig.binder.bind(rig.args("n1"))
    rig.ledger.decision = BindDecision(refusal="holds are in the way")
    assert await rig.binder.bind(rig.args("n2")) == "holds are in the way"
    await rig.settled()
    assert rig.claim == ("n1", "bound")


@pytest.mark.parametrize("error", [APIError(403, "Forbidden", "no"), Conflict(409, "Conflict", "try again")])
async def test_t04_an_attempt_that_wrote_nothing_does_not_settle_the_one_in_doubt(rig, error):
    rig.api.fail("bind")
    assert "not known yet" in await rig.binder.bind(rig.args())
    rig.api.fail("bind", error)
    assert "not known yet" in await rig.binder.bind(rig.args())
    assert rig.claim == ("n1", "binding"), "the first may still land"
    await rig.settled()
    assert rig.claim is None


async def test_reads_of_bindings_in_doubt_are_bounded_however_many_there_are(
    api, clock, eventually, make_pod
):
    """The API server answers no Binding, and no read for a while: 200 pods in doubt are not 200 readers."""
    rig = Rig(api, clock, eventually, make_pod("web"))
    pods = [decode.pod(orjson.dumps(api.put(PODS, make_pod(f"web{number}")))) for number in range(200)]
    rig.ledger.pods |= {pod.uid: pod for pod in pods}
    api.fail("bind", times=100, applied=True)
    api.fail("bind", times=100)
    api.fail("get", times=300)
    reading, reads, most, read = 0, 0, 0, api.get

    async def get(*args: Any) -> bytes:
        nonlocal reading, most, reads
        reading, reads = reading + 1, reads + 1
        most = max(most, reading)
        await asyncio.sleep(0)
        reading -= 1
        return await read(*args)

    api.get = get
    await asyncio.gather(*[rig.binder.bind(BindingArgs(p.name, p.namespace, p.uid, "n1")) for p in pods])
    assert rig.binder.unsettled == 200
    await rig.settled()
    assert most <= READS_AT_ONCE
    assert {*rig.ledger.claims.values()} == {("n1", "bound")}
    assert len(rig.ledger.claims) == 100, "the others were released once they could no longer land"
    samples = [one for family in rig.metrics.registry.collect() for one in family.samples]
    counted = {one.labels["outcome"]: one.value for one in samples if one.name == "j10ce_bind_reads_total"}
    assert sum(counted.values()) == reads
    assert (counted["failed"], counted["settled"]) == (300, 100)


async def test_an_attempt_does_not_wait_for_reads_that_hang(api, clock, eventually, make_pod):
    """Else the pod could not be sent elsewhere until all who came before it were read."""
    rig = Rig(api, clock, eventually, make_pod("web"))
    pods = [decode.pod(orjson.dumps(api.put(PODS, make_pod(f"web{number}")))) for number in range(20)]
    rig.ledger.pods |= {pod.uid: pod for pod in pods}
    api.fail("bind", times=20)
    gate = api.hang("get", times=1000)
    binds = [
        asyncio.create_task(rig.binder.bind(BindingArgs(p.name, p.namespace, p.uid, "n1"))) for p in pods
    ]
    await eventually(lambda: sum(bind.done() for bind in binds) == 20 - READS_AT_ONCE)
    assert await rig.binder.bind(BindingArgs(pods[-1].name, "default", pods[-1].uid, "n2")) == ""
    gate.set()
    await asyncio.gather(*binds)
    await rig.settled()


async def test_t04_a_read_whose_turn_comes_when_it_is_late_is_the_last_one(api, clock, eventually, make_pod):
    """After a long outage each pod in doubt keeps its room for one round of reads, not for two."""
    rig = Rig(api, clock, eventually, make_pod("web"))
    pods = [
        decode.pod(orjson.dumps(api.put(PODS, make_pod(f"web{number}"))))
        for number in range(READS_AT_ONCE + 1)
    ]
    rig.ledger.pods |= {pod.uid: pod for pod in pods}
    api.fail("bind", times=len(pods))
    gate = api.hang("get", times=READS_AT_ONCE)
    asked, read, began = [], api.get, clock()

    async def get(resource: Any, namespace: str, name: str) -> bytes:
        asked.append(name)
        return await read(resource, namespace, name)

    api.get = get
    binds = [
        asyncio.create_task(rig.binder.bind(BindingArgs(p.name, p.namespace, p.uid, "n1"))) for p in pods
    ]
    await eventually(binds[-1].done)
    await eventually(lambda: clock() > began)  # its pause is over: it waits for its turn
    await asyncio.sleep(0)
    clock.advance(UNKNOWN_SECONDS)
    gate.set()
    await asyncio.gather(*binds)
    await rig.settled()
    assert asked.count(pods[-1].name) == 1
    assert rig.ledger.claims == {}


async def test_t04_past_the_deadline_it_answers_error_and_goes_on(rig):
    gate = rig.api.hang("bind")
    rig.binder = rig.make(deadline=0.01)
    assert "deadline" in await rig.binder.bind(rig.args())
    assert rig.claim == ("n1", "binding")
    assert "to node n1 is under way" in await rig.binder.bind(rig.args("n2"))
    gate.set()
    await rig.binder.drain()
    assert rig.claim == ("n1", "bound")
    assert rig.stored()["spec"]["nodeName"] == "n1"


async def test_t04_a_client_that_goes_away_changes_nothing(rig):
    gate = rig.api.hang("bind")
    request = asyncio.create_task(rig.binder.bind(rig.args()))
    await rig.eventually(lambda: rig.claim)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    gate.set()
    await rig.binder.drain()
    assert rig.claim == ("n1", "bound")


async def test_t04_a_bug_answers_error_and_keeps_the_claim(rig):
    rig.api.fail("bind", RuntimeError("a bug"))
    assert "a bug" in await rig.binder.bind(rig.args())
    assert rig.claim == ("n1", "binding"), "whether it was bound is not known; expiry looks it up"


async def test_t06_a_pod_the_watch_has_not_shown_is_read(rig):
    rig.ledger.pods.clear()
    assert await rig.binder.bind(rig.args()) == ""
    assert rig.claim == ("n1", "bound")


@pytest.mark.parametrize(
    ("error", "words"),
    [(NotFound(404, "NotFound", "x"), "does not exist"), (Unreachable("cut"), "cannot be read")],
)
async def test_t06_an_unknown_pod_that_cannot_be_read_is_an_error(rig, error, words):
    rig.ledger.pods.clear()
    rig.api.fail("get", error)
    assert words in await rig.binder.bind(rig.args())
    assert rig.claim is None


@pytest.mark.parametrize(("uid", "error"), [("", NotFound(404, "NotFound", "x")), ("other", None)])
async def test_a_pod_that_is_gone_is_in_flight_no_more(rig, uid, error):
    rig.ledger.pods.clear()
    if error is not None:
        rig.api.fail("get", error)
    args = rig.args(uid=uid) if uid else rig.args()
    rig.ledger.claims[args.pod_uid] = "n1", "binding"
    assert await rig.binder.bind(args)
    assert not rig.ledger.claims


async def test_t06_an_unknown_pod_of_another_uid_is_an_error(rig):
    rig.ledger.pods.clear()
    assert "another UID" in await rig.binder.bind(rig.args(uid="other"))
    assert not rig.api.bindings


async def test_draining_waits_for_what_is_under_way(rig):
    gate = rig.api.hang("bind")
    request = asyncio.create_task(rig.binder.bind(rig.args()))
    await rig.eventually(lambda: rig.claim)
    draining = asyncio.create_task(rig.binder.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    gate.set()
    await draining
    assert await request == ""
