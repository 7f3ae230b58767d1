"""Koordinator's ConfigMap, against an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.api import CONFIG_MAPS, APIError
from adapters.memory import MemoryAPI
from agent.network.configured import Configured
from agent.network.koordinator import DEFAULT, SloControllerConfig, readable
from tests.waiting import eventually, running

BANDS = '{"clusterStrategy": {"beClass": {"networkQOS": {"enable": true, "egressLimit": "80M"}}}}'
TOTAL = '{"clusterStrategy": {"totalNetworkBandwidth": "800M"}}'


def config_map(namespace: str = "koordinator-system", **data: str) -> dict[str, Any]:
    named = {"namespace": namespace, "name": "slo-controller-config"}
    return {"metadata": named, "data": {key.replace("_", "-"): text for key, text in data.items()}}


class World:
    def __init__(self, **before: str) -> None:
        self.api = MemoryAPI()
        self.kept = {key.replace("_", "-"): text for key, text in before.items()}
        self.changes = 0

    def _changed(self) -> None:
        self.changes += 1

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        async def soon(_: float) -> None:
            await asyncio.sleep(0.001)

        one = SloControllerConfig(self.api, DEFAULT, self.kept, self._changed, sleep=soon)
        async with running(one.run()):
            yield

    async def until(self, check: Callable[[], bool]) -> None:
        await eventually(check, f"{self.kept}")


async def test_what_says_something_of_networks_is_kept() -> None:
    world = World()
    async with world.followed():
        world.api.put(CONFIG_MAPS, config_map(system_config=TOTAL, colocation_config="{}"))
        await world.until(lambda: world.kept == {"system-config": TOTAL})
        world.api.put(CONFIG_MAPS, config_map(system_config=TOTAL, colocation_config="[]"))
        world.api.put(CONFIG_MAPS, config_map(resource_qos_config=BANDS))
        await world.until(lambda: world.kept == {"resource-qos-config": BANDS})
        assert world.changes == 2, "another key of it is no change"
        world.api.remove(CONFIG_MAPS, "koordinator-system", "slo-controller-config")
        await world.until(lambda: not world.kept)


async def test_another_namespaces_is_not_koordinators() -> None:
    world = World()
    world.api.put(CONFIG_MAPS, config_map("shop", system_config=TOTAL))
    async with world.followed():
        world.api.put(CONFIG_MAPS, config_map(resource_qos_config=BANDS))
        await world.until(lambda: world.kept == {"resource-qos-config": BANDS})


async def test_what_was_known_goes_once_the_server_says_that_it_is_gone() -> None:
    world = World(system_config=TOTAL)
    async with world.followed():
        await world.until(lambda: not world.kept)


async def test_what_was_known_stays_while_nobody_may_look() -> None:
    world = World(system_config=TOTAL)
    refused = APIError(403, "Forbidden", "cannot list configmaps")
    world.api.fail("list_page", refused, resource=CONFIG_MAPS, times=1000)
    async with world.followed():
        await world.until(lambda: len(world.api.calls) > 3)
    assert (world.kept, world.changes) == ({"system-config": TOTAL}, 0)


@pytest.mark.parametrize("broken", ["{", "not json", "[" * 100_000], ids=["cut", "text", "deep"])
def test_what_cannot_be_read_stays_as_it_was(broken: str) -> None:
    before = {"system-config": TOTAL}
    said, (problem,) = readable({"system-config": broken, "resource-qos-config": BANDS}, before)
    assert said == {"system-config": TOTAL, "resource-qos-config": BANDS}
    assert problem.startswith("system-config: ")
    assert readable({"system-config": broken}, {})[0] == {}


def test_it_counts_before_options_and_after_files(tmp_path: Any) -> None:
    configured = Configured(folder=tmp_path)
    assert configured.look({}, {"system-config": TOTAL})
    assert configured.configuration.total_egress == 100_000_000, "bits of Koordinator"
    assert not configured.look({}, {"system-config": TOTAL})
    (tmp_path / "system-config").write_text('{"clusterStrategy": {"totalNetworkBandwidth": "400M"}}')
    assert [configured.look({}, {"system-config": TOTAL}) for _ in range(2)].count(True) == 1
    assert configured.configuration.total_egress == 50_000_000
    alone = Configured()
    assert alone.look({}, {"system-config": TOTAL}), "no folder is needed for it"
    assert alone.look({}, {})
    assert alone.configuration.total_egress == 0
