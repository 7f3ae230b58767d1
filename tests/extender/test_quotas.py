"""ElasticQuotas from the API server to an answer, around an extender on an API server in memory."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from adapters.api import NODES, PODS, QUOTAS, NotFound
from adapters.configuration import ConfigError
from adapters.memory import MemoryAPI
from extender.config import Quotas, load
from ledger.decisions import Mode
from qos import keys
from qos.cluster.objects import Keeper

ON = {
    "mode": Mode.STRICT,
    "quotas": Quotas(enabled=True),
    "warmup_seconds": 0.0,
    "lease": "kube-system/test",
}


def written(name: str, least: str, most: str, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"namespace": "quotas", "name": name, "annotations": annotations},
        "spec": {"min": {"cpu": least}, "max": {"cpu": most}},
    }


def of(name: str, pod: dict[str, Any]) -> dict[str, Any]:
    pod["metadata"]["labels"][keys.QUOTA_NAME_LABEL] = name
    return pod


class Scheduler:
    """Asks what kube-scheduler asks."""

    def __init__(self, program: Any, client: httpx.AsyncClient) -> None:
        self._url, self._client = f"http://{program.config.verbs_address}", client

    async def filter(self, pod: dict[str, Any]) -> dict[str, Any]:
        answer = await self._client.post(f"{self._url}/filter", json={"Pod": pod, "NodeNames": ["n1", "n2"]})
        found: dict[str, Any] = answer.json()
        return found

    async def bind(self, pod: dict[str, Any], node: str) -> str:
        meta = pod["metadata"]
        named = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        answer = await self._client.post(f"{self._url}/bind", json=named | {"Node": node})
        return str(answer.json()["Error"])


@pytest.fixture
def api(make_node) -> MemoryAPI:
    made = MemoryAPI()
    for name in ("n1", "n2"):
        made.put(NODES, make_node(name))
    return made


async def test_pods_keep_to_their_quota(api, running, make_pod, eventually):
    bound = of("web", make_pod("there", cpu="2", node="n1"))
    api.put(PODS, bound)
    api.put(QUOTAS, written("web", "1", "3"))
    async with running(api, **ON) as program, httpx.AsyncClient(timeout=30) as client:
        ask = Scheduler(program, client)
        large = api.put(PODS, of("web", make_pod("large", cpu="2")))
        said = await ask.filter(large)
        assert not said["NodeNames"]
        assert set(said["FailedAndUnresolvableNodes"].values()) == {
            "quota quotas/web: cpu: 2 asked, 2 of 3 taken, 1 left: 3 is its max"
        }
        assert "its max" in await ask.bind(large, "n2")
        assert not api.bindings
        api.put(QUOTAS, written("web", "1", "4"))
        await eventually(
            lambda: (
                keys.WAKE_ANNOTATION
                in api.get_object(PODS, "default", "large")["metadata"].get("annotations", {})
            )
        )
        assert (await ask.filter(large))["NodeNames"]
        assert await ask.bind(large, "n2") == ""


async def test_a_restart_knows_all_before_it_answers(api, running, make_pod):
    """Quotas and pods, in whatever order they are listed."""
    for number in range(3):
        api.put(PODS, of("web", make_pod(f"there-{number}", node="n1")))
    api.put(QUOTAS, written("web", "1", "3"))
    late = api.put(PODS, of("web", make_pod("late")))
    for _ in range(2):
        async with running(api, **ON) as program, httpx.AsyncClient(timeout=30) as client:
            assert not (await Scheduler(program, client).filter(late))["NodeNames"]


async def test_a_definition_that_is_not_there_limits_nobody_and_is_waited_for(
    api, running, make_pod, eventually, caplog
):
    api.put(QUOTAS, written("web", "0", "0"))
    missing = NotFound(404, "NotFound", "the server could not find the requested resource")
    api.fail("list_page", missing, resource=QUOTAS, times=2)
    async with running(api, **ON) as program, httpx.AsyncClient(timeout=30) as client:
        assert "elasticquotas.scheduling.sigs.k8s.io not listed" in caplog.text
        pod = api.put(PODS, of("web", make_pod("web")))
        assert (await Scheduler(program, client).filter(pod))["NodeNames"]
        await eventually(lambda: program.hearing.quotas)
        assert not (await Scheduler(program, client).filter(pod))["NodeNames"]


async def test_off_by_default(api, running, make_pod):
    api.put(QUOTAS, written("web", "0", "0"))
    async with running(api, **{**ON, "quotas": Quotas()}) as program, httpx.AsyncClient(timeout=30) as client:
        pod = api.put(PODS, of("web", make_pod("web")))
        assert (await Scheduler(program, client).filter(pod))["NodeNames"]
        assert "elasticquotas" not in program.reflectors


def test_placeholders_do_not_keep_quotas() -> None:
    with pytest.raises(ConfigError, match="does not keep quotas"):
        load(None, {"keeper": Keeper.PLACEHOLDERS.value, "quotas": {"enabled": True}})


async def test_how_a_quota_stands_is_in_its_status(api, running, make_pod, eventually):
    api.put(PODS, of("web", make_pod("there", cpu="3", node="n1")))
    api.put(PODS, of("web", make_pod("waits", cpu="2")))
    api.put(QUOTAS, written("web", "1", "4"))
    status = lambda: api.get_object(QUOTAS, "quotas", "web").get("status", {})  # noqa: E731
    async with running(api, **ON) as program:
        await eventually(lambda: status().get("used") == {"cpu": "3", "pods": "1"})
        assert status()["runtime"] == {"cpu": "4"}
        assert (status()["request"]["cpu"], status()["borrowed"]["cpu"]) == ("5", "2")
        writes = [verb for verb, resource, _ in api.calls if (verb, resource) == ("patch", QUOTAS)]
        assert len(writes) == 1
        api.remove(PODS, "default", "there")
        await eventually(lambda: status()["used"]["cpu"] == "0")
        assert program.limits is not None


class OfUpstream(MemoryAPI):
    """Its definition has no status subresource, and keeps nothing but `used`."""

    async def patch(self, resource, namespace, name, body, *, subresource=""):
        if resource == QUOTAS:
            if subresource:
                raise NotFound(404, "NotFound", "the server could not find the requested resource")
            body = {**body, "status": {"used": body["status"]["used"]}}
        return await super().patch(resource, namespace, name, body, subresource=subresource)


async def test_what_the_definition_does_not_keep_is_written_once(
    running, make_node, make_pod, eventually, caplog
):
    caplog.set_level("INFO")
    api = OfUpstream()
    api.put(NODES, make_node("n1"))
    api.put(PODS, of("web", make_pod("there", cpu="3", node="n1")))
    api.put(QUOTAS, written("web", "1", "4"))
    async with running(api, **ON):
        await eventually(lambda: "keeps of their status 'used' alone" in caplog.text)
        assert api.get_object(QUOTAS, "quotas", "web")["status"] == {"used": {"cpu": "3", "pods": "1"}}
