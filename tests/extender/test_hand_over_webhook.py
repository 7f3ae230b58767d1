"""The webhook that gates owners: where the API server asks it, and whom it gates; who is raised meanwhile."""

from __future__ import annotations

import asyncio
import base64

import orjson

from adapters.api import (
    LEASES,
    NODES,
    POLICIES,
    PRIORITY_CLASSES,
    WEBHOOKS,
    APIError,
)
from adapters.webhooks.server import application
from extender import priority_classes
from extender.config import Placeholders, Webhook
from extender.gate import PATH, Gate
from qos import keys
from tests.extender.placeholder_cluster import (
    condition,
    ours,
)


async def test_what_owners_are_raised_to_is_said_once_its_class_is_there(
    api, keeping, make_node, make_policy, eventually, monkeypatch
):
    """The API server would refuse owners of a class that is not there."""
    monkeypatch.setattr(priority_classes, "AGAIN_SECONDS", 0.5)
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "j10ce-owner-1"}, "value": 7})
    hook = Webhook(address="127.0.0.1:0", url="https://127.0.0.1:1")
    async with keeping(placeholders=Placeholders(webhook=hook)):
        await eventually(lambda: condition(api, keys.GUARDED)[0] == "True")
        assert raised_to(api) is None  # somebody made one, with another value
        api.remove(PRIORITY_CLASSES, "", "j10ce-owner-1")
        await eventually(lambda: raised_to(api) == 1)
        made = api.get_object(PRIORITY_CLASSES, "", "j10ce-owner-1")
        assert (made["value"], made["preemptionPolicy"]) == (1, "PreemptLowerPriority")
        api.remove(PRIORITY_CLASSES, "", "j10ce-owner-1")
        await eventually(lambda: raised_to(api) == 1 and api.objects(PRIORITY_CLASSES))
        api.put(POLICIES, make_policy(count=1, suspend=True))
        await eventually(lambda: raised_to(api) is None)


async def test_without_a_webhook_that_takes_them_back_owners_are_not_raised(
    api, keeping, make_node, make_policy, eventually
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "j10ce-owner-1"}, "value": 1})
    async with keeping():
        await eventually(lambda: condition(api, keys.GUARDED)[0] == "True")
        assert raised_to(api) is None


async def test_where_the_webhook_is_refused_owners_are_not_raised(
    api, keeping, make_node, make_policy, eventually
):
    """Nobody would take them back, while we are there."""
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "j10ce-owner-1"}, "value": 1})
    api.fail("patch", APIError(403, "Forbidden", "no"), resource=WEBHOOKS, times=1000)
    hook = Webhook(address="127.0.0.1:0", url="https://127.0.0.1:1")
    async with keeping(placeholders=Placeholders(webhook=hook)):
        await eventually(lambda: condition(api, keys.GUARDED)[0] == "True")
        await eventually(lambda: raised_to(api) is None)
        await asyncio.sleep(1.0)
        assert raised_to(api) is None


def raised_to(api) -> int | None:
    return api.get_object(POLICIES, "default", "checkout").get("status", {}).get("ownerPriority")


async def test_the_webhook_is_registered_for_namespaces_with_policies(
    api, keeping, make_node, make_policy, eventually
):
    hook = Webhook(address="127.0.0.1:0", url="https://127.0.0.1:1")
    async with keeping(placeholders=Placeholders(webhook=hook)):
        api.put(NODES, make_node("n1"))
        api.put(POLICIES, make_policy())
        await eventually(lambda: registered(api) == ["default"])
        (one,) = api.objects(WEBHOOKS)[0]["webhooks"]
        assert (one["failurePolicy"], one["timeoutSeconds"]) == ("Ignore", 1)
        assert one["clientConfig"]["url"] == "https://127.0.0.1:1/gate"
        assert base64.b64decode(one["clientConfig"]["caBundle"]).startswith(b"-----BEGIN CERTIFICATE")
        api.remove(POLICIES, "default", "checkout")
        await eventually(lambda: registered(api) == [])
    assert api.objects(LEASES)


def registered(api) -> list[str] | None:
    found = api.objects(WEBHOOKS)
    if not found:
        return None
    return [v for h in found[0]["webhooks"] for v in h["namespaceSelector"]["matchExpressions"][0]["values"]]


async def asked(gate: Gate, body: bytes) -> bytes:
    """The webhook's answer over HTTP."""
    sent, parts = [], [body[at : at + 65536] for at in range(0, len(body), 65536)]

    async def receive():
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    await application({PATH: gate.review})({"path": PATH, "method": "POST"}, receive, send)
    assert sent[0]["status"] == 200
    return sent[1]["body"]


async def test_only_owners_whose_policy_can_hand_over_are_gated(
    api, keeping, make_node, make_pod, make_policy, eventually, metrics
):
    api.put(NODES, make_node("n1"))
    api.put(POLICIES, make_policy(count=1, cpu="2"))

    def review_of(pod, namespace="default") -> bytes:
        return orjson.dumps({"request": {"uid": "u", "namespace": namespace, "object": pod}})

    def reviewed(gate: Gate, pod, namespace="default"):
        answer = orjson.loads(gate.review(review_of(pod, namespace)))["response"]
        assert (answer["uid"], answer["allowed"]) == ("u", True)
        return orjson.loads(base64.b64decode(answer["patch"])) if "patch" in answer else None

    async with keeping() as program:
        await eventually(lambda: program.keeper.standing.count(bound=True) == 1)
        there = program.ledger, metrics
        gate, alone = (Gate(*there, kept=lambda _: True, lifts=lambda up=up: up) for up in (True, False))
        owner = make_pod("checkout-1", cpu="2", app="checkout")
        (patch,) = reviewed(gate, owner)
        assert patch == {
            "op": "add",
            "path": "/spec/schedulingGates",
            "value": [{"name": keys.HAND_OVER_GATE}],
        }
        owner["spec"]["schedulingGates"] = [{"name": "example.com/other"}]
        (patch,) = reviewed(gate, owner)
        assert [one["name"] for one in patch["value"]] == ["example.com/other", keys.HAND_OVER_GATE]
        gang = make_pod("checkout-4", cpu="2", app="checkout")
        gang["spec"]["schedulingGates"] = [{"name": keys.GANG_GATE}]
        assert reviewed(gate, gang) is None, "each gate would wait for the other"
        assert reviewed(alone, owner) is None  # nobody would lift it
        assert reviewed(gate, owner, "elsewhere") is None
        assert reviewed(gate, make_pod("batch", cpu="2")) is None
        assert reviewed(gate, make_pod("checkout-2", cpu="2", app="checkout", node="n1")) is None
        mark, note = "j10ce.io~1raised-priority", "j10ce.io~1own-priority"
        removed = [f"/metadata/labels/{mark}", f"/metadata/annotations/{note}"]
        back = [{"op": "remove", "path": path} for path in removed]
        for own, name in (("1000 high", "high"), ("0 ", "")):
            raised = make_pod("checkout-3", cpu="2", app="checkout")
            raised["metadata"]["labels"][keys.RAISED_PRIORITY_LABEL] = "true"
            raised["metadata"]["annotations"] = {keys.OWN_PRIORITY_ANNOTATION: own}
            raised["spec"]["priorityClassName"] = f"j10ce-owner-{int(own.split()[0]) + 1}"
            *patch, gated = reviewed(gate, raised)
            path = "/spec/priorityClassName"
            assert patch == [
                *back,
                {"op": "replace", "path": "/spec/priority", "value": int(own.split()[0])},
                {"op": "replace", "path": path, "value": name} if name else {"op": "remove", "path": path},
            ]
            assert gated["path"] == "/spec/schedulingGates"
            assert reviewed(alone, raised) is None  # nobody hands over: it stays as the API server made it
        unread = raised | {"spec": raised["spec"] | {"resources": {"requests": {"cpu": "x"}}}}
        assert len(reviewed(gate, unread)) == 4  # what we cannot read stays above nobody, too
        raised["spec"]["containers"][0]["args"] = ["<" * 600_000]
        # The API server writes each by six bytes.
        answer = await asked(gate, review_of(raised).replace(b"<", b"\\u003c"))
        assert orjson.loads(answer)["response"]["patchType"] == "JSONPatch"
        del raised["spec"]["containers"][0]["args"]
        for forged in ("2000001000 system-node-critical", "9" * 5000):  # by whom nobody raised
            raised["metadata"]["annotations"] = {keys.OWN_PRIORITY_ANNOTATION: forged}
            assert len(reviewed(gate, raised)) == 1
        raised["metadata"]["annotations"] = {keys.OWN_PRIORITY_ANNOTATION: "0 "}
        raised["metadata"]["labels"][keys.RAISED_PRIORITY_LABEL] = "forged"
        assert len(reviewed(gate, raised)) == 1
        api.put(POLICIES, make_policy(count=0, cpu="2"))
        await eventually(lambda: not ours(api))
        assert reviewed(gate, owner) is None
