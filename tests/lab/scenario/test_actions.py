"""What steps do where the lab sees pods late. The API server is played, as the test wants it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

from adapters.api import PODS, Resource
from lab.scenario.actions import Actions
from lab.scenario.models import Scenario
from lab.scenario.objects import Scope
from lab.scenario.observation import Observation
from lab.scenario.steps import Churn, Delete, Workload
from lab.scenario.targets import Target
from tests.waiting import eventually, running

WORKLOAD = Workload.model_validate({"name": "batch", "count": 2, "requests": {"cpu": "1"}})
NODES = [{"name": "n", "count": 1, "allocatable": {"cpu": "4"}}]
SCENARIO = Scenario.model_validate(
    {"name": "s", "description": "d", "nodes": NODES, "steps": [{"pause": "1s"}]}
)


class LateAPI:
    """Takes what it is asked at once; the observation hears of it when a test says so."""

    def __init__(self, observation: Observation) -> None:
        self.calls: list[str] = []
        self._observation = observation
        self._bodies: dict[str, dict[str, Any]] = {}

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> bytes:
        name = body["metadata"]["name"]
        self.calls.append(f"create {name}")
        self._bodies[name] = body
        return b""

    async def delete(self, resource: Resource, namespace: str, name: str) -> None:
        self.calls.append(f"delete {name}")

    def show(self, name: str, *, bound: bool = True, deleted: bool = False) -> None:
        body = self._bodies[name]
        body["metadata"] |= {"uid": name, "resourceVersion": "1"}
        body["spec"] |= {"nodeName": "n"} if bound else {}
        self._observation.see(PODS, json.dumps(body).encode(), 1.0, deleted=deleted)


async def test_churn_replaces_each_pod_once_however_late_it_is_seen() -> None:
    observation = Observation("s")
    api = LateAPI(observation)
    target = SimpleNamespace(api=api, scope=Scope("s", "s"))
    actions = Actions(SCENARIO, cast("Target", target), observation)
    await actions.create(WORKLOAD)
    for name in ("batch-0", "batch-1"):
        api.show(name)
    del api.calls[:]
    async with running(actions.churn(Churn(workload="batch", rate=500, seconds=0.008))):
        two = ["delete batch-0", "create batch-2", "delete batch-1", "create batch-3"]
        await eventually(lambda: api.calls == two)
        api.show("batch-2", bound=False)
        api.show("batch-0", deleted=True)
        api.show("batch-3")
        await eventually(lambda: api.calls == [*two, "delete batch-3", "create batch-4"])
        api.show("batch-2")
        await eventually(lambda: api.calls[6:] == ["delete batch-2", "create batch-5"])


async def test_a_pod_is_deleted_once_however_late_its_end_is_seen() -> None:
    observation = Observation("s")
    api = LateAPI(observation)
    actions = Actions(SCENARIO, cast("Target", SimpleNamespace(api=api, scope=Scope("s", "s"))), observation)
    await actions.create(WORKLOAD)
    for name in ("batch-0", "batch-1"):
        api.show(name)
    del api.calls[:]
    for _ in range(3):
        await actions.delete(Delete(workload="batch", count=1))
    assert api.calls == ["delete batch-0", "delete batch-1"]
