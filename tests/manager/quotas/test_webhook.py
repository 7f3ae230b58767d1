"""The webhook on an API server in memory: what it asks there, what it is told of, and how it is served."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from adapters.api import PODS, QUOTAS, SECRETS, VALIDATING_WEBHOOKS, APIError, Unreachable
from adapters.memory import MemoryAPI
from adapters.serving.addresses import listen
from adapters.webhooks.server import application
from lab import ports
from manager.config import ManagerConfig, Webhook
from manager.program import Program
from manager.quotas.hooks import NAME, QUOTA_PATH
from manager.quotas.webhook import QuotaWebhook
from qos import keys
from tests.manager.quotas.test_reviews import Object, asked, quota
from tests.waiting import running

WEB = quota("web", "20", is_parent=True)
ANY_PORT = Webhook(address="127.0.0.1:0")


@pytest.fixture
def counted() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def hook(api: MemoryAPI, fake_time: Any, counted: list[tuple[str, str]]) -> QuotaWebhook:
    return QuotaWebhook(
        api,
        Webhook(),
        "j10ce-system",
        reviewed=lambda *one: counted.append(one),
        skipped=lambda _: None,
        stale_after=60,
        clock=fake_time,
    )


def told(answer: bytes) -> str:
    response = json.loads(answer)["response"]
    return "" if response["allowed"] else str(response["status"]["message"])


async def test_it_decides_by_what_the_api_server_has_now(api: MemoryAPI, hook: QuotaWebhook) -> None:
    """No watch runs here: the child of a parent that has just been made passes."""
    assert "no quota that can have children" in told(
        await hook.quota(asked("CREATE", quota("shop", parent="web")))
    )
    api.put(QUOTAS, WEB)
    assert told(await hook.quota(asked("CREATE", quota("shop", parent="web")))) == ""
    api.put(QUOTAS, quota("shop", parent="web"))
    old = api.get_object(QUOTAS, "teams", "web")
    assert "it has 1 child" in told(await hook.quota(asked("DELETE", None, old)))
    api.remove(QUOTAS, "teams", "shop")
    assert told(await hook.quota(asked("DELETE", None, old))) == ""


async def test_of_two_at_once_that_do_not_go_together_one_passes(
    api: MemoryAPI, hook: QuotaWebhook, counted: list[tuple[str, str]]
) -> None:
    api.put(QUOTAS, WEB)
    both = [asked("CREATE", quota(name, "15", "web")) for name in ("shop", "blog")]
    answers = sorted(told(each) for each in await asyncio.gather(*map(hook.quota, both)))
    assert answers[0] == ""
    assert "are 30 together, more than its min, 20" in answers[1]
    assert sorted(counted) == [("elasticquotas", "allowed"), ("elasticquotas", "refused")]


async def test_a_dry_run_stands_in_nobodys_way(api: MemoryAPI, hook: QuotaWebhook) -> None:
    api.put(QUOTAS, WEB)
    assert told(await hook.quota(asked("CREATE", quota("shop", "15", "web"), dryRun=True))) == ""
    assert told(await hook.quota(asked("CREATE", quota("blog", "15", "web")))) == ""


def pod(name: str, namespace: str, label: str = "", phase: str = "Running") -> Object:
    labels = {keys.QUOTA_NAME_LABEL: label} if label else {}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return {"metadata": meta, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": phase}}


async def test_pods_are_those_that_name_it_and_those_of_its_namespaces(
    api: MemoryAPI, hook: QuotaWebhook
) -> None:
    one = quota("shop", annotations={keys.QUOTA_NAMESPACES_ANNOTATION: '["run"]'})
    api.put(QUOTAS, one)
    ended, others = pod("ended", "a", "shop", "Succeeded"), pod("others", "run", "blog")
    for each in (pod("x", "a", "shop"), pod("y", "run"), ended, others, pod("z", "elsewhere")):
        api.put(PODS, each)
    api.put(QUOTAS, quota("blog"))
    old = api.get_object(QUOTAS, "teams", "shop")
    assert "it has 2 pods (a/x, run/y)" in told(await hook.quota(asked("DELETE", None, old)))
    parent = quota("shop", is_parent=True, annotations=old["metadata"]["annotations"])
    assert "it has 2 pods (a/x, run/y)" in told(await hook.quota(asked("UPDATE", parent, old)))
    for namespace, name in (("a", "x"), ("run", "y")):
        api.remove(PODS, namespace, name)
    assert told(await hook.quota(asked("DELETE", None, old))) == ""


async def test_who_deletes_one_of_many_namespaces_keeps_nobody_waiting(
    api: MemoryAPI, hook: QuotaWebhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pods are listed meanwhile, as slowly as the API server answers."""
    listing, never = asyncio.Event(), asyncio.Event()

    async def slow(**_: str) -> list[Any]:
        listing.set()
        await never.wait()
        return []

    monkeypatch.setattr(hook, "_pods", slow)
    api.put(QUOTAS, quota("shop"))
    deletion = asked("DELETE", None, api.get_object(QUOTAS, "teams", "shop"))
    slowly = asyncio.create_task(hook.quota(deletion))
    await listing.wait()
    async with asyncio.timeout(7):
        assert told(await hook.quota(asked("CREATE", quota("blog")))) == ""
    never.set()
    assert told(await slowly) == ""


async def test_a_pod_is_refused_while_its_quota_still_is_a_parent(
    api: MemoryAPI, hook: QuotaWebhook, eventually: Any
) -> None:
    api.put(QUOTAS, WEB)
    body = json.dumps(
        {"request": {"uid": "u1", "namespace": "run", "object": pod("a", "run", "web")}}
    ).encode()
    async with running(hook.known.watch.run()):
        await eventually(hook.known.watch.synced.is_set)
    assert hook.known.parents().names == ("web",)
    assert "its quota, ElasticQuota teams/web, is a parent" in told(await hook.pod(body))
    api.put(QUOTAS, quota("web", "20"))  # the watch has ended: it knows nothing of it
    assert told(await hook.pod(body)) == ""
    api.remove(QUOTAS, "teams", "web")
    assert told(await hook.pod(body)) == ""


async def test_without_an_answer_of_the_api_server_there_is_none(api: MemoryAPI, hook: QuotaWebhook) -> None:
    """Then failurePolicy says what becomes of it."""
    api.fail("list_page", Unreachable("away"))
    sent: list[Any] = []

    async def receive() -> Object:
        return {"type": "http.request", "body": asked("CREATE", WEB)}

    async def send(message: Any) -> None:
        sent.append(message)

    await application({QUOTA_PATH: hook.quota})({"path": QUOTA_PATH, "method": "POST"}, receive, send)
    assert sent[0]["status"] == 503
    assert sent[1]["body"] == b"away"


@contextlib.asynccontextmanager
async def at_work(api: MemoryAPI, **more: Any) -> AsyncIterator[None]:
    """A manager, which is ended in order."""
    stop, program = asyncio.Event(), Program(ManagerConfig(identity="m1", **more), api)
    task = asyncio.create_task(program.run(stop, listen("127.0.0.1:0")))
    try:
        yield
    finally:
        stop.set()
        await task


async def test_the_manager_serves_it_and_tells_the_api_server(tmp_path: Any, eventually: Any) -> None:
    api = MemoryAPI()
    (port,) = ports.reserve(tmp_path, 1)
    place = Webhook(address=f"127.0.0.1:{port}", url=f"https://127.0.0.1:{port}/")
    async with at_work(api, quotas=True, webhook=place):
        await eventually(lambda: api.objects(VALIDATING_WEBHOOKS))
        (hook,) = api.objects(VALIDATING_WEBHOOKS)[0]["webhooks"]
        client = hook["clientConfig"]
        assert client["url"] == f"https://127.0.0.1:{port}/quotas"
        trusted = ssl.create_default_context(cadata=b64decode(client["caBundle"]).decode())
        async with httpx.AsyncClient(verify=trusted) as http:
            answer = await http.post(client["url"], content=asked("CREATE", WEB))
        assert told(answer.content) == ""
        api.put(QUOTAS, WEB)
        await eventually(lambda: len(api.objects(VALIDATING_WEBHOOKS)[0]["webhooks"]) == 2)


async def test_without_the_certificate_that_all_replicas_have_nobody_is_sent_here(eventually: Any) -> None:
    api = MemoryAPI()
    api.fail("get", APIError(403, "Forbidden", "no"), resource=SECRETS, times=1000)
    opened = listen("127.0.0.1:0")
    url = f"http://127.0.0.1:{opened.getsockname()[1]}/readyz"
    stop, program = asyncio.Event(), Program(ManagerConfig(identity="m1", quotas=True, webhook=ANY_PORT), api)
    task = asyncio.create_task(program.run(stop, opened))
    await eventually(lambda: api.calls.count(("get", SECRETS, NAME)))
    async with httpx.AsyncClient() as http:
        assert (await http.get(url)).json() == {"status": "not listed yet: webhook"}
    stop.set()
    await task
    assert not api.objects(VALIDATING_WEBHOOKS)


async def test_switched_off_it_is_asked_no_more(eventually: Any) -> None:
    """It fails closed: nobody could change a quota."""
    api = MemoryAPI()
    api.put(VALIDATING_WEBHOOKS, {"metadata": {"name": NAME}, "webhooks": [{"name": "quotas.j10ce.io"}]})
    async with at_work(api):
        await eventually(lambda: api.objects(VALIDATING_WEBHOOKS)[0]["webhooks"] == [])
